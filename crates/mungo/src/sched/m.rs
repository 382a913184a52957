//! M: an OS thread that runs goroutines.
//!
//! An M owns a P while it runs goroutines (`p`), and runs the scheduler on its own stack ("g0").
//! `in_runtime` is above 0 while it is in the scheduler or a goroutine is inside a runtime call: then
//! nobody takes its P away and nobody interrupts it.

use super::g::G;
use super::p::P;
use super::shared::Shared;
use crate::stack::tls;
use crate::sys::futex;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// An OS thread of the runtime.
#[repr(align(128))]
pub(crate) struct M {
    pub(crate) id: u32,
    pub(crate) shared: Arc<Shared>,
    /// Depth of runtime calls. Written by this thread; read by the monitor and by signal handlers on this thread.
    pub(crate) in_runtime: AtomicU32,
    /// The P that it owns, or null.
    pub(crate) p: AtomicPtr<P>,
    /// The goroutine that it runs, or null. Written by this thread.
    pub(crate) g: AtomicPtr<G>,
    /// A P handed over while it sleeps. Written by the waker before it wakes.
    pub(crate) next_p: AtomicPtr<P>,
    /// Futex: 1 = woken.
    wake_word: AtomicU32,
    /// Counts as spinning. Written by this thread, or by the waker before it wakes.
    pub(crate) spinning: AtomicU32,
    /// Its own thread pointer, and the one that is loaded now. This thread only.
    own_tp: Cell<usize>,
    loaded_tp: Cell<usize>,
    rng: Cell<u64>,
    /// Its thread shall end: a goroutine ended while bound to it. This thread only.
    pub(crate) doomed: Cell<bool>,
}

// SAFETY: the cells are used by the M's own thread only.
unsafe impl Send for M {}
// SAFETY: as above.
unsafe impl Sync for M {}

impl M {
    pub(crate) fn new(id: u32, shared: Arc<Shared>) -> M {
        M {
            id,
            shared,
            in_runtime: AtomicU32::new(1),
            p: AtomicPtr::new(null_mut()),
            g: AtomicPtr::new(null_mut()),
            next_p: AtomicPtr::new(null_mut()),
            wake_word: AtomicU32::new(0),
            spinning: AtomicU32::new(0),
            own_tp: Cell::new(0),
            loaded_tp: Cell::new(0),
            rng: Cell::new(0x9E37_79B9_7F4A_7C15 ^ (u64::from(id) << 32 | 1)),
            doomed: Cell::new(false),
        }
    }

    /// Called once, on the M's own thread.
    pub(crate) fn adopt_thread(&self) {
        let tp = if tls::layout().is_ok() { tls::thread_pointer() } else { 0 };
        self.own_tp.set(tp);
        self.loaded_tp.set(tp);
    }

    /// Moves the thread to the thread-locals of `g`, which this M owns.
    #[inline(always)]
    pub(crate) fn load_tls_of(&self, g: &G) {
        let tp = g.thread_pointer.get();
        if tp != self.loaded_tp.get() {
            // SAFETY: the block of a goroutine that this M owns. It stays marked until another M loads it, so also
            // while a goroutine's end and the next one's start share the block.
            unsafe { tls::set_loader(tp, std::ptr::from_ref(self).cast()) };
            self.load_tp(tp);
        }
    }

    /// Back to the thread's own thread-locals; before a goroutine is published.
    #[inline(always)]
    pub(crate) fn load_own_tls(&self) {
        self.load_tp(self.own_tp.get());
    }

    #[inline(always)]
    fn load_tp(&self, tp: usize) {
        // TUNED: 12 ns a write here, the dearest part of a switch; hence no detour over the M's own block between two
        // goroutines, and none at all if the next one sits on the same slot.
        if tp != self.loaded_tp.get() {
            self.loaded_tp.set(tp);
            // SAFETY: the block is the M's own, or that of a goroutine that this M owns. Both are 0, and so
            // equal, with shared thread-locals.
            unsafe { tls::set_thread_pointer(tp) };
        }
    }

    /// The thread's own thread pointer, whichever is loaded.
    pub(crate) fn own_tp(&self) -> usize {
        self.own_tp.get()
    }

    /// The P that this M owns. To be asked while in the runtime.
    #[inline]
    pub(crate) fn p(&self) -> Option<&P> {
        // SAFETY: Ps live as long as `shared`.
        unsafe { self.p.load(Acquire).as_ref() }
    }

    // ORDERING: `in_runtime` is written by this thread alone. The compiler fences keep the order towards signal
    // handlers on this thread; towards the monitor, its membarrier orders both sides (see `preempt`).
    #[inline(always)]
    pub(crate) fn enter_runtime(&self) {
        self.in_runtime.store(self.in_runtime.load(Relaxed) + 1, Relaxed);
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst); // ORDERING: above
    }

    #[inline(always)]
    pub(crate) fn leave_runtime(&self) {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst); // ORDERING: above
        self.in_runtime.store(self.in_runtime.load(Relaxed) - 1, Release);
    }

    /// Sleeps until [`wake`](Self::wake), or until the deadline (`false`).
    pub(crate) fn sleep(&self, deadline_ns: Option<u64>) -> bool {
        loop {
            // ORDERING: Acquire what the waker wrote: `next_p`, `spinning`.
            if self.wake_word.swap(0, Acquire) == 1 {
                return true;
            }
            if !futex::wait(&self.wake_word, 0, deadline_ns) {
                return self.wake_word.swap(0, Acquire) == 1;
            }
        }
    }

    pub(crate) fn wake(&self) {
        // ORDERING: Release `next_p` and `spinning` to the sleeper.
        self.wake_word.store(1, Release);
        futex::wake(&self.wake_word, 1);
    }

    pub(crate) fn is_spinning(&self) -> bool {
        self.spinning.load(Relaxed) != 0
    }

    pub(crate) fn set_spinning(&self, yes: bool) {
        self.spinning.store(u32::from(yes), Relaxed);
    }

    /// xorshift: where to start stealing.
    pub(crate) fn random(&self) -> u64 {
        let mut x = self.rng.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.rng.set(x);
        x
    }
}

impl std::fmt::Debug for M {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("M").field("id", &self.id).finish_non_exhaustive()
    }
}
