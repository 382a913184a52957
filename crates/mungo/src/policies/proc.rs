//! The machine as a policy sees it: a P that asks, its queue, the shared one, its peers.

use super::queue::Lane;
use super::run_queue::RunQueue;
use super::stats::ProcCounters;
use super::topology::Topology;
use crate::policies::order::GLOBAL_SHARE;
use crate::policies::task::{Task, TaskInfo};
use std::time::Duration;

/// The machine behind a [`Proc`]: the runtime, or a simulation.
pub(crate) trait Behind {
    fn procs(&self) -> usize;
    fn global(&self) -> &Lane;
    fn lane(&self, proc: usize) -> &Lane;
    fn tick(&self, proc: usize) -> u32;
    fn now_ns(&self) -> u64;
    fn random(&self) -> u64;
    fn running(&self, proc: usize) -> Option<TaskInfo>;
    fn topology(&self) -> &Topology;
    fn node_of(&self, proc: usize) -> usize;
    fn time_slice(&self) -> Duration;
    fn counters(&self, proc: usize) -> &ProcCounters;
}

/// The P that a policy decides for: its queues, its clock, its dice.
///
/// Everything that a policy needs to know comes through here, so that the same policy runs in the runtime and in a
/// [simulation](super::sim). It lives for one call.
///
/// ```
/// use mungo::policy::sim::Machine;
/// use mungo::policy::{Cause, Fifo};
///
/// let mut machine = Machine::new(2, 1);
/// let a = machine.spawn();
/// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
/// let mut proc = machine.proc(1);
/// assert_eq!((proc.id(), proc.procs()), (1, 2));
/// assert!(proc.local().is_empty());
/// assert_eq!(proc.of(0).len(), 1);
/// ```
pub struct Proc<'a> {
    machine: &'a dyn Behind,
    id: usize,
}

impl<'a> Proc<'a> {
    pub(crate) fn new(machine: &'a dyn Behind, id: usize) -> Proc<'a> {
        Proc { machine, id }
    }

    /// Returns the number of this P.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    ///
    /// assert_eq!(Machine::new(2, 1).proc(1).id(), 1);
    /// ```
    pub fn id(&self) -> usize {
        self.id
    }

    /// Returns how many Ps there are; their ids are smaller.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    ///
    /// assert_eq!(Machine::new(4, 1).proc(0).procs(), 4);
    /// ```
    pub fn procs(&self) -> usize {
        self.machine.procs()
    }

    /// Returns how many goroutines this P has begun to run with a fresh slice.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// let before = machine.proc(0).tick();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&Fifo::new(), 0), Some(a));
    /// assert_eq!(machine.proc(0).tick(), before + 1);
    /// ```
    pub fn tick(&self) -> u32 {
        self.machine.tick(self.id)
    }

    /// Returns the machine's time: nanoseconds of a monotonic clock, real or simulated.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use std::time::Duration;
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let before = machine.proc(0).now_ns();
    /// machine.advance(Duration::from_micros(5));
    /// assert_eq!(machine.proc(0).now_ns() - before, 5_000);
    /// ```
    pub fn now_ns(&self) -> u64 {
        self.machine.now_ns()
    }

    /// Returns a random number.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    ///
    /// let draw = |seed| Machine::new(1, seed).proc(0).random();
    /// assert_eq!(draw(7), draw(7), "the same seed, the same dice");
    /// assert_ne!(draw(7), draw(8));
    /// ```
    pub fn random(&mut self) -> u64 {
        self.machine.random()
    }

    /// Returns how long a goroutine may run while others wait, if the policy does not say.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use std::time::Duration;
    ///
    /// assert_eq!(Machine::new(1, 1).proc(0).time_slice(), Duration::from_millis(10));
    /// ```
    pub fn time_slice(&self) -> Duration {
        self.machine.time_slice()
    }

    /// Returns which Ps are close to which.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    ///
    /// assert_eq!(Machine::new(2, 1).proc(0).topology().nodes(), 1);
    /// ```
    pub fn topology(&self) -> &Topology {
        self.machine.topology()
    }

    /// Returns the memory node where a P was when it last asked for work.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::Topology;
    ///
    /// let topology = Topology::new(vec![0, 1], vec![vec![10, 20], vec![20, 10]])?;
    /// let mut machine = Machine::with_topology(2, 1, topology);
    /// assert_eq!((machine.proc(0).node_of(0), machine.proc(0).node_of(1)), (0, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn node_of(&self, proc: usize) -> usize {
        self.machine.node_of(proc)
    }

