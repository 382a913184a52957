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

use crate::sys::atomic::{AtomicU32, pause};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const IDLE: u32 = 0;
/// In a run queue or on an M.
const ACTIVE: u32 = 1;
/// Active, and its next park is over already.
const NOTIFIED: u32 = 2;
const WAITING: u32 = 3;
/// Waiting, and another thread looks at its stack: a waker waits for that to end.
const INSPECTED: u32 = 4;
const DEAD: u32 = 5;

/// The step that a waker must take next.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The goroutine is the caller's: queue it.
    Enqueue,
    /// It had not parked yet: its park will return at once.
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
                INSPECTED => {
                    pause();
                    seen = self.0.load(Relaxed);
                    continue;
                }
                other => unreachable!("wake-up of a goroutine in state {other}"),
            };
            // ORDERING: Acquire the parked goroutine's state; Release what we did to it when it goes on.
            match self.0.compare_exchange_weak(seen, to, AcqRel, Relaxed) {
                Ok(WAITING) => return Wake::Enqueue,
                Ok(_) => return Wake::Nothing,
                Err(now) => seen = now,
            }
        }
    }

    /// Holds a waiting goroutine still while `f` looks at its stack. Returns `None` if it does not wait.
    pub(crate) fn inspect<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        // ORDERING: Acquire its state; Release our accesses to the next waker.
        self.0.compare_exchange(WAITING, INSPECTED, Acquire, Relaxed).ok()?;
        let result = f();
        self.0.store(WAITING, Release);
        Some(result)
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

    /// The monitor looks at the stack while the waker comes.
    #[test]
    fn loom_inspect_notify() {
        loom::model(|| {
            let state = Arc::new(WakeState::new());
            let stack = Arc::new(loom::cell::UnsafeCell::new(0u32));
            state.make_active();
            assert!(state.park());
            let monitor = {
                let (state, stack) = (state.clone(), stack.clone());
                loom::thread::spawn(move || {
                    // SAFETY: `inspect` excludes the waker.
                    state.inspect(|| stack.with_mut(|s| unsafe { *s += 1 }))
                })
            };
            assert_eq!(state.notify(), Wake::Enqueue);
            // SAFETY: Enqueue made us the owner.
            stack.with_mut(|s| unsafe { *s += 1 });
            monitor.join().unwrap();
            assert!(!state.is_waiting());
        });
    }
}
