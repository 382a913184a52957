//! Cancellation, deadlines and values that go with a piece of work: Go's `context`.
//!
//! A [`Context`] is passed down the call tree, by reference or as a clone. A function that starts a part of the work
//! that shall be stoppable derives a child; cancelling it cancels all that was derived from it, and nothing above.
//!
//! ```
//! use mungo::chan::{bounded, select};
//! use mungo::context::Context;
//! use std::time::Duration;
//!
//! fn worker(ctx: &Context, jobs: &mungo::chan::Receiver<u32>) -> u32 {
//!     let mut sum = 0;
//!     loop {
//!         select! {
//!             recv(jobs) -> job => sum += job.unwrap(),
//!             recv(ctx.done()) -> _ => return sum,
//!         }
//!     }
//! }
//!
//! let (tx, rx) = bounded(0);
//! let (ctx, cancel) = Context::background().with_cancel();
//! let running = mungo::go(move || worker(&ctx, &rx));
//! (1..=10).for_each(|job| tx.send(job).unwrap());
//! cancel.cancel();
//! assert_eq!(running.join().unwrap(), 55);
//! ```

// How it is built, its invariants and what was rejected: context/README.md.

mod after_func;
pub(crate) mod hook;
mod node;
mod wait;

pub use after_func::{AfterFunc, after_func};
pub use wait::{ContextRecvError, ContextSendError};

use crate::chan::Receiver;
use node::Node;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The reason why a [`Context`] is done.
///
/// ```
/// use mungo::context::{Context, ContextError};
///
/// let (ctx, cancel) = Context::background().with_cancel();
/// cancel.cancel();
/// assert_eq!(ctx.err(), Some(ContextError::Canceled));
/// assert_eq!(ctx.err().unwrap().to_string(), "context canceled");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextError {
    /// It was cancelled, or a context that it was derived from was.
    Canceled,
    /// Its deadline has passed, or that of a context that it was derived from.
    DeadlineExceeded,
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContextError::Canceled => "context canceled",
            ContextError::DeadlineExceeded => "context deadline exceeded",
        })
    }
}

impl Error for ContextError {}

impl From<ContextError> for std::io::Error {
    /// Makes an error of kind [`TimedOut`](std::io::ErrorKind::TimedOut) or [`Other`](std::io::ErrorKind::Other), with
    /// the reason inside.
    ///
    /// ```
    /// use mungo::context::ContextError;
    /// use std::io;
    ///
    /// let error = io::Error::from(ContextError::Canceled);
    /// let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<ContextError>());
    /// assert_eq!(reason, Some(&ContextError::Canceled));
    /// assert_eq!(io::Error::from(ContextError::DeadlineExceeded).kind(), io::ErrorKind::TimedOut);
    /// ```
    fn from(why: ContextError) -> std::io::Error {
        let kind = match why {
            // WHY NOT `Interrupted`: `read_exact` and others try again after it.
            ContextError::Canceled => std::io::ErrorKind::Other,
            ContextError::DeadlineExceeded => std::io::ErrorKind::TimedOut,
        };
        std::io::Error::new(kind, why)
    }
}

/// The reason why a context was cancelled, in the words of the caller that cancelled it.
///
/// ```
/// use mungo::context::{Cause, Context};
///
/// let (ctx, cancel) = Context::background().with_cancel_cause();
/// cancel.cancel("out of paper");
/// let cause: Cause = ctx.cause().unwrap();
/// assert_eq!(cause.to_string(), "out of paper");
/// ```
pub type Cause = Arc<dyn Error + Send + Sync>;

/// A signal to stop, a deadline, and values, for a piece of work and all its parts. See the [module](self).
///
/// Clones are the same context.
///
/// ```
/// use mungo::context::Context;
/// use std::time::Duration;
///
/// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(5));
/// assert!(ctx.sleep(Duration::from_secs(3600)).is_err()); // after 5 ms
/// ```
#[doc(alias("cancel", "shutdown", "CancellationToken"))]
#[derive(Clone)]
pub struct Context {
    node: Arc<Node>,
}

/// Cancels a [`Context`]. Clones cancel the same one.
///
/// Dropping it does nothing; see [`on_drop`](Self::on_drop).
///
/// ```
/// let (ctx, cancel) = mungo::context::Context::background().with_cancel();
/// cancel.cancel();
/// cancel.cancel(); // only the first one counts
/// assert!(ctx.is_done());
/// ```
#[derive(Clone, Debug)]
pub struct Cancel {
    node: Weak<Node>,
}

