//! What a policy sees of the machine: a P that asks, its queue, the shared one, its peers.

use super::queue::{Closed, Lane};
use super::stats::ProcCounters;
use super::task::{Task, TaskInfo};
use super::topology::Topology;
use std::time::Duration;

/// What is behind a [`Proc`]: the runtime, or a simulation.
pub(super) trait Machine {
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

/// The most tasks that move from the global queue to a P's own at a time: Go's number.
const BATCH: usize = 128;

/// The P that a policy decides for: its queues, its clock, its dice.
///
/// Everything that a policy needs to know comes through here, so that the same policy runs in the runtime and in a
/// [simulation](super::sim). It lives for one call.
pub struct Proc<'a> {
    machine: &'a dyn Machine,
    id: usize,
}

impl<'a> Proc<'a> {
    pub(super) fn new(machine: &'a dyn Machine, id: usize) -> Proc<'a> {
        Proc { machine, id }
    }

    /// Which P this is.
    pub fn id(&self) -> usize {
        self.id
    }

    /// How many Ps there are; their ids are smaller.
    pub fn procs(&self) -> usize {
        self.machine.procs()
    }

    /// How many goroutines this P has begun to run with a fresh slice.
    pub fn tick(&self) -> u32 {
        self.machine.tick(self.id)
    }

    /// The machine's clock: nanoseconds of a monotonic clock, real or simulated.
    pub fn now_ns(&self) -> u64 {
        self.machine.now_ns()
    }

    /// A random number.
    pub fn random(&mut self) -> u64 {
        self.machine.random()
    }

    /// How long a goroutine may run while others wait, if the policy does not say.
    pub fn time_slice(&self) -> Duration {
        self.machine.time_slice()
    }

    /// Which Ps are close to which.
    pub fn topology(&self) -> &Topology {
        self.machine.topology()
    }

    /// The memory node where a P was when it last asked for work.
    pub fn node_of(&self, proc: usize) -> usize {
        self.machine.node_of(proc)
    }

    /// What a P runs at the moment; it may have changed when this returns.
    pub fn running(&self, proc: usize) -> Option<TaskInfo> {
        self.machine.running(proc)
    }

    /// The queue of this P. Others may take from it.
    pub fn local(&mut self) -> RunQueue<'_> {
        self.of(self.id)
    }

    /// The queue of P `proc`: to look at, to take from, or to give to.
    ///
    /// # Panics
    /// If there is no such P.
    pub fn of(&mut self, proc: usize) -> RunQueue<'_> {
        RunQueue(self.machine.lane(proc))
    }

    /// The queue of all.
    pub fn global(&mut self) -> RunQueue<'_> {
        RunQueue(self.machine.global())
    }

    /// Whether the queue of all has none.
    pub fn global_is_empty(&self) -> bool {
        self.machine.global().len() == 0
    }

    /// Takes one task from the global queue, and moves a fair share of the others to the own one.
    pub fn take_global_share(&mut self) -> Option<Task> {
        let first = self.machine.global().pop_front()?;
        let share = (self.machine.global().len() / self.procs().max(1)).min(BATCH);
        for _ in 0..share {
            let Some(task) = self.machine.global().pop_front() else { break };
            self.local().push_back(task);
        }
        self.machine.counters(self.id).global_takes.add(1);
        Some(first)
    }

    /// Takes half of the queue of P `victim`: the first is returned, the others go to the back of the own queue.
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

    /// For the statistics: a deadline has passed before the work was done.
    pub fn note_deadline_miss(&mut self) {
        self.machine.counters(self.id).deadline_misses.add(1);
    }
}

impl std::fmt::Debug for Proc<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proc").field("id", &self.id).field("procs", &self.procs()).finish_non_exhaustive()
    }
}

/// A queue of the machine: tasks in the order of a key, and in the order of their arrival if the keys are equal.
///
/// A policy uses keys or ends: one that is pushed to the front or to the back takes the key of its neighbour.
pub struct RunQueue<'a>(&'a Lane);

impl RunQueue<'_> {
    /// How many wait; others may change it at any time.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a task behind those with a smaller or the same key.
    pub fn push(&mut self, task: Task, key: u64) {
        give_back(self.0.push(task, key));
    }

    /// Adds a task behind all others.
    pub fn push_back(&mut self, task: Task) {
        give_back(self.0.push_back(task));
    }

    /// Adds a task before all others.
    pub fn push_front(&mut self, task: Task) {
        give_back(self.0.push_front(task));
    }

    /// Puts a task next in line, where it inherits the slice of the one that runs. Who was there goes to the back;
    /// and so does this one if the slice ends first.
    pub fn push_next(&mut self, task: Task) {
        give_back(self.0.push_next(task));
    }

    /// Takes the task that is next in line.
    pub fn pop_next(&mut self) -> Option<Task> {
        self.0.pop_next()
    }

    /// Takes the one that is next in line, or else the first.
    pub fn pop_front(&mut self) -> Option<Task> {
        self.0.pop_front()
    }

    /// Takes the last one.
    pub fn pop_back(&mut self) -> Option<Task> {
        self.0.pop_back()
    }

    /// Takes the first one that is `wanted`. Looks at all that are not, with the queue locked.
    pub fn pop_where(&mut self, wanted: impl FnMut(&TaskInfo) -> bool) -> Option<Task> {
        self.0.pop_where(wanted)
    }

    /// The smallest key.
    pub fn first_key(&self) -> Option<u64> {
        self.0.first_key()
    }

    /// Shows those who wait, in their order, with the queue locked.
    pub fn for_each(&self, f: impl FnMut(&TaskInfo)) {
        self.0.for_each(f);
    }
}

impl std::fmt::Debug for RunQueue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunQueue").field("len", &self.len()).finish()
    }
}

impl<'a> Proc<'a> {
    /// For the statistics.
    pub(super) fn note_global_check(&mut self) {
        self.machine.counters(self.id).global_checks.add(1);
    }
}

/// The queue was closed because the policy is being replaced: the runtime takes the task.
fn give_back(pushed: Result<(), Closed>) {
    if let Err(Closed(task)) = pushed {
        super::hooks::give_back(task);
    }
}
