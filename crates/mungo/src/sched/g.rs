//! G: a goroutine.
//!
//! Gs are pooled and never freed, so a stale pointer is at worst a pointer to another goroutine,
//! and all of them can be listed. A G is kept by a count of handles; the runtime holds one from
//! spawn to end.
//!
//! The closure and later the result live in the G itself if they are small. The stack is given to
//! a G when it first runs.
//!
//! | status    | who owns the G                      | next                                            |
//! |-----------|-------------------------------------|-------------------------------------------------|
//! | Idle      | the pool, or a spawner              | Active                                          |
//! | Active    | a run queue, or the M that runs it  | Waiting, Dead, Notified                         |
//! | Notified  | as Active                           | Active: woken before it had parked              |
//! | Waiting   | nobody; one waker                   | Active, by [`notify`](G::notify)                |
//! | Dead      | its handles                         | Idle, when the last handle is gone              |

pub(crate) mod pool;

use super::m::M;
use super::park::Waiter;
use super::shared::Shared;
use super::task::TaskSlot;
use super::wake::{Wake, WakeState};
use crate::current::Running;
use crate::metrics::sample::{self, AT_WAKEUP, UNTIMED};
use crate::scope::ScopeData;
use crate::stack::Slot;
use crate::stack::coro::Coro;
use crate::stack::slab::Class;
use crate::stack::tls;
use crate::sys;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::panic::Location;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::task::Waker;

pub(crate) use super::reason::WaitReason;

/// What a goroutine tells its worker when it suspends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// To the back of the P's ring.
    Yield = 0,
    /// Until somebody wakes it.
    Park = 1,
    /// To the back of the global queue: its slice is over.
    Hungry = 2,
    /// To the global queue: its M lost the P while it was blocked.
    WithoutP = 3,
    /// For ever.
    End = 4,
}

impl Switch {
    #[inline]
    fn from_word(word: usize) -> Switch {
        match word {
            0 => Switch::Yield,
            1 => Switch::Park,
            2 => Switch::Hungry,
            3 => Switch::WithoutP,
            _ => Switch::End,
        }
    }
}

/// Closures and results up to this size need no allocation.
const INLINE_WORDS: usize = 8;
type Storage = [MaybeUninit<usize>; INLINE_WORDS];

/// `G::join`: nobody waits yet. Any other value but [`DONE`] and [`DETACHED`] is a `*const Waiter`: on the frame of
/// who joins, or, if that is a task, in a box that belongs to whoever takes it out of there.
pub(crate) const NO_JOINER: usize = 0;
pub(crate) const DONE: usize = 1;
pub(crate) const DETACHED: usize = 2;

/// `G::token`, for `park` and `unpark`.
pub(crate) const TOKEN_EMPTY: u32 = 0;
pub(crate) const TOKEN_SET: u32 = 1;
pub(crate) const TOKEN_PARKED: u32 = 2;

/// A goroutine. The first two cache lines are what a switch touches.
#[repr(C, align(64))]
pub(crate) struct G {
    pub(crate) state: WakeState,
    /// Handles, and one for the runtime while it is alive.
    refs: AtomicU32,
    /// The M that runs it. Written by that M before it resumes the G; read by the G.
    pub(crate) m: AtomicPtr<M>,
    /// The thread pointer of its slot; 0 with shared thread-locals. Owner of the G.
    pub(crate) thread_pointer: Cell<usize>,
    /// The M that it is bound to, or null: see `sched/bound.rs`.
    pub(crate) bound: AtomicPtr<M>,
    /// Its stack, from the first run to the end. Owner of the G.
    slot: Cell<Option<Slot>>,
    pub(crate) shared: Cell<*const Shared>,
    coro: UnsafeCell<MaybeUninit<Coro>>,
    /// When it was queued, if that is timed: see `metrics/sample.rs`. Owner of the G.
    pub(crate) stamp: Cell<u64>,
    /// Coarse time of the last park or wake-up.
    pub(crate) since_ns: AtomicU64,
    pub(crate) join: AtomicUsize,
    /// Next in the global queue or in a list of free Gs. Owner of the list.
    pub(crate) link: Cell<*mut G>,
    /// A `chan::waits::Waits` on its stack while it blocks on channels for ever, or null. Valid while its reason is
    /// one of the channels'. Its own; read by who holds it.
    pub(crate) waits_on: Cell<*const ()>,
    pub(crate) token: AtomicU32,
    pub(crate) reason: AtomicU8,
    /// Its pages below its stack pointer were given back since it parked. Monitor; cleared by its worker.
    pub(crate) trimmed: AtomicBool,
    /// It is in a call that it said may block. Its own; read by the monitor.
    pub(crate) announced: AtomicBool,

