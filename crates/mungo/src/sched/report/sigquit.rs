//! `kill -QUIT`, or Ctrl-\ on a terminal: a dump on stderr.
//!
//! The handler only rings for the monitors; one of them starts a thread that takes the dump and writes it. Then
//! happens what would have happened without mungo: the process dies of the signal. A handler that the program
//! installed before the first runtime is called at once, as before, and then the process goes on after the dump; one
//! that it installs later replaces this one. Where the signal was ignored, as it is for what a script starts in the
//! background, the process goes on after the dump too. (The programs that it starts do not inherit that any more: they
//! die of the signal.)

use crate::debug_env::{self, OnQuit};
use crate::sched::report::collect;
use crate::sched::report::dump::DumpOptions;
use crate::sched::report::waits::{self, Depth};
use crate::sched::sysmon::monitor;
use crate::sys::say::say;
use crate::sys::signal::{call_previous, die_of};
use crate::sys::thread;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
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
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(libc::SIGQUIT, &action, std::ptr::null_mut());
            previous
        }
    });
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // ORDERING: SeqCst: say it, then ask whether a monitor runs; one that ends counts itself out, then looks here.
    WANTED.store(true, SeqCst);
    let heard = monitor::ring_all();
    let called = PREVIOUS.get().is_some_and(|previous| call_previous(previous, signal, info, context));
    if !heard && !called && !was_ignored() {
        die_of(signal); // no runtime is left
    }
}

/// Returns whether a handler is the one of this file.
pub(crate) fn is_own(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handle as *const () as usize
}

/// Returns whether the signal had no effect before the handler was installed.
fn was_ignored() -> bool {
    PREVIOUS.get().is_some_and(|previous| previous.sa_sigaction == libc::SIG_IGN)
}

/// Returns whether the signal came and nothing was done about it yet.
#[inline]
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Relaxed)
}

/// Does what was asked for. By the helper.
pub(crate) fn serve() {
    // ORDERING: SeqCst: see the handler. One of several helpers gets it, or a monitor after it was counted out.
    if WANTED.load(SeqCst) && WANTED.swap(false, SeqCst) {
        // Not here: it takes a while, and locks whose holder may need the monitor.
        if thread::own(|| std::thread::Builder::new().name("mungo-dump".into()).spawn(answer)).is_err() {
            answer();
        }
    }
}

/// Takes the dump and prints it, on a plain thread.
fn answer() {
    let dump = collect::dump_here(&DumpOptions::new());
    let text = dump.to_string(); // in one piece, for other threads write too
    say!("SIGQUIT: {text}");
    let graph = waits::graph_of(&monitor::runtimes(), Depth::Searched, 0);
    if graph.stuck().next().is_some() {
        say!("\nmungo: goroutines that nothing can wake any more\n{}", graph.stuck_text());
    }
    let ours = PREVIOUS.get().is_none_or(|previous| previous.sa_sigaction == libc::SIG_DFL);
    if ours && debug_env::get().on_quit == OnQuit::Die {
        die_of(libc::SIGQUIT);
    }
}
