//! The identity of the caller: the only place that asks which goroutine runs here.
//!
//! With own thread-locals the current G is a plain thread-local, written once when the goroutine starts: it
//! migrates with it. With shared ones it is the thread's, written at each switch, and must be read by a
//! function that is never inlined, because the compiler may keep the address of a thread-local
//! across a switch.

pub(crate) use crate::sched::run::park::Running;

use crate::sched::run::g::G;
use crate::stack::tls;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether goroutines have their own thread-locals in this process. Written when a runtime starts.
static OWN_TLS: AtomicBool = AtomicBool::new(false);

/// Notes, when a runtime starts, whose thread-locals goroutines see.
pub(crate) fn note_decision() {
    OWN_TLS.store(tls::layout().is_ok(), Relaxed);
}

/// Returns whether goroutines have their own thread-locals in this process. Valid once there is a runtime.
#[inline]
pub(crate) fn own_tls() -> bool {
    OWN_TLS.load(Relaxed)
}

/// Returns whether `g` panics on a count of panics that is the thread's (shared thread-locals). Then no other
/// goroutine may run there while this one panics, nor may it go on elsewhere: it may switch in a `Drop`, but holds on
/// to its thread.
#[inline]
pub(crate) fn panic_is_the_threads(g: &G) -> bool {
    g.shares_tls() && std::thread::panicking()
}

/// Returns the calling goroutine; `None` on a plain thread.
#[inline]
pub(crate) fn g() -> Option<&'static G> {
    // SAFETY: set below; Gs are never freed.
    unsafe { tls::current().cast::<G>().as_ref() }
}

/// Sets the current goroutine. Own thread-locals: by a goroutine when it starts. Shared: by its worker at each switch.
pub(crate) fn set(g: *const G) {
    tls::set_current(g.cast());
}

/// Keeps the thread in the runtime until it is dropped: if a goroutine runs there, it keeps its P and is not
/// interrupted. Not to be held over a switch. On a plain thread it does nothing.
pub(crate) struct NoPreempt(Option<&'static G>);

impl NoPreempt {
    #[inline]
    pub(crate) fn new() -> NoPreempt {
        // On an M's own stack this is the goroutine that the M is about to run, or has just run.
        let Some(g) = g() else { return NoPreempt(None) };
        match g.is_in_runtime() {
            true => g.enter_runtime(),
            // From outside: with a P, which it may have to wait for.
            false => std::mem::forget(Running::enter()),
        }
        NoPreempt(Some(g))
    }

    /// Goes on without this proof.
    pub(crate) fn into_raw(self) -> *const () {
        std::mem::ManuallyDrop::new(self).0.map_or(std::ptr::null(), |g| std::ptr::from_ref(g).cast())
    }

    /// Makes the proof again.
    ///
    /// # Safety
    /// [`into_raw`](Self::into_raw) returned it, to the same goroutine.
    pub(crate) unsafe fn from_raw(raw: *const ()) -> NoPreempt {
        // SAFETY: a G, by the caller; Gs are never freed.
        NoPreempt(unsafe { raw.cast::<G>().as_ref() })
    }
}

impl Drop for NoPreempt {
    #[inline]
    fn drop(&mut self) {
        if let Some(g) = self.0 {
            g.leave_runtime();
        }
    }
}
