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

use super::proc::Machine as Behind;
use super::queue::{FIRST_LOCAL, GLOBAL, Lane};
use super::stats::{Counters, ProcCounters, ProcStats};
use super::task::{Cause, Home, Node, TaskInfo};
use super::{Event, Next, Priority, Proc, Rank, Scheduler, Topology};
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The odd number that splitmix64 walks by.
pub(super) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// splitmix64: a random number of a counter.
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A simulated goroutine: its number, from 1 on.
pub type Id = u64;

/// A goroutine's node, and where a dropped task is noted.
struct SimTask {
    node: Node,
    dropped: Arc<Mutex<Vec<Id>>>,
}

impl Home for SimTask {
    fn came_back(&self, node: &Node) {
        self.dropped.lock().unwrap_or_else(|e| e.into_inner()).push(node.info().id);
    }
}

/// A machine that exists on paper.
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
    /// A machine of so many Ps. The same seed gives the same dice.
    pub fn new(procs: usize, seed: u64) -> Machine {
        Machine::with_topology(procs, seed, Topology::flat())
    }

    /// A machine whose P `i` is on CPU `i` of `topology`.
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

    /// A new goroutine of usual rank, which is not queued yet.
    pub fn spawn(&mut self) -> Id {
        self.spawn_ranked(&Rank::default())
    }

    /// A new goroutine with a priority and a weight.
    pub fn spawn_with(&mut self, priority: Priority, weight: u32) -> Id {
        let rank = Rank { priority: Some(priority), weight: Some(weight), ..Rank::default() };
        self.spawn_ranked(&rank)
    }

    /// A new goroutine that is to be done in so long.
    pub fn spawn_with_deadline(&mut self, after: Duration) -> Id {
        let deadline_after_ns = Some(after.as_nanos() as u64);
        self.spawn_ranked(&Rank { deadline_after_ns, ..Rank::default() })
    }

    /// A new goroutine with a period and a budget.
    ///
    /// # Errors
    /// What the policy says to it.
    pub fn spawn_periodic(
        &mut self,
        policy: &dyn Scheduler,
        period: Duration,
        budget: Duration,
    ) -> io::Result<Id> {
        let rank = Rank { period_budget: Some((period, budget)), ..Rank::default() };
        rank.check()?;
        let node = Node::new();
        node.begin(0, &rank, None, self.now_ns.get());
        policy
            .admit(&node.info(), self.lanes.len())
            .map_err(|why| io::Error::new(io::ErrorKind::QuotaExceeded, why))?;
        Ok(self.spawn_ranked(&rank))
    }

    fn spawn_ranked(&mut self, rank: &Rank) -> Id {
        let id = self.tasks.len() as u64 + 1;
        let task = Arc::new(SimTask { node: Node::new(), dropped: self.dropped.clone() });
        task.node.begin(id, rank, None, self.now_ns.get());
        task.node.enter_generation(id, 1);
        self.tasks.push(task);
        id
    }

    fn task(&self, id: Id) -> &Arc<SimTask> {
        &self.tasks[id as usize - 1]
    }

    /// Moves the clock.
    pub fn advance(&mut self, by: Duration) {
        self.now_ns.set(self.now_ns.get() + by.as_nanos() as u64);
    }

    /// Sets how many goroutines P `proc` has begun to run: [`Proc::tick`].
    pub fn set_tick(&mut self, proc: usize, tick: u32) {
        self.ticks[proc].set(tick);
    }

    /// What is known of a goroutine.
    pub fn info(&self, id: Id) -> TaskInfo {
        self.task(id).node.info()
    }

    /// A goroutine is runnable: the policy queues it, on P `proc`.
    pub fn queue(&mut self, policy: &dyn Scheduler, id: Id, proc: usize, cause: Cause) {
        let task = self.task(id).clone();
        task.node.set_cause(cause);
        task.node.note_enqueued(self.now_ns.get(), 0);
        let lent = task.node.lend(Some(task.clone()));
        let local = !matches!(cause, Cause::Preempted);
        let next = matches!(cause, Cause::Spawned | Cause::Woken | Cause::Timer);
        policy.queue_task(lent, &mut Proc::new(self, proc), next, local);
    }

    /// What P `proc` runs next.
    pub fn next(&mut self, policy: &dyn Scheduler, proc: usize) -> Option<Id> {
        let next = policy.next_task(&mut Proc::new(self, proc));
        let Some(Next { task, inherit_time, .. }) = next else {
            self.running[proc].set(None);
            return None;
        };
        let id = task.info().id;
        let node: NonNull<Node> = task.accept()?;
        debug_assert!(std::ptr::eq(node.as_ptr(), &raw const self.task(id).node));
        self.task(id).node.note_dispatched(self.now_ns.get(), proc as u32);
        if !inherit_time {
            self.ticks[proc].set(self.ticks[proc].get().wrapping_add(1));
        }
        self.running[proc].set(Some(self.info(id)));
        Some(id)
    }

    /// A goroutine used so much CPU time; the clock is not moved.
    pub fn charge(&mut self, id: Id, cpu: Duration) {
        self.task(id).node.charge(cpu.as_nanos() as u64);
    }

    /// Tells the policy that a goroutine stopped on P `proc` and is not queued.
    pub fn stop(&mut self, policy: &dyn Scheduler, id: Id, proc: usize, event: Event) {
        self.running[proc].set(None);
        let mut info = self.info(id);
        policy.event(event, &mut info, &mut Proc::new(self, proc));
        self.task(id).node.set_words(info.words);
    }

    /// The view of P `proc` that a policy gets.
    pub fn proc(&mut self, proc: usize) -> Proc<'_> {
        Proc::new(self, proc)
    }

    /// Goroutines whose tasks the policy dropped.
    pub fn dropped(&self) -> Vec<Id> {
        self.dropped.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// The counters of a P.
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
