//! Receivers as streams and senders as sinks, of the `futures` crates.

use super::error::SendError;
use super::future::RecvWait;
use super::handles::{Receiver, Sender};
use super::task_wait::TaskWait;
use futures_core::{FusedStream, Stream};
use futures_sink::Sink;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A handle, or a borrowed one.
enum Handle<'a, H> {
    Own(H),
    Borrowed(&'a H),
}

impl<H> Deref for Handle<'_, H> {
    type Target = H;
    fn deref(&self) -> &H {
        match self {
            Handle::Own(handle) => handle,
            Handle::Borrowed(handle) => handle,
        }
    }
}

impl<H: Clone> Clone for Handle<'_, H> {
    fn clone(&self) -> Self {
        match self {
            Handle::Own(handle) => Handle::Own(handle.clone()),
            Handle::Borrowed(handle) => Handle::Borrowed(handle),
        }
    }
}

/// The values of a channel as a stream, which ends when the channel is empty and disconnected: [`Receiver::stream`],
/// [`Receiver::into_stream`].
///
/// As a [`RecvFut`](super::RecvFut) it loses no value when it is dropped.
///
/// ```
/// use futures::StreamExt;
///
/// let (tx, rx) = mungo::chan::unbounded();
/// (0..3).for_each(|n| tx.send(n).unwrap());
/// drop(tx);
/// assert_eq!(mungo::block_on(rx.stream().collect::<Vec<_>>()), [0, 1, 2]);
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct RecvStream<'a, T> {
    receiver: Handle<'a, Receiver<T>>,
    /// In a box, so that the stream can be moved between values.
    wait: Pin<Box<RecvWait<T>>>,
    ended: bool,
}

/// Nothing in it is pinned but what is in a box.
impl<T> Unpin for RecvStream<'_, T> {}

impl<'a, T> RecvStream<'a, T> {
    fn new(receiver: Handle<'a, Receiver<T>>) -> RecvStream<'a, T> {
        RecvStream { receiver, wait: Box::pin(RecvWait::new()), ended: false }
    }
}

impl<T> Stream for RecvStream<'_, T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let value = ready!(this.receiver.poll_recv(this.wait.as_mut(), cx)).ok();
        this.ended = value.is_none();
        Poll::Ready(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.receiver.len(), None)
    }
}

impl<T> FusedStream for RecvStream<'_, T> {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl<T> Drop for RecvStream<'_, T> {
    fn drop(&mut self) {
        self.receiver.leave(self.wait.as_mut());
    }
}

impl<T> Clone for RecvStream<'_, T> {
    fn clone(&self) -> Self {
        RecvStream::new(self.receiver.clone())
    }
}

impl<T> fmt::Debug for RecvStream<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("RecvStream { .. }")
    }
}

impl<T> Receiver<T> {
    /// Returns the values as a stream.
    ///
    /// ```
    /// use futures::StreamExt;
    ///
    /// let (tx, rx) = mungo::chan::bounded(0);
    /// mungo::go(move || (0..3).for_each(|i| tx.send(i).unwrap()));
    /// let values: Vec<_> = mungo::block_on(rx.stream().map(|i| i * 2).collect());
    /// assert_eq!(values, [0, 2, 4]);
    /// ```
    pub fn stream(&self) -> RecvStream<'_, T> {
        RecvStream::new(Handle::Borrowed(self))
    }

    /// Returns the values as a stream that owns the receiver.
    ///
    /// ```
    /// use futures::StreamExt;
    ///
    /// let (tx, rx) = mungo::chan::unbounded();
    /// tx.send(1).unwrap();
    /// assert_eq!(mungo::block_on(rx.into_stream().next()), Some(1));
    /// ```
    pub fn into_stream(self) -> RecvStream<'static, T> {
        RecvStream::new(Handle::Own(self))
    }
}

/// A sender as a sink: [`Sender::sink`], [`Sender::into_sink`]. It holds one value at the most, on its way to the
/// channel; flushing waits until that is sent. Closing it only flushes: other senders may be left.
///
/// ```
/// use futures::SinkExt;
///
/// let (tx, rx) = mungo::chan::bounded(1);
/// mungo::block_on(tx.sink().send(1)).unwrap();
/// assert_eq!(rx.recv(), Ok(1));
/// ```
#[must_use = "sinks do nothing unless polled"]
pub struct SendSink<'a, T> {
    sender: Handle<'a, Sender<T>>,
    /// In a box, so that the sink can be moved. `None`: no value is on its way.
    wait: Option<Pin<Box<TaskWait<T>>>>,
}

/// Nothing in it is pinned but what is in a box.
impl<T> Unpin for SendSink<'_, T> {}

impl<T> Sink<T> for SendSink<'_, T> {
    type Error = SendError<T>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        self.poll_flush(cx)
    }

    /// # Panics
    /// If it was not ready.
    fn start_send(mut self: Pin<&mut Self>, value: T) -> Result<(), SendError<T>> {
        assert!(self.wait.is_none(), "`start_send` before `poll_ready` was ready");
        self.wait = Some(Box::pin(TaskWait::with_value(value)));
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let this = &mut *self;
        let Some(wait) = &this.wait else { return Poll::Ready(Ok(())) };
        // SAFETY: a value is there; the wait is forgotten when it is gone.
        let result = ready!(unsafe { this.sender.chan().poll_send(wait.as_ref(), cx.waker()) });
        this.wait = None;
        Poll::Ready(result)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        self.poll_flush(cx)
    }
}

impl<T> Drop for SendSink<'_, T> {
    fn drop(&mut self) {
        if let Some(wait) = &self.wait
            && self.sender.chan().leave_send(wait.as_ref())
        {
            // SAFETY: it was not sent, and no other thread knows it any more.
            unsafe { wait.slot().drop_in_place() };
        }
    }
}

impl<T> fmt::Debug for SendSink<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SendSink { .. }")
    }
}

impl<T> Sender<T> {
    /// Returns the sender as a sink.
    ///
    /// ```
    /// use futures::{SinkExt, StreamExt, stream};
    ///
    /// let (tx, rx) = mungo::chan::unbounded();
    /// mungo::block_on(stream::iter(0..3).map(Ok).forward(tx.sink())).unwrap();
    /// mungo::block_on(tx.sink().send(3)).unwrap();
    /// assert_eq!(rx.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    /// ```
    pub fn sink(&self) -> SendSink<'_, T> {
        SendSink { sender: Handle::Borrowed(self), wait: None }
    }

    /// Returns the sender as a sink that owns it.
    ///
    /// ```
    /// use futures::SinkExt;
    ///
    /// let (tx, rx) = mungo::chan::unbounded();
    /// mungo::block_on(tx.into_sink().send(1)).unwrap();
    /// assert_eq!(rx.recv(), Ok(1));
    /// assert!(rx.recv().is_err());
    /// ```
    pub fn into_sink(self) -> SendSink<'static, T> {
        SendSink { sender: Handle::Own(self), wait: None }
    }
}
