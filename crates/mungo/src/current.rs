//! "Who am I": the only place that asks.
//!
//! With own thread-locals the current G is a plain thread-local, written once when the goroutine starts: it
//! migrates with it. With shared ones it is the thread's, written at each switch, and must be read by a
//! function that is never inlined, because the compiler may keep the address of a thread-local
//! across a switch.

use crate::sched::blocking;
use crate::sched::bound;
use crate::sched::g::{G, Switch};
use crate::sched::m::{CONTESTED, M};
use crate::sched::p::{P, PREEMPT};
use crate::sched::shared::Shared;
use crate::stack::tls;
use std::ptr::null;
use std::sync::atomic::{
    AtomicU8,
    Ordering::{Acquire, Relaxed},
};

/// 0: not asked yet.
static MODE: AtomicU8 = AtomicU8::new(0);
const OWN: u8 = 1;
const SHARED: u8 = 2;

/// Whether goroutines have their own thread-locals in this process.
#[inline]
pub(crate) fn own_tls() -> bool {
    match MODE.load(Relaxed) {
        OWN => true,
        SHARED => false,
        _ => {
            MODE.store(if tls::layout().is_ok() { OWN } else { SHARED }, Relaxed);
            tls::layout().is_ok()
        }
    }
}

/// With shared thread-locals the count of panics is the thread's: no other goroutine may run there while this one
/// panics, nor may it go on elsewhere. So it may switch in a `Drop`, but holds on to its thread.
#[inline]
pub(crate) fn panic_is_the_threads(g: &G) -> bool {
    g.shares_tls() && std::thread::panicking()
}

/// The calling goroutine.
#[inline]
pub(crate) fn g() -> Option<&'static G> {
    // SAFETY: set below; Gs are never freed.
    unsafe { tls::current().cast::<G>().as_ref() }
}

/// Own thread-locals: by a goroutine when it starts. Shared ones: by its worker at each switch.
pub(crate) fn set(g: *const G) {
    tls::set_current(g.cast());
}

/// A goroutine inside the runtime, with its P, which nobody takes away before this is dropped.
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
        // The M can only change while the goroutine is suspended, which it is not.
        let m = g.m.load(Relaxed);
        // SAFETY: the M that runs this goroutine.
        let p = unsafe {
            (*m).enter_runtime();
            (*m).p.load(Acquire)
        };
        if p <= CONTESTED {
            return Some(Running::enter_without_p(g));
        }
        Some(Running { g, p })
    }

    /// The P was taken while the goroutine was blocked.
    #[cold]
    fn enter_without_p(g: &'static G) -> Running {
        blocking::reacquire(g);
        let m = g.m.load(Relaxed);
        // SAFETY: the M that runs this goroutine now.
        let p = unsafe { (*m).p.load(Acquire) };
        debug_assert!(p > CONTESTED);
        Running { g, p }
    }

    #[inline]
    pub(crate) fn g(&self) -> &'static G {
        self.g
    }

    #[inline]
    pub(crate) fn m(&self) -> &M {
        // SAFETY: the M that runs us now.
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
        // SAFETY: we are this goroutine, and in the runtime.
        unsafe {
            debug_assert_eq!((*g.m.load(Relaxed)).in_runtime.load(Relaxed), 1);
            g.suspend(why);
            if hold {
                bound::unlock(g);
            }
            (*g.m.load(Relaxed)).leave_runtime();
        }
    }

    /// Stays in the runtime without this proof, for those who want to carry one word only.
    #[inline]
    pub(crate) fn leak(self) -> &'static G {
        std::mem::ManuallyDrop::new(self).g
    }

    /// The proof again.
    ///
    /// # Safety
    /// The caller is the goroutine that [leaked](Self::leak) it, and takes it back once.
    #[inline]
    pub(crate) unsafe fn retrieve(g: &'static G) -> Running {
        // SAFETY: the M that runs this goroutine. It has been in the runtime since, so its P is its own, even if the
        // monitor has just laid its hand on it: then it is put back.
        let p = unsafe { &*g.m.load(Relaxed) }.p().expect("in the runtime with a P");
        Running { g, p }
    }

    /// Suspends if the time slice is over.
    #[cold]
    fn yield_if_outermost(&self) {
        if self.m().in_runtime.load(Relaxed) == 1 && self.p().take_request() {
            Running { g: self.g, p: self.p }.suspend(Switch::Hungry);
            self.m().enter_runtime();
        }
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        if self.p().flags.load(Relaxed) & PREEMPT != 0 {
            self.yield_if_outermost();
        }
        self.m().leave_runtime();
    }
}

/// While it lives, the thread is in the runtime: if a goroutine runs there, it keeps its P and is not interrupted.
/// Not to be held over a switch. On a plain thread it does nothing.
pub(crate) struct NoPreempt(*const M);

impl NoPreempt {
    #[inline]
    pub(crate) fn new() -> NoPreempt {
        let Some(g) = g() else { return NoPreempt(null()) };
        // SAFETY: the M that runs the goroutine; or, on an M's own stack, the M that has its thread-locals loaded.
        let m = unsafe { &*g.m.load(Relaxed) };
        if m.in_runtime.load(Relaxed) > 0 {
            m.enter_runtime();
            return NoPreempt(m);
        }
        // From outside: with a P, which it may have to wait for.
        std::mem::forget(Running::enter());
        NoPreempt(g.m.load(Relaxed))
    }
}

impl Drop for NoPreempt {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: no switch since `new`.
        if let Some(m) = unsafe { self.0.as_ref() } {
            m.leave_runtime();
        }
    }
}
