//! Locks and the like, for goroutines and plain threads, and between them.
//!
//! A goroutine that has to wait parks and leaves its processor to others; a plain thread blocks. Which of them the
//! other side is does not matter. Shapes and names are those that Rust's users know: [`Mutex`] and [`RwLock`] come
//! through [`lock_api`] (as parking_lot's: no poisoning), [`Condvar`], [`Once`], [`OnceLock`], [`LazyLock`] and
//! [`Barrier`] are std's, [`WaitGroup`], [`Group`] and [`Pool`] are Go's, [`Semaphore`] hands out guards.
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

// How it is built, its invariants and what was rejected: README.md in this folder.

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
