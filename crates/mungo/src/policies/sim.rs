//! A simulated machine, to try policies without threads and without time.
//!
//! It runs the same [`Scheduler`] objects as the runtime, one decision after the other, on a clock that is moved by
//! hand and with dice that fall the same for the same seed.
//!
//! ```
//! use mungo::policy::sim::Machine;
//! use mungo::policy::{Cause, Fifo};
//!
//! let mut machine = Machine::new(2, 1);
//! let (a, b) = (machine.spawn(), machine.spawn());
//! machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
//! machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
//! assert_eq!(machine.next(&Fifo::new(), 0), Some(a));
//! assert_eq!(machine.next(&Fifo::new(), 1), Some(b), "stolen");
//! ```

use super::proc::Behind;
use super::{Event, Next, Priority, Proc, Rank, Scheduler, Topology};
use crate::policies::queue::{FIRST_LOCAL, GLOBAL, Lane};
use crate::policies::stats::{Counters, ProcCounters, ProcStats};
use crate::policies::task::{Cause, Home, Node, TaskInfo};
use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The odd number that splitmix64 walks by.
pub(crate) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns a random number of a counter, by splitmix64.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A simulated goroutine: its number, from 1 on.
///
/// ```
/// use mungo::policy::sim::Machine;
///
/// let first: mungo::policy::sim::Id = Machine::new(1, 1).spawn();
/// assert_eq!(first, 1);
/// ```
pub type Id = u64;

/// A goroutine's node, and where a dropped task is noted.
struct SimTask {
    node: Node,
    dropped: Arc<Mutex<Vec<Id>>>,
}

impl Home for SimTask {
    fn came_back(&self, node: &Node, _fault: bool) {
        self.dropped.lock().unwrap_or_else(|e| e.into_inner()).push(node.info().id);
    }
}

/// A simulated machine.
///
/// ```
/// use mungo::policy::sim::Machine;
/// use mungo::policy::{Cause, DefaultPolicy};
///
/// let (policy, mut machine) = (DefaultPolicy::new(), Machine::new(1, 1));
/// let (old, woken) = (machine.spawn(), machine.spawn());
/// machine.queue(&policy, old, 0, Cause::Yielded);
/// machine.queue(&policy, woken, 0, Cause::Woken);
/// assert_eq!(machine.next(&policy, 0), Some(woken), "next in line");
/// assert_eq!(machine.next(&policy, 0), Some(old));
/// ```
pub struct Machine {
    global: Lane,
    lanes: Box<[Lane]>,
    counters: Counters,
    ticks: Box<[Cell<u32>]>,
    running: Box<[Cell<Option<TaskInfo>>]>,
    topology: Topology,
    now_ns: Cell<u64>,
    rng: Cell<u64>,
    tasks: Vec<Arc<SimTask>>,
    dropped: Arc<Mutex<Vec<Id>>>,
}

impl Machine {
    /// Makes a machine of `procs` Ps. The same seed gives the same dice.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    ///
    /// let mut machine = Machine::new(3, 42);
    /// assert_eq!(machine.proc(0).procs(), 3);
    /// ```
    pub fn new(procs: usize, seed: u64) -> Machine {
        Machine::with_topology(procs, seed, Topology::flat())
    }

