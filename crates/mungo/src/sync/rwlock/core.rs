//! The state machine of the reader-writer lock.
//!
//! Go's `RWMutex`. `readers` counts goroutines that read or want to; a writer that comes takes `WRITER` off it, so
//! that it is negative: readers that come after see that and wait, those that were there before leave one by one, and
//! the last of them wakes the writer. Writers exclude each other by a mutex around all of that.
//!
//! - A writer does not starve: new readers wait behind it. Readers do not starve: when a writer leaves, all readers
//!   that wait get the lock before the next writer can.
//! - A reader that finds no writer pays one atomic add to enter and one to leave, however many readers there are.
//! - Readers that were let in but had not gone to sleep yet find a permit in `Gate::permits`. Permits are alike: it
//!   does not matter which reader takes which.
//!
//! Rejected: one word with a CAS loop for readers (parking_lot's), because many readers make each other's CAS
//! fail; waits with a deadline, because a writer that gives up would have to find out which readers it had counted.

use crate::reason::WaitReason;
use crate::sched::run::waitq::{Node, Queue};
use crate::sync::mutex::core::Core as Mutex;
use crate::sync::rt::Lock;
use crate::sys::atomic::{AtomicI32, constant};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Taken off `readers` by a writer: more than [`MOST`] readers, and those that are about to find out that they are too
/// many.
const WRITER: i32 = 1 << 30;
/// Most readers at once, guards that were forgotten included.
const MOST: i32 = WRITER / 2;

/// A reader-writer lock without a value.
#[derive(Debug)]
pub(crate) struct Core {
    /// Held by a writer, from before it announces itself until after it let the readers in.
    writers: Mutex,
    /// Readers inside or waiting, less `WRITER` while a writer wants in or is in.
    readers: AtomicI32,
    /// Number of readers that the pending writer waits for.
    departing: AtomicI32,
    gate: Lock<Gate>,
}

/// The place where readers wait for a writer to leave, and a writer for readers.
#[derive(Debug)]
struct Gate {
    /// Number of readers that were let in and have not noticed yet.
    permits: i32,
    readers: Queue,
    /// At most one writer, the one that holds `writers`.
    writer: Queue,
    /// Whether the last reader has left before the writer waited.
    departed: bool,
}

impl Gate {
    const fn new() -> Gate {
        Gate { permits: 0, readers: Queue::new(), writer: Queue::new(), departed: false }
    }
}

impl Core {
    constant! {
        pub(crate) fn new() -> Core {
            Core {
                writers: Mutex::new(),
                readers: AtomicI32::new(0),
                departing: AtomicI32::new(0),
                gate: Lock::new(Gate::new()),
            }
        }
    }

    #[inline]
    pub(crate) fn lock_shared(&self) {
        // ORDERING: Acquire what the last writer did; pairs with `let_readers_in`.
        let before = self.readers.fetch_add(1, Acquire);
        if before as u32 >= MOST as u32 {
            self.lock_shared_slow(before); // a writer, or too many readers: one comparison for both
        }
    }

