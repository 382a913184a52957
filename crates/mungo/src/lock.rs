//! The lock of the runtime's own state. A goroutine that holds it is not preempted.
//!
//! If it were, every worker that wants the lock would sleep with its P in hand, and the holder would wait for a P. So a
//! goroutine is in the runtime while it holds one, with a P of its own.
//!
//! WHY NOT `std::sync::Mutex`: its poisoning reads thread-locals, which are not the thread's while a worker is between
//! two goroutines. This one is safe in the preemption handler too, which runs only on threads that hold none.
//!
//! This layer knows no goroutines. The scheduler and all above it have a lock that is told at compile time how its
//! holder stays in the runtime (`sched/run/lock.rs`); the layers below the scheduler ask by a pointer to a function.

use crate::sys::{futex, spin::spin};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// A lock alone.
struct RawLock(AtomicU32);

impl RawLock {
    const fn new() -> RawLock {
        RawLock(AtomicU32::new(FREE))
    }

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of `unlock`.
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        if spin(|| self.0.load(Relaxed) == FREE && self.try_lock()) {
            return;
        }
        // ORDERING: as in `lock`. A thread that sleeps leaves CONTENDED behind, so that each unlock wakes one.
        while self.0.swap(CONTENDED, Acquire) != FREE {
            futex::wait(&self.0, CONTENDED, None);
        }
    }

    /// # Safety
    /// The caller holds the lock.
    #[inline]
    unsafe fn unlock(&self) {
        // ORDERING: Release publishes the critical section to the next `lock`.
        if self.0.swap(FREE, Release) == CONTENDED {
            futex::wake(&self.0, 1);
        }
    }
}

/// Keeps the calling goroutine from being preempted, from `begin` until it is dropped. Nothing on a plain thread.
pub(crate) trait NoPreemption {
    fn begin() -> Self;
}

/// How the scheduler keeps a goroutine from being preempted.
pub(crate) struct Hooks {
    /// Returns what `end` is called with; null: there is nothing to end.
    pub(crate) begin: fn() -> *const (),
    pub(crate) end: fn(*const ()),
}

/// The scheduler's; null before the first runtime, when there are no goroutines.
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(null_mut());

/// Says how locks of lower layers keep a goroutine from being preempted. Before there is one.
pub(crate) fn set_hooks(hooks: &'static Hooks) {
    // ORDERING: Release to `hooks`.
    HOOKS.store(std::ptr::from_ref(hooks).cast_mut(), Release);
}

#[inline]
fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null, or set by `set_hooks`. ORDERING: Acquire pairs with it.
    unsafe { HOOKS.load(Acquire).as_ref() }
}

/// [`NoPreemption`] by the scheduler's hooks.
pub(crate) struct ByHooks(*const ());

impl NoPreemption for ByHooks {
    #[inline]
    fn begin() -> ByHooks {
        ByHooks(hooks().map_or(std::ptr::null(), |hooks| (hooks.begin)()))
    }
}

impl Drop for ByHooks {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_null()
            && let Some(hooks) = hooks()
        {
            (hooks.end)(self.0);
        }
    }
}

/// A mutual exclusion lock around a `T`, whose holder has an `N`. No poisoning, not recursive.
pub(crate) struct Lock<T, N = ByHooks> {
    raw: RawLock,
    value: UnsafeCell<T>,
    holder: PhantomData<fn() -> N>,
}

// SAFETY: the lock hands out one reference at a time.
unsafe impl<T: Send, N> Send for Lock<T, N> {}
// SAFETY: as above.
unsafe impl<T: Send, N> Sync for Lock<T, N> {}

impl<T, N> Lock<T, N> {
    pub(crate) const fn new(value: T) -> Self {
        Lock { raw: RawLock::new(), value: UnsafeCell::new(value), holder: PhantomData }
    }
}

impl<T, N: NoPreemption> Lock<T, N> {
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T, N> {
        let no_preemption = N::begin();
        self.raw.lock();
        Guard { lock: self, _no_preemption: no_preemption }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T, N>> {
        let no_preemption = N::begin();
        self.raw.try_lock().then(|| Guard { lock: self, _no_preemption: no_preemption })
    }
}

impl<T, N> std::fmt::Debug for Lock<T, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock { .. }")
    }
}

/// Holds the lock; unlocks when dropped.
pub(crate) struct Guard<'a, T, N = ByHooks> {
    lock: &'a Lock<T, N>,
    /// Keeps the goroutine from being preempted; dropped after the lock is free.
    _no_preemption: N,
}

impl<T, N> Deref for Guard<'_, T, N> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, N> DerefMut for Guard<'_, T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only one.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, N> Drop for Guard<'_, T, N> {
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
        let lock = Arc::new(Lock::<u64>::new(0));
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
