//! Who ends a wait: one word that everybody goes for who could, and one of them gets.
//!
//! A wait that can end in more than one way (a waker or the clock, or one of several channels) has a [`Claim`]. It lies
//! on the frame of the one who waits. Each who wants to end the wait calls [`take`](Claim::take) first, and wakes
//! only if that returned `true`: so there is exactly one wake-up, and the woken one can read what it was.

#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;
#[cfg(not(loom))]
use std::sync::atomic::AtomicUsize;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Nobody has ended the wait yet.
const OPEN: usize = 0;
/// The deadline did. Anything above is the wakers': an index, an address.
pub(crate) const TIMED_OUT: usize = 1;
/// A waker did; for those who have no more to say.
pub(crate) const WOKEN: usize = 2;

/// The right to end one wait.
pub(crate) struct Claim(AtomicUsize);

impl Claim {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Claim {
        Claim(AtomicUsize::new(OPEN))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Claim {
        Claim(AtomicUsize::new(OPEN))
    }

    /// Goes for it in the name of `winner`. `true`: it is the caller's, who must wake the waiting one, once.
    ///
    /// After `false` the claim may be gone at any time, unless a lock keeps the waiting one from leaving.
    #[inline]
    pub(crate) fn take(&self, winner: usize) -> bool {
        debug_assert_ne!(winner, OPEN);
        // ORDERING: Release what the winner did before to whoever reads its name; Acquire what the waiting one wrote
        // before it published the claim, should the way to the claim not have done so.
        self.0.compare_exchange(OPEN, winner, AcqRel, Relaxed).is_ok()
    }

    /// The same for a claim that nobody else can go for, or that the caller has won and now says more about.
    #[inline]
    pub(crate) fn settle(&self, winner: usize) {
        debug_assert_ne!(winner, OPEN);
        // ORDERING: Release as in `take`.
        self.0.store(winner, Release);
    }

    /// Who ended the wait; `None`: nobody yet.
    #[inline]
    pub(crate) fn winner(&self) -> Option<usize> {
        // ORDERING: Acquire what the winner did before `take`.
        match self.0.load(Acquire) {
            OPEN => None,
            winner => Some(winner),
        }
    }

    /// Before another wait on the same frame, when nobody knows the claim.
    pub(crate) fn reopen(&mut self) {
        *self = Claim::new();
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sched::wake::{Wake, WakeState};
    use loom::sync::Arc;

    /// The clock and a waker go for one wait, while the goroutine parks: one of them wakes it, once.
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
