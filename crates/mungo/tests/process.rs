//! Child processes of goroutines: waits that park, output of any size, contexts that end children.

mod common;

use common::wait_until;
use mungo::context::{Context, ContextError};
use mungo::debug::State;
use mungo::process::{Command, Stdio};
use mungo::signal::Signal;
use mungo::{Runtime, WaitReason};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::time::Duration;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn reason(e: &io::Error) -> Option<ContextError> {
    e.get_ref()?.downcast_ref().copied()
}

/// Waits until there is no such process, not even one that has ended and was not reaped.
fn wait_until_gone(id: u32) {
    let path = format!("/proc/{id}");
    wait_until("the child is gone", || !std::path::Path::new(&path).exists());
}

#[mungo::test]
fn both_pipes_are_read_at_once() {
    // More than a pipe holds, and stderr first: reading one after the other would never end.
    let script = "head -c 1000000 /dev/zero >&2; head -c 2000000 /dev/zero; exit 5";
    let output = shell(script).output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (2_000_000, 1_000_000));
    assert_eq!(output.status.code(), Some(5));
}

#[mungo::test]
fn a_command_can_be_used_again() {
    let mut command = shell("read line; echo \"got $line\"");
    assert_eq!(command.output().unwrap().stdout, b"got \n");
    assert_eq!(command.output().unwrap().stdout, b"got \n");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"something\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"got something\n");
}

#[test]
fn waiting_takes_no_threads() {
    const CHILDREN: usize = 20;
    let runtime = Runtime::builder().procs(1).max_threads(4).build().unwrap();
    runtime.run(|| {
        let mut stdins = Vec::new();
        let waiters: Vec<_> = (0..CHILDREN)
            .map(|_| {
                let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
                stdins.push(child.stdin.take().unwrap());
                mungo::go(move || child.wait())
            })
            .collect();
        let waits = || {
            let dump = mungo::debug::DumpOptions::new().stacks(false).dump();
            dump.goroutines().iter().filter(|g| g.state == State::Waiting(WaitReason::Child)).count()
        };
        wait_until("all wait for their children", || waits() == CHILDREN);
        drop(stdins);
        for waiter in waiters {
            assert!(waiter.join().unwrap().unwrap().success());
        }
    });
}

#[mungo::test]
fn a_deadline_kills() {
    let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(20));
    let e = shell("echo started; exec sleep 3600").context(&ctx).output().unwrap_err();
    assert_eq!(reason(&e), Some(ContextError::DeadlineExceeded));
    assert_eq!(e.kind(), io::ErrorKind::TimedOut);
}

#[mungo::test]
fn a_context_that_is_done_starts_nothing() {
    let (ctx, cancel) = Context::background().with_cancel();
    cancel.cancel();
    // Were it started, the error would be another one.
    let e = Command::new("there-is-no-such-program").context(&ctx).spawn().unwrap_err();
    assert_eq!(reason(&e), Some(ContextError::Canceled));
}

#[mungo::test]
fn a_child_that_ended_in_time_is_no_error() {
    let (ctx, cancel) = Context::background().with_cancel();
    let mut child = shell("exit 4").context(&ctx).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    cancel.cancel();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(4));
    child.kill().unwrap();
}

#[mungo::test]
fn patience_has_an_end() {
    let (ctx, cancel) = Context::background().with_cancel();
    let mut child = shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")
        .stdout(Stdio::piped())
        .context(&ctx)
        .stop_with(Signal::TERMINATE, Duration::from_millis(20))
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    cancel.cancel();
    assert_eq!(reason(&child.wait().unwrap_err()), Some(ContextError::Canceled));
    assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
}

#[mungo::test]
fn a_pipe_that_a_grandchild_holds_is_left_when_the_context_is_done() {
    let (ctx, cancel) = Context::background().with_cancel();
    let mut command = shell("sleep 3600 & echo started");
    command.as_std_mut().process_group(0);
    let child = command.stdout(Stdio::piped()).context(&ctx).spawn().unwrap();
    let group = child.id() as libc::pid_t;
    let output = mungo::go(move || child.wait_with_output());
    // The child ends by itself; its pipe does not.
    wait_until_gone(group as u32);
    assert!(!output.is_finished());
    cancel.cancel();
    assert_eq!(reason(&output.join().unwrap().unwrap_err()), Some(ContextError::Canceled));
    // SAFETY: no memory involved; the group is the grandchild's alone.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

#[mungo::test]
fn a_context_ends_and_reaps_a_child_that_was_dropped() {
    let (ctx, cancel) = Context::background().with_cancel();
    let child = Command::new("sleep").arg("3600").context(&ctx).spawn().unwrap();
    let id = child.id();
    drop(child);
    cancel.cancel();
    wait_until_gone(id);
}

#[test]
fn plain_threads_wait_too() {
    let (ctx, cancel) = Context::background().with_cancel();
    assert_eq!(shell("echo x").context(&ctx).output().unwrap().stdout, b"x\n");
    let waiter = std::thread::spawn(move || Command::new("sleep").arg("3600").context(&ctx).status());
    cancel.cancel();
    assert!(waiter.join().unwrap().is_err());
}
