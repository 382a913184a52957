//! `block_on`: runs a future on the calling goroutine.

use crate::sched::g::{GPtr, WaitReason};
use crate::sched::park::Waiter;
use crate::sched::wake::Wake;
use std::future::IntoFuture;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire},
};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Nobody has woken the future since its last poll.
const QUIET: u32 = 0;
/// To be polled (again).
const WOKEN: u32 = 1;
/// Quiet, and its goroutine is parked or on the way: who takes this away wakes it.
const PARKED: u32 = 2;

/// Who runs a future, and whether it has been woken. Wakers hold a count each, so it may outlive the goroutine and the
/// runtime; `waiter` is touched only while the state was `PARKED`, and then its goroutine is alive.
///
/// WHY NOT the token of `park`: it is the user's, who may call `unpark` for reasons of his own.
struct Parker {
    state: AtomicU32,
    waiter: Waiter,
}

// SAFETY: the waiter is a goroutine or a thread; it is woken by the one who took `PARKED` away.
unsafe impl Send for Parker {}
// SAFETY: as above.
unsafe impl Sync for Parker {}

impl Parker {
    fn wake(&self) {
        // ORDERING: Release what the waker did to `park`, whose Acquire sees it before the next poll, also if it was
        // woken by another one before. Acquire the waiter, should it be PARKED.
        if self.state.swap(WOKEN, AcqRel) == PARKED {
            // SAFETY: the parked one waits for exactly this, and the state says so once.
            unsafe { Waiter::wake(NonNull::from(&self.waiter)) };
        }
    }

    /// By its owner: returns when it was woken since the last call.
    fn park(&self) {
        // ORDERING: see `wake`.
        if self.state.compare_exchange(QUIET, PARKED, AcqRel, Acquire).is_ok() {
            self.waiter.wait(WaitReason::BlockOn);
        }
        // ORDERING: a swap, to Acquire from every `wake` that this answers, not only from the one that woke us.
        self.state.swap(QUIET, AcqRel);
    }
}

/// Its address says that a waker is ours.
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

/// Whether it wakes a [`block_on`] and does nothing else, so that it may be called inside the runtime.
pub(crate) fn is_own(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &VTABLE)
}

/// Wakes as a waker of ours does, but a goroutine that was parked goes to the caller, who owns it now. `Err`: it is not
/// ours.
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

/// Runs a future to its end on the calling goroutine, and returns its output. Between polls the goroutine is parked,
/// and its P runs others; a plain thread sleeps.
///
/// There is no executor behind it and none is needed: `mungo::go(|| mungo::block_on(future))` is a task of its own.
/// Futures of other runtimes work if they bring their own reactor: what wakes them may be on any thread. What
/// blocks inside the future parks the goroutine and harms nobody, but of course its siblings in a `join!` wait too.
///
/// Tokens of [`unpark`](crate::Goroutine::unpark) are not touched. Calls may nest.
///
/// ```
/// let (tx, rx) = mungo::chan::bounded(1);
/// let worker = mungo::go(move || mungo::block_on(async move { rx.recv_async().await.unwrap() + 1 }));
/// let answer = mungo::block_on(async {
///     tx.send_async(41).await.unwrap();
///     worker.await.unwrap()
/// });
/// assert_eq!(answer, 42);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let parker = Arc::new(Parker { state: AtomicU32::new(QUIET), waiter: Waiter::current() });
    // SAFETY: the vtable keeps the contract of `RawWaker` on the `Arc` whose count it is given; `Parker` is Send and
    // Sync.
    let waker = unsafe { Waker::new(Arc::into_raw(parker.clone()).cast(), &VTABLE) };
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        parker.park();
    }
}
