//! Whether a goroutine is parked, and the race between parking and waking.
//!
//! Each park is ended by exactly one [`notify`](WakeState::notify): a waker first wins a claim (a waiter taken from a
//! queue, a CAS) and only then notifies. The wake-up may come before the goroutine has left its stack, so parking is a
//! CAS by the worker, on the M's own stack, after the switch: if it fails, the wake-up came first, and the goroutine
//! runs on.
//!
//! It may come even earlier, while the goroutine has said that it waits but has been preempted on the way to its park,
//! and lies in a run queue. Therefore "runnable" and "running" are one state here: the owner of an active goroutine is
//! known by where it lies, and a yield does not write this word.
//!
//! A third party may hold a waiting goroutine still, to look at its stack. A waker that comes meanwhile does not wait
//! for that to end: it says that it was there and goes on, and the thread that holds the goroutine wakes it in its
//! place. So no waker, and no P, waits for a thread that the kernel may have descheduled in the middle of a look.
//!
//! ```text
//!                    waker                          waker
//!   WAITING ------------------------> ACTIVE   INSPECTED ---> INSPECTED_NOTIFIED
//!      ^ |  inspector                              ^ |               |
//!      | `-----------------------------------------' |               |  inspector, which then queues it
//!      `---------------------------------------------'               `--------------------------------> ACTIVE
//!                    inspector
//! ```
//!
//! Rejected: a waker that spins until the look is over, as it was. A look takes some hundred ns, but a kernel slice if
//! the kernel takes the inspector's CPU away in it.

use crate::sys::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const IDLE: u32 = 0;
/// In a run queue or on an M.
const ACTIVE: u32 = 1;
/// Active, and its next park is over already.
const NOTIFIED: u32 = 2;
const WAITING: u32 = 3;
/// Waiting, and another thread looks at its stack.
const INSPECTED: u32 = 4;
const DEAD: u32 = 5;
/// Woken while another thread looks at its stack: that one queues it.
const INSPECTED_NOTIFIED: u32 = 6;

/// The step that a waker, or an inspector at its end, must take next.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The goroutine is the caller's: queue it.
    Enqueue,
    /// To a waker: it had not parked yet, and its park will return at once; or another thread holds it, and will queue
    /// it. To an inspector: it waits on.
    Nothing,
}

pub(crate) struct WakeState(AtomicU32);

