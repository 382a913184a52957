//! The waits of tasks on a channel: in the same queues, but the node lies in a future, which may be dropped any time.
//!
//! Everything that happens to such a node happens under the channel's lock: it is armed, claimed, given its value, and
//! taken out. So a poll or a drop sees one of two things: it is in a queue, or its wait has ended.
//!
//! **Nothing is lost.** A value that was handed to a receive whose future is dropped before it was polled again goes to
//! the next receiver that waits, or else to the front of the buffer, past its capacity if need be. A send whose future
//! is dropped was done or not; if not, the value is dropped with the future.

use super::channel::Chan;
use super::channel::{CAN_RECV, CAN_SEND, Locked, Step};
use super::error::{RecvError, SendError};
use super::make::Side;
use super::queue::{Ending, Kind, Node, Operation, Outcome};
use crate::protocols::claim::Claim;
use crate::sched::run::park::Entered;
use crate::sched::run::park::Waiter;
use crate::sched::run::task::TaskSlot;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, Waker};

/// A task's place in a queue, with room for its value. It does not move, and its owner ends it by
/// [`Chan::leave_recv`] or [`Chan::leave_send`].
pub(super) struct TaskWait<T> {
    op: UnsafeCell<Operation>,
    node: Node,
    slot: UnsafeCell<MaybeUninit<T>>,
    /// Whether the node was put into a queue, and its owner has not yet seen what came of it. The owner's.
    waiting: Cell<bool>,
    _pinned: PhantomPinned,
}

// SAFETY: others reach it through the channel's queues, under the channel's lock; values cross threads.
unsafe impl<T: Send> Send for TaskWait<T> {}
// SAFETY: its methods are for its owner, which has a `Pin<&mut>` of what it lies in.
unsafe impl<T: Send> Sync for TaskWait<T> {}

impl<T> TaskWait<T> {
    pub(super) fn new() -> TaskWait<T> {
        let waiter = Waiter::Task(TaskSlot::empty());
        TaskWait {
            op: UnsafeCell::new(Operation { claim: Claim::new(), kind: Kind::Task, waiter }),
            node: Node::new(),
            slot: UnsafeCell::new(MaybeUninit::uninit()),
            waiting: Cell::new(false),
            _pinned: PhantomPinned,
        }
    }

    /// Makes a wait with a value to be sent.
    pub(super) fn with_value(value: T) -> TaskWait<T> {
        let wait = TaskWait::<T>::new();
        // SAFETY: there is room, and no other thread knows it.
        unsafe { wait.slot().write(value) };
        wait
    }

    pub(super) fn slot(&self) -> *mut T {
        self.slot.get().cast()
    }

    fn op(&self) -> &Operation {
        // SAFETY: `arm` alone changes it, when no other thread knows it.
        unsafe { &*self.op.get() }
    }

    /// Returns the waker of the task that waits. Under the channel's lock.
    fn waker(&self) -> &TaskSlot {
        match &self.op().waiter {
            Waiter::Task(slot) => slot,
            _ => unreachable!("made so"),
        }
    }

    fn wakes(&self, other: &Waker, _: &Locked<'_>) -> bool {
        let waker = self.waker().take();
        let same = waker.as_ref().is_some_and(|waker| waker.will_wake(other));
        let none = self.waker().replace(waker);
        debug_assert!(none.is_none());
        same
    }

    /// Makes it ready for a queue. Under the lock, while no other thread knows it.
    fn arm(&self, waker: Waker) {
        // SAFETY: no other thread knows it, and no borrow of it is in use.
        unsafe { (*self.op.get()).claim.reopen() };
        let none = self.waker().replace(Some(waker));
        debug_assert!(none.is_none(), "taken when the last wait ended");
        self.node.arm(self.op(), 0, self.slot().cast());
        self.node.engaged.set(false);
        self.waiting.set(true);
    }

    /// Returns how the wait ended; `None`: it goes on. A wait that never began has to be tried.
    fn ended(&self, _: &Locked<'_>) -> Option<Ending> {
        if !self.waiting.get() {
            return Some(Ending::Retry);
        }
        if self.node.is_linked() {
            return None;
        }
        self.waiting.set(false);
        match self.op().outcome() {
            Outcome::Ended(_, ending) => Some(ending),
            Outcome::TimedOut => unreachable!("a task has no deadline"),
        }
    }

    /// Takes it out of its queue. Returns its waker, to be dropped outside of the runtime.
    fn leave(&self, side: Side, locked: &mut Locked<'_>) -> Option<Waker> {
        match side {
            Side::Senders => locked.senders.remove(&self.node),
            Side::Receivers if self.node.engaged.get() => locked.engaged.remove(&self.node),
            Side::Receivers => locked.receivers.remove(&self.node),
        }
        self.waiting.set(false);
        self.waker().take()
    }
}

