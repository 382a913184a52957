//! The first and last frames of a goroutine.

use super::park;
use crate::sched::run::current::{self, Running};
use crate::sched::run::g::{Completed, DETACHED, G, Switch};
use crate::stack::tls;
use crate::sys::say::say;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Runs the goroutine on its coroutine, from the first resume to the end. It does not return.
pub(crate) extern "C" fn main(g: usize) {
    // SAFETY: the G that `start_on` passed; it lives until its worker finishes it.
    let g = unsafe { &*(g as *const G) };
    current::set(g);
    g.leave_runtime(); // from here on it is in its own code
    if let Some(name) = g.name()
        && current::own_tls()
    {
        tls::set_thread_name(name);
    }
    // SAFETY: a runtime lives as long as its goroutines.
    if let Some(capture) = unsafe { &*g.shared.get() }.output_capture.get()
        && current::own_tls()
    {
        capture.begin(); // the threads of a runtime have it from the one that built it
    }
    // SAFETY: prepared together with its storage.
    unsafe { g.entry()(g) };
    end(g);
    // SAFETY: on its own stack; `end` stayed in the runtime.
    unsafe { g.suspend(Switch::End) };
    unreachable!("an ended goroutine was resumed");
}

/// Runs the closure, stores the result, and ends the goroutine's thread-locals.
///
/// # Safety
/// The storage of `g` holds an `F`.
pub(crate) unsafe fn run<F, T>(g: &G)
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    // SAFETY: by the caller, twice: the closure out, the result in.
    unsafe {
        let f = g.take::<F>();
        let result = catch_unwind(AssertUnwindSafe(f));
        g.put::<std::thread::Result<T>>(result);
        g.set_drop_result(Some(drop_result::<T>));
        // No handle will ask for the result: it is dropped here, where it was made and while its thread-locals are
        // there.
        if g.join.load(Acquire) == DETACHED {
            g.discard_result();
        }
        if let Some(slot) = g.slot()
            && current::own_tls()
        {
            slot.run_tls_destructors();
        }
    }
}

/// Publishes the end. It is neither generic nor inlined into each goroutine's code.
fn end(g: &G) {
    let joiner = match g.complete() {
        Completed::Joiner(joiner) => Some(joiner),
        Completed::Quietly => None,
        Completed::Detached => {
            drop_late(g);
            None
        }
    };
    let running = Running::enter().expect("a goroutine");
    if let Some(joiner) = joiner {
        park::ready_joiner(&running, joiner);
    }
    // SAFETY: a scope waits until each of its goroutines has left it.
    if let Some(scope) = unsafe { g.scope.get().as_ref() } {
        scope.leave();
    }
    // The goroutine suspends for the last time inside the runtime: its worker goes on from there.
    std::mem::forget(running);
}

/// Drops a result that was left to us, because the handle was dropped at the last moment. Its drop may use
/// thread-locals, and those are gone: they begin anew, for the result alone.
#[cold]
fn drop_late(g: &G) {
    let slot = g.slot().filter(|_| current::own_tls());
    // SAFETY: still on this goroutine, at its end: no frame refers to a thread-local. No handle took the result, nor
    // can one any more.
    unsafe {
        if let Some(slot) = &slot {
            current::set(std::ptr::null()); // no goroutine for a while: a signal finds a plain thread
            slot.reset_tls();
            current::set(g);
        }
        g.discard_result();
        if let Some(slot) = &slot {
            slot.run_tls_destructors();
        }
    }
}

unsafe fn drop_result<T>(g: &G) {
    // SAFETY: `run` put it there and no handle took it.
    let result = unsafe { g.take::<std::thread::Result<T>>() };
    if let Err(payload) = &result {
        // SAFETY: a scope lives as long as its goroutines and the handles to them.
        match unsafe { g.scope.get().as_ref() } {
            Some(scope) => scope.note_panic(),
            None => report_detached_panic(g, payload.as_ref()),
        }
    }
    if catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
        say!("mungo: fatal: the result of goroutine {} panicked when it was dropped", describe(g));
        std::process::abort();
    }
}

/// Says which goroutine a panic was of, since no handle joins it. The panic hook has printed its message and place.
#[cold]
fn report_detached_panic(g: &G, payload: &(dyn Any + Send)) {
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("Box<dyn Any>");
    let who = describe(g);
    say!("mungo: goroutine {who} panicked and nobody joins it: {message}");
    // The runtime is the caller's, which is there: that of `g` may have ended before its handle was dropped.
    if let Some(running) = Running::enter() {
        _ = running.shared().detached_panic.set(format!("goroutine {who} panicked: {message}"));
    }
}

/// Returns a text like `7 'name' (spawned at src/main.rs:10:5)`.
pub(crate) fn describe(g: &G) -> String {
    let id = g.id.load(Relaxed);
    let place = g.place();
    match g.name() {
        Some(name) => format!("{id} '{name}' (spawned at {place})"),
        None => format!("{id} (spawned at {place})"),
    }
}
