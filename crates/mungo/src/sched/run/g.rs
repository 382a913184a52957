//! G: a goroutine.
//!
//! Gs are pooled and never freed, so a stale pointer is at worst a pointer to another goroutine, and all of them can be
//! listed. A count of handles keeps a G; the runtime holds one from spawn to end.
//!
//! The closure and later the result live in the G itself if they are small. The stack is given to
//! a G when it first runs.
//!
//! | status    | owner of the G                      | next                                            |
//! |-----------|-------------------------------------|-------------------------------------------------|
//! | Idle      | the pool, or a spawner              | Active                                          |
//! | Active    | a run queue, or the M that runs it  | Waiting, Dead, Notified                         |
//! | Notified  | as Active                           | Active: woken before it had parked              |
//! | Waiting   | none; one waker                     | Active, by [`notify`](G::notify)                |
//! | Inspected | the thread in [`hold`](G::hold)     | Waiting; Active, if a waker came meanwhile      |
//! | Dead      | its handles                         | Idle, when the last handle is gone              |

mod debugger;
pub(crate) mod hold;
mod inside;
pub(crate) mod pool;
mod refs;

use super::m::M;
use super::park::Waiter;
use super::scope::ScopeData;
use super::task::TaskSlot;
use crate::labels::LabelCell;
use crate::protocols::wake::WakeState;
use crate::sched::run::sample::UNTIMED;
use crate::sched::shared::Shared;
use crate::stack::coro::Coro;
use crate::stack::slab::Class;
use crate::stack::{Slot, tls};
use crate::sys;
use std::cell::{Cell, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::panic::Location;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::task::Waker;

pub(crate) use crate::reason::{Awaited, WaitReason};
pub(crate) use refs::{GRef, release};

/// What a goroutine tells its worker when it suspends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// It goes to the back of the P's ring.
    Yield = 0,
    /// It waits for its wake-up.
    Park = 1,
    /// It was preempted: it makes room, and goes to the queue of those that compute, or, if several shared its slice,
    /// to the global queue.
    Preempted = 2,
    /// It goes to the global queue: its M lost the P while it was blocked.
    WithoutP = 3,
    /// It has ended.
    End = 4,
}

impl Switch {
    #[inline]
    fn from_word(word: usize) -> Switch {
        match word {
            0 => Switch::Yield,
            1 => Switch::Park,
            2 => Switch::Preempted,
            3 => Switch::WithoutP,
            _ => Switch::End,
        }
    }
}

/// Words (of a pointer's size) up to which closures and results need no allocation.
const INLINE_WORDS: usize = 8;
type Storage = [MaybeUninit<usize>; INLINE_WORDS];

/// `G::join`: no joiner waits yet. Any other value but [`DONE`] and [`DETACHED`] is a `*const Waiter`: on the frame of
/// the joiner, or, if that is a task, in a box that belongs to the thread that takes it out of there.
pub(crate) const NO_JOINER: usize = 0;
pub(crate) const DONE: usize = 1;
pub(crate) const DETACHED: usize = 2;

/// `G::token`, for `park` and `unpark`.
pub(crate) const TOKEN_EMPTY: u32 = 0;
pub(crate) const TOKEN_SET: u32 = 1;
pub(crate) const TOKEN_PARKED: u32 = 2;

/// A goroutine. A yield touches the first cache line alone, a park and a wake-up the first two.
#[repr(C, align(64))]
pub(crate) struct G {
    pub(crate) state: WakeState,
    /// Depth of its calls of the runtime, at least 1 while it is suspended. Its own, or its worker's; read by the
    /// monitor and by signal handlers on its thread.
    ///
    /// WHY NOT a field of the M: between a look at `m` and the store it could be interrupted, and go on elsewhere.
    in_runtime: AtomicU32,
    /// The M that runs it. Written by that M before it resumes the G; read by the G.
    pub(crate) m: AtomicPtr<M>,
    /// The thread pointer of its slot; 0 with shared thread-locals. Owner of the G.
    pub(crate) thread_pointer: Cell<usize>,
    /// The M that it is bound to, or null: see `sched/threads/bound.rs`.
    pub(crate) bound: AtomicPtr<M>,
    /// Its stack, from the first run to the end, or null. Written by the owner of the G; read by searches too.
    slot: AtomicPtr<()>,
    coro: UnsafeCell<MaybeUninit<Coro>>,
    /// When it was queued, in ns, if that is timed: see `sched/run/sample.rs`. Owner of the G; read by profiles.
    pub(crate) stamp: AtomicU64,

