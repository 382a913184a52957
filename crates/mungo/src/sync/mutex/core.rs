//! The state machine of the mutex.
//!
//! ```text
//! bit  name      meaning                                             changed
//! 0    LOCKED    a goroutine or thread holds it                      by the caller that locks or unlocks
//! 1    PARKED    the queue is not empty                              under the queue's lock
//! 2    WOKEN     one that was woken without the lock is on its way   set under the queue's lock, cleared by that one
//! 3    STARVING  the next unlock hands over to the queue's head      set under the queue's lock
//! ```
//!
//! *Lock* sets LOCKED with one instruction, whatever the other bits are: any caller may take a free lock although
//! others wait ("barging"), which is what makes it fast, because the lock never waits for a goroutine to be scheduled.
//! *Unlock* clears LOCKED, and wakes the first in the queue unless one is on its way already; the woken one tries
//! again like any other caller, and goes back to the head of the queue if it fails.
//!
//! A waiter that has waited for more than a millisecond and fails again sets STARVING (Go's rule): then unlock leaves
//! LOCKED set and hands the lock to the head. It stays so until the lock comes to one that has waited for less, or to
//! the last of the queue. So no wait is for ever: each in the queue is served in its turn, a millisecond late each.
//!
//! No wake-up is lost: a caller that parks sets PARKED by a CAS that fails unless LOCKED is set, and pushes itself,
//! both under the queue's lock; so the unlock that clears that LOCKED sees PARKED. If it then finds the lock taken
//! again, or WOKEN, it may leave: the holder, or the woken one when it unlocks, has the same duty. The woken one gives
//! WOKEN back in the same CAS by which it takes the lock or parks again.
//!
//! The holder is noted by a plain store, for reports of what waits for whom. Once priorities are in use in the process,
//! a goroutine that parks lends it its own priority (`sched/engine/inherit.rs`), and the most urgent in the queue is
//! woken first.

use crate::reason::WaitReason;
use crate::sched::run::waitq::{Node, Popped, Queue};
use crate::sync::rt::{self, Lock, Owner, Spin, inherit};
use crate::sys::atomic::{AtomicU32, constant};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const LOCKED: u32 = 1;
const PARKED: u32 = 2;
const WOKEN: u32 = 4;
const STARVING: u32 = 8;

/// A waiter's `Node::word`: it was woken as the holder.
const HANDED_OVER: usize = 1;

/// A mutex without a value.
pub(crate) struct Core {
    state: AtomicU32,
    queue: Lock<Queue>,
    owner: Owner,
}

