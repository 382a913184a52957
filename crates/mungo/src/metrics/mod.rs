//! The metrics of a runtime: counters, gauges, and times.

#[cfg(feature = "prometheus")]
pub(crate) mod prometheus;
pub(crate) mod table;

use crate::histogram::{Histogram, Recorder};
use crate::runtime::Runtime;
use crate::sched::interpose::{self, Totals};
use crate::sched::run::p::P;
use crate::sched::shared::Shared;
use crate::sched::start::with_current;
use crate::sched::threads::preempt::Outcome;
use std::sync::atomic::Ordering::Relaxed;

/// A snapshot of what a runtime did, by [`metrics`](crate::metrics()) or [`Runtime::metrics`](crate::Runtime::metrics).
///
/// The counters are exact. The histograms are estimated: about one switch a millisecond on each P is timed, and counts
/// for those before it; see [`Histogram`].
///
/// [`each`](Metrics::each) lists all of it with names and explanations; with the feature `prometheus`,
/// `to_prometheus` is the text that a scraper wants.
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// runtime.run(|| mungo::go(|| ()).join().unwrap());
/// let metrics: mungo::Metrics = runtime.metrics();
/// assert!(metrics.spawned >= 1 && metrics.procs == 1);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Number of goroutines alive.
    pub goroutines: u64,
    /// Number of goroutines spawned so far.
    pub spawned: u64,
    /// Number of goroutines that ended so far.
    pub finished: u64,
    /// Number of Ps.
    pub procs: u64,
    /// Number of Ps without work.
    pub idle_procs: u64,
    /// Number of threads for goroutines.
    pub threads: u64,
    /// Number of threads without a P.
    pub idle_threads: u64,
    /// Number of threads that look for work.
    pub spinning_threads: u64,
    /// Number of threads that the system refused to start.
    pub failed_thread_starts: u64,
    /// Number of goroutines that wait for any P: in the global queue, in that of goroutines that were interrupted while
    /// they computed, and held back until there is a thread for them.
    pub global_queue: u64,
    /// Number of timers that have not fired, goroutines that sleep included.
    pub timers: u64,
    /// How long goroutines waited in a run queue.
    pub queue_wait: Histogram,
    /// How long goroutines that were woken waited until they ran; part of `queue_wait`.
    pub wakeup_latency: Histogram,
    /// How long goroutines ran at a stretch: until they parked, yielded or ended. Includes the time in which they were
    /// blocked in the kernel, or interrupted.
    pub run_time: Histogram,
    /// Results of the signals that asked goroutines to make room.
    pub interruptions: InterruptionMetrics,
    /// Number of calls of C functions that goroutines made, with `mungo-interpose`, in the whole process.
    pub interposed: InterposedMetrics,
    /// The Ps, one by one.
    pub per_proc: Vec<ProcMetrics>,
}

/// Number of calls of C functions by goroutines of all runtimes, by what came of them. Zeros without `mungo-interpose`.
///
/// ```
/// let calls: mungo::InterposedMetrics = mungo::Metrics::default().interposed;
/// assert_eq!((calls.passed, calls.parked, calls.fell_back), (0, 0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterposedMetrics {
    /// Done at once.
    pub passed: u64,
    /// Parked the goroutine.
    pub parked: u64,
    /// Left to the kernel, which may have blocked the thread.
    pub fell_back: u64,
}

impl InterposedMetrics {
    fn now() -> InterposedMetrics {
        let Totals { passed, parked, fell_back } = interpose::totals();
        InterposedMetrics { passed, parked, fell_back }
    }
}

/// Number of times that a goroutine that did not call the runtime was interrupted, by the way that it gave its P up.
///
/// A goroutine in libc, in a signal handler or in a system call, or whose thread had no CPU, lost its P if it stayed
/// there.
///
/// ```
/// let interruptions: mungo::InterruptionMetrics = mungo::Metrics::default().interruptions;
/// assert_eq!((interruptions.injected, interruptions.in_libc), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterruptionMetrics {
    /// Suspended by an injected call. The goroutine holds no thread meanwhile; in all other cases it does.
    pub injected: u64,
    /// By thread-switching, as `MUNGO_DEBUG=asyncpreempt=thread` asks, because the program brings a C `malloc` of its
    /// own, or because the CPU allows nothing else.
    pub by_thread: u64,
    /// By thread-switching, because it ran on a stack that is not a goroutine's own.
    pub foreign_stack: u64,
    /// By thread-switching, because too little of its stack was left.
    pub little_stack: u64,
    /// By thread-switching, because its thread blocked other signals than usual.
    pub signal_mask: u64,
    /// By thread-switching, because it shares its thread's thread-locals.
    pub shared_thread_locals: u64,
    /// By thread-switching, because a shadow stack is in force.
    pub shadow_stack: u64,
    /// Not at all, because it was in libc or in the loader.
    pub in_libc: u64,
    /// Not at all, because it was in a signal handler of the program.
    pub in_handler: u64,
    /// Not at all, because it was in a system call.
    pub in_system_call: u64,
}

