//! Channels (first light; the essay follows).

#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
mod error;
mod queue;
#[cfg(not(loom))]
mod receiver;
#[cfg(not(loom))]
mod select;
#[cfg(not(loom))]
mod sender;
#[cfg(not(loom))]
mod timer;

#[cfg(not(loom))]
pub use api::*;

/// What [`select!`](crate::chan::select!) expands to. Not for others.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod __private {
    pub use super::select::{Arm, Chosen, Slot, Ticket, Wait, forever, idle, select};
}

#[cfg(not(loom))]
mod api {
    pub use super::error::{
        CloseError, ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
        SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
    };
    pub use super::make::{after, at, bounded, never, tick, unbounded};
    pub use super::receiver::{IntoIter, Iter, Receiver, TryIter};
    pub use super::select::{Select, SelectedOperation};
    pub use super::sender::Sender;
    pub use crate::{select, select_biased};
}
#[cfg(not(loom))]
mod make;
