//! Channels that are a clock: [`after`](super::after), [`at`](super::at), [`tick`](super::tick).
//!
//! There is no sender, no goroutine and no heap entry behind them: whether a value is there follows from the clock,
//! and a receiver that waits for one sleeps until it is due. Several may wait; one of them gets the value, the others
//! go on waiting.

use super::error::{RecvTimeoutError, TryRecvError};
use super::missed::MissedTicks;
use super::queue::Operation;
use crate::reason::WaitReason;
use crate::sched::run::park::Entered;
use crate::sched::timers::sleep::{Sleep, sleep_until_async};
use crate::sys::clock;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Bounds the time for which an operation may block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Forever,
    For(Duration),
    Until(Instant),
}

impl Limit {
    /// Returns the deadline in nanoseconds of the clock; `u64::MAX`: there is none.
    #[inline]
    pub(super) fn deadline_ns(self) -> u64 {
        match self {
            Limit::Forever => u64::MAX,
            Limit::For(d) => clock::after_ns(d),
            Limit::Until(t) => clock::at_ns(t),
        }
    }
}

/// Returns whether that time has come; `u64::MAX` never does.
pub(super) fn is_over(deadline_ns: u64) -> bool {
    deadline_ns != u64::MAX && deadline_ns <= clock::now_ns()
}

/// A value of `Timer::next_ns`: no value will come.
const SPENT: u64 = u64::MAX;

/// A clock with values.
pub(super) struct Timer {
    start: Instant,
    /// The time at which the next value is due, in ns from `start`.
    next_ns: AtomicU64,
    /// Time from one value to the next, in ns; `None`: there is one only.
    period_ns: Option<u64>,
    /// Says what becomes of values that no receiver took in time.
    missed: MissedTicks,
}

impl Timer {
    /// Makes a clock with one value, at `when`.
    pub(super) fn at(when: Instant) -> Timer {
        Timer { start: when, next_ns: AtomicU64::new(0), period_ns: None, missed: MissedTicks::Delay }
    }

    /// Makes a clock with a value after each `period`. `None`: the first one is beyond the end of time.
    pub(super) fn tick(period: Duration, missed: MissedTicks) -> Option<Timer> {
        let start = Instant::now();
        start.checked_add(period)?;
        let period_ns = u64::try_from(period.as_nanos()).ok().filter(|&ns| ns != SPENT)?;
        Some(Timer { start, next_ns: AtomicU64::new(period_ns), period_ns: Some(period_ns), missed })
    }

    fn instant(&self, ns: u64) -> Option<Instant> {
        (ns != SPENT).then(|| self.start.checked_add(Duration::from_nanos(ns))).flatten()
    }

    /// Returns when the next value is there; `None`: never.
    pub(super) fn due(&self) -> Option<Instant> {
        self.instant(self.next_ns.load(Relaxed))
    }

    /// Returns whether a value is there.
    pub(super) fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    /// Takes the value that is there. Returns the time for which it was due.
    pub(super) fn try_take(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut next = self.next_ns.load(Relaxed);
        loop {
            let due = self.instant(next).filter(|&due| due <= now)?;
            let after = self.period_ns.map_or(SPENT, |period| {
                let now_ns = u64::try_from((now - self.start).as_nanos()).unwrap_or(SPENT);
                self.missed.next_ns(next, now_ns, period)
            });
            // One taker gets it; the value is the time, so there is nothing else to order.
            match self.next_ns.compare_exchange_weak(next, after, Relaxed, Relaxed) {
                Ok(_) => return Some(due),
                Err(seen) => next = seen,
            }
        }
    }

    pub(super) fn try_recv(&self) -> Result<Instant, TryRecvError> {
        self.try_take().ok_or(TryRecvError::Empty)
    }

    /// Polls for a task: `sleep` is its own, from one poll to the next.
    pub(super) fn poll(&self, sleep: &mut Option<Sleep>, cx: &mut Context<'_>) -> Poll<Instant> {
        loop {
            if let Some(value) = self.try_take() {
                *sleep = None;
                return Poll::Ready(value);
            }
            let Some(due) = self.due() else { return Poll::Pending };
            match sleep {
                Some(sleep) => sleep.reset(due), // others may have taken a tick meanwhile
                None => *sleep = Some(sleep_until_async(due)),
            }
            if sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(cx).is_pending()) {
                return Poll::Pending;
            }
        }
    }

    pub(super) fn recv(&self, limit: Limit) -> Result<Instant, RecvTimeoutError> {
        let deadline_ns = limit.deadline_ns();
        loop {
            if let Some(value) = self.try_take() {
                return Ok(value);
            }
            let due_ns = self.due().map_or(u64::MAX, clock::at_ns);
            sleep_until(deadline_ns.min(due_ns));
            // Even if it got so late that a value is there: nothing was due before the deadline.
            if deadline_ns < due_ns {
                return Err(RecvTimeoutError::Timeout);
            }
        }
    }
}

/// Blocks the caller until `deadline_ns`; no other thread ends this wait. `u64::MAX`: for ever.
pub(super) fn sleep_until(deadline_ns: u64) {
    if is_over(deadline_ns) {
        return;
    }
    let entered = Entered::now();
    let op = Operation::current(&entered, false);
    _ = op.wait(entered, WaitReason::ChanRecv.on(0), deadline_ns);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_has_passed_is_due_once() {
        let when = Instant::now();
        let timer = Timer::at(when);
        assert!(timer.is_due());
        assert_eq!(timer.try_take(), Some(when));
        assert_eq!((timer.try_take(), timer.due(), timer.is_due()), (None, None, false));
    }

    #[test]
    fn missed_ticks_do_not_pile_up() {
        let period = Duration::from_millis(2);
        let timer = Timer::tick(period, MissedTicks::Delay).unwrap();
        let first = timer.due().unwrap();
        crate::sleep(period * 5);
        assert_eq!(timer.try_take(), Some(first));
        let now = Instant::now();
        assert!(timer.due().unwrap() > now, "the next one is a period from the take");
    }

    #[test]
    fn the_end_of_time_never_comes() {
        assert!(Timer::tick(Duration::MAX, MissedTicks::Delay).is_none());
        let late = Timer::tick(Duration::from_secs(u32::MAX.into()), MissedTicks::Delay).unwrap();
        assert!(!late.is_due());
    }
}
