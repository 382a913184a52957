//! A child process as its owner and the goroutine that ends it see it: it is reaped and signalled under one lock.

use crate::net::descriptor::{Descriptor, Side};
use crate::reason::WaitReason;
use crate::sync::Mutex;
use crate::sys::clock;
use crate::time;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitStatus;
use std::time::Duration;

/// Lengths of the pauses between two looks at a child without a pidfd.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A child, and whether a context has ended it.
struct State {
    child: std::process::Child,
    was_ended: bool,
}

pub(super) struct Handle {
    state: Mutex<State>,
    /// A descriptor that becomes readable when the child ends. `None`: the system gave none.
    pidfd: Option<Descriptor<OwnedFd>>,
    id: u32,
}

impl Handle {
    pub(super) fn new(child: std::process::Child) -> Handle {
        let id = child.id();
        Handle { state: Mutex::new(State { child, was_ended: false }), pidfd: open(id), id }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Returns how the child ended, `None` if it has not.
    pub(super) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.state.lock().child.try_wait()
    }

    /// Waits for the end.
    pub(super) fn wait(&self) -> io::Result<ExitStatus> {
        self.wait_until(u64::MAX)
    }

    /// Waits for the end until a time in ns of the clock, and fails with `TimedOut` after it.
    fn wait_until(&self, until_ns: u64) -> io::Result<ExitStatus> {
        let attempt = || self.try_wait()?.ok_or_else(|| io::ErrorKind::WouldBlock.into());
        if let Some(pidfd) = &self.pidfd {
            return pidfd.run_until(Side::Read, WaitReason::Child, Some(until_ns), |_| attempt());
        }
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && clock::now_ns() >= until_ns => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => time::sleep(pause),
                ended => return ended,
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Sends a signal, unless the child has ended.
    pub(super) fn signal(&self, number: libc::c_int) -> io::Result<()> {
        self.signal_and(number, |_| {})
    }

    /// Sends a signal, and calls `note` before it, unless the child has ended.
    fn signal_and(&self, number: libc::c_int, note: impl FnOnce(&mut State)) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.child.try_wait()?.is_some() {
            return Ok(());
        }
        note(&mut state);
        // SAFETY: no memory involved. The number is the child's: it is not reaped, and only under this lock it can be.
        match unsafe { libc::kill(self.id as libc::pid_t, number) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Ends and reaps the child, because its context is done: by a signal and some patience, if there are such, and
    /// else by `SIGKILL`.
    pub(super) fn end(&self, first: Option<(libc::c_int, Duration)>) {
        let note = |state: &mut State| state.was_ended = true;
        if let Some((number, patience)) = first {
            let sent = self.signal_and(number, note);
            if sent.is_ok() && self.wait_until(clock::after_ns(patience)).is_ok() {
                return;
            }
        }
        // A child that changed its user cannot be killed; it is waited for all the same.
        _ = self.signal_and(libc::SIGKILL, note);
        _ = self.wait();
    }

    /// Returns whether a context has ended the child.
    pub(super) fn was_ended(&self) -> bool {
        self.state.lock().was_ended
    }
}

/// Returns a descriptor of a child that was not reaped.
fn open(id: u32) -> Option<Descriptor<OwnedFd>> {
    // SAFETY: no memory involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    // SAFETY: the kernel made it for us.
    (fd >= 0).then(|| Descriptor::new(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::process::Command;

    fn without_pidfd(command: &mut Command) -> Handle {
        Handle { pidfd: None, ..Handle::new(command.spawn().unwrap()) }
    }

    #[test]
    fn without_a_pidfd_waits_see_the_end() {
        let handle = without_pidfd(Command::new("sh").args(["-c", "exit 3"]));
        assert_eq!(handle.wait().unwrap().code(), Some(3));
        assert!(handle.signal(libc::SIGTERM).is_ok(), "no process is there any more");
    }

    #[test]
    fn without_a_pidfd_patience_ends() {
        let handle = without_pidfd(Command::new("sleep").arg("3600"));
        assert_eq!(handle.wait_until(clock::now_ns() + 1).unwrap_err().kind(), io::ErrorKind::TimedOut);
        handle.end(None);
        assert!(handle.was_ended());
    }

    #[test]
    fn a_child_that_has_ended_is_not_ended_by_a_context() {
        let handle = Handle::new(Command::new("true").spawn().unwrap());
        assert!(handle.wait().unwrap().success());
        handle.end(Some((libc::SIGTERM, Duration::from_secs(60))));
        assert!(!handle.was_ended());
    }
}
