//! Labels of the calling goroutine.

use crate::labels::Labels;
use crate::sched::run::current;
use std::marker::PhantomData;

/// A label of the goroutine that made it, until it is dropped. See [`label`].
///
/// ```
/// let labels = mungo::go(|| {
///     let _label: mungo::debug::Label = mungo::debug::label("request", "17");
///     mungo::debug::dump().goroutines()[0].labels.len()
/// });
/// assert_eq!(labels.join().unwrap(), 1);
/// ```
#[derive(Debug)]
#[must_use = "the label is gone when this is dropped"]
pub struct Label {
    /// `None`: the caller was no goroutine.
    number: Option<u64>,
    /// It stays with its goroutine.
    not_send: PhantomData<*const ()>,
}

/// Gives the calling goroutine a label, until the guard is dropped: a key and a value, as `("request", "17")`.
///
/// Goroutines that it spawns meanwhile have the label too, for as long as they live. Dumps show labels, and samples of
/// profiles carry them: `go tool pprof -tagfocus=request=17`. Of two labels with the same key the one that was set last
/// counts. On a plain thread it does nothing.
///
/// A label costs two allocations, and an atomic addition for each goroutine that inherits it.
///
/// ```
/// use mungo::debug::{dump, label};
/// let (tx, rx) = mungo::chan::bounded::<()>(0);
/// let outer = mungo::go(move || {
///     let _request = label("request", "17");
///     mungo::go(move || rx.recv()).join()
/// });
/// let is_labelled = |g: &mungo::debug::GoroutineDump| {
///     let has_label = g.labels.iter().any(|(key, value)| (&**key, &**value) == ("request", "17"));
///     g.state.to_string() == "chan receive" && has_label
/// };
/// while !dump().goroutines().iter().any(is_labelled) {}
/// drop(tx);
/// assert!(outer.join().unwrap().unwrap().is_err());
/// ```
pub fn label(key: &str, value: &str) -> Label {
    let number = current::g().map(|g| {
        // SAFETY: the calling goroutine's own labels.
        let labels = Labels::with(unsafe { g.labels.get() }, key, value);
        let number = labels.number();
        g.labels.replace(Some(labels));
        number
    });
    Label { number, not_send: PhantomData }
}

impl Drop for Label {
    fn drop(&mut self) {
        if let (Some(number), Some(g)) = (self.number, current::g()) {
            // SAFETY: the calling goroutine's own labels, as it cannot be sent to another one.
            if let Some(labels) = unsafe { g.labels.get() } {
                g.labels.replace(labels.without(number));
            }
        }
    }
}
