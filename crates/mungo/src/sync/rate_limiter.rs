//! Limits a rate, in operations per second.

use crate::context::{Context, ContextError};
use crate::sched::run::lock::Lock;
use crate::sys::clock;
use std::fmt;
use std::time::{Duration, Instant};

/// Parts of a nanosecond that time is counted in, so that rates above a billion a second are exact enough.
const PARTS: u128 = 1 << 20;

/// Lets things happen at a rate: Go's `rate.Limiter`, a token bucket.
///
/// The bucket holds `burst` tokens and is full at first; it fills at the rate. Each caller takes a token, and waits for
/// one if there is none. Callers are served in the order in which they came; while they wait they cost no thread and
/// hold no lock.
///
/// ```
/// use mungo::sync::RateLimiter;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let limiter = RateLimiter::new(1000.0, 5); // 1000 a second, 5 at once
/// (0..15).for_each(|_| limiter.wait());
/// assert!(start.elapsed() >= Duration::from_millis(10)); // 5 at once, then one a millisecond
/// ```
///
/// With a context: [`wait_with`](Self::wait_with). Several tokens at once: [`wait_many`](Self::wait_many).
#[doc(alias("throttle", "token bucket"))]
pub struct RateLimiter {
    /// Time that one token takes, in parts.
    per_token: u128,
    /// Time that the whole bucket takes, in parts.
    whole: u128,
    burst: u32,
    /// The time at which the bucket will be full, in parts of the clock. In the past: it is.
    full_at: Lock<u128>,
}

/// Tokens of a [`RateLimiter`] that are the caller's from a moment on: see [`RateLimiter::reserve`].
///
/// ```
/// let limiter = mungo::sync::RateLimiter::new(1.0, 1);
/// assert!(limiter.reserve(1).delay().is_zero());
/// let next = limiter.reserve(1);
/// assert!(!next.delay().is_zero());
/// next.cancel();
/// ```
#[derive(Debug)]
#[must_use = "the tokens are taken; `cancel` gives them back"]
pub struct Reservation<'a> {
    limiter: &'a RateLimiter,
    tokens: u32,
    /// The time at which they are the caller's, in ns of the clock.
    at_ns: u64,
}

impl RateLimiter {
    /// Makes a limiter of `rate` tokens a second, and `burst` at once.
    ///
    /// ```
    /// let limiter = mungo::sync::RateLimiter::new(0.5, 2);
    /// assert!(limiter.try_acquire() && limiter.try_acquire() && !limiter.try_acquire());
    /// ```
    ///
    /// # Panics
    /// If `rate` is not a positive number, or `burst` is 0.
    #[must_use]
    pub fn new(rate: f64, burst: u32) -> RateLimiter {
        assert!(rate > 0.0 && rate.is_finite(), "RateLimiter: a rate of {rate} a second");
        RateLimiter::make((1e9 / rate * PARTS as f64) as u128, burst)
    }

    /// Makes a limiter of one token each `period`, and `burst` at once: Go's `rate.Every`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let hourly = mungo::sync::RateLimiter::every(Duration::from_secs(3600), 1);
    /// assert!(hourly.try_acquire() && !hourly.try_acquire());
    /// ```
    ///
    /// # Panics
    /// If `period` is zero, or `burst` is 0.
    #[must_use]
    pub fn every(period: Duration, burst: u32) -> RateLimiter {
        assert!(!period.is_zero(), "RateLimiter: a period of zero");
        RateLimiter::make(period.as_nanos().saturating_mul(PARTS), burst)
    }

    fn make(per_token: u128, burst: u32) -> RateLimiter {
        assert!(burst > 0, "RateLimiter: a burst of 0 lets nothing through");
        // Bounded so that sums of reservations cannot overflow: a token takes at most 584 years.
        let per_token = per_token.clamp(1, u128::from(u64::MAX) * PARTS);
        let whole = per_token * u128::from(burst);
        RateLimiter { per_token, whole, burst, full_at: Lock::new(0) }
    }

    /// Takes a token, and waits for it.
    ///
    /// ```
    /// let limiter = mungo::sync::RateLimiter::new(1e6, 1);
    /// (0..10).for_each(|_| limiter.wait());
    /// ```
    pub fn wait(&self) {
        self.wait_many(1);
    }

    /// Takes `n` tokens, and waits for them: Go's `WaitN`. `n` may be more than the burst; it then takes the longer.
    ///
    /// ```
    /// let bytes = mungo::sync::RateLimiter::new(1e9, 1500); // a gigabyte a second, a packet at once
    /// bytes.wait_many(1500);
    /// bytes.wait_many(9000);
    /// ```
    pub fn wait_many(&self, n: u32) {
        self.reserve(n).wait();
    }

