//! The two handles of a channel: what its users call.

use super::channel::{Chan, Core, Locked, Step};
use super::error::{
    CloseError, RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
use super::future::RecvWait;
use super::iter::{Iter, TryIter};
use super::make::Side;
use super::timer::{self, Limit, Timer};
use crate::sched::run::park::Entered;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};
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

/// The side of a channel that values come out of. Clones share the channel: each value goes to one of them.
///
/// When the last receiver is dropped, what was not received is dropped too, and senders see that the channel is
/// disconnected.
///
/// ```
/// let (tx, rx) = mungo::chan::unbounded();
/// let sums: Vec<_> = (0..2)
///     .map(|_| {
///         let rx = rx.clone();
///         mungo::go(move || rx.iter().sum::<u32>())
///     })
///     .collect();
/// (1..=100).for_each(|i| tx.send(i).unwrap());
/// drop(tx);
/// assert_eq!(sums.into_iter().map(|s| s.join().unwrap()).sum::<u32>(), 5050);
/// ```
pub struct Receiver<T> {
    flavor: Flavor<T>,
    values: PhantomData<T>,
}

enum Flavor<T> {
    Chan(NonNull<Chan<T>>),
    /// A clock; `T` is `Instant`: only [`Receiver::from_timer`] makes these.
    Timer(Arc<Timer>),
    Never,
}

// SAFETY: what is shared is guarded by the channel's lock or atomic; values cross threads.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl Receiver<Instant> {
    pub(super) fn from_timer(timer: Timer) -> Receiver<Instant> {
        Receiver { flavor: Flavor::Timer(Arc::new(timer)), values: PhantomData }
    }
}

/// Turns the `Instant` of a timer into the `T` that it is.
fn of_timer<T>(value: Instant) -> T {
    debug_assert_eq!(size_of::<T>(), size_of::<Instant>());
    // SAFETY: `T` is `Instant` in a receiver with a timer. An `Instant` is `Copy`.
    unsafe { std::mem::transmute_copy(&value) }
}

impl<T> Receiver<T> {
    /// Makes a receiver that takes over one handle of the receiving side.
    pub(super) unsafe fn from_counted(chan: NonNull<Chan<T>>) -> Receiver<T> {
        Receiver { flavor: Flavor::Chan(chan), values: PhantomData }
    }

    pub(super) const fn never() -> Receiver<T> {
        Receiver { flavor: Flavor::Never, values: PhantomData }
    }

    #[inline]
    fn chan(&self) -> Option<&Chan<T>> {
        match &self.flavor {
            // SAFETY: a handle keeps it alive.
            Flavor::Chan(chan) => Some(unsafe { chan.as_ref() }),
            _ => None,
        }
    }

    /// In line, and the one match for all limits. TUNED: `chan_buf procs=1`, median of 60 runs in turns: 27.3 ns a
    /// message like this, 28.5 with a match of its own in [`recv`](Self::recv), whatever its arms.
    #[inline(always)]
    fn recv_within(&self, limit: Limit) -> Result<T, RecvTimeoutError> {
        match &self.flavor {
            // SAFETY: a handle keeps it alive.
            Flavor::Chan(chan) => unsafe { chan.as_ref() }.recv(limit),
            Flavor::Timer(timer) => timer.recv(limit).map(of_timer),
            Flavor::Never => {
                let deadline_ns = limit.deadline_ns();
                timer::sleep_until(deadline_ns);
                Err(RecvTimeoutError::Timeout)
            }
        }
    }

