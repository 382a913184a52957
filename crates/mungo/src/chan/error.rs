//! What can go wrong, name for name as in crossbeam-channel.

use std::error::Error;
use std::fmt;

/// The value could not be sent: the channel is disconnected. The value comes back.
///
/// ```
/// use mungo::chan::{SendError, bounded};
///
/// let (tx, rx) = bounded(1);
/// drop(rx);
/// assert_eq!(tx.send(7), Err(SendError(7)));
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// The reason why [`try_send`](crate::chan::Sender::try_send) did not send.
///
/// ```
/// use mungo::chan::{TrySendError, bounded};
///
/// let (tx, rx) = bounded(1);
/// tx.send(1).unwrap();
/// assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
/// drop(rx);
/// assert!(tx.try_send(3).unwrap_err().is_disconnected());
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum TrySendError<T> {
    /// There is no place, and no receiver waits.
    Full(T),
    /// No receiver will ever receive it.
    Disconnected(T),
}

/// The reason why [`send_timeout`](crate::chan::Sender::send_timeout) and
/// [`send_deadline`](crate::chan::Sender::send_deadline) did not send.
///
/// ```
/// use mungo::chan::{SendTimeoutError, bounded};
/// use std::time::Duration;
///
/// let (tx, _rx) = bounded(0);
/// assert_eq!(tx.send_timeout(1, Duration::from_millis(1)), Err(SendTimeoutError::Timeout(1)));
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The time was over before there was a place or a receiver.
    Timeout(T),
    /// No receiver will ever receive it.
    Disconnected(T),
}

/// There is nothing to receive, and there never will be: the channel is empty and disconnected.
///
/// ```
/// use mungo::chan::{RecvError, bounded};
///
/// let (tx, rx) = bounded::<i32>(1);
/// drop(tx);
/// assert_eq!(rx.recv(), Err(RecvError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct RecvError;

/// The reason why [`try_recv`](crate::chan::Receiver::try_recv) has no value.
///
/// ```
/// use mungo::chan::{TryRecvError, bounded};
///
/// let (tx, rx) = bounded::<i32>(1);
/// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
/// drop(tx);
/// assert!(rx.try_recv().unwrap_err().is_disconnected());
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryRecvError {
    /// There is none now.
    Empty,
    /// There never will be one.
    Disconnected,
}

/// The reason why [`recv_timeout`](crate::chan::Receiver::recv_timeout) and
/// [`recv_deadline`](crate::chan::Receiver::recv_deadline) have no value.
///
/// ```
/// use mungo::chan::{RecvTimeoutError, bounded};
/// use std::time::Duration;
///
/// let (_tx, rx) = bounded::<i32>(1);
/// assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// The time was over before one came.
    Timeout,
    /// There never will be one.
    Disconnected,
}

/// None of the operations could go on: [`Select::try_select`](crate::chan::Select::try_select).
///
/// ```
/// use mungo::chan::{Select, TrySelectError, bounded};
///
/// let (_tx, rx) = bounded::<i32>(1);
/// let mut select = Select::new();
/// select.recv(&rx);
/// assert_eq!(select.try_select().unwrap_err(), TrySelectError);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// None of the operations could go on in time: [`Select::select_timeout`](crate::chan::Select::select_timeout).
///
/// ```
/// use mungo::chan::{Select, SelectTimeoutError, bounded};
/// use std::time::Duration;
///
/// let (_tx, rx) = bounded::<i32>(1);
/// let mut select = Select::new();
/// select.recv(&rx);
/// assert_eq!(select.select_timeout(Duration::from_millis(1)).unwrap_err(), SelectTimeoutError);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// None of the operations is ready: [`Select::try_ready`](crate::chan::Select::try_ready).
///
/// ```
/// use mungo::chan::{Select, TryReadyError, bounded};
///
/// let (_tx, rx) = bounded::<i32>(1);
/// let mut select = Select::new();
/// select.recv(&rx);
/// assert_eq!(select.try_ready(), Err(TryReadyError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// None of the operations became ready in time: [`Select::ready_timeout`](crate::chan::Select::ready_timeout).
///
/// ```
/// use mungo::chan::{ReadyTimeoutError, Select, bounded};
/// use std::time::Duration;
///
/// let (_tx, rx) = bounded::<i32>(1);
/// let mut select = Select::new();
/// select.recv(&rx);
/// assert_eq!(select.ready_timeout(Duration::from_millis(1)), Err(ReadyTimeoutError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

/// The channel was closed before: [`Sender::close`](crate::chan::Sender::close).
///
/// ```
/// use mungo::chan::{CloseError, bounded};
///
/// let (tx, _rx) = bounded::<i32>(1);
/// assert_eq!(tx.close(), Ok(()));
/// assert_eq!(tx.close(), Err(CloseError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct CloseError;

