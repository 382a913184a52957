//! The flight recorder: the last seconds of a trace, in memory.

use super::Summary;
use crate::tracer::{self, Kept, SinkId, Triggers};
use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keeps the last seconds of a trace in memory, to be written when something has happened: by
/// [`snapshot`](Self::snapshot), or by itself, as its [builder](Self::builder) says. It ends when it is dropped. At
/// most eight may be on at the same time, beside traces.
///
/// ```
/// let recorder = mungo::trace::FlightRecorder::start()?;
/// mungo::go(|| mungo::yield_now()).join().unwrap();
/// let file = std::env::temp_dir().join(format!("mungo-doc-{}.snapshot", std::process::id()));
/// let summary = recorder.snapshot(&file)?;
/// assert!(summary.events > 0);
/// # std::fs::remove_file(file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct FlightRecorder {
    sink: SinkId,
}

impl FlightRecorder {
    /// Starts one with the defaults: ten seconds, but not more than ten megabytes; without triggers.
    ///
    /// ```
    /// let recorder = mungo::trace::FlightRecorder::start()?;
    /// assert!(mungo::trace::is_on());
    /// drop(recorder);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn start() -> io::Result<FlightRecorder> {
        FlightRecorder::builder().start()
    }

    /// Returns a builder.
    ///
    /// ```
    /// let recorder = mungo::trace::FlightRecorder::builder().start()?;
    /// assert!(mungo::trace::is_on());
    /// # drop(recorder);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn builder() -> FlightRecorderBuilder {
        FlightRecorderBuilder {
            kept: Kept { last: Duration::from_secs(10), max_bytes: 10 << 20 },
            stacks: false,
            triggers: Triggers::default(),
        }
    }

    /// Writes what is kept to a file: a whole trace. The program runs on meanwhile, and the recorder too.
    ///
    /// ```
    /// let recorder = mungo::trace::FlightRecorder::start()?;
    /// let file = std::env::temp_dir().join(format!("mungo-doc-snapshot-{}.trace", std::process::id()));
    /// mungo::go(|| mungo::yield_now()).join().unwrap();
    /// assert!(recorder.snapshot(&file)?.events > 0);
    /// assert!(std::fs::read(&file)?.starts_with(b"MUNGOTRC"));
    /// # std::fs::remove_file(file)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written. One that was there before is only replaced by a whole one.
    pub fn snapshot(&self, path: impl AsRef<Path>) -> io::Result<Summary> {
        let mut summary = Summary::default();
        tracer::write_anew(path.as_ref(), |out| {
            summary = tracer::snapshot(self.sink, out)?.into();
            Ok(())
        })?;
        Ok(summary)
    }
}

impl Drop for FlightRecorder {
    fn drop(&mut self) {
        _ = tracer::stop(self.sink);
    }
}

/// Says how much a [`FlightRecorder`] keeps, and when it writes a snapshot by itself.
///
/// All its triggers write to the same file, which is replaced each time, at most once a second.
///
/// ```
/// use mungo::trace::FlightRecorder;
/// use std::time::Duration;
///
/// let file = std::env::temp_dir().join("mungo-doc-slow.trace");
/// let recorder = FlightRecorder::builder()
///     .last(Duration::from_secs(2))
///     .max_bytes(1 << 20)
///     .to(file)
///     .on_slow_region(Duration::from_millis(50))
///     .on_deadlock()
///     .start()?;
/// drop(recorder);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct FlightRecorderBuilder {
    kept: Kept,
    stacks: bool,
    triggers: Triggers,
}

