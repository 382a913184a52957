//! `kill -QUIT`, or Ctrl-\ on a terminal: a dump on stderr.
//!
//! The handler only rings for the monitors; one of them starts a thread that takes the dump and writes it. Then happens
//! what would have happened without us: the process dies of the signal. A handler that the program installed before
//! the first runtime is called at once, as before, and then the process goes on after the dump; one that it installs
//! later replaces ours. An ignored SIGQUIT stays ignored.

use super::{collect, dump::DumpOptions};
use crate::debug_env::{self, OnQuit};
use crate::sched::monitor;
use crate::sys::signal::{call_previous, die_of};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static WANTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler; once for the process.
pub(crate) fn install() {
    if debug_env::get().on_quit == OnQuit::Nothing {
        return;
    }
    PREVIOUS.get_or_init(|| {
        // SAFETY: a handler of the three-argument kind, on the alternate stack; the old one is kept.
        unsafe {
            let mut previous: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(libc::SIGQUIT, std::ptr::null(), &mut previous);
            if previous.sa_sigaction != libc::SIG_IGN {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                libc::sigaction(libc::SIGQUIT, &action, std::ptr::null_mut());
            }
            previous
        }
    });
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // ORDERING: Release to the monitor that takes it.
    WANTED.store(true, Release);
    let heard = monitor::ring_all();
    let called = PREVIOUS.get().is_some_and(|previous| call_previous(previous, signal, info, context));
    if !heard && !called {
        die_of(signal); // no runtime is left
    }
}

/// Monitor: does what was asked for.
#[inline]
pub(crate) fn serve() {
    // ORDERING: Acquire pairs with the handler; one of several monitors gets it.
    if WANTED.load(Relaxed) && WANTED.swap(false, Acquire) {
        // Not here: it takes a while, and locks that somebody may hold who needs the monitor.
        if std::thread::Builder::new().name("mungo-dump".into()).spawn(answer).is_err() {
            answer();
        }
    }
}

/// On a plain thread.
fn answer() {
    let dump = collect::dump_here(&DumpOptions::new());
    write_all(&format!("SIGQUIT: {dump}\n"));
    let ours = PREVIOUS.get().is_none_or(|previous| previous.sa_sigaction == libc::SIG_DFL);
    if ours && debug_env::get().on_quit == OnQuit::Die {
        die_of(libc::SIGQUIT);
    }
}

/// To stderr, past the lock of std's: whoever holds that may be what the dump is wanted for.
pub(crate) fn write_all(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the bytes outlive the call.
        let n = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(n) {
            Ok(n) => rest = &rest[n..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return, // nobody listens
        }
    }
}