/// Cancels a [`Context`], and says why. Clones cancel the same one.
///
/// ```
/// let (ctx, cancel) = mungo::context::Context::background().with_cancel_cause();
/// cancel.cancel(std::io::Error::other("disk full"));
/// assert_eq!(ctx.cause().unwrap().to_string(), "disk full");
/// ```
#[derive(Clone, Debug)]
pub struct CancelCause {
    node: Weak<Node>,
}

/// Cancels a [`Context`] when this guard is dropped.
///
/// ```
/// let (ctx, cancel) = mungo::context::Context::background().with_cancel();
/// {
///     let _guard = cancel.on_drop();
///     assert!(!ctx.is_done());
/// }
/// assert!(ctx.is_done());
/// ```
#[derive(Debug)]
#[must_use = "the context is cancelled as soon as this is dropped"]
pub struct CancelOnDrop(Cancel);

impl Context {
    /// Returns the root: never cancelled, without a deadline and without values.
    ///
    /// ```
    /// let ctx = mungo::context::Context::background();
    /// assert!(!ctx.is_done() && ctx.deadline().is_none());
    /// ```
    #[must_use]
    pub fn background() -> Context {
        static ROOT: OnceLock<Context> = OnceLock::new();
        ROOT.get_or_init(|| Context { node: Node::root() }).clone()
    }

    /// Makes a child that can be cancelled.
    ///
    /// ```
    /// use mungo::context::Context;
    ///
    /// let (parent, cancel) = Context::background().with_cancel();
    /// let (child, cancel_child) = parent.with_cancel();
    /// cancel_child.cancel();
    /// assert!(child.is_done() && !parent.is_done());
    /// # cancel.cancel();
    /// ```
    #[must_use]
    #[doc(alias("abort", "CancellationToken"))]
    pub fn with_cancel(&self) -> (Context, Cancel) {
        let node = Node::child(&self.node, None);
        let cancel = Cancel { node: Arc::downgrade(&node) };
        (Context { node }, cancel)
    }

    /// Makes a child that can be cancelled with a reason, which [`cause`](Self::cause) returns.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    ///
    /// let (ctx, cancel) = Context::background().with_cancel_cause();
    /// cancel.cancel(std::io::Error::other("the user left"));
    /// assert_eq!(ctx.err(), Some(ContextError::Canceled));
    /// assert_eq!(ctx.cause().unwrap().to_string(), "the user left");
    /// ```
    #[must_use]
    pub fn with_cancel_cause(&self) -> (Context, CancelCause) {
        let node = Node::child(&self.node, None);
        let cancel = CancelCause { node: Arc::downgrade(&node) };
        (Context { node }, cancel)
    }

