//! What to start, and how.

use super::child::Child;
use crate::context::Context;
use crate::sched::threads::blocking::blocking;
use crate::signal::Signal;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

/// A process to be started, as [`std::process::Command`]. See the [module](super).
///
/// ```
/// use mungo::process::Command;
///
/// let mut command = Command::new("sh");
/// command.args(["-c", "echo $NAME from $PWD"]).env("NAME", "mungo").current_dir("/");
/// let output = mungo::go(move || command.output()).join().unwrap()?;
/// assert_eq!(output.stdout, b"mungo from /\n");
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Command {
    inner: std::process::Command,
    ctx: Option<Context>,
    /// The signal to send before `SIGKILL`, and the time between the two.
    first: Option<(Signal, Duration)>,
    /// Whether the program set where stdin, stdout and stderr go.
    is_set: [bool; 3],
}

impl Command {
    /// Makes a command that starts `program`, which is looked for in `PATH` if it has no `/` in it.
    ///
    /// ```
    /// let e = mungo::process::Command::new("there-is-no-such-program").status().unwrap_err();
    /// assert_eq!(e.kind(), std::io::ErrorKind::NotFound);
    /// ```
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command { inner: std::process::Command::new(program), ctx: None, first: None, is_set: [false; 3] }
    }

    /// Lets a context end the child: it is killed (`SIGKILL`) when the context is done, whether or not anything waits
    /// for it, and is not started if the context is done before.
    ///
    /// [`wait`](Child::wait), [`status`](Self::status) and [`output`](Self::output) then fail with the
    /// [reason](crate::context::ContextError). Processes that the child has started are not killed. To reach them too,
    /// give it a process group of its own, by [`as_std_mut`](Self::as_std_mut), and signal that one.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    /// use mungo::process::Command;
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let mut child = Command::new("sleep").arg("3600").context(&ctx).spawn()?;
    /// mungo::go(move || cancel.cancel());
    /// let error = child.wait().unwrap_err();
    /// assert_eq!(error.get_ref().unwrap().downcast_ref(), Some(&ContextError::Canceled));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn context(&mut self, ctx: &Context) -> &mut Command {
        self.ctx = Some(ctx.clone());
        self
    }

    /// Sends `signal` first when the context is done, and kills the child only if it has not ended after `patience`.
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::process::{Command, Stdio};
    /// use mungo::signal::Signal;
    /// use std::io::Read;
    /// use std::time::Duration;
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let script = "trap 'echo cleaned up; exit' TERM; echo ready; while :; do sleep 0.01; done";
    /// let mut child = Command::new("sh")
    ///     .args(["-c", script])
    ///     .stdout(Stdio::piped())
    ///     .context(&ctx)
    ///     .stop_with(Signal::TERMINATE, Duration::from_secs(60))
    ///     .spawn()?;
    /// let mut stdout = child.stdout.take().unwrap();
    /// let mut ready = [0; 6];
    /// stdout.read_exact(&mut ready)?;
    /// cancel.cancel();
    /// let mut last_words = String::new();
    /// stdout.read_to_string(&mut last_words)?;
    /// assert_eq!(last_words, "cleaned up\n");
    /// assert!(child.wait().is_err(), "the context ended it");
    /// assert!(child.try_wait()?.unwrap().success());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stop_with(&mut self, signal: Signal, patience: Duration) -> &mut Command {
        self.first = Some((signal, patience));
        self
    }

    /// Adds an argument.
    ///
    /// ```
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.arg("-c").arg("echo hello").output()?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    ///
    /// ```
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.args(["-c", "echo $0", "zero"]).output()?;
    /// assert_eq!(output.stdout, b"zero\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Command {
        self.inner.args(args);
        self
    }

    /// Sets a variable of the child's environment.
    ///
    /// ```
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.env("NAME", "mungo").args(["-c", "echo $NAME"]).output()?;
    /// assert_eq!(output.stdout, b"mungo\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Command {
        self.inner.env(key, value);
        self
    }

    /// Sets variables of the child's environment.
    ///
    /// ```
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.args(["-c", "echo $A $B"]).envs([("A", "1"), ("B", "2")]).output()?;
    /// assert_eq!(output.stdout, b"1 2\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn envs(
        &mut self,
        vars: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Command {
        self.inner.envs(vars);
        self
    }

    /// Removes a variable of the child's environment.
    ///
    /// ```
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.env("A", "1").env_remove("A").args(["-c", "echo ${A-unset}"]).output()?;
    /// assert_eq!(output.stdout, b"unset\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Command {
        self.inner.env_remove(key);
        self
    }

    /// Removes all variables of the child's environment.
    ///
    /// ```
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.env_clear().args(["-c", "echo ${HOME-unset}"]).output()?;
    /// assert_eq!(output.stdout, b"unset\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn env_clear(&mut self) -> &mut Command {
        self.inner.env_clear();
        self
    }

    /// Sets the folder in which the child starts.
    ///
    /// ```
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.current_dir("/").args(["-c", "pwd"]).output()?;
    /// assert_eq!(output.stdout, b"/\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Command {
        self.inner.current_dir(dir);
        self
    }

    /// Sets what the child reads from. Unless set it is this process's for [`spawn`](Self::spawn) and
    /// [`status`](Self::status), and empty for [`output`](Self::output).
    ///
    /// ```
    /// let mut command = mungo::process::Command::new("cat");
    /// let output = command.stdin(std::fs::File::open("Cargo.toml")?).output()?;
    /// assert_eq!(output.stdout, std::fs::read("Cargo.toml")?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stdin(&mut self, from: impl Into<Stdio>) -> &mut Command {
        self.is_set[0] = true;
        self.inner.stdin(from);
        self
    }

    /// Sets where the child writes to. Unless set it is this process's for [`spawn`](Self::spawn) and
    /// [`status`](Self::status), and a pipe for [`output`](Self::output).
    ///
    /// ```
    /// use mungo::process::Stdio;
    ///
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.args(["-c", "echo hello"]).stdout(Stdio::null()).output()?;
    /// assert!(output.status.success() && output.stdout.is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stdout(&mut self, to: impl Into<Stdio>) -> &mut Command {
        self.is_set[1] = true;
        self.inner.stdout(to);
        self
    }

    /// Sets where the child's errors go, as [`stdout`](Self::stdout).
    ///
    /// ```
    /// use mungo::process::Stdio;
    ///
    /// let mut command = mungo::process::Command::new("sh");
    /// let output = command.args(["-c", "echo hello >&2"]).stderr(Stdio::piped()).output()?;
    /// assert_eq!(output.stderr, b"hello\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stderr(&mut self, to: impl Into<Stdio>) -> &mut Command {
        self.is_set[2] = true;
        self.inner.stderr(to);
        self
    }

    /// Returns std's command, for the settings that only that one has. Where stdin, stdout and stderr go is set here,
    /// and not there.
    ///
    /// ```
    /// use std::os::unix::process::CommandExt;
    ///
    /// let mut command = mungo::process::Command::new("sh");
    /// command.as_std_mut().arg0("a-shell"); // or uid, process_group, pre_exec
    /// assert_eq!(command.args(["-c", "echo $0"]).output()?.stdout, b"a-shell\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn as_std_mut(&mut self) -> &mut std::process::Command {
        &mut self.inner
    }

    /// Starts the child. The call is announced as [blocking](crate::blocking()): it takes until the new program runs.
    ///
    /// ```
    /// use mungo::process::{Command, Stdio};
    /// use std::io::{Read, Write};
    ///
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    /// let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    /// mungo::go(move || stdin.write_all(b"through a child")); // and closes it
    /// let mut text = String::new();
    /// stdout.read_to_string(&mut text)?;
    /// assert_eq!(text, "through a child");
    /// assert!(child.wait()?.success());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// Fails as std's, or with the reason why the context is done.
    pub fn spawn(&mut self) -> io::Result<Child> {
        self.ctx.as_ref().map_or(Ok(()), Context::check)?;
        let child = blocking(|| self.inner.spawn())?;
        let first = self.first.map(|(signal, patience)| (signal.as_raw(), patience));
        Child::new(child, self.ctx.clone(), first)
    }

    /// Starts the child, and waits for its end.
    ///
    /// ```
    /// let status = mungo::process::Command::new("sh").args(["-c", "exit 7"]).status()?;
    /// assert_eq!(status.code(), Some(7));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Starts the child, waits for its end, and returns all that it wrote.
    ///
    /// ```
    /// let output = mungo::process::Command::new("sh").args(["-c", "echo out; echo err >&2"]).output()?;
    /// assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub fn output(&mut self) -> io::Result<Output> {
        let [stdin, stdout, stderr] = self.is_set;
        if !stdin {
            self.inner.stdin(Stdio::null());
        }
        if !stdout {
            self.inner.stdout(Stdio::piped());
        }
        if !stderr {
            self.inner.stderr(Stdio::piped());
        }
        let child = self.spawn();
        // What was not set is not set afterwards.
        if !stdin {
            self.inner.stdin(Stdio::inherit());
        }
        if !stdout {
            self.inner.stdout(Stdio::inherit());
        }
        if !stderr {
            self.inner.stderr(Stdio::inherit());
        }
        child?.wait_with_output()
    }
}