    // Park and wake-up.
    pub(crate) shared: Home,
    /// Coarse time of the last park or wake-up, in ns.
    pub(crate) since_ns: AtomicU64,
    pub(crate) join: AtomicUsize,
    /// Next in the global queue or in a list of free Gs. Owner of the list.
    pub(crate) link: Cell<*mut G>,
    /// The object that it waits for, as `reason::Awaited` says; of its last wait while it runs. Its own; an address in
    /// it may be used by a thread that holds the G while it waits.
    pub(crate) waits_on: AtomicUsize,
    pub(crate) token: AtomicU32,
    pub(crate) reason: AtomicU8,
    /// Whether its pages below its stack pointer were given back since it parked. Set by the helper, cleared by itself.
    pub(crate) trimmed: AtomicBool,
    /// Whether it is in a call that it announced as blocking. Its own; read by the monitor.
    pub(crate) announced: AtomicBool,
    /// Number of times that an injected call has suspended it, modulo 256. Its own; read by dumps.
    interruptions: AtomicU8,
    /// Handles, and one for the runtime while it is alive.
    refs: AtomicU32,
    /// The part of its slice that an interrupted goroutine has used since it was woken, in parts of 256; 0: it was not
    /// interrupted. Owner of the G; set to 0 by itself when it parks.
    pub(crate) slice_used: Cell<u8>,
    /// Whether it was suspended because its slice was over, and goes straight back to its own code: the monitor may
    /// have it run without a P. Its own; read by the holder of the queue that it lies in.
    pub(crate) needs_no_p: AtomicBool,

    // Spawn and end.
    storage: UnsafeCell<Storage>,
    entry: Cell<Option<unsafe fn(&G)>>,
    /// Drops what lies in `storage` after the end, if it is still there.
    drop_result: Cell<Option<unsafe fn(&G)>>,
    /// The scope that waits for it, or null. Set before it runs.
    pub(crate) scope: Cell<*const ScopeData>,
    pub(crate) id: AtomicU64,
    pub(crate) place: AtomicPtr<Location<'static>>,
    /// The name, in a box; null: none. Set once, by the spawner, or later by a thread that holds a handle; freed by the
    /// owner of the last count. Read by holders of a handle.
    name: AtomicPtr<Arc<str>>,
    /// Its labels. Written by its spawner and by itself; read by itself, its owner, and threads that hold it.
    pub(crate) labels: LabelCell,
    pub(crate) class: Cell<Class>,
    /// The `stack::inject::Frame` on its stack while an injected call has it suspended, else 0. Its own; read by
    /// dumps.
    interrupted_at: AtomicUsize,
    /// Number of switches that the one that is timed stands for; 0: it is timed for a profile alone. Owner of the G;
    /// read by profiles.
    pub(crate) stamp_weight: AtomicU64,
    /// When it parked, in ns, if that is timed. Owner of the G.
    pub(crate) parked_ns: Cell<u64>,
    /// Number of calls of `lock_os_thread` that are in force. Its own.
    pub(crate) lock_depth: Cell<u32>,
    /// What policies know of it. It lies elsewhere, lest Gs grow: their size counts when many are started at a time.
    pub(crate) policy: &'static crate::policies::Node,
}

// What a yield touches is one line; with corosensei's switch it may be more.
#[cfg(all(mungo_native, not(mungo_corosensei)))]
const _: () = assert!(std::mem::offset_of!(G, stamp) + size_of::<u64>() <= 64);

/// The runtime of a G. Written by a spawner that owns the idle G. Atomic, because searches of all Gs ask it before they
/// hold one.
pub(crate) struct Home(AtomicPtr<Shared>);

impl Home {
    #[inline]
    pub(crate) fn get(&self) -> *const Shared {
        self.0.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, shared: &Shared) {
        self.0.store(std::ptr::from_ref(shared).cast_mut(), Relaxed);
    }
}

// SAFETY: the cells belong to the owner of the G (see the table); the rest are atomics.
unsafe impl Send for G {}
// SAFETY: as above.
unsafe impl Sync for G {}

