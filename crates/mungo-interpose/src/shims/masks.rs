//! Signal masks: `pthread_sigmask` and `sigprocmask`.
//!
//! A mask belongs to a thread, and the runtime's threads serve all goroutines. One that gives its thread another mask
//! is locked to that thread until the mask is as before, so that it keeps the mask, and others do not get it. If it
//! ends before, the thread ends with it.

use crate::shims::raw::{c, sys};
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
