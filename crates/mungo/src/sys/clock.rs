//! The monotonic clock as plain nanoseconds, so that a deadline fits an atomic.

use std::time::{Duration, Instant};

/// A deadline that never comes, of a wait that a waker may claim: such a wait has no timer.
pub(crate) const UNTIL_CLAIMED: u64 = u64::MAX - 1;

/// Returns the nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub(crate) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or(0) // it always exists
}

/// Returns the CPU time, in ns, that the calling thread has used.
pub(crate) fn own_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0) // it always exists
}

/// Returns the CPU time, in ns, that a thread of this process has used. `None`: it has ended.
pub(crate) fn cpu_ns_of(tid: i32) -> Option<u64> {
    const PER_THREAD_SCHED: libc::clockid_t = 6;
    read((!tid << 3) | PER_THREAD_SCHED)
}

#[inline]
fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is writable.
    let ok = unsafe { libc::clock_gettime(clock, &mut ts) } == 0;
    ok.then_some(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// Returns the instant `d` from now, in ns; saturates at the end of time (`u64::MAX` = never).
pub(crate) fn after_ns(d: Duration) -> u64 {
    now_ns().saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the instant, in ns, for a deadline that is given as std's type.
pub(crate) fn at_ns(deadline: Instant) -> u64 {
    after_ns(deadline.saturating_duration_since(Instant::now()))
}