impl G {
    fn new(policy: &'static crate::policies::Node) -> G {
        G {
            state: WakeState::new(),
            refs: AtomicU32::new(0),
            m: AtomicPtr::new(null_mut()),
            thread_pointer: Cell::new(0),
            link: Cell::new(null_mut()),
            coro: UnsafeCell::new(MaybeUninit::uninit()),
            slot: AtomicPtr::new(null_mut()),
            entry: Cell::new(None),
            drop_result: Cell::new(None),
            storage: UnsafeCell::new([MaybeUninit::uninit(); INLINE_WORDS]),
            join: AtomicUsize::new(NO_JOINER),
            waits_on: AtomicUsize::new(0),
            token: AtomicU32::new(TOKEN_EMPTY),
            bound: AtomicPtr::new(null_mut()),
            lock_depth: Cell::new(0),
            shared: Home(AtomicPtr::new(null_mut())),
            id: AtomicU64::new(0),
            class: Cell::new(Class::DEFAULT),
            place: AtomicPtr::new(null_mut()),
            reason: AtomicU8::new(WaitReason::None as u8),
            since_ns: AtomicU64::new(0),
            stamp: AtomicU64::new(UNTIMED),
            stamp_weight: AtomicU64::new(0),
            parked_ns: Cell::new(0),
            trimmed: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            interruptions: AtomicU8::new(0),
            in_runtime: AtomicU32::new(1),
            interrupted_at: AtomicUsize::new(0),
            slice_used: Cell::new(0),
            needs_no_p: AtomicBool::new(false),
            name: AtomicPtr::new(null_mut()),
            labels: LabelCell::new(),
            scope: Cell::new(std::ptr::null()),
            policy,
        }
    }

    // ---- spawn ----

