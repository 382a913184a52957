//! What a selected sender has until it sends: its value is made after it was chosen.

use crate::chan::channel::{Chan, Locked, Step};
use crate::chan::queue::{Ending, Node};
use crate::sched::run::park::Entered;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// The right that a selected sender holds until it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// A place in the buffer.
    Place,
    /// A receiver that waits for no other sender.
    Partner(NonNull<Node>),
    /// Nothing: the channel is disconnected.
    Closed,
}

impl Locked<'_> {
    /// Reserves a place or a receiver for a sender without a value. `None`: it would block.
    pub(super) fn reserve(&mut self) -> Option<Reservation> {
        if self.closed || self.abandoned {
            return Some(Reservation::Closed);
        }
        if self.len + self.reserved < self.core.capacity {
            self.reserved += 1;
            return Some(Reservation::Place);
        }
        Some(match self.receivers.claim_first_but_task(Ending::Done)? {
            Ok(receiver) => Reservation::Partner(receiver),
            Err(task) => {
                // SAFETY: linked, so alive.
                self.engage(unsafe { task.as_ref() });
                Reservation::Place
            }
        })
    }

    /// Moves a task to the queue of the engaged. A task cannot be a partner, for it may leave while the sender makes
    /// its value. It waits apart, so that no second sender counts on it, and the sender gets a place: if the task has
    /// left by then, the value stays in the buffer.
    pub(in crate::chan) fn engage(&mut self, task: &Node) {
        self.receivers.remove(task);
        task.engaged.set(true);
        // SAFETY: armed; its future takes it out before it ends.
        unsafe { self.engaged.push_back(task) };
        self.reserved += 1;
    }
}

impl<T> Chan<T> {
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
}
