//! Waiting for several channels at once.

mod case;
mod engine;
mod locks;
mod macros;
pub(super) mod reserve;
mod selected;
mod typed;

use self::reserve::Reservation;
use super::channel::Chan;
use super::error::{ReadyTimeoutError, SelectTimeoutError, TryReadyError, TrySelectError};
use super::handles::{Receiver, Sender};
use super::timer::Limit;
pub(super) use case::Case;
use case::Kind;
use engine::Goal;
use selected::Storage;
use std::alloc::Layout;
use std::fmt;
use std::time::{Duration, Instant};

pub use selected::SelectedOperation;
pub use typed::{Arm, Chosen, Slot, Ticket, Wait, forever, idle, select};

/// Chooses among a list of operations that is made at run time. For a fixed list [`select!`](crate::chan::select!) is
/// easier.
///
/// An operation is added with [`send`](Self::send) or [`recv`](Self::recv). [`select`](Self::select) blocks until one
/// of them can go on and chooses it, at random if there are several; the operation must then be completed, with
/// [`SelectedOperation::send`] or [`SelectedOperation::recv`]. [`ready`](Self::ready) only tells which one could go
/// on.
///
/// ```
/// use mungo::chan::{Select, bounded};
///
/// let channels: Vec<_> = (0..10).map(|_| bounded(1)).collect();
/// channels[7].0.send("seven").unwrap();
///
/// let mut select = Select::new();
/// for (_, rx) in &channels {
///     select.recv(rx);
/// }
/// let operation = select.select();
/// assert_eq!(operation.index(), 7);
/// assert_eq!(operation.recv(&channels[7].1), Ok("seven"));
/// ```
pub struct Select<'a> {
    cases: Vec<Case<'a>>,
    /// One for each case.
    handles: Vec<Handle>,
    next_index: usize,
    biased: bool,
}

/// The part of an operation's type that a [`Select`] remembers.
#[derive(Clone, Copy)]
struct Handle {
    /// The number that the user knows it by.
    index: usize,
    /// The sender or receiver, to see that the operation is completed with the right one.
    address: *const (),
    /// The layout of a value to receive.
    layout: Layout,
    /// A function that gives a reservation back; senders only.
    cancel: Option<unsafe fn(*const (), Reservation)>,
}

// SAFETY: between calls the nodes are in no queue and the slots unused; the handles are only compared. A value that is
// received by a select on a thread where it may not be used is never touched there: only `SelectedOperation::recv`
// with its receiver can get it out.
unsafe impl Send for Select<'_> {}
// SAFETY: through a shared reference nothing can be done but printing and cloning.
unsafe impl Sync for Select<'_> {}

/// # Safety
/// `sender` is a `Sender<T>`.
unsafe fn cancel<T>(sender: *const (), reservation: Reservation) {
    // SAFETY: by the caller.
    let chan: &Chan<T> = unsafe { &*sender.cast::<Sender<T>>() }.chan();
    chan.cancel(reservation);
}

