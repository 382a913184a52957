//! The monitor's check of the policy: a runnable goroutine runs.
//!
//! Waiting for long is not a fault in itself: with a million goroutines and two Ps it is to be expected. A fault is
//! to let a P be idle although goroutines wait, or to pass one over again and again while others are served.

use super::Engine;
use super::switch::replace_faulty;
use crate::policies::task::Task;
use crate::sched::shared::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Number of tasks that are looked at in each queue at a time; the rest have their turn later.
const AT_A_TIME: usize = 1024;
/// Number of turns that each of the queued goroutines could have had when one of them counts as passed over.
const ROUNDS: u64 = 8;
/// Number of dispatches added to that, so that a handful of goroutines does not make it a matter of microseconds.
const AT_LEAST: u64 = 1000;

/// Returns the number of dispatches at which a goroutine counts as passed over, if it is queued as the last of
/// `queued` after `dispatched` of them.
pub(crate) fn patience(dispatched: u64, queued: usize) -> u64 {
    dispatched + ROUNDS * queued as u64 + AT_LEAST
}

/// Number of times that the policy must have said that there is nothing to do. Not the number of idle Ps counts: on a
/// busy machine their threads may just not have come to ask.
const REFUSALS: u64 = 100;

/// The state that the monitor keeps between looks.
#[derive(Default)]
pub(crate) struct Watchdog {
    generation: u32,
    next_ns: u64,
    /// Time in ns since which goroutines have waited and none was served; what the counters said then.
    stalled_since_ns: u64,
    dispatched: u64,
    refusals: u64,
    /// Whether the last look found a stall too.
    suspected: bool,
    /// The place up to which each queue was looked at.
    cursors: Vec<(u64, u64)>,
}

impl Watchdog {
    /// Looks for faults, when it is time.
    pub(crate) fn look(&mut self, shared: &Shared, now: u64) {
        if !shared.policy.is_active() || now < self.next_ns {
            return;
        }
        let limit_ns = shared.config.policy_watchdog_ns;
        self.next_ns = now + (limit_ns / 4).clamp(5_000_000, 1_000_000_000);
        let Some(engine) = shared.policy.current().1 else { return };
        if self.generation != engine.generation {
            *self = Watchdog { generation: engine.generation, next_ns: self.next_ns, ..Watchdog::default() };
        }
        let limit = Duration::from_nanos(limit_ns);
        if self.is_stalled(shared, &engine, now, limit_ns) {
            let n = shared.policy.queued.load(Relaxed);
            let what = format!("it let Ps be idle for {limit:?} while {n} goroutines waited");
            replace_faulty(shared, &engine, &what);
        } else if let Some((id, waited_ns)) = self.passed_over(shared, &engine, now, limit_ns) {
            let waited = Duration::from_nanos(waited_ns);
            let what = format!(
                "goroutine {id} has waited for {waited:?} while others ran again and again (limit {limit:?})"
            );
            replace_faulty(shared, &engine, &what);
        }
    }

    fn is_stalled(&mut self, shared: &Shared, engine: &Engine, now: u64, limit_ns: u64) -> bool {
        let dispatched = engine.dispatched.load(Relaxed);
        let refusals = engine.refusals.load(Relaxed);
        if dispatched != self.dispatched || !shared.policy.has_work() || self.stalled_since_ns == 0 {
            (self.dispatched, self.refusals, self.stalled_since_ns) = (dispatched, refusals, now);
            self.suspected = false;
            return false;
        }
        let stalled = now - self.stalled_since_ns >= limit_ns && refusals - self.refusals >= REFUSALS;
        if stalled {
            self.refusals = refusals;
        }
        // Twice: the monitor itself may have kept a goroutine in hand, and the CPU have been taken from it meanwhile.
        stalled && std::mem::replace(&mut self.suspected, true)
    }

    /// Returns a goroutine that waits for too long while others are served, and for how many ns.
    fn passed_over(&mut self, shared: &Shared, engine: &Engine, now: u64, limit_ns: u64) -> Option<(u64, u64)> {
        let procs = shared.all_ps().count();
        self.cursors.resize(procs + 1, (0, 0));
        let dispatched = engine.dispatched.load(Relaxed);
        let mut found = None;
        let mut check = |task: &Task| {
            if task.is_simulated() {
                return; // its clock is another one
            }
            let node = task.node();
            let waited = now.saturating_sub(node.enqueued_ns());
            if waited >= limit_ns && dispatched >= node.patience.load(Relaxed) {
                found = Some((node.info().id, waited));
            }
        };
        let lanes = std::iter::once(&engine.global).chain(engine.lanes.iter().take(procs));
        for (lane, cursor) in lanes.zip(&mut self.cursors) {
            lane.for_some(cursor, AT_A_TIME, &mut check);
        }
        found
    }
}
