//! Counts the idle Ps and the Ms that look for work: the counters behind "no lost wake-up".
//!
//! The essay is `sched/README.md`; this is the part that a model can hold. All operations are SeqCst:
//! the proof is the store-buffer one, four operations in one total order.

use crate::sys::atomic::{AtomicU32, total_order};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The number of idle Ps, and of Ms that look for work.
pub(crate) struct IdleCounts {
    /// Changed under the scheduler's lock, read by all threads.
    idle_ps: AtomicU32,
    spinning: AtomicU32,
    /// Number of idle Ps that submitters leave alone, because there is no CPU for them. Changed under the lock.
    spare: AtomicU32,
}

impl IdleCounts {
    pub(crate) fn new() -> Self {
        IdleCounts { idle_ps: AtomicU32::new(0), spinning: AtomicU32::new(0), spare: AtomicU32::new(0) }
    }

    pub(crate) fn idle_ps(&self) -> u32 {
        self.idle_ps.load(Relaxed)
    }

    pub(crate) fn spinning(&self) -> u32 {
        self.spinning.load(Relaxed)
    }

    // ORDERING: SeqCst, this and all below: see the module.
    pub(crate) fn p_became_idle(&self) {
        self.idle_ps.fetch_add(1, SeqCst);
    }

    pub(crate) fn p_left_idle(&self) {
        self.idle_ps.fetch_sub(1, SeqCst); // ORDERING: see the module
    }

    /// Sets how many idle Ps submitters leave alone.
    pub(crate) fn set_spare(&self, n: u32) {
        self.spare.store(n, Relaxed);
    }

    /// Returns whether submitters wake no M: as many Ps are busy as there are CPUs, or all.
    #[inline]
    pub(crate) fn are_enough_busy(&self) -> bool {
        self.idle_ps() <= self.spare.load(Relaxed)
    }

    /// Returns whether a submitter, after it made work visible, must wake an M, which then counts as spinning.
    ///
    /// Not if as many Ps are busy as there are CPUs: the work is found by the first of these that has no other, since
    /// the argument of the module holds for any number of idle Ps from which on an M is woken.
    #[inline]
    pub(crate) fn claim_wakeup(&self) -> bool {
        self.claim_if_idle(self.spare.load(Relaxed))
    }

    /// Does the same for the monitor, which found that work waits all the same.
    pub(crate) fn claim_spare(&self) -> bool {
        self.claim_if_idle(0)
    }

    #[inline]
    fn claim_if_idle(&self, but: u32) -> bool {
        // ORDERING: SeqCst against `p_became_idle` and `stop_spinning`: see the module.
        total_order();
        self.idle_ps.load(SeqCst) > but
            && self.spinning.load(SeqCst) == 0 // ORDERING: see the module
            && self.spinning.compare_exchange(0, 1, SeqCst, Relaxed).is_ok() // ORDERING: see the module
    }

    /// Returns whether an M without work may look around, and then counts it as spinning. At most half of the busy Ps
    /// do.
    pub(crate) fn start_spinning(&self, procs: u32) -> bool {
        let busy = procs.saturating_sub(self.idle_ps.load(Relaxed));
        if 2 * self.spinning.load(Relaxed) >= busy {
            return false;
        }
        self.must_spin();
        true
    }

    /// Counts an M as spinning that has to look around, whatever the bound.
    pub(crate) fn must_spin(&self) {
        self.spinning.fetch_add(1, SeqCst); // ORDERING: see the module
    }

    /// Counts a spinning M out that found work or gives up. Returns whether it was the last one. After giving up it
    /// must look at all queues once more; after finding work, the last one wakes the next.
    pub(crate) fn stop_spinning(&self) -> bool {
        let last = self.spinning.fetch_sub(1, SeqCst) == 1; // ORDERING: see the module
        total_order();
        last
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::{Arc, Mutex};

    /// A submitter pushes and looks for sleepers; the last looker goes to sleep at the same time. The work must
    /// be seen by one of them.
    #[test]
    fn loom_no_lost_wakeup() {
        no_lost_wakeup(0);
    }

    /// The same, where one more P is idle, and is left alone.
    #[test]
    fn loom_no_lost_wakeup_beside_a_spare_p() {
        no_lost_wakeup(1);
    }

    fn no_lost_wakeup(spare: u32) {
        loom::model(move || {
            let queue = Arc::new(crate::protocols::runq::RunQueue::<u64>::new());
            let counts = Arc::new(IdleCounts::new());
            let lock = Arc::new(Mutex::new(()));
            counts.set_spare(spare);
            (0..spare).for_each(|_| counts.p_became_idle());
            counts.must_spin();
            let submitter = {
                let (queue, counts) = (queue.clone(), counts.clone());
                loom::thread::spawn(move || {
                    queue.push_next(8 as *mut u64).unwrap();
                    counts.claim_wakeup()
                })
            };
            // The looker gives up.
            {
                let _guard = lock.lock().unwrap();
                counts.p_became_idle();
            }
            counts.stop_spinning();
            let found = !queue.is_empty();
            let woken = submitter.join().unwrap();
            assert!(found || woken, "work lies in a queue, an M sleeps, and no M knows");
        });
    }

    /// Two submitters never claim the same wake-up twice while one looker is on its way.
    #[test]
    fn loom_one_wakeup_at_a_time() {
        loom::model(|| {
            let counts = Arc::new(IdleCounts::new());
            counts.p_became_idle();
            let other = {
                let counts = counts.clone();
                loom::thread::spawn(move || counts.claim_wakeup())
            };
            let mine = counts.claim_wakeup();
            assert!(mine ^ other.join().unwrap());
        });
    }
}
