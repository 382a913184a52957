//! One event in the future, which can be put off or called off.

use crate::chan::{Receiver, Sender, bounded};
use crate::sched::run::lock::Lock;
use crate::sched::timers::alarm::{self, Alarm, Alarmed, Here};
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

/// The part that [`Timer`] and [`Ticker`](super::Ticker) have in common.
pub(super) struct Core {
    alarm: Alarm,
    state: Lock<State>,
    tx: Sender<Instant>,
    rx: Receiver<Instant>,
}

struct State {
    /// The time when it is due, in ns; `None`: not active.
    when_ns: Option<u64>,
    /// Time in ns between two beats; 0: it goes off once.
    period_ns: u64,
    /// Number of alarms that went off too late to be called off, and do not count.
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

    /// Makes it as if it had never been active. Returns whether it was, or its value had not been taken.
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

    /// Disconnects the channel: its owner is gone; receivers may be left.
    pub(super) fn end(&self) {
        self.stop();
        _ = self.tx.close();
    }

    /// Sets it to `when_ns`; `u64::MAX`: never. Returns what [`stop`](super::Timer::stop) would.
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
    /// Makes a timer that goes off after `d`. With a `d` beyond the end of time: never.
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

    /// Makes a timer that goes off at `when`.
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

    /// Returns the receiver of its value, the time when it went off. Clones of it are as good.
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

    /// Stops it. Returns `true` if it was active, or its value was not received and never will be; `false` if it had
    /// stopped or its value was received.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Six beats and a half late: one comes at once, the others not at all.
    #[test]
    fn missed_beats_do_not_come_later() {
        let now_ns = clock::now_ns();
        let period_ns = now_ns / 8;
        let core = Core::new(0);
        core.reset(now_ns - 6 * period_ns - period_ns / 2, period_ns);
        core.c().recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(core.c().recv_timeout(Duration::from_millis(20)).is_err());
        let next_ns = core.state.lock().when_ns.unwrap();
        assert!(next_ns > now_ns && (next_ns - now_ns).abs_diff(period_ns / 2) <= 8, "out of step");
        core.end();
    }

    /// An alarm that went off while it was called off does not count, and the next one does.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn an_alarm_that_comes_too_late_is_left_out_once() {
        let runtime = crate::Runtime::builder().procs(1).build().unwrap();
        let core = Core::new(0);
        let set = |after: Duration| {
            let core = core.clone();
            runtime.run(move || core.reset(clock::after_ns(after), 0))
        };
        assert!(!set(Duration::from_millis(50)));
        let mut state = core.state.lock();
        let start = Instant::now();
        while state.when_ns.is_some() && runtime.shared().all_ps().any(|p| p.timers.len() != 0) {
            assert!(start.elapsed().as_secs() < 60, "it does not go off");
            std::thread::yield_now();
        }
        // The alarm is on its way, and waits for the lock.
        core.clear(&mut state);
        assert_eq!(state.stale, 1);
        drop(state);
        set(Duration::from_millis(1));
        core.c().recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(core.state.lock().stale, 0);
        core.end();
    }
}
