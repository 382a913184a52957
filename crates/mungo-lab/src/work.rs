//! Computing for a given time, counted in rounds and not by a clock, so that time in a queue does not count as work.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A loop that no compiler shortens and that never calls the runtime.
#[inline(never)]
fn rounds(n: u64) {
    let mut x = 0x2545_F491_4F6C_DD1D_u64;
    for _ in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}

/// How many rounds take a microsecond on this machine when nothing disturbs. Measured once, in a few milliseconds.
pub(crate) fn rounds_per_us() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        const ROUNDS: u64 = 200_000;
        let once = |_| {
            let start = Instant::now();
            rounds(ROUNDS);
            start.elapsed()
        };
        // The fastest of many: whatever else happens only adds time.
        let best = (0..20).map(once).min().unwrap_or(Duration::from_micros(1));
        (ROUNDS * 1000 / best.as_nanos().max(1) as u64).max(1)
    })
}

/// Computes for about `ns` of CPU time.
pub(crate) fn compute_ns(ns: u64) {
    rounds(ns * rounds_per_us() / 1000);
}

/// Computes for about `time` of CPU time.
pub(crate) fn compute(time: Duration) {
    compute_ns(time.as_nanos() as u64);
}