const DISCONNECTED: &str = "the channel is disconnected";

impl<T> SendError<T> {
    /// Returns the value that was not sent.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded(1);
    /// drop(rx);
    /// assert_eq!(tx.send("back").unwrap_err().into_inner(), "back");
    /// ```
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// Returns the value that was not sent.
    ///
    /// ```
    /// let (tx, _rx) = mungo::chan::bounded(0);
    /// assert_eq!(tx.try_send("back").unwrap_err().into_inner(), "back");
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(value) | TrySendError::Disconnected(value) => value,
        }
    }

    /// Returns whether the send would have had to wait.
    ///
    /// ```
    /// let (tx, _rx) = mungo::chan::bounded(0);
    /// assert!(tx.try_send(1).unwrap_err().is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Returns whether waiting would not help.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded(1);
    /// drop(rx);
    /// assert!(tx.try_send(1).unwrap_err().is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TrySendError::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// Returns the value that was not sent.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (tx, _rx) = mungo::chan::bounded(0);
    /// assert_eq!(tx.send_timeout("back", Duration::ZERO).unwrap_err().into_inner(), "back");
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(value) | SendTimeoutError::Disconnected(value) => value,
        }
    }

    /// Returns whether the time was over.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (tx, _rx) = mungo::chan::bounded(0);
    /// assert!(tx.send_timeout(1, Duration::ZERO).unwrap_err().is_timeout());
    /// ```
    pub fn is_timeout(&self) -> bool {
        matches!(self, SendTimeoutError::Timeout(_))
    }

    /// Returns whether waiting longer would not help.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (tx, rx) = mungo::chan::bounded(0);
    /// drop(rx);
    /// assert!(tx.send_timeout(1, Duration::MAX).unwrap_err().is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, SendTimeoutError::Disconnected(_))
    }
}

impl TryRecvError {
    /// Returns whether there is no value now.
    ///
    /// ```
    /// let (_tx, rx) = mungo::chan::bounded::<i32>(1);
    /// assert!(rx.try_recv().unwrap_err().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        *self == TryRecvError::Empty
    }

    /// Returns whether there never will be a value.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded::<i32>(1);
    /// drop(tx);
    /// assert!(rx.try_recv().unwrap_err().is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        *self == TryRecvError::Disconnected
    }
}

impl RecvTimeoutError {
    /// Returns whether the time was over.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (_tx, rx) = mungo::chan::bounded::<i32>(1);
    /// assert!(rx.recv_timeout(Duration::ZERO).unwrap_err().is_timeout());
    /// ```
    pub fn is_timeout(&self) -> bool {
        *self == RecvTimeoutError::Timeout
    }

    /// Returns whether there never will be a value.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (tx, rx) = mungo::chan::bounded::<i32>(1);
    /// drop(tx);
    /// assert!(rx.recv_timeout(Duration::MAX).unwrap_err().is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        *self == RecvTimeoutError::Disconnected
    }
}

impl<T> From<SendError<T>> for TrySendError<T> {
    fn from(e: SendError<T>) -> Self {
        TrySendError::Disconnected(e.0)
    }
}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(e: SendError<T>) -> Self {
        SendTimeoutError::Disconnected(e.0)
    }
}

impl From<RecvError> for TryRecvError {
    fn from(_: RecvError) -> Self {
        TryRecvError::Disconnected
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(_: RecvError) -> Self {
        RecvTimeoutError::Disconnected
    }
}

// The values are not shown: they need not be `Debug`.

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() { "Full(..)" } else { "Disconnected(..)" })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_timeout() { "Timeout(..)" } else { "Disconnected(..)" })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DISCONNECTED)
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() { "the channel is full" } else { DISCONNECTED })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_timeout() { "the channel had no room in time" } else { DISCONNECTED })
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is empty and disconnected")
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryRecvError::Empty => f.write_str("the channel is empty"),
            TryRecvError::Disconnected => RecvError.fmt(f),
        }
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvTimeoutError::Timeout => f.write_str("no value came in time"),
            RecvTimeoutError::Disconnected => RecvError.fmt(f),
        }
    }
}

impl fmt::Display for TrySelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("every operation would block")
    }
}

impl fmt::Display for SelectTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no operation could go on in time")
    }
}

impl fmt::Display for TryReadyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no operation is ready")
    }
}

impl fmt::Display for ReadyTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no operation became ready in time")
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel was closed before")
    }
}

impl<T: Send> Error for SendError<T> {}
impl<T: Send> Error for TrySendError<T> {}
impl<T: Send> Error for SendTimeoutError<T> {}
impl Error for RecvError {}
impl Error for TryRecvError {}
impl Error for RecvTimeoutError {}
impl Error for TrySelectError {}
impl Error for SelectTimeoutError {}
impl Error for TryReadyError {}
impl Error for ReadyTimeoutError {}
impl Error for CloseError {}
