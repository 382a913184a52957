//! `syscall`: futexes. std's locks, conditions, channels and `park` wait by it, and so do parking_lot and crossbeam.
//!
//! Private WAIT, WAIT_BITSET, WAKE and WAKE_BITSET are handled here, see `mungo::interpose`; all else is the kernel's:
//! futexes that processes share, those with priority inheritance, WAITV. REQUEUE, CMP_REQUEUE and WAKE_OP are the
//! kernel's too, for the threads that wait there; goroutines that wait at their addresses are woken, all of them, and
//! look at their words again: a futex may wake for nothing.

use crate::counters;
use crate::shims::handlers;
use crate::shims::raw::{c, call_any, sys};
use crate::shims::time::deadline_ns;
use crate::shims::wait::block;
use mungo::interpose::{FutexWait, InKernel, Place, futex_wait, futex_wake, now_ns, place, wake_goroutines};
use std::ffi::{c_int, c_long};
use std::sync::atomic::AtomicU32;

/// The lowest address that can be a program's. Below, the kernel says what is wrong.
const FIRST_ADDRESS: usize = 1 << 16;
/// The end of a program's addresses.
const LAST_ADDRESS: usize = if cfg!(target_arch = "x86_64") { 1 << 47 } else { 1 << 48 };

/// Makes a system call. C declares it with a variable number of arguments; they are passed like these.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c1: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: by the caller.
    let result = unsafe {
        if number == libc::SYS_futex {
            futex([a, b, c1, d, e, f])
        } else {
            handlers::note_call(number, a, b);
            call_any(number, [a, b, c1, d, e, f])
        }
    };
    c(result) as c_long
}

unsafe fn futex(args: [usize; 6]) -> i64 {
    let [address, op, value, timeout, _, bits] = args;
    let op = op as c_int;
    let command = op & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let bits = match command {
        libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET => bits as u32,
        _ => u32::MAX,
    };
    let is_usual = op & libc::FUTEX_PRIVATE_FLAG != 0
        && address.is_multiple_of(4)
        && (FIRST_ADDRESS..LAST_ADDRESS).contains(&address)
        && bits != 0;
    // SAFETY: by the caller.
    unsafe {
        match command {
            // The kernel refuses a clock for the first.
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET
                if is_usual && (command != libc::FUTEX_WAIT || op & libc::FUTEX_CLOCK_REALTIME == 0) =>
            {
                let timeout = timeout as *const libc::timespec;
                let is_relative = command == libc::FUTEX_WAIT;
                let is_monotonic = op & libc::FUTEX_CLOCK_REALTIME == 0;
                let place = place();
                // On a plain thread the time is the kernel's to read, which says EFAULT.
                if let Place::Goroutine(caller) = place
                    && is_monotonic
                    && let Some(deadline_ns) = deadline_ns(timeout, is_relative)
                    && caller.may_suspend()
                {
                    counters::futex.park();
                    let word = address as *const AtomicU32;
                    return match futex_wait(caller, word, value as u32, bits, deadline_ns) {
                        FutexWait::Woken => 0,
                        FutexWait::TimedOut => -i64::from(libc::ETIMEDOUT),
                        FutexWait::Changed => -i64::from(libc::EAGAIN),
                    };
                }
                wait_in_kernel(place, args)
            }
            libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET if is_usual && op & libc::FUTEX_CLOCK_REALTIME == 0 => {
                // The kernel wakes one if it is told to wake less.
                let n = (value as c_int).max(1) as u32;
                futex_wake(place(), address, n, bits, |n| {
                    sys!(SYS_futex, address, op, n, 0_usize, 0_usize, bits)
                })
            }
            libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP
                if op & libc::FUTEX_PRIVATE_FLAG != 0 =>
            {
                let result = sys!(SYS_futex, args[0], args[1], args[2], args[3], args[4], args[5]);
                if result < 0 {
                    return result;
                }
                // Those that would be moved to the second address are woken instead; WAKE_OP may wake there, too.
                let second = if command == libc::FUTEX_WAKE_OP { Some(args[4]) } else { None };
                let place = place();
                result
                    + [Some(address), second]
                        .into_iter()
                        .flatten()
                        .map(|at| wake_goroutines(place, at))
                        .sum::<i64>()
            }
            _ => sys!(SYS_futex, args[0], args[1], args[2], args[3], args[4], args[5]),
        }
    }
}

/// Waits in the kernel, counted, so that wakers take turns between threads and goroutines.
unsafe fn wait_in_kernel(place: Place, args: [usize; 6]) -> i64 {
    let _counted = InKernel::new(place, args[0]);
    // SAFETY: by the caller.
    let wait = || unsafe { sys!(SYS_futex, args[0], args[1], args[2], args[3], args[4], args[5]) };
    match place {
        Place::Goroutine(caller) => {
            counters::futex.fall_back();
            block(caller, wait)
        }
        _ => wait(),
    }
}

/// Returns a point in time `ns` from now.
pub(crate) fn after_ns(ns: u64) -> u64 {
    now_ns().saturating_add(ns)
}
