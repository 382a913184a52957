//! P: a processor, the right to run goroutines.
//!
//! A P is Running (owned by one M, `M::p`), Idle (on the scheduler's list), or Dead (`set_procs` took it away). Any M
//! may steal from its run queue; its `Core` belongs to the M that owns the P.

use super::m::M;
use crate::protocols::runq::RunQueue;
use crate::sched::engine::Engine;
use crate::sched::pick::classes::Credit;
use crate::sched::pick::global::GList;
use crate::sched::pick::thief::Sightings;
use crate::sched::run::g::{self, G, GPtr, pool};
use crate::sched::run::sample::Sampler;
use crate::sched::shared::Shared;
use crate::sched::timers::heap::TimerHeap;
use crate::stack::SlotCache;
use crate::stack::slab::Class;
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// `P::flags`: the slice is over.
pub(crate) const PREEMPT: u32 = 1;
/// `P::flags`: `set_procs` wants this P back.
pub(crate) const RETIRE: u32 = 2;
/// `P::flags`: a policy decides, not the runtime itself. Under `Shared::synced`.
pub(crate) const POLICY: u32 = 4;

/// `P::flags`: a fresh goroutine runs while computing ones wait; its time is charged when it comes back. Owner.
pub(crate) const CHARGED: u32 = 8;

/// Ids that a P is given at a time, as in Go.
const ID_BATCH: u64 = 16;
/// Idle Gs that a P keeps at the most. TUNED: guess.
const FREE_GS: usize = 64;

/// A processor. The first cache lines are what a switch touches.
#[repr(C, align(128))]
pub(crate) struct P {
    /// Requests to the owner of the P; set by the monitor and `set_procs`, cleared by the owner.
    pub(crate) flags: AtomicU32,
    /// The tick that [`PREEMPT`] is about: on another one the request is stale. Monitor.
    preempt_tick: AtomicU32,
    /// Number of scheduling decisions with a fresh time slice. Written by the owner, watched by the monitor.
    pub(crate) tick: AtomicU32,
    /// The tick at which timers were run last. Owner.
    pub(crate) timer_tick: Cell<u32>,
    pub(crate) id: u32,
    /// The M that owns it; null while idle. Written by the owner, read by the monitor.
    pub(crate) m: AtomicPtr<M>,
    /// The switch of the P whose goroutine was seen computing for longer than a fresh one does, and with none waiting;
    /// `u64::MAX`: none. Monitor, and the owner once it has called the monitor.
    long_run: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) sampler: Sampler,
    pub(crate) timers: TimerHeap,
    pub(crate) runq: RunQueue<G>,
    /// Time in ns that its goroutine may run, if a policy decides. Written by the owner, read by the monitor.
    pub(crate) slice_ns: AtomicU64,
    /// Time in ns that the goroutine that is asked to make room has computed; 0: it has not, but its slice is over.
    /// Monitor.
    asked_after_ns: AtomicU64,
    /// The goroutine that room is made for; 0: for any. The thread that asked.
    asked_for: AtomicU64,
    pub(crate) credit: Credit,
    /// Whether its goroutine shall make room at once. Set by the thread that asked it to, cleared by the monitor.
    pub(crate) wanted_now: AtomicBool,
    /// The goroutine that a policy chose last. Written by the owner; it may be over by now.
    pub(crate) upcoming: AtomicPtr<G>,
    /// What its owner has seen of the other Ps, as a thief. Owner.
    pub(crate) seen: Sightings,
    core: UnsafeCell<Core>,
}

/// The part of a P that only its owner touches.
pub(crate) struct Core {
    pub(crate) slots: SlotCache,
    free_gs: Vec<GPtr>,
    next_id: u64,
    end_id: u64,
    /// Whether the global queue comes next, because goroutines that wake each other used up a slice.
    pub(crate) global_first: bool,
    /// The policy that decides, and since when: see `engine/hooks.rs`.
    pub(crate) engine: Option<Arc<Engine>>,
    pub(crate) policy_epoch: u32,
    /// How many times in a row the policy said that there was nothing to do, although there was.
    pub(crate) refused: u32,
}

// SAFETY: `core`, `seen`, `timer_tick` and the sampler's cells are used by the P's owner only; the rest is shared by
// design.
unsafe impl Sync for P {}
// SAFETY: as above.
unsafe impl Send for P {}

