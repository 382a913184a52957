//! M: an OS thread that runs goroutines.
//!
//! An M owns a P while it runs goroutines (`p`), and runs the scheduler on its own stack ("g0"). While it is in the
//! scheduler, or its goroutine is inside a runtime call, the monitor neither takes its P nor interrupts it: see
//! [`M::is_outside`].

use super::g::G;
use super::p::P;
use crate::protocols::ticket::Ticket;
use crate::sched::netpoll::{self, Watching};
use crate::sched::pick::global::GList;
use crate::sched::pick::thief::Thief;
use crate::sched::profile;
use crate::sched::run::lock::Lock;
use crate::sched::shared::Shared;
use crate::sched::threads::mlist::Links;
use crate::sched::threads::strays::StrayClock;
use crate::sched::traced;
#[cfg(mungo_native)]
use crate::stack::inject::Control;
use crate::stack::tls;
use crate::sys::affinity::{self, Allowed};
use crate::sys::futex;
use crate::sys::interrupted::own_signal_mask;
use crate::tracer::Lane;
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
    /// The P that it owns, or null, or [`CONTESTED`].
    pub(crate) p: AtomicPtr<P>,
    /// The goroutine that it runs, or null. Written by this thread.
    pub(crate) g: AtomicPtr<G>,
    /// The thread pointer that is loaded now. This thread only.
    loaded_tp: Cell<usize>,
    /// malloc's cache of its thread, for the blocks that it loads: see `tls::share_malloc_cache`. This thread only.
    malloc_cache: Cell<usize>,
    /// Its own thread pointer; 0 if there is no thread, or thread-locals are shared. Written by this thread.
    own_tp: AtomicUsize,
    rng: Cell<u64>,
    /// 1 while it counts as spinning. Written by this thread, or by the waker before it wakes.
    pub(crate) spinning: AtomicU32,
    /// Its kernel thread id.
    pub(crate) tid: AtomicI32,

    /// The signals that its thread blocks, one bit each. Written by this thread when it starts.
    pub(crate) signal_mask: AtomicU64,
    /// The control words of its thread's floating-point units. This thread only.
    #[cfg(mungo_native)]
    pub(crate) control: Cell<Control>,
    /// A P handed over while it sleeps. Written by the waker before it wakes.
    pub(crate) next_p: AtomicPtr<P>,
    /// A goroutine that it shall run without a P. Written by the monitor before it wakes it.
    pub(crate) next_g: AtomicPtr<G>,
    /// Futex: 1 = woken.
    wake_word: AtomicU32,
    /// What it remembers as a thief. This thread only.
    pub(crate) thief: Thief,
    /// Held by the monitor while it tries to take the P, and by this thread when it finds the P gone.
    pub(crate) retake: Lock<()>,
    /// Whether its goroutine lost the P by `retake` or by `Ticket::release`, and has not got one since.
    pub(crate) stray: AtomicBool,
    pub(crate) ticket: Ticket,
    /// Whether the signal came at a bad moment, and its goroutine has kept the P. Set by the handler, cleared by the
    /// monitor.
    pub(crate) declined: AtomicBool,
    /// The CPU that it last went to sleep on. Written by this thread.
    pub(crate) cpu: AtomicU32,
    /// The CPUs that it may run on once it is awake: see `come_to`. Written by the waker before it wakes.
    allowed: Cell<Option<Allowed>>,
    /// Whether it sleeps in `sleep`. Written by this thread.
    pub(crate) asleep: AtomicBool,
    /// Whether it sleeps in the preemption handler, with a goroutine in the middle of its code. Written by this thread.
    pub(crate) in_handler: AtomicBool,
    /// Whether it sleeps in the netpoller. Written by this thread.
    polling: AtomicBool,
    /// Where its goroutine was interrupted; valid while `in_handler`.
    pub(crate) interrupted: crate::sched::report::stacks::Interrupted,
    /// The thread's CPU time, in ns, up to which its goroutine was charged, if the policy wants it. Written by this
    /// thread, the monitor, and the thread that hands it a P.
    pub(crate) cpu_mark_ns: AtomicU64,
    /// Whether its thread lives. Written under the scheduler's lock.
    pub(crate) live: AtomicBool,
    /// Its place in the list of Ms that sleep, or of Ms whose thread ended.
    pub(crate) links: Links,
    /// What the monitor saw of it while its goroutine had no P.
    pub(crate) stray_clock: StrayClock,
    /// Its events, if they are traced. This thread only.
    pub(crate) lane: Lane,
    /// Whether its thread shall end: a goroutine ended while bound to it. This thread only.
    pub(crate) doomed: Cell<bool>,
    /// Whether it looks for work because a timer was due. This thread only.
    pub(crate) up_for_timers: Cell<bool>,
}

