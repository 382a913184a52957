//! The identity of the caller: the only place that asks which goroutine runs here.
//!
//! With own thread-locals the current G is a plain thread-local, written once when the goroutine starts: it
//! migrates with it. With shared ones it is the thread's, written at each switch, and must be read by a
//! function that is never inlined, because the compiler may keep the address of a thread-local
//! across a switch.

use crate::sched::run::g::{G, Switch};
use crate::sched::run::m::{CONTESTED, M};
use crate::sched::run::p::{P, PREEMPT};
use crate::sched::shared::Shared;
use crate::sched::threads::{blocking, bound};
use crate::stack::tls;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed},
};

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

/// A goroutine inside the runtime, with its P, which no thread takes away before this is dropped.
///
/// Two words: it is passed and returned in registers.
pub(crate) struct Running {
    g: &'static G,
    p: *const P,
}

impl Running {
    /// Enters the runtime; `None` on a plain thread.
    #[inline]
    pub(crate) fn enter() -> Option<Running> {
        let g = g()?;
        g.enter_runtime();
        // SAFETY: the M that runs this goroutine. From here on it changes only if the goroutine suspends itself.
        let p = unsafe { (*g.m.load(Relaxed)).p.load(Acquire) };
        if p <= CONTESTED {
            return Some(Running::enter_without_p(g));
        }
        Some(Running { g, p })
    }

    /// Waits for a P, because the goroutine's was taken while it was blocked.
    #[cold]
    fn enter_without_p(g: &'static G) -> Running {
        blocking::reacquire(g, Switch::WithoutP);
        // SAFETY: in the runtime with a P, as one that was leaked is. The monitor may contest it again by now.
        unsafe { Running::retrieve(g) }
    }

    #[inline]
    pub(crate) fn g(&self) -> &'static G {
        self.g
    }

    #[inline]
    pub(crate) fn m(&self) -> &M {
        // SAFETY: the M that runs this goroutine now.
        unsafe { &*self.g.m.load(Relaxed) }
    }

    #[inline]
    pub(crate) fn p(&self) -> &P {
        // SAFETY: ours while in the runtime; Ps live as long as the runtime.
        unsafe { &*self.p }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        self.g.shared()
    }

    /// Switches to the worker, and leaves the runtime when the goroutine is resumed, perhaps on another M.
    #[inline(always)]
    pub(crate) fn suspend(self, why: Switch) {
        let g = self.g;
        let hold = panic_is_the_threads(g);
        if hold {
            bound::lock(&self);
        }
        std::mem::forget(self);
        // SAFETY: the caller is this goroutine, and in the runtime.
        unsafe {
            debug_assert_eq!(g.runtime_depth(), 1);
            g.coro().suspend(why as usize);
            if hold {
                bound::unlock(g);
            }
        }
        g.leave_runtime();
    }

    /// Stays in the runtime without this proof, for callers that carry one word only.
    #[inline]
    pub(crate) fn leak(self) -> &'static G {
        std::mem::ManuallyDrop::new(self).g
    }

    /// Makes the proof again.
    ///
    /// # Safety
    /// The caller is a goroutine in the runtime, with a P, whose proof was [leaked](Self::leak) or not yet made. There
    /// is one proof for each time that it entered.
    #[inline]
    pub(crate) unsafe fn retrieve(g: &'static G) -> Running {
        // SAFETY: the M that runs this goroutine. It has been in the runtime since, so its P is its own, even if the
        // monitor has just contested it: then it is put back.
        let p = unsafe { &*g.m.load(Relaxed) }.p().expect("in the runtime with a P");
        Running { g, p }
    }

    /// Suspends if the time slice is over.
    #[cold]
    fn yield_if_outermost(&self) {
        if self.g.runtime_depth() == 1 && self.p().take_request() {
            self.g.needs_no_p.store(true, Relaxed);
            Running { g: self.g, p: self.p }.suspend(Switch::Hungry);
            self.g.needs_no_p.store(false, Relaxed);
            self.g.enter_runtime();
        }
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        if self.p().flags.load(Relaxed) & PREEMPT != 0 {
            self.yield_if_outermost();
        }
        self.g.leave_runtime();
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A P that the monitor contests at each point of the way in, and never takes, stays the goroutine's.
    #[test]
    fn a_contested_p_is_found_again() {
        const ENTRIES: usize = 300_000;
        crate::Runtime::builder().procs(1).build().expect("a runtime").run(|| {
            let home = Running::enter().expect("a goroutine");
            // SAFETY: Ms live as long as the runtime, which outlives the thread below.
            let m: &'static M = unsafe { &*std::ptr::from_ref(home.m()) };
            bound::lock(&home); // so that it stays there
            drop(home);
            let ended = Arc::new(AtomicBool::new(false));
            let contestant = std::thread::spawn({
                let ended = ended.clone();
                move || {
                    while !ended.load(Relaxed) {
                        blocking::contest_in_vain(m);
                    }
                }
            });
            for _ in 0..ENTRIES {
                let running = Running::enter().expect("a goroutine");
                assert_eq!(running.p().id, 0);
            }
            ended.store(true, Relaxed);
            contestant.join().expect("the contestant");
            bound::unlock(g().expect("a goroutine"));
        });
    }
}
