//! Locks and the like, for goroutines and plain threads, and between them.
//!
//! A goroutine that has to wait parks and leaves its P to others; a plain thread blocks. Which of them the other
//! side is does not matter. Shapes and names are those that Rust's users know: [`Mutex`] and [`RwLock`] come through
//! [`lock_api`] (as parking_lot's: no poisoning), [`Condvar`], [`Once`], [`OnceLock`], [`LazyLock`] and [`Barrier`]
//! are std's, [`WaitGroup`] and [`Pool`] are Go's, [`Semaphore`] hands out guards.
//!
//! ```
//! use mungo::sync::{Mutex, WaitGroup};
//! use std::sync::Arc;
//!
//! let total = Arc::new(Mutex::new(0));
//! let wg = WaitGroup::new();
//! for i in 0..100 {
//!     let total = total.clone();
//!     wg.go(move || *total.lock() += i);
//! }
//! wg.wait();
//! assert_eq!(*total.lock(), 4950);
//! ```
//!
//! # How it is built
//!
//! Each primitive is one word of state with a fast path of one atomic instruction, and a FIFO queue behind a small
//! lock. The nodes of the queue lie on the frames of those who wait (`queue.rs`), so that waiting allocates nothing
//! and a primitive can be made in a constant.
//!
//! - The word and the queue change together under the queue's lock wherever one says something about the other.
//! - Exactly one wakes each that waits: who popped its node. Where the clock may end a wait too, both go for a claim.
//! - Nobody is woken, and no user code runs, under a queue's lock. Queue locks do not nest.
//! - A goroutine that holds such a lock is inside the runtime and not preempted (`lock.rs`).
//! - A guard of a lock does not leave its goroutine, so that there is a holder whose priority can be raised, one day.
//!
//! Rejected: a global table of queues by address (parking_lot, Go's semaphores), which saves 28 bytes a lock and
//! costs a hash and strangers' contention; futexes, because a goroutine must not block its thread; strict hand-over
//! for the mutex, because then each lock waits for a goroutine to be scheduled.

#[cfg(not(loom))]
mod barrier;
#[cfg(not(loom))]
mod condvar;
mod mutex;
#[cfg(not(loom))]
mod once;
#[cfg(not(loom))]
mod pool;
pub(crate) mod queue;
pub(crate) mod rt;
mod rwlock;
#[cfg(not(loom))]
mod semaphore;
#[cfg(not(loom))]
mod wait_group;

#[cfg(not(loom))]
pub use api::*;

#[cfg(not(loom))]
mod api {
    pub use super::barrier::{Barrier, BarrierWaitResult};
    pub use super::condvar::{Condvar, WaitTimeoutResult};
    pub use super::mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
    pub use super::once::{LazyLock, Once, OnceLock, OnceState};
    pub use super::pool::{Pool, Pooled};
    pub use super::rwlock::{
        MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };
    pub use super::semaphore::{OwnedPermit, Permit, Semaphore};
    pub use super::wait_group::{WaitGroup, WaitToken};
    /// The crate behind [`Mutex`] and [`RwLock`], for its traits and its other guards.
    pub use lock_api;
}