// SAFETY: the cells are used by the M's own thread only, `allowed`, `links` and `stray_clock` as they
// say.
unsafe impl Send for M {}
// SAFETY: as above.
unsafe impl Sync for M {}

impl M {
    /// Makes an M of the runtime that has this number in traces.
    pub(crate) fn new(id: u32, shared: *const Shared, number: u16) -> M {
        M {
            id,
            shared,
            tid: AtomicI32::new(0),
            signal_mask: AtomicU64::new(0),
            #[cfg(mungo_native)]
            control: Cell::new(Control::USUAL),
            p: AtomicPtr::new(null_mut()),
            g: AtomicPtr::new(null_mut()),
            next_p: AtomicPtr::new(null_mut()),
            next_g: AtomicPtr::new(null_mut()),
            wake_word: AtomicU32::new(0),
            spinning: AtomicU32::new(0),
            own_tp: AtomicUsize::new(0),
            loaded_tp: Cell::new(0),
            malloc_cache: Cell::new(0),
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
            live: AtomicBool::new(false),
            links: Links::new(),
            stray_clock: StrayClock::new(),
            lane: Lane::new(number, id),
            doomed: Cell::new(false),
            up_for_timers: Cell::new(false),
        }
    }

    /// Resets the M of a thread that ended, for a new thread.
    pub(crate) fn revive(&self) {
        self.wake_word.store(0, Relaxed);
        self.tid.store(0, Relaxed);
        self.set_spinning(false);
        self.doomed.set(false);
    }

