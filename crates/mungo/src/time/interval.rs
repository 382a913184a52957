//! Ticks, with a choice of what becomes of those that no receiver took in time.

use crate::chan::missed::MissedTicks;
use crate::chan::{Receiver, tick_with};
use std::time::{Duration, Instant};

/// Returns a receiver with a tick after each `period`, the time for which it was due: for `select!` and loops. The
/// first one comes after a period.
///
/// It costs neither a goroutine nor a timer while none waits. [`Ticker`](super::Ticker) can be stopped and set anew.
///
/// ```
/// use mungo::time::{MissedTicks, interval};
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let ticks = interval(Duration::from_millis(2), MissedTicks::Burst);
/// mungo::sleep(Duration::from_millis(8));
/// for n in 1..=4 {
///     let due = ticks.recv().unwrap(); // all four are there
///     assert!(due - start >= n * Duration::from_millis(2));
/// }
/// ```
///
/// # Panics
/// If `period` is zero.
pub fn interval(period: Duration, missed: MissedTicks) -> Receiver<Instant> {
    assert!(!period.is_zero(), "the period of an interval must not be zero");
    tick_with(period, missed)
}
