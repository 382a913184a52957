//! Waiting for a number of things to be done.

use crate::reason::WaitReason;
use crate::sched::run::lock::Lock;
use crate::sched::run::park::Waiter;
use crate::sched::run::waitq::{Node, Queue};
use crate::spawn::{JoinHandle, go};
use crate::sys::clock;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

/// Waits for a collection of goroutines to finish: Go's `sync.WaitGroup`.
///
/// It is a counter: [`add`](Self::add) counts up, [`done`](Self::done) down, and [`wait`](Self::wait) waits for zero.
/// [`go`](Self::go) does all three for a goroutine. [`token`](Self::token) is the same as a value that counts down
/// when it is dropped, a panic included, and up when it is cloned (what crossbeam's `WaitGroup` is).
///
/// It may be used again after it came to zero. Waits see that moment even if the counter rises again at once.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
///
/// static SUM: AtomicU32 = AtomicU32::new(0);
/// let wg = mungo::sync::WaitGroup::new();
/// for i in 0..10 {
///     wg.go(move || SUM.fetch_add(i, Relaxed));
/// }
/// wg.wait();
/// assert_eq!(SUM.load(Relaxed), 45);
/// ```
#[derive(Debug, Default)]
pub struct WaitGroup {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Units of work that are left; comes to zero under the queue's lock only.
    count: AtomicUsize,
    queue: Lock<Queue>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner { count: AtomicUsize::new(0), queue: Lock::new(Queue::new()) }
    }
}

/// A unit of work that a [`WaitGroup`] waits for, until it is dropped. A clone is one unit more.
///
/// ```
/// let wg = mungo::sync::WaitGroup::new();
/// let token = wg.token();
/// assert_eq!(wg.count(), 1);
/// mungo::go(move || drop(token));
/// wg.wait();
/// ```
#[derive(Debug)]
pub struct WaitToken {
    inner: Arc<Inner>,
}

impl WaitGroup {
    /// Makes a group with nothing to wait for yet.
    ///
    /// ```
    /// mungo::sync::WaitGroup::new().wait(); // returns at once
    /// ```
    #[must_use]
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// Adds `n` units of work. To be called before the work starts, not by it.
    ///
    /// ```
    /// let wg = mungo::sync::WaitGroup::new();
    /// wg.add(2);
    /// mungo::scope(|s| {
    ///     s.spawn(|| wg.done());
    ///     s.spawn(|| wg.done());
    ///     wg.wait();
    /// });
    /// ```
    ///
    /// # Panics
    /// If there would be more than `usize::MAX / 2` units.
    pub fn add(&self, n: usize) {
        self.inner.add(n);
    }

    /// Takes one unit of work off: it is done.
    ///
    /// ```
    /// let wg = mungo::sync::WaitGroup::new();
    /// wg.add(1);
    /// wg.done();
    /// assert_eq!(wg.count(), 0);
    /// ```
    ///
    /// # Panics
    /// If there was none left to be done.
    pub fn done(&self) {
        self.inner.done();
    }

    /// Returns how many units of work are left.
    ///
    /// ```
    /// let wg = mungo::sync::WaitGroup::new();
    /// wg.add(3);
    /// assert_eq!(wg.count(), 3);
    /// ```
    pub fn count(&self) -> usize {
        self.inner.count.load(Relaxed)
    }

    /// Adds a unit of work, and returns it as a value: it is done when the token is dropped.
    ///
    /// ```
    /// let wg = mungo::sync::WaitGroup::new();
    /// for i in 0..3 {
    ///     let token = wg.token();
    ///     mungo::go(move || {
    ///         let _token = token;
    ///         assert!(i < 3); // a panic would drop the token too
    ///     });
    /// }
    /// wg.wait();
    /// ```
    #[must_use = "the work is done as soon as the token is dropped"]
    pub fn token(&self) -> WaitToken {
        self.inner.add(1);
        WaitToken { inner: self.inner.clone() }
    }

