//! A number of permits.

use crate::reason::WaitReason;
use crate::sched::run::lock::{Guard, Lock};
use crate::sched::run::waitq::{Node, PoppedList, Queue};
use crate::sys::clock;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

/// A bit of `Semaphore::state`: there are waiters. The permits are the bits above it.
const PARKED: usize = 1;
const ONE: usize = 2;

/// A number of permits, which come back when their guards are dropped.
///
/// **Fairness**: strictly in the order of arrival. While there are waiters no caller overtakes them, not even one that
/// asks for fewer permits; so a caller that asks for many is not starved by those that ask for few.
///
/// ```
/// use mungo::sync::Semaphore;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// static CONNECTIONS: Semaphore = Semaphore::new(2);
/// static OPEN: AtomicUsize = AtomicUsize::new(0);
/// mungo::scope(|s| {
///     for _ in 0..10 {
///         s.spawn(|| {
///             let _permit = CONNECTIONS.acquire();
///             assert!(OPEN.fetch_add(1, Relaxed) < 2);
///             mungo::yield_now();
///             OPEN.fetch_sub(1, Relaxed);
///         });
///     }
/// });
/// assert_eq!(CONNECTIONS.available_permits(), 2);
/// ```
#[doc(alias("limit", "concurrency", "throttle"))]
pub struct Semaphore {
    /// `PARKED` and the permits, which change under the queue's lock while `PARKED` is set.
    state: AtomicUsize,
    /// The waiters. A node's word is the number of permits it asks for.
    queue: Lock<Queue>,
}

/// Permits of a [`Semaphore`]; they go back when this is dropped.
///
/// ```
/// let semaphore = mungo::sync::Semaphore::new(1);
/// let permit = semaphore.acquire();
/// assert_eq!(semaphore.available_permits(), 0);
/// drop(permit);
/// assert_eq!(semaphore.available_permits(), 1);
/// ```
#[derive(Debug)]
#[must_use = "the permits go back as soon as this is dropped"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    n: usize,
}

/// As [`Permit`], for a shared [`Semaphore`]: can move into a goroutine.
///
/// ```
/// use std::sync::Arc;
///
/// let semaphore = Arc::new(mungo::sync::Semaphore::new(1));
/// let permit = semaphore.clone().acquire_owned(1);
/// mungo::go(move || drop(permit)).join().unwrap();
/// assert_eq!(semaphore.available_permits(), 1);
/// ```
#[derive(Debug)]
#[must_use = "the permits go back as soon as this is dropped"]
pub struct OwnedPermit {
    semaphore: Arc<Semaphore>,
    n: usize,
}

impl Semaphore {
    /// The most permits that a semaphore can have.
    ///
    /// ```
    /// use mungo::sync::Semaphore;
    ///
    /// let unlimited = Semaphore::new(Semaphore::MAX_PERMITS);
    /// assert!(unlimited.try_acquire().is_some());
    /// ```
    pub const MAX_PERMITS: usize = usize::MAX >> 2;

    /// Makes a semaphore with `permits` permits.
    ///
    /// ```
    /// static SLOTS: mungo::sync::Semaphore = mungo::sync::Semaphore::new(4);
    /// assert_eq!(SLOTS.available_permits(), 4);
    /// ```
    ///
    /// # Panics
    /// With more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[must_use]
    pub const fn new(permits: usize) -> Semaphore {
        assert!(permits <= Semaphore::MAX_PERMITS, "Semaphore: too many permits");
        Semaphore { state: AtomicUsize::new(permits * ONE), queue: Lock::new(Queue::new()) }
    }

    /// Returns how many permits are left.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(3);
    /// let _two = semaphore.acquire_many(2);
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn available_permits(&self) -> usize {
        self.state.load(Relaxed) / ONE
    }