    /// Fills an idle G with `f`; two references exist afterwards: the runtime's and the handle's.
    ///
    /// # Safety
    /// The caller owns the idle G. `f` and `T` outlive the goroutine (they are `'static`, or a scope waits).
    pub(crate) unsafe fn prepare<F, T>(
        &self,
        f: F,
        id: u64,
        place: &'static Location<'static>,
        name: Option<Arc<str>>,
    ) where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: the storage of an idle G is free.
        unsafe { self.put(f) };
        self.entry.set(Some(super::worker::run::<F, T>));
        self.id.store(id, Relaxed);
        self.place.store(std::ptr::from_ref(place).cast_mut(), Relaxed);
        if let Some(name) = name {
            self.set_name(name);
        }
        self.join.store(NO_JOINER, Relaxed);
        self.token.store(TOKEN_EMPTY, Relaxed);
        self.slice_used.set(0);
        // ORDERING: Release what was written above to `GRef::try_new`.
        self.refs.store(2, Release);
        self.state.make_active();
    }

    /// Moves a value into the storage, by a box if it is large.
    pub(crate) unsafe fn put<V>(&self, value: V) {
        let at = self.storage.get();
        // SAFETY: the caller owns the storage, which is free.
        unsafe {
            match fits::<V>() {
                true => at.cast::<V>().write(value),
                false => at.cast::<*mut V>().write(Box::into_raw(Box::new(value))),
            }
        }
    }

    /// Moves a value out of the storage.
    pub(crate) unsafe fn take<V>(&self) -> V {
        let at = self.storage.get();
        // SAFETY: the caller owns the storage, which holds a `V` by `put`.
        unsafe {
            match fits::<V>() {
                true => at.cast::<V>().read(),
                false => *Box::from_raw(at.cast::<*mut V>().read()),
            }
        }
    }

    // ---- run ----

    /// Gives the G its stack, before its first run.
    pub(crate) fn start_on(&self, slot: Slot) {
        self.thread_pointer.set(slot.thread_pointer());
        // SAFETY: the slot is fresh and stays until `finish`.
        unsafe {
            (*self.coro.get()).write(Coro::new(&slot, std::ptr::from_ref(self) as usize, super::worker::begin));
        }
        // ORDERING: Release what lies behind it (the bounds of the stack) to `slot`, which other threads call.
        self.slot.store(slot.into_raw(), Release);
    }

    /// Returns whether it has a stack already.
    #[inline]
    pub(crate) fn started(&self) -> bool {
        !self.slot.load(Relaxed).is_null()
    }

    /// Returns whether it uses its thread's thread-locals, for want of its own. Valid from its first run to its end.
    #[inline]
    pub(crate) fn shares_tls(&self) -> bool {
        self.thread_pointer.get() == 0
    }

    /// # Safety
    /// It has its stack.
    #[inline(always)]
    pub(super) unsafe fn coro(&self) -> &Coro {
        // SAFETY: by the caller.
        unsafe { (*self.coro.get()).assume_init_ref() }
    }

    /// # Safety
    /// Worker only, with the G's thread pointer loaded; the G is Running and started.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) -> Switch {
        // SAFETY: by the caller.
        Switch::from_word(unsafe { self.coro().resume() })
    }

    /// Switches to the worker. Returns when some worker resumes this G.
    ///
    /// # Safety
    /// Called by the G itself, in the runtime.
    #[inline]
    pub(crate) unsafe fn suspend(&self, why: Switch) {
        // SAFETY: this is the G's own stack.
        unsafe { self.coro().suspend(why as usize) }
    }

    /// Returns the stack pointer at which it suspended. Nothing below is in use on that stack, which may be another
    /// than its slot: see `stacker` and the like.
    ///
    /// # Safety
    /// It has its stack.
    pub(crate) unsafe fn stack_low(&self) -> usize {
        // SAFETY: by the caller.
        unsafe { self.coro() }.low()
    }

    /// Returns where the switch left its registers, on its stack.
    ///
    /// The caller holds it while it is suspended.
    #[cfg_attr(not(all(feature = "backtrace", mungo_native)), allow(dead_code))]
    pub(crate) fn suspended_sp(&self) -> Option<usize> {
        // SAFETY: started, since it was suspended.
        unsafe { self.coro() }.suspended_sp()
    }

    /// Returns its stack, to look at. Its owner gets the one that it has; any other thread perhaps one that it had.
    #[inline]
    pub(crate) fn slot(&self) -> Option<ManuallyDrop<Slot>> {
        // SAFETY: `start_on` left it. Slots are never unmapped, and this one is not given back to a pool.
        // ORDERING: Acquire pairs with `start_on`.
        unsafe { Slot::from_raw(self.slot.load(Acquire)) }.map(ManuallyDrop::new)
    }

    pub(crate) fn entry(&self) -> unsafe fn(&G) {
        self.entry.get().expect("a prepared goroutine")
    }

    pub(crate) fn set_drop_result(&self, f: Option<unsafe fn(&G)>) {
        self.drop_result.set(f);
    }

    /// Drops the result if it is still there.
    ///
    /// # Safety
    /// The goroutine has ended and no other thread can take the result.
    pub(crate) unsafe fn discard_result(&self) {
        if let Some(f) = self.drop_result.take() {
            // SAFETY: set together with the result.
            unsafe { f(self) }
        }
    }

    pub(crate) fn has_result(&self) -> bool {
        self.drop_result.get().is_some()
    }

    /// Takes the stack back, after the end.
    pub(crate) fn finish(&self) -> Slot {
        self.thread_pointer.set(0);
        // SAFETY: `start_on` left it, for the worker that ends the goroutine.
        let slot = unsafe { Slot::from_raw(self.slot.swap(null_mut(), Relaxed)) };
        slot.expect("a goroutine that ran has a stack")
    }

    // ---- ahead of a switch ----

    /// Prefetches the lines that waking it will touch. One that slept is in no cache.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let at = std::ptr::from_ref(self).addr();
        sys::prefetch(at);
        sys::prefetch(at + 64);
    }

    /// Prefetches the lines that its first steps will touch.
    ///
    /// # Safety
    /// It has run before.
    #[inline]
    pub(crate) unsafe fn prefetch_stack(&self) {
        // SAFETY: by the caller.
        let sp = unsafe { self.stack_low() };
        (0..4).for_each(|line| sys::prefetch(sp + 64 * line));
        tls::prefetch(self.thread_pointer.get());
    }

    // ---- what others may ask ----

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the runtime outlives its living goroutines: its workers hold it.
        unsafe { &*self.shared.get() }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        // ORDERING: Acquire: pairs with `set_name`. SAFETY: set once, freed only when no handle is left.
        unsafe { self.name.load(Acquire).as_ref() }.map(|name| &**name)
    }

    /// Names a goroutine that has no name. Returns `false` if it has one.
    pub(crate) fn set_name(&self, name: Arc<str>) -> bool {
        let made = Box::into_raw(Box::new(name));
        // ORDERING: Release the text to readers.
        let is_set = self.name.compare_exchange(null_mut(), made, Release, Relaxed).is_ok();
        if !is_set {
            // SAFETY: not published.
            drop(unsafe { Box::from_raw(made) });
        }
        is_set
    }

    /// Takes the name away, by the owner of the last count.
    fn clear_name(&self) {
        let name = self.name.swap(null_mut(), Acquire); // ORDERING: with `set_name`
        if !name.is_null() {
            // SAFETY: made by `set_name`, and no reader is left.
            drop(unsafe { Box::from_raw(name) });
        }
    }

    pub(crate) fn place(&self) -> &'static Location<'static> {
        // SAFETY: `prepare` stored a reference to a static.
        unsafe { &*self.place.load(Relaxed) }
    }

    pub(crate) fn wait_reason(&self) -> WaitReason {
        WaitReason::from_u8(self.reason.load(Relaxed))
    }

    /// Returns what it waits for; of its last wait if it does not wait.
    pub(crate) fn awaited(&self) -> Awaited {
        Awaited { reason: self.wait_reason(), on: self.waits_on.load(Relaxed) }
    }
}

