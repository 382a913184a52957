//! A goroutine that stays on its thread and waits for a P: its place in the queue.
//!
//! A bound goroutine is queued like any other, but the M that dequeues it must hand the P to the M where it sits. The
//! ticket says whether that M sleeps for it. There is at most one entry in the queues for a ticket.
//!
//! ```text
//!            wait                dequeue: hand the P over
//!   NONE ───────────► WAITING ───────────────────────────► NONE
//!                      │   ▲
//!   release (monitor)  │   │ wait again, the entry is still queued
//!                      ▼   │
//!                     LOOSE ──────────────────────────────► NONE
//!                                dequeue: the entry is void
//! ```

use crate::sys::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const NONE: u32 = 0;
const WAITING: u32 = 1;
const LOOSE: u32 = 2;

/// The step by which the M waits for a P.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Put the goroutine into a queue, then sleep.
    Queue,
    /// The goroutine is in a queue still: just sleep.
    Sleep,
}

/// The duty of the M that dequeued the goroutine.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Dequeued {
    /// Hand the P to the M and wake it.
    HandOver,
    /// Nothing: the goroutine runs without a P, and will queue up again.
    Void,
}

pub(crate) struct Ticket(AtomicU32);

impl Ticket {
    pub(crate) fn new() -> Self {
        Ticket(AtomicU32::new(NONE))
    }

    /// Begins a wait of the M, before it sleeps.
    pub(crate) fn wait(&self) -> Wait {
        // ORDERING: AcqRel: what this M did until now belongs to the thread that hands it a P, and the reverse.
        match self.0.compare_exchange(LOOSE, WAITING, AcqRel, Acquire) {
            Ok(_) => Wait::Sleep,
            Err(_) => {
                self.0.store(WAITING, Relaxed); // published by the queue that the goroutine goes to
                Wait::Queue
            }
        }
    }

    /// Returns, to the M, which runs, whether an entry of it from before is still in a queue.
    pub(crate) fn is_owed(&self) -> bool {
        self.0.load(Acquire) == LOOSE
    }

    /// Uses the entry up. Called by the thread that took the goroutine from a queue.
    pub(crate) fn dequeued(&self) -> Dequeued {
        // ORDERING: as in `wait`.
        if self.0.swap(NONE, AcqRel) == WAITING { Dequeued::HandOver } else { Dequeued::Void }
    }

    /// Lets a sleeping M run without a P. Returns whether the caller, the monitor, must wake it.
    pub(crate) fn release(&self) -> bool {
        // ORDERING: as in `wait`.
        self.0.compare_exchange(WAITING, LOOSE, AcqRel, Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_owed_from_the_release_until_it_is_dequeued_or_serves_a_wait() {
        let ticket = Ticket::new();
        assert!(!ticket.is_owed());
        assert_eq!(ticket.wait(), Wait::Queue);
        assert!(!ticket.is_owed(), "the M sleeps for its entry");
        assert!(ticket.release());
        assert!(ticket.is_owed(), "the M runs, its entry is queued");
        assert!(!ticket.release(), "the M does not sleep");

        assert_eq!(ticket.wait(), Wait::Sleep);
        assert!(!ticket.is_owed(), "the entry serves the second wait");
        assert!(ticket.release());
        assert_eq!(ticket.dequeued(), Dequeued::Void);
        assert!(!ticket.is_owed(), "the entry is used up");
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;

    /// The dequeuer and the monitor try to take the same sleeper: exactly one wakes it, and the entry is used up once.
    #[test]
    fn loom_ticket_release_or_hand_over() {
        loom::model(|| {
            let ticket = Arc::new(Ticket::new());
            assert_eq!(ticket.wait(), Wait::Queue);
            let monitor = {
                let ticket = ticket.clone();
                loom::thread::spawn(move || ticket.release())
            };
            let handed = ticket.dequeued() == Dequeued::HandOver;
            let released = monitor.join().unwrap();
            assert!(handed ^ released, "woken by both or by none");
            assert!(!ticket.is_owed());
        });
    }

    /// A released M comes back to wait while its old entry is being dequeued.
    #[test]
    fn loom_ticket_wait_again() {
        loom::model(|| {
            let ticket = Arc::new(Ticket::new());
            assert_eq!(ticket.wait(), Wait::Queue);
            assert!(ticket.release());
            assert!(ticket.is_owed());
            let dequeuer = {
                let ticket = ticket.clone();
                loom::thread::spawn(move || ticket.dequeued())
            };
            let wait = ticket.wait();
            match (wait, dequeuer.join().unwrap()) {
                // The old entry served the new wait.
                (Wait::Sleep, Dequeued::HandOver) => {}
                // The old entry was void; the M queued a new one, which is still there.
                (Wait::Queue, Dequeued::Void) => assert_eq!(ticket.dequeued(), Dequeued::HandOver),
                other => panic!("{other:?}"),
            }
        });
    }
}