    /// Makes a machine whose P `i` is on CPU `i` of `topology`.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::Topology;
    ///
    /// let topology = Topology::new(vec![0, 1], vec![vec![10, 20], vec![20, 10]])?;
    /// let mut machine = Machine::with_topology(2, 1, topology);
    /// assert_eq!(machine.proc(0).node_of(1), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_topology(procs: usize, seed: u64, topology: Topology) -> Machine {
        Machine {
            global: Lane::new(GLOBAL),
            lanes: (0..procs as u32).map(|p| Lane::new(FIRST_LOCAL + p)).collect(),
            counters: Counters::new(procs),
            ticks: (0..procs).map(|_| Cell::new(1)).collect(),
            running: (0..procs).map(|_| Cell::new(None)).collect(),
            topology,
            now_ns: Cell::new(1_000_000_000),
            rng: Cell::new(seed),
            tasks: Vec::new(),
            dropped: Arc::default(),
        }
    }

    /// Makes a goroutine of usual rank, which is not queued yet.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    ///
    /// let mut machine = Machine::new(1, 1);
    /// assert_eq!((machine.spawn(), machine.spawn()), (1, 2));
    /// assert!(machine.proc(0).local().is_empty());
    /// ```
    pub fn spawn(&mut self) -> Id {
        self.spawn_ranked(&Rank::default())
    }

    /// Makes a goroutine with a priority and a weight.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Priority, PriorityLevels};
    ///
    /// let (policy, mut machine) = (PriorityLevels::new(), Machine::new(1, 1));
    /// let (usual, urgent) = (machine.spawn(), machine.spawn_with(Priority::HIGH, 1024));
    /// machine.queue(&policy, usual, 0, Cause::Spawned);
    /// machine.queue(&policy, urgent, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&policy, 0), Some(urgent));
    /// ```
    pub fn spawn_with(&mut self, priority: Priority, weight: u32) -> Id {
        let rank = Rank { priority: Some(priority), weight: Some(weight), ..Rank::default() };
        self.spawn_ranked(&rank)
    }

    /// Makes a goroutine that is to be done in `after` from now.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Deadline};
    /// use std::time::Duration;
    ///
    /// let (policy, mut machine) = (Deadline::new(), Machine::new(1, 1));
    /// let later = machine.spawn_with_deadline(Duration::from_millis(20));
    /// let sooner = machine.spawn_with_deadline(Duration::from_millis(5));
    /// machine.queue(&policy, later, 0, Cause::Spawned);
    /// machine.queue(&policy, sooner, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&policy, 0), Some(sooner));
    /// ```
    pub fn spawn_with_deadline(&mut self, after: Duration) -> Id {
        let deadline_after_ns = Some(after.as_nanos() as u64);
        self.spawn_ranked(&Rank { deadline_after_ns, ..Rank::default() })
    }

    /// Makes a goroutine with a period and a budget.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::Deadline;
    /// use std::time::Duration;
    ///
    /// let (policy, mut machine) = (Deadline::new(), Machine::new(1, 1));
    /// let ms = Duration::from_millis;
    /// assert!(machine.spawn_periodic(&policy, ms(10), ms(9)).is_ok());
    /// assert!(machine.spawn_periodic(&policy, ms(10), ms(1)).is_err(), "95 % of a P can be promised");
    /// ```
    ///
    /// # Errors
    /// Returns the reason that the policy gives for refusing it.
    pub fn spawn_periodic(
        &mut self,
        policy: &dyn Scheduler,
        period: Duration,
        budget: Duration,
    ) -> io::Result<Id> {
        let rank = Rank { period_budget: Some((period, budget)), ..Rank::default() };
        rank.check()?;
        let node = Node::new(None);
        node.begin(0, &rank, None, self.now_ns.get());
        policy
            .admit(&node.info(), self.lanes.len())
            .map_err(|why| io::Error::new(io::ErrorKind::QuotaExceeded, why))?;
        Ok(self.spawn_ranked(&rank))
    }

    fn spawn_ranked(&mut self, rank: &Rank) -> Id {
        let id = self.tasks.len() as u64 + 1;
        let task = Arc::new(SimTask { node: Node::new(None), dropped: self.dropped.clone() });
        task.node.begin(id, rank, None, self.now_ns.get());
        task.node.enter_generation(id, 1);
        self.tasks.push(task);
        id
    }

    fn task(&self, id: Id) -> &Arc<SimTask> {
        &self.tasks[id as usize - 1]
    }

    /// Moves the clock.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    /// use std::time::Duration;
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.advance(Duration::from_micros(7));
    /// machine.next(&Fifo::new(), 0);
    /// assert_eq!(machine.info(a).dispatched_ns - machine.info(a).enqueued_ns, 7_000);
    /// ```
    pub fn advance(&mut self, by: Duration) {
        self.now_ns.set(self.now_ns.get() + by.as_nanos() as u64);
    }

    /// Sets how many goroutines P `proc` has begun to run: [`Proc::tick`].
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, DefaultPolicy};
    ///
    /// let (policy, mut machine) = (DefaultPolicy::new(), Machine::new(1, 1));
    /// let (own, outside) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, own, 0, Cause::Yielded);
    /// machine.queue(&policy, outside, 0, Cause::Outside);
    /// machine.set_tick(0, 61);
    /// assert_eq!(machine.next(&policy, 0), Some(outside), "the queue of all has its turn");
    /// ```
    pub fn set_tick(&mut self, proc: usize, tick: u32) {
        self.ticks[proc].set(tick);
    }

    /// Returns what is known of a goroutine.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// assert_eq!((machine.info(a).id, machine.info(a).last_proc), (a, None));
    /// ```
    pub fn info(&self, id: Id) -> TaskInfo {
        self.task(id).node.info()
    }

    /// Lets the policy queue a runnable goroutine, on P `proc`.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, DefaultPolicy};
    ///
    /// let (policy, mut machine) = (DefaultPolicy::new(), Machine::new(2, 1));
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, a, 1, Cause::Woken);
    /// machine.queue(&policy, b, 1, Cause::Preempted);
    /// assert_eq!(machine.proc(1).local().len(), 1);
    /// assert_eq!(machine.proc(1).global().len(), 1, "a preempted one belongs to all");
    /// ```
    pub fn queue(&mut self, policy: &dyn Scheduler, id: Id, proc: usize, cause: Cause) {
        let task = self.task(id).clone();
        task.node.set_cause(cause);
        task.node.note_enqueued(self.now_ns.get(), 0);
        let lent = task.node.lend(Some(task.clone()));
        let local = !matches!(cause, Cause::Preempted | Cause::Outside | Cause::Unblocked);
        let next = matches!(cause, Cause::Spawned | Cause::Woken | Cause::Timer);
        policy.queue_task(lent, &mut Proc::new(self, proc), next, local);
    }

    /// Returns what P `proc` runs next.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Lifo};
    ///
    /// let (policy, mut machine) = (Lifo::new(), Machine::new(1, 1));
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, a, 0, Cause::Spawned);
    /// machine.queue(&policy, b, 0, Cause::Spawned);
    /// assert_eq!([machine.next(&policy, 0), machine.next(&policy, 0)], [Some(b), Some(a)]);
    /// assert_eq!(machine.next(&policy, 0), None);
    /// ```
    pub fn next(&mut self, policy: &dyn Scheduler, proc: usize) -> Option<Id> {
        let next = policy.next_task(&mut Proc::new(self, proc));
        let Some(Next { task, inherit_time, .. }) = next else {
            self.running[proc].set(None);
            return None;
        };
        let id = task.info().id;
        if !self.tasks.iter().any(|own| std::ptr::eq(&own.node, task.node())) {
            return None; // another machine's or a runtime's: it is dropped, and goes home
        }
        task.accept()?;
        self.task(id).node.note_dispatched(self.now_ns.get(), proc as u32);
        if !inherit_time {
            self.ticks[proc].set(self.ticks[proc].get().wrapping_add(1));
        }
        self.running[proc].set(Some(self.info(id)));
        Some(id)
    }

    /// Charges a goroutine with `cpu` of CPU time; the clock is not moved.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::Priority;
    /// use std::time::Duration;
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let heavy = machine.spawn_with(Priority::NORMAL, 4096);
    /// machine.charge(heavy, Duration::from_millis(4));
    /// let info = machine.info(heavy);
    /// assert_eq!((info.cpu_ns, info.vruntime_ns), (4_000_000, 1_000_000));
    /// ```
    pub fn charge(&mut self, id: Id, cpu: Duration) {
        self.task(id).node.charge(cpu.as_nanos() as u64);
    }

    /// Tells the policy that a goroutine stopped on P `proc` and is not queued.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Event, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.next(&Fifo::new(), 0);
    /// assert!(machine.proc(0).running(0).is_some());
    /// machine.stop(&Fifo::new(), a, 0, Event::Ended);
    /// assert!(machine.proc(0).running(0).is_none());
    /// ```
    pub fn stop(&mut self, policy: &dyn Scheduler, id: Id, proc: usize, event: Event) {
        self.running[proc].set(None);
        let mut info = self.info(id);
        policy.event(event, &mut info, &mut Proc::new(self, proc));
        self.task(id).node.set_words(info.words);
    }

    /// Returns the view of P `proc` that a policy gets.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Fifo, Scheduler};
    ///
    /// let mut machine = Machine::new(2, 1);
    /// assert!(Fifo::new().next_task(&mut machine.proc(1)).is_none());
    /// ```
    pub fn proc(&mut self, proc: usize) -> Proc<'_> {
        Proc::new(self, proc)
    }

    /// Returns goroutines whose tasks the policy dropped.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Proc, Scheduler, Task};
    ///
    /// /// Loses every task.
    /// struct Careless;
    ///
    /// impl Scheduler for Careless {
    ///     fn queue_task(&self, task: Task, _proc: &mut Proc<'_>, _next: bool, _local: bool) {
    ///         drop(task);
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Careless, a, 0, Cause::Spawned);
    /// assert_eq!(machine.dropped(), [a]);
    /// ```
    pub fn dropped(&self) -> Vec<Id> {
        self.dropped.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Returns the counters of a P.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, DefaultPolicy};
    ///
    /// let (policy, mut machine) = (DefaultPolicy::new(), Machine::new(1, 1));
    /// let a = machine.spawn();
    /// machine.queue(&policy, a, 0, Cause::Outside);
    /// assert_eq!(machine.next(&policy, 0), Some(a));
    /// assert_eq!(machine.stats(0).global_takes, 1);
    /// ```
    pub fn stats(&self, proc: usize) -> ProcStats {
        self.counters.procs[proc].read(self.lanes[proc].len())
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("procs", &self.lanes.len())
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

impl Behind for Machine {
    fn procs(&self) -> usize {
        self.lanes.len()
    }

    fn global(&self) -> &Lane {
        &self.global
    }

    fn lane(&self, proc: usize) -> &Lane {
        &self.lanes[proc]
    }

    fn tick(&self, proc: usize) -> u32 {
        self.ticks[proc].get()
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn random(&self) -> u64 {
        self.rng.set(self.rng.get().wrapping_add(STEP));
        mix(self.rng.get())
    }

    fn running(&self, proc: usize) -> Option<TaskInfo> {
        self.running.get(proc)?.get()
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn node_of(&self, proc: usize) -> usize {
        self.topology.node_of_cpu(proc)
    }

    fn time_slice(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn counters(&self, proc: usize) -> &ProcCounters {
        &self.counters.procs[proc]
    }
}