    /// Returns the runtime, which outlives its Ms.
    #[inline]
    pub(crate) fn shared(&self) -> &'static Shared {
        // SAFETY: each worker thread holds a count; no thread asks an M whose thread ended for anything.
        unsafe { &*self.shared }
    }

    /// Notes the thread's id, signal mask, control words and thread pointer. Called once, on the M's own thread.
    pub(crate) fn adopt_thread(&self) {
        // SAFETY: no memory involved.
        self.tid.store(unsafe { libc::gettid() }, Relaxed);
        self.signal_mask.store(own_signal_mask(), Relaxed);
        #[cfg(mungo_native)]
        self.control.set(Control::of_this_thread());
        let tp = if tls::layout().is_ok() { tls::thread_pointer() } else { 0 };
        self.own_tp.store(tp, Relaxed);
        self.loaded_tp.set(tp);
        self.malloc_cache.set(tls::own_malloc_cache());
    }

    /// Moves the thread to the thread-locals of `g`, which this M owns.
    #[inline(always)]
    pub(crate) fn load_tls_of(&self, g: &G) {
        // This comes first, so that a signal handler on its thread-locals finds the right M.
        g.m.store(std::ptr::from_ref(self).cast_mut(), Relaxed);
        let tp = g.thread_pointer.get();
        if tp != self.loaded_tp.get() {
            // SAFETY: the block of a goroutine that this M owns. It stays marked until another M loads it, so also
            // while a goroutine's end and the next one's start share the block.
            unsafe {
                tls::set_loader(tp, std::ptr::from_ref(self).cast());
                tls::share_malloc_cache(tp, self.malloc_cache.get());
            }
            self.load_tp(tp);
        }
    }

    /// Moves back to the thread's own thread-locals, before a goroutine is published.
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

    /// Returns the thread's own thread pointer, whichever is loaded.
    pub(crate) fn own_tp(&self) -> usize {
        self.own_tp.load(Relaxed)
    }

    /// Returns the P that this M owns. Called by this thread, in the runtime.
    #[inline]
    pub(crate) fn p(&self) -> Option<&'static P> {
        let p = self.p.load(Acquire);
        if p == CONTESTED {
            return self.p_after_contest();
        }
        // SAFETY: Ps live as long as the runtime, which each worker holds.
        unsafe { p.as_ref() }
    }

    /// Returns the P once the monitor has stopped trying to take it: it finds us in the runtime and puts it back, or
    /// has just succeeded.
    #[cold]
    pub(crate) fn p_after_contest(&self) -> Option<&'static P> {
        let _excluded = self.retake.lock();
        // SAFETY: as `p`. Under the lock it is not contested.
        unsafe { self.p.load(Acquire).as_ref() }
    }

    /// Makes `p`, which the caller owns, this M's. Called by this thread.
    #[inline]
    pub(crate) fn take_p(&self, p: &P) {
        p.next_tick(); // a new owner, a new slice
        p.m.store(std::ptr::from_ref(self).cast_mut(), Relaxed);
        self.stray.store(false, Relaxed);
        // ORDERING: Release towards the monitor, which reads `p` through `P::m`.
        self.p.store(std::ptr::from_ref(p).cast_mut(), Release);
        traced::gained(self, p);
        profile::gained(self.shared(), p);
    }

    /// Takes the P from this M; the caller gives it to another owner. Called by this thread, in the runtime.
    #[inline]
    pub(crate) fn drop_p(&self) {
        if let Some(p) = self.p() {
            traced::lost(self, p);
            p.m.store(null_mut(), Relaxed);
        }
        self.p.store(null_mut(), Relaxed);
    }

    /// Returns, to the monitor, whether the M runs code of a goroutine, outside of the runtime.
    ///
    /// The goroutine may leave the M between the two reads, and be outside of the runtime elsewhere. Then it was
    /// published after it had left `g`, so `g` has changed by now. The same one cannot have come back: on its way
    /// through the scheduler the M asks for its P, which waits for `retake` while the monitor contests it.
    pub(crate) fn is_outside(&self) -> bool {
        let g = self.g.load(Relaxed);
        // SAFETY: Gs are never freed. ORDERING: Acquire in `is_in_runtime` pairs with the goroutine's Release.
        let outside = unsafe { g.as_ref() }.is_some_and(|g| !g.is_in_runtime());
        outside && self.g.load(Relaxed) == g
    }

    /// Sleeps until [`wake`](Self::wake), or until the deadline in ns of the monotonic clock; then returns `false`.
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

    /// Sleeps as [`sleep`](Self::sleep), in the netpoller (`u64::MAX`: no deadline). Returns whether it was woken, and
    /// the goroutines that became ready meanwhile. May return for no reason.
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

    /// Returns the CPU that its thread is on, or was last.
    pub(crate) fn cpu_now(&self) -> Option<u32> {
        let _alive = self.retake.lock();
        match self.own_tp.load(Relaxed) {
            0 => None,
            // SAFETY: the thread's own block; before it ends it waits for the lock, and clears the word.
            tp => unsafe { tls::layout().ok()?.cpu_of(tp) },
        }
    }

    /// Notes that its thread ends.
    pub(crate) fn leave_thread(&self) {
        let _excluded = self.retake.lock();
        self.own_tp.store(0, Relaxed);
    }

    /// Makes this M, which the caller is about to wake, wake up on the CPU `here`, or, if that is among the `taken`
    /// ones, on another that is not. Runs in the preemption handler: see there.
    ///
    /// TUNED: eight goroutines that compute on two CPUs, one that sleeps for 1 ms: 99th percentile of its lateness
    /// 2.8 ms without, 0.4 with this. Web server with 64 connections, a fifth of the requests compute: 6 % of the CPU
    /// time was idle, 0.4 % is.
    pub(crate) fn come_to(&self, here: u32, taken: u128) {
        let tid = self.tid.load(Relaxed); // 0: its thread has not begun
        if tid != 0 && (self.cpu.load(Relaxed) != here || affinity::is_in(taken, here)) {
            self.allowed.set(affinity::limit(tid, here, taken));
        }
    }

    /// Lifts the limit to one CPU after it was woken.
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

    /// Returns a random number (xorshift), for where to start stealing.
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
