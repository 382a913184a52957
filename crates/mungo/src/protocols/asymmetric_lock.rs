//! A lock that is freed by a plain store.
//!
//! A lock of the usual kind takes two locked instructions, one to take it, one to free it; the second one has to learn
//! whether a thread sleeps. Here a thread that is about to sleep pays for both, by a barrier in all threads
//! ([`membarrier`]). It sleeps rarely: the holder is not preempted, and has the lock for some ten instructions.
//!
//! ```text
//!   holder, frees                    thread that goes to sleep
//!   word = FREE                      sleepers += 1
//!   light()                          heavy()
//!   sleepers > 0 ? wake one          word == FREE ? take it : sleep while word == HELD
//! ```
//!
//! By the barrier either the holder sees the sleeper, or the sleeper sees the lock free. A thread that was woken may
//! find the lock taken again; the thread that took it sees the sleeper, which stays counted until it has the lock.
//!
//! The price is a look at `sleepers` when the lock is free already: **the lock has to live until `unlock` returns.**

use crate::sys::atomic::AtomicU32;
use crate::sys::{futex, membarrier, spin::spin};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A lock alone, for callers that keep themselves from being preempted, and know what it guards.
pub(crate) struct AsymmetricLock {
    word: AtomicU32,
    /// Number of threads that sleep, or are about to.
    sleepers: AtomicU32,
}

impl AsymmetricLock {
    pub(crate) fn new() -> AsymmetricLock {
        membarrier::is_present(); // asks the kernel now rather than under contention
        AsymmetricLock { word: AtomicU32::new(FREE), sleepers: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of `unlock`.
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        if spin(|| self.word.load(Relaxed) == FREE && self.try_lock()) {
            return;
        }
        self.sleepers.fetch_add(1, Relaxed);
        membarrier::heavy(); // ORDERING: pairs with `light` in `unlock`: see the module
        while !self.try_lock() {
            futex::wait(&self.word, HELD, None);
        }
        self.sleepers.fetch_sub(1, Relaxed);
    }

    /// # Safety
    /// The caller holds the lock, and it lives until the call returns.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        // ORDERING: Release publishes the critical section to the next `lock`.
        self.word.store(FREE, Release);
        membarrier::light(); // ORDERING: pairs with `heavy` in `lock_slow`
        if self.sleepers.load(Relaxed) != 0 {
            futex::wake(&self.word, 1);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Model {
        lock: AsymmetricLock,
        turns: UnsafeCell<u32>,
    }

    // SAFETY: `turns` is used under the lock, which is what the model checks.
    unsafe impl Sync for Model {}

    impl Model {
        fn take_a_turn(&self, unlock: unsafe fn(&AsymmetricLock)) {
            self.lock.lock();
            // SAFETY: the lock is held.
            unsafe {
                self.turns.with_mut(|turns| *turns += 1);
                unlock(&self.lock);
            }
        }

        /// `threads` threads, this one included, take two turns each.
        fn run(threads: u32, unlock: unsafe fn(&AsymmetricLock)) {
            loom::model(move || {
                let lock = AsymmetricLock { word: AtomicU32::new(FREE), sleepers: AtomicU32::new(0) };
                let model = Arc::new(Model { lock, turns: UnsafeCell::new(0) });
                let others: Vec<_> = (1..threads)
                    .map(|_| {
                        let model = model.clone();
                        loom::thread::spawn(move || model.take_a_turn(unlock))
                    })
                    .collect();
                model.take_a_turn(unlock);
                others.into_iter().for_each(|thread| thread.join().unwrap());
                // SAFETY: the others have ended.
                assert_eq!(model.turns.with(|turns| unsafe { *turns }), threads);
                assert_eq!(model.lock.sleepers.load(Relaxed), 0);
            });
        }
    }

    /// Each thread that waits for the lock gets it, and has it alone.
    #[test]
    fn loom_asymmetric_lock_of_two() {
        Model::run(2, AsymmetricLock::unlock);
    }

    #[test]
    fn loom_asymmetric_lock_of_three() {
        Model::run(3, AsymmetricLock::unlock);
    }

    /// The barrier is needed on both sides: without the holder's, a thread sleeps on a lock that is free.
    #[test]
    #[should_panic(expected = "the sleeper is not woken")]
    fn loom_asymmetric_lock_without_the_barrier() {
        loom::model(|| {
            let lock = Arc::new(AsymmetricLock { word: AtomicU32::new(HELD), sleepers: AtomicU32::new(0) });
            let sleeper = {
                let lock = lock.clone();
                loom::thread::spawn(move || {
                    lock.sleepers.fetch_add(1, Relaxed);
                    membarrier::heavy();
                    lock.word.load(Relaxed) == HELD
                })
            };
            lock.word.store(FREE, Release);
            let is_seen = lock.sleepers.load(Relaxed) != 0;
            assert!(!sleeper.join().unwrap() || is_seen, "the sleeper is not woken");
        });
    }
}