impl<T> Chan<T> {
    /// Tries, or looks what became of the wait; `Pending`: the task will be woken.
    ///
    /// Wakers are cloned and dropped outside of the lock: they are user code.
    fn poll(
        &self,
        side: Side,
        wait: &TaskWait<T>,
        waker: &Waker,
        attempt: impl Fn(&mut Locked<'_>, bool) -> Step,
    ) -> Poll<Ending> {
        let sign = if side == Side::Senders { CAN_SEND } else { CAN_RECV };
        let hopeless = !wait.waiting.get() && self.core.peek() & sign == 0;
        let mut fresh = hopeless.then(|| waker.clone());
        loop {
            let _replaced; // dropped last
            let entered = Entered::now();
            let mut locked = self.core.lock(&entered);
            match wait.ended(&locked) {
                Some(Ending::Retry) => match (attempt(&mut locked, fresh.is_some()), fresh.take()) {
                    (Step::Done, _) => return Poll::Ready(Ending::Done),
                    (Step::Closed, _) => return Poll::Ready(Ending::Closed),
                    (step, Some(waker)) => {
                        wait.arm(waker);
                        self.enqueue(side, wait, &mut locked, step);
                        return Poll::Pending;
                    }
                    (_, None) => {}
                },
                Some(ending) => return Poll::Ready(ending),
                None if wait.wakes(waker, &locked) => return Poll::Pending,
                None if fresh.is_some() => {
                    _replaced = wait.waker().replace(fresh);
                    return Poll::Pending;
                }
                None => {}
            }
            drop(locked);
            drop(entered);
            fresh = Some(waker.clone());
        }
    }

    fn enqueue(&self, side: Side, wait: &TaskWait<T>, locked: &mut Locked<'_>, blocked: Step) {
        let queue = match (blocked, side) {
            (Step::Promised(sender), _) => {
                locked.engage(&wait.node);
                locked.wakes.push(sender);
                return;
            }
            (_, Side::Senders) => &mut locked.senders,
            (_, Side::Receivers) => &mut locked.receivers,
        };
        // SAFETY: armed; it stays in place until it was claimed, or left the queue: see `TaskWait`.
        unsafe { queue.push_back(&wait.node) };
    }

    pub(super) fn poll_recv(&self, wait: Pin<&TaskWait<T>>, waker: &Waker) -> Poll<Result<T, RecvError>> {
        let wait = wait.get_ref();
        let ending = self.poll(Side::Receivers, wait, waker, |locked, may_wait| {
            // Without a waker it must not win a sender that has no value yet.
            if !may_wait && locked.len == 0 && !locked.closed {
                return Step::Blocked;
            }
            // SAFETY: read only after `Done`.
            unsafe { self.recv_locked(locked, wait.slot()) }
        });
        ending.map(|ending| match ending {
            // SAFETY: filled, and read once.
            Ending::Done => Ok(unsafe { wait.slot().read() }),
            _ => Err(RecvError),
        })
    }

    /// Polls a send. `Ready`: the value is gone, or came back.
    ///
    /// # Safety
    /// The slot holds the value; after `Ready` it does not.
    pub(super) unsafe fn poll_send(
        &self,
        wait: Pin<&TaskWait<T>>,
        waker: &Waker,
    ) -> Poll<Result<(), SendError<T>>> {
        let wait = wait.get_ref();
        // SAFETY: by the caller; after `Done` it is not used.
        let ending =
            self.poll(Side::Senders, wait, waker, |locked, _| unsafe { self.send_locked(locked, wait.slot()) });
        ending.map(|ending| match ending {
            Ending::Done => Ok(()),
            // SAFETY: it is still there.
            _ => Err(SendError(unsafe { wait.slot().read() })),
        })
    }

    /// Ends a receive that was given up. A value that it was given goes on to others.
    pub(super) fn leave_recv(&self, wait: Pin<&TaskWait<T>>) {
        if !wait.waiting.get() {
            return;
        }
        let _waker; // dropped last
        let entered = Entered::now();
        let mut locked = self.core.lock(&entered);
        match wait.ended(&locked) {
            None => _waker = wait.leave(Side::Receivers, &mut locked),
            // SAFETY: filled, and read once.
            Some(Ending::Done) => self.put_back(&mut locked, unsafe { wait.slot().read() }),
            Some(_) => {}
        }
    }

    /// Ends a send that was given up. Returns whether the value is still there.
    pub(super) fn leave_send(&self, wait: Pin<&TaskWait<T>>) -> bool {
        if !wait.waiting.get() {
            return true;
        }
        let _waker; // dropped last
        let entered = Entered::now();
        let mut locked = self.core.lock(&entered);
        match wait.ended(&locked) {
            None => _waker = wait.leave(Side::Senders, &mut locked),
            Some(ending) => return ending != Ending::Done,
        }
        true
    }
}