    // Spawn and end.
    storage: UnsafeCell<Storage>,
    entry: Cell<Option<unsafe fn(&G)>>,
    /// How to drop what lies in `storage` after the end, if it is still there.
    drop_result: Cell<Option<unsafe fn(&G)>>,
    /// The scope that waits for it, or null. Set before it runs.
    pub(crate) scope: Cell<*const ScopeData>,
    pub(crate) id: AtomicU64,
    pub(crate) place: AtomicPtr<Location<'static>>,
    name: Cell<Option<Arc<str>>>,
    pub(crate) class: Cell<Class>,
    /// How many switches the one that is timed stands for. Owner of the G.
    pub(crate) stamp_weight: Cell<u64>,
    /// How often `lock_os_thread` was called. Its own.
    pub(crate) lock_depth: Cell<u32>,
    /// What policies know of it. Elsewhere, lest Gs grow: their size counts when many are started at a time.
    pub(crate) policy: &'static crate::policy::Node,
}

// SAFETY: the cells belong to whoever owns the G (see the table); the rest are atomics.
unsafe impl Send for G {}
// SAFETY: as above.
unsafe impl Sync for G {}

impl G {
    fn new(policy: &'static crate::policy::Node) -> G {
        G {
            state: WakeState::new(),
            refs: AtomicU32::new(0),
            m: AtomicPtr::new(null_mut()),
            thread_pointer: Cell::new(0),
            link: Cell::new(null_mut()),
            coro: UnsafeCell::new(MaybeUninit::uninit()),
            slot: Cell::new(None),
            entry: Cell::new(None),
            drop_result: Cell::new(None),
            storage: UnsafeCell::new([MaybeUninit::uninit(); INLINE_WORDS]),
            join: AtomicUsize::new(NO_JOINER),
            waits_on: Cell::new(std::ptr::null()),
            token: AtomicU32::new(TOKEN_EMPTY),
            bound: AtomicPtr::new(null_mut()),
            lock_depth: Cell::new(0),
            shared: Cell::new(std::ptr::null()),
            id: AtomicU64::new(0),
            class: Cell::new(Class::DEFAULT),
            place: AtomicPtr::new(null_mut()),
            reason: AtomicU8::new(WaitReason::None as u8),
            since_ns: AtomicU64::new(0),
            stamp: Cell::new(UNTIMED),
            stamp_weight: Cell::new(0),
            trimmed: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            name: Cell::new(None),
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
        self.entry.set(Some(super::entry::run::<F, T>));
        self.id.store(id, Relaxed);
        self.place.store(std::ptr::from_ref(place).cast_mut(), Relaxed);
        if name.is_some() {
            self.name.set(name);
        }
        self.join.store(NO_JOINER, Relaxed);
        self.token.store(TOKEN_EMPTY, Relaxed);
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
            (*self.coro.get()).write(Coro::new(&slot, std::ptr::from_ref(self) as usize, super::entry::main));
        }
        self.slot.set(Some(slot));
    }

    /// Whether it has a stack already.
    #[inline]
    pub(crate) fn started(&self) -> bool {
        self.slot().is_some()
    }

    /// Whether it uses its thread's thread-locals, for want of its own. To be asked from its first run to its end.
    #[inline]
    pub(crate) fn shares_tls(&self) -> bool {
        self.thread_pointer.get() == 0
    }

    /// # Safety
    /// It has its stack.
    #[inline(always)]
    unsafe fn coro(&self) -> &Coro {
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
    /// Called by the G itself, in the runtime (`M::in_runtime`).
    #[inline]
    pub(crate) unsafe fn suspend(&self, why: Switch) {
        // SAFETY: this is the G's own stack.
        unsafe { self.coro().suspend(why as usize) }
    }

    /// Nothing on its stack below this is in use while it is suspended.
    ///
    /// # Safety
    /// It has its stack.
    pub(crate) unsafe fn stack_low(&self) -> usize {
        // SAFETY: by the caller.
        unsafe { self.coro() }.low()
    }

    /// Where the switch left its registers, on its stack.
    ///
    /// To be asked by who holds it while it is suspended.
    #[cfg_attr(not(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    pub(crate) fn suspended_sp(&self) -> Option<usize> {
        // SAFETY: started, since it was suspended.
        unsafe { self.coro() }.suspended_sp()
    }

