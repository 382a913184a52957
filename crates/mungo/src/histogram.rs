//! Times in buckets: log-linear as in HdrHistogram, of a fixed size.
//!
//! Each power of two is cut into [`PARTS`] equal buckets, so a bucket is at most an eighth of its values wide.
//! Values from zero to [`LONGEST_NS`] are told apart; longer ones count as that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const PART_BITS: u32 = 3;
/// Number of buckets to a power of two.
const PARTS: u64 = 1 << PART_BITS;
/// Bits of the longest time in ns that is told apart: about 73 minutes.
const LONGEST_BITS: u32 = 42;
const LONGEST_NS: u64 = (1 << LONGEST_BITS) - 1;
const BUCKETS: usize = ((LONGEST_BITS - PART_BITS + 1) as u64 * PARTS) as usize;

/// Returns the bucket of a value. Below `2 * PARTS` each has its own; then the power of two and the next three bits
/// tell.
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min(LONGEST_NS);
    let shift = (63 - (ns | PARTS).leading_zeros()) - PART_BITS;
    (u64::from(shift) * PARTS + (ns >> shift)) as usize
}

/// Returns the largest value in a bucket, in ns.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match (bucket / PARTS).checked_sub(1) {
        None | Some(0) => bucket,
        Some(shift) => ((bucket % PARTS + PARTS + 1) << shift) - 1,
    }
}

/// A histogram that many threads may write to.
pub(crate) struct Recorder {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Recorder {
    pub(crate) const fn new() -> Recorder {
        Recorder { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }

    /// Counts `ns`, `times` times.
    pub(crate) fn record(&self, ns: u64, times: u64) {
        self.buckets[bucket_of(ns)].fetch_add(times, Relaxed);
        self.sum_ns.fetch_add(ns.min(LONGEST_NS) * times, Relaxed);
    }
}

/// A distribution of times: how long something took, and how often. A snapshot.
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// runtime.run(|| (0..1000).for_each(|_| mungo::yield_now()));
/// let times = runtime.metrics().run_time;
/// assert!(times.count() > 0);
/// assert!(times.quantile(0.5) <= times.quantile(0.99));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: vec![0; BUCKETS], sum_ns: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, from: &Recorder) {
        for (to, from) in self.buckets.iter_mut().zip(&from.buckets) {
            *to += from.load(Relaxed);
        }
        self.sum_ns = self.sum_ns.wrapping_add(from.sum_ns.load(Relaxed));
    }

    /// Returns how many there were. Estimated from samples, see [`Metrics`](crate::Metrics).
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// runtime.run(|| (0..1000).for_each(|_| mungo::yield_now()));
    /// let times = runtime.metrics().run_time;
    /// assert!(times.count() > 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// runtime.run(|| (0..1000).for_each(|_| mungo::yield_now()));
    /// let times = runtime.metrics().run_time;
    /// assert!(times.sum() >= times.mean());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Returns the average; zero if there were none.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// runtime.run(|| (0..1000).for_each(|_| mungo::yield_now()));
    /// let times = runtime.metrics().run_time;
    /// assert_eq!(times.mean(), times.sum() / times.count() as u32);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.checked_div(self.count()).unwrap_or(0))
    }

    /// Returns the time that the share `q` of all, from 0 to 1, does not exceed; up to an eighth too long. Zero if
    /// there were none.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// runtime.run(|| (0..1000).for_each(|_| mungo::yield_now()));
    /// let times = runtime.metrics().run_time;
    /// assert!(times.quantile(0.5) <= times.quantile(0.99));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        found.map_or(Duration::ZERO, |bucket| Duration::from_nanos(last_of(bucket)))
    }

    /// Iterates over the buckets that are not empty: the longest time in it, and how often.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// runtime.run(|| (0..1000).for_each(|_| mungo::yield_now()));
    /// let times = runtime.metrics().run_time;
    /// assert_eq!(times.buckets().map(|(_, n)| n).sum::<u64>(), times.count());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let times = self.buckets.iter().enumerate().filter(|(_, n)| **n != 0);
        times.map(|(bucket, n)| (Duration::from_nanos(last_of(bucket)), *n))
    }

    /// Iterates over powers of two of ns from 2^`first` on: how many were shorter, and not counted before.
    pub(crate) fn octaves(&self, first: u32, last: u32) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut from = 0;
        (first..=last).map(move |power| {
            let to = bucket_of(1 << power);
            let count = self.buckets[from..to].iter().sum();
            from = to;
            (1 << power, count)
        })
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("mean", &self.mean())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.quantile(1.0))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut expected = 0;
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(expected), bucket, "the first value of a bucket");
            assert_eq!(bucket_of(last_of(bucket)), bucket, "the last one");
            let width = last_of(bucket) - expected + 1;
            assert!(width == 1 || width * PARTS <= expected, "{expected}: narrow enough");
            expected = last_of(bucket) + 1;
        }
        assert_eq!(expected, LONGEST_NS + 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_and_sums() {
        let recorder = Recorder::new();
        (1..=1000u64).for_each(|us| recorder.record(us * 1000, 2));
        let mut times = Histogram::default();
        assert_eq!((times.quantile(0.5), times.mean()), (Duration::ZERO, Duration::ZERO));
        times.add(&recorder);
        assert_eq!(times.count(), 2000);
        assert_eq!(times.mean(), Duration::from_nanos(500_500));
        for (q, us) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let (exact, found) = (Duration::from_micros(us), times.quantile(q));
            assert!(found >= exact && found <= exact + exact / 8, "{q}: {found:?}");
        }
        assert_eq!(times.buckets().map(|(_, n)| n).sum::<u64>(), 2000);
    }

    #[test]
    fn octaves_add_up() {
        let recorder = Recorder::new();
        [100, 255, 256, 1000, 1024].iter().for_each(|ns| recorder.record(*ns, 1));
        let mut times = Histogram::default();
        times.add(&recorder);
        assert_eq!(times.octaves(8, 11).collect::<Vec<_>>(), [(256, 2), (512, 1), (1024, 1), (2048, 1)]);
    }
}