impl InterruptionMetrics {
    fn of(shared: &Shared) -> InterruptionMetrics {
        let count = |outcome| shared.interruptions.of(outcome);
        InterruptionMetrics {
            injected: count(Outcome::Injected),
            by_thread: count(Outcome::ByThread),
            foreign_stack: count(Outcome::ForeignStack),
            little_stack: count(Outcome::LittleStack),
            signal_mask: count(Outcome::SignalMask),
            shared_thread_locals: count(Outcome::SharedThreadLocals),
            shadow_stack: count(Outcome::ShadowStack),
            in_libc: count(Outcome::InLibc),
            in_handler: count(Outcome::InHandler),
            in_system_call: count(Outcome::InSystemCall),
        }
    }
}

/// The counters of one P.
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// runtime.run(|| (0..100).for_each(|_| mungo::yield_now()));
/// let p: &mungo::ProcMetrics = &runtime.metrics().per_proc[0];
/// assert!(p.yields >= 100);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcMetrics {
    /// Number of goroutines in its queue.
    pub queue: u64,
    /// Number of times that it resumed a goroutine.
    pub switches: u64,
    /// Number of times that a goroutine blocked.
    pub parks: u64,
    /// Number of times that a goroutine yielded.
    pub yields: u64,
    /// Number of times that a goroutine lost the P at the end of its slice.
    pub preemptions: u64,
    /// Number of times that it was taken from a goroutine that blocked its thread.
    pub retakes: u64,
    /// Number of looks into other Ps' queues.
    pub steal_attempts: u64,
    /// Number of looks that found something.
    pub steals: u64,
    /// Number of times that half of the queue went to the global one.
    pub overflows: u64,
    /// Number of times that it took from the global queue.
    pub global_takes: u64,
    /// Number of its timers that have not fired.
    pub timers: u64,
}

impl Runtime {
    /// Returns counts of what the scheduler did so far.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// let before = runtime.metrics().spawned;
    /// runtime.run(|| mungo::go(|| ()).join().unwrap());
    /// assert!(runtime.metrics().spawned > before);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        Metrics::of(self.shared())
    }
}

/// Returns counts of what the scheduler of this runtime did so far: [`Runtime::metrics`](crate::Runtime::metrics)
/// without a handle, as under `#[mungo::main]`.
///
/// "This runtime" is the calling goroutine's, on a plain thread the default one.
///
/// ```
/// let metrics = mungo::go(mungo::metrics).join().unwrap();
/// assert!(metrics.goroutines >= 1 && metrics.procs >= 1);
/// ```
#[doc(alias("statistics", "prometheus"))]
pub fn metrics() -> Metrics {
    with_current(Metrics::of)
}

impl Metrics {
    pub(crate) fn of(shared: &Shared) -> Metrics {
        let (threads, idle_threads) = {
            let synced = shared.synced.lock();
            (synced.live_ms as u64, synced.idle_ms.len() as u64)
        };
        let (spawned, finished) = shared.spawned_and_finished();
        let per_proc: Vec<_> = shared.all_ps().map(ProcMetrics::of).collect();
        Metrics {
            goroutines: spawned - finished,
            spawned,
            finished,
            procs: u64::from(shared.procs()),
            idle_procs: u64::from(shared.counts.idle_ps()),
            threads,
            idle_threads,
            spinning_threads: u64::from(shared.counts.spinning()),
            failed_thread_starts: shared.starter.failed.load(Relaxed),
            global_queue: (shared.global_len() + shared.held_len.load(Relaxed)) as u64,
            timers: per_proc.iter().map(|p| p.timers).sum(),
            queue_wait: merged(shared, |p| &p.sampler.queue_wait),
            wakeup_latency: merged(shared, |p| &p.sampler.wakeup),
            run_time: merged(shared, |p| &p.sampler.run_time),
            interruptions: InterruptionMetrics::of(shared),
            interposed: InterposedMetrics::now(),
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
