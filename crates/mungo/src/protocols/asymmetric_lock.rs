//! A lock that is freed by a plain store.
//!
//! A lock of the usual kind takes two locked instructions, one to take it, one to free it; the second one has to learn
//! whether a thread sleeps. Here a thread that is about to sleep pays for both, by a barrier in all threads
//! ([`membarrier`]). It sleeps rarely: the holder is not preempted, and has the lock for some ten instructions.
//!
//! ```text
//!   holder, frees                        thread that goes to sleep
//!   word = FREE                          sleepers += 1, not WAKING
//!   light()                              heavy()
//!   sleepers > 0, and not WAKING ?       word == FREE ? take it : sleep while `sleepers` is as it was
//!     WAKING, wake one
//! ```
//!
//! By the barrier either the holder sees the sleeper, or the sleeper sees the lock free. One sleeper is up at a time:
//! while it is (WAKING), holders need not make a system call each. It has the lock next, and its own unlock wakes the
//! next sleeper; or it does not get the lock for long, takes WAKING back and sleeps again, as above. A thread that goes
//! to sleep where others sleep already needs no barrier of its own, if one came after the last change (SEEN): all
//! holders see sleepers since then.
//!
//! The price is a look at `sleepers` when the lock is free already: **the lock has to live until `unlock` returns.**

use crate::sys::atomic::AtomicU32;
use crate::sys::{futex, membarrier, spin::spin};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A bit of [`AsymmetricLock::sleepers`]: each holder sees that threads sleep.
const SEEN: u32 = 1;
/// A bit of it: a sleeper was woken, and neither has the lock nor sleeps again.
const WAKING: u32 = 2;
/// One thread in it.
const ONE: u32 = 4;

/// A lock alone, for callers that keep themselves from being preempted, and know what it guards.
pub(crate) struct AsymmetricLock {
    word: AtomicU32,
    /// `SEEN`, `WAKING`, and the number of threads that sleep, are about to, or were woken; 0: there is none.
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

    fn spin(&self) -> bool {
        spin(|| self.word.load(Relaxed) == FREE && self.try_lock())
    }

    #[cold]
    fn lock_slow(&self) {
        if self.spin() {
            return;
        }
        let mut sleepers = self.sleepers.fetch_add(ONE, Relaxed) + ONE;
        loop {
            if sleepers & (SEEN | WAKING) != SEEN {
                self.sleepers.fetch_and(!(SEEN | WAKING), Relaxed);
                membarrier::heavy(); // ORDERING: pairs with `light` in `unlock`: see the module
                sleepers = self.sleepers.fetch_or(SEEN, Relaxed) | SEEN;
            }
            if self.try_lock() {
                break;
            }
            if sleepers & WAKING == 0 {
                futex::wait(&self.sleepers, sleepers, None);
            }
            if self.spin() {
                break;
            }
            sleepers = self.sleepers.load(Relaxed);
        }
        self.leave_sleepers();
    }

    /// Counts the caller, which has the lock by now, as a sleeper no more. Its unlock wakes the next one.
    fn leave_sleepers(&self) {
        let mut sleepers = self.sleepers.load(Relaxed);
        loop {
            let left = if sleepers / ONE == 1 { 0 } else { (sleepers - ONE) & !WAKING };
            match self.sleepers.compare_exchange(sleepers, left, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => sleepers = now,
            }
        }
    }

    /// # Safety
    /// The caller holds the lock, and it lives until the call returns.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        // ORDERING: Release publishes the critical section to the next `lock`.
        self.word.store(FREE, Release);
        membarrier::light(); // ORDERING: pairs with `heavy` in `lock_slow`
        if self.sleepers.load(Relaxed) != 0 {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let mut sleepers = self.sleepers.load(Relaxed);
        while sleepers != 0 && sleepers & WAKING == 0 {
            match self.sleepers.compare_exchange(sleepers, sleepers | WAKING, Relaxed, Relaxed) {
                Ok(_) => return futex::wake(&self.sleepers, 1),
                Err(now) => sleepers = now,
            }
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
        fn take_a_turn(&self) {
            self.lock.lock();
            // SAFETY: the lock is held.
            unsafe {
                self.turns.with_mut(|turns| *turns += 1);
                self.lock.unlock();
            }
        }

        /// `threads` threads, this one included, take `turns` turns each.
        fn run(threads: u32, turns: u32) {
            loom::model(move || {
                let lock = AsymmetricLock { word: AtomicU32::new(FREE), sleepers: AtomicU32::new(0) };
                let model = Arc::new(Model { lock, turns: UnsafeCell::new(0) });
                let others: Vec<_> = (1..threads)
                    .map(|_| {
                        let model = model.clone();
                        loom::thread::spawn(move || (0..turns).for_each(|_| model.take_a_turn()))
                    })
                    .collect();
                (0..turns).for_each(|_| model.take_a_turn());
                others.into_iter().for_each(|thread| thread.join().unwrap());
                // SAFETY: the others have ended.
                assert_eq!(model.turns.with(|turns| unsafe { *turns }), threads * turns);
                assert_eq!(model.lock.sleepers.load(Relaxed), 0);
            });
        }
    }

    /// Each thread that waits for the lock gets it, and has it alone.
    #[test]
    fn loom_asymmetric_lock_of_two() {
        Model::run(2, 2);
    }

    #[test]
    fn loom_asymmetric_lock_of_three() {
        Model::run(3, 1);
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