impl<'a> Select<'a> {
    /// Makes a list without operations.
    ///
    /// ```
    /// let mut select = mungo::chan::Select::new();
    /// assert!(select.try_select().is_err());
    /// ```
    pub fn new() -> Select<'a> {
        Select { cases: Vec::new(), handles: Vec::new(), next_index: 0, biased: false }
    }

    /// Makes a list that, of several operations that can go on, chooses the one that was added first.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (a, b) = (bounded::<i32>(1), bounded(1));
    /// a.0.send(1).unwrap();
    /// b.0.send(2).unwrap();
    /// let mut select = Select::new_biased();
    /// select.recv(&a.1);
    /// select.recv(&b.1);
    /// assert_eq!(select.select().recv(&a.1), Ok(1));
    /// ```
    pub fn new_biased() -> Select<'a> {
        Select { biased: true, ..Select::new() }
    }

    fn add(
        &mut self,
        case: Case<'a>,
        address: *const (),
        layout: Layout,
        cancel: Option<unsafe fn(*const (), Reservation)>,
    ) -> usize {
        let index = self.next_index;
        self.next_index += 1;
        self.cases.push(case);
        self.handles.push(Handle { index, address, layout, cancel });
        index
    }

    /// Adds a send operation. Returns its index; indices count up from 0.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// let mut select = Select::new();
    /// assert_eq!(select.send(&tx), 0);
    /// select.select().send(&tx, 5).unwrap();
    /// assert_eq!(rx.recv(), Ok(5));
    /// ```
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.add(Case::send(sender), std::ptr::from_ref(sender).cast(), Layout::new::<()>(), Some(cancel::<T>))
    }

    /// Adds a receive operation. Returns its index; indices count up from 0.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// tx.send(5).unwrap();
    /// let mut select = Select::new();
    /// assert_eq!(select.recv(&rx), 0);
    /// assert_eq!(select.select().recv(&rx), Ok(5));
    /// ```
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        let case = Case::recv(receiver, std::ptr::null_mut());
        self.add(case, std::ptr::from_ref(receiver).cast(), Layout::new::<T>(), None)
    }

    /// Takes an operation away. The indices of the others stay.
    ///
    /// # Panics
    /// If there is no such operation, or it was removed before.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (tx, rx) = bounded::<i32>(1);
    /// let mut select = Select::new();
    /// let receive = select.recv(&rx);
    /// drop(tx);
    /// assert!(select.try_ready().is_ok());
    /// select.remove(receive);
    /// assert!(select.try_ready().is_err());
    /// ```
    pub fn remove(&mut self, index: usize) {
        assert!(index < self.next_index, "no operation has the index {index}");
        let at = self.handles.iter().position(|handle| handle.index == index);
        let at = at.expect("the operation was removed before");
        // Not `swap_remove`: a biased choice goes by the order.
        self.cases.remove(at);
        self.handles.remove(at);
    }

    fn run(&mut self, limit: Option<Limit>) -> Option<SelectedOperation<'a>> {
        if self.cases.is_empty() {
            limit.into_iter().for_each(engine::idle);
            return None;
        }
        let mut storage = Storage::with_room_for(&self.handles);
        let slot = storage.address();
        for case in &mut self.cases {
            if let Kind::Recv(_) = case.kind {
                case.slot = slot;
            }
        }
        let chosen = engine::run(&self.cases, Goal::Take, self.biased, limit)?;
        let (handle, taken) = (self.handles[chosen], self.cases[chosen].taken.get());
        Some(SelectedOperation::new(handle, taken, storage))
    }

    fn watch(&mut self, limit: Option<Limit>) -> Option<usize> {
        if self.cases.is_empty() {
            limit.into_iter().for_each(engine::idle);
            return None;
        }
        engine::run(&self.cases, Goal::Watch, self.biased, limit).map(|chosen| self.handles[chosen].index)
    }

    /// Chooses an operation that can go on now.
    ///
    /// # Errors
    /// Fails if there is none.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// assert!(select.try_select().is_err());
    /// tx.send(1).unwrap();
    /// assert_eq!(select.try_select().unwrap().recv(&rx), Ok(1));
    /// ```
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.run(None).ok_or(TrySelectError)
    }

    /// Blocks until an operation can go on, and chooses it.
    ///
    /// # Panics
    /// If there is no operation: it would block for ever.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (a, b) = (bounded(0), bounded::<&str>(0));
    /// let tx = a.0.clone();
    /// mungo::go(move || tx.send("a").unwrap());
    /// let mut select = Select::new();
    /// select.recv(&b.1);
    /// select.recv(&a.1);
    /// let operation = select.select();
    /// assert_eq!(operation.index(), 1);
    /// assert_eq!(operation.recv(&a.1), Ok("a"));
    /// ```
    pub fn select(&mut self) -> SelectedOperation<'a> {
        assert!(!self.cases.is_empty(), "a `Select` without operations would block for ever");
        self.run(Some(Limit::Forever)).expect("without a limit there is a choice")
    }

    /// As [`select`](Self::select), for at most `timeout`.
    ///
    /// # Errors
    /// Fails if no operation could go on in time.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    /// use std::time::Duration;
    ///
    /// let (_tx, rx) = bounded::<i32>(1);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// assert!(select.select_timeout(Duration::from_millis(2)).is_err());
    /// ```
    pub fn select_timeout(&mut self, timeout: Duration) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Some(Limit::For(timeout))).ok_or(SelectTimeoutError)
    }

    /// As [`select`](Self::select), at most until `deadline`.
    ///
    /// # Errors
    /// Fails if no operation could go on in time.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    /// use std::time::{Duration, Instant};
    ///
    /// let (_tx, rx) = bounded::<i32>(1);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// let deadline = Instant::now() + Duration::from_millis(2);
    /// assert!(select.select_deadline(deadline).is_err());
    /// assert!(Instant::now() >= deadline);
    /// ```
    pub fn select_deadline(&mut self, deadline: Instant) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Some(Limit::Until(deadline))).ok_or(SelectTimeoutError)
    }

    /// Returns the index of an operation that could go on now. Other goroutines may be faster: try it, and ask again.
    ///
    /// # Errors
    /// Fails if there is none.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// let mut select = Select::new();
    /// let receive = select.recv(&rx);
    /// assert!(select.try_ready().is_err());
    /// tx.send(1).unwrap();
    /// assert_eq!(select.try_ready(), Ok(receive));
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// ```
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.watch(None).ok_or(TryReadyError)
    }

    /// Blocks until an operation could go on, and returns its index.
    ///
    /// # Panics
    /// If there is no operation: it would block for ever.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (tx, rx) = bounded(0);
    /// mungo::go(move || tx.send(1).unwrap());
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// let value = loop {
    ///     select.ready();
    ///     if let Ok(value) = rx.try_recv() {
    ///         break value;
    ///     }
    /// };
    /// assert_eq!(value, 1);
    /// ```
    pub fn ready(&mut self) -> usize {
        assert!(!self.cases.is_empty(), "a `Select` without operations would block for ever");
        self.watch(Some(Limit::Forever)).expect("without a limit there is a choice")
    }

    /// As [`ready`](Self::ready), for at most `timeout`.
    ///
    /// # Errors
    /// Fails if no operation became ready in time.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    /// use std::time::Duration;
    ///
    /// let (_tx, rx) = bounded::<i32>(1);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// assert!(select.ready_timeout(Duration::from_millis(2)).is_err());
    /// ```
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.watch(Some(Limit::For(timeout))).ok_or(ReadyTimeoutError)
    }

    /// As [`ready`](Self::ready), at most until `deadline`.
    ///
    /// # Errors
    /// Fails if no operation became ready in time.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    /// use std::time::{Duration, Instant};
    ///
    /// let (_tx, rx) = bounded::<i32>(1);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// assert!(select.ready_deadline(Instant::now() + Duration::from_millis(2)).is_err());
    /// ```
    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<usize, ReadyTimeoutError> {
        self.watch(Some(Limit::Until(deadline))).ok_or(ReadyTimeoutError)
    }
}

impl Clone for Select<'_> {
    fn clone(&self) -> Self {
        let cases = self.cases.iter().map(Case::again).collect();
        Select { cases, handles: self.handles.clone(), ..*self }
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Select::new()
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Select { .. }")
    }
}
