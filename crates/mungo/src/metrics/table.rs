//! The names and explanations of all metrics, in one table.

use crate::histogram::Histogram;
use crate::metrics::{Metrics, ProcMetrics};

/// A metric with what is needed to show it.
///
/// ```
/// let metrics = mungo::Metrics::default();
/// let names: Vec<&str> = metrics.each().map(|metric: mungo::Metric<'_>| metric.name).collect();
/// assert!(names.contains(&"mungo_goroutines") && names.iter().all(|name| name.starts_with("mungo_")));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric<'a> {
    /// `mungo_` and words with underscores, as Prometheus wants it; without the unit of times and the `_total` of
    /// counters.
    pub name: &'static str,
    /// An explanation in one sentence.
    pub help: &'static str,
    /// The value.
    pub value: MetricValue<'a>,
}

/// The kinds of metrics, with their values.
///
/// ```
/// use mungo::MetricValue;
///
/// mungo::Metrics::default().each().for_each(|metric| match metric.value {
///     MetricValue::Counter(n) | MetricValue::Gauge(n) => assert_eq!(n, 0),
///     MetricValue::Times(times) => assert_eq!(times.count(), 0),
///     _ => panic!("there is no P"),
/// });
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum MetricValue<'a> {
    /// It only grows.
    Counter(u64),
    /// It comes and goes.
    Gauge(u64),
    /// Times.
    Times(&'a Histogram),
    /// A counter of the P with this number.
    ProcCounter(usize, u64),
    /// A gauge of the P with this number.
    ProcGauge(usize, u64),
}

/// How to read it.
enum Read {
    Counter(fn(&Metrics) -> u64),
    Gauge(fn(&Metrics) -> u64),
    Times(fn(&Metrics) -> &Histogram),
    ProcCounter(fn(&ProcMetrics) -> u64),
    ProcGauge(fn(&ProcMetrics) -> u64),
}

use Read::{Counter, Gauge, ProcCounter, ProcGauge, Times};

#[rustfmt::skip]
static TABLE: [(&str, &str, Read); 38] = [
    ("mungo_goroutines", "Goroutines alive", Gauge(|m| m.goroutines)),
    ("mungo_goroutines_spawned", "Goroutines spawned", Counter(|m| m.spawned)),
    ("mungo_goroutines_finished", "Goroutines that ended", Counter(|m| m.finished)),
    ("mungo_procs", "Ps: goroutines that may run at the same time", Gauge(|m| m.procs)),
    ("mungo_procs_idle", "Ps without work", Gauge(|m| m.idle_procs)),
    ("mungo_threads", "Threads for goroutines", Gauge(|m| m.threads)),
    ("mungo_threads_idle", "Threads without a P", Gauge(|m| m.idle_threads)),
    ("mungo_threads_spinning", "Threads that look for work", Gauge(|m| m.spinning_threads)),
    ("mungo_thread_starts_failed", "Threads that the system refused to start", Counter(|m| m.failed_thread_starts)),
    ("mungo_global_queue", "Goroutines that wait for any P, computing and held back ones", Gauge(|m| m.global_queue)),
    ("mungo_timers", "Timers that have not fired", Gauge(|m| m.timers)),
    ("mungo_interruptions_injected", "Goroutines suspended by an injected call", Counter(|m| m.interruptions.injected)),
    ("mungo_interruptions_by_thread", "Goroutines interrupted by thread-switching, as asked for",
        Counter(|m| m.interruptions.by_thread)),
    ("mungo_interruptions_foreign_stack", "Goroutines interrupted by thread-switching, on a stack not their own",
        Counter(|m| m.interruptions.foreign_stack)),
    ("mungo_interruptions_little_stack", "Goroutines interrupted by thread-switching, with little stack left",
        Counter(|m| m.interruptions.little_stack)),
    ("mungo_interruptions_signal_mask", "Goroutines interrupted by thread-switching, with an unusual signal mask",
        Counter(|m| m.interruptions.signal_mask)),
    ("mungo_interruptions_shared_thread_locals",
        "Goroutines interrupted by thread-switching, with their thread's thread-locals",
        Counter(|m| m.interruptions.shared_thread_locals)),
    ("mungo_interruptions_shadow_stack", "Goroutines interrupted by thread-switching, with a shadow stack",
        Counter(|m| m.interruptions.shadow_stack)),
    ("mungo_interruptions_in_libc", "Signals that found a goroutine in libc or the loader",
        Counter(|m| m.interruptions.in_libc)),
    ("mungo_interruptions_in_handler", "Signals that found a goroutine in a signal handler of the program",
        Counter(|m| m.interruptions.in_handler)),
    ("mungo_interruptions_in_system_call", "Signals that found a goroutine in a system call",
        Counter(|m| m.interruptions.in_system_call)),
    ("mungo_interposed_passed", "C functions of mungo-interpose that goroutines called, done at once",
        Counter(|m| m.interposed.passed)),
    ("mungo_interposed_parked", "C functions of mungo-interpose that parked a goroutine",
        Counter(|m| m.interposed.parked)),
    ("mungo_interposed_fell_back", "C functions of mungo-interpose left to the kernel, which may block a thread",
        Counter(|m| m.interposed.fell_back)),
    ("mungo_proc_queue", "Goroutines in the run queue of a P", ProcGauge(|p| p.queue)),
    ("mungo_proc_switches", "Times that a P resumed a goroutine", ProcCounter(|p| p.switches)),
    ("mungo_proc_parks", "Times that a goroutine blocked", ProcCounter(|p| p.parks)),
    ("mungo_proc_yields", "Times that a goroutine yielded", ProcCounter(|p| p.yields)),
    ("mungo_proc_preemptions", "Times that a goroutine lost its P at the end of its slice",
        ProcCounter(|p| p.preemptions)),
    ("mungo_proc_retakes", "Times that a P was taken from a goroutine that blocked its thread",
        ProcCounter(|p| p.retakes)),
    ("mungo_proc_steal_attempts", "Looks into other run queues", ProcCounter(|p| p.steal_attempts)),
    ("mungo_proc_steals", "Looks into other run queues that found something", ProcCounter(|p| p.steals)),
    ("mungo_proc_overflows", "Times that half of a run queue went to the global one",
        ProcCounter(|p| p.overflows)),
    ("mungo_proc_global_takes", "Times that a P took from the global run queue", ProcCounter(|p| p.global_takes)),
    ("mungo_proc_timers", "Timers of a P that have not fired", ProcGauge(|p| p.timers)),
    ("mungo_queue_wait", "How long goroutines waited in a run queue; estimated", Times(|m| &m.queue_wait)),
    ("mungo_wakeup_latency", "How long woken goroutines waited until they ran; estimated",
        Times(|m| &m.wakeup_latency)),
    ("mungo_run_time", "How long goroutines ran at a stretch; estimated", Times(|m| &m.run_time)),
];

