//! One arm of a select.

use super::reserve::Reservation;
use crate::chan::channel::Core;
use crate::chan::handles::{Port, Receiver, Sender};
use crate::chan::queue::{Node, Operation};
use std::cell::{Cell, OnceCell};
use std::fmt;

/// One arm: an operation on a channel, its node in a queue, and what it got when it was chosen.
pub(crate) struct Case<'a> {
    pub(super) kind: Kind<'a>,
    /// The channel; `None`: a timer, or a receiver that never has a value.
    core: Option<&'a Core>,
    /// Its node, from the first time that it gets in line: most selects never do.
    node: OnceCell<Node>,
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
    #[inline]
    fn new(kind: Kind<'a>, core: Option<&'a Core>, slot: *mut ()) -> Case<'a> {
        Case { kind, core, node: OnceCell::new(), slot, taken: Cell::new(Taken::Nothing), nth: Cell::new(0) }
    }

    #[inline]
    pub(super) fn send<T>(sender: &'a Sender<T>) -> Case<'a> {
        let core = &sender.chan().core;
        Case::new(Kind::Send(core), Some(core), std::ptr::null_mut())
    }

    /// Makes a receive case. `slot` must have room for a `T` when the engine runs.
    #[inline]
    pub(super) fn recv<T>(receiver: &'a Receiver<T>, slot: *mut ()) -> Case<'a> {
        Case::new(Kind::Recv(receiver), receiver.core(), slot)
    }

    /// Returns the channel; `None`: it is a timer, or never has a value.
    #[inline]
    pub(in crate::chan) fn core(&self) -> Option<&'a Core> {
        self.core
    }

    /// Makes its node ready for one wait of `op`, as case number `index`. By its owner, while it is in no queue.
    pub(super) fn arm(&self, op: &Operation, index: usize, slot: *mut ()) -> &Node {
        let node = self.node.get_or_init(Node::new);
        node.arm(op, index, slot);
        node
    }

    /// Returns its node, if it ever got in line.
    pub(super) fn node(&self) -> Option<&Node> {
        self.node.get()
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
        Case::new(self.kind, self.core, self.slot)
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
