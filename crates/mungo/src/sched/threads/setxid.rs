//! The signal by which glibc changes the user and groups of all threads (`setuid`, `setresgid`, `setgroups`, …).
//!
//! A thread that calls one of these marks every thread of the process and sends it a signal until the mark is gone. The
//! signal's handler takes the mark off "this thread", which it finds by the thread pointer: on a goroutine that is
//! the goroutine's block, so the thread's mark would stay, and the caller send signals for ever. Our handler
//! therefore moves the thread to its own block first, calls glibc's, and moves back.

use crate::sched::run::m::M;
use crate::stack::tls;
use crate::sys::signal::KernelAction;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// glibc's number for it, which `sigaction` refuses to talk about. It is no one else's: `SIGRTMIN` begins above.
const SIGSETXID: c_int = 33;

/// glibc's own handler.
static GLIBCS: OnceLock<KernelAction> = OnceLock::new();

/// Puts our handler in front of glibc's; the same one each time. glibc installs its own when the process starts its
/// first thread, so the caller has started one. Does nothing where there is none, or goroutines share thread-locals.
pub(crate) fn install() {
    if tls::layout().is_err() {
        return;
    }
    // First what `handle` calls, then `handle`: a signal that it does not pass on is waited for in vain.
    let glibcs = GLIBCS.get_or_init(|| KernelAction::get(SIGSETXID).unwrap_or_default());
    if glibcs.has_handler() {
        // SAFETY: a handler of the same kind, which does what glibc's does, on the block that it expects. All signals
        // are blocked meanwhile: no other handler of the runtime sees a goroutine's code on the thread's block.
        unsafe { glibcs.with(handle, !0).set(SIGSETXID) };
    }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the M that moved this thread to the block of a goroutine; it lives until the thread has left the block.
    let m = tls::loader().map(|m| unsafe { m.cast::<M>().as_ref() });
    let before = tls::thread_pointer();
    if let Some(m) = m {
        // SAFETY: this very thread's block.
        unsafe { tls::set_thread_pointer(m.own_tp()) };
    }
    call_glibcs(signal, info, context);
    if m.is_some() {
        // SAFETY: the block that the thread was on.
        unsafe { tls::set_thread_pointer(before) };
    }
}

/// Runs on one block from its first to its last instruction: the compiler may keep a thread-local's address.
#[inline(never)]
fn call_glibcs(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if let Some(glibcs) = GLIBCS.get() {
        glibcs.call(signal, info, context);
    }
}
