//! Sends and receives as futures, for tasks of any executor.

use super::error::{RecvError, SendError};
use super::handles::{Receiver, Sender};
use super::task_wait::TaskWait;
use crate::sched::timers::sleep::Sleep;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A receive that is under way: [`Receiver::recv_async`].
///
/// It may be dropped at any time and no value is lost: one that it had been given already goes to the next receiver.
///
/// ```
/// let (tx, rx) = mungo::chan::bounded(1);
/// drop(rx.recv_async()); // nothing is lost
/// tx.send(1).unwrap();
/// assert_eq!(mungo::block_on(rx.recv_async()), Ok(1));
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct RecvFut<'a, T> {
    receiver: &'a Receiver<T>,
    wait: RecvWait<T>,
}

/// The wait of a task for a receiver: in the channel's queue, or for the clock.
pub(super) struct RecvWait<T> {
    pub(super) task: TaskWait<T>,
    pub(super) sleep: Option<Sleep>,
}

impl<T> RecvWait<T> {
    pub(super) fn new() -> RecvWait<T> {
        RecvWait { task: TaskWait::new(), sleep: None }
    }

    pub(super) fn parts(self: Pin<&mut Self>) -> (Pin<&TaskWait<T>>, &mut Option<Sleep>) {
        // SAFETY: `task` stays in place; `sleep` may move.
        unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&this.task), &mut this.sleep)
        }
    }
}

impl<'a, T> RecvFut<'a, T> {
    fn wait(self: Pin<&mut Self>) -> (&'a Receiver<T>, Pin<&mut RecvWait<T>>) {
        // SAFETY: `wait` stays in place.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.receiver, Pin::new_unchecked(&mut this.wait))
        }
    }
}

impl<T> Future for RecvFut<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (receiver, wait) = self.wait();
        receiver.poll_recv(wait, cx)
    }
}

impl<T> Drop for RecvFut<'_, T> {
    fn drop(&mut self) {
        // SAFETY: not moved any more.
        let (receiver, wait) = unsafe { Pin::new_unchecked(self) }.wait();
        receiver.leave(wait);
    }
}

impl<T> fmt::Debug for RecvFut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("RecvFut { .. }")
    }
}

/// A send that is under way: [`Sender::send_async`].
///
/// If it is dropped before it is done, the value is dropped too, or was received.
///
/// ```
/// let (tx, rx) = mungo::chan::bounded(1);
/// mungo::block_on(tx.send_async(1)).unwrap();
/// assert_eq!(rx.recv(), Ok(1));
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct SendFut<'a, T> {
    sender: &'a Sender<T>,
    wait: TaskWait<T>,
    /// Whether the value has not left yet.
    full: bool,
}

impl<'a, T> SendFut<'a, T> {
    fn parts(self: Pin<&mut Self>) -> (&'a Sender<T>, Pin<&TaskWait<T>>, &mut bool) {
        // SAFETY: `wait` stays in place; the others may move.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.sender, Pin::new_unchecked(&this.wait), &mut this.full)
        }
    }
}

impl<T> Future for SendFut<'_, T> {
    type Output = Result<(), SendError<T>>;

    /// # Panics
    /// If it was ready before.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (sender, wait, full) = self.parts();
        assert!(*full, "`SendFut` polled after it was ready");
        // SAFETY: full; noted below.
        let result = unsafe { sender.chan().poll_send(wait, cx.waker()) };
        *full = result.is_pending();
        result
    }
}

impl<T> Drop for SendFut<'_, T> {
    fn drop(&mut self) {
        // SAFETY: not moved any more.
        let (sender, wait, full) = unsafe { Pin::new_unchecked(self) }.parts();
        if *full && sender.chan().leave_send(wait) {
            // SAFETY: it was not sent, and no other thread knows it any more.
            unsafe { wait.slot().drop_in_place() };
        }
    }
}

impl<T> fmt::Debug for SendFut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SendFut { .. }")
    }
}

impl<T> Receiver<T> {
    /// As [`recv`](Self::recv), as a future for tasks of any executor. Receives of both kinds mix, and wait in one
    /// line.
    ///
    /// The future may be dropped at any time, as the losers of a `select!` are. A value that had been handed to it goes
    /// to the next receiver that waits, or back to the front of the channel, even if that is full or has no buffer.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::unbounded();
    /// mungo::go(move || tx.send(5).unwrap());
    /// mungo::block_on(async {
    ///     assert_eq!(rx.recv_async().await, Ok(5));
    ///     assert!(rx.recv_async().await.is_err()); // disconnected
    /// });
    /// ```
    pub fn recv_async(&self) -> RecvFut<'_, T> {
        RecvFut { receiver: self, wait: RecvWait::new() }
    }
}

impl<T> Sender<T> {
    /// As [`send`](Self::send), as a future for tasks of any executor. Sends of both kinds mix, and wait in one line.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded(0);
    /// mungo::go(move || assert_eq!(rx.recv(), Ok("hello")));
    /// mungo::block_on(async { tx.send_async("hello").await.unwrap() });
    /// ```
    pub fn send_async(&self, value: T) -> SendFut<'_, T> {
        SendFut { sender: self, wait: TaskWait::with_value(value), full: true }
    }
}