impl Core {
    constant! {
        pub(crate) fn new() -> Core {
            Core { state: AtomicU32::new(0), queue: Lock::new(Queue::new()), owner: Owner::new() }
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of `unlock`. One instruction on x86 (`lock bts`), and it does not
        // care for the other bits, as a CAS from 0 would.
        let taken = self.state.fetch_or(LOCKED, Acquire) & LOCKED == 0;
        if taken {
            self.owner.note();
        }
        taken
    }

    #[inline]
    pub(crate) fn lock(&self, reason: WaitReason) {
        if !self.try_lock() {
            self.lock_slow(u64::MAX, &|node| node.wait(reason));
        }
    }

    /// Locks, waiting until `deadline_ns` at the most. Returns whether it got the lock.
    #[inline]
    pub(crate) fn lock_until(&self, reason: WaitReason, deadline_ns: u64) -> bool {
        self.try_lock() || self.lock_slow(deadline_ns, &|node| node.wait(reason))
    }

    /// Locks, unless `wait` ends a wait with `false`. Returns whether it got the lock.
    pub(crate) fn lock_by(&self, deadline_ns: u64, wait: &dyn Fn(&Node) -> bool) -> bool {
        self.try_lock() || self.lock_slow(deadline_ns, wait)
    }

    /// Returns the place where the holder is noted.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }

    /// Unlocks; the caller holds the lock.
    #[inline]
    pub(crate) fn unlock(&self) {
        self.owner.forget();
        // The line is ours, so looking costs nothing; should STARVING be set after the look, the next unlock sees it.
        let seen = self.state.load(Relaxed);
        if seen & (PARKED | STARVING) != 0 {
            self.owner.clear(); // lest those that go on waiting seem to wait for this caller
            if seen & STARVING != 0 {
                return self.hand_over();
            }
        }
        // ORDERING: Release the critical section to the next holder's Acquire.
        let before = self.state.fetch_sub(LOCKED, Release);
        debug_assert!(before & LOCKED != 0);
        if before & (PARKED | WOKEN) == PARKED {
            self.wake_first();
        }
    }

    /// As [`unlock`](Self::unlock), but hands the lock to the first waiter, so that no caller overtakes it.
    #[inline]
    pub(crate) fn unlock_fair(&self) {
        match self.state.load(Relaxed) & PARKED {
            0 => self.unlock(),
            _ => {
                self.owner.forget();
                self.owner.clear();
                self.hand_over();
            }
        }
    }

    #[cold]
    fn lock_slow(&self, deadline_ns: u64, wait: &dyn Fn(&Node) -> bool) -> bool {
        let mut lent = false;
        let taken = self.contend(deadline_ns, wait, &mut lent);
        if lent {
            inherit::stop_waiting(&self.owner, taken);
        } else if taken {
            self.owner.note();
        }
        taken
    }

    /// Spins, parks and retries until it has the lock; returns whether it got it in time. `lent`: the holder was
    /// raised on the way.
    fn contend(&self, deadline_ns: u64, wait: &dyn Fn(&Node) -> bool, lent: &mut bool) -> bool {
        let mut spin = Spin::new();
        let mut since_ns = 0;
        let mut woken = false;
        loop {
            let seen = self.state.load(Relaxed);
            if seen & LOCKED == 0 {
                let to = (if woken { seen & !WOKEN } else { seen }) | LOCKED;
                // ORDERING: as `try_lock`.
                if self.state.compare_exchange_weak(seen, to, Acquire, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            if seen & STARVING == 0 && spin.spin() {
                continue;
            }
            let now_ns = rt::now_ns();
            if since_ns == 0 {
                since_ns = now_ns;
            }
            let starving = woken && now_ns - since_ns >= rt::patience_ns();
            let node = Node::new(&self.owner, deadline_ns);
            if !self.enqueue(&node, woken, starving) {
                continue; // free again
            }
            if inherit::is_on() {
                *lent = true;
                inherit::lend(&self.owner);
            }
            if !wait(&node) {
                self.give_up(&node);
                return false;
            }
            if node.word.get() == HANDED_OVER {
                self.calm_down(since_ns);
                return true;
            }
            woken = true;
            spin = Spin::new();
        }
    }

    /// Gets in line, if the lock is held. Returns whether it did.
    fn enqueue(&self, node: &Node, woken: bool, starving: bool) -> bool {
        let mut queue = self.queue.lock();
        let mut seen = self.state.load(Relaxed);
        while seen & LOCKED != 0 {
            let kept = if woken { seen & !WOKEN } else { seen };
            let to = kept | PARKED | if starving { STARVING } else { 0 };
            // Relaxed: a thread that sees PARKED takes the queue's lock before it looks at the queue.
            match self.state.compare_exchange_weak(seen, to, Relaxed, Relaxed) {
                Ok(_) => {
                    // SAFETY: `lock_slow` leaves the frame when it was woken, or after `give_up`.
                    unsafe { if woken { queue.push_front(node) } else { queue.push_back(node) } };
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Leaves the queue: the time is over, and no unlock woke this waiter.
    #[cold]
    fn give_up(&self, node: &Node) {
        let mut queue = self.queue.lock();
        queue.remove(node);
        self.note_if_empty(&queue);
    }

    /// Clears PARKED and STARVING if the queue is empty. Under the queue's lock, after something was taken out.
    fn note_if_empty(&self, queue: &Queue) {
        if queue.is_empty() {
            self.state.fetch_and(!(PARKED | STARVING), Relaxed);
        }
    }

    /// Wakes the first waiter, which shall try: the caller has given the lock up.
    #[cold]
    fn wake_first(&self) {
        let mut queue = self.queue.lock();
        let seen = self.state.load(Relaxed);
        if seen & (LOCKED | WOKEN) != 0 || seen & PARKED == 0 {
            return; // the holder, or the woken waiter, will
        }
        let first = pop(&mut queue);
        if first.is_some() {
            self.state.fetch_or(WOKEN, Relaxed);
        }
        self.note_if_empty(&queue);
        drop(queue);
        if let Some(first) = first {
            first.wake();
        }
    }

    /// Gives the lock, which the caller holds, to the first in the queue.
    #[cold]
    fn hand_over(&self) {
        let mut queue = self.queue.lock();
        let Some(first) = pop(&mut queue) else {
            // ORDERING: as `unlock`. No waiter can have parked since: this thread holds the queue.
            self.state.fetch_and(!(LOCKED | PARKED | STARVING), Release);
            return;
        };
        first.grant(HANDED_OVER);
        self.note_if_empty(&queue);
        drop(queue);
        first.wake();
        rt::yield_to_woken();
    }

    /// Ends STARVING if there is no need for it any more: the lock was handed to this waiter.
    fn calm_down(&self, since_ns: u64) {
        if self.state.load(Relaxed) & STARVING != 0 && rt::now_ns() - since_ns < rt::patience_ns() {
            self.state.fetch_and(!STARVING, Relaxed);
        }
    }
}

/// Takes out the next in line; the most urgent, if there are differences.
fn pop(queue: &mut Queue) -> Option<Popped> {
    if inherit::is_on() { queue.pop_urgent() } else { queue.pop() }
}

impl Drop for Core {
    fn drop(&mut self) {
        debug_assert!(self.queue.lock().is_empty(), "a mutex was dropped while a goroutine waits for it");
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("Mutex")
            .field("locked", &(state & LOCKED != 0))
            .field("waiters", &(state & PARKED != 0))
            .field("starving", &(state & STARVING != 0))
            .finish()
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
        fn add(&self, fair: bool) {
            self.0.lock(WaitReason::Mutex);
            // SAFETY: the lock is held; loom checks that.
            self.1.with_mut(|v| unsafe { *v += 1 });
            if fair { self.0.unlock_fair() } else { self.0.unlock() }
        }
    }

    /// Every thread adds `rounds` times: they exclude each other, none sleeps for ever, and nothing is left behind.
    fn adders(threads: u32, rounds: u32, patience_ns: u64, fair: bool) {
        rt::PATIENCE_NS.set(patience_ns);
        loom::model(move || {
            let guarded = Arc::new(Guarded(Core::new(), UnsafeCell::new(0)));
            let others: Vec<_> = (1..threads)
                .map(|_| {
                    let guarded = guarded.clone();
                    loom::thread::spawn(move || (0..rounds).for_each(|_| guarded.add(fair)))
                })
                .collect();
            (0..rounds).for_each(|_| guarded.add(fair));
            others.into_iter().for_each(|t| t.join().unwrap());
            // SAFETY: no other thread is left.
            guarded.1.with(|v| assert_eq!(unsafe { *v }, threads * rounds));
            assert_eq!(guarded.0.state.load(Relaxed), 0);
        });
    }

    #[test]
    fn loom_mutex_barging() {
        adders(2, 2, u64::MAX, false);
        adders(3, 1, u64::MAX, false);
    }

    #[test]
    fn loom_mutex_starving() {
        adders(2, 2, 0, false);
        adders(3, 1, 0, false);
    }

    #[test]
    fn loom_mutex_fair() {
        adders(3, 1, u64::MAX, true);
    }
}
