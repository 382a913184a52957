//! A process that was started.

use super::handle::Handle;
use crate::context::{AfterFunc, Context, after_func};
use crate::net::Pollable;
use crate::scope::scope;
use crate::signal::Signal;
use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::process::{ExitStatus, Output};
use std::sync::Arc;
use std::time::Duration;

/// The end of a pipe that the child reads from. Dropping it closes it.
///
/// ```
/// use mungo::process::{ChildStdin, Command, Stdio};
/// use std::io::Write;
///
/// let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
/// let mut stdin: ChildStdin = child.stdin.take().unwrap();
/// stdin.write_all(b"for the cat")?;
/// drop(stdin); // the end of its input
/// assert!(child.wait()?.success());
/// # std::io::Result::Ok(())
/// ```
pub type ChildStdin = Pollable<PipeWriter>;
/// The end of a pipe that the child writes to.
///
/// ```
/// use mungo::process::{ChildStdout, Command, Stdio};
/// use std::io::Read;
///
/// let mut child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
/// let mut stdout: ChildStdout = child.stdout.take().unwrap();
/// let mut text = String::new();
/// stdout.read_to_string(&mut text)?;
/// assert_eq!(text, "hello\n");
/// # child.wait()?;
/// # std::io::Result::Ok(())
/// ```
pub type ChildStdout = Pollable<PipeReader>;
/// The end of a pipe that the child writes its errors to.
///
/// ```
/// use mungo::process::{ChildStderr, Command, Stdio};
/// use std::io::Read;
///
/// let mut child = Command::new("sh").args(["-c", "echo hello >&2"]).stderr(Stdio::piped()).spawn()?;
/// let mut stderr: ChildStderr = child.stderr.take().unwrap();
/// let mut text = String::new();
/// stderr.read_to_string(&mut text)?;
/// assert_eq!(text, "hello\n");
/// # child.wait()?;
/// # std::io::Result::Ok(())
/// ```
pub type ChildStderr = Pollable<PipeReader>;

/// A process that was started, as [`std::process::Child`]: the result of [`Command::spawn`](super::Command::spawn).
///
/// A child that is dropped runs on, as std's, and a context of it still ends it. If nothing waits for its end, it stays
/// in the system's table of processes until this one ends, unless the context has ended it.
///
/// ```
/// let mut child = mungo::process::Command::new("sleep").arg("3600").spawn()?;
/// assert_eq!(child.try_wait()?, None);
/// child.kill()?;
/// assert!(!child.wait()?.success());
/// # std::io::Result::Ok(())
/// ```
pub struct Child {
    /// What the child reads, if [`Command::stdin`](super::Command::stdin) is a pipe.
    pub stdin: Option<ChildStdin>,
    /// What the child writes, if [`Command::stdout`](super::Command::stdout) is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The child's errors, if [`Command::stderr`](super::Command::stderr) is a pipe.
    pub stderr: Option<ChildStderr>,
    handle: Arc<Handle>,
    ctx: Option<Context>,
    /// The function that ends the child when the context is done.
    ending: Option<AfterFunc>,
}

impl Child {
    pub(super) fn new(
        mut child: std::process::Child,
        ctx: Option<Context>,
        first: Option<(libc::c_int, Duration)>,
    ) -> io::Result<Child> {
        let stdin = child.stdin.take().map(|pipe| Pollable::new(PipeWriter::from(OwnedFd::from(pipe))));
        let stdout = child.stdout.take().map(|pipe| Pollable::new(PipeReader::from(OwnedFd::from(pipe))));
        let stderr = child.stderr.take().map(|pipe| Pollable::new(PipeReader::from(OwnedFd::from(pipe))));
        let handle = Arc::new(Handle::new(child));
        let pipes = || io::Result::Ok((stdin.transpose()?, stdout.transpose()?, stderr.transpose()?));
        let (stdin, stdout, stderr) = pipes().inspect_err(|_| handle.end(None))?;
        let ending = ctx.as_ref().map(|ctx| {
            let handle = handle.clone();
            after_func(ctx, move || handle.end(first))
        });
        Ok(Child { stdin, stdout, stderr, handle, ctx, ending })
    }

