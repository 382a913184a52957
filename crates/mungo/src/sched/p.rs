//! P: a processor, the right to run goroutines.
//!
//! A P is Running (owned by one M, `M::p`), Idle (on the scheduler's list), or Dead (`set_procs` took it
//! away). Its run queue may be robbed by anyone; its `Core` belongs to the M that owns the P.

use super::g::{self, G, GPtr, pool};
use super::global::GList;
use super::m::M;
use super::runq::RunQueue;
use super::shared::Shared;
use crate::metrics::sample::Sampler;
use crate::policy::Engine;
use crate::stack::SlotCache;
use crate::stack::slab::Class;
use crate::time::heap::TimerHeap;
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

/// `P::flags`: the slice is over.
pub(crate) const PREEMPT: u32 = 1;
/// `P::flags`: `set_procs` wants this P back.
pub(crate) const RETIRE: u32 = 2;
/// `P::flags`: a policy decides, not the runtime itself. Under `Shared::synced`.
pub(crate) const POLICY: u32 = 4;

/// Ids are given out to Ps in batches, as in Go.
const ID_BATCH: u64 = 16;
/// TUNED: guess.
const FREE_GS: usize = 64;

/// A processor. The first cache lines are what a switch touches.
#[repr(C, align(128))]
pub(crate) struct P {
    /// Requests to whoever owns the P; set by the monitor and `set_procs`, cleared by the owner.
    pub(crate) flags: AtomicU32,
    /// The tick that [`PREEMPT`] is about: on another one the request is stale. Monitor.
    preempt_tick: AtomicU32,
    /// Scheduling decisions with a fresh time slice. Written by the owner, watched by the monitor.
    pub(crate) tick: AtomicU32,
    /// How far the ring holds goroutines that the network woke. Written by the owner, read by the monitor.
    fresh_mark: AtomicU32,
    /// The tick at which timers were run last. Owner.
    pub(crate) timer_tick: Cell<u32>,
    pub(crate) id: u32,
    /// The M that owns it; null while idle. Written by the owner, read by the monitor.
    pub(crate) m: AtomicPtr<M>,
    pub(crate) counters: Counters,
    pub(crate) sampler: Sampler,
    pub(crate) timers: TimerHeap,
    pub(crate) runq: RunQueue<G>,
    /// How long its goroutine may run, if a policy decides. Written by the owner, read by the monitor.
    pub(crate) slice_ns: AtomicU64,
    /// The one in `runnext` was put there by the monitor, because a timer was late. Set by the monitor, cleared by the
    /// owner.
    pub(crate) next_is_late: AtomicBool,
    /// The tick on which an interrupted goroutine goes on. Written by the owner, read by the monitor.
    resumed_tick: AtomicU32,
    /// Its goroutine shall make room at once. Set by whoever asked it to, cleared by the monitor.
    pub(crate) urgent: AtomicBool,
    /// The goroutine that a policy chose last. Written by the owner; it may be over by now.
    pub(crate) upcoming: AtomicPtr<G>,
    core: UnsafeCell<Core>,
}

/// What only the owner of the P touches.
pub(crate) struct Core {
    pub(crate) slots: SlotCache,
    free_gs: Vec<GPtr>,
    next_id: u64,
    end_id: u64,
    /// A slice ended: the global queue comes next.
    pub(crate) global_first: bool,
    /// The tick when it last did so.
    pub(crate) global_tick: u32,
    /// The policy that decides, and since when: see `policy::hooks`.
    pub(crate) engine: Option<Arc<Engine>>,
    pub(crate) policy_epoch: u32,
    /// How often it said in a row that there was nothing to do, although there was.
    pub(crate) refused: u32,
}

// SAFETY: `core`, `timer_tick` and the sampler's cells are used by the P's owner only; the rest is shared by design.
unsafe impl Sync for P {}
// SAFETY: as above.
unsafe impl Send for P {}

/// Written by the owner (plain adds, no locked instruction), read by anybody.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Counters {
    pub(crate) switches: Counter,
    pub(crate) parks: Counter,
    pub(crate) yields: Counter,
    pub(crate) spawned: Counter,
    pub(crate) finished: Counter,
    pub(crate) preemptions: Counter,
    pub(crate) retakes: Counter,
    pub(crate) steal_attempts: Counter,
    pub(crate) steals: Counter,
    pub(crate) overflows: Counter,
    pub(crate) global_takes: Counter,
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        // ORDERING: Release, so that `Shared::live` can add up finished before spawned (its Acquire).
        self.0.store(self.0.load(Relaxed) + n, std::sync::atomic::Ordering::Release);
    }

    /// Adds one and returns the sum.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.add(1);
        self.0.load(Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        // ORDERING: see `add`.
        self.0.load(std::sync::atomic::Ordering::Acquire)
    }
}