const fn fits<V>() -> bool {
    size_of::<V>() <= size_of::<Storage>() && align_of::<V>() <= align_of::<Storage>()
}

/// A pointer to a G without a count: it belongs to a run queue, a worker or a waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GPtr(NonNull<G>);

// SAFETY: Gs are never freed, and G is Sync.
unsafe impl Send for GPtr {}

impl GPtr {
    pub(crate) fn new(g: *mut G) -> Option<GPtr> {
        NonNull::new(g).map(GPtr)
    }

    pub(crate) fn as_ptr(self) -> *mut G {
        self.0.as_ptr()
    }
}

impl From<&G> for GPtr {
    fn from(g: &G) -> Self {
        GPtr(NonNull::from(g))
    }
}

impl Deref for GPtr {
    type Target = G;
    fn deref(&self) -> &G {
        // SAFETY: Gs are never freed.
        unsafe { self.0.as_ref() }
    }
}

impl std::fmt::Debug for G {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("G").field("id", &self.id.load(Relaxed)).finish_non_exhaustive()
    }
}

/// What the end of a goroutine must do after [`G::complete`].
#[must_use]
#[derive(Debug)]
pub(crate) enum Completed {
    /// Wake this joiner, which waits for the result.
    Joiner(NonNull<Waiter>),
    /// The handle is gone, and the result is still there: drop it.
    Detached,
    Quietly,
}

impl G {
    /// Publishes the result to the joiner.
    pub(crate) fn complete(&self) -> Completed {
        // ORDERING: Release the result to the joiner's Acquire; Acquire the joiner's Waiter.
        match self.join.swap(DONE, AcqRel) {
            NO_JOINER => Completed::Quietly,
            DETACHED if self.has_result() => Completed::Detached,
            DETACHED => Completed::Quietly,
            waiter => NonNull::new(waiter as *mut Waiter).map_or(Completed::Quietly, Completed::Joiner),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        // ORDERING: pairs with `complete`.
        self.join.load(Acquire) == DONE
    }

    /// Notes that the handle is gone: no joiner will ask for the result.
    pub(crate) fn detach(&self) {
        // ORDERING: as `complete`; Acquire the result before dropping it.
        match self.join.compare_exchange(NO_JOINER, DETACHED, Release, Acquire) {
            Ok(_) => {}
            // SAFETY: the goroutine ended, and this was the only handle that could take the result.
            Err(DONE) => unsafe { self.discard_result() },
            Err(_) => {
                drop(self.take_back_task());
                self.detach();
            }
        }
    }

    /// Takes back the task that the handle left, which waits no more. `None`: there was none, or it is being woken.
    pub(crate) fn take_back_task(&self) -> Option<Waker> {
        let seen = self.join.load(Acquire);
        if matches!(seen, NO_JOINER | DONE | DETACHED) {
            return None;
        }
        // ORDERING: Acquire the result if it is there. The box is our own.
        self.join.compare_exchange(seen, NO_JOINER, Acquire, Acquire).ok()?;
        // SAFETY: `poll_done` put it there, for the thread that takes it out.
        unsafe { Box::from_raw(seen as *mut Waiter) }.take_waker()
    }

    /// Returns, to the handle, whether the goroutine has ended. If not, its end wakes the task.
    pub(crate) fn poll_done(&self, waker: &Waker) -> bool {
        if self.is_done() {
            return true;
        }
        let known = self.take_back_task().filter(|known| known.will_wake(waker));
        let slot = TaskSlot::new(known.unwrap_or_else(|| waker.clone()));
        let waiter = Box::into_raw(Box::new(Waiter::Task(slot)));
        // ORDERING: Release the box to `complete`, Acquire the result if it is there.
        let left = self.join.compare_exchange(NO_JOINER, waiter as usize, AcqRel, Acquire);
        if left.is_err() {
            // SAFETY: no other thread has seen it.
            drop(unsafe { Box::from_raw(waiter) }.take_waker());
        }
        left.is_err()
    }
}