    #[inline]
    pub(crate) fn slot(&self) -> Option<&Slot> {
        // SAFETY: set before the first run and taken after the end, both by the G's owner, who is asking.
        unsafe { (*self.slot.as_ptr()).as_ref() }
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
    /// The goroutine has ended and nobody else can take the result.
    pub(crate) unsafe fn discard_result(&self) {
        if let Some(f) = self.drop_result.take() {
            // SAFETY: set together with the result.
            unsafe { f(self) }
        }
    }

    pub(crate) fn has_result(&self) -> bool {
        self.drop_result.get().is_some()
    }

    /// After the end: takes the stack back.
    pub(crate) fn finish(&self) -> Slot {
        self.thread_pointer.set(0);
        self.slot.take().expect("a goroutine that ran has a stack")
    }

    /// A wake-up: to be called exactly once for each park. `Wake::Enqueue`: the caller owns the G now.
    #[inline]
    pub(crate) fn notify(&self) -> Wake {
        let wake = self.state.notify();
        if wake == Wake::Enqueue && self.stamp.get() == AT_WAKEUP {
            sample::woken(self);
        }
        wake
    }

    // ---- ahead of a switch ----

    /// The lines that waking it will touch. One that slept is in no cache.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let at = std::ptr::from_ref(self).addr();
        sys::prefetch(at);
        sys::prefetch(at + 64);
    }

    /// The lines that its first steps will touch.
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
        // SAFETY: set before the G was published, changed only when no handle is left.
        unsafe { (*self.name.as_ptr()).as_deref() }
    }

    pub(crate) fn place(&self) -> &'static Location<'static> {
        // SAFETY: `prepare` stored a reference to a static.
        unsafe { &*self.place.load(Relaxed) }
    }

    pub(crate) fn wait_reason(&self) -> WaitReason {
        WaitReason::from_u8(self.reason.load(Relaxed))
    }
}

const fn fits<V>() -> bool {
    size_of::<V>() <= size_of::<Storage>() && align_of::<V>() <= align_of::<Storage>()
}

/// A pointer to a G without a count: a run queue's, a worker's, a waker's.
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

/// A counted handle.
#[derive(Debug)]
pub(crate) struct GRef(GPtr);

impl GRef {
    /// Takes over a count that the caller has.
    pub(crate) unsafe fn from_counted(g: GPtr) -> GRef {
        GRef(g)
    }

    /// A new handle to a G that is kept alive by somebody else right now.
    pub(crate) fn new(g: &G) -> GRef {
        g.refs.fetch_add(1, Relaxed);
        GRef(g.into())
    }

    /// A handle to a G that may be nobody's: then `None`. With one it stays the same goroutine.
    pub(crate) fn try_new(g: &G) -> Option<GRef> {
        // ORDERING: Acquire pairs with the Release in `prepare`.
        g.refs.fetch_update(Acquire, Relaxed, |n| (n > 0).then(|| n + 1)).ok()?;
        Some(GRef(g.into()))
    }

    pub(crate) fn ptr(&self) -> GPtr {
        self.0
    }
}

impl Deref for GRef {
    type Target = G;
    fn deref(&self) -> &G {
        // SAFETY: Gs are never freed.
        unsafe { self.0.0.as_ref() }
    }
}

impl Clone for GRef {
    fn clone(&self) -> Self {
        GRef::new(self)
    }
}

impl Drop for GRef {
    #[inline]
    fn drop(&mut self) {
        if release(self.0) {
            recycle(self.0);
        }
    }
}

/// An idle G goes to the caller's P, which will spawn again soon. TUNED: a tenth of spawn and join.
fn recycle(g: GPtr) {
    match Running::enter() {
        // SAFETY: in the runtime, so the P is ours; the core is not in use while somebody drops a handle.
        Some(running) => unsafe { running.p().core() }.keep_g(g),
        None => pool::give(g),
    }
}

/// Gives one count back; `true`: it was the last, the caller must return the G to a pool.
#[must_use]
#[inline]
pub(crate) fn release(g: GPtr) -> bool {
    // ORDERING: Release our use of the G, Acquire everybody's before it is reused.
    if g.refs.fetch_sub(1, AcqRel) != 1 {
        return false;
    }
    if g.name().is_some() {
        g.name.set(None);
    }
    g.state.make_idle();
    true
}

/// What the end of a goroutine must do after [`G::complete`].
#[must_use]
#[derive(Debug)]
pub(crate) enum Completed {
    /// Wake this one, who waits for the result.
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

    /// The handle is gone and nobody will ask for the result.
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

    /// By the handle: the task that it left waits no more. `None`: there was none, or it is being woken.
    pub(crate) fn take_back_task(&self) -> Option<Waker> {
        let seen = self.join.load(Acquire);
        if matches!(seen, NO_JOINER | DONE | DETACHED) {
            return None;
        }
        // ORDERING: Acquire the result if it is there. The box is our own.
        self.join.compare_exchange(seen, NO_JOINER, Acquire, Acquire).ok()?;
        // SAFETY: `poll_done` put it there, for whoever takes it out.
        unsafe { Box::from_raw(seen as *mut Waiter) }.take_waker()
    }

    /// By the handle: whether the goroutine has ended. If not, its end wakes the task.
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
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(waiter) }.take_waker());
        }
        left.is_err()
    }
}
