//! Channels: how goroutines and threads pass values to each other, and wait for each other.
//!
//! The interface is that of crossbeam-channel, name for name; the inside is Go's. Both ends can be cloned, and work on
//! goroutines, which park, and on plain threads, which block, in any mixture.
//!
//! ```
//! use mungo::chan::{after, bounded, select};
//! use std::time::Duration;
//!
//! let (jobs, job) = bounded(0);
//! let (results, result) = bounded(10);
//! for _ in 0..4 {
//!     let (job, results) = (job.clone(), results.clone());
//!     mungo::go(move || job.iter().for_each(|n: u64| results.send(n * n).unwrap()));
//! }
//! drop(results); // so that the last worker's end is the end of the results
//! mungo::go(move || (1..=10).for_each(|n| jobs.send(n).unwrap()));
//! # drop(job);
//!
//! let mut sum = 0;
//! loop {
//!     select! {
//!         recv(result) -> n => match n {
//!             Ok(n) => sum += n,
//!             Err(_) => break, // the channel is closed, and empty
//!         },
//!         recv(after(Duration::from_secs(60))) -> _ => panic!("too slow"),
//!     }
//! }
//! assert_eq!(sum, 385);
//! ```
//!
//! | made by | holds | a sender waits | a receiver waits |
//! |---|---|---|---|
//! | [`bounded(n)`](bounded) | up to `n` values | while it is full | while it is empty |
//! | [`bounded(0)`](bounded) | none: from hand to hand | for a receiver | for a sender |
//! | [`unbounded()`](unbounded) | what memory holds | never | while it is empty |
//! | [`after`], [`at`], [`tick`] | the time | – | for the clock |
//! | [`never`](fn@never) | none | – | for ever |
//!
//! **Disconnection.** When the last [`Sender`] is dropped, or one of them [closes](Sender::close) the channel,
//! receivers get what is left and then an error. When the last [`Receiver`] is dropped, what is left is dropped, and
//! senders get their values back. No operation waits on a disconnected channel.
//!
//! **Order.** Values of one sender arrive in the order in which they were sent. Waiters are served in the order in
//! which they came. A goroutine that a channel wakes runs next on the waker's processor.
//!
//! **Tasks.** [`recv_async`](Receiver::recv_async) and [`send_async`](Sender::send_async) are futures, for
//! [`block_on`](crate::block_on()) and any executor; with the feature `futures` there are streams and sinks. They wait
//! in the same lines as goroutines and threads. A receive future may be dropped at any time: a value that it was given
//! goes to the next receiver that waits, or to the front of the channel, past its capacity if need be. Other receivers
//! may have got later values meanwhile, or have seen the channel disconnected; a lone receiver sees the order kept.

// How it is built, its invariants and what was rejected: README.md in this folder.

mod buffer;
mod channel;
mod error;
mod future;
mod handles;
mod iter;
mod make;
pub(crate) mod missed;
mod queue;
mod select;
#[cfg(feature = "futures")]
mod stream;
mod task_wait;
#[cfg(test)]
mod tests;
mod timer;
pub(crate) mod waits;

pub(crate) use make::tick_with;

/// What [`select!`](crate::chan::select!) expands to. Not for other callers.
#[doc(hidden)]
pub mod __private {
    pub use super::select::{Arm, Chosen, Slot, Ticket, Wait, forever, idle, select};
}

pub use crate::{select, select_biased};
pub use error::{
    CloseError, ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
    SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
pub use future::{RecvFut, SendFut};
pub use handles::{Receiver, Sender};
pub use iter::{IntoIter, Iter, TryIter};
pub use make::{after, at, bounded, never, tick, unbounded};
pub use select::{Select, SelectedOperation};
#[cfg(feature = "futures")]
pub use stream::{RecvStream, SendSink};
