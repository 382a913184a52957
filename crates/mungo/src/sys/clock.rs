//! The monotonic clock as plain nanoseconds, so that a deadline fits an atomic.

use std::time::{Duration, Instant};

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is writable; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// The instant `d` from now; saturates at the end of time (`u64::MAX` = never).
pub(crate) fn after_ns(d: Duration) -> u64 {
    now_ns().saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// The same instant for a deadline that is given as std's type.
pub(crate) fn at_ns(deadline: Instant) -> u64 {
    after_ns(deadline.saturating_duration_since(Instant::now()))
}