    /// Starts a goroutine that the group waits for, until it has returned or panicked. As Go's `WaitGroup.Go`.
    ///
    /// ```
    /// let wg = mungo::sync::WaitGroup::new();
    /// let answer = wg.go(|| 42);
    /// wg.wait();
    /// assert_eq!(answer.join().unwrap(), 42);
    /// ```
    ///
    /// # Panics
    /// As [`go`](crate::go()).
    #[track_caller]
    #[doc(alias("spawn"))]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let token = self.token();
        go(move || {
            let _token = token;
            f()
        })
    }

    /// Waits until nothing is left to be done. Any number of goroutines and threads may wait.
    ///
    /// ```
    /// let wg = mungo::sync::WaitGroup::new();
    /// let work = wg.go(|| 1);
    /// wg.wait();
    /// assert_eq!(wg.count(), 0);
    /// # work.join().unwrap();
    /// ```
    pub fn wait(&self) {
        self.wait_by(u64::MAX, &in_line);
    }

    /// As [`wait`](Self::wait), for at most `timeout`. Returns whether the count came to zero in time.
    ///
    /// ```
    /// let wg = mungo::sync::WaitGroup::new();
    /// wg.add(1);
    /// assert!(!wg.wait_timeout(std::time::Duration::from_millis(1)));
    /// wg.done();
    /// assert!(wg.wait_timeout(std::time::Duration::from_millis(1)));
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.wait_by(clock::after_ns(timeout), &in_line)
    }
}

impl WaitGroup {
    /// Waits, unless `wait` ends the wait with `false`.
    pub(crate) fn wait_by(&self, deadline_ns: u64, wait: &dyn Fn(&Node) -> bool) -> bool {
        // SAFETY: an `Arc` of a sized type is one pointer, the one that all handles hold. It is a number here.
        let on = unsafe { std::mem::transmute_copy::<Arc<Inner>, usize>(&self.inner) };
        self.inner.wait(on, deadline_ns, wait)
    }
}

fn in_line(node: &Node) -> bool {
    node.wait(WaitReason::WaitGroup)
}

impl Inner {
    fn add(&self, n: usize) {
        // Half of what the counter holds: the rest is for threads that add at the same time.
        const MOST: usize = usize::MAX / 2;
        let fits = n <= MOST && {
            let fits = self.count.fetch_add(n, Relaxed) <= MOST - n;
            if !fits {
                self.count.fetch_sub(n, Relaxed);
            }
            fits
        };
        assert!(fits, "WaitGroup: too much to wait for");
    }

    fn done(&self) {
        let mut seen = self.count.load(Relaxed);
        while seen > 1 {
            // ORDERING: Release this unit's work; the call that brings the count to zero passes all of it on.
            match self.count.compare_exchange_weak(seen, seen - 1, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        self.done_slow();
    }

    /// Takes off what is perhaps the last unit. The step to zero and the taking of the waiters are one: a waiter that
    /// comes later, after the counter rose again, waits for the next zero.
    #[cold]
    fn done_slow(&self) {
        let mut queue = self.queue.lock();
        // ORDERING: Acquire the others' work, Release it to callers that look at the counter (`wait`).
        let before =
            self.count.fetch_update(std::sync::atomic::Ordering::AcqRel, Relaxed, |n| n.checked_sub(1));
        let waiting = match before {
            Ok(1) => Some(queue.pop_all()),
            _ => None,
        };
        drop(queue);
        assert!(before.is_ok(), "WaitGroup: more done than added");
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    fn wait(&self, on: usize, deadline_ns: u64, wait: &dyn Fn(&Node) -> bool) -> bool {
        // ORDERING: Acquire the work.
        if self.count.load(Acquire) == 0 {
            return true;
        }
        let node = Node::of(Waiter::current(), on, deadline_ns);
        let mut queue = self.queue.lock();
        // ORDERING: as above; under the lock, so it cannot come to zero unseen.
        if self.count.load(Acquire) == 0 {
            return true;
        }
        // SAFETY: it leaves this frame when it was woken or removed.
        unsafe { queue.push_back(&node) };
        drop(queue);
        let woken = wait(&node);
        if !woken {
            self.queue.lock().remove(&node);
        }
        woken
    }
}

impl Clone for WaitToken {
    fn clone(&self) -> WaitToken {
        self.inner.add(1);
        WaitToken { inner: self.inner.clone() }
    }
}

impl Drop for WaitToken {
    fn drop(&mut self) {
        self.inner.done();
    }
}
