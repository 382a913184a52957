//! Locks and the like, for goroutines and plain threads, and between them.
//!
//! A goroutine that has to wait parks and leaves its P to others; a plain thread blocks. Which of them the other
//! side is does not matter. Shapes and names are those that Rust's users know: [`Mutex`] and [`RwLock`] come through
//! [`lock_api`] (as parking_lot's: no poisoning), [`Condvar`], [`Once`], [`OnceLock`], [`LazyLock`] and [`Barrier`]
//! are std's, [`WaitGroup`], [`Group`] and [`Pool`] are Go's, [`Semaphore`] hands out guards.
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
//! lock. The nodes of the queue lie on the frames of the waiters (`queue.rs`), so that waiting allocates nothing and a
//! primitive can be made in a constant.
//!
//! - The word and the queue change together under the queue's lock wherever one says something about the other.
//! - Exactly one thread wakes each waiter: the one that popped its node. Where the clock may end a wait too, both go
//!   for a claim.
//! - No waiter is woken, and no user code runs, under a queue's lock. Queue locks do not nest.
//! - A goroutine that holds such a lock is inside the runtime and not preempted (`sched/run/lock.rs`).
//! - A guard of a lock does not leave its goroutine, so that a [`Mutex`] has a holder whose priority can be raised.
//!
//! Rejected: a global table of queues by address (parking_lot, Go's semaphores), which saves 28 bytes a lock and
//! costs a hash and strangers' contention; futexes, because a goroutine must not block its thread; strict hand-over
//! for the mutex, because then each lock waits for a goroutine to be scheduled.

mod barrier;
mod condvar;
mod group;
mod mutex;
mod once;
mod pool;
mod rate_limiter;
pub(crate) mod rt;
mod rwlock;
mod semaphore;
mod single_flight;
mod wait_group;
mod with_context;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use group::Group;
/// The crate behind [`Mutex`] and [`RwLock`], for its traits and its other guards.
pub use lock_api;
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
pub use once::{LazyLock, Once, OnceLock, OnceState};
pub use pool::{Pool, Pooled};
pub use rate_limiter::{RateLimiter, Reservation};
pub use rwlock::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use semaphore::{OwnedPermit, Permit, Semaphore};
pub use single_flight::SingleFlight;
pub use wait_group::{WaitGroup, WaitToken};
