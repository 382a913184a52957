//! Signals of the system as values: Ctrl-C, `kill`, a terminal that goes away. Go's `os/signal`.
//!
//! [`notify`] returns a channel of signals, for `select!` or a loop. [`Context::with_signals`] makes a context that is
//! cancelled by the first one, which is all that most servers need:
//!
//! ```standalone_crate
//! use mungo::context::Context;
//! use mungo::signal::Signal;
//!
//! let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
//! let worker = mungo::go(move || {
//!     while ctx.sleep(std::time::Duration::from_millis(1)).is_ok() {} // works, until it is asked to stop
//!     ctx.cause().unwrap().to_string()
//! });
//! mungo::signal::raise(Signal::TERMINATE); // as `kill` does
//! assert_eq!(worker.join().unwrap(), "received SIGTERM");
//! ```
//!
//! # Rules
//!
//! 1. While a listener for a signal exists, its default effect (mostly the end of the process) is off. Each listener
//!    gets it.
//! 2. A handler that the program or a library had installed before is called as well, as before. One that is
//!    installed later replaces this one, unless it calls it in turn, as good ones do.
//! 3. When the last listener of a signal is gone, the signal has its former effect again. So the second Ctrl-C ends a
//!    program whose [context](Context::with_signals) the first one cancelled, even if it hangs in its shutdown.
//! 4. Signals that come faster than they are received count once, as always with signals; but none is missed
//!    altogether while a listener's channel has room (for 64).
//! 5. [`Signal::QUIT`] does not write its [dump](crate::debug) while a listener for it exists.
//! 6. From the first listener on, the process does not look for deadlocks: a signal may come.

// How it is built, its invariants and what was rejected: README.md in this folder.

mod handler;
mod listeners;
mod number;

pub use listeners::notify;
pub use number::Signal;

use crate::context::{Cancel, Context};
use std::fmt;

/// The cause of a context that a signal cancelled: see [`Context::with_signals`].
///
/// ```standalone_crate
/// use mungo::context::Context;
/// use mungo::signal::{Received, Signal, raise};
///
/// let (ctx, _cancel) = Context::background().with_signals(&[Signal::USER1]);
/// raise(Signal::USER1);
/// _ = ctx.done().recv();
/// let cause = ctx.cause().unwrap();
/// assert_eq!(cause.downcast_ref::<Received>(), Some(&Received(Signal::USER1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received(pub Signal);

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "received {}", self.0)
    }
}

impl std::error::Error for Received {}

impl Context {
    /// Makes a child that is cancelled by the first of these signals, with [`Received`] as its
    /// [cause](Context::cause): Go's `signal.NotifyContext`.
    ///
    /// From then on, and when the context is done for another reason, it does not listen any more, and the signals
    /// have their former effect: a second Ctrl-C ends the process at once.
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::signal::Signal;
    ///
    /// let (ctx, cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    /// assert!(!ctx.is_done());
    /// cancel.cancel(); // the work is done: Ctrl-C is Ctrl-C again
    /// ```
    ///
    /// # Panics
    /// As [`notify`].
    #[doc(alias("ctrl_c", "shutdown", "NotifyContext"))]
    #[must_use]
    pub fn with_signals(&self, signals: &[Signal]) -> (Context, Cancel) {
        let (ctx, cause) = self.with_cancel_cause();
        listeners::add_context(signals, &ctx, cause);
        let cancel = ctx.cancel_handle();
        (ctx, cancel)
    }
}

/// Sends a signal to this process, as `kill` would: for tests, and for programs that end themselves the way a user
/// would end them.
///
/// ```standalone_crate
/// use mungo::signal::{Signal, notify, raise};
///
/// let signals = notify(&[Signal::USER2]);
/// raise(Signal::USER2);
/// assert_eq!(signals.recv(), Ok(Signal::USER2));
/// ```
pub fn raise(signal: Signal) {
    // SAFETY: no memory involved; what the signal does is safe, or the end of the process.
    unsafe { libc::kill(libc::getpid(), signal.as_raw()) };
}
