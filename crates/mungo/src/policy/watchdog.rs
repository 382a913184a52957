//! The monitor's eye on the policy: whoever is runnable runs.
//!
//! Waiting for long is not a fault in itself: with a million goroutines and two Ps it is to be expected. A fault is
//! to let a P be idle although goroutines wait, or to pass one over again and again while others are served.

use super::engine::Engine;
use super::switch::replace_faulty;
use super::task::Task;
use crate::sched::shared::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Tasks that are looked at in each queue at a time; the rest have their turn later.
const AT_A_TIME: usize = 1024;
/// A goroutine was passed over if all that are alive could have run so many times since it was queued.
const ROUNDS: u64 = 8;
/// And that many more, so that a handful of goroutines does not make it a matter of microseconds.
const AT_LEAST: u64 = 1000;

/// What the monitor remembers.
#[derive(Default)]
pub(crate) struct Watchdog {
    generation: u32,
    next_ns: u64,
    /// Since when Ps have been free while goroutines waited and none was served; 0: that is not so.
    stalled_since_ns: u64,
    dispatched: u64,
    refusals: u64,
    /// How far each queue was looked at.
    cursors: Vec<(u64, u64)>,
}

impl Watchdog {
    /// Looks, when it is time.
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
        let free = shared.counts.idle_ps() != 0 || shared.counts.spinning() != 0 || refusals != self.refusals;
        let moved = dispatched != self.dispatched;
        (self.dispatched, self.refusals) = (dispatched, refusals);
        if moved || !free || !shared.policy.has_work() {
            self.stalled_since_ns = 0;
            return false;
        }
        if self.stalled_since_ns == 0 {
            self.stalled_since_ns = now;
        }
        now - self.stalled_since_ns >= limit_ns
    }

    /// A goroutine that waits for too long while others are served, and for how long.
    fn passed_over(&mut self, shared: &Shared, engine: &Engine, now: u64, limit_ns: u64) -> Option<(u64, u64)> {
        let procs = shared.all_ps().count();
        self.cursors.resize(procs + 1, (0, 0));
        let dispatched = engine.dispatched.load(Relaxed);
        let served = ROUNDS * shared.live() + AT_LEAST;
        let mut found = None;
        let mut check = |task: &Task| {
            let node = task.node();
            let waited = now.saturating_sub(node.enqueued_ns());
            let others = dispatched.saturating_sub(node.seen_dispatches.load(Relaxed));
            if waited >= limit_ns && others >= served {
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
