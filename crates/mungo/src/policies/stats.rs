//! Counts of what a policy did, per P, and how long goroutines waited.

use crate::histogram::{Histogram, Recorder};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter that several threads may write: a policy may decide for a P that it is not on.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of one P under one policy.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ProcCounters {
    pub(crate) switches: Count,
    pub(crate) steals_tried: Count,
    pub(crate) steals_won: Count,
    pub(crate) global_checks: Count,
    pub(crate) global_takes: Count,
    pub(crate) preemptions: Count,
    pub(crate) deadline_misses: Count,
}

/// Counts of what a policy did since it was put in force, by [`policy::stats`](crate::policy::stats()).
///
/// The default policy runs without time stamps: of it there are only the names and the faults of others. To measure it,
/// use `default:measured=1`, which is the same policy behind the interface.
///
/// ```
/// use mungo::policy::{self, Fifo};
///
/// let runtime = mungo::Runtime::builder().procs(1).scheduler(Fifo::new()).build()?;
/// runtime.run(|| {
///     mungo::go(|| ()).join().unwrap();
///     let stats = policy::stats();
///     assert_eq!(stats.policy, "fifo");
///     assert_eq!((stats.replaced, stats.last_fault), (0, None));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The name of the policy in force.
    pub policy: String,
    /// Number of runnable goroutines that it has.
    pub queued: u64,
    /// Number of those in the global queue.
    pub global_queue: u64,
    /// How long goroutines waited in queues.
    pub wait: Histogram,
    /// Number of tasks that this and earlier policies of the runtime dropped.
    pub dropped_tasks: u64,
    /// Number of policies of the runtime that were replaced because of a fault.
    pub replaced: u64,
    /// The fault of the last of them.
    pub last_fault: Option<String>,
    /// The Ps, one by one.
    pub per_proc: Vec<ProcStats>,
}

impl Stats {
    /// Returns a sum over all Ps.
    ///
    /// ```
    /// let stats = mungo::policy::stats();
    /// assert!(stats.sum(|p| p.steals_won) <= stats.sum(|p| p.steals_tried));
    /// ```
    pub fn sum(&self, of: impl Fn(&ProcStats) -> u64) -> u64 {
        self.per_proc.iter().map(of).sum()
    }
}

/// The counters of one P.
///
/// ```
/// use mungo::policy::sim::Machine;
/// use mungo::policy::{Cause, Fifo};
///
/// let mut machine = Machine::new(2, 1);
/// let a = machine.spawn();
/// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
/// assert_eq!(machine.stats(0).queue, 1);
/// assert_eq!(machine.next(&Fifo::new(), 1), Some(a));
/// assert_eq!((machine.stats(0).queue, machine.stats(1).steals_won), (0, 1));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcStats {
    /// Number of goroutines in its queue.
    pub queue: u64,
    /// Number of goroutines that it ran.
    pub switches: u64,
    /// Number of looks into other Ps' queues.
    pub steals_tried: u64,
    /// Number of looks that found something.
    pub steals_won: u64,
    /// Number of times that the global queue was asked for first.
    pub global_checks: u64,
    /// Number of times that it took from the global queue.
    pub global_takes: u64,
    /// Number of goroutines that were preempted here for a more urgent one.
    pub preemptions: u64,
    /// Number of deadlines that passed before the work was done.
    pub deadline_misses: u64,
}

impl ProcCounters {
    pub(crate) fn read(&self, queue: usize) -> ProcStats {
        ProcStats {
            queue: queue as u64,
            switches: self.switches.get(),
            steals_tried: self.steals_tried.get(),
            steals_won: self.steals_won.get(),
            global_checks: self.global_checks.get(),
            global_takes: self.global_takes.get(),
            preemptions: self.preemptions.get(),
            deadline_misses: self.deadline_misses.get(),
        }
    }
}

/// The counters of all Ps under one policy.
pub(crate) struct Counters {
    pub(crate) wait: Box<Recorder>,
    pub(crate) procs: Box<[ProcCounters]>,
}

impl Counters {
    pub(crate) fn new(procs: usize) -> Counters {
        Counters {
            wait: Box::new(Recorder::new()),
            procs: (0..procs).map(|_| ProcCounters::default()).collect(),
        }
    }
}
