//! Waiting for a condition that a mutex protects.

use super::mutex::{MutexGuard, RawMutex};
use crate::reason::WaitReason;
use crate::sched::run::lock::{Guard, Lock};
use crate::sched::run::waitq::{Node, Queue};
use crate::sys::clock;
use lock_api::RawMutex as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A condition variable, for [`Mutex`](super::Mutex). The interface is parking_lot's.
///
/// Waits end by a notification or by the clock. Users should not rely on that, and look at the condition again, as
/// [`wait_while`](Self::wait_while) does. Notifications go to the waiter that has waited longest.
///
/// ```
/// use mungo::sync::{Condvar, Mutex};
///
/// static READY: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
/// let waiter = mungo::go(|| {
///     let mut ready = READY.0.lock();
///     READY.1.wait_while(&mut ready, |ready| !*ready);
///     assert!(*ready);
/// });
/// *READY.0.lock() = true;
/// READY.1.notify_one();
/// waiter.join().unwrap();
/// ```
// WHY NOT move the waiters of `notify_all` to the mutex's queue, as parking_lot does: they would have to know the
// mutex, and a goroutine that wakes up in vain costs some hundred nanoseconds, not a switch of threads.
#[derive(Debug)]
pub struct Condvar {
    /// Whether the queue is not empty; written under its lock. Lets a notification without waiters cost a load.
    waiting: AtomicBool,
    queue: Lock<Queue>,
}

/// Whether a wait ended because of its deadline.
///
/// ```
/// use mungo::sync::{Condvar, Mutex};
///
/// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
/// let result = condvar.wait_for(&mut mutex.lock(), std::time::Duration::from_millis(1));
/// assert!(result.timed_out());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the time was over before a notification came.
    ///
    /// ```
    /// # use mungo::sync::{Condvar, Mutex};
    /// # let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let past = std::time::Instant::now();
    /// assert!(condvar.wait_until(&mut mutex.lock(), past).timed_out());
    /// ```
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Makes a condition variable without waiters.
    ///
    /// ```
    /// static CHANGED: mungo::sync::Condvar = mungo::sync::Condvar::new();
    /// assert!(!CHANGED.notify_one());
    /// ```
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar { waiting: AtomicBool::new(false), queue: Lock::new(Queue::new()) }
    }

    /// Unlocks the mutex, waits for a notification, locks it again. No notification is lost in between.
    ///
    /// ```
    /// use mungo::sync::{Condvar, Mutex};
    ///
    /// static STATE: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());
    /// let adder = mungo::go(|| {
    ///     *STATE.0.lock() += 1;
    ///     STATE.1.notify_all();
    /// });
    /// let mut n = STATE.0.lock();
    /// while *n == 0 {
    ///     STATE.1.wait(&mut n);
    /// }
    /// # drop(n);
    /// # adder.join().unwrap();
    /// ```
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_ns(guard, u64::MAX);
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// ```
    /// # use mungo::sync::{Condvar, Mutex};
    /// # use std::time::{Duration, Instant};
    /// # let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let start = Instant::now();
    /// condvar.wait_for(&mut mutex.lock(), Duration::from_millis(2));
    /// assert!(start.elapsed() >= Duration::from_millis(2));
    /// ```
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        self.wait_ns(guard, clock::after_ns(timeout))
    }

    /// As [`wait`](Self::wait), until `deadline` at the most.
    ///
    /// ```
    /// # use mungo::sync::{Condvar, Mutex};
    /// # use std::time::{Duration, Instant};
    /// # let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let deadline = Instant::now() + Duration::from_millis(2);
    /// while !condvar.wait_until(&mut mutex.lock(), deadline).timed_out() {}
    /// assert!(Instant::now() >= deadline);
    /// ```
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> WaitTimeoutResult {
        self.wait_ns(guard, clock::at_ns(deadline))
    }

    /// Waits as long as `condition` holds.
    ///
    /// ```
    /// # use mungo::sync::{Condvar, Mutex};
    /// static QUEUE: (Mutex<Vec<u32>>, Condvar) = (Mutex::new(Vec::new()), Condvar::new());
    /// let producer = mungo::go(|| {
    ///     QUEUE.0.lock().push(7);
    ///     QUEUE.1.notify_one();
    /// });
    /// let mut queue = QUEUE.0.lock();
    /// QUEUE.1.wait_while(&mut queue, |q| q.is_empty());
    /// assert_eq!(queue.pop(), Some(7));
    /// # drop(queue);
    /// # producer.join().unwrap();
    /// ```
    pub fn wait_while<T: ?Sized, F>(&self, guard: &mut MutexGuard<'_, T>, mut condition: F)
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            self.wait(guard);
        }
    }

    /// Waits as long as `condition` holds, for at most `timeout`; `timed_out()` if it still holds.
    ///
    /// ```
    /// # use mungo::sync::{Condvar, Mutex};
    /// # let (mutex, condvar) = (Mutex::new(false), Condvar::new());
    /// let timeout = std::time::Duration::from_millis(2);
    /// assert!(condvar.wait_while_for(&mut mutex.lock(), |done| !*done, timeout).timed_out());
    /// assert!(!condvar.wait_while_for(&mut mutex.lock(), |done| *done, timeout).timed_out());
    /// ```
    pub fn wait_while_for<T: ?Sized, F>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: F,
        timeout: Duration,
    ) -> WaitTimeoutResult
    where
        F: FnMut(&mut T) -> bool,
    {
        let deadline_ns = clock::after_ns(timeout);
        let mut result = WaitTimeoutResult(false);
        while condition(&mut *guard) {
            if result.timed_out() {
                return result;
            }
            result = self.wait_ns(guard, deadline_ns);
        }
        WaitTimeoutResult(false)
    }

    /// Wakes one waiter. Returns whether there was one.
    ///
    /// ```
    /// assert!(!mungo::sync::Condvar::new().notify_one());
    /// ```
    pub fn notify_one(&self) -> bool {
        if !self.waiting.load(Relaxed) {
            return false;
        }
        let mut queue = self.queue.lock();
        let first = queue.pop();
        self.note(queue);
        first.map(|first| first.wake()).is_some()
    }

    /// Wakes all waiters. Returns how many there were.
    ///
    /// ```
    /// assert_eq!(mungo::sync::Condvar::new().notify_all(), 0);
    /// ```
    pub fn notify_all(&self) -> usize {
        if !self.waiting.load(Relaxed) {
            return 0;
        }
        let mut queue = self.queue.lock();
        let all = queue.pop_all();
        self.note(queue);
        all.wake()
    }

    /// Notes whether there are waiters, and unlocks. Relaxed is enough: a notifier has held the mutex since the waiter
    /// gave it up, or else does not know that it waits.
    fn note(&self, queue: Guard<'_, Queue>) {
        self.waiting.store(!queue.is_empty(), Relaxed);
    }

    fn wait_ns<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline_ns: u64) -> WaitTimeoutResult {
        // SAFETY: the guard says that it is locked; it is so again when this returns.
        let mutex: &RawMutex = unsafe { MutexGuard::mutex(guard).raw() };
        let node = Node::new(self, deadline_ns);
        let mut queue = self.queue.lock();
        // SAFETY: it leaves this frame when it was woken or removed.
        unsafe { queue.push_back(&node) };
        self.note(queue);
        // SAFETY: locked, by the guard.
        unsafe { mutex.unlock() };
        let notified = node.wait(WaitReason::Condvar);
        if !notified {
            let mut queue = self.queue.lock();
            queue.remove(&node);
            self.note(queue);
        }
        mutex.lock();
        WaitTimeoutResult(!notified)
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}
