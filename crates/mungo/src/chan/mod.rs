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
//!
//! # How it works
//!
//! As Go's `hchan`: a buffer, a lock, and a queue of waiters on each side, as nodes on their own frames. A sender that
//! finds a receiver waiting writes into the receiver's frame; a receiver that finds a sender waiting takes from there,
//! and if there is a buffer takes from the buffer and moves the sender's value into it. So a value is copied once or
//! twice, and the waiter has nothing left to do when it runs. The lock is held for tens of nanoseconds, never across a
//! switch, and no code of a value's type runs under it.
//!
//! One claim decides every race: a waiting operation is ended by the thread that takes its claim, be it a partner on
//! one of many channels or the clock (`sched::claim`). A plain send or receive without a time-out is known to one
//! queue only; its lock is claim enough.
//!
//! `select!` first looks at two bits that each channel publishes when its lock is released ("a send would not block",
//! "a receive would not block"), without any lock, and tries one of the ready cases. Only if there is none it locks
//! all its channels, in the order of their addresses, and gets in line everywhere (`select/engine.rs`).
//!
//! The value of a `send` arm is made after the arm was chosen, as in crossbeam-channel and unlike Go, so that a value
//! which was not sent is not lost. Between the choice and the value the sender holds a *reservation*: a place in the
//! buffer, or, without one, the receiver itself, which waits for no other sender any more. It can be given back.
//!
//! A task's node lies in its future, which may be dropped at any time. So everything happens to it under the lock, and
//! it cannot be a partner in the sense above: if it waits for the value of a selected sender, it does so in a queue of
//! its own, *engaged*, and the sender has the promise of a place (`task_wait.rs`).
//!
//! # Invariants
//!
//! - `len + reserved <= capacity`, but for what was promised to tasks or came back from them. A sender waits only if
//!   they are not below, and no receiver waits (but for the nodes of one and the same select). A receiver waits only
//!   if `len` is 0.
//! - An operation in a queue can be ended at any moment, so between getting in line and parking a goroutine stays in
//!   the runtime.
//! - Wakers wake after they have released the lock. Lock order: a channel's lock is taken with none held but other
//!   channels' of a lower address; a timer fires without any channel's lock, by the claim alone.
//! - Watchers ([`Select::ready`]) are in a queue only while the channel is not ready for them.
//!
//! # Rejected
//!
//! - *A lock-free ring*, as in crossbeam-channel: it saves the lock for values that are in the buffer, but waiters
//!   need a lock in any case, hand-over needs the two to agree, and a receiver that finds a place taken but not yet
//!   filled must spin.
//! - *An unbounded ring that doubles*: copies all values under the lock at a time. There is a list of blocks instead.
//! - *Timer goroutines or heap entries* for `after` and `tick`: whether a value is there follows from the clock.
//! - *Enqueueing a select channel by channel* without holding all locks: see `select/engine.rs`.
//! - *Making the values of `send` arms beforehand*, as Go does: see above.

mod buffer;
mod channel;
mod core;
mod error;
mod future;
mod make;
pub(crate) mod missed;
mod queue;
mod receiver;
mod select;
mod sender;
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
pub use make::{after, at, bounded, never, tick, unbounded};
pub use receiver::{IntoIter, Iter, Receiver, TryIter};
pub use select::{Select, SelectedOperation};
pub use sender::Sender;
#[cfg(feature = "futures")]
pub use stream::{RecvStream, SendSink};
