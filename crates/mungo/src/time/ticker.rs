//! An event that comes again and again.

use super::timer::Core;
use crate::chan::Receiver;
use crate::sys::clock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sends a value after each period: Go's `time.Ticker`.
///
/// Beats are in step with the first one: they do not drift. A beat that was not received in time is dropped, when the
/// next one comes; [`interval`](super::interval) has other ways. [`chan::tick`](crate::chan::tick) costs less, and it
/// cannot be stopped. Dropping the ticker stops it and disconnects its channel.
///
/// ```
/// use mungo::time::Ticker;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let ticker = Ticker::new(Duration::from_millis(2));
/// for when in ticker.c().iter().take(3) {
///     assert!(when > start);
/// }
/// assert!(start.elapsed() >= Duration::from_millis(6));
/// ```
///
/// # Panics
/// On a plain thread, if the default runtime cannot be started.
#[derive(Debug)]
pub struct Ticker {
    core: Arc<Core>,
}

impl Ticker {
    /// Makes a ticker with its first beat after `period`.
    ///
    /// ```
    /// let ticker = mungo::time::Ticker::new(std::time::Duration::from_millis(1));
    /// assert!(ticker.c().recv().is_ok());
    /// ```
    ///
    /// # Panics
    /// If `period` is zero.
    #[must_use = "dropping it stops it"]
    pub fn new(period: Duration) -> Ticker {
        let ticker = Ticker { core: Core::new(0) };
        ticker.reset(period);
        ticker
    }

    /// Returns the receiver of its beats, one at a time: the time when it beat.
    ///
    /// ```
    /// let ticker = mungo::time::Ticker::new(std::time::Duration::from_millis(1));
    /// assert_eq!(ticker.c().capacity(), Some(1));
    /// ```
    pub fn c(&self) -> &Receiver<Instant> {
        self.core.c()
    }

    /// Stops it, until [`reset`](Self::reset). A beat that was not received is lost.
    ///
    /// ```
    /// let ticker = mungo::time::Ticker::new(std::time::Duration::from_millis(1));
    /// ticker.stop();
    /// assert!(ticker.c().is_empty());
    /// ```
    pub fn stop(&self) {
        self.core.stop();
    }

    /// Starts again, with the next beat after `period` from now.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let ticker = mungo::time::Ticker::new(Duration::from_secs(3600));
    /// ticker.reset(Duration::from_millis(1));
    /// ticker.c().recv().unwrap();
    /// ```
    ///
    /// # Panics
    /// If `period` is zero.
    pub fn reset(&self, period: Duration) {
        assert!(!period.is_zero(), "a ticker's period must not be zero");
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        self.core.reset(clock::after_ns(period), period_ns);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.core.end();
    }
}