    /// Returns the number of the process.
    ///
    /// ```
    /// let mut child = mungo::process::Command::new("true").spawn()?;
    /// assert_ne!(child.id(), std::process::id());
    /// assert!(child.wait()?.success());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn id(&self) -> u32 {
        self.handle.id()
    }

    /// Waits for the child's end. Closes its stdin first, if it is still here, as std does: the child may wait for it.
    ///
    /// ```
    /// use mungo::process::{Command, Stdio};
    ///
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
    /// assert!(child.wait()?.success(), "it read an empty file");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// Fails with the reason why the context is done, if that is what ended the child; then
    /// [`try_wait`](Self::try_wait) tells how it ended.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        let status = self.handle.wait()?;
        if let Some(ending) = self.ending.take() {
            ending.stop();
        }
        self.explain()?;
        Ok(status)
    }

    /// Returns the context's reason, if the context has ended the child.
    fn explain(&self) -> io::Result<()> {
        match &self.ctx {
            Some(ctx) if self.handle.was_ended() => Ok(ctx.check()?),
            _ => Ok(()),
        }
    }

    /// Returns how the child ended, `None` if it has not.
    ///
    /// ```
    /// let mut child = mungo::process::Command::new("sh").args(["-c", "exit 2"]).spawn()?;
    /// child.wait()?;
    /// assert_eq!(child.try_wait()?.unwrap().code(), Some(2));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.handle.try_wait()
    }

    /// Kills the child (`SIGKILL`). One that has ended is no error. To wait for the end is up to the caller.
    ///
    /// ```
    /// let mut child = mungo::process::Command::new("sleep").arg("3600").spawn()?;
    /// child.kill()?;
    /// assert!(!child.wait()?.success());
    /// assert!(child.kill().is_ok(), "it has ended");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn kill(&mut self) -> io::Result<()> {
        self.handle.signal(libc::SIGKILL)
    }

    /// Sends a signal. One that has ended is no error.
    ///
    /// ```
    /// use mungo::signal::Signal;
    /// use std::os::unix::process::ExitStatusExt;
    ///
    /// let mut child = mungo::process::Command::new("sleep").arg("3600").spawn()?;
    /// child.signal(Signal::TERMINATE)?;
    /// assert_eq!(child.wait()?.signal(), Some(Signal::TERMINATE.as_raw()));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.handle.signal(signal.as_raw())
    }

    /// Reads all that the child writes, and waits for its end. Closes its stdin first, if it is still here. Both pipes
    /// are read at once, so that no amount of output stops the child.
    ///
    /// ```
    /// use mungo::process::{Command, Stdio};
    /// use std::io::Write;
    ///
    /// let mut child = Command::new("sort").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    /// let mut stdin = child.stdin.take().unwrap();
    /// mungo::go(move || stdin.write_all(b"b\nc\na\n"));
    /// assert_eq!(child.wait_with_output()?.stdout, b"a\nb\nc\n");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait). If the context is done, pipes that a process of the child's still holds are left.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let (reading, stop) = Context::background().with_cancel();
        let (status, stdout, stderr) = scope(|s| {
            let stdout = s.spawn(|| read_all(&reading, stdout));
            let stderr = s.spawn(|| read_all(&reading, stderr));
            let status = self.wait();
            // Children of the child may have the pipes; from here on the context ends the reads too.
            let watch = self.ctx.as_ref().map(|ctx| after_func(ctx, move || stop.cancel()));
            let read = (stdout.join(), stderr.join());
            if let Some(watch) = watch {
                watch.stop();
            }
            (status, read.0.unwrap_or_else(|e| resume_unwind(e)), read.1.unwrap_or_else(|e| resume_unwind(e)))
        });
        let status = status?;
        match (&self.ctx, &stdout, &stderr) {
            // The child had ended; a process of its own kept a pipe until the context was done.
            (Some(ctx), Err(_), _) | (Some(ctx), _, Err(_)) => ctx.check()?,
            _ => {}
        }
        Ok(Output { status, stdout: stdout?, stderr: stderr? })
    }
}

/// Reads a pipe to its end, or until the context is done.
fn read_all(ctx: &Context, pipe: Option<Pollable<PipeReader>>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.with_context(ctx).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("id", &self.id()).finish_non_exhaustive()
    }
}
