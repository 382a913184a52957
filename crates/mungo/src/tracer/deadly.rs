//! Signals that end the process: a trace that is kept in memory is written before that.
//!
//! They are caught if nothing was done about them when the trace began. What the program installs later replaces our
//! handler. Code that then calls ours as the former one has decided that the process goes on, so it does nothing; but
//! `crate::signal`, which knows that it stands for the default action.

use super::writer;
use crate::sys::signal;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

const SIGNALS: [c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// Catches those of them whose action is the default one.
pub(super) fn catch() {
    for signal in SIGNALS {
        if action_of(signal).sa_sigaction != libc::SIG_DFL {
            continue;
        }
        // SAFETY: a handler of the three-argument kind, on the alternate stack.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigfillset(&mut action.sa_mask);
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

fn action_of(signal: c_int) -> libc::sigaction {
    // SAFETY: asks, and changes nothing.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action
    }
}

/// Returns whether an action is ours, which stands for the default one.
pub(crate) fn is_own(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handle as *const () as usize
}

/// Lets the writer do what is left, and takes the default action. Can be called in a signal handler: should the
/// interrupted thread hold a lock that the writer needs (malloc's, that of another snapshot), the process ends after
/// five seconds without the rest of the trace.
pub(crate) fn die_of(signal: c_int) {
    writer::before_exit(false);
    signal::die_of(signal);
}

extern "C" fn handle(signal: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    if is_own(&action_of(signal)) {
        die_of(signal);
    }
}