impl FlightRecorderBuilder {
    /// Sets how long events are kept. Default: 10 s.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let recorder = mungo::trace::FlightRecorder::builder().last(Duration::from_secs(2)).start()?;
    /// assert!(mungo::trace::is_on());
    /// # drop(recorder);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn last(mut self, last: Duration) -> Self {
        self.kept.last = last;
        self
    }

    /// Sets how many bytes of events are kept at the most, whatever their age. Default: 10 MiB.
    ///
    /// ```
    /// let recorder = mungo::trace::FlightRecorder::builder().max_bytes(1 << 20).start()?;
    /// assert!(mungo::trace::is_on());
    /// # drop(recorder);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.kept.max_bytes = bytes;
        self
    }

    /// Sets whether events have stacks: see [`Builder::stacks`](super::Builder::stacks). Default: no.
    ///
    /// ```
    /// use mungo::trace::FlightRecorder;
    /// use std::io::ErrorKind;
    ///
    /// match FlightRecorder::builder().stacks(true).start() {
    ///     Ok(recorder) => drop(recorder),
    ///     Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
    /// }
    /// ```
    pub fn stacks(mut self, stacks: bool) -> Self {
        self.stacks = stacks;
        self
    }

    /// Sets the file that the triggers below write to.
    ///
    /// ```
    /// let file = std::env::temp_dir().join(format!("mungo-doc-to-{}.trace", std::process::id()));
    /// let recorder = mungo::trace::FlightRecorder::builder().to(&file).on_deadlock().start()?;
    /// assert!(!file.exists(), "nothing has happened");
    /// # drop(recorder);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn to(mut self, path: impl Into<PathBuf>) -> Self {
        self.triggers.path = path.into();
        self
    }

    /// Writes a snapshot when a [`region`](super::region) that began after this recorder has taken at least that long.
    ///
    /// ```
    /// use mungo::trace::{FlightRecorder, region};
    /// use std::time::Duration;
    ///
    /// let file = std::env::temp_dir().join(format!("mungo-doc-slow-region-{}.trace", std::process::id()));
    /// let recorder = FlightRecorder::builder().to(&file).on_slow_region(Duration::from_millis(1)).start()?;
    /// while !file.exists() {
    ///     mungo::go(|| {
    ///         let _region = region("request");
    ///         mungo::time::sleep(Duration::from_millis(2));
    ///     })
    ///     .join()
    ///     .unwrap();
    /// }
    /// # drop(recorder);
    /// # std::fs::remove_file(file)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_slow_region(mut self, least: Duration) -> Self {
        self.triggers.slow_region = Some(least);
        self
    }

    /// Writes a snapshot when the process gets this signal, such as `SIGUSR2`. A handler that was there is called too.
    /// The signal stays caught when the recorder ends.
    ///
    /// ```
    /// use mungo::trace::FlightRecorder;
    ///
    /// let error = FlightRecorder::builder().on_signal(libc::SIGUSR2).start().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "it has no file to write to");
    /// ```
    pub fn on_signal(mut self, signal: c_int) -> Self {
        self.triggers.signal = Some(signal);
        self
    }

    /// Writes a snapshot before the process ends because all goroutines are asleep.
    ///
    /// ```
    /// use mungo::trace::FlightRecorder;
    ///
    /// let error = FlightRecorder::builder().on_deadlock().start().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "it has no file to write to");
    /// ```
    pub fn on_deadlock(mut self) -> Self {
        self.triggers.on_deadlock = true;
        self
    }

    /// Writes a snapshot when the process exits: `main` returns, or a thread calls [`std::process::exit`].
    ///
    /// ```
    /// use mungo::trace::FlightRecorder;
    ///
    /// let error = FlightRecorder::builder().on_exit().start().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "it has no file to write to");
    /// ```
    pub fn on_exit(mut self) -> Self {
        self.triggers.on_exit = true;
        self
    }

    /// Writes a snapshot when a scheduling policy is replaced because it did what it must not do.
    ///
    /// ```
    /// use mungo::trace::FlightRecorder;
    ///
    /// let error = FlightRecorder::builder().on_policy_replaced().start().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "it has no file to write to");
    /// ```
    pub fn on_policy_replaced(mut self) -> Self {
        self.triggers.on_policy = true;
        self
    }

    /// Starts the recorder.
    ///
    /// ```
    /// use mungo::trace::FlightRecorder;
    ///
    /// let eight = (0..8).map(|_| FlightRecorder::builder().start()).collect::<Result<Vec<_>, _>>()?;
    /// assert!(FlightRecorder::builder().start().is_err(), "eight are on already");
    /// # drop(eight);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if there is a trigger and no file, or the signal cannot be caught. `Unsupported` if there are no
    /// stacks on this platform or in this build. Else if there is no thread for
    /// it, or there are eight already.
    pub fn start(self) -> io::Result<FlightRecorder> {
        let Triggers { path, slow_region, signal, on_deadlock, on_exit, on_policy } = &self.triggers;
        let any = slow_region.is_some() || signal.is_some() || *on_deadlock || *on_exit || *on_policy;
        if any && path.as_os_str().is_empty() {
            let why = "a flight recorder with triggers needs a file: FlightRecorderBuilder::to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(FlightRecorder { sink: tracer::start_recorder(self.kept, self.stacks, self.triggers)? })
    }
}
