//! What a policy did: counters per P, and how long goroutines waited.

use crate::metrics::Histogram;
use crate::metrics::histogram::Recorder;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter that several may write: a policy may decide for a P that it is not on.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of one P under one policy.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ProcCounters {
    pub(super) switches: Count,
    pub(super) steals_tried: Count,
    pub(super) steals_won: Count,
    pub(super) global_checks: Count,
    pub(super) global_takes: Count,
    pub(super) preemptions: Count,
    pub(super) deadline_misses: Count,
}

/// What a policy did since it was put in force, by [`policy::stats`](super::stats()).
///
/// The default policy runs without time stamps: of it there are only the names and the faults of others. To measure it,
/// use `default:measured=1`, which is the same policy behind the interface.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The policy in force.
    pub policy: String,
    /// Runnable goroutines in its hands.
    pub queued: u64,
    /// Of those, in the global queue.
    pub global_queue: u64,
    /// How long goroutines waited in queues.
    pub wait: Histogram,
    /// Tasks that this and earlier policies of the runtime dropped.
    pub dropped_tasks: u64,
    /// Policies of the runtime that were replaced because of a fault.
    pub replaced: u64,
    /// What the last of them did.
    pub last_fault: Option<String>,
    /// The Ps, one by one.
    pub per_proc: Vec<ProcStats>,
}

impl Stats {
    /// A sum over all Ps.
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
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcStats {
    /// Goroutines in its queue.
    pub queue: u64,
    /// Goroutines that it ran.
    pub switches: u64,
    /// Looks into others' queues.
    pub steals_tried: u64,
    /// Looks that found something.
    pub steals_won: u64,
    /// Times that the global queue was asked for first.
    pub global_checks: u64,
    /// Times that it took from the global queue.
    pub global_takes: u64,
    /// Goroutines that were preempted here for a more urgent one.
    pub preemptions: u64,
    /// Deadlines that passed before the work was done.
    pub deadline_misses: u64,
}

impl ProcCounters {
    pub(super) fn read(&self, queue: usize) -> ProcStats {
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
pub(super) struct Counters {
    pub(super) wait: Box<Recorder>,
    pub(super) procs: Box<[ProcCounters]>,
}

impl Counters {
    pub(super) fn new(procs: usize) -> Counters {
        Counters {
            wait: Box::new(Recorder::new()),
            procs: (0..procs).map(|_| ProcCounters::default()).collect(),
        }
    }
}
