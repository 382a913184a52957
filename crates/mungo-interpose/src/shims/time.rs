//! Sleeps, and times of C.

use crate::counters;
use crate::shims::futex::after_ns;
use crate::shims::plain::plain;
use crate::shims::raw::{self, c, sys};
use crate::shims::wait::block;
use mungo::interpose::{Place, place};
use std::ffi::c_int;

const SECOND_NS: u64 = 1_000_000_000;

/// Returns the ns of a `timespec`. `None`: the kernel would say EINVAL. Saturates.
pub(crate) fn to_ns(time: libc::timespec) -> Option<u64> {
    let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    (ns < SECOND_NS).then(|| seconds.saturating_mul(SECOND_NS).saturating_add(ns))
}

/// Returns until when, on the monotonic clock, a call may take that was given this time, from now or absolute.
/// `u64::MAX`: for ever, or longer than any wait. `None`: the time is not a valid one.
///
/// # Safety
/// `time` is null, or can be read.
pub(crate) unsafe fn deadline_ns(time: *const libc::timespec, is_relative: bool) -> Option<u64> {
    if time.is_null() {
        return Some(u64::MAX);
    }
    // SAFETY: by the caller.
    let ns = to_ns(unsafe { time.read() })?;
    Some(if is_relative { after_ns(ns) } else { ns })
}

/// Sleeps; std's `sleep` and `sleep_until`. Returns the error rather than set `errno`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(target_arch = "aarch64"), unsafe(no_mangle))]
pub(super) unsafe extern "C-unwind" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(clock_nanosleep(
            clock: libc::clockid_t, flags: c_int, time: *const libc::timespec, left: *mut
            libc::timespec
        ) -> c_int)
    };
    // SAFETY: by the caller.
    let sleep = || unsafe { sys!(SYS_clock_nanosleep, clock, flags, time, left) };
    let Place::Goroutine(caller) = place() else { return -sleep() as c_int };
    // A sleep for a while counts the same on all these clocks, unless the machine sleeps too.
    let is_plain = match flags {
        0 => matches!(clock, libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME),
        _ => flags == libc::TIMER_ABSTIME && clock == libc::CLOCK_MONOTONIC,
    };
    if is_plain
        // An address that cannot be read is the kernel's to refuse, and so is no time at all.
        && let Some(time) = raw::copy(time)
        // SAFETY: a time of our own.
        && let Some(deadline_ns) = unsafe { deadline_ns(&time, flags == 0) }
        && caller.may_suspend()
    {
        counters::clock_nanosleep.park();
        caller.sleep_until(deadline_ns);
        return 0;
    }
    counters::clock_nanosleep.fall_back();
    -block(caller, sleep) as c_int
}

/// Sleeps, as `clock_nanosleep` on the monotonic clock.
///
/// # Safety
/// As the C library's.
#[cfg(not(target_arch = "aarch64"))]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int {
    // SAFETY: by the caller.
    let error = unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) };
    c(-i64::from(error)) as c_int
}

/// Sleeps for some µs.
#[cfg(not(target_arch = "aarch64"))]
#[unsafe(no_mangle)]
extern "C-unwind" fn usleep(us: libc::c_uint) -> c_int {
    let time = libc::timespec { tv_sec: i64::from(us / 1_000_000), tv_nsec: i64::from(us % 1_000_000) * 1000 };
    // SAFETY: the time outlives the call.
    unsafe { nanosleep(&time, std::ptr::null_mut()) }
}

/// Lets others run: other goroutines, for a goroutine.
#[unsafe(no_mangle)]
extern "C-unwind" fn sched_yield() -> c_int {
    match place() {
        Place::Goroutine(caller) if caller.may_suspend() => {
            counters::sched_yield.park();
            mungo::yield_now();
            0
        }
        // SAFETY: no memory involved.
        _ => c(unsafe { sys!(SYS_sched_yield) }) as c_int,
    }
}

/// Sleeps for some seconds. Returns how many are left, should a signal end it.
#[cfg(not(target_arch = "aarch64"))]
#[unsafe(no_mangle)]
extern "C-unwind" fn sleep(seconds: libc::c_uint) -> libc::c_uint {
    let mut time = libc::timespec { tv_sec: i64::from(seconds), tv_nsec: 0 };
    // SAFETY: the time outlives the call.
    match unsafe { nanosleep(&time, &mut time) } {
        0 => 0,
        _ => time.tv_sec as libc::c_uint,
    }
}