    /// Returns what a P runs at the moment; it may have changed when this returns.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(2, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&Fifo::new(), 0), Some(a));
    /// assert_eq!(machine.proc(1).running(0).map(|task| task.id), Some(a));
    /// assert!(machine.proc(1).running(1).is_none());
    /// ```
    pub fn running(&self, proc: usize) -> Option<TaskInfo> {
        self.machine.running(proc)
    }

    /// Returns the queue of this P. Other Ps may take from it.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(2, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 1, Cause::Spawned);
    /// assert_eq!(machine.proc(1).local().len(), 1);
    /// assert_eq!(machine.proc(0).local().len(), 0);
    /// ```
    pub fn local(&mut self) -> RunQueue<'_> {
        self.of(self.id)
    }

    /// Returns the queue of P `proc`: to look at, to take from, or to give to.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(2, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 1, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let stolen = proc.of(1).pop_front().unwrap();
    /// proc.local().push_back(stolen);
    /// assert_eq!(machine.next(&Fifo::new(), 0), Some(a));
    /// ```
    ///
    /// # Panics
    /// If there is no such P.
    pub fn of(&mut self, proc: usize) -> RunQueue<'_> {
        RunQueue(self.machine.lane(proc))
    }

    /// Returns the queue that all Ps share.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(2, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Outside);
    /// assert_eq!(machine.proc(0).global().len(), 1);
    /// assert_eq!(machine.proc(1).global().len(), 1, "it is the same one");
    /// ```
    pub fn global(&mut self) -> RunQueue<'_> {
        RunQueue(self.machine.global())
    }

    /// Returns whether the queue that all Ps share is empty.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// assert!(machine.proc(0).global_is_empty());
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Outside);
    /// assert!(!machine.proc(0).global_is_empty());
    /// ```
    pub fn global_is_empty(&self) -> bool {
        self.machine.global().len() == 0
    }

    /// Takes one task from the global queue, and moves a fair share of the others to the own one.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(2, 1);
    /// for _ in 0..5 {
    ///     let id = machine.spawn();
    ///     machine.queue(&Fifo::new(), id, 0, Cause::Outside);
    /// }
    /// let mut proc = machine.proc(0);
    /// let task = proc.take_global_share().unwrap();
    /// assert_eq!(proc.local().len(), 2, "half of the other four: there are two Ps");
    /// assert_eq!(proc.global().len(), 2);
    /// # proc.local().push_front(task);
    /// ```
    pub fn take_global_share(&mut self) -> Option<Task> {
        let first = self.machine.global().pop_front()?;
        let share = (self.machine.global().len() / self.procs().max(1)).min(GLOBAL_SHARE);
        for _ in 0..share {
            let Some(task) = self.machine.global().pop_front() else { break };
            self.local().push_back(task);
        }
        self.machine.counters(self.id).global_takes.add(1);
        Some(first)
    }

    /// Takes half of the queue of P `victim`: the first is returned, the others go to the back of the own queue.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(2, 1);
    /// for _ in 0..4 {
    ///     let id = machine.spawn();
    ///     machine.queue(&Fifo::new(), id, 0, Cause::Spawned);
    /// }
    /// let mut thief = machine.proc(1);
    /// let task = thief.steal_half(0).unwrap();
    /// assert_eq!((thief.of(0).len(), thief.local().len()), (2, 1));
    /// assert!(thief.steal_half(1).is_none(), "not from itself");
    /// # thief.local().push_front(task);
    /// ```
    ///
    /// # Panics
    /// If there is no such P.
    pub fn steal_half(&mut self, victim: usize) -> Option<Task> {
        if victim == self.id {
            return None;
        }
        let counters = self.machine.counters(self.id);
        counters.steals_tried.add(1);
        let from = self.machine.lane(victim);
        let half = from.len().div_ceil(2);
        let first = from.pop_front()?;
        counters.steals_won.add(1);
        for _ in 1..half {
            let Some(task) = from.pop_front() else { break };
            self.local().push_back(task);
        }
        Some(first)
    }

    /// Counts, for the statistics, a deadline that has passed before the work was done.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    ///
    /// let mut machine = Machine::new(1, 1);
    /// machine.proc(0).note_deadline_miss();
    /// assert_eq!(machine.stats(0).deadline_misses, 1);
    /// ```
    pub fn note_deadline_miss(&mut self) {
        self.machine.counters(self.id).deadline_misses.add(1);
    }
}

impl std::fmt::Debug for Proc<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proc").field("id", &self.id).field("procs", &self.procs()).finish_non_exhaustive()
    }
}

impl<'a> Proc<'a> {
    /// Counts, for the statistics, a look at the global queue.
    pub(crate) fn note_global_check(&mut self) {
        self.machine.counters(self.id).global_checks.add(1);
    }
}