    #[inline]
    pub(crate) fn try_lock_shared(&self) -> bool {
        let mut seen = self.readers.load(Relaxed);
        while (0..MOST).contains(&seen) {
            // ORDERING: as `lock_shared`.
            match self.readers.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    #[inline]
    pub(crate) fn unlock_shared(&self) {
        // ORDERING: Release what this reader read, so that a writer's Acquire comes after.
        if self.readers.fetch_sub(1, Release) < 0 {
            self.depart();
        }
    }

    pub(crate) fn lock_exclusive(&self) {
        self.writers.lock(WaitReason::RwLockWrite);
        // ORDERING: Acquire what the readers did that have left (their Release).
        let inside = self.readers.fetch_sub(WRITER, Acquire);
        if inside != 0 {
            self.wait_for_readers(inside);
        }
    }

    pub(crate) fn try_lock_exclusive(&self) -> bool {
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

    pub(crate) fn unlock_exclusive(&self) {
        self.let_readers_in(0);
        self.writers.unlock();
    }

    /// Makes the writer a reader before any other caller can come in.
    pub(crate) fn downgrade(&self) {
        self.let_readers_in(1);
        self.writers.unlock();
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.readers.load(Relaxed) != 0
    }

    pub(crate) fn is_locked_exclusive(&self) -> bool {
        self.readers.load(Relaxed) < 0 && self.departing.load(Relaxed) == 0
    }

    /// Waits for the writer to leave. `before` is the count that the caller found.
    #[cold]
    fn lock_shared_slow(&self, before: i32) {
        if before >= 0 {
            self.unlock_shared(); // perhaps a writer counts on it already
            panic!("RwLock: too many readers");
        }
        let node = Node::new(self.writers.owner(), u64::MAX);
        let mut gate = self.gate.lock();
        if gate.permits > 0 {
            gate.permits -= 1;
            return;
        }
        // SAFETY: it leaves the frame when it was woken.
        unsafe { gate.readers.push_back(&node) };
        drop(gate);
        node.wait(WaitReason::RwLockRead);
    }

    /// Counts a reader out while a writer waits.
    #[cold]
    fn depart(&self) {
        // ORDERING: AcqRel: what the readers did comes before what the writer does.
        if self.departing.fetch_sub(1, AcqRel) == 1 {
            let mut gate = self.gate.lock();
            let writer = gate.writer.pop();
            gate.departed = writer.is_none();
            drop(gate);
            if let Some(writer) = writer {
                writer.wake();
            }
        }
    }

    /// Waits for `inside` readers to leave; the caller is the announced writer.
    #[cold]
    fn wait_for_readers(&self, inside: i32) {
        // ORDERING: as `depart`. Some of them may have left since, so that the count was below zero.
        if self.departing.fetch_add(inside, AcqRel) + inside == 0 {
            return;
        }
        let node = Node::new(self.writers.owner(), u64::MAX);
        let mut gate = self.gate.lock();
        if std::mem::take(&mut gate.departed) {
            return;
        }
        // SAFETY: as in `lock_shared_slow`.
        unsafe { gate.writer.push_back(&node) };
        drop(gate);
        node.wait(WaitReason::RwLockWrite);
    }

    /// Ends the writing, or makes the writer `stays` readers, and lets in the waiters.
    fn let_readers_in(&self, stays: i32) {
        // ORDERING: Release what the writer did to readers' Acquire.
        let waiting = self.readers.fetch_add(WRITER + stays, Release) + WRITER;
        if waiting > 0 {
            self.open_gate(waiting);
        }
    }

    #[cold]
    fn open_gate(&self, waiting: i32) {
        let mut gate = self.gate.lock();
        let readers = gate.readers.pop_many(waiting as usize);
        gate.permits += waiting - readers.len() as i32;
        drop(gate);
        readers.wake();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Guards that were forgotten stay counted. Were there as many as a writer takes off, a writer and readers would
    /// not know of each other.
    #[test]
    fn too_many_readers_are_refused() {
        let core = Core::new();
        core.readers.store((1 << 29) - 1, Relaxed);
        assert!(core.try_lock_shared(), "one more");
        assert!(!core.try_lock_shared());
        let refused = catch_unwind(AssertUnwindSafe(|| core.lock_shared()));
        assert_eq!(refused.unwrap_err().downcast_ref(), Some(&"RwLock: too many readers"));
        assert_eq!(core.readers.load(Relaxed), 1 << 29, "those that hold it");
        core.unlock_shared();
        core.lock_shared();
        assert!(!core.try_lock_exclusive());
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Guarded(Core, UnsafeCell<u32>);
    // SAFETY: the cell is used under the lock, which is what the models check.
    unsafe impl Sync for Guarded {}
    // SAFETY: as above.
    unsafe impl Send for Guarded {}

    impl Guarded {
        fn read(&self) -> u32 {
            self.0.lock_shared();
            // SAFETY: the lock is held; loom checks that.
            let n = self.1.with(|v| unsafe { *v });
            self.0.unlock_shared();
            n
        }

        fn write(&self, downgrade: bool) {
            self.0.lock_exclusive();
            // SAFETY: as above.
            self.1.with_mut(|v| unsafe { *v += 1 });
            if downgrade {
                self.0.downgrade();
                // SAFETY: as above.
                self.1.with(|v| assert_ne!(unsafe { *v }, 0));
                self.0.unlock_shared();
            } else {
                self.0.unlock_exclusive();
            }
        }
    }

    fn check(threads: &'static [fn(&Guarded)]) {
        crate::sync::rt::PATIENCE_NS.set(u64::MAX);
        loom::model(move || {
            let guarded = Arc::new(Guarded(Core::new(), UnsafeCell::new(0)));
            let others = threads[1..].iter().map(|f| {
                let guarded = guarded.clone();
                loom::thread::spawn(move || f(&guarded))
            });
            let others: Vec<_> = others.collect();
            threads[0](&guarded);
            others.into_iter().for_each(|t| t.join().unwrap());
            let core = &guarded.0;
            assert_eq!((core.readers.load(Relaxed), core.departing.load(Relaxed)), (0, 0));
            let gate = core.gate.lock();
            assert_eq!((gate.permits, gate.departed), (0, false));
        });
    }

    #[test]
    fn loom_rwlock_readers_and_a_writer() {
        check(&[|g| g.write(false), |g| _ = g.read(), |g| _ = g.read()]);
    }

    #[test]
    fn loom_rwlock_writers_and_a_reader() {
        check(&[|g| g.write(false), |g| g.write(true), |g| _ = g.read()]);
    }

    #[test]
    fn loom_rwlock_again_and_again() {
        check(&[
            |g| {
                g.write(false);
                g.write(false);
            },
            |g| assert!(g.read() <= g.read()),
        ]);
    }
}
