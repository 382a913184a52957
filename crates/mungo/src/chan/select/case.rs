//! One arm of a select.

use super::reserve::Reservation;
use crate::chan::channel::Core;
use crate::chan::handles::{Port, Receiver, Sender};
use crate::chan::queue::Node;
use std::cell::Cell;
use std::fmt;

/// One arm: an operation on a channel, its node in a queue, and what it got when it was chosen.
pub(crate) struct Case<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) node: Node,
    /// The place for a received value.
    pub(super) slot: *mut (),
    pub(super) taken: Cell<Taken>,
    /// Scratch of the engine: the index of the case that comes n-th by address, if this one is the n-th.
    pub(super) nth: Cell<usize>,
}

#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    Send(&'a Core),
    Recv(&'a dyn Port),
}

/// The result of the chosen case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Nothing,
    /// A value lies in the slot.
    Value,
    /// The receiver's channel is empty and disconnected.
    Closed,
    /// The right to send.
    Reserved(Reservation),
}

impl<'a> Case<'a> {
    fn new(kind: Kind<'a>, slot: *mut ()) -> Case<'a> {
        Case { kind, node: Node::new(), slot, taken: Cell::new(Taken::Nothing), nth: Cell::new(0) }
    }

    pub(super) fn send<T>(sender: &'a Sender<T>) -> Case<'a> {
        Case::new(Kind::Send(&sender.chan().core), std::ptr::null_mut())
    }

    /// Makes a receive case. `slot` must have room for a `T` when the engine runs.
    pub(super) fn recv<T>(receiver: &'a Receiver<T>, slot: *mut ()) -> Case<'a> {
        Case::new(Kind::Recv(receiver), slot)
    }

    /// Returns the address that tells it from other cases: a receiver's slot, a sender's channel.
    pub(super) fn place(&self) -> *const () {
        match self.kind {
            Kind::Send(core) => std::ptr::from_ref(core).cast(),
            Kind::Recv(_) => self.slot,
        }
    }

    pub(in crate::chan) fn is_send(&self) -> bool {
        matches!(self.kind, Kind::Send(_))
    }

    /// Returns the same operation, for another select.
    pub(super) fn again(&self) -> Case<'a> {
        Case::new(self.kind, self.slot)
    }
}

impl fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Send(_) => "Send",
            Kind::Recv(_) => "Recv",
        })
    }
}
