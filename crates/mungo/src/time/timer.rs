//! One event in the future, which can be put off or called off.

use super::alarm::{self, Alarm, Alarmed, Here};
use crate::chan::{Receiver, Sender, bounded};
use crate::lock::Lock;
use crate::sys::clock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A single event in the future: Go's `time.Timer`.
///
/// When its time has come, a value (the time) can be received from [`c`](Self::c), once. [`stop`](Self::stop) and
/// [`reset`](Self::reset) are exact: after they have returned, no value of before can be received.
///
/// For a time-out that is never put off, [`chan::after`](crate::chan::after) and `default(timeout)` in
/// [`select!`](crate::chan::select!) cost less. Dropping the timer stops it and disconnects its channel.
///
/// ```
/// use mungo::time::Timer;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let timer = Timer::new(Duration::from_secs(3600));
/// assert!(timer.reset(Duration::from_millis(2))); // it was active
/// timer.c().recv().unwrap();
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// assert!(!timer.stop()); // too late
/// ```
///
/// # Panics
/// On a plain thread, if the default runtime cannot be started.
#[derive(Debug)]
pub struct Timer {
    core: Arc<Core>,
}

/// What [`Timer`] and [`Ticker`](super::Ticker) have in common.
pub(super) struct Core {
    alarm: Alarm,
    state: Lock<State>,
    tx: Sender<Instant>,
    rx: Receiver<Instant>,
}

struct State {
    /// When it is due; `None`: not active.
    when_ns: Option<u64>,
    /// 0: it goes off once.
    period_ns: u64,
    /// Alarms that went off too late to be called off, and do not count.
    stale: u32,
}

impl Core {
    pub(super) fn new(period_ns: u64) -> Arc<Core> {
        let (tx, rx) = bounded(1);
        let state = Lock::new(State { when_ns: None, period_ns, stale: 0 });
        Arc::new(Core { alarm: Alarm::new(), state, tx, rx })
    }

    pub(super) fn c(&self) -> &Receiver<Instant> {
        &self.rx
    }

    /// Makes it as if it had never been active. `true`: it was, or its value had not been taken.
    fn clear(&self, state: &mut State) -> bool {
        let active = state.when_ns.take().is_some();
        // SAFETY: under the lock; `self` is in an `Arc` that the caller has a share of.
        if active && !unsafe { alarm::cancel(self) } {
            state.stale += 1;
        }
        let untaken = self.rx.try_recv().is_ok();
        active | untaken
    }

    pub(super) fn stop(&self) -> bool {
        self.clear(&mut self.state.lock())
    }

    /// Its owner is gone; receivers may be left.
    pub(super) fn end(&self) {
        self.stop();
        _ = self.tx.close();
    }

    /// `u64::MAX`: never.
    pub(super) fn reset(self: &Arc<Core>, when_ns: u64, period_ns: u64) -> bool {
        let mut state = self.state.lock();
        let was_active = self.clear(&mut state);
        state.period_ns = period_ns;
        if when_ns != u64::MAX {
            state.when_ns = Some(when_ns);
            // SAFETY: under the lock, and cleared above. If an old alarm is going off, its node is in no heap.
            unsafe { alarm::set(self, when_ns) };
        }
        was_active
    }
}

impl Alarmed for Core {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn ring(self: Arc<Core>, here: Here<'_>) {
        let mut state = self.state.lock();
        if state.stale > 0 {
            state.stale -= 1;
            return;
        }
        let Some(when_ns) = state.when_ns.take() else { return };
        // Under the lock, so that `stop` comes before or after. If the last value is still there, this one is lost.
        _ = self.tx.try_send(Instant::now());
        let late_ns = clock::now_ns().saturating_sub(when_ns);
        if let Some(missed) = late_ns.checked_div(state.period_ns) {
            // A beat that was missed does not come later: the next one is in the future, in step with the first.
            let next_ns = when_ns.saturating_add(state.period_ns.saturating_mul(missed + 1));
            state.when_ns = Some(next_ns);
            // SAFETY: under the lock; it has just gone off, so it is not set.
            unsafe { alarm::set_here(&self, next_ns, here) };
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("pending", &!self.rx.is_empty()).finish_non_exhaustive()
    }
}

impl Timer {
    /// A timer that goes off after `d`. With a `d` beyond the end of time: never.
    ///
    /// ```
    /// let timer = mungo::time::Timer::new(std::time::Duration::from_millis(1));
    /// assert!(timer.c().recv().is_ok());
    /// ```
    #[must_use = "dropping it stops it"]
    pub fn new(d: Duration) -> Timer {
        let timer = Timer { core: Core::new(0) };
        timer.reset(d);
        timer
    }

    /// A timer that goes off at `when`.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let when = Instant::now() + Duration::from_millis(1);
    /// assert!(mungo::time::Timer::at(when).c().recv().unwrap() >= when);
    /// ```
    #[must_use = "dropping it stops it"]
    pub fn at(when: Instant) -> Timer {
        let timer = Timer { core: Core::new(0) };
        timer.core.reset(clock::at_ns(when), 0);
        timer
    }

    /// Where its value can be received, the time when it went off. Clones of it are as good.
    ///
    /// ```
    /// use mungo::chan::select;
    ///
    /// let timer = mungo::time::Timer::new(std::time::Duration::from_millis(1));
    /// select! {
    ///     recv(timer.c()) -> when => assert!(when.is_ok()),
    /// }
    /// ```
    pub fn c(&self) -> &Receiver<Instant> {
        self.core.c()
    }

    /// Stops it. `true`: it was active, or its value was not received; then nobody will. `false`: it had stopped or
    /// its value was received.
    ///
    /// ```
    /// let timer = mungo::time::Timer::new(std::time::Duration::from_secs(3600));
    /// assert!(timer.stop());
    /// assert!(!timer.stop());
    /// assert!(timer.c().is_empty());
    /// ```
    pub fn stop(&self) -> bool {
        self.core.stop()
    }

    /// Lets it go off after `d` from now, whether or not it did before. Returns what [`stop`](Self::stop) would.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let timer = mungo::time::Timer::new(Duration::from_millis(1));
    /// timer.c().recv().unwrap();
    /// assert!(!timer.reset(Duration::from_millis(1)));
    /// timer.c().recv().unwrap();
    /// ```
    pub fn reset(&self, d: Duration) -> bool {
        self.core.reset(clock::after_ns(d), 0)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.core.end();
    }
}