    /// Makes a child that is cancelled after `timeout`.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    /// use std::time::Duration;
    ///
    /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
    /// assert!(ctx.done().recv().is_err()); // closed
    /// assert_eq!(ctx.err(), Some(ContextError::DeadlineExceeded));
    /// ```
    ///
    /// # Panics
    /// On a plain thread, if the default runtime cannot be started.
    #[must_use]
    #[doc(alias("time limit", "deadline"))]
    pub fn with_timeout(&self, timeout: Duration) -> (Context, Cancel) {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline(deadline),
            None => self.with_cancel(),
        }
    }

    /// Makes a child that is cancelled at `deadline`, or at its parent's if that is earlier.
    ///
    /// ```
    /// use mungo::context::Context;
    /// use std::time::{Duration, Instant};
    ///
    /// let soon = Instant::now() + Duration::from_millis(2);
    /// let (parent, _cancel) = Context::background().with_deadline(soon);
    /// let (child, _cancel) = parent.with_timeout(Duration::from_secs(3600));
    /// assert_eq!(child.deadline(), Some(soon));
    /// ```
    ///
    /// # Panics
    /// On a plain thread, if the default runtime cannot be started.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> (Context, Cancel) {
        let own = self.deadline().is_none_or(|earlier| deadline < earlier).then_some(deadline);
        let node = Node::child(&self.node, own);
        let cancel = Cancel { node: Arc::downgrade(&node) };
        (Context { node }, cancel)
    }

    /// Returns another handle that cancels this context.
    pub(crate) fn cancel_handle(&self) -> Cancel {
        Cancel { node: Arc::downgrade(&self.node) }
    }

    /// Makes a child with a value, which is found by its type. It hides a value of the same type above.
    ///
    /// This is for what goes with a request, as an id or the user; not for parameters. Make a type for it.
    ///
    /// ```
    /// struct RequestId(u64);
    ///
    /// let ctx = mungo::context::Context::background().with_value(RequestId(7));
    /// assert_eq!(ctx.value::<RequestId>().unwrap().0, 7);
    /// ```
    #[must_use]
    pub fn with_value<T: Any + Send + Sync>(&self, value: T) -> Context {
        Context { node: Node::with_value(&self.node, value) }
    }

    /// Returns the nearest value of this type.
    ///
    /// ```
    /// let ctx = mungo::context::Context::background().with_value(1u8).with_value("x");
    /// assert_eq!((ctx.value::<u8>(), ctx.value::<u16>()), (Some(&1), None));
    /// ```
    pub fn value<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.node.chain().find_map(Node::value::<T>)
    }

    /// Returns the time at which it will be cancelled, if not before.
    ///
    /// ```
    /// assert_eq!(mungo::context::Context::background().deadline(), None);
    /// ```
    pub fn deadline(&self) -> Option<Instant> {
        self.node.chain().find_map(|node| node.deadline())
    }

    /// Returns a channel that is closed when the context is done: for `select!`, or to wait for it. It has no values.
    ///
    /// ```
    /// use mungo::chan::select;
    ///
    /// let (ctx, cancel) = mungo::context::Context::background().with_cancel();
    /// cancel.cancel();
    /// select! {
    ///     recv(ctx.done()) -> nothing => assert!(nothing.is_err()),
    /// }
    /// ```
    pub fn done(&self) -> &Receiver<()> {
        self.node.source().done()
    }

    /// Returns whether it was cancelled or its deadline has passed.
    ///
    /// ```
    /// assert!(!mungo::context::Context::background().is_done());
    /// ```
    pub fn is_done(&self) -> bool {
        self.err().is_some()
    }

    /// Returns why it is done; `None`: it is not.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// assert_eq!(ctx.err(), None);
    /// cancel.cancel();
    /// assert_eq!(ctx.err(), Some(ContextError::Canceled));
    /// ```
    pub fn err(&self) -> Option<ContextError> {
        self.node.source().err()
    }

    /// Returns the same as [`err`](Self::err), as a `Result`, for `?` between two steps of the work.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    ///
    /// fn steps(ctx: &Context) -> Result<u32, ContextError> {
    ///     let mut done = 0;
    ///     while done < 3 {
    ///         ctx.check()?;
    ///         done += 1;
    ///     }
    ///     Ok(done)
    /// }
    /// assert_eq!(steps(&Context::background()), Ok(3));
    /// ```
    ///
    /// # Errors
    /// Returns why it is done.
    pub fn check(&self) -> Result<(), ContextError> {
        self.err().map_or(Ok(()), Err)
    }

    /// Returns why it is done, in the words of the caller that cancelled it, or else the same as [`err`](Self::err).
    ///
    /// ```
    /// let (ctx, cancel) = mungo::context::Context::background().with_cancel();
    /// assert!(ctx.cause().is_none());
    /// cancel.cancel();
    /// assert_eq!(ctx.cause().unwrap().to_string(), "context canceled");
    /// ```
    pub fn cause(&self) -> Option<Cause> {
        self.node.source().cause()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("err", &self.err())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

impl Cancel {
    /// Cancels the context and all that were derived from it. Only the first cancellation counts.
    ///
    /// ```
    /// let (ctx, cancel) = mungo::context::Context::background().with_cancel();
    /// cancel.cancel();
    /// assert!(ctx.is_done());
    /// ```
    pub fn cancel(&self) {
        cancel(&self.node, None);
    }

    /// Cancels the context when the guard is dropped: Go's `defer cancel()`.
    ///
    /// ```
    /// let (ctx, cancel) = mungo::context::Context::background().with_cancel();
    /// drop(cancel.on_drop());
    /// assert!(ctx.is_done());
    /// ```
    pub fn on_drop(self) -> CancelOnDrop {
        CancelOnDrop(self)
    }
}

impl CancelCause {
    /// Cancels the context and all that were derived from it, because of `cause`. Only the first cancellation counts.
    ///
    /// ```
    /// let (ctx, cancel) = mungo::context::Context::background().with_cancel_cause();
    /// cancel.cancel("no more coffee");
    /// assert_eq!(ctx.cause().unwrap().to_string(), "no more coffee");
    /// ```
    pub fn cancel(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) {
        cancel(&self.node, Some(Arc::from(cause.into())));
    }

    /// As [`cancel`](Self::cancel). Returns `false` if the context was done before, or no handle of it is left.
    pub(crate) fn cancel_if_alive(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> bool {
        let Some(node) = self.node.upgrade() else { return false };
        let was_alive = node.source().err().is_none();
        drop(node.cancel(ContextError::Canceled, Some(Arc::from(cause.into()))));
        was_alive
    }
}

fn cancel(node: &Weak<Node>, cause: Option<Cause>) {
    // If the node is gone, no handle is left that could ask for the cause.
    if let Some(node) = node.upgrade() {
        drop(node.cancel(ContextError::Canceled, cause));
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
