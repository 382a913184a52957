//! The lock of the runtime's own state. A goroutine that holds it is not preempted.
//!
//! If it were, every worker that wants the lock would sleep with its P in hand, and the holder would wait for a P. So a
//! goroutine is in the runtime while it holds one, with a P of its own.
//!
//! WHY NOT `std::sync::Mutex`: its poisoning reads thread-locals, which are not the thread's while a worker is between
//! two goroutines. This one is safe in the preemption handler too, which runs only on threads that hold none.

use crate::current::NoPreempt;
use crate::sys::futex;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// A look costs the holder a cache miss, so there is a pause between two. The longer it is, the more the holder gets
/// done with the guarded lines in its cache: who spins hard gets its turn after each of the other's.
/// TUNED: four senders and four receivers on one channel and two CPUs: 112 ns a message with 1 `PAUSE` between looks,
/// 65 with 4, 36 with 10, 26 with 30, 24 with 50, 22 with 100.
const PAUSES: u32 = 40;
/// Looks before it sleeps.
const LOOKS: u32 = 16;

/// A lock alone, for those who keep themselves from being preempted, and know what it guards.
pub(crate) struct RawLock(AtomicU32);

impl RawLock {
    pub(crate) const fn new() -> RawLock {
        RawLock(AtomicU32::new(FREE))
    }

    #[inline]
    pub(crate) fn lock(&self) {
        // ORDERING: Acquire pairs with the Release of `unlock`.
        if self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // ORDERING: as in `lock`.
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..LOOKS {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            if self.0.load(Relaxed) == FREE && self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                return;
            }
        }
        // ORDERING: as in `lock`. Whoever sleeps leaves CONTENDED behind, so that each unlock wakes one.
        while self.0.swap(CONTENDED, Acquire) != FREE {
            futex::wait(&self.0, CONTENDED, None);
        }
    }

    /// # Safety
    /// The caller holds the lock.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        // ORDERING: Release publishes the critical section to the next `lock`.
        if self.0.swap(FREE, Release) == CONTENDED {
            futex::wake(&self.0, 1);
        }
    }
}

/// A mutual exclusion lock around a `T`. No poisoning, not recursive.
pub(crate) struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one reference at a time.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Lock { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let no_preempt = NoPreempt::new();
        self.raw.lock();
        Guard { lock: self, _no_preempt: no_preempt }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let no_preempt = NoPreempt::new();
        self.raw.try_lock().then(|| Guard { lock: self, _no_preempt: no_preempt })
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
    /// Dropped after the lock is free.
    _no_preempt: NoPreempt,
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
        // SAFETY: the guard holds it.
        unsafe { self.lock.raw.unlock() };
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
