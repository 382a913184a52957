//! Waits of plain threads for a descriptor, with `poll`; they need no runtime.
//!
//! Beside it they poll an eventfd of their own: a `close` or a new deadline by another thread ends the wait.

use crate::protocols::claim::{Claim, TIMED_OUT};
use crate::reason::WaitReason;
use crate::sched::netpoll::readiness::{Readiness, Seen, Waited};
use crate::sched::run::park::Waiter;
use crate::sched::run::waitq::Node;
use crate::sys::clock;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

thread_local! {
    /// The thread's eventfd, while no wait uses it.
    static EVENTFD: Cell<Option<OwnedFd>> = const { Cell::new(None) };
}

/// The descriptors that a plain thread polls.
pub(crate) struct Polling {
    fd: RawFd,
    events: libc::c_short,
    eventfd: OwnedFd,
}

/// Waits for `events` of `fd`, at the most until `deadline_ns`.
pub(crate) fn wait(
    readiness: &Readiness,
    fd: BorrowedFd<'_>,
    events: libc::c_short,
    seen: Seen,
    deadline_ns: u64,
) -> io::Result<Waited> {
    // The claim decides between poll and a waker, and counts only for a wait with a deadline.
    let deadline_ns = deadline_ns.min(u64::MAX - 1);
    let polling = Polling { fd: fd.as_raw_fd(), events, eventfd: take_eventfd()? };
    let node = Node::of(Waiter::Polling(polling), 0, deadline_ns);
    let waited = readiness.wait(seen, WaitReason::None, &node);
    if let Waiter::Polling(Polling { eventfd, .. }) = node.into_waiter() {
        _ = EVENTFD.try_with(|mine| mine.set(Some(eventfd)));
    }
    let early = waited == Waited::TimedOut && clock::now_ns() < deadline_ns;
    Ok(if early { Waited::TryAgain } else { waited })
}

fn take_eventfd() -> io::Result<OwnedFd> {
    if let Ok(Some(mine)) = EVENTFD.try_with(Cell::take) {
        return Ok(mine);
    }
    // SAFETY: no memory involved.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
        // SAFETY: just made, and without another owner.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Polling {
    /// Blocks the thread. Returns `true` if a waker woke it; `false` if the descriptor is ready or the time over, and
    /// no waker will come any more.
    pub(crate) fn wait(&self, deadline_ns: u64, claim: &Claim) -> bool {
        let eventfd = libc::pollfd { fd: self.eventfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut fds = [eventfd, libc::pollfd { fd: self.fd, events: self.events, revents: 0 }];
        // A thread that was claimed by a waker waits for its word, whatever happens to the descriptor.
        let mut polled = fds.len();
        loop {
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            let n = poll(&mut fds[..polled], if polled == 1 { None } else { Some(left_ns) });
            if n > 0 && fds[0].revents != 0 {
                let mut count = 0u64;
                // SAFETY: eight bytes to write to.
                unsafe { libc::read(self.eventfd.as_raw_fd(), (&raw mut count).cast(), 8) };
                return true;
            }
            if n > 0 || clock::now_ns() >= deadline_ns {
                if claim.take(TIMED_OUT) {
                    return false;
                }
                polled = 1;
            }
        }
    }

    /// Ends the wait. The thread may be gone as soon as this is done.
    pub(crate) fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight bytes to read from.
        unsafe { libc::write(self.eventfd.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

fn poll(fds: &mut [libc::pollfd], timeout_ns: Option<u64>) -> i32 {
    let ts = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _, // musl calls its type deprecated
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let ts = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the descriptors and the time outlive the call.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ts, std::ptr::null()) }
}
