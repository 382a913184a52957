//! What the scheduler did: counters, gauges, and times.

pub(crate) mod histogram;
#[cfg(feature = "prometheus")]
pub(crate) mod prometheus;
pub(crate) mod sample;
pub(crate) mod table;

pub use histogram::Histogram;

use self::histogram::Recorder;
use crate::sched::p::P;
use crate::sched::shared::Shared;
use std::sync::atomic::Ordering::Relaxed;

/// A snapshot of what a runtime did, by [`Runtime::metrics`](crate::Runtime::metrics).
///
/// The counters are exact. The histograms are estimated: about one switch a millisecond on each P is timed, and counts
/// for those before it; see [`Histogram`].
///
/// [`each`](Metrics::each) lists all of it with names and explanations; with the feature `prometheus`,
/// `to_prometheus` is the text that a scraper wants.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Goroutines alive.
    pub goroutines: u64,
    /// Goroutines spawned so far.
    pub spawned: u64,
    /// Goroutines that ended so far.
    pub finished: u64,
    /// Ps.
    pub procs: u64,
    /// Ps without work.
    pub idle_procs: u64,
    /// Threads for goroutines.
    pub threads: u64,
    /// Threads without a P.
    pub idle_threads: u64,
    /// Threads that look for work.
    pub spinning_threads: u64,
    /// Threads that the system refused to start.
    pub failed_thread_starts: u64,
    /// Goroutines in the global queue.
    pub global_queue: u64,
    /// Timers that have not fired, goroutines that sleep included.
    pub timers: u64,
    /// How long goroutines waited in a run queue.
    pub queue_wait: Histogram,
    /// How long goroutines that were woken waited until they ran; part of `queue_wait`.
    pub wakeup_latency: Histogram,
    /// How long goroutines ran at a stretch: until they parked, yielded or ended. What was spent blocked in the kernel,
    /// or interrupted, is in it.
    pub run_time: Histogram,
    /// The Ps, one by one.
    pub per_proc: Vec<ProcMetrics>,
}

/// The counters of one P.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcMetrics {
    /// Goroutines in its queue.
    pub queue: u64,
    /// Times that it resumed a goroutine.
    pub switches: u64,
    /// Times that a goroutine blocked.
    pub parks: u64,
    /// Times that a goroutine yielded.
    pub yields: u64,
    /// Times that a goroutine lost the P at the end of its slice.
    pub preemptions: u64,
    /// Times that it was taken from a goroutine that blocked its thread.
    pub retakes: u64,
    /// Looks into other Ps' queues.
    pub steal_attempts: u64,
    /// Looks that found something.
    pub steals: u64,
    /// Times that half of the queue went to the global one.
    pub overflows: u64,
    /// Times that it took from the global queue.
    pub global_takes: u64,
    /// Its timers that have not fired.
    pub timers: u64,
}

impl Metrics {
    pub(crate) fn of(shared: &Shared) -> Metrics {
        let (threads, idle_threads) = {
            let synced = shared.synced.lock();
            (synced.ms.len() as u64, synced.idle_ms.len() as u64)
        };
        let finished = shared.sum(|p| &p.counters.finished);
        let goroutines = shared.live();
        let per_proc: Vec<_> = shared.all_ps().map(ProcMetrics::of).collect();
        Metrics {
            goroutines,
            spawned: finished + goroutines,
            finished,
            procs: u64::from(shared.procs()),
            idle_procs: u64::from(shared.counts.idle_ps()),
            threads,
            idle_threads,
            spinning_threads: u64::from(shared.counts.spinning()),
            failed_thread_starts: shared.monitor.failed_starts.load(Relaxed),
            global_queue: shared.global_len() as u64,
            timers: per_proc.iter().map(|p| p.timers).sum(),
            queue_wait: merged(shared, |p| &p.sampler.queue_wait),
            wakeup_latency: merged(shared, |p| &p.sampler.wakeup),
            run_time: merged(shared, |p| &p.sampler.run_time),
            per_proc,
        }
    }
}

fn merged(shared: &Shared, of: impl Fn(&P) -> &Recorder) -> Histogram {
    let mut all = Histogram::default();
    shared.all_ps().for_each(|p| all.add(of(p)));
    all
}

impl ProcMetrics {
    fn of(p: &P) -> ProcMetrics {
        let c = &p.counters;
        ProcMetrics {
            queue: p.runq.len() as u64,
            switches: c.switches.get(),
            parks: c.parks.get(),
            yields: c.yields.get(),
            preemptions: c.preemptions.get(),
            retakes: c.retakes.get(),
            steal_attempts: c.steal_attempts.get(),
            steals: c.steals.get(),
            overflows: c.overflows.get(),
            global_takes: c.global_takes.get(),
            timers: p.timers.len() as u64,
        }
    }
}