    /// Takes a token, unless the context is done first. If its deadline is before the token's time, this fails at once
    /// and takes none.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    /// use mungo::sync::RateLimiter;
    /// use std::time::Duration;
    ///
    /// let limiter = RateLimiter::new(0.001, 1);
    /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_secs(10));
    /// assert_eq!(limiter.wait_with(&ctx), Ok(()));
    /// assert_eq!(limiter.wait_with(&ctx), Err(ContextError::DeadlineExceeded)); // at once
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done, or would be.
    pub fn wait_with(&self, ctx: &Context) -> Result<(), ContextError> {
        self.wait_many_with(ctx, 1)
    }

    /// Takes `n` tokens, unless the context is done first: as [`wait_with`](Self::wait_with) and
    /// [`wait_many`](Self::wait_many).
    ///
    /// ```
    /// use mungo::context::Context;
    /// use std::time::Duration;
    ///
    /// let limiter = mungo::sync::RateLimiter::new(1.0, 10);
    /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_secs(5));
    /// assert!(limiter.wait_many_with(&ctx, 100).is_err()); // they take 90 s
    /// assert!(limiter.wait_many_with(&ctx, 10).is_ok());
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done, or would be. No token is taken then.
    pub fn wait_many_with(&self, ctx: &Context, n: u32) -> Result<(), ContextError> {
        ctx.check()?;
        let reservation = self.reserve(n);
        let delay = reservation.delay();
        let late = match (ctx.deadline(), Instant::now().checked_add(delay)) {
            (Some(deadline), Some(there)) => deadline < there,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let waited = if late { Err(ContextError::DeadlineExceeded) } else { ctx.sleep(delay) };
        if waited.is_err() {
            reservation.cancel();
        }
        waited
    }

    /// Takes a token if there is one now.
    ///
    /// ```
    /// let limiter = mungo::sync::RateLimiter::new(1.0, 1);
    /// assert!(limiter.try_acquire());
    /// assert!(!limiter.try_acquire());
    /// ```
    pub fn try_acquire(&self) -> bool {
        self.try_acquire_many(1)
    }

    /// Takes `n` tokens if all of them are there now: Go's `AllowN`.
    ///
    /// ```
    /// let limiter = mungo::sync::RateLimiter::new(0.001, 5);
    /// assert!(limiter.try_acquire_many(3));
    /// assert!(!limiter.try_acquire_many(3)); // two are left
    /// assert!(limiter.try_acquire_many(2));
    /// ```
    pub fn try_acquire_many(&self, n: u32) -> bool {
        let now = u128::from(clock::now_ns()) * PARTS;
        let mut full_at = self.full_at.lock();
        let after = (*full_at).max(now).saturating_add(self.per_token * u128::from(n));
        let is_there = after <= now + self.whole;
        if is_there {
            *full_at = after;
        }
        is_there
    }

    /// Takes `n` tokens, and says when they are there: for callers that have something else to do meanwhile. `n` may be
    /// more than the burst; it then takes the longer.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let limiter = mungo::sync::RateLimiter::new(1000.0, 10);
    /// assert!(limiter.reserve(10).delay().is_zero());
    /// let next = limiter.reserve(5).delay();
    /// assert!(next <= Duration::from_millis(5));
    /// ```
    pub fn reserve(&self, n: u32) -> Reservation<'_> {
        let now = u128::from(clock::now_ns()) * PARTS;
        let mut full_at = self.full_at.lock();
        let after = (*full_at).max(now).saturating_add(self.per_token * u128::from(n));
        *full_at = after;
        drop(full_at);
        let at_ns = u64::try_from(after.saturating_sub(self.whole).div_ceil(PARTS)).unwrap_or(u64::MAX);
        Reservation { limiter: self, tokens: n, at_ns }
    }

    /// Returns the number of tokens that are taken at once at the most.
    ///
    /// ```
    /// assert_eq!(mungo::sync::RateLimiter::new(1.0, 3).burst(), 3);
    /// ```
    pub fn burst(&self) -> u32 {
        self.burst
    }
}

impl Reservation<'_> {
    /// Returns the time until the tokens are the caller's; zero: they are.
    ///
    /// ```
    /// let limiter = mungo::sync::RateLimiter::new(1.0, 1);
    /// assert!(limiter.reserve(1).delay().is_zero(), "at once");
    /// assert!(limiter.reserve(1).delay() > std::time::Duration::from_millis(100), "a second later");
    /// ```
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.at_ns.saturating_sub(clock::now_ns()))
    }

    /// Sleeps until the tokens are the caller's.
    ///
    /// ```
    /// mungo::sync::RateLimiter::new(1e6, 1).reserve(3).wait();
    /// ```
    pub fn wait(self) {
        let delay = self.delay();
        if !delay.is_zero() {
            crate::time::sleep(delay);
        }
    }

    /// Gives the tokens back, if their time has not come. Reservations that were made after it keep their times; later
    /// ones come earlier.
    ///
    /// ```
    /// let limiter = mungo::sync::RateLimiter::new(0.01, 1);
    /// limiter.wait();
    /// let (first, second) = (limiter.reserve(1), limiter.reserve(1));
    /// assert!(second.delay() > first.delay());
    /// first.cancel();
    /// second.cancel();
    /// assert!(limiter.reserve(1).delay().as_secs() <= 100);
    /// ```
    pub fn cancel(self) {
        if self.delay().is_zero() {
            return;
        }
        let mut full_at = self.limiter.full_at.lock();
        *full_at = full_at.saturating_sub(self.limiter.per_token * u128::from(self.tokens));
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = Duration::from_nanos(u64::try_from(self.per_token / PARTS).unwrap_or(u64::MAX));
        f.debug_struct("RateLimiter")
            .field("period", &period)
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}