impl P {
    pub(crate) fn new(id: u32, class: Class) -> io::Result<P> {
        Ok(P {
            id,
            m: AtomicPtr::new(std::ptr::null_mut()),
            runq: RunQueue::new(),
            flags: AtomicU32::new(0),
            preempt_tick: AtomicU32::new(0),
            tick: AtomicU32::new(0),
            fresh_mark: AtomicU32::new(0),
            timers: TimerHeap::new(),
            timer_tick: Cell::new(u32::MAX),
            counters: Counters::default(),
            sampler: Sampler::new(),
            slice_ns: AtomicU64::new(0),
            next_is_late: AtomicBool::new(false),
            resumed_tick: AtomicU32::new(u32::MAX),
            urgent: AtomicBool::new(false),
            upcoming: AtomicPtr::new(std::ptr::null_mut()),
            core: UnsafeCell::new(Core {
                slots: SlotCache::new(class)?,
                free_gs: Vec::with_capacity(FREE_GS),
                next_id: 0,
                end_id: 0,
                global_first: false,
                global_tick: 0,
                engine: None,
                policy_epoch: 0,
                refused: 0,
            }),
        })
    }

    /// # Safety
    /// The caller owns the P, and holds no other reference to the core.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn core(&self) -> &mut Core {
        // SAFETY: by the caller.
        unsafe { &mut *self.core.get() }
    }

    /// Monitor: the goroutine that has been on `tick` shall make room.
    pub(crate) fn ask_to_yield(&self, tick: u32) {
        self.preempt_tick.store(tick, Relaxed);
        self.flags.fetch_or(PREEMPT, Relaxed);
    }

    /// Owner: whether the request is about this tick. Takes it back in either case.
    #[cold]
    pub(crate) fn take_request(&self) -> bool {
        self.flags.fetch_and(!PREEMPT, Relaxed) & PREEMPT != 0 && self.is_asked()
    }

    /// Whether it was asked to make room on that tick.
    pub(crate) fn is_asked_on(&self, tick: u32) -> bool {
        self.flags.load(Relaxed) & PREEMPT != 0 && self.preempt_tick.load(Relaxed) == tick
    }

    fn is_asked(&self) -> bool {
        self.preempt_tick.load(Relaxed) == self.tick.load(Relaxed)
    }

    /// The slice is over, also that of the one next in line, which would inherit it: a pair that wakes each other, or
    /// one that respawns itself, would keep the P for ever.
    ///
    /// Who is preempted goes to the global queue, so that must be served as often: at the end of each slice, unless the
    /// slice was its own, or somebody is next in line all the same. Else a goroutine that respawns itself fills the
    /// queue faster than it is emptied.
    ///
    /// # Safety
    /// The caller owns the P.
    pub(crate) unsafe fn end_slice(&self, shared: &Shared) {
        if !self.next_is_late.swap(false, Relaxed)
            && let Err(full) = self.runq.demote_next()
        {
            super::park::spill(self, shared, full);
        }
        // SAFETY: by the caller.
        let core = unsafe { self.core() };
        let own_slice = self.tick.load(Relaxed) == core.global_tick.wrapping_add(1);
        core.global_first = !own_slice && !self.runq.has_next();
    }

    /// Owner: the goroutine that goes on here was interrupted.
    pub(crate) fn mark_resumed(&self) {
        self.resumed_tick.store(self.tick.load(Relaxed), Relaxed);
    }

    /// Whether that is still so on `tick`.
    pub(crate) fn has_resumed(&self, tick: u32) -> bool {
        self.resumed_tick.load(Relaxed) == tick
    }

    /// Owner: those in the ring have just been woken, and shall not wait behind one that computes.
    pub(crate) fn mark_fresh(&self) {
        self.fresh_mark.store(self.runq.mark(), Relaxed);
    }

    /// Whether one of those is still waiting.
    pub(crate) fn has_fresh(&self) -> bool {
        self.runq.is_before(self.fresh_mark.load(Relaxed))
    }

    /// Owner: all that wait here, `runnext` first.
    pub(crate) fn empty_runq(&self) -> GList {
        let mut all = GList::new();
        while let Some((g, _)) = self.runq.pop() {
            all.push(GPtr::new(g).expect("a queued goroutine"));
        }
        all
    }

    #[inline]
    pub(crate) fn next_tick(&self) {
        self.tick.store(self.tick.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

impl Core {
    /// An idle G.
    #[inline]
    pub(crate) fn take_g(&mut self) -> GPtr {
        if self.free_gs.is_empty() {
            pool::refill(&mut self.free_gs, FREE_GS / 2);
        }
        self.free_gs.pop().expect("just refilled")
    }

    /// Gives up the runtime's count of an ended goroutine.
    #[inline]
    pub(crate) fn release_g(&mut self, g: GPtr) {
        if g::release(g) {
            self.keep_g(g);
        }
    }

    /// Takes an idle G.
    #[inline]
    pub(crate) fn keep_g(&mut self, g: GPtr) {
        if self.free_gs.len() == FREE_GS {
            pool::give_many(self.free_gs.drain(..FREE_GS / 2));
        }
        self.free_gs.push(g);
    }

    #[inline]
    pub(crate) fn new_id(&mut self, from: &AtomicU64) -> u64 {
        if self.next_id == self.end_id {
            self.next_id = from.fetch_add(ID_BATCH, Relaxed);
            self.end_id = self.next_id + ID_BATCH;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// Gives the hoard back: the P goes idle for long, or dies.
    pub(crate) fn flush(&mut self) {
        pool::give_many(self.free_gs.drain(..));
        self.slots.flush();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.flush();
    }
}

impl std::fmt::Debug for P {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("P").field("id", &self.id).finish_non_exhaustive()
    }
}
