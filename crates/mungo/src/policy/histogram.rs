//! How long something took, in buckets of about 3 %: log-linear, as HDR histograms are.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Each power of two is divided into so many buckets.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Up to 2^40 ns, eighteen minutes; what is longer counts there.
const POWERS: usize = 40 - STEP_BITS as usize;
const BUCKETS: usize = STEPS * (POWERS + 1);

/// Counts durations; anybody may add.
pub(super) struct Histogram {
    buckets: Box<[AtomicU64]>,
    max_ns: AtomicU64,
}

impl Histogram {
    pub(super) fn new() -> Histogram {
        Histogram { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max_ns: AtomicU64::new(0) }
    }

    pub(super) fn add(&self, ns: u64) {
        self.buckets[bucket_of(ns)].fetch_add(1, Relaxed);
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.fetch_max(ns, Relaxed);
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Relaxed)).collect();
        let count = counts.iter().sum::<u64>();
        let max_ns = self.max_ns.load(Relaxed);
        let quantile = |q: f64| {
            let rank = ((count as f64 * q).ceil() as u64).max(1);
            let mut below = 0;
            let at = counts.iter().position(|n| {
                below += n;
                below >= rank
            });
            Duration::from_nanos(at.map_or(0, |at| upper_end(at).min(max_ns)))
        };
        Summary {
            count,
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: Duration::from_nanos(max_ns),
        }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.summary().fmt(f)
    }
}

/// The shape of a distribution of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// How many there were.
    pub count: u64,
    /// Half of them were not longer.
    pub p50: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// 999 of 1000.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

fn bucket_of(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2() - STEP_BITS; // the value has so many bits more than a step
    let step = (ns >> power) as usize; // from STEPS to 2 * STEPS - 1
    (power as usize * STEPS + step).min(BUCKETS - 1)
}

/// The largest value that counts there.
fn upper_end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let power = bucket / STEPS - 1;
    let step = bucket % STEPS + STEPS;
    ((step as u64 + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_within_its_bucket() {
        for shift in 0..40 {
            for offset in [0, 1, 7] {
                let ns = (1u64 << shift) + offset;
                let bucket = bucket_of(ns);
                assert!(ns <= upper_end(bucket), "{ns}");
                assert!(bucket == 0 || ns > upper_end(bucket - 1), "{ns}");
                assert!(upper_end(bucket) as f64 <= ns as f64 * 1.04 + 1.0, "{ns}");
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles() {
        let histogram = Histogram::new();
        assert_eq!(histogram.summary(), Summary::default());
        (1..=1000u64).for_each(|us| histogram.add(us * 1000));
        let Summary { count, p50, p99, p999, max, .. } = histogram.summary();
        assert_eq!((count, max), (1000, Duration::from_micros(1000)));
        let near = |d: Duration, us: f64| (d.as_nanos() as f64 / 1000.0 / us - 1.0).abs() < 0.04;
        assert!(near(p50, 500.0) && near(p99, 990.0) && near(p999, 999.0), "{p50:?} {p99:?} {p999:?}");
    }
}
