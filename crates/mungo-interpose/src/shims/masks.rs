//! Signal masks: `pthread_sigmask`, `sigprocmask`, and the older functions.
//!
//! A mask belongs to a thread, and the runtime's threads serve all goroutines. One that gives its thread another mask
//! is locked to that thread until the mask is as before, so that it keeps the mask, and others do not get it. If it
//! ends before, the thread ends with it.

use crate::shims::raw::{EINVAL, c, sys};
use mungo::interpose::{Place, note_unusual_signals, place};
use std::cell::Cell;
use std::ffi::c_int;

/// Signals that the C library keeps for itself, and takes out of every mask: 32 and 33.
const INTERNAL: u64 = 0b11 << 31;

thread_local! {
    /// Whether the goroutine is locked to its thread for the sake of a mask.
    static IS_LOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Changes the signals that the thread blocks. Returns the error rather than set `errno`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: by the caller.
    -unsafe { change(how, set, old) } as c_int
}

/// Does as `pthread_sigmask`, and sets `errno`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: by the caller.
    c(unsafe { change(how, set, old) }) as c_int
}

/// Blocks a signal.
#[unsafe(no_mangle)]
extern "C" fn sighold(signal: c_int) -> c_int {
    change_one(libc::SIG_BLOCK, signal)
}

/// Lets a signal through.
#[unsafe(no_mangle)]
extern "C" fn sigrelse(signal: c_int) -> c_int {
    change_one(libc::SIG_UNBLOCK, signal)
}

fn change_one(how: c_int, signal: c_int) -> c_int {
    if !(1..=64).contains(&signal) {
        return c(EINVAL) as c_int;
    }
    change_bits(how, 1 << (signal - 1)).map_or_else(|error| c(error) as c_int, |_| 0)
}

/// Blocks the signals whose bits are set, of 1 to 32. Returns those that were blocked.
#[unsafe(no_mangle)]
extern "C" fn sigblock(bits: c_int) -> c_int {
    change_low(libc::SIG_BLOCK, bits)
}

/// Blocks the signals whose bits are set, and no others. Returns those of 1 to 32 that were blocked.
#[unsafe(no_mangle)]
extern "C" fn sigsetmask(bits: c_int) -> c_int {
    change_low(libc::SIG_SETMASK, bits)
}

fn change_low(how: c_int, bits: c_int) -> c_int {
    change_bits(how, u64::from(bits as u32)).map_or_else(|error| c(error) as c_int, |old| old as c_int)
}

/// Makes a change by a mask of bits. Returns the old one, or the error as a number below zero.
fn change_bits(how: c_int, bits: u64) -> Result<u64, i64> {
    // SAFETY: a set of signals is bits, of which the kernel knows the first 64.
    let (mut set, mut old): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the calls and are larger than eight bytes.
    unsafe {
        (&raw mut set).cast::<u64>().write(bits);
        match change(how, &set, &mut old) {
            0 => Ok((&raw const old).cast::<u64>().read()),
            error => Err(error),
        }
    }
}

/// Returns the signals that the calling thread blocks.
pub(super) fn own() -> u64 {
    let mut mask = 0_u64;
    // SAFETY: room for the answer.
    unsafe { sys!(SYS_rt_sigprocmask, libc::SIG_BLOCK, 0_usize, &raw mut mask, size_of::<u64>()) };
    mask
}

/// Gives a goroutine that begins as a thread its creator's mask. The runtime's threads let SIGURG in, by which it
/// interrupts goroutines, and so does this one.
pub(super) fn inherit(mask: u64) {
    const PREEMPTION: u64 = 1 << (libc::SIGURG - 1);
    if (mask ^ own()) & !PREEMPTION & !INTERNAL != 0 {
        _ = change_bits(libc::SIG_SETMASK, mask & !PREEMPTION);
    }
}

/// Makes the change, and locks the goroutine to its thread, or unlocks it.
unsafe fn change(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> i64 {
    // SAFETY: by the caller.
    let kernel = || unsafe { set_mask(how, set, old) };
    match place() {
        Place::Goroutine(caller) if !set.is_null() => {
            note_unusual_signals(); // from now on the kernel is asked
            if IS_LOCKED.get() {
                let result = kernel();
                if caller.may_suspend() {
                    IS_LOCKED.set(false);
                    caller.unlock_thread();
                }
                return result;
            }
            // In a signal handler, whose end restores the mask, it may not.
            if !caller.may_suspend() {
                return kernel();
            }
            // Locked before the change: it must not go on elsewhere in between.
            let lock = mungo::lock_os_thread();
            let result = kernel();
            if !caller.may_suspend() {
                IS_LOCKED.set(true);
                std::mem::forget(lock);
            }
            result
        }
        _ => kernel(),
    }
}

unsafe fn set_mask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> i64 {
    // SAFETY: by the caller. The kernel's masks are the first eight bytes of C's.
    let wanted = (!set.is_null()).then(|| unsafe { set.cast::<u64>().read_unaligned() } & !INTERNAL);
    let wanted = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: by the caller; the mask is our own.
    unsafe { sys!(SYS_rt_sigprocmask, how, wanted, old, size_of::<u64>()) }
}
