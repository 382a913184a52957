//! Signal handlers that stand in front of others.

use std::ffi::{c_int, c_void};

/// Calls the handler that was there before ours, the way it asked for. `false`: there was none.
pub(crate) fn call_previous(
    previous: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    // SAFETY: a handler that the process had installed, called with what the kernel passed to ours.
    unsafe {
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => return false,
            f if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                std::mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(f)(
                    signal, info, context,
                );
            }
            f => std::mem::transmute::<usize, extern "C" fn(c_int)>(f)(signal),
        }
    }
    true
}
