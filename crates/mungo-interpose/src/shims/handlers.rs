//! Functions that install signal handlers. They look at where a handler will run, and are the C library's otherwise.
//!
//! A wait in a handler must not suspend the goroutine that it interrupted. A handler on an alternate stack is known
//! by its address. For any other the kernel has to be asked at each wait, which costs as much as a ready `recv`. So it
//! is asked only once there is such a handler. The runtime's own, std's and Go's want the alternate stack.

use crate::shims::raw::sys;
use mungo::interpose::{Next, note_unusual_signals};
use std::ffi::{c_int, c_long, c_void};

/// The first bytes of the kernel's form of an action.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    _rest: [usize; 2],
}

/// Looks at the handlers that there are before `main`.
pub(super) fn look() {
    for signal in 1..=64 {
        let mut action = Action { handler: 0, flags: 0, _rest: [0; 2] };
        // SAFETY: room for the answer.
        let asked = unsafe { sys!(SYS_rt_sigaction, signal, 0_usize, &raw mut action, size_of::<u64>()) };
        if asked == 0 {
            note(signal, action.handler, action.flags as c_int);
        }
    }
}

/// Notes a handler that is about to be installed.
fn note(signal: c_int, handler: usize, flags: c_int) {
    if handler > libc::SIG_IGN && flags & libc::SA_ONSTACK == 0 && !is_internal(signal as usize) {
        note_unusual_signals();
    }
}

/// Returns whether the C library keeps the signal for itself. Its handlers wait for nothing.
fn is_internal(signal: usize) -> bool {
    matches!(signal, 32 | 33)
}

/// Notes a system call by number that is about to install a handler, or to change the signals that are blocked.
#[inline(always)]
pub(super) fn note_call(number: c_long, first: usize, second: usize) {
    let may_matter = match number {
        libc::SYS_rt_sigaction => !is_internal(first),
        libc::SYS_rt_sigprocmask => first as c_int >= 0, // a negative action only asks whether memory is there
        _ => false,
    };
    if may_matter && second != 0 {
        note_unusual_signals();
    }
}

/// Sets what the process does about a signal, or asks.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    static NEXT: Next = Next::new(c"sigaction");
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        if let Some(new) = new.as_ref() {
            note(signal, new.sa_sigaction, new.sa_flags);
        }
        std::mem::transmute::<usize, Function>(NEXT.get())(signal, new, old)
    }
}

/// The same by the C library's other name for it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: by the caller.
    unsafe { sigaction(signal, new, old) }
}

/// Defines the older functions for that, whose handlers run on any stack, by their names and one that the C library is
/// sure to have.
macro_rules! older {
    ($($name:ident $text:literal)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(signal: c_int, handler: *mut c_void) -> *mut c_void {
            type Function = unsafe extern "C" fn(c_int, *mut c_void) -> *mut c_void;
            static NEXT: Next = Next::new($text);
            note(signal, handler as usize, 0);
            // SAFETY: by the caller; the C library's function has this type.
            unsafe { std::mem::transmute::<usize, Function>(NEXT.get())(signal, handler) }
        }
    )* };
}

older! {
    signal c"signal"
    ssignal c"signal"
    bsd_signal c"signal"
    sysv_signal c"__sysv_signal"
    __sysv_signal c"__sysv_signal"
    sigset c"sigset"
}
