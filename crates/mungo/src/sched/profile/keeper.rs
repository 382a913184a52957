//! The thread that collects the samples.
//!
//! It lives while something is profiled. It holds the lock while it unwinds; those who want a profile wait for that, on
//! plain threads. After a fork the child has no such thread, and perhaps a lock that is never free again: there are no
//! profiles of waits and CPU time in it.

use super::store::Store;
use super::{cpu, ring, waits};
use crate::sys::say::say;
use crate::sys::{clock, futex, thread};
use std::ffi::c_void;
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// Time in ns between two rounds, if it is not called.
const PERIOD_NS: u64 = 20_000_000;
const STACK: usize = 1 << 20;

/// What the keeper's lock protects.
#[derive(Default)]
pub(super) struct Kept {
    /// `None` until something is profiled.
    pub(super) store: Option<Store>,
    pub(super) cpu: Option<cpu::Session>,
    /// Whether the thread lives, or is about to.
    has_thread: bool,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { store: None, cpu: None, has_thread: false });
/// Futex: changes with each call.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// Whether the thread lives. Written under the lock.
static ALIVE: AtomicBool = AtomicBool::new(false);
/// Whether this process is the child of a fork.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns whether the keeper's thread exists: it is none that could wake a goroutine.
pub(crate) fn is_thread_alive() -> bool {
    ALIVE.load(Relaxed)
}

/// Calls the keeper. Async-signal-safe.
pub(super) fn call() {
    CALLS.fetch_add(1, SeqCst); // ORDERING: after what the caller wants seen; the keeper looks at it before its round
    futex::wake(&CALLS, 1);
}

/// Takes the lock. By plain threads.
pub(super) fn lock() -> io::Result<MutexGuard<'static, Kept>> {
    if FORKED.load(Relaxed) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "no profiles in the child of a fork"));
    }
    Ok(KEPT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Makes ready for samples, changes what is profiled by `f`, and sees to it that the thread runs while it is needed.
pub(super) fn change<R>(f: impl FnOnce(&mut Kept) -> R) -> io::Result<R> {
    survive_fork();
    let mut kept = lock()?;
    ring::prepare()?;
    if kept.store.is_none() {
        kept.store = Some(Store::new());
    }
    if !kept.has_thread {
        thread::start(STACK, main, std::ptr::null_mut())?;
        kept.has_thread = true;
        ALIVE.store(true, Relaxed);
    }
    let result = f(&mut kept);
    drop(kept);
    call();
    Ok(result)
}

/// Profiles waits from the first runtime on if the environment asks for it. An error is named on stderr.
pub(crate) fn start_as_asked(rate: Option<Duration>) {
    static ONCE: Once = Once::new();
    let Some(rate) = rate else { return };
    ONCE.call_once(|| {
        if let Err(error) = waits::set_block_rate(rate) {
            say!("mungo: MUNGO_BLOCK_RATE: {error}");
        }
    });
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_name(format_args!("mungo-profile"));
    thread::block_signals();
    loop {
        let calls = CALLS.load(SeqCst); // ORDERING: before the round, which shall see what the callers did
        let Ok(mut kept) = lock() else { break };
        if let Some(session) = &mut kept.cpu {
            session.watch_threads();
        }
        if let Some(store) = &mut kept.store {
            store.collect();
        }
        if kept.cpu.is_none() && !waits::waits_are_on() {
            kept.has_thread = false;
            ALIVE.store(false, Relaxed);
            break;
        }
        drop(kept);
        futex::wait(&CALLS, calls, Some(clock::now_ns() + PERIOD_NS));
    }
    std::ptr::null_mut()
}

fn survive_fork() {
    extern "C" fn in_child() {
        FORKED.store(true, Relaxed);
        ALIVE.store(false, Relaxed);
        waits::forget_rate();
        cpu::forget_period();
    }
    static ONCE: Once = Once::new();
    // SAFETY: the function touches atomics only.
    ONCE.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
}
