//! The first and last frames of a goroutine.

use super::g::{Completed, DETACHED, G, Switch};
use super::park;
use crate::current::{self, Running};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// What the coroutine runs: from the first resume to the end of the goroutine. It does not return.
pub(super) extern "C" fn main(g: usize) {
    // SAFETY: the G that `start_on` passed; it lives until its worker finishes it.
    let g = unsafe { &*(g as *const G) };
    current::set(g);
    // SAFETY: the M that resumed us; from here on it is in the goroutine's code.
    unsafe { (*g.m.load(Relaxed)).leave_runtime() };
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
pub(super) unsafe fn run<F, T>(g: &G)
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
        // Nobody will ask: drop it here, where it was made and while its thread-locals are there.
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

/// Publishes the end. Not generic, not inlined into each goroutine's code.
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
    // It suspends for the last time inside the runtime: its worker goes on from there.
    std::mem::forget(running);
}

/// The handle was dropped at the last moment and left the result to us. Its drop may use thread-locals, and those
/// are gone: they begin anew, for the result alone.
#[cold]
fn drop_late(g: &G) {
    let slot = g.slot().filter(|_| current::own_tls());
    // SAFETY: still on this goroutine, at its end: no frame refers to a thread-local. Nobody took the result, nor can
    // anybody.
    unsafe {
        if let Some(slot) = slot {
            current::set(std::ptr::null()); // nobody for a while: a signal finds a plain thread
            slot.reset_tls();
            current::set(g);
        }
        g.discard_result();
        if let Some(slot) = slot {
            slot.run_tls_destructors();
        }
    }
}

unsafe fn drop_result<T>(g: &G) {
    // SAFETY: `run` put it there and nobody took it.
    let result = unsafe { g.take::<std::thread::Result<T>>() };
    if let Err(payload) = &result {
        // SAFETY: a scope lives as long as its goroutines and the handles to them.
        match unsafe { g.scope.get().as_ref() } {
            Some(scope) => scope.note_panic(),
            None => report_detached_panic(g, payload.as_ref()),
        }
    }
    if catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
        eprintln!("mungo: fatal: the result of goroutine {} panicked when it was dropped", describe(g));
        std::process::abort();
    }
}

/// The panic hook has printed the message and the place of the panic; nobody joins, so say whose it was.
#[cold]
fn report_detached_panic(g: &G, payload: &(dyn Any + Send)) {
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("Box<dyn Any>");
    eprintln!("mungo: goroutine {} panicked and nobody joins it: {message}", describe(g));
}

/// `7 'name' (spawned at src/main.rs:10:5)`
pub(crate) fn describe(g: &G) -> String {
    let id = g.id.load(Relaxed);
    let place = g.place();
    match g.name() {
        Some(name) => format!("{id} '{name}' (spawned at {place})"),
        None => format!("{id} (spawned at {place})"),
    }
}
