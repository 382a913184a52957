//! Many readers or one writer.

pub(crate) mod core;

use core::Core;

/// A reader-writer lock without a value, for [`lock_api`].
///
/// ```
/// use mungo::sync::lock_api::RawRwLock as _;
///
/// static LOCK: mungo::sync::RawRwLock = mungo::sync::RawRwLock::INIT;
/// LOCK.lock_shared();
/// assert!(LOCK.try_lock_shared() && !LOCK.try_lock_exclusive());
/// // SAFETY: locked twice above.
/// unsafe {
///     LOCK.unlock_shared();
///     LOCK.unlock_shared();
/// }
/// ```
#[derive(Debug)]
pub struct RawRwLock(Core);

// SAFETY: a writer is alone, and readers are without a writer; modelled in `core.rs`.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // WHY: what lock_api asks for
    const INIT: RawRwLock = RawRwLock(Core::new());

    /// A guard stays where it was made: with its goroutine.
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.0.lock_shared();
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        self.0.unlock_shared();
    }

    fn lock_exclusive(&self) {
        self.0.lock_exclusive();
    }

    fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock_exclusive()
    }

    unsafe fn unlock_exclusive(&self) {
        self.0.unlock_exclusive();
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

// SAFETY: the writer becomes a reader before any other caller can come in.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        self.0.downgrade();
    }
}

/// A value that many may read at once, or one may write.
///
/// The interface is that of [`lock_api::RwLock`]: `read`, `write`, `try_read`, `try_write`, `get_mut`,
/// `into_inner`, and `RwLockWriteGuard::downgrade`. No poisoning. `read` panics if there are 2^29 readers, guards that
/// were forgotten included.
///
/// **Fairness**: Go's. A writer that waits keeps new readers out, and when it leaves, all readers that wait come
/// before the next writer. So a goroutine that holds a read lock must not ask for a second one: between the two
/// a writer may have come, and all of them wait for each other.
///
/// ```
/// use mungo::sync::RwLock;
///
/// let config = RwLock::new(String::from("a"));
/// {
///     let (one, two) = (config.read(), config.try_read().unwrap());
///     assert_eq!(*one, *two);
///     assert!(config.try_write().is_none());
/// }
/// config.write().push('b');
/// assert_eq!(*config.read(), "ab");
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// Holds a [`RwLock`] for reading.
///
/// ```
/// use mungo::sync::{RwLock, RwLockReadGuard};
///
/// let numbers = RwLock::new(vec![1, 2, 3]);
/// let guard: RwLockReadGuard<'_, Vec<i32>> = numbers.read();
/// assert_eq!(guard.len(), 3);
/// ```
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// Holds a [`RwLock`] for writing.
///
/// ```
/// use mungo::sync::{RwLock, RwLockWriteGuard};
///
/// let numbers = RwLock::new(vec![1, 2]);
/// let mut guard: RwLockWriteGuard<'_, Vec<i32>> = numbers.write();
/// guard.push(3);
/// let readable = RwLockWriteGuard::downgrade(guard);
/// assert_eq!(readable.len(), numbers.read().len());
/// ```
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// Holds a [`RwLock`] for reading a part of its value.
///
/// ```
/// use mungo::sync::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
///
/// let pair = RwLock::new((1, 2));
/// let second: MappedRwLockReadGuard<'_, i32> = RwLockReadGuard::map(pair.read(), |p| &p.1);
/// assert_eq!(*second, 2);
/// ```
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// Holds a [`RwLock`] for writing a part of its value.
///
/// ```
/// use mungo::sync::{MappedRwLockWriteGuard, RwLock, RwLockWriteGuard};
///
/// let pair = RwLock::new((1, 2));
/// let mut second: MappedRwLockWriteGuard<'_, i32> = RwLockWriteGuard::map(pair.write(), |p| &mut p.1);
/// *second += 1;
/// drop(second);
/// assert_eq!(*pair.read(), (1, 3));
/// ```
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;
