//! The program `mungo`, as users run it.

mod bad_input;
mod bench;
mod compare;
mod interrupt;
mod page;
mod record;
mod run;
mod synthetic;
mod threads;
mod top;
mod tour;
mod trace;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// `mungo` with these arguments, free of what the environment says about mungo.
fn mungo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mungo"));
    for name in ["MUNGO_DEBUG", "MUNGO_PROCS", "MUNGO_SCHEDULER", "MUNGO_TRACE", "LC_ALL", "LC_CTYPE", "LANG"] {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Runs it, expects success, and returns what it printed.
#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Runs it, expects this exit code, and returns its complaint.
#[track_caller]
fn fails(command: &mut Command, code: i32) -> String {
    let Output { status, stderr, .. } = command.output().expect("it starts");
    assert_eq!(status.code(), Some(code), "{}", text(&stderr));
    text(&stderr)
}

/// A file of this test run.
fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}
