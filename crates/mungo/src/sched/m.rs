//! M: an OS thread that runs goroutines.
//!
//! An M owns a P while it runs goroutines (`p`), and runs the scheduler on its own stack ("g0").
//! `in_runtime` is above 0 while it is in the scheduler or a goroutine is inside a runtime call: then
//! nobody takes its P away and nobody interrupts it.

use super::g::G;
use super::global::GList;
use super::p::P;
use super::shared::Shared;
use super::thief::Thief;
use super::ticket::Ticket;
use crate::lock::Lock;
use crate::netpoll::{self, Watching};
use crate::stack::tls;
use crate::sys::affinity::{self, Allowed};
use crate::sys::futex;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// `M::p` while the monitor tries to take the P. Written by the monitor under `M::retake`, and never left behind.
pub(crate) const CONTESTED: *mut P = std::ptr::without_provenance_mut(1);

/// An OS thread of the runtime. The first cache line is what a switch touches.
#[repr(C, align(128))]
pub(crate) struct M {
    shared: *const Shared,
    pub(crate) id: u32,
    /// Depth of runtime calls. Written by this thread; read by the monitor and by signal handlers on this thread.
    pub(crate) in_runtime: AtomicU32,
    /// The P that it owns, or null, or [`CONTESTED`].
    pub(crate) p: AtomicPtr<P>,
    /// The goroutine that it runs, or null. Written by this thread.
    pub(crate) g: AtomicPtr<G>,
    /// The thread pointer that is loaded now. This thread only.
    loaded_tp: Cell<usize>,
    /// Its own thread pointer; 0 if there is no thread, or thread-locals are shared. Written by this thread.
    own_tp: AtomicUsize,
    rng: Cell<u64>,
    /// Counts as spinning. Written by this thread, or by the waker before it wakes.
    pub(crate) spinning: AtomicU32,
    /// Its kernel thread id.
    pub(crate) tid: AtomicI32,

    /// A P handed over while it sleeps. Written by the waker before it wakes.
    pub(crate) next_p: AtomicPtr<P>,
    /// Futex: 1 = woken.
    wake_word: AtomicU32,
    /// This thread only.
    pub(crate) thief: Thief,
    /// Held by the monitor while it tries to take the P, and by this thread when it finds the P gone.
    pub(crate) retake: Lock<()>,
    /// Its goroutine lost the P by `retake` or by `Ticket::release`, and has not got one since.
    pub(crate) stray: AtomicBool,
    pub(crate) ticket: Ticket,
    /// The signal came at a bad moment, and its goroutine has kept the P. Set by the handler, cleared by the monitor.
    pub(crate) declined: AtomicBool,
    /// The CPU that it last went to sleep on. Written by this thread.
    pub(crate) cpu: AtomicU32,
    /// The CPUs it may run on once it is awake: see `come_to`. Written by the waker before it wakes.
    allowed: Cell<Option<Allowed>>,
    /// It sleeps in `sleep`. Written by this thread.
    pub(crate) asleep: AtomicBool,
    /// It sleeps in the preemption handler, holding a goroutine in the middle of its code. Written by this thread.
    pub(crate) in_handler: AtomicBool,
    /// It sleeps in the netpoller. Written by this thread.
    polling: AtomicBool,
    /// Where its goroutine was interrupted; valid while `in_handler`.
    pub(crate) interrupted: crate::debug::stacks::Interrupted,
    /// The thread's CPU time up to which its goroutine was charged, if the policy wants it. This thread, the monitor,
    /// and who hands it a P.
    pub(crate) cpu_mark_ns: AtomicU64,
    /// Its thread shall end: a goroutine ended while bound to it. This thread only.
    pub(crate) doomed: Cell<bool>,
}

// SAFETY: the cells are used by the M's own thread only, and `allowed` as it says.
unsafe impl Send for M {}
// SAFETY: as above.
unsafe impl Sync for M {}

impl M {
    pub(crate) fn new(id: u32, shared: *const Shared) -> M {
        M {
            id,
            shared,
            tid: AtomicI32::new(0),
            in_runtime: AtomicU32::new(1),
            p: AtomicPtr::new(null_mut()),
            g: AtomicPtr::new(null_mut()),
            next_p: AtomicPtr::new(null_mut()),
            wake_word: AtomicU32::new(0),
            spinning: AtomicU32::new(0),
            own_tp: AtomicUsize::new(0),
            loaded_tp: Cell::new(0),
            rng: Cell::new(0x9E37_79B9_7F4A_7C15 ^ (u64::from(id) << 32 | 1)),
            thief: Thief::new(),
            retake: Lock::new(()),
            stray: AtomicBool::new(false),
            ticket: Ticket::new(),
            declined: AtomicBool::new(false),
            cpu: AtomicU32::new(u32::MAX),
            allowed: Cell::new(None),
            asleep: AtomicBool::new(false),
            in_handler: AtomicBool::new(false),
            polling: AtomicBool::new(false),
            interrupted: Default::default(),
            cpu_mark_ns: AtomicU64::new(0),
            doomed: Cell::new(false),
        }
    }

    /// A new thread takes over the M of one that ended.
    pub(crate) fn revive(&self) {
        self.in_runtime.store(1, Relaxed);
        self.wake_word.store(0, Relaxed);
        self.doomed.set(false);
    }

