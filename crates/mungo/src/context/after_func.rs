//! Functions that are called when a context is done.

use super::Context;
use super::hook::Function;
use super::node::Node;
use std::fmt;
use std::sync::Weak;

/// A function that is to be called when a context is done: the result of [`after_func`].
///
/// Dropping it changes nothing: the function is called all the same.
///
/// ```
/// use mungo::context::{Context, after_func};
///
/// let (ctx, cancel) = Context::background().with_cancel();
/// let cleaning = after_func(&ctx, || unreachable!("it was called off"));
/// assert!(cleaning.stop());
/// cancel.cancel();
/// assert!(!cleaning.stop());
/// ```
pub struct AfterFunc {
    node: Weak<Node>,
    number: Option<u64>,
}

/// Calls `f` in a goroutine of its own when the context is done, at once if it is done already: Go's
/// `context.AfterFunc`.
///
/// A context that is dropped without being cancelled never calls it; it drops `f`.
///
/// ```
/// use mungo::context::{Context, after_func};
/// use mungo::net::TcpListener;
///
/// // Ends an `accept` from outside.
/// let (ctx, cancel) = Context::background().with_cancel();
/// let listener = std::sync::Arc::new(TcpListener::bind("127.0.0.1:0")?);
/// let closing = listener.clone();
/// after_func(&ctx, move || closing.close().unwrap());
/// mungo::go(move || cancel.cancel());
/// assert!(listener.accept().is_err());
/// # std::io::Result::Ok(())
/// ```
///
/// If there is no memory for the goroutine, a line on stderr says that the function was not called.
#[track_caller]
pub fn after_func(ctx: &Context, f: impl FnOnce() + Send + 'static) -> AfterFunc {
    let function = Function::new(f);
    let Some((node, source)) = ctx.node.source_node() else {
        return AfterFunc { node: Weak::new(), number: None }; // nothing cancels the root
    };
    AfterFunc { node, number: source.add_function(function) }
}

impl AfterFunc {
    /// Calls the function off. Returns `true` if it will not be called because of this; `false` if it was started or
    /// called off before, or the context can never be done.
    ///
    /// ```
    /// use mungo::context::{Context, after_func};
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let (tx, rx) = mungo::chan::bounded(1);
    /// let saying = after_func(&ctx, move || tx.send("over").unwrap());
    /// cancel.cancel();
    /// assert_eq!(rx.recv(), Ok("over"));
    /// assert!(!saying.stop());
    /// ```
    pub fn stop(&self) -> bool {
        let node = self.node.upgrade();
        let source = node.as_ref().and_then(|node| node.source().get());
        source.zip(self.number).and_then(|(source, number)| source.take_function(number)).is_some()
    }
}

impl fmt::Debug for AfterFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfterFunc").finish_non_exhaustive()
    }
}
