//! The claim to end a wait: one word that every possible waker tries to take, and exactly one does.
//!
//! A wait that can end in more than one way (a waker or the clock, or one of several channels) has a [`Claim`]. It lies
//! on the waiter's frame. A waker calls [`take`](Claim::take) first, and wakes only if that returned `true`: so there
//! is exactly one wake-up, and the woken waiter can read what it was.

use crate::sys::atomic::{AtomicUsize, constant};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// No waker has ended the wait yet.
const OPEN: usize = 0;
/// The deadline ended the wait. Any number above is a waker's: an index, an address.
pub(crate) const TIMED_OUT: usize = 1;
/// A waker ended the wait; for wakers that have no more to say.
pub(crate) const WOKEN: usize = 2;

/// The right to end one wait.
pub(crate) struct Claim(AtomicUsize);

impl Claim {
    constant! {
        pub(crate) fn new() -> Claim {
            Claim(AtomicUsize::new(OPEN))
        }
    }

    /// Tries to take the claim in the name of `winner`. Returns whether the caller got it and must wake the waiter,
    /// once.
    ///
    /// After `false` the claim may be gone at any time, unless a lock keeps the waiter from leaving.
    #[inline]
    pub(crate) fn take(&self, winner: usize) -> bool {
        debug_assert_ne!(winner, OPEN);
        // ORDERING: Release what the winner did before to the waiter that reads its name; Acquire what the waiter wrote
        // before it published the claim, should the way to the claim not have done so.
        self.0.compare_exchange(OPEN, winner, AcqRel, Relaxed).is_ok()
    }

    /// Takes a claim that no other waker can take, or that the caller has won and now says more about.
    #[inline]
    pub(crate) fn settle(&self, winner: usize) {
        debug_assert_ne!(winner, OPEN);
        // ORDERING: Release as in `take`.
        self.0.store(winner, Release);
    }

    /// Returns the name of the winner that ended the wait; `None`: the wait is open.
    #[inline]
    pub(crate) fn winner(&self) -> Option<usize> {
        // ORDERING: Acquire what the winner did before `take`.
        match self.0.load(Acquire) {
            OPEN => None,
            winner => Some(winner),
        }
    }

    /// Opens the claim again, before another wait on the same frame, when no waker knows it.
    pub(crate) fn reopen(&mut self) {
        *self = Claim::new();
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::protocols::wake::{Wake, WakeState};
    use loom::sync::Arc;

    /// The clock and a waker try to end one wait, while the goroutine parks: one of them wakes it, once.
    #[test]
    fn loom_one_of_two_ends_the_wait() {
        loom::model(|| {
            let shared = Arc::new((Claim::new(), WakeState::new(), AtomicUsize::new(0)));
            shared.1.make_active();
            let contenders = [TIMED_OUT, WOKEN].map(|me| {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    let (claim, state, data) = &*shared;
                    if !claim.take(me) {
                        return None;
                    }
                    data.store(me, Relaxed);
                    Some(state.notify() == Wake::Enqueue)
                })
            });
            let (claim, state, data) = &*shared;
            let parked = !state.consume_notification() && state.park();
            let ends: Vec<bool> = contenders.into_iter().filter_map(|c| c.join().unwrap()).collect();
            assert_eq!(ends, [parked], "woken once, and queued if it had parked");
            assert_eq!(claim.winner(), Some(data.load(Relaxed)));
        });
    }
}
