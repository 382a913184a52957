//! A trace with more than the usual events.

use super::Tracing;
use crate::tracer;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Says what is in a trace: see [`Tracing::builder`].
///
/// ```
/// # if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) { return Ok(()) }
/// let file = std::env::temp_dir().join(format!("mungo-doc-{}.stacks", std::process::id()));
/// let tracing = mungo::trace::Tracing::builder().stacks(true).start(&file)?;
/// #[inline(never)]
/// fn waits_for_a_value(from: mungo::chan::Receiver<u8>) -> u8 {
///     from.recv().unwrap()
/// }
/// let (to, from) = mungo::chan::bounded(0);
/// let waiter = mungo::go(move || waits_for_a_value(from));
/// let waits = |g: &mungo::debug::GoroutineDump| matches!(g.state, mungo::debug::State::Waiting(_));
/// while !mungo::debug::dump().goroutines().iter().any(waits) {}
/// to.send(7).unwrap();
/// assert_eq!(waiter.join().unwrap(), 7);
/// tracing.stop()?;
/// // The name of the function in which the goroutine waited.
/// let (name, bytes) = (b"waits_for_a_value", std::fs::read(&file)?);
/// assert!(bytes.windows(name.len()).any(|window| window == name));
/// # std::fs::remove_file(file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct Builder {
    pub(super) stacks: bool,
}

impl Builder {
    /// Sets whether the trace has the stack of each goroutine that parks, is preempted, comes back from a call that
    /// blocked its thread, or makes another one. Default: no. It has the inner 64 calls of a stack.
    ///
    /// It is for Linux on x86-64, with the feature `backtrace`. `docs/trace.md` says what it costs.
    ///
    /// ```
    /// use std::io::ErrorKind;
    ///
    /// match mungo::trace::Tracing::builder().stacks(true).start_writer(std::io::sink()) {
    ///     Ok(tracing) => assert_eq!(tracing.stop()?.stacks_lost, 0),
    ///     Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stacks(mut self, stacks: bool) -> Self {
        self.stacks = stacks;
        self
    }

    /// Starts the trace as [`trace::start`](super::start).
    ///
    /// ```
    /// let file = std::env::temp_dir().join(format!("mungo-doc-builder-{}.trace", std::process::id()));
    /// let tracing = mungo::trace::Tracing::builder().start(&file)?;
    /// assert_eq!(tracing.stop()?.bytes, std::fs::metadata(&file)?.len());
    /// # std::fs::remove_file(file)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As there. `Unsupported` if there are no stacks on this platform or in this build.
    pub fn start(self, path: impl AsRef<Path>) -> io::Result<Tracing> {
        tracer::check_stacks(self.stacks)?; // before the file is made
        self.start_writer(File::create(path)?)
    }

    /// Starts the trace as [`trace::start_writer`](super::start_writer).
    ///
    /// ```
    /// let tracing = mungo::trace::Tracing::builder().start_writer(std::io::sink())?;
    /// assert!(tracing.stop()?.bytes > 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As there. `Unsupported` if there are no stacks on this platform or in this build.
    pub fn start_writer(self, out: impl Write + Send + 'static) -> io::Result<Tracing> {
        Ok(Tracing { sink: Some(tracer::start(Box::new(out), self.stacks)?) })
    }
}
