//! Values to be used again.
//!
//! One shelf per P, behind a small lock that is practically never contended: only one goroutine at a time runs on a
//! P, and it does not leave the P while it reaches into the shelf. Others reach in when their own shelf is empty, or
//! when they share it because there are more Ps (or threads, or runtimes) than shelves; they try the lock and go on
//! if it is held.
//!
//! Rejected: Go's victim cache, which lets the collector empty pools over two cycles: there is no collector here, so a
//! shelf has a bound instead, and callers that know better have `clear`. A lock-free deque per P, as Go's: the lock
//! costs the same two atomic instructions when it is not contended.

use crate::sched::run::current::Running;
use crate::sched::run::lock::Lock;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Number of values that a shelf keeps unless `with_bound` says otherwise. TUNED: guess.
const DEFAULT_BOUND: usize = 32;

/// Keeps values for reuse, per P: Go's `sync.Pool`.
///
/// For things that are costly to make and can be used again, such as buffers. A value comes back as it was left. The
/// pool keeps a bounded number and drops the rest; never rely on getting a certain one.
///
/// ```
/// use mungo::sync::Pool;
///
/// static BUFFERS: Pool<Vec<u8>> = Pool::new(|| Vec::with_capacity(4096));
/// mungo::go(|| {
///     let mut buffer = BUFFERS.lend();
///     buffer.clear();
///     buffer.extend_from_slice(b"hello");
///     assert!(buffer.capacity() >= 4096);
/// }) // the buffer is back
/// .join()
/// .unwrap();
/// ```
pub struct Pool<T, F = fn() -> T> {
    make: F,
    bound: usize,
    shelves: crate::sync::OnceLock<Box<[Shelf<T>]>>,
}

#[repr(align(128))]
struct Shelf<T>(Lock<Vec<T>>);

impl<T, F: Fn() -> T> Pool<T, F> {
    /// Makes a pool whose values are made by `make`.
    ///
    /// ```
    /// let pool = mungo::sync::Pool::new(|| 0u64);
    /// assert_eq!(pool.get(), 0);
    /// ```
    #[must_use]
    pub const fn new(make: F) -> Pool<T, F> {
        Pool::with_bound(DEFAULT_BOUND, make)
    }

    /// Makes a pool that keeps at most `bound` values per P.
    ///
    /// ```
    /// let none = mungo::sync::Pool::with_bound(0, || 1);
    /// none.put(2);
    /// assert_eq!(none.get(), 1);
    /// ```
    #[must_use]
    pub const fn with_bound(bound: usize, make: F) -> Pool<T, F> {
        Pool { make, bound, shelves: crate::sync::OnceLock::new() }
    }

    /// Returns a value: one that was put back, or a new one.
    ///
    /// ```
    /// let pool = mungo::sync::Pool::new(String::new);
    /// pool.put("used".to_owned());
    /// assert_eq!(pool.get(), "used");
    /// assert_eq!(pool.get(), "");
    /// ```
    pub fn get(&self) -> T {
        self.try_get().unwrap_or_else(|| (self.make)())
    }

    /// Returns a value that was put back, if there is one at hand.
    ///
    /// ```
    /// assert_eq!(mungo::sync::Pool::new(|| 1).try_get(), None);
    /// ```
    pub fn try_get(&self) -> Option<T> {
        let shelves = self.shelves.get()?;
        let own = own_shelf(shelves.len());
        let value = shelves[own].0.lock().pop();
        value.or_else(|| {
            let others = shelves[own + 1..].iter().chain(&shelves[..own]);
            others.filter_map(Shelf::rob).next()
        })
    }

    /// Gives a value to the pool, or drops it if the shelf is full.
    ///
    /// ```
    /// let pool = mungo::sync::Pool::new(Vec::<u8>::new);
    /// pool.put(Vec::with_capacity(10));
    /// assert!(pool.get().capacity() >= 10);
    /// ```
    pub fn put(&self, value: T) {
        let shelves = self.shelves.get_or_init(|| {
            (0..crate::cpus::num_cpus().next_power_of_two()).map(|_| Shelf(Lock::new(Vec::new()))).collect()
        });
        let own = own_shelf(shelves.len());
        let mut shelf = shelves[own].0.lock();
        if shelf.len() < self.bound {
            shelf.push(value);
        } else {
            drop(shelf);
            drop(value); // user code: not under the lock
        }
    }

    /// Returns a value that comes back to the pool when the guard is dropped.
    ///
    /// ```
    /// let pool = mungo::sync::Pool::new(|| 1);
    /// *pool.lend() += 1;
    /// assert_eq!(*pool.lend(), 2);
    /// ```
    pub fn lend(&self) -> Pooled<'_, T, F> {
        Pooled { pool: self, value: Some(self.get()) }
    }
}

impl<T, F> Pool<T, F> {
    /// Drops what the pool keeps.
    ///
    /// ```
    /// let pool = mungo::sync::Pool::new(|| 1);
    /// pool.put(7);
    /// pool.clear();
    /// assert_eq!(pool.get(), 1);
    /// ```
    pub fn clear(&self) {
        for shelf in self.shelves.get().into_iter().flatten() {
            let values = std::mem::take(&mut *shelf.0.lock());
            drop(values); // user code: not under the lock
        }
    }
}

impl<T> Shelf<T> {
    /// Takes a value from this shelf, which is another P's. Returns `None` if its lock is held.
    fn rob(&self) -> Option<T> {
        self.0.try_lock()?.pop()
    }
}

/// Returns the index of the P's shelf, or of the thread's.
fn own_shelf(shelves: usize) -> usize {
    debug_assert!(shelves.is_power_of_two());
    let id = match Running::enter() {
        Some(running) => running.p().id as usize,
        None => {
            thread_local!(static HERE: u8 = const { 0 });
            // Threads' blocks of thread-locals are pages apart, at least.
            HERE.with(|here| std::ptr::from_ref(here) as usize >> 12)
        }
    };
    id & (shelves - 1)
}

impl<T, F> fmt::Debug for Pool<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("bound", &self.bound).finish_non_exhaustive()
    }
}

/// A value on loan from a [`Pool`].
///
/// ```
/// let pool = mungo::sync::Pool::new(String::new);
/// let mut text: mungo::sync::Pooled<'_, String, _> = pool.lend();
/// text.push('x');
/// ```
pub struct Pooled<'a, T, F: Fn() -> T = fn() -> T> {
    pool: &'a Pool<T, F>,
    /// The value; `Some` until the guard is dropped.
    value: Option<T>,
}

impl<T, F: Fn() -> T> Deref for Pooled<'_, T, F> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until dropped")
    }
}

impl<T, F: Fn() -> T> DerefMut for Pooled<'_, T, F> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("there until dropped")
    }
}

impl<T, F: Fn() -> T> Drop for Pooled<'_, T, F> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.pool.put(value);
        }
    }
}

impl<T: fmt::Debug, F: Fn() -> T> fmt::Debug for Pooled<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
