//! Blocking operations that end when a context is done.

use super::{Context, ContextError};
use crate::chan::{Receiver, RecvTimeoutError, Sender};
use crate::sys::clock;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The reason why [`Context::recv`] returned without a value.
///
/// ```
/// use mungo::context::{Context, ContextRecvError};
///
/// let (tx, rx) = mungo::chan::bounded::<i32>(0);
/// drop(tx);
/// assert_eq!(Context::background().recv(&rx), Err(ContextRecvError::Disconnected));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextRecvError {
    /// The context is done.
    Done(ContextError),
    /// The channel is empty and disconnected.
    Disconnected,
}

impl fmt::Display for ContextRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextRecvError::Done(e) => e.fmt(f),
            ContextRecvError::Disconnected => f.write_str("receiving on an empty and disconnected channel"),
        }
    }
}

impl std::error::Error for ContextRecvError {}

/// The reason why [`Context::send`] did not send; with the value.
///
/// ```
/// use mungo::context::{Context, ContextSendError};
///
/// let (tx, rx) = mungo::chan::bounded(0);
/// drop(rx);
/// assert_eq!(Context::background().send(&tx, 7), Err(ContextSendError::Disconnected(7)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ContextSendError<T> {
    /// The context is done.
    Done(ContextError, T),
    /// The channel is disconnected.
    Disconnected(T),
}

impl<T> ContextSendError<T> {
    /// Returns the value that was not sent.
    ///
    /// ```
    /// # use mungo::context::{Context, ContextSendError};
    /// assert_eq!(ContextSendError::Disconnected("x").into_inner(), "x");
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            ContextSendError::Done(_, value) | ContextSendError::Disconnected(value) => value,
        }
    }
}

impl<T> fmt::Debug for ContextSendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextSendError::Done(e, _) => write!(f, "Done({e:?}, ..)"),
            ContextSendError::Disconnected(_) => f.write_str("Disconnected(..)"),
        }
    }
}

impl<T> fmt::Display for ContextSendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextSendError::Done(e, _) => e.fmt(f),
            ContextSendError::Disconnected(_) => f.write_str("sending on a disconnected channel"),
        }
    }
}

impl<T> std::error::Error for ContextSendError<T> {}

impl Context {
    /// Sleeps for at least `d`, or until the context is done.
    ///
    /// ```
    /// use mungo::context::Context;
    /// use std::time::Duration;
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// assert_eq!(ctx.sleep(Duration::from_millis(1)), Ok(()));
    /// mungo::go(move || cancel.cancel());
    /// assert!(ctx.sleep(Duration::from_secs(3600)).is_err());
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done, if it is so before the time is over.
    pub fn sleep(&self, d: Duration) -> Result<(), ContextError> {
        self.check()?;
        if clock::after_ns(d) == u64::MAX {
            _ = self.done().recv();
            return self.check();
        }
        match self.done().recv_timeout(d) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => self.check(),
        }
    }

    /// Sleeps until `deadline`, or until the context is done.
    ///
    /// ```
    /// let ctx = mungo::context::Context::background();
    /// assert_eq!(ctx.sleep_until(std::time::Instant::now()), Ok(()));
    /// ```
    ///
    /// # Errors
    /// As [`sleep`](Self::sleep).
    pub fn sleep_until(&self, deadline: Instant) -> Result<(), ContextError> {
        self.check()?;
        match self.done().recv_deadline(deadline) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => self.check(),
        }
    }

    /// Receives a value, unless the context is done first. A context that is done beats a value that is there.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError, ContextRecvError};
    ///
    /// let (tx, rx) = mungo::chan::bounded(1);
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// tx.send(1).unwrap();
    /// assert_eq!(ctx.recv(&rx), Ok(1));
    /// cancel.cancel();
    /// assert_eq!(ctx.recv(&rx), Err(ContextRecvError::Done(ContextError::Canceled)));
    /// ```
    ///
    /// # Errors
    /// Fails if the context is done, or the channel disconnected.
    pub fn recv<T>(&self, from: &Receiver<T>) -> Result<T, ContextRecvError> {
        crate::select_biased! {
            recv(self.done()) -> _ => Err(ContextRecvError::Done(self.err().unwrap_or(ContextError::Canceled))),
            recv(from) -> value => value.map_err(|_| ContextRecvError::Disconnected),
        }
    }

    /// Sends a value, unless the context is done first.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError, ContextSendError};
    ///
    /// let (tx, _rx) = mungo::chan::bounded(1);
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// assert_eq!(ctx.send(&tx, 1), Ok(()));
    /// cancel.cancel();
    /// assert_eq!(ctx.send(&tx, 2), Err(ContextSendError::Done(ContextError::Canceled, 2)));
    /// ```
    ///
    /// # Errors
    /// Fails if the context is done, or the channel disconnected; returns the value.
    pub fn send<T>(&self, to: &Sender<T>, value: T) -> Result<(), ContextSendError<T>> {
        let mut value = Some(value);
        let mut take = || value.take().expect("one of the arms takes it");
        crate::select_biased! {
            recv(self.done()) -> _ => {
                Err(ContextSendError::Done(self.err().unwrap_or(ContextError::Canceled), take()))
            },
            send(to, take()) -> sent => sent.map_err(|e| ContextSendError::Disconnected(e.0)),
        }
    }

    /// Runs a future on the calling goroutine, as [`block_on`](crate::block_on()), unless the context is done first:
    /// then the future is dropped.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    /// use std::time::Duration;
    ///
    /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_secs(60));
    /// assert_eq!(ctx.block_on(async { 6 * 7 }), Ok(42));
    /// let (soon, _cancel) = ctx.with_timeout(Duration::from_millis(2));
    /// assert_eq!(soon.block_on(std::future::pending::<()>()), Err(ContextError::DeadlineExceeded));
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done.
    pub fn block_on<F: IntoFuture>(&self, future: F) -> Result<F::Output, ContextError> {
        self.check()?;
        let (mut future, mut done) = (pin!(future.into_future()), pin!(self.done().recv_async()));
        crate::block_on::block_on(poll_fn(|cx| match done.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(Err(self.err().unwrap_or(ContextError::Canceled))),
            Poll::Pending => future.as_mut().poll(cx).map(Ok),
        }))
    }
}
