//! The functions that make channels; how their handles are counted, and what the last one does.

use super::buffer::Buffer;
use super::channel::{Chan, Core};
use super::handles::{Receiver, Sender};
use super::missed::MissedTicks;
use super::timer::Timer;
use crate::sched::run::park::Entered;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use std::time::{Duration, Instant};

fn channel<T>(capacity: Option<usize>) -> (Sender<T>, Receiver<T>) {
    let chan = Chan::allocate(capacity);
    // SAFETY: a new channel has one handle on each side.
    unsafe { (Sender::from_counted(chan), Receiver::from_counted(chan)) }
}

/// Makes a channel that holds at most `capacity` values; a sender waits while it is full.
///
/// With a capacity of 0 it holds none: a value goes from hand to hand, and sender and receiver wait for each other.
///
/// ```
/// let (tx, rx) = mungo::chan::bounded(1);
/// tx.send(1).unwrap();
/// assert!(tx.try_send(2).is_err());
/// assert_eq!(rx.recv(), Ok(1));
/// ```
///
/// ```
/// let (tx, rx) = mungo::chan::bounded(0);
/// let sender = mungo::go(move || tx.send("from hand to hand"));
/// assert_eq!(rx.recv(), Ok("from hand to hand"));
/// sender.join().unwrap().unwrap();
/// ```
///
/// # Panics
/// If there is no memory for `capacity` values.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    channel(Some(capacity))
}

/// Makes a channel that holds as many values as there is memory for; a sender never waits.
///
/// ```
/// let (tx, rx) = mungo::chan::unbounded();
/// (0..1000).for_each(|i| tx.send(i).unwrap());
/// drop(tx);
/// assert_eq!(rx.iter().count(), 1000);
/// ```
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(None)
}

/// Returns a receiver with one value, which comes after `duration`: the time for which it was due.
///
/// It is not disconnected afterwards, but never has a value again. It needs no goroutine and no timer.
///
/// ```
/// use mungo::chan::{after, bounded, select};
/// use std::time::Duration;
///
/// let (_tx, rx) = bounded::<i32>(0);
/// let timed_out = select! {
///     recv(rx) -> _ => false,
///     recv(after(Duration::from_millis(5))) -> _ => true,
/// };
/// assert!(timed_out);
/// ```
pub fn after(duration: Duration) -> Receiver<Instant> {
    match Instant::now().checked_add(duration) {
        Some(when) => at(when),
        None => never(),
    }
}

/// Returns a receiver with one value, which comes at `when`. As [`after`].
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let when = Instant::now() + Duration::from_millis(5);
/// assert_eq!(mungo::chan::at(when).recv(), Ok(when));
/// assert!(Instant::now() >= when);
/// ```
pub fn at(when: Instant) -> Receiver<Instant> {
    Receiver::from_timer(Timer::at(when))
}

/// Returns a receiver that never has a value.
///
/// ```
/// let rx = mungo::chan::never::<i32>();
/// assert!(rx.try_recv().unwrap_err().is_empty());
/// ```
pub const fn never<T>() -> Receiver<T> {
    Receiver::never()
}

/// Returns a receiver with a value after each `period`: the time for which it was due.
///
/// It holds one value at a time: a caller that comes late gets one, and the next one comes a period later.
/// [`time::interval`](crate::time::interval) has other ways to treat ticks that were missed.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let ticks = mungo::chan::tick(Duration::from_millis(2));
/// ticks.iter().take(3).for_each(drop);
/// assert!(start.elapsed() >= Duration::from_millis(6));
/// ```
pub fn tick(period: Duration) -> Receiver<Instant> {
    tick_with(period, MissedTicks::Delay)
}

/// As [`tick`], with another way to treat ticks that no receiver took in time.
pub(crate) fn tick_with(period: Duration, missed: MissedTicks) -> Receiver<Instant> {
    match Timer::tick(period, missed) {
        Some(timer) => Receiver::from_timer(timer),
        None => never(),
    }
}

/// A side of a channel, by its count of handles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Senders,
    Receivers,
}

impl<T> Chan<T> {
    /// Makes a channel with one handle on each side.
    pub(super) fn allocate(capacity: Option<usize>) -> NonNull<Chan<T>> {
        let buffer = match capacity {
            Some(n) => Buffer::bounded(n),
            None => Buffer::unbounded(),
        };
        NonNull::from(Box::leak(Box::new(Chan {
            core: Core::new(capacity.unwrap_or(usize::MAX)),
            buffer: UnsafeCell::new(buffer),
            one_side_gone: AtomicBool::new(false),
        })))
    }

    fn count(&self, side: Side) -> &AtomicUsize {
        match side {
            Side::Senders => &self.core.senders,
            Side::Receivers => &self.core.receivers,
        }
    }

    /// Counts one more handle of this side.
    pub(super) fn acquire(&self, side: Side) {
        // As `Arc`: more than `isize::MAX` handles exist only if most of them were forgotten.
        if self.count(side).fetch_add(1, Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
    }

    /// Counts one handle of this side less.
    ///
    /// # Safety
    /// The caller gives up a handle of this side, and does not use `this` any more.
    pub(super) unsafe fn release(this: NonNull<Chan<T>>, side: Side) {
        /// Frees the channel even if a value's destructor panics.
        struct Free<T>(NonNull<Chan<T>>);
        impl<T> Drop for Free<T> {
            fn drop(&mut self) {
                // SAFETY: alive until the second side is gone. ORDERING: Release our use of it, Acquire theirs.
                if unsafe { self.0.as_ref() }.one_side_gone.swap(true, AcqRel) {
                    // SAFETY: made by `allocate`; no handle is left.
                    drop(unsafe { Box::from_raw(self.0.as_ptr()) });
                }
            }
        }
        // SAFETY: the handle is alive.
        let chan = unsafe { this.as_ref() };
        // ORDERING: Release our use of the channel, Acquire that of the others.
        if chan.count(side).fetch_sub(1, AcqRel) != 1 {
            return;
        }
        let _free = Free(this);
        match side {
            Side::Senders => _ = chan.core.close(),
            Side::Receivers => chan.abandon(),
        }
    }

    /// Drops what was not received, and gives senders their values back: no receiver is left.
    fn abandon(&self) {
        let mut unreceived = Buffer::bounded(0);
        let entered = Entered::now();
        let mut locked = self.core.lock(&entered);
        locked.abandoned = true;
        locked.end_all_waits();
        locked.len = 0;
        std::mem::swap(self.buffer(&mut locked), &mut unreceived);
        drop(locked);
        drop(entered);
        drop(unreceived);
    }
}
