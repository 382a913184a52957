//! Tasks of async executors that wait for something of this runtime, and how they are woken.
//!
//! A goroutine or thread that waits lies still until it is woken, so wakers reach into its frame. A task does not: its
//! future may be dropped at any moment. Therefore the thread that ends the wait of a task takes its [`Waker`] out while
//! the future cannot leave, under the lock that both know, and wakes later.
//!
//! A waker is the executor's code: it may allocate, lock, send to a channel, block. Inside the runtime it must not run,
//! and least of all on an M's own stack. So [`wake`] calls it where that is allowed, and leaves it to a goroutine where
//! not. A runtime whose workers leave runs no goroutine any more: there the threads call the wakers, as their last act.
//! The wakers of [`block_on`](crate::block_on) are our own, known by their vtable: they make a goroutine runnable and
//! nothing else, and are called anywhere.

use super::g::GPtr;
use super::parker;
use super::spawn::Spec;
use crate::sched::run::current;
use crate::sched::shared::Shared;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Waker;

/// A place for the waker of a task that waits. The thread that ends the wait takes it out.
///
/// It has no destructor, so that waiting goroutines do not pay for one.
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
    /// The runtime of a runtime's thread; on the thread's own thread-locals.
    static RUNTIME: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// Notes `shared` as the runtime of the calling thread, to its end: what the thread calls is inside the runtime.
pub(crate) fn adopt_thread(shared: &Shared) {
    RUNTIME.set(shared);
}

/// Calls the wakers that no goroutine will call. The last act of a thread of `shared` that has left the scheduler.
pub(crate) fn leave_thread(shared: &Shared) {
    RUNTIME.set(std::ptr::null());
    let late = std::mem::take(&mut *shared.late_wakers.lock());
    // The panic hook has printed the message.
    _ = catch_unwind(AssertUnwindSafe(|| wake_all(late)));
}

/// Returns the runtime that the calling thread belongs to, when no goroutine runs on it.
#[inline(never)]
fn runtime_of_thread() -> Option<Arc<Shared>> {
    // SAFETY: set by a thread that holds a count until it ends.
    RUNTIME.try_with(|shared| unsafe { shared.get().as_ref() }.map(Shared::to_arc)).unwrap_or(None)
}

/// Calls `f` with the runtime that the calling thread belongs to, when no goroutine runs on it. Safe in a signal
/// handler if `f` is.
#[inline(never)]
pub(crate) fn with_runtime_of_thread<T>(f: impl FnOnce(&Shared) -> T) -> Option<T> {
    // SAFETY: set by a thread that holds a count until it ends.
    RUNTIME.try_with(|shared| unsafe { shared.get().as_ref() }.map(f)).unwrap_or(None)
}

/// Wakes a task, from anywhere: inside the runtime, on an M's own stack, on any thread.
pub(crate) fn wake(waker: Waker) {
    if parker::is_own(&waker) {
        return waker.wake();
    }
    match current::g() {
        Some(g) if g.is_in_runtime() => wake_on_goroutine(None, waker),
        Some(_) => waker.wake(),
        None => match runtime_of_thread() {
            Some(shared) => wake_on_thread_of(&shared, waker),
            None => waker.wake(),
        },
    }
}

/// Wakes a task as [`wake`], but passes a goroutine in [`block_on`](crate::block_on) to the caller, which owns it now.
pub(crate) fn ready_into(waker: Waker, each: impl FnOnce(GPtr)) {
    match parker::take_goroutine(waker) {
        Ok(goroutine) => _ = goroutine.map(each),
        Err(waker) => wake(waker),
    }
}

/// Wakes a task on a thread of `shared` that runs no goroutine. Perhaps none lives, and the workers are about to leave.
#[cold]
fn wake_on_thread_of(shared: &Arc<Shared>, waker: Waker) {
    if shared.hold() {
        wake_on_goroutine(Some(shared), waker);
        shared.let_go();
    } else {
        shared.late_wakers.lock().push(waker); // this thread will come to `leave_thread`
    }
}

/// Leaves a waker that is not ours to a goroutine, where it must not be called. `None`: on the caller's runtime.
#[cold]
fn wake_on_goroutine(shared: Option<&Arc<Shared>>, waker: Waker) {
    let spec = Spec { name: Some("waker".into()), ..Spec::here() };
    let mut waker = ManuallyDrop::new(waker);
    // SAFETY: one of the two is used: the other one if there is no goroutine. WHY NOT a clone: to drop one may drop the
    // task, and that is the executor's code too.
    let for_goroutine = unsafe { std::ptr::read(&waker) };
    // SAFETY: it borrows nothing.
    if unsafe { spec.spawn(shared, move || ManuallyDrop::into_inner(for_goroutine).wake()) }.is_err() {
        // There is no memory for a stack. The waker is better called here, where most do no harm, than never.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::Wake;
    use std::time::Duration;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    struct Panicking;

    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the test");
        }
    }

    /// Does what a thread of a runtime does that finds an event when the last goroutine has ended.
    #[test]
    fn a_waker_that_comes_with_the_end_is_called() {
        let runtime = Runtime::builder().procs(1).build().unwrap();
        let shared = runtime.shared().clone();
        runtime.shutdown(Duration::from_secs(60)).unwrap();
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(wakes.clone());
        std::thread::spawn(move || {
            adopt_thread(&shared);
            wake(Waker::from(Arc::new(Panicking)));
            wake(waker);
            leave_thread(&shared);
        })
        .join()
        .unwrap();
        assert_eq!(wakes.0.load(Relaxed), 1);
    }

    /// The runtime is closed, and the waker comes first: a goroutine calls it, and the end waits for that.
    #[test]
    fn a_waker_that_comes_before_the_end_is_called() {
        let runtime = Runtime::builder().procs(1).build().unwrap();
        let shared = runtime.shared().clone();
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(wakes.clone());
        std::thread::spawn(move || {
            adopt_thread(&shared);
            assert!(shared.hold());
            shared.close();
            assert!(!shared.is_stopping(), "held");
            wake(waker);
            shared.let_go();
            leave_thread(&shared);
        })
        .join()
        .unwrap();
        runtime.shutdown(Duration::from_secs(60)).unwrap();
        assert_eq!(wakes.0.load(Relaxed), 1);
    }
}