    /// The runtime, which outlives its Ms.
    #[inline]
    pub(crate) fn shared(&self) -> &'static Shared {
        // SAFETY: each worker thread holds a count; nobody asks an M whose thread ended for anything.
        unsafe { &*self.shared }
    }

    /// Called once, on the M's own thread.
    pub(crate) fn adopt_thread(&self) {
        // SAFETY: no memory involved.
        self.tid.store(unsafe { libc::gettid() }, Relaxed);
        let tp = if tls::layout().is_ok() { tls::thread_pointer() } else { 0 };
        self.own_tp.store(tp, Relaxed);
        self.loaded_tp.set(tp);
    }

    /// Moves the thread to the thread-locals of `g`, which this M owns.
    #[inline(always)]
    pub(crate) fn load_tls_of(&self, g: &G) {
        // First, so that a signal handler on its thread-locals finds the right M.
        g.m.store(std::ptr::from_ref(self).cast_mut(), Relaxed);
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
        self.load_tp(self.own_tp.load(Relaxed));
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
        self.own_tp.load(Relaxed)
    }

    /// The P that this M owns. By this thread, in the runtime.
    #[inline]
    pub(crate) fn p(&self) -> Option<&'static P> {
        let p = self.p.load(Acquire);
        if p == CONTESTED {
            return self.p_after_contest();
        }
        // SAFETY: Ps live as long as the runtime, which each worker holds.
        unsafe { p.as_ref() }
    }

    /// The monitor tries to take the P; it will find us in the runtime and put it back, or has just succeeded.
    #[cold]
    pub(crate) fn p_after_contest(&self) -> Option<&'static P> {
        let _excluded = self.retake.lock();
        // SAFETY: as `p`. Under the lock it is not contested.
        unsafe { self.p.load(Acquire).as_ref() }
    }

    /// Makes `p`, which the caller owns, this M's. By this thread.
    #[inline]
    pub(crate) fn take_p(&self, p: &P) {
        p.next_tick(); // a new owner, a new slice
        p.m.store(std::ptr::from_ref(self).cast_mut(), Relaxed);
        self.stray.store(false, Relaxed);
        // ORDERING: Release towards the monitor, which reads `p` through `P::m`.
        self.p.store(std::ptr::from_ref(p).cast_mut(), Release);
    }

    /// The P is no more this M's; the caller gives it to somebody. By this thread, in the runtime.
    #[inline]
    pub(crate) fn drop_p(&self) {
        if let Some(p) = self.p() {
            p.m.store(null_mut(), Relaxed);
        }
        self.p.store(null_mut(), Relaxed);
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
        self.asleep.store(true, Relaxed);
        let woken = loop {
            // ORDERING: Acquire what the waker wrote: `next_p`, `spinning`.
            if self.wake_word.swap(0, Acquire) == 1 {
                break true;
            }
            if !futex::wait(&self.wake_word, 0, deadline_ns) {
                break self.wake_word.swap(0, Acquire) == 1;
            }
        };
        self.asleep.store(false, Relaxed);
        if woken {
            self.move_freely();
        }
        woken
    }

    /// As [`sleep`](Self::sleep), in the netpoller (`u64::MAX`: no deadline): whether it was woken, and goroutines that
    /// became ready meanwhile. May return for no reason.
    pub(crate) fn sleep_watching(&self, watching: &Watching, deadline_ns: u64) -> (bool, GList) {
        self.asleep.store(true, Relaxed);
        // ORDERING: SeqCst: say where we sleep, then look; the waker writes its word and then asks where.
        self.polling.store(true, SeqCst);
        let early = self.wake_word.swap(0, SeqCst) == 1; // ORDERING: above
        let woken = if early { GList::new() } else { watching.wait(deadline_ns) };
        // ORDERING: SeqCst: a waker that finds us elsewhere wakes the futex; one that did not wrote its word before.
        self.polling.store(false, SeqCst);
        let late = self.wake_word.swap(0, SeqCst) == 1; // ORDERING: above
        self.asleep.store(false, Relaxed);
        if early || late {
            self.move_freely();
        }
        (early || late, woken)
    }

    /// The CPU that its thread is on, or was last.
    pub(crate) fn cpu_now(&self) -> Option<u32> {
        let _alive = self.retake.lock();
        match self.own_tp.load(Relaxed) {
            0 => None,
            // SAFETY: the thread's own block; before it ends it waits for the lock, and clears the word.
            tp => unsafe { tls::layout().ok()?.cpu_of(tp) },
        }
    }

    /// Its thread ends.
    pub(crate) fn leave_thread(&self) {
        let _excluded = self.retake.lock();
        self.own_tp.store(0, Relaxed);
    }

    /// The caller is about to wake this M: it shall wake up on the CPU `here`, or, if that is among the `taken` ones,
    /// on another that is not. In the preemption handler: see there.
    ///
    /// TUNED: eight goroutines that compute on two CPUs, one that sleeps for 1 ms: 99th percentile of its lateness
    /// 2.8 ms without, 0.4 with this. Web server with 64 connections, a fifth of the requests compute: 6 % of the CPU
    /// time was idle, 0.4 % is.
    pub(crate) fn come_to(&self, here: u32, taken: u128) {
        if self.cpu.load(Relaxed) != here || affinity::is_in(taken, here) {
            self.allowed.set(affinity::limit(self.tid.load(Relaxed), here, taken));
        }
    }

    /// After it was woken.
    fn move_freely(&self) {
        if let Some(allowed) = self.allowed.take() {
            allowed.restore();
        }
    }

    pub(crate) fn wake(&self) {
        self.asleep.store(false, Relaxed); // it will not be found asleep from here on
        // ORDERING: Release `next_p` and `spinning` to the sleeper; SeqCst: see `sleep_watching`.
        self.wake_word.store(1, SeqCst);
        match self.polling.load(SeqCst) {
            true => netpoll::interrupt(),
            false => futex::wake(&self.wake_word, 1),
        }
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
