//! Mutual exclusion.

pub(crate) mod core;

use crate::reason::WaitReason;
use crate::sched::run::waitq::Node;
use crate::sys::clock;
use core::Core;
use std::time::{Duration, Instant};

/// A mutex without a value, for [`lock_api`].
///
/// Its state is one word: an uncontended lock and an unlock are one atomic instruction each. Contenders spin for a
/// moment if the holder may be running on another P, then park. A free lock goes to the first caller that asks,
/// and a waiter that has waited for more than a millisecond gets it handed over: see [`Mutex`].
///
/// With [priorities](crate::policy::Priority) in use, the holder is as urgent as its most urgent waiter, until it
/// unlocks, and so is the goroutine that the holder waits for.
///
/// ```
/// use mungo::sync::lock_api::RawMutex as _;
///
/// static LOCK: mungo::sync::RawMutex = mungo::sync::RawMutex::INIT;
/// LOCK.lock();
/// assert!(!LOCK.try_lock());
/// // SAFETY: locked above.
/// unsafe { LOCK.unlock() };
/// ```
#[derive(Debug)]
pub struct RawMutex(Core);

// SAFETY: the state machine excludes; modelled in `core.rs`.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)] // WHY: what lock_api asks for
    const INIT: RawMutex = RawMutex(Core::new());

    /// A guard stays where it was made: with its goroutine.
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.0.lock(WaitReason::Mutex);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.unlock();
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

impl RawMutex {
    /// Locks, unless `wait` ends a wait with `false`. Returns whether it got the lock.
    pub(crate) fn lock_by(&self, deadline_ns: u64, wait: &dyn Fn(&Node) -> bool) -> bool {
        self.0.lock_by(deadline_ns, wait)
    }
}

// SAFETY: as above; the lock is handed over.
unsafe impl lock_api::RawMutexFair for RawMutex {
    #[inline]
    unsafe fn unlock_fair(&self) {
        self.0.unlock_fair();
    }
}

// SAFETY: `true` only with the lock held.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.try_lock() || self.0.lock_until(WaitReason::Mutex, clock::after_ns(timeout))
    }

    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.0.try_lock() || self.0.lock_until(WaitReason::Mutex, clock::at_ns(deadline))
    }
}

/// A value that one goroutine or thread at a time may use.
///
/// The interface is that of [`lock_api::Mutex`]: `lock`, `try_lock`, `try_lock_for`, `get_mut`, `into_inner`. As
/// in parking_lot there is no poisoning: a panic while the lock is held unlocks it.
///
/// **Fairness**: as in Go, any caller may take a free lock, which makes it fast. A waiter that waited for more
/// than a millisecond and still did not get it makes the lock starve: from then on it is handed over in the order
/// of arrival, until no waiter has waited for a millisecond. `MutexGuard::unlock_fair` hands over at once.
///
/// Goroutines park, plain threads block, and both may use the same mutex.
///
/// ```
/// use mungo::sync::Mutex;
///
/// static HITS: Mutex<u64> = Mutex::new(0);
/// mungo::scope(|s| {
///     for _ in 0..10 {
///         s.spawn(|| *HITS.lock() += 1);
///     }
/// });
/// assert_eq!(*HITS.lock(), 10);
/// ```
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// Holds a [`Mutex`]; unlocks when dropped.
///
/// ```
/// use mungo::sync::{Mutex, MutexGuard};
///
/// let queue = Mutex::new(vec![1, 2]);
/// let mut guard: MutexGuard<'_, Vec<i32>> = queue.lock();
/// guard.push(3);
/// MutexGuard::unlock_fair(guard);
/// assert_eq!(queue.into_inner(), [1, 2, 3]);
/// ```
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Holds a [`Mutex`] for a part of its value.
///
/// ```
/// use mungo::sync::{MappedMutexGuard, Mutex, MutexGuard};
///
/// let pair = Mutex::new((1, "one"));
/// let mut first: MappedMutexGuard<'_, i32> = MutexGuard::map(pair.lock(), |p| &mut p.0);
/// *first += 1;
/// drop(first);
/// assert_eq!(pair.lock().0, 2);
/// ```
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