/// Counters of a P. Written by the owner (plain adds, no locked instruction), read by any thread.
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
        self.0.store(self.0.load(Relaxed) + n, Release);
    }

    /// Adds one and returns the sum.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.add(1);
        self.0.load(Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        // ORDERING: see `add`.
        self.0.load(Acquire)
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
            timers: TimerHeap::new(),
            timer_tick: Cell::new(u32::MAX),
            counters: Counters::default(),
            sampler: Sampler::new(),
            slice_ns: AtomicU64::new(0),
            asked_after_ns: AtomicU64::new(0),
            long_run: AtomicU64::new(u64::MAX),
            asked_for: AtomicU64::new(0),
            credit: Credit::new(),
            wanted_now: AtomicBool::new(false),
            upcoming: AtomicPtr::new(std::ptr::null_mut()),
            seen: Sightings::new(),
            core: UnsafeCell::new(Core {
                slots: SlotCache::new(class)?,
                free_gs: Vec::with_capacity(FREE_GS),
                next_id: 0,
                end_id: 0,
                global_first: false,
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

    /// Asks the goroutine that has been on `tick` to make room. It has computed for `ran_ns` ns; 0: it has not, but
    /// shares its slice with others that go on and on. Called by the monitor.
    pub(crate) fn ask_to_yield(&self, tick: u32, ran_ns: u64) {
        self.asked_for.store(0, Relaxed);
        self.ask(tick, ran_ns);
    }

    /// As [`ask_to_yield`](Self::ask_to_yield), for a policy that wants the P for the goroutine with this id.
    pub(crate) fn ask_to_yield_for(&self, tick: u32, id: u64) {
        self.asked_for.store(id, Relaxed);
        self.ask(tick, 0);
    }

    /// Returns the id of the goroutine that room was asked for last; 0: for any.
    pub(crate) fn asked_for(&self) -> u64 {
        self.asked_for.load(Relaxed)
    }

    fn ask(&self, tick: u32, ran_ns: u64) {
        self.asked_after_ns.store(ran_ns, Relaxed);
        self.preempt_tick.store(tick, Relaxed);
        // ORDERING: Release what was written above to the owner, which sees the flag first.
        self.flags.fetch_or(PREEMPT, Release);
    }

    /// Notes that the goroutine of this switch computes, and keeps the next one that it wakes waiting. Called by the
    /// monitor.
    pub(crate) fn note_long_run(&self, switch: u64) {
        if self.long_run.load(Relaxed) != switch {
            self.long_run.store(switch, Relaxed);
        }
    }

    /// Returns whether the goroutine that runs now was noted so. Called by the owner.
    #[inline(always)]
    pub(crate) fn is_long_run(&self) -> bool {
        self.long_run.load(Relaxed) == self.counters.switches.get()
    }

    /// Forgets that. Called by the owner.
    pub(crate) fn end_long_run(&self) {
        self.long_run.store(u64::MAX, Relaxed);
    }

    /// Takes the request back and returns whether it was about this tick. Called by the owner.
    #[cold]
    pub(crate) fn take_request(&self) -> bool {
        // ORDERING: Acquire pairs with `ask`: else a new request is taken for one about an older tick, and is lost.
        self.flags.fetch_and(!PREEMPT, Acquire) & PREEMPT != 0 && self.is_asked()
    }

    /// Returns whether it was asked to make room on that tick.
    pub(crate) fn is_asked_on(&self, tick: u32) -> bool {
        // ORDERING: Acquire pairs with `ask`, as above.
        self.flags.load(Acquire) & PREEMPT != 0 && self.preempt_tick.load(Relaxed) == tick
    }

    fn is_asked(&self) -> bool {
        self.preempt_tick.load(Relaxed) == self.tick.load(Relaxed)
    }

    /// Returns the time in ns that the goroutine that was asked to make room has computed; 0: it shared its slice.
    pub(crate) fn asked_after_ns(&self) -> u64 {
        self.asked_after_ns.load(Relaxed)
    }

    /// Returns whether the request to make room is to goroutines that share a slice, and none of them computes.
    pub(crate) fn has_shared_slice(&self) -> bool {
        self.asked_after_ns.load(Relaxed) == 0
    }

    /// Ends the slice and demotes `runnext`, which would have inherited it, to the back of the ring; the global queue
    /// comes next.
    ///
    /// # Safety
    /// The caller owns the P.
    pub(crate) unsafe fn end_shared_slice(&self, shared: &Shared) {
        // SAFETY: by the caller.
        unsafe { self.core() }.global_first = true;
        if let Err(full) = self.runq.demote_next() {
            crate::sched::pick::spill(self, shared, full);
        }
    }

    /// Takes out and returns all goroutines that wait here, `runnext` first. Called by the owner.
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
    /// Returns an idle G.
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

    /// Keeps an idle G for the next spawn.
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

    /// Returns whether it holds neither free stacks nor idle Gs.
    pub(crate) fn is_flushed(&self) -> bool {
        self.free_gs.is_empty() && self.slots.is_empty()
    }

    /// Returns free stacks and idle Gs to their pools: the P goes idle for long, or dies.
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