    /// Takes a permit; waits until there is one.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(1);
    /// let _permit = semaphore.acquire();
    /// assert!(semaphore.try_acquire().is_none());
    /// ```
    #[inline]
    pub fn acquire(&self) -> Permit<'_> {
        self.acquire_many(1)
    }

    /// Takes `n` permits at once; waits until `n` are left.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(3);
    /// let _three = semaphore.acquire_many(3);
    /// assert!(semaphore.try_acquire().is_none());
    /// ```
    #[inline]
    pub fn acquire_many(&self, n: usize) -> Permit<'_> {
        self.take(n, u64::MAX);
        Permit { semaphore: self, n }
    }

    /// Takes a permit if one is left and there are no waiters.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(1);
    /// let permit = semaphore.try_acquire().unwrap();
    /// assert!(semaphore.try_acquire().is_none());
    /// # drop(permit);
    /// ```
    #[inline]
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `n` permits if `n` are left and there are no waiters.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(3);
    /// assert!(semaphore.try_acquire_many(4).is_none());
    /// ```
    #[inline]
    pub fn try_acquire_many(&self, n: usize) -> Option<Permit<'_>> {
        self.try_take(n).then(|| Permit { semaphore: self, n })
    }

    /// As [`acquire`](Self::acquire), for at most `timeout`.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(0);
    /// assert!(semaphore.acquire_timeout(std::time::Duration::from_millis(1)).is_none());
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<Permit<'_>> {
        let taken = self.try_take(1) || self.take(1, clock::after_ns(timeout));
        taken.then(|| Permit { semaphore: self, n: 1 })
    }

    /// As [`acquire`](Self::acquire), until `deadline` at the most.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(1);
    /// assert!(semaphore.acquire_deadline(std::time::Instant::now()).is_some());
    /// ```
    pub fn acquire_deadline(&self, deadline: Instant) -> Option<Permit<'_>> {
        let taken = self.try_take(1) || self.take(1, clock::at_ns(deadline));
        taken.then(|| Permit { semaphore: self, n: 1 })
    }

    /// As [`acquire_many`](Self::acquire_many), with a guard that owns its share of the semaphore.
    ///
    /// ```
    /// let semaphore = std::sync::Arc::new(mungo::sync::Semaphore::new(5));
    /// let permit = semaphore.clone().acquire_owned(5);
    /// assert_eq!(semaphore.available_permits(), 0);
    /// # drop(permit);
    /// ```
    pub fn acquire_owned(self: Arc<Self>, n: usize) -> OwnedPermit {
        self.take(n, u64::MAX);
        OwnedPermit { semaphore: self, n }
    }

    /// Takes `n` permits if they are there, and no other caller waits, and keeps the semaphore alive.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let two = Arc::new(mungo::sync::Semaphore::new(2));
    /// let both = two.clone().try_acquire_owned(2);
    /// assert!(both.is_some() && two.clone().try_acquire_owned(1).is_none());
    /// ```
    pub fn try_acquire_owned(self: Arc<Self>, n: usize) -> Option<OwnedPermit> {
        self.try_take(n).then(|| OwnedPermit { semaphore: self, n })
    }

    /// Adds permits.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(0);
    /// semaphore.add_permits(2);
    /// assert_eq!(semaphore.available_permits(), 2);
    /// ```
    ///
    /// # Panics
    /// If there are more than [`MAX_PERMITS`](Self::MAX_PERMITS) then.
    pub fn add_permits(&self, n: usize) {
        self.give(n);
    }

    fn try_take(&self, n: usize) -> bool {
        let mut seen = self.state.load(Relaxed);
        while seen & PARKED == 0 && seen / ONE >= n {
            // ORDERING: Acquire pairs with the Release of `give`: what was done with the permit is over.
            match self.state.compare_exchange_weak(seen, seen - n * ONE, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    fn take(&self, n: usize, deadline_ns: u64) -> bool {
        self.try_take(n) || self.take_slow(n, deadline_ns, &|node| node.wait(WaitReason::Semaphore))
    }

    /// Takes `n` permits, unless `wait` ends the wait with `false`.
    pub(crate) fn acquire_by(
        &self,
        n: usize,
        deadline_ns: u64,
        wait: &dyn Fn(&Node) -> bool,
    ) -> Option<Permit<'_>> {
        let taken = self.try_take(n) || self.take_slow(n, deadline_ns, wait);
        taken.then(|| Permit { semaphore: self, n })
    }

    #[cold]
    fn take_slow(&self, n: usize, deadline_ns: u64, wait: &dyn Fn(&Node) -> bool) -> bool {
        let node = Node::new(self, deadline_ns);
        node.word.set(n);
        let mut queue = self.queue.lock();
        // ORDERING: Acquire: permits may have been given just now, without this lock, and the caller goes on with
        // them.
        self.state.fetch_or(PARKED, Acquire);
        // SAFETY: it leaves this frame when it was woken, or removed below.
        unsafe { queue.push_back(&node) };
        self.serve(queue);
        if wait(&node) {
            return true;
        }
        let mut queue = self.queue.lock();
        queue.remove(&node);
        self.serve(queue); // its request may have been in the way of smaller ones
        false
    }

    fn give(&self, n: usize) {
        let mut seen = self.state.load(Relaxed);
        while seen & PARKED == 0 {
            assert!(n <= Semaphore::MAX_PERMITS - seen / ONE, "Semaphore: too many permits");
            // ORDERING: Release what was done with the permits to the goroutine that gets them.
            match self.state.compare_exchange_weak(seen, seen + n * ONE, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        self.give_slow(n);
    }

    #[cold]
    fn give_slow(&self, n: usize) {
        let queue = self.queue.lock();
        // The waiters have taken none of them: the sum is bounded by what was given.
        let room = Semaphore::MAX_PERMITS - self.state.load(Relaxed) / ONE;
        if n <= room {
            // ORDERING: as `give`.
            self.state.fetch_add(n * ONE, AcqRel);
        }
        self.serve(queue);
        assert!(n <= room, "Semaphore: too many permits");
    }

    /// Hands permits to the waiters, in their turn, until the first one asks for more than are left; unlocks.
    fn serve(&self, mut queue: Guard<'_, Queue>) {
        let before = self.state.load(Relaxed) / ONE;
        let mut permits = before;
        let mut served = PoppedList::new();
        while let Some(first) = queue.pop_if(|asked| asked <= permits) {
            permits -= first.word();
            served.push(first);
        }
        self.state.fetch_sub((before - permits) * ONE, Relaxed);
        if queue.is_empty() {
            // ORDERING: Release, as `give`: callers from now on do not take the lock.
            self.state.fetch_and(!PARKED, Release);
        }
        drop(queue);
        served.wake();
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("Semaphore")
            .field("available_permits", &(state / ONE))
            .field("waiters", &(state & PARKED != 0))
            .finish()
    }
}

impl Permit<'_> {
    /// Makes it own its semaphore, which is `semaphore`.
    pub(crate) fn into_owned(self, semaphore: Arc<Semaphore>) -> OwnedPermit {
        debug_assert!(std::ptr::eq(self.semaphore, &*semaphore));
        let n = self.n;
        self.forget();
        OwnedPermit { semaphore, n }
    }

    /// Keeps the permits for good: the semaphore has `count()` permits less.
    ///
    /// ```
    /// let semaphore = mungo::sync::Semaphore::new(2);
    /// semaphore.acquire().forget();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn forget(mut self) {
        self.n = 0;
    }

    /// Returns how many permits these are.
    ///
    /// ```
    /// assert_eq!(mungo::sync::Semaphore::new(5).acquire_many(3).count(), 3);
    /// ```
    pub fn count(&self) -> usize {
        self.n
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.give(self.n);
    }
}

impl OwnedPermit {
    /// As [`Permit::forget`].
    ///
    /// ```
    /// let semaphore = std::sync::Arc::new(mungo::sync::Semaphore::new(2));
    /// semaphore.clone().acquire_owned(2).forget();
    /// assert_eq!(semaphore.available_permits(), 0);
    /// ```
    pub fn forget(mut self) {
        self.n = 0;
    }

    /// Returns how many permits these are.
    ///
    /// ```
    /// let semaphore = std::sync::Arc::new(mungo::sync::Semaphore::new(2));
    /// assert_eq!(semaphore.acquire_owned(2).count(), 2);
    /// ```
    pub fn count(&self) -> usize {
        self.n
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        self.semaphore.give(self.n);
    }
}
