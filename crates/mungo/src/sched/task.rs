//! Tasks of async executors that wait for something of this runtime, and how they are woken.
//!
//! A goroutine or thread that waits lies still until it is woken, so wakers reach into its frame. A task does not: its
//! future may be dropped at any moment. Therefore whoever ends the wait of a task takes its [`Waker`] out while the
//! future cannot leave, under the lock that both know, and wakes later.
//!
//! A waker is code of somebody else: it may allocate, lock, send to a channel, block. Inside the runtime it must not
//! run, and least of all on an M's own stack. So [`wake`] calls it where that is allowed, and leaves it to a goroutine
//! where not. The wakers of [`block_on`](crate::block_on) are our own, known by their vtable: they make a goroutine
//! runnable and nothing else, and are called anywhere.

use super::g::GPtr;
use super::shared::Shared;
use crate::block_on;
use crate::current;
use crate::spawn::Spec;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

/// A place for the waker of a task that waits. Whoever ends the wait takes it out.
///
/// It has no destructor, so that those who wait on a goroutine do not pay for one.
pub(crate) struct TaskSlot(Cell<ManuallyDrop<Option<Waker>>>);

impl TaskSlot {
    pub(crate) fn empty() -> TaskSlot {
        TaskSlot(Cell::new(ManuallyDrop::new(None)))
    }

    pub(crate) fn new(waker: Waker) -> TaskSlot {
        TaskSlot(Cell::new(ManuallyDrop::new(Some(waker))))
    }

    pub(crate) fn take(&self) -> Option<Waker> {
        self.replace(None)
    }

    pub(crate) fn replace(&self, waker: Option<Waker>) -> Option<Waker> {
        ManuallyDrop::into_inner(self.0.replace(ManuallyDrop::new(waker)))
    }
}

thread_local! {
    /// On the threads of a runtime, on their own thread-locals: the runtime.
    static RUNTIME: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// By a thread of `shared`, which keeps it to its end: what it calls is inside the runtime.
pub(super) fn adopt_thread(shared: &Shared) {
    RUNTIME.set(shared);
}

/// What the calling thread is, when no goroutine runs on it.
#[inline(never)]
fn runtime_of_thread() -> Option<Arc<Shared>> {
    // SAFETY: set by a thread that holds a count until it ends.
    RUNTIME.try_with(|shared| unsafe { shared.get().as_ref() }.map(Shared::to_arc)).unwrap_or(None)
}

/// Wakes a task, from anywhere: inside the runtime, on an M's own stack, on any thread.
pub(crate) fn wake(waker: Waker) {
    if block_on::is_own(&waker) {
        return waker.wake();
    }
    match current::g() {
        // SAFETY: the M that runs this goroutine, or has its thread-locals loaded.
        Some(g) if unsafe { &*g.m.load(Relaxed) }.in_runtime.load(Relaxed) != 0 => {
            wake_on_goroutine(None, waker)
        }
        Some(_) => waker.wake(),
        None => match runtime_of_thread() {
            Some(shared) => wake_on_goroutine(Some(&shared), waker),
            None => waker.wake(),
        },
    }
}

/// As [`wake`], but a goroutine in [`block_on`](crate::block_on) goes to the caller, who owns it now.
pub(crate) fn ready_into(waker: Waker, each: impl FnOnce(GPtr)) {
    match block_on::take_goroutine(waker) {
        Ok(goroutine) => _ = goroutine.map(each),
        Err(waker) => wake(waker),
    }
}

/// The waker of somebody else, where it must not be called. `None`: on the caller's runtime.
#[cold]
fn wake_on_goroutine(shared: Option<&Arc<Shared>>, waker: Waker) {
    let spec = Spec { name: Some("waker".into()), ..Spec::here() };
    let mut waker = ManuallyDrop::new(waker);
    // SAFETY: one of the two is used: the other one if there is no goroutine. WHY NOT a clone: to drop one may drop the
    // task, and that is code of somebody else too.
    let for_goroutine = unsafe { std::ptr::read(&waker) };
    // SAFETY: it borrows nothing.
    if unsafe { spec.spawn(shared, move || ManuallyDrop::into_inner(for_goroutine).wake()) }.is_err() {
        // No memory for a stack. Better here, where most wakers do no harm, than never.
        // SAFETY: as above.
        unsafe { ManuallyDrop::take(&mut waker) }.wake();
    }
}

/// Wakes all, from anywhere. If a waker panics, the others are woken first.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    let mut panic = None;
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| wake(waker))) {
            panic.get_or_insert(payload);
        }
    }
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}
