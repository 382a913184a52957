//! Many readers or one writer.
//!
//! Go's `RWMutex`. `readers` counts those who read or want to; a writer that comes takes `WRITER` off it, so that it is
//! negative: readers who come after see that and wait, those who were there before leave one by one, and the last of them
//! wakes the writer. Writers exclude each other by a mutex around all of that.
//!
//! - A writer does not starve: new readers wait behind it. Readers do not starve: when a writer leaves, all readers that
//!   wait get the lock before the next writer can.
//! - A reader that finds no writer pays one atomic add to enter and one to leave, however many readers there are.
//! - Readers that were let in but had not gone to sleep yet find a permit in `Gate::permits`. Permits are alike: it does
//!   not matter which reader takes which.
//!
//! Rejected: one word with a CAS loop for readers (parking_lot's), because many readers make each other's CAS
//! fail; waits with a deadline, because a writer that gives up would have to find out which readers it had counted.

use super::mutex::core::Core;
use super::queue::{Node, Queue};
use crate::sched::reason::WaitReason;
use crate::sync::rt::{Lock, critical};
use std::sync::atomic::{
    AtomicI32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// More readers than this at once there cannot be.
const WRITER: i32 = 1 << 30;

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
pub struct RawRwLock {
    /// Held by a writer, from before it announces itself until after it let the readers in.
    writers: Core,
    /// Readers inside or waiting, less `WRITER` while a writer wants in or is in.
    readers: AtomicI32,
    /// Readers whom the pending writer waits for.
    departing: AtomicI32,
    gate: Lock<Gate>,
}

/// Where readers wait for a writer to leave, and a writer for readers.
#[derive(Debug)]
struct Gate {
    /// Readers who were let in and have not noticed yet.
    permits: i32,
    readers: Queue,
    /// At most one writer, the one that holds `writers`.
    writer: Queue,
    /// The last reader has left before the writer waited.
    departed: bool,
}

impl RawRwLock {
    #[cold]
    fn lock_shared_slow(&self) {
        let node = Node::new(u64::MAX);
        let mut gate = critical(&self.gate);
        if gate.permits > 0 {
            gate.permits -= 1;
            return;
        }
        // SAFETY: it leaves the frame when it was woken.
        unsafe { gate.readers.push_back(&node) };
        drop(gate);
        node.wait(WaitReason::RwLockRead);
    }

    /// A reader leaves while a writer waits.
    #[cold]
    fn depart(&self) {
        // ORDERING: AcqRel: what the readers did comes before what the writer does.
        if self.departing.fetch_sub(1, AcqRel) == 1 {
            let mut gate = critical(&self.gate);
            let writer = gate.writer.pop();
            gate.departed = writer.is_none();
            drop(gate);
            if let Some(writer) = writer {
                writer.wake();
            }
        }
    }

    /// The caller is the announced writer: waits for `inside` readers to leave.
    #[cold]
    fn wait_for_readers(&self, inside: i32) {
        // ORDERING: as `depart`. Some of them may have left since, so that the count was below zero.
        if self.departing.fetch_add(inside, AcqRel) + inside == 0 {
            return;
        }
        let node = Node::new(u64::MAX);
        let mut gate = critical(&self.gate);
        if std::mem::take(&mut gate.departed) {
            return;
        }
        // SAFETY: as in `lock_shared_slow`.
        unsafe { gate.writer.push_back(&node) };
        drop(gate);
        node.wait(WaitReason::RwLockWrite);
    }

    /// The writer leaves, or becomes `stays` readers, and lets in who waits.
    fn let_readers_in(&self, stays: i32) {
        // ORDERING: Release what the writer did to readers' Acquire.
        let waiting = self.readers.fetch_add(WRITER + stays, Release) + WRITER;
        if waiting > 0 {
            self.open_gate(waiting);
        }
    }

    #[cold]
    fn open_gate(&self, waiting: i32) {
        let mut gate = critical(&self.gate);
        let readers = gate.readers.pop_many(waiting as usize);
        gate.permits += waiting - readers.len() as i32;
        drop(gate);
        readers.wake();
    }
}

// SAFETY: as the module says: a writer is alone, and readers are without a writer.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // WHY: what lock_api asks for
    const INIT: RawRwLock = RawRwLock {
        writers: Core::new(),
        readers: AtomicI32::new(0),
        departing: AtomicI32::new(0),
        gate: Lock::new(Gate { permits: 0, readers: Queue::new(), writer: Queue::new(), departed: false }),
    };

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        // ORDERING: Acquire what the last writer did; pairs with `let_readers_in`.
        if self.readers.fetch_add(1, Acquire) < 0 {
            self.lock_shared_slow();
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        let mut seen = self.readers.load(Relaxed);
        while seen >= 0 {
            // ORDERING: as `lock_shared`.
            match self.readers.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // ORDERING: Release what we read, so that a writer's Acquire comes after.
        if self.readers.fetch_sub(1, Release) < 0 {
            self.depart();
        }
    }

    fn lock_exclusive(&self) {
        self.writers.lock(WaitReason::RwLockWrite);
        // ORDERING: Acquire what the readers did who have left (their Release).
        let inside = self.readers.fetch_sub(WRITER, Acquire);
        if inside != 0 {
            self.wait_for_readers(inside);
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        if !self.writers.try_lock() {
            return false;
        }
        // ORDERING: as `lock_exclusive`.
        let free = self.readers.compare_exchange(0, -WRITER, Acquire, Relaxed).is_ok();
        if !free {
            self.writers.unlock();
        }
        free
    }

    unsafe fn unlock_exclusive(&self) {
        self.let_readers_in(0);
        self.writers.unlock();
    }

    fn is_locked(&self) -> bool {
        self.readers.load(Relaxed) != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.readers.load(Relaxed) < 0 && self.departing.load(Relaxed) == 0
    }
}

// SAFETY: the writer becomes a reader before anybody else can come in.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        self.let_readers_in(1);
        self.writers.unlock();
    }
}

/// A value that many may read at once, or one may write.
///
/// The interface is that of [`lock_api::RwLock`]: `read`, `write`, `try_read`, `try_write`, `get_mut`, `into_inner`,
/// and `RwLockWriteGuard::downgrade`. No poisoning.
///
/// **Fairness**: Go's. A writer that waits keeps new readers out, and when it leaves, all readers that wait come before
/// the next writer. So a goroutine that holds a read lock must not ask for a second one: between the two a writer may have
/// come, and all of them wait for each other.
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
