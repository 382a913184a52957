//! An operation that was chosen, and not completed yet.

use super::Handle;
use super::case::Taken;
use crate::chan::error::{RecvError, SendError};
use crate::chan::handles::{Receiver, Sender};
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Bytes for one received value of a type that only its receiver knows.
pub(super) struct Storage {
    inline: MaybeUninit<[u64; 4]>,
    /// For values that are larger, or aligned more strictly.
    heap: Option<(NonNull<u8>, Layout)>,
}

impl Storage {
    /// Makes room for the largest value, since only one of the operations will be chosen.
    pub(super) fn with_room_for(handles: &[Handle]) -> Storage {
        let size = handles.iter().map(|handle| handle.layout.size()).max().unwrap_or(0);
        let align = handles.iter().map(|handle| handle.layout.align()).max().unwrap_or(1);
        let inline = MaybeUninit::<[u64; 4]>::uninit();
        if size <= size_of_val(&inline) && align <= align_of_val(&inline) {
            return Storage { inline, heap: None };
        }
        let layout = Layout::from_size_align(size.max(1), align).expect("sizes and alignments of types");
        // SAFETY: the size is not 0.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) });
        let memory = memory.unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        Storage { inline, heap: Some((memory, layout)) }
    }

    pub(super) fn address(&mut self) -> *mut () {
        match self.heap {
            Some((memory, _)) => memory.as_ptr().cast(),
            None => self.inline.as_mut_ptr().cast(),
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some((memory, layout)) = self.heap {
            // SAFETY: allocated with this layout.
            unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
        }
    }
}

/// An operation that was chosen and must be completed, with the sender or receiver that it was made of.
///
/// # Panics
/// If it is dropped instead. (A right to send goes back to the channel then; a value that was received is lost, and
/// not dropped: this thread may not be allowed to.)
///
/// ```
/// use mungo::chan::{Select, bounded};
///
/// let (tx, rx) = bounded(1);
/// let mut select = Select::new();
/// select.send(&tx);
/// select.select().send(&tx, 5).unwrap();
/// assert_eq!(rx.recv(), Ok(5));
/// ```
#[must_use = "a selected operation must be completed"]
pub struct SelectedOperation<'a> {
    handle: Handle,
    taken: Taken,
    storage: Storage,
    channel: PhantomData<&'a ()>,
}

impl<'a> SelectedOperation<'a> {
    /// Makes an operation. `storage` holds the value, if one was received.
    pub(super) fn new(handle: Handle, taken: Taken, storage: Storage) -> SelectedOperation<'a> {
        SelectedOperation { handle, taken, storage, channel: PhantomData }
    }
}

impl SelectedOperation<'_> {
    /// Returns the index that [`Select::send`](super::Select::send) or [`Select::recv`](super::Select::recv) returned.
    ///
    /// ```
    /// use mungo::chan::{Select, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// tx.send(1).unwrap();
    /// let mut select = Select::new();
    /// let receive = select.recv(&rx);
    /// let operation = select.select();
    /// assert_eq!(operation.index(), receive);
    /// operation.recv(&rx).unwrap();
    /// ```
    pub fn index(&self) -> usize {
        self.handle.index
    }

    /// Completes a send operation. Never blocks.
    ///
    /// # Errors
    /// Returns the value, if the channel is disconnected.
    ///
    /// # Panics
    /// If `sender` is not the one that was given to [`Select::send`](super::Select::send).
    ///
    /// ```
    /// use mungo::chan::{Select, SendError, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// drop(rx);
    /// let mut select = Select::new();
    /// select.send(&tx);
    /// assert_eq!(select.select().send(&tx, 5), Err(SendError(5)));
    /// ```
    pub fn send<T>(mut self, sender: &Sender<T>, value: T) -> Result<(), SendError<T>> {
        let is_it = self.handle.address == std::ptr::from_ref(sender).cast();
        match self.taken {
            Taken::Reserved(reservation) if is_it => {
                self.taken = Taken::Nothing;
                sender.chan().send_reserved(reservation, value).map_err(SendError)
            }
            _ => panic!("the operation was selected for another sender or receiver"),
        }
    }

    /// Completes a receive operation. Never blocks.
    ///
    /// # Errors
    /// Fails if the channel is empty and disconnected.
    ///
    /// # Panics
    /// If `receiver` is not the one that was given to [`Select::recv`](super::Select::recv).
    ///
    /// ```
    /// use mungo::chan::{RecvError, Select, bounded};
    ///
    /// let (tx, rx) = bounded::<i32>(1);
    /// drop(tx);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// assert_eq!(select.select().recv(&rx), Err(RecvError));
    /// ```
    pub fn recv<T>(mut self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        let is_it = self.handle.address == std::ptr::from_ref(receiver).cast();
        assert!(is_it, "the operation was selected for another sender or receiver");
        match std::mem::replace(&mut self.taken, Taken::Nothing) {
            // SAFETY: the engine moved a value of this receiver there; its type is `T`.
            Taken::Value => Ok(unsafe { self.storage.address().cast::<T>().read() }),
            _ => Err(RecvError),
        }
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        if let (Taken::Reserved(reservation), Some(cancel)) = (self.taken, self.handle.cancel) {
            // SAFETY: the sender outlives `'a`, and is of the type that `cancel` was made for.
            unsafe { cancel(self.handle.address, reservation) };
        }
        if self.taken != Taken::Nothing && !std::thread::panicking() {
            panic!("a `SelectedOperation` was dropped before it was completed");
        }
    }
}

impl fmt::Debug for SelectedOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SelectedOperation { .. }")
    }
}