impl WakeState {
    pub(crate) fn new() -> Self {
        WakeState(AtomicU32::new(IDLE))
    }

    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.0.load(Acquire), IDLE | DEAD)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.0.load(Acquire) == IDLE
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.0.load(Relaxed), WAITING | INSPECTED)
    }

    /// Makes it active, for a new goroutine. Called by the owner.
    #[inline]
    pub(crate) fn make_active(&self) {
        self.0.store(ACTIVE, Release);
    }

    pub(crate) fn make_dead(&self) {
        self.0.store(DEAD, Release);
    }

    pub(crate) fn make_idle(&self) {
        self.0.store(IDLE, Release);
    }

    /// Takes a wake-up that has come already. Returns whether it had: then there is no need to switch. Called by the
    /// goroutine itself.
    #[inline]
    pub(crate) fn consume_notification(&self) -> bool {
        // ORDERING: Acquire what the waker did before.
        if self.0.load(Acquire) != NOTIFIED {
            return false;
        }
        self.0.store(ACTIVE, Relaxed);
        true
    }

    /// Parks it. Returns `false` if it was woken meanwhile and is still active. Called by the worker, after the switch.
    #[inline]
    pub(crate) fn park(&self) -> bool {
        // ORDERING: Release the goroutine's whole state to the Acquire of the waker, which may run it at once.
        match self.0.compare_exchange(ACTIVE, WAITING, AcqRel, Acquire) {
            Ok(_) => true,
            Err(_) => {
                self.0.store(ACTIVE, Relaxed);
                false
            }
        }
    }

    /// Wakes it up, for a waker that won the claim.
    #[inline]
    pub(crate) fn notify(&self) -> Wake {
        let mut seen = WAITING;
        loop {
            let to = match seen {
                WAITING => ACTIVE,
                ACTIVE => NOTIFIED,
                INSPECTED => INSPECTED_NOTIFIED,
                other => unreachable!("wake-up of a goroutine in state {other}"),
            };
            // ORDERING: Acquire the parked goroutine's state; Release what we did to it when it goes on, to itself or
            // to the inspector that queues it.
            match self.0.compare_exchange_weak(seen, to, AcqRel, Relaxed) {
                Ok(WAITING) => return Wake::Enqueue,
                Ok(_) => return Wake::Nothing,
                Err(now) => seen = now,
            }
        }
    }

    /// Holds a waiting goroutine still while `f` looks at its stack. Returns `None` if it does not wait, or another
    /// thread holds it; else what `f` returned, and what the caller must do next: a wake-up that came meanwhile is now
    /// the caller's to deliver.
    pub(crate) fn inspect<R>(&self, f: impl FnOnce() -> R) -> Option<(R, Wake)> {
        // ORDERING: Acquire its state.
        self.0.compare_exchange(WAITING, INSPECTED, Acquire, Relaxed).ok()?;
        let result = f();
        // ORDERING: Release our accesses to the next waker. Acquire, if a waker was there, what that one did: the
        // caller passes it on to the goroutine.
        let wake = match self.0.compare_exchange(INSPECTED, WAITING, Release, Acquire) {
            Ok(_) => Wake::Nothing,
            Err(_) => {
                self.0.store(ACTIVE, Relaxed);
                Wake::Enqueue
            }
        };
        Some((result, wake))
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    /// A goroutine parks while a waker comes: it goes on exactly once, on one side or the other, and sees the waker's
    /// data.
    #[test]
    fn loom_park_notify() {
        loom::model(|| {
            let state = Arc::new(WakeState::new());
            let data = Arc::new(AtomicUsize::new(0));
            state.make_active();
            let waker = {
                let (state, data) = (state.clone(), data.clone());
                loom::thread::spawn(move || {
                    data.store(1, Relaxed);
                    state.notify() == Wake::Enqueue
                })
            };
            let parked = !state.consume_notification() && state.park();
            if !parked {
                assert_eq!(data.load(Relaxed), 1);
                assert!(!state.is_waiting());
            }
            assert_eq!(waker.join().unwrap(), parked, "lost or doubled");
            assert!(!state.is_waiting());
        });
    }

    /// A thread looks at the stack while the waker comes: one of the two queues the goroutine, and sees what the other
    /// did to it.
    #[test]
    fn loom_inspect_notify() {
        loom::model(|| {
            let state = Arc::new(WakeState::new());
            let stack = Arc::new(loom::cell::UnsafeCell::new(0u32));
            let data = Arc::new(AtomicUsize::new(0));
            state.make_active();
            assert!(state.park());
            let inspector = {
                let (state, stack, data) = (state.clone(), stack.clone(), data.clone());
                loom::thread::spawn(move || {
                    // SAFETY: `inspect` excludes all others.
                    let wake = state.inspect(|| stack.with_mut(|s| unsafe { *s += 1 })).map(|((), wake)| wake);
                    if wake == Some(Wake::Enqueue) {
                        assert_eq!(data.load(Relaxed), 1);
                        // SAFETY: Enqueue made us the owner.
                        stack.with_mut(|s| unsafe { *s += 1 });
                    }
                    wake == Some(Wake::Enqueue)
                })
            };
            data.store(1, Relaxed);
            let woke = state.notify() == Wake::Enqueue;
            if woke {
                // SAFETY: as above.
                stack.with_mut(|s| unsafe { *s += 1 });
            }
            assert_ne!(woke, inspector.join().unwrap(), "lost or doubled");
            assert!(!state.is_waiting() && state.is_alive());
        });
    }

    /// A goroutine parks while one thread wants to look at it and another wakes it: one of the three goes on with it.
    #[test]
    fn loom_park_inspect_notify() {
        loom::model(|| {
            let state = Arc::new(WakeState::new());
            let stack = Arc::new(loom::cell::UnsafeCell::new(0u32));
            state.make_active();
            // SAFETY: by the callers: each holds the goroutine, or owns it.
            let touch = |stack: &loom::cell::UnsafeCell<u32>| stack.with_mut(|s| unsafe { *s += 1 });
            let waker = {
                let (state, stack) = (state.clone(), stack.clone());
                loom::thread::spawn(move || {
                    let woke = state.notify() == Wake::Enqueue;
                    woke.then(|| touch(&stack));
                    woke
                })
            };
            let inspector = {
                let (state, stack) = (state.clone(), stack.clone());
                loom::thread::spawn(move || {
                    let woke = matches!(state.inspect(|| touch(&stack)), Some(((), Wake::Enqueue)));
                    woke.then(|| touch(&stack));
                    woke
                })
            };
            touch(&stack);
            let goes_on = state.consume_notification() || !state.park();
            goes_on.then(|| touch(&stack));
            let owners = [goes_on, waker.join().unwrap(), inspector.join().unwrap()];
            assert_eq!(owners.into_iter().filter(|is_owner| *is_owner).count(), 1, "{owners:?}");
            assert!(!state.is_waiting() && state.is_alive());
        });
    }

    /// Two threads look, one after the other, while the waker comes. A look that fails changes nothing.
    #[test]
    fn loom_two_inspect_notify() {
        loom::model(|| {
            let state = Arc::new(WakeState::new());
            let stack = Arc::new(loom::cell::UnsafeCell::new(0u32));
            state.make_active();
            assert!(state.park());
            let inspectors = [(); 2].map(|()| {
                let (state, stack) = (state.clone(), stack.clone());
                loom::thread::spawn(move || {
                    // SAFETY: `inspect` excludes all others.
                    let held = state.inspect(|| stack.with_mut(|s| unsafe { *s += 1 }));
                    matches!(held, Some(((), Wake::Enqueue)))
                })
            });
            let woke = state.notify() == Wake::Enqueue;
            let owners = inspectors.into_iter().filter_map(|i| i.join().unwrap().then_some(())).count();
            assert_eq!(owners + usize::from(woke), 1, "lost or doubled");
            assert!(!state.is_waiting() && state.is_alive());
        });
    }
}
