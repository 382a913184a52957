//! The metrics in the text format of Prometheus (OpenMetrics), by the project's own crate.

use super::table::MetricValue;
use crate::histogram::Histogram;
use crate::metrics::Metrics;
use crate::runtime::Runtime;
use crate::sched::shared::Shared;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;

/// Powers of two of nanoseconds that have a bucket in histograms: from 256 ns to about 17 s.
const SHORTEST_BITS: u32 = 8;
const LONGEST_BITS: u32 = 34;

/// A collector that a registry of `prometheus-client` asks at each scrape; by [`Runtime::prometheus_collector`].
///
/// ```
/// use prometheus_client::registry::Registry;
///
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// let mut registry = Registry::default();
/// let collector: mungo::MetricsCollector = runtime.prometheus_collector();
/// registry.register_collector(Box::new(collector));
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
/// assert!(text.contains("mungo_procs 1"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct MetricsCollector(Arc<Shared>);

impl Collector for MetricsCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        write(&Metrics::of(&self.0), encoder)
    }
}

#[derive(Debug)]
struct Snapshot(Metrics);

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        write(&self.0, encoder)
    }
}

impl Runtime {
    /// Returns the metrics of this runtime, fresh at each scrape, for programs that have a registry already. Does not
    /// keep the runtime from ending.
    ///
    /// ```
    /// use prometheus_client::{encoding::text::encode, registry::Registry};
    ///
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// let mut registry = Registry::default();
    /// registry.register_collector(Box::new(runtime.prometheus_collector()));
    /// let mut text = String::new();
    /// encode(&mut text, &registry).unwrap();
    /// assert!(text.contains("mungo_procs 1"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn prometheus_collector(&self) -> MetricsCollector {
        MetricsCollector(self.shared().clone())
    }
}

impl Metrics {
    /// Returns the text that a Prometheus server scrapes (OpenMetrics 1.0; content type `application/openmetrics-text;
    /// version=1.0.0; charset=utf-8`).
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(2).build()?;
    /// let text = runtime.metrics().to_prometheus();
    /// assert!(text.contains("\nmungo_procs 2\n"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Snapshot(self.clone())));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes everything");
        text
    }
}

fn write(metrics: &Metrics, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
    let mut all = metrics.each().peekable();
    while let Some(metric) = all.next() {
        let (kind, unit) = match metric.value {
            MetricValue::Counter(_) | MetricValue::ProcCounter(..) => (MetricType::Counter, None),
            MetricValue::Gauge(_) | MetricValue::ProcGauge(..) => (MetricType::Gauge, None),
            MetricValue::Times(_) => (MetricType::Histogram, Some(&Unit::Seconds)),
        };
        let mut family = encoder.encode_descriptor(metric.name, metric.help, unit, kind)?;
        // Those of the Ps follow each other.
        let mut value = Some(metric.value);
        while let Some(v) = value {
            match v {
                MetricValue::Counter(n) => family.encode_counter::<NoLabelSet, _, u64>(&n, None)?,
                MetricValue::Gauge(n) => family.encode_gauge(&(n as i64))?,
                MetricValue::Times(times) => write_times(times, &mut family)?,
                MetricValue::ProcCounter(proc, n) => {
                    let labels = labels(proc);
                    family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&n, None)?;
                }
                MetricValue::ProcGauge(proc, n) => {
                    family.encode_family(&labels(proc))?.encode_gauge(&(n as i64))?
                }
            }
            value = all.next_if(|next| next.name == metric.name).map(|next| next.value);
        }
    }
    Ok(())
}

fn labels(proc: usize) -> impl EncodeLabelSet {
    [("proc", proc.to_string())]
}

fn write_times(times: &Histogram, family: &mut prometheus_client::encoding::MetricEncoder<'_>) -> fmt::Result {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut buckets: Vec<(f64, u64)> =
        times.octaves(SHORTEST_BITS, LONGEST_BITS).map(|(ns, n)| (seconds(ns), n)).collect();
    let counted: u64 = buckets.iter().map(|(_, n)| n).sum();
    buckets.push((f64::INFINITY, times.count() - counted));
    family.encode_histogram::<NoLabelSet>(times.sum().as_secs_f64(), times.count(), &buckets, None)
}
