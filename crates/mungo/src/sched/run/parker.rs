//! A goroutine or thread that waits for a future, and the waker that ends its wait.

use super::g::GPtr;
use super::park::Waiter;
use crate::protocols::wake::Wake;
use crate::reason::WaitReason;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire},
};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// The future has not been woken since its last poll.
const QUIET: u32 = 0;
/// The future is to be polled (again).
const WOKEN: u32 = 1;
/// The future is quiet, and its goroutine is parked or on the way: the waker that takes this state away wakes it.
const PARKED: u32 = 2;

/// The goroutine or thread that runs a future, and whether the future has been woken. Wakers hold a count each, so it
/// may outlive the goroutine and the runtime; `waiter` is touched only while the state was `PARKED`, and then its
/// goroutine is alive.
///
/// WHY NOT the token of `park`: it belongs to the user, whose code may call `unpark` for reasons of its own.
pub(crate) struct Parker {
    state: AtomicU32,
    waiter: Waiter,
}

// SAFETY: the waiter is a goroutine or a thread; it is woken by the waker that took `PARKED` away.
unsafe impl Send for Parker {}
// SAFETY: as above.
unsafe impl Sync for Parker {}

impl Parker {
    /// Makes one for the caller.
    pub(crate) fn new() -> Arc<Parker> {
        Arc::new(Parker { state: AtomicU32::new(QUIET), waiter: Waiter::current() })
    }

    /// Returns a waker of it.
    pub(crate) fn waker(self: &Arc<Parker>) -> Waker {
        // SAFETY: the vtable keeps the contract of `RawWaker` on the `Arc` whose count it is given; `Parker` is Send
        // and Sync.
        unsafe { Waker::new(Arc::into_raw(self.clone()).cast(), &VTABLE) }
    }

    fn wake(&self) {
        // ORDERING: Release what the waker did to `park`, whose Acquire sees it before the next poll, also if another
        // waker woke it before. Acquire the waiter, should it be PARKED.
        if self.state.swap(WOKEN, AcqRel) == PARKED {
            // SAFETY: the parked goroutine or thread waits for exactly this, and the state says so once.
            unsafe { Waiter::wake(NonNull::from(&self.waiter)) };
        }
    }

    /// Blocks its owner until it was woken since the last call.
    pub(crate) fn park(&self) {
        // ORDERING: see `wake`.
        if self.state.compare_exchange(QUIET, PARKED, AcqRel, Acquire).is_ok() {
            self.waiter.wait(WaitReason::BlockOn.on(0));
        }
        // ORDERING: a swap, to Acquire from every `wake` that this answers, not only from the one that woke us.
        self.state.swap(QUIET, AcqRel);
    }
}

/// The functions of a waker of `block_on`; their address tells such a waker from others.
static VTABLE: RawWakerVTable = {
    unsafe fn clone(parker: *const ()) -> RawWaker {
        // SAFETY: of an `Arc`, of which the waker has a count.
        unsafe { Arc::increment_strong_count(parker.cast::<Parker>()) };
        RawWaker::new(parker, &VTABLE)
    }
    unsafe fn wake(parker: *const ()) {
        // SAFETY: as in `clone`; this waker's count ends here.
        unsafe { Arc::from_raw(parker.cast::<Parker>()) }.wake();
    }
    unsafe fn wake_by_ref(parker: *const ()) {
        // SAFETY: as in `clone`.
        unsafe { ManuallyDrop::new(Arc::from_raw(parker.cast::<Parker>())) }.wake();
    }
    unsafe fn drop(parker: *const ()) {
        // SAFETY: as in `wake`.
        std::mem::drop(unsafe { Arc::from_raw(parker.cast::<Parker>()) });
    }
    RawWakerVTable::new(clone, wake, wake_by_ref, drop)
};

/// Returns whether it wakes a [`block_on`] and does nothing else, so that it may be called inside the runtime.
pub(crate) fn is_own(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &VTABLE)
}

/// Wakes as a waker of `block_on` does, but a goroutine that was parked goes to the caller, which owns it now. `Err`:
/// the waker is of another kind.
pub(crate) fn take_goroutine(waker: Waker) -> Result<Option<GPtr>, Waker> {
    if !is_own(&waker) {
        return Err(waker);
    }
    let data = ManuallyDrop::new(waker).data();
    // SAFETY: as in the vtable's `wake`.
    let parker = unsafe { Arc::from_raw(data.cast::<Parker>()) };
    match parker.waiter {
        // ORDERING: as in `Parker::wake`.
        Waiter::G(g) if parker.state.swap(WOKEN, AcqRel) == PARKED => {
            Ok((g.notify() == Wake::Enqueue).then_some(g))
        }
        Waiter::G(_) => Ok(None),
        _ => {
            parker.wake();
            Ok(None)
        }
    }
}
