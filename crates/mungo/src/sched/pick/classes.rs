//! Two classes of goroutines: fresh and computing.
//!
//! A goroutine is *fresh* from its spawn or wake-up until it is interrupted while it computes; then it is *computing*
//! until it blocks. One that is interrupted because several shared its slice stays what it was.
//! Each P has an account of the time that fresh ones may take from computing ones ([`Credit`], rule 7), and each
//! goroutine one of the slice that it has used ([`G::charge_slice`], rule 3).
//!
//! So a goroutine with little to do does not wait behind computing ones, and a flood of such goroutines does not starve
//! computing ones. `docs/preemption.md` has the figures.

use crate::policies::order::{BURST_NS, FRESH_NS, PARTS, TIME_SLICE, WORTH_NS};
use crate::sched::run::g::G;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// The time that fresh goroutines may take from computing ones, for one P.
#[derive(Debug)]
pub(crate) struct Credit {
    /// The time saved up, in ns. Written by the owner of the P, read by the monitor.
    saved_ns: AtomicI64,
    /// When the account was last settled, in ns, and before which switch of the P. Written by the owner, read by the
    /// monitor.
    settled_ns: AtomicU64,
    settled_switch: AtomicU64,
}

impl Credit {
    pub(crate) fn new() -> Credit {
        Credit {
            saved_ns: AtomicI64::new(BURST_NS),
            settled_ns: AtomicU64::new(0),
            settled_switch: AtomicU64::new(0),
        }
    }

    /// Charges the time until `now_ns`, which was in the way of computing goroutines or not. Returns whether fresh
    /// goroutines may go before computing ones. `switch` is the number of the P's next switch. Called by the owner.
    pub(crate) fn settle(&self, now_ns: u64, switch: u64, was_in_the_way: bool) -> bool {
        let passed = now_ns.saturating_sub(self.settled_ns.load(Relaxed)) as i64;
        self.settled_ns.store(now_ns, Relaxed);
        self.settled_switch.store(switch, Relaxed);
        // A goroutine that goes on for longer than a fresh one does is a computing one from then on, for a slice. What
        // is beyond that was no goroutine's time: its thread had no CPU.
        let (fresh, computing) = match was_in_the_way {
            true => {
                (passed.min(FRESH_NS as i64), (passed - FRESH_NS as i64).clamp(0, TIME_SLICE.as_nanos() as i64))
            }
            false => (0, passed),
        };
        let saved = earned(self.saved_ns.load(Relaxed) - fresh, computing);
        self.saved_ns.store(saved, Relaxed);
        saved > 0
    }

    /// Returns, to the monitor, the time in ns when the goroutine of that switch began to run, if it is known.
    pub(crate) fn started_ns(&self, switch: u64) -> Option<u64> {
        (self.settled_switch.load(Relaxed) == switch).then(|| self.settled_ns.load(Relaxed))
    }

    /// Returns, to the monitor, in how many ns a goroutine that has computed for `ran_ns` may be interrupted for a
    /// fresh one.
    pub(crate) fn worth_in_ns(&self, ran_ns: u64) -> u64 {
        let missing = WORTH_NS - earned(self.saved_ns.load(Relaxed), ran_ns as i64);
        (missing.max(0) * (PARTS - 1)) as u64
    }
}

fn earned(saved: i64, passed: i64) -> i64 {
    (saved + passed / (PARTS - 1)).min(BURST_NS)
}

impl G {
    /// Charges an interrupted goroutine for `ran_ns` of its slice. Returns whether it is to end the slice before other
    /// computing goroutines: not if it has just become one, nor if the slice is over.
    ///
    /// The caller owns the goroutine.
    pub(crate) fn charge_slice(&self, ran_ns: u64, slice_ns: u64) -> bool {
        let before = self.slice_used.get();
        // The part used is in parts of 256, at least one.
        let used = (ran_ns.saturating_mul(256) / slice_ns.max(1)).max(1).saturating_add(u64::from(before));
        let over = used >= 256;
        self.slice_used.set(if over { 1 } else { used as u8 });
        before != 0 && !over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_first_and_then_one_part_of_the_time() {
        let credit = Credit::new();
        let mut now = 1_000_000_000;
        let mut is_fresh = credit.settle(now, 1, false);
        let (mut fresh, mut computing) = (0, 0);
        for _ in 0..100_000 {
            now += 100_000;
            is_fresh = credit.settle(now, 1, is_fresh);
            *(if is_fresh { &mut fresh } else { &mut computing }) += 1;
        }
        let ratio = f64::from(computing) / f64::from(fresh);
        let due = (PARTS - 1) as f64;
        assert!((0.95 * due..1.05 * due).contains(&ratio), "{computing} / {fresh}");
    }

    /// One that has just become a computing goroutine goes to the back, and so does one whose slice is over.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn an_interrupted_goroutine_ends_its_slice_before_others() {
        const SLICE_NS: u64 = 1_000;
        crate::Runtime::builder().procs(1).build().expect("a runtime").run(|| {
            let running = crate::sched::run::current::Running::enter().expect("a goroutine");
            let g = running.g();
            g.slice_used.set(0);
            let goes_first = [300, 300, 300, 300, 300].map(|ran_ns| g.charge_slice(ran_ns, SLICE_NS));
            assert_eq!(goes_first, [false, true, true, false, true]);
            g.slice_used.set(0);
            assert!(!g.charge_slice(SLICE_NS, SLICE_NS));
        });
    }

    /// A thread that had no CPU for a second, with a fresh goroutine, earns no more than a slice does.
    #[test]
    fn a_thread_without_a_cpu_earns_a_slice_at_most() {
        let credit = Credit::new();
        let mut now = 1_000_000_000;
        while credit.settle(now, 1, true) {
            now += FRESH_NS;
        }
        let spent = credit.saved_ns.load(Relaxed);
        credit.settle(now + 1_000_000_000, 1, true);
        let most = TIME_SLICE.as_nanos() as i64 / (PARTS - 1);
        assert!((1..=most).contains(&(credit.saved_ns.load(Relaxed) - spent)));
    }

    #[test]
    fn what_is_saved_is_bounded() {
        let credit = Credit::new();
        assert!(credit.settle(1, 1, false));
        assert!(credit.settle(3_600_000_000_000, 1, false));
        // All of it is spent, in pieces that are fresh goroutines' runs.
        let mut now = 3_600_000_000_000;
        let mut runs = 0;
        while credit.settle(now, 1, true) {
            now += FRESH_NS;
            runs += 1;
        }
        assert_eq!(runs, BURST_NS as u64 / FRESH_NS);
        let wait = credit.worth_in_ns(0);
        assert!(credit.worth_in_ns(wait) == 0 && credit.worth_in_ns(wait / 2) > 0);
    }
}
