//! The sending handle.

use super::channel::{Chan, Side};
use super::core::Limit;
use super::error::{CloseError, SendError, SendTimeoutError, TrySendError};
use crate::sched::run::park::Entered;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// The side of a channel that values go into. Clones share the channel.
///
/// When the last sender is dropped, or one of them [closes](Sender::close) the channel, receivers get what was sent
/// before, and then see that the channel is disconnected.
///
/// ```
/// let (tx, rx) = mungo::chan::unbounded();
/// for i in 0..3 {
///     let tx = tx.clone();
///     mungo::go(move || tx.send(i).unwrap());
/// }
/// drop(tx);
/// assert_eq!(rx.iter().sum::<i32>(), 3);
/// ```
pub struct Sender<T> {
    chan: NonNull<Chan<T>>,
    values: PhantomData<T>,
}

// SAFETY: what is shared is guarded by the channel's lock or atomic; values cross threads.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Sender<T> {}
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Makes a sender that takes over one handle of the sending side.
    pub(super) unsafe fn from_counted(chan: NonNull<Chan<T>>) -> Sender<T> {
        Sender { chan, values: PhantomData }
    }

    #[inline]
    pub(super) fn chan(&self) -> &Chan<T> {
        // SAFETY: a handle keeps it alive.
        unsafe { self.chan.as_ref() }
    }

    /// Sends a value; blocks while the channel is full. A channel without a buffer is always full: its values go
    /// straight to a receiver.
    ///
    /// # Errors
    /// Returns the value, if all receivers are gone or the channel was closed, before or while it waited.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded(0);
    /// mungo::go(move || tx.send("hello").unwrap());
    /// assert_eq!(rx.recv(), Ok("hello"));
    /// ```
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        match self.chan().send(value, Limit::Forever) {
            Ok(()) => Ok(()),
            Err(e) => Err(SendError(e.into_inner())),
        }
    }

    /// Sends a value if that needs no waiting: there is a place, or a receiver waits.
    ///
    /// # Errors
    /// Returns the value, and which of the two it was: full or disconnected.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded(1);
    /// assert_eq!(tx.try_send(1), Ok(()));
    /// assert!(tx.try_send(2).unwrap_err().is_full());
    /// assert_eq!(rx.recv(), Ok(1));
    /// ```
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.chan().try_send(value)
    }

    /// As [`send`](Self::send), for at most `timeout`.
    ///
    /// # Errors
    /// Returns the value, and which of the two it was: the time or a disconnected channel.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (tx, _rx) = mungo::chan::bounded(0);
    /// assert!(tx.send_timeout(1, Duration::from_millis(2)).unwrap_err().is_timeout());
    /// ```
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.chan().send(value, Limit::For(timeout))
    }

    /// As [`send`](Self::send), at most until `deadline`.
    ///
    /// # Errors
    /// As [`send_timeout`](Self::send_timeout).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let (tx, _rx) = mungo::chan::bounded(0);
    /// let deadline = Instant::now() + Duration::from_millis(2);
    /// assert!(tx.send_deadline(1, deadline).unwrap_err().is_timeout());
    /// assert!(Instant::now() >= deadline);
    /// ```
    pub fn send_deadline(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.chan().send(value, Limit::Until(deadline))
    }

    /// Closes the channel, as Go's `close`. Receivers get what is in the channel and then see it disconnected; senders
    /// that wait get their values back, and so do later ones.
    ///
    /// Dropping the last sender does the same.
    ///
    /// # Errors
    /// Fails if the channel was closed before.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded(2);
    /// tx.send(1).unwrap();
    /// assert!(tx.close().is_ok());
    /// assert!(tx.send(2).is_err());
    /// assert!(tx.close().is_err());
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), [1]);
    /// ```
    pub fn close(&self) -> Result<(), CloseError> {
        if self.chan().core.close() { Ok(()) } else { Err(CloseError) }
    }

    /// Returns whether nothing waits to be received. Always `true` for a channel without a buffer.
    ///
    /// ```
    /// let (tx, _rx) = mungo::chan::unbounded();
    /// assert!(tx.is_empty());
    /// tx.send(1).unwrap();
    /// assert!(!tx.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether there is no place. Always `true` for a channel without a buffer.
    ///
    /// ```
    /// let (tx, _rx) = mungo::chan::bounded(1);
    /// assert!(!tx.is_full());
    /// tx.send(1).unwrap();
    /// assert!(tx.is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        self.chan().core.is_full()
    }

    /// Returns how many values wait to be received.
    ///
    /// ```
    /// let (tx, _rx) = mungo::chan::unbounded();
    /// tx.send(1).unwrap();
    /// assert_eq!(tx.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.chan().core.lock(&Entered::now()).len
    }

    /// Returns how many places the buffer has; `None`: there is no limit.
    ///
    /// ```
    /// assert_eq!(mungo::chan::bounded::<i32>(5).0.capacity(), Some(5));
    /// assert_eq!(mungo::chan::unbounded::<i32>().0.capacity(), None);
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.chan().core.capacity()
    }

    /// Returns whether both send to one channel.
    ///
    /// ```
    /// let (tx, _rx) = mungo::chan::unbounded::<i32>();
    /// assert!(tx.same_channel(&tx.clone()));
    /// assert!(!tx.same_channel(&mungo::chan::unbounded().0));
    /// ```
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        self.chan == other.chan
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.chan().acquire(Side::Senders);
        Sender { chan: self.chan, values: PhantomData }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // SAFETY: our handle, which ends here.
        unsafe { Chan::release(self.chan, Side::Senders) }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Sender { .. }")
    }
}
