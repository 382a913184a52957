//! What [`select!`](crate::chan::select!) expands to: the engine, with types, and without `unsafe` in the user's code.

use super::case::{Case, Taken};
use super::engine::{self, Goal};
use super::reserve::Reservation;
use crate::chan::error::{RecvError, SendError};
use crate::chan::handles::{Receiver, Sender};
use crate::chan::timer::Limit;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Room for what an arm receives.
#[derive(Debug)]
pub struct Slot<T>(UnsafeCell<MaybeUninit<T>>);

impl<T> Slot<T> {
    /// Makes a slot for values of `_receiver`.
    #[inline]
    pub fn new(_receiver: &Receiver<T>) -> Slot<T> {
        Slot(UnsafeCell::new(MaybeUninit::uninit()))
    }

    #[inline]
    fn address(&self) -> *mut () {
        self.0.get().cast()
    }
}

/// An arm.
#[derive(Debug)]
#[repr(transparent)]
pub struct Arm<'a>(Case<'a>);

impl<'a> Arm<'a> {
    /// Receives into `slot`.
    #[inline]
    pub fn recv<T>(receiver: &'a Receiver<T>, slot: &'a Slot<T>) -> Arm<'a> {
        Arm(Case::recv(receiver, slot.address()))
    }

    /// Sends.
    #[inline]
    pub fn send<T>(sender: &'a Sender<T>) -> Arm<'a> {
        Arm(Case::send(sender))
    }
}

/// Bounds the time for which the arms may block.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// As long as it takes.
    Forever,
    /// No longer than that.
    For(Duration),
}

/// The arm that was chosen. Borrows the slots, so that they stay what they are.
#[derive(Debug)]
pub struct Chosen<'a> {
    /// Number of arms before the chosen one; `usize::MAX` if none was chosen.
    ahead: usize,
    taken: Cell<Taken>,
    /// The slot, or the sender's core.
    place: *const (),
    slots: PhantomData<&'a ()>,
}

/// Runs the select.
///
/// By reference: arms that are moved are read again in larger pieces than they were just written in, and the CPU waits
/// for that.
pub fn select<'a>(arms: &[Arm<'a>], biased: bool, wait: Wait) -> Chosen<'a> {
    let limit = match wait {
        Wait::No => None,
        Wait::Forever => Some(Limit::Forever),
        Wait::For(d) => Some(Limit::For(d)),
    };
    // SAFETY: an arm is a case (`repr(transparent)`).
    let cases = unsafe { &*(std::ptr::from_ref(arms) as *const [Case<'a>]) };
    match engine::run(cases, Goal::Take, biased, limit) {
        Some(ahead) => {
            let case = &cases[ahead];
            Chosen { ahead, taken: case.taken.clone(), place: case.place(), slots: PhantomData }
        }
        None => Chosen {
            ahead: usize::MAX,
            taken: Cell::new(Taken::Nothing),
            place: std::ptr::null(),
            slots: PhantomData,
        },
    }
}

impl Chosen<'_> {
    /// Returns whether the chosen arm is this one. To be asked once for each arm, in their order.
    pub fn arrives(&mut self) -> bool {
        match self.ahead.checked_sub(1) {
            Some(ahead) => self.ahead = ahead,
            None => return true,
        }
        false
    }

    /// Returns what the chosen receive arm got.
    pub fn received<T>(&self, slot: &Slot<T>) -> Result<T, RecvError> {
        assert!(std::ptr::eq(self.place, slot.address()), "another arm was chosen");
        match self.taken.replace(Taken::Nothing) {
            // SAFETY: the engine moved a value there, which is taken once; the borrow of the slots in `self` says
            // that it is still the same slot.
            Taken::Value => Ok(unsafe { (*slot.0.get()).assume_init_read() }),
            _ => Err(RecvError),
        }
    }

    /// Returns the right to send of the chosen send arm.
    pub fn ticket<'s, T>(&self, sender: &'s Sender<T>) -> Ticket<'s, T> {
        assert!(std::ptr::eq(self.place, (&raw const sender.chan().core).cast()), "another arm was chosen");
        match self.taken.replace(Taken::Nothing) {
            Taken::Reserved(reservation) => Ticket { sender, reservation: Some(reservation) },
            _ => unreachable!("a send arm reserves"),
        }
    }
}

/// The right to send one value. It is made before the value, whose making may panic or return: then it is given back.
#[derive(Debug)]
pub struct Ticket<'s, T> {
    sender: &'s Sender<T>,
    reservation: Option<Reservation>,
}

impl<T> Ticket<'_, T> {
    /// Sends the value.
    pub fn send(mut self, value: T) -> Result<(), SendError<T>> {
        let reservation = self.reservation.take().expect("sent once");
        self.sender.chan().send_reserved(reservation, value).map_err(SendError)
    }
}

impl<T> Drop for Ticket<'_, T> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.sender.chan().cancel(reservation);
        }
    }
}

/// Blocks for `timeout`: a select without arms.
pub fn idle(timeout: Duration) {
    engine::idle(Limit::For(timeout));
}

/// Blocks for ever: a select without arms.
pub fn forever() -> ! {
    loop {
        engine::idle(Limit::Forever);
    }
}
