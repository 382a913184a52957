//! A channel: its core, its buffer, and the moves of values between senders, buffer and receivers.
//!
//! A value moves once, by a copy of its bytes under the lock: from the sender's frame to the waiting receiver's, to the
//! buffer, or from the buffer to the receiver's frame. No code of `T` runs under the lock.

use super::buffer::Buffer;
use super::core::{Core, Limit, Locked, Reservation, Step};
use super::error::{RecvTimeoutError, SendTimeoutError, TryRecvError, TrySendError};
use super::queue::{Ending, Node, Outcome};
use crate::sched::run::park::Entered;
use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};

/// A channel with values.
#[repr(C, align(64))]
pub(super) struct Chan<T> {
    /// First: handles point to it, which `debug::leaked` looks for.
    pub(super) core: Core,
    /// Under the core's lock.
    buffer: UnsafeCell<Buffer<T>>,
    /// Whether one side has no handle any more: then the other one frees the channel.
    one_side_gone: AtomicBool,
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

    /// Returns the buffer; `_locked` is the evidence of holding the lock.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    fn buffer<'a>(&'a self, _locked: &'a mut Locked<'_>) -> &'a mut Buffer<T> {
        // SAFETY: guarded by the core's lock, of which there is one `Locked`.
        unsafe { &mut *self.buffer.get() }
    }

    // ---- under the lock ----

    /// Moves the value at `from` away, if that is possible.
    ///
    /// # Safety
    /// `from` is a `T`; after `Done` it is gone. `locked` is this channel's.
    #[inline]
    pub(super) unsafe fn send_locked(&self, locked: &mut Locked<'_>, from: *const T) -> Step {
        if locked.closed || locked.abandoned {
            return Step::Closed;
        }
        if let Some(receiver) = locked.receivers.claim_first(Ending::Done) {
            // SAFETY: a waiting receiver's slot has room for one `T`, and we won it.
            unsafe { std::ptr::copy_nonoverlapping(from, receiver.as_ref().slot().cast(), 1) };
            locked.wakes.push(receiver);
            return Step::Done;
        }
        if locked.len + locked.reserved < self.core.capacity {
            // SAFETY: by the caller.
            self.buffer(locked).push(unsafe { from.read() });
            locked.len += 1;
            return Step::Done;
        }
        Step::Blocked
    }

    /// Moves the next value to `to`, if there is one.
    ///
    /// # Safety
    /// `to` has room for a `T`; after `Done` it holds one. `locked` is this channel's.
    #[inline]
    pub(super) unsafe fn recv_locked(&self, locked: &mut Locked<'_>, to: *mut T) -> Step {
        if locked.len != 0 {
            let value = self.buffer(locked).pop().expect("`len` counts");
            // SAFETY: by the caller.
            unsafe { to.write(value) };
            locked.len -= 1;
            if !locked.senders.is_empty() {
                self.admit(locked);
            }
            return Step::Done;
        }
        if let Some(sender) = locked.senders.claim_first(Ending::Done) {
            // SAFETY: won, not woken.
            let from = unsafe { sender.as_ref() }.slot();
            if from.is_null() {
                return Step::Promised(sender);
            }
            // SAFETY: a waiting sender's slot holds one `T`, which is ours now.
            unsafe { std::ptr::copy_nonoverlapping(from.cast(), to, 1) };
            locked.wakes.push(sender);
            return Step::Done;
        }
        if locked.closed { Step::Closed } else { Step::Blocked }
    }

    /// Gives a free place to the first sender that waits, with its value or as a promise.
    fn admit(&self, locked: &mut Locked<'_>) {
        if locked.len + locked.reserved >= self.core.capacity {
            return; // it was not one of the buffer's own places that became free
        }
        let Some(sender) = locked.senders.claim_first(Ending::Done) else { return };
        // SAFETY: won, not woken.
        let from = unsafe { sender.as_ref() }.slot();
        if from.is_null() {
            locked.reserved += 1;
        } else {
            // SAFETY: as in `recv_locked`.
            self.buffer(locked).push(unsafe { from.cast::<T>().read() });
            locked.len += 1;
        }
        locked.wakes.push(sender);
    }

    /// Passes on a value that was handed to a receiver which has left: to the next one, or to the front of the buffer,
    /// also of a full one.
    pub(super) fn put_back(&self, locked: &mut Locked<'_>, value: T) {
        match locked.receivers.claim_first(Ending::Done) {
            Some(receiver) => {
                // SAFETY: as in `send_locked`.
                unsafe { receiver.as_ref().slot().cast::<T>().write(value) };
                locked.wakes.push(receiver);
            }
            None => {
                self.buffer(locked).push_front(value);
                locked.len += 1;
            }
        }
    }

    // ---- operations ----

    pub(super) fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let entered = Entered::now();
        let value = ManuallyDrop::new(value);
        // SAFETY: read back below unless it was sent.
        match unsafe { self.send_locked(&mut self.core.lock(&entered), &*value) } {
            Step::Done => Ok(()),
            Step::Closed => Err(TrySendError::Disconnected(ManuallyDrop::into_inner(value))),
            _ => Err(TrySendError::Full(ManuallyDrop::into_inner(value))),
        }
    }

    /// Inlined, and so is [`recv`](Self::recv): each caller knows its limit, most often none.
    #[inline(always)]
    pub(super) fn send(&self, value: T, limit: Limit) -> Result<(), SendTimeoutError<T>> {
        let entered = Entered::now();
        let mut value = ManuallyDrop::new(value);
        let at: *mut T = &raw mut *value;
        let mut locked = self.core.lock(&entered);
        // SAFETY: taken back below unless it was sent.
        let outcome = match unsafe { self.send_locked(&mut locked, at) } {
            Step::Done => return Ok(()),
            Step::Closed => Outcome::Ended(0, Ending::Closed),
            _ => {
                let deadline_ns = limit.deadline_ns(); // first: what may panic needs the lock's proof in memory
                locked.keep();
                // SAFETY: the lock is held, and its proof was just given up.
                unsafe { self.core.wait::<true>(entered, at.cast(), None, deadline_ns) }
            }
        };
        match outcome {
            Outcome::Ended(_, Ending::Done) => Ok(()),
            Outcome::Ended(..) => Err(SendTimeoutError::Disconnected(ManuallyDrop::into_inner(value))),
            Outcome::TimedOut => Err(SendTimeoutError::Timeout(ManuallyDrop::into_inner(value))),
        }
    }

    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        if self.core.peek() & super::core::CAN_RECV == 0 {
            return Err(TryRecvError::Empty);
        }
        let mut slot = MaybeUninit::<T>::uninit();
        loop {
            let entered = Entered::now();
            let mut locked = self.core.lock(&entered);
            // SAFETY: read only after `Done`.
            match unsafe { self.recv_locked(&mut locked, slot.as_mut_ptr()) } {
                Step::Done => break,
                Step::Closed => return Err(TryRecvError::Disconnected),
                Step::Blocked => return Err(TryRecvError::Empty),
                // The sender is awake and makes its value: that counts as "not empty".
                Step::Promised(sender) => {
                    let to = slot.as_mut_ptr().cast();
                    locked.keep();
                    // SAFETY: the lock is held, and its proof was just given up.
                    let outcome = unsafe { self.core.wait::<false>(entered, to, Some(sender), u64::MAX) };
                    if outcome == Outcome::Ended(0, Ending::Done) {
                        break;
                    }
                }
            }
        }
        // SAFETY: filled.
        Ok(unsafe { slot.assume_init() })
    }

    #[inline(always)]
    pub(super) fn recv(&self, limit: Limit) -> Result<T, RecvTimeoutError> {
        let mut slot = MaybeUninit::<T>::uninit();
        let mut deadline_ns = None;
        loop {
            let entered = Entered::now();
            let mut locked = self.core.lock(&entered);
            // SAFETY: read only after `Done`.
            let promised = match unsafe { self.recv_locked(&mut locked, slot.as_mut_ptr()) } {
                Step::Done => break,
                Step::Closed => return Err(RecvTimeoutError::Disconnected),
                Step::Blocked => None,
                Step::Promised(sender) => Some(sender),
            };
            let deadline_ns = *deadline_ns.get_or_insert_with(|| limit.deadline_ns());
            let to = slot.as_mut_ptr().cast();
            locked.keep();
            // SAFETY: the lock is held, and its proof was just given up.
            match unsafe { self.core.wait::<false>(entered, to, promised, deadline_ns) } {
                Outcome::Ended(_, Ending::Done) => break,
                Outcome::Ended(_, Ending::Closed) => return Err(RecvTimeoutError::Disconnected),
                Outcome::Ended(_, Ending::Retry) => {}
                Outcome::TimedOut => return Err(RecvTimeoutError::Timeout),
            }
        }
        // SAFETY: filled.
        Ok(unsafe { slot.assume_init() })
    }

    // ---- a selected sender ----

    /// Sends what was promised. `Err`: the channel was disconnected before that.
    pub(super) fn send_reserved(&self, reservation: Reservation, value: T) -> Result<(), T> {
        match reservation {
            Reservation::Closed => Err(value),
            Reservation::Partner(receiver) => {
                let entered = Entered::now();
                // SAFETY: won by the reservation and not woken; its slot has room for one `T`.
                unsafe {
                    receiver.as_ref().slot().cast::<T>().write(value);
                    receiver.as_ref().settle(Ending::Done);
                    Node::wake(receiver, &entered);
                }
                Ok(())
            }
            Reservation::Place => {
                let entered = Entered::now();
                let mut locked = self.core.lock(&entered);
                locked.reserved -= 1;
                let value = ManuallyDrop::new(value);
                if let Some(task) = locked.engaged.claim_first(Ending::Done) {
                    // SAFETY: as in `send_locked`.
                    unsafe { std::ptr::copy_nonoverlapping(&*value, task.as_ref().slot().cast(), 1) };
                    locked.wakes.push(task);
                    return Ok(());
                }
                // SAFETY: taken back below unless it was sent.
                match unsafe { self.send_locked(&mut locked, &*value) } {
                    Step::Done => Ok(()),
                    Step::Closed => Err(ManuallyDrop::into_inner(value)),
                    // The task that it was promised to has left. A promise is a promise.
                    _ => {
                        self.buffer(&mut locked).push(ManuallyDrop::into_inner(value));
                        locked.len += 1;
                        Ok(())
                    }
                }
            }
        }
    }

    /// Gives a reservation back.
    pub(super) fn cancel(&self, reservation: Reservation) {
        let entered = Entered::now();
        match reservation {
            Reservation::Closed => {}
            // SAFETY: won by the reservation and not woken.
            Reservation::Partner(receiver) => unsafe {
                receiver.as_ref().settle(Ending::Retry);
                Node::wake(receiver, &entered);
            },
            Reservation::Place => {
                let mut locked = self.core.lock(&entered);
                locked.reserved -= 1;
                // A task that counts on it looks again; should it count on another one, it waits again.
                if let Some(task) = locked.engaged.claim_first(Ending::Retry) {
                    locked.wakes.push(task);
                }
                self.admit(&mut locked);
            }
        }
    }

    // ---- handles ----

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
