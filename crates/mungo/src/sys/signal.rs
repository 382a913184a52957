//! Signal handlers that stand in front of others.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

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

/// The signal's default action: in a handler as soon as it returns, else at once.
pub(crate) fn die_of(signal: c_int) {
    // SAFETY: sets the default action, lets the signal in on this thread, and sends it.
    unsafe {
        let mut default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &default, std::ptr::null_mut());
        let mut mask: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigaddset(&mut mask, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &mask, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
}
