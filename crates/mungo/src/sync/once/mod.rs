//! Doing something once.

mod lazy;
mod lock;

pub use lazy::LazyLock;
pub use lock::OnceLock;

use crate::reason::WaitReason;
use crate::sched::run::lock::Lock;
use crate::sched::run::waitq::{Node, Queue};
use crate::sync::rt::Owner;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

const INCOMPLETE: u32 = 0;
/// A state: a call panicked.
const POISONED: u32 = 1;
const RUNNING: u32 = 2;
const COMPLETE: u32 = 3;

/// Runs an initialisation once, for the first caller; the others wait for it. As [`std::sync::Once`].
///
/// A goroutine that waits for the first one parks.
///
/// ```
/// use mungo::sync::Once;
///
/// static INIT: Once = Once::new();
/// let mut calls = 0;
/// INIT.call_once(|| calls += 1);
/// INIT.call_once(|| calls += 1);
/// assert_eq!(calls, 1);
/// ```
#[derive(Debug)]
pub struct Once {
    /// Becomes RUNNING by a CAS, anything else by the caller that runs, under the queue's lock.
    state: AtomicU32,
    queue: Lock<Queue>,
    /// The goroutine that runs. Written by it; read by reports.
    owner: Owner,
}

/// The state that [`Once::call_once_force`] tells its closure.
///
/// ```
/// mungo::sync::Once::new().call_once_force(|state| assert!(!state.is_poisoned()));
/// ```
#[derive(Debug)]
pub struct OnceState {
    poisoned: bool,
}

impl OnceState {
    /// Returns whether an earlier call panicked.
    ///
    /// ```
    /// use std::panic::{AssertUnwindSafe, catch_unwind};
    ///
    /// let once = mungo::sync::Once::new();
    /// # std::panic::set_hook(Box::new(|_| ()));
    /// catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic!()))).unwrap_err();
    /// once.call_once_force(|state| assert!(state.is_poisoned()));
    /// assert!(once.is_completed());
    /// ```
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl Once {
    /// Makes a `Once` of which nothing is done yet.
    ///
    /// ```
    /// assert!(!mungo::sync::Once::new().is_completed());
    /// ```
    #[must_use]
    pub const fn new() -> Once {
        Once { state: AtomicU32::new(INCOMPLETE), queue: Lock::new(Queue::new()), owner: Owner::new() }
    }

    /// Runs `f` if no call did so before, or waits for the call that does. On return the work is done and can be seen.
    ///
    /// ```
    /// static INIT: mungo::sync::Once = mungo::sync::Once::new();
    /// let all: Vec<_> = (0..4).map(|_| mungo::go(|| INIT.call_once(|| mungo::yield_now()))).collect();
    /// all.into_iter().for_each(|g| g.join().unwrap());
    /// assert!(INIT.is_completed());
    /// ```
    ///
    /// # Panics
    /// If `f` panics, and then at each later call: the work is half done. [`call_once_force`](Self::call_once_force)
    /// tries again.
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        if !self.is_completed() {
            self.call_slow(Poison::Refuse, |_| f());
        }
    }

    /// As [`call_once`](Self::call_once), also after a call that panicked.
    ///
    /// ```
    /// let once = mungo::sync::Once::new();
    /// once.call_once_force(|_| ());
    /// assert!(once.is_completed());
    /// ```
    #[inline]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        if !self.is_completed() {
            self.call_slow(Poison::Accept, f);
        }
    }

    /// Returns whether the work is done.
    ///
    /// ```
    /// let once = mungo::sync::Once::new();
    /// once.call_once(|| ());
    /// assert!(once.is_completed());
    /// ```
    #[inline]
    pub fn is_completed(&self) -> bool {
        // ORDERING: Acquire the work; pairs with the Release of `Finish::drop`.
        self.state.load(Acquire) == COMPLETE
    }

    /// Waits until another call has done the work, without doing it.
    ///
    /// ```
    /// static INIT: mungo::sync::Once = mungo::sync::Once::new();
    /// let waiting = mungo::go(|| INIT.wait());
    /// INIT.call_once(|| ());
    /// waiting.join().unwrap();
    /// ```
    ///
    /// # Panics
    /// If a call panicked.
    pub fn wait(&self) {
        loop {
            // ORDERING: as `is_completed`.
            match self.state.load(Acquire) {
                COMPLETE => return,
                POISONED => panic!("Once: an earlier call panicked"),
                seen => self.park_while(seen),
            }
        }
    }

    /// Waits for the state to change; `INCOMPLETE` to `RUNNING` is no change to wake up for.
    fn park_while(&self, seen: u32) {
        let node = Node::new(&self.owner, u64::MAX);
        let mut queue = self.queue.lock();
        let now = self.state.load(Relaxed);
        if now != seen && now != RUNNING {
            return;
        }
        // SAFETY: it leaves this frame when it was woken.
        unsafe { queue.push_back(&node) };
        drop(queue);
        node.wait(WaitReason::Once);
    }

    #[cold]
    #[track_caller]
    fn call_slow(&self, poison: Poison, f: impl FnOnce(&OnceState)) {
        loop {
            // ORDERING: as `is_completed`.
            let seen = self.state.load(Acquire);
            match seen {
                COMPLETE => return,
                POISONED if poison == Poison::Refuse => panic!("Once: an earlier call panicked"),
                RUNNING => self.park_while(RUNNING),
                _ => {
                    // ORDERING: Acquire what a call that panicked left behind.
                    if self.state.compare_exchange(seen, RUNNING, Acquire, Relaxed).is_err() {
                        continue;
                    }
                    self.owner.note();
                    let after_panic = if poison == Poison::Forget { INCOMPLETE } else { POISONED };
                    let mut finish = Finish { once: self, to: after_panic };
                    f(&OnceState { poisoned: seen == POISONED });
                    finish.to = COMPLETE;
                    return;
                }
            }
        }
    }
}

/// Says what a panic means for the next call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poison {
    /// It panics too.
    Refuse,
    /// It may try again, and is told.
    Accept,
    /// As if nothing had been tried: `OnceLock`.
    Forget,
}

/// Ends a run, by return or by panic, and wakes its waiters.
struct Finish<'a> {
    once: &'a Once,
    to: u32,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut queue = self.once.queue.lock();
        // ORDERING: Release the work to `is_completed`.
        self.once.state.store(self.to, Release);
        let waiting = queue.pop_all();
        drop(queue);
        waiting.wake();
    }
}

impl Default for Once {
    fn default() -> Once {
        Once::new()
    }
}
