//! A deadline for a piece of work.

use crate::chan::bounded;
use crate::spawn::go;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// The time of a [`timeout`] was over.
///
/// ```
/// let late = mungo::time::timeout(std::time::Duration::from_millis(1), || mungo::park()).unwrap_err();
/// assert_eq!(late.to_string(), "deadline has elapsed");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Runs `f` in a goroutine of its own and waits for it, for at most `d`.
///
/// **`f` is not cancelled** when the time is over: nothing can stop code that does not look. It goes on in the
/// background, and its result is dropped. For work that can be stopped, pass it a
/// [`Context`](crate::context::Context) with a deadline.
///
/// WHY NOT on the caller's stack: the caller could not go on while `f` still uses it.
///
/// ```
/// use mungo::time::timeout;
/// use std::time::Duration;
///
/// assert_eq!(timeout(Duration::from_secs(10), || 6 * 7), Ok(42));
/// assert!(timeout(Duration::from_millis(1), || mungo::sleep(Duration::from_secs(1))).is_err());
/// ```
///
/// # Errors
/// [`Elapsed`], if `f` has not returned in time.
///
/// # Panics
/// If `f` panicked in time, with the same payload; and as [`go`](crate::go()).
#[track_caller]
#[doc(alias("time limit"))]
pub fn timeout<F, T>(d: Duration, f: F) -> Result<T, Elapsed>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (tx, rx) = bounded(1);
    go(move || {
        let result = catch_unwind(AssertUnwindSafe(f));
        drop(tx.send(result)); // the caller has gone on: dropped here, where it was made
    });
    match rx.recv_timeout(d) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(payload)) => resume_unwind(payload),
        Err(_) => Err(Elapsed(())),
    }
}