impl Metrics {
    /// Lists all metrics, with names and explanations. Those of the Ps come P by P, under the same name.
    ///
    /// ```
    /// use mungo::MetricValue;
    ///
    /// let runtime = mungo::Runtime::builder().procs(2).build()?;
    /// runtime.run(|| mungo::yield_now());
    /// let metrics = runtime.metrics();
    /// let procs = metrics.each().find(|m| m.name == "mungo_procs").unwrap();
    /// assert!(matches!(procs.value, MetricValue::Gauge(2)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn each(&self) -> impl Iterator<Item = Metric<'_>> {
        TABLE.iter().flat_map(move |(name, help, read)| {
            let values: Vec<MetricValue<'_>> = match read {
                Counter(get) => vec![MetricValue::Counter(get(self))],
                Gauge(get) => vec![MetricValue::Gauge(get(self))],
                Times(get) => vec![MetricValue::Times(get(self))],
                ProcCounter(get) => self.procs_by(|i, p| MetricValue::ProcCounter(i, get(p))),
                ProcGauge(get) => self.procs_by(|i, p| MetricValue::ProcGauge(i, get(p))),
            };
            values.into_iter().map(move |value| Metric { name, help, value })
        })
    }

    fn procs_by<'a>(&self, value: impl Fn(usize, &ProcMetrics) -> MetricValue<'a>) -> Vec<MetricValue<'a>> {
        self.per_proc.iter().enumerate().map(|(i, p)| value(i, p)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit_prometheus() {
        let mut names: Vec<_> = TABLE.iter().map(|(name, ..)| *name).collect();
        assert!(
            names.iter().all(|n| n.starts_with("mungo_") && !n.ends_with("_total") && !n.ends_with("_seconds"))
        );
        assert!(names.iter().all(|n| n.bytes().all(|c| c == b'_' || c.is_ascii_lowercase())), "{names:?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        assert!(TABLE.iter().all(|(_, help, _)| !help.is_empty() && !help.ends_with('.')));
    }
}
