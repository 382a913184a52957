//! The execution tracer: who ran when, who waited behind whom and why, who woke whom.
//!
//! Counters and histograms ([`Metrics`](crate::Metrics)) are sums; a trace is what happened, event by event, in the
//! order of time. [`start`] writes it to a file, [`start_writer`] to anything else, `MUNGO_TRACE=file` in the
//! environment from the first runtime to the end of the process (`%p` in the name stands for the process), and a
//! [`FlightRecorder`] keeps the last seconds in memory until something happens. Programs mark what they do by [`task`],
//! [`region`] and [`log`]; with the feature `tracing` the spans of that crate are regions too.
//!
//! ```
//! let file = std::env::temp_dir().join(format!("mungo-doc-{}.trace", std::process::id()));
//! let tracing = mungo::trace::start(&file)?;
//! mungo::go(|| {
//!     let _region = mungo::trace::region("hello");
//!     mungo::yield_now();
//! })
//! .join()
//! .unwrap();
//! let summary = tracing.stop()?;
//! assert!(summary.events > 0 && summary.dropped == 0);
//! # std::fs::remove_file(file)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! With [stacks](Builder::stacks) a trace also says where in the program goroutines stop.
//!
//! `mungo trace` shows such files; the crate `mungo-trace` reads them, and `docs/trace.md` describes them.
//!
//! # Cost
//! With no trace a place that could be traced costs less than a nanosecond. With one an event takes 16 bytes and about
//! 10 ns on the thread where it happens, without a lock or an allocation; threads of its own write. What comes faster
//! than they can write (up to 64 MiB wait for each) is dropped and counted: the program waits for its trace only by
//! [`Tracing::stop`] and [`flush`](Tracing::flush), and some seconds at its exit. A writer that fails, as with a full
//! disk, ends the trace and does nothing else.
//!
//! A stack costs some 50 ns and 5 ns a call on top of that, for the events that have one.
//!
//! In the child of a fork there is no tracing.

mod builder;
mod recorder;
#[cfg(feature = "tracing")]
mod spans;
mod user;

pub use builder::Builder;
pub use recorder::{FlightRecorder, FlightRecorderBuilder};
#[cfg(feature = "tracing")]
pub use spans::{SpanLayer, layer};
pub use user::{Region, Task, log, region, task};

use crate::tracer::{self, SinkId};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// A trace in the making. It ends when this is stopped or dropped.
///
/// ```
/// let tracing: mungo::trace::Tracing = mungo::trace::start_writer(std::io::sink())?;
/// assert!(mungo::trace::is_on());
/// drop(tracing);
/// assert!(!mungo::trace::is_on());
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "the trace ends when this is dropped"]
pub struct Tracing {
    /// `None` once it was stopped.
    sink: Option<SinkId>,
}

/// What a trace came to.
///
/// ```
/// let tracing = mungo::trace::start_writer(std::io::sink())?;
/// mungo::go(|| mungo::yield_now()).join().unwrap();
/// let summary: mungo::trace::Summary = tracing.stop()?;
/// assert!(summary.bytes > 16 * summary.events && summary.dropped == 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Number of bytes that were written.
    pub bytes: u64,
    /// Number of events that came faster than they could be written, and are missing.
    pub dropped: u64,
    /// Number of events whose stack is not known, because the process has too many different ones; 0 without stacks.
    pub stacks_lost: u64,
    /// The time from its begin to its end.
    pub duration: Duration,
}

impl From<tracer::Summary> for Summary {
    fn from(summary: tracer::Summary) -> Summary {
        let tracer::Summary { events, bytes, dropped, stacks_lost, duration } = summary;
        Summary { events, bytes, dropped, stacks_lost, duration }
    }
}

/// Starts to trace all runtimes of this process into a file, which is made anew. Goroutines may run meanwhile. Several
/// traces may be on at the same time.
///
/// ```
/// let file = std::env::temp_dir().join(format!("mungo-doc-start-{}.trace", std::process::id()));
/// let tracing = mungo::trace::start(&file)?;
/// mungo::go(|| mungo::yield_now()).join().unwrap();
/// assert_eq!(tracing.stop()?.bytes, std::fs::metadata(&file)?.len());
/// # std::fs::remove_file(file)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// If the file cannot be made, or there is no thread for the writer. An error while it is written ends the trace, and
/// is returned by [`Tracing::stop`].
pub fn start(path: impl AsRef<Path>) -> io::Result<Tracing> {
    Tracing::builder().start(path)
}

/// As [`start`], into any writer. It is called by a thread of its own, fifty times a second or more often, with 64 KiB
/// at the most at a time. The program goes on meanwhile; if more than 64 MiB wait for the writer, events are dropped.
///
/// ```
/// let tracing = mungo::trace::start_writer(std::io::sink())?;
/// assert!(mungo::trace::is_on());
/// assert!(tracing.stop()?.bytes > 0);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If there is no thread for the writer.
pub fn start_writer(out: impl Write + Send + 'static) -> io::Result<Tracing> {
    Tracing::builder().start_writer(out)
}

/// Returns whether events are recorded: by a trace or a [`FlightRecorder`].
///
/// ```
/// if mungo::trace::is_on() {
///     mungo::trace::log("what is dear to say");
/// }
/// ```
pub fn is_on() -> bool {
    tracer::is_on()
}

impl Tracing {
    /// Returns a builder, for a trace with stacks.
    ///
    /// ```
    /// let tracing = mungo::trace::Tracing::builder().start_writer(std::io::sink())?;
    /// assert!(tracing.stop()?.bytes > 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn builder() -> Builder {
        Builder { stacks: false }
    }

    /// Ends the trace, and waits until it is written, as a drop does: for ever, if the writer is a pipe that nothing
    /// reads.
    ///
    /// ```
    /// let tracing = mungo::trace::start_writer(std::io::sink())?;
    /// mungo::go(|| mungo::yield_now()).join().unwrap();
    /// assert!(tracing.stop()?.events > 0);
    /// assert!(!mungo::trace::is_on());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The first error of the file or the writer. What was written before it can be read.
    pub fn stop(mut self) -> io::Result<Summary> {
        match self.sink.take() {
            Some(sink) => tracer::stop(sink).map(Summary::from),
            None => Ok(Summary::default()),
        }
    }

    /// Writes what happened so far, and waits for that.
    ///
    /// ```
    /// let tracing = mungo::trace::start_writer(std::io::sink())?;
    /// tracing.flush()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of the file or the writer.
    pub fn flush(&self) -> io::Result<()> {
        self.sink.map_or(Ok(()), tracer::flush)
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            _ = tracer::stop(sink);
        }
    }
}
