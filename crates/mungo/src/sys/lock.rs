//! A small mutex for the runtime's own state.
//!
//! WHY NOT `std::sync::Mutex`: its poisoning reads thread-locals, which are not the thread's while a
//! worker is between two goroutines, and its futex calls are meant to become goroutine-aware one
//! day. This one touches its word and nothing else, so the preemption handler may take it too.

use super::futex;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// TUNED: guess; critical sections here are tens of nanoseconds.
const SPINS: u32 = 100;

/// A mutual exclusion lock around a `T`. No poisoning, not recursive.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one reference at a time.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Lock { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // ORDERING: Acquire pairs with the Release of `Guard::drop`.
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
        Guard { lock: self }
    }

    /// The guard again, for one who holds the lock and forgot its guard: many locks at once, in an order of their own.
    ///
    /// # Safety
    /// The caller holds the lock, and no other guard of it is in use.
    #[inline]
    pub(crate) unsafe fn assume_held(&self) -> Guard<'_, T> {
        Guard { lock: self }
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            if self.word.load(Relaxed) == FREE
                && self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
        // ORDERING: as in `lock`. Whoever sleeps leaves CONTENDED behind, so that each unlock wakes one.
        while self.word.swap(CONTENDED, Acquire) != FREE {
            futex::wait(&self.word, CONTENDED, None);
        }
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock { .. }")
    }
}

/// Holds the lock; unlocks when dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only one.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release publishes the critical section to the next `lock`.
        if self.lock.word.swap(FREE, Release) == CONTENDED {
            futex::wake(&self.lock.word, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn excludes() {
        let lock = Arc::new(Lock::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || (0..20_000).for_each(|_| *lock.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*lock.lock(), 80_000);
    }
}