    /// Receives the next value; blocks until there is one.
    ///
    /// # Errors
    /// Fails if the channel is empty and disconnected: all senders are gone, or one closed it.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::unbounded();
    /// mungo::go(move || tx.send(5).unwrap());
    /// assert_eq!(rx.recv(), Ok(5));
    /// assert!(rx.recv().is_err());
    /// ```
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_within(Limit::Forever).map_err(|_| RecvError)
    }

    /// Receives a value if one is there.
    ///
    /// If a sender in a `select!` is about to send, this waits for its value.
    ///
    /// # Errors
    /// Says which of the two it is: empty, or empty and disconnected.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::unbounded();
    /// assert!(rx.try_recv().unwrap_err().is_empty());
    /// tx.send(5).unwrap();
    /// assert_eq!(rx.try_recv(), Ok(5));
    /// ```
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match &self.flavor {
            // SAFETY: a handle keeps it alive.
            Flavor::Chan(chan) => unsafe { chan.as_ref() }.try_recv(),
            Flavor::Timer(timer) => timer.try_recv().map(of_timer),
            Flavor::Never => Err(TryRecvError::Empty),
        }
    }

    /// As [`recv`](Self::recv), for at most `timeout`.
    ///
    /// # Errors
    /// Says which of the two it was: the time, or a disconnected channel.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (_tx, rx) = mungo::chan::unbounded::<i32>();
    /// assert!(rx.recv_timeout(Duration::from_millis(2)).unwrap_err().is_timeout());
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_within(Limit::For(timeout))
    }

    /// As [`recv`](Self::recv), at most until `deadline`.
    ///
    /// # Errors
    /// As [`recv_timeout`](Self::recv_timeout).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let (_tx, rx) = mungo::chan::unbounded::<i32>();
    /// let deadline = Instant::now() + Duration::from_millis(2);
    /// assert!(rx.recv_deadline(deadline).unwrap_err().is_timeout());
    /// assert!(Instant::now() >= deadline);
    /// ```
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_within(Limit::Until(deadline))
    }

    /// Receives for a task, which will be woken if it has to wait.
    pub(super) fn poll_recv(
        &self,
        wait: Pin<&mut RecvWait<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, RecvError>> {
        let (task, sleep) = wait.parts();
        match &self.flavor {
            // SAFETY: a handle keeps it alive.
            Flavor::Chan(chan) => unsafe { chan.as_ref() }.poll_recv(task, cx.waker()),
            Flavor::Timer(timer) => timer.poll(sleep, cx).map(|value| Ok(of_timer(value))),
            Flavor::Never => Poll::Pending,
        }
    }

    /// Ends a task's wait.
    pub(super) fn leave(&self, wait: Pin<&mut RecvWait<T>>) {
        if let Some(chan) = self.chan() {
            chan.leave_recv(wait.parts().0);
        }
    }

    /// Returns whether no value is there. Always `true` for a channel without a buffer.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::unbounded();
    /// assert!(rx.is_empty());
    /// tx.send(1).unwrap();
    /// assert!(!rx.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether there is no place for another value. Always `true` for a channel without a buffer.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded(1);
    /// assert!(!rx.is_full());
    /// tx.send(1).unwrap();
    /// assert!(rx.is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        match &self.flavor {
            Flavor::Chan(_) => self.chan().is_some_and(|chan| chan.core.is_full()),
            Flavor::Timer(timer) => timer.is_due(),
            Flavor::Never => true,
        }
    }

    /// Returns how many values are there.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::unbounded();
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        match &self.flavor {
            Flavor::Chan(_) => self.chan().map_or(0, |chan| chan.core.lock(&Entered::now()).len),
            Flavor::Timer(timer) => usize::from(timer.is_due()),
            Flavor::Never => 0,
        }
    }

    /// Returns how many places the buffer has; `None`: there is no limit.
    ///
    /// ```
    /// assert_eq!(mungo::chan::bounded::<i32>(5).1.capacity(), Some(5));
    /// assert_eq!(mungo::chan::never::<i32>().capacity(), Some(0));
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        match &self.flavor {
            Flavor::Chan(_) => self.chan().and_then(|chan| chan.core.capacity()),
            Flavor::Timer(_) => Some(1),
            Flavor::Never => Some(0),
        }
    }

    /// Iterates over values as they are received, until the channel is empty and disconnected. Blocks between values.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded(0);
    /// mungo::go(move || (0..3).for_each(|i| tx.send(i).unwrap()));
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), [0, 1, 2]);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Iterates over the values that are there. Never blocks.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::unbounded();
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.try_iter().collect::<Vec<_>>(), [1]);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// Returns whether both receive from one channel.
    ///
    /// ```
    /// let (_tx, rx) = mungo::chan::unbounded::<i32>();
    /// assert!(rx.same_channel(&rx.clone()));
    /// assert!(!rx.same_channel(&mungo::chan::never()));
    /// ```
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        match (&self.flavor, &other.flavor) {
            (Flavor::Chan(a), Flavor::Chan(b)) => a == b,
            (Flavor::Timer(a), Flavor::Timer(b)) => Arc::ptr_eq(a, b),
            (Flavor::Never, Flavor::Never) => true,
            _ => false,
        }
    }
}

/// A receiver as a select sees it, without its type.
pub(crate) trait Port {
    /// Returns the channel; `None`: it is a timer, or never has a value.
    fn core(&self) -> Option<&Core>;

    /// Returns when the next value of a timer is due. `None`: never, or it is a channel.
    fn due(&self) -> Option<Instant>;

    /// Moves the value of a timer to `slot`, if it is due. Returns whether it did.
    ///
    /// # Safety
    /// `slot` has room for a value of this receiver.
    unsafe fn take_due(&self, slot: *mut ()) -> bool;

    /// Moves the next value to `slot`.
    ///
    /// # Safety
    /// `slot` has room for a value of this receiver, and `locked` is its core's.
    unsafe fn take_locked(&self, locked: &mut Locked<'_>, slot: *mut ()) -> Step;
}

impl<T> Port for Receiver<T> {
    #[inline]
    fn core(&self) -> Option<&Core> {
        self.chan().map(|chan| &chan.core)
    }

    fn due(&self) -> Option<Instant> {
        match &self.flavor {
            Flavor::Timer(timer) => timer.due(),
            _ => None,
        }
    }

    unsafe fn take_due(&self, slot: *mut ()) -> bool {
        let Flavor::Timer(timer) = &self.flavor else { return false };
        match timer.try_take() {
            // SAFETY: by the caller.
            Some(value) => unsafe { slot.cast::<T>().write(of_timer(value)) },
            None => return false,
        }
        true
    }

    unsafe fn take_locked(&self, locked: &mut Locked<'_>, slot: *mut ()) -> Step {
        let chan = self.chan().expect("it has a core, so it is a channel");
        // SAFETY: by the caller.
        unsafe { chan.recv_locked(locked, slot.cast()) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        let flavor = match &self.flavor {
            Flavor::Chan(chan) => {
                // SAFETY: a handle keeps it alive.
                unsafe { chan.as_ref() }.acquire(Side::Receivers);
                Flavor::Chan(*chan)
            }
            Flavor::Timer(timer) => Flavor::Timer(timer.clone()),
            Flavor::Never => Flavor::Never,
        };
        Receiver { flavor, values: PhantomData }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Flavor::Chan(chan) = self.flavor {
            // SAFETY: our handle, which ends here.
            unsafe { Chan::release(chan, Side::Receivers) }
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Receiver { .. }")
    }
}
