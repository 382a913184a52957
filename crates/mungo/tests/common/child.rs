//! Child processes: what crashes, hangs or counts its threads runs in a process of its own.
//!
//! A test file says which functions may be children by [`children!`], and a test runs one by [`run`]. The child is the
//! test binary itself; it runs the function on its main thread before the test harness starts, so that the
//! process has the threads of an ordinary program. What the harness or std's start-up must have prepared runs
//! as a test of its own in the child, by [`run_test`].

use super::PATIENCE;
#[allow(unused_imports)] // each test binary uses its own part
pub(crate) use super::emulator::{cc, is_emulated, is_slow, program, this};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "MUNGO_TEST_CHILD";

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ended {
    #[track_caller]
    pub(crate) fn assert_success(&self) -> &Self {
        assert!(self.status.success(), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn assert_signal(&self, signal: i32) -> &Self {
        assert_eq!(self.status.signal(), Some(signal), "{self:#?}");
        self
    }

    /// It printed `done`, or `skipped: ` and why, which is shown where the test harness does not capture it.
    #[track_caller]
    pub(crate) fn assert_done_or_skipped(&self) -> &Self {
        self.assert_success();
        if let Some(why) = self.stdout.lines().find(|line| line.starts_with("skipped: ")) {
            let name = std::thread::current().name().unwrap_or("a test").to_owned();
            _ = writeln!(std::io::stderr(), "{name}: {why}");
        } else {
            assert!(self.stdout.contains("done"), "{self:#?}");
        }
        self
    }

    /// Its error output has `part`.
    #[track_caller]
    pub(crate) fn assert_says(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "it does not say '{part}': {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn assert_does_not_say(&self, part: &str) -> &Self {
        assert!(!self.stderr.contains(part), "it says '{part}': {self:#?}");
        self
    }
}

/// The functions that may run as a child.
#[macro_export]
macro_rules! children {
    ($($name:ident),* $(,)?) => {
        #[used]
        // SAFETY: the C library calls these functions, of this type, before `main`.
        #[unsafe(link_section = ".init_array")]
        static CHILDREN: extern "C" fn() = {
            extern "C" fn start() {
                $crate::common::child::start(&[$((stringify!($name), $name as fn())),*]);
            }
            start
        };
    };
}

/// Before `main`, in the tests' process and in the child; in the child: runs the function and ends the process.
pub(crate) fn start(functions: &[(&str, fn())]) {
    hear_signals();
    let Ok(name) = std::env::var(NAME) else { return };
    let Some((_, function)) = functions.iter().find(|(n, _)| *n == name) else { return };
    let result = std::panic::catch_unwind(function);
    std::process::exit(if result.is_ok() { 0 } else { 101 });
}

/// Undoes what was inherited: a shell lets what it starts in the background ignore SIGINT and SIGQUIT, `nohup` SIGHUP.
fn hear_signals() {
    for signal in 1..32 {
        // SAFETY: a disposition is plain bits, which the kernel fills; no handler of ours is there yet.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, std::ptr::null(), &mut now) == 0;
            if known && now.sa_sigaction == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// This binary, to run the function `name` of [`children!`].
pub(crate) fn command(name: &str) -> Command {
    let mut command = this();
    command.env(NAME, name).env("RUST_BACKTRACE", "0").env_remove("MUNGO_PROCS");
    command
}

/// Runs a child to its end; kills it if it does not come.
#[track_caller]
pub(crate) fn run(name: &str) -> Ended {
    finish(command(name))
}

/// Runs the test `name` of this binary, with the harness, in a child; there [`is_test_child`] says so.
#[track_caller]
pub(crate) fn run_test(name: &str) -> Ended {
    let mut command = command(&format!("test {name}"));
    command.args(["--exact", name, "--nocapture", "--include-ignored"]);
    finish(command)
}

/// Whether this process was started by [`run_test`] for the test `name`.
pub(crate) fn is_test_child(name: &str) -> bool {
    std::env::var(NAME).is_ok_and(|child| child == format!("test {name}"))
}

#[track_caller]
pub(crate) fn finish(command: Command) -> Ended {
    finish_while(command, |_| ())
}

/// Runs a child to its end; `treat` does something to it after its start.
#[track_caller]
pub(crate) fn finish_while(mut command: Command, treat: impl FnOnce(&std::process::Child)) -> Ended {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child process");
    fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        let mut from = from.expect("a pipe");
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    treat(&child);
    let mut killed = false;
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None if !killed && start.elapsed() > 4 * PATIENCE => {
                killed = true;
                child.kill().expect("a child");
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let read = |t: std::thread::JoinHandle<String>| t.join().expect("a reader");
    let ended = Ended { status, stdout: read(stdout), stderr: read(stderr), took: start.elapsed() };
    assert!(!killed, "the child hung: {ended:#?}");
    ended
}
