//! A descriptor that goroutines wait for: try, and if the kernel has nothing, park and try again.

use crate::context::{self, hook::OnDone};
use crate::reason::WaitReason;
use crate::sched::netpoll::{self, Direction, Record, Seen, Waited};
use crate::sys::clock;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// One of the two sides of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

/// Lets the waits of a direction try again: one of them finds its context done.
struct TryAgain(&'static Direction);

impl OnDone for TryAgain {
    fn context_is_done(&self) {
        if let Some(fired) = self.0.readiness.fire() {
            fired.wake();
        }
    }
}

/// Something with a descriptor in non-blocking mode, and the poller's record of it.
pub(crate) struct Descriptor<T: AsFd> {
    io: T,
    record: &'static Record,
}

impl<T: AsFd> Descriptor<T> {
    /// Takes over a descriptor that is in non-blocking mode.
    pub(crate) fn new(io: T) -> Descriptor<T> {
        Descriptor { io, record: Record::take() }
    }

    pub(crate) fn io(&self) -> &T {
        &self.io
    }

    /// Returns the inner value, which the poller forgets.
    pub(crate) fn into_io(self) -> T {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: neither is used again: `this` is not dropped.
        unsafe {
            this.record.give_back(this.io.as_fd());
            std::ptr::read(&this.io)
        }
    }

    fn side(&self, side: Side) -> &'static Direction {
        match side {
            Side::Read => &self.record.read,
            Side::Write => &self.record.write,
        }
    }

    /// Runs `op` until it returns something else than `WouldBlock`, and waits in between, as the settings say.
    #[inline]
    pub(crate) fn run<R>(
        &self,
        side: Side,
        reason: WaitReason,
        op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.run_until(side, reason, None, op)
    }

    /// As [`run`](Self::run), with a deadline of its own in place of the time-out.
    pub(crate) fn run_until<R>(
        &self,
        side: Side,
        reason: WaitReason,
        until_ns: Option<u64>,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.attempt(side, reason, until_ns, None, |io, _| op(io))
    }

    /// As [`run`](Self::run), but ends with an error when the context is done.
    pub(crate) fn run_with<R>(
        &self,
        ctx: &context::Context,
        side: Side,
        reason: WaitReason,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.attempt(side, reason, None, Some(ctx), |io, _| op(io))
    }

    /// Reads at most `len` bytes of a stream where a short read means that there are no more: then the next one need
    /// not ask the kernel before it waits. True for TCP, but not for Unix sockets, where it may also mean that
    /// descriptors come next.
    pub(crate) fn read_stream(
        &self,
        len: usize,
        mut op: impl FnMut(&T) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let direction = self.side(Side::Read);
        let trust = self.record.is_registered() && !self.is_nonblocking();
        self.attempt(Side::Read, WaitReason::NetRead, None, None, |io, seen| {
            if trust && len != 0 && direction.is_drained(seen) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let n = op(io)?;
            if n != 0 && n < len {
                direction.note_drained(seen);
            }
            Ok(n)
        })
    }

    fn attempt<R>(
        &self,
        side: Side,
        reason: WaitReason,
        mut until_ns: Option<u64>,
        ctx: Option<&context::Context>,
        mut op: impl FnMut(&T, Seen) -> io::Result<R>,
    ) -> io::Result<R> {
        let direction = self.side(side);
        loop {
            ctx.map_or(Ok(()), context::Context::check)?;
            let seen = direction.readiness.seen().map_err(|_| closed())?;
            let deadline_ns = direction.deadline_ns.load(Relaxed);
            if deadline_ns != u64::MAX && clock::now_ns() >= deadline_ns {
                return Err(timed_out());
            }
            match op(&self.io, seen) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.explain(direction, e)),
                done => return done,
            }
            if self.record.nonblocking.load(Relaxed) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let until_ns = until_ns.get_or_insert_with(|| self.limit_ns(direction)).to_owned().min(deadline_ns);
            let fd = self.io.as_fd();
            let wait = || netpoll::wait(self.record, direction, fd, seen, reason, until_ns);
            let waited = match ctx {
                None => wait(),
                Some(ctx) => ctx.while_hooked(&TryAgain(direction), wait),
            };
            if waited.map_err(|e| self.explain(direction, e))? == Waited::TimedOut {
                return Err(timed_out());
            }
        }
    }

    /// As [`run`](Self::run), for an operation of which the kernel does not say when it is worth another try: it is
    /// tried again and again, at longer and longer intervals.
    pub(crate) fn run_without_sign<R>(
        &self,
        side: Side,
        reason: WaitReason,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        const LONGEST_NS: u64 = 10_000_000;
        let direction = self.side(side);
        let limit_ns = self.limit_ns(direction);
        let mut pause_ns = 50_000;
        loop {
            let now_ns = clock::now_ns();
            let until_ns = limit_ns.min(now_ns + pause_ns);
            pause_ns = (2 * pause_ns).min(LONGEST_NS);
            match self.run_until(side, reason, Some(until_ns), &mut op) {
                Err(e) if e.kind() == io::ErrorKind::TimedOut && !self.is_over(direction, limit_ns) => {}
                done => return done,
            }
        }
    }

    /// Returns the deadline, in ns of the clock, of an operation that begins now, by its time-out.
    fn limit_ns(&self, direction: &Direction) -> u64 {
        match direction.timeout_ns.load(Relaxed) {
            u64::MAX => u64::MAX,
            timeout_ns => clock::now_ns().saturating_add(timeout_ns),
        }
    }

    fn is_over(&self, direction: &Direction, limit_ns: u64) -> bool {
        clock::now_ns() >= limit_ns.min(direction.deadline_ns.load(Relaxed))
    }

    /// As [`run`](Self::run), for a task, which is woken when it should poll again. Time-outs and deadlines are the
    /// task's business.
    #[allow(dead_code)] // for the traits of asynchronous I/O
    pub(crate) fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        side: Side,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let direction = self.side(side);
        loop {
            let seen = direction.readiness.seen().map_err(|_| closed())?;
            match op(&self.io) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Poll::Ready(Err(self.explain(direction, e))),
                done => return Poll::Ready(done),
            }
            ready!(netpoll::poll(self.record, direction, self.io.as_fd(), seen, cx))?;
        }
    }

    /// Replaces an odd error by a clear one, if the descriptor was closed under the operation.
    #[cold]
    fn explain(&self, direction: &Direction, e: io::Error) -> io::Error {
        if direction.readiness.seen().is_err() { closed() } else { e }
    }

    /// Closes the descriptor now. Operations that wait fail, and so do all later ones.
    ///
    /// Its number stays taken, by a descriptor that can do nothing, until this is dropped: a thread may be about to
    /// use it.
    pub(crate) fn close(&self) -> io::Result<()> {
        // First, so that an operation that fails because of the rest knows why.
        for direction in [&self.record.read, &self.record.write] {
            direction.readiness.close().wake();
        }
        let dead = dead()?;
        self.record.deregister(self.io.as_fd());
        // SAFETY: both are open; the number belongs to `io`, which does not care what is behind it.
        match unsafe { libc::dup3(dead.as_raw_fd(), self.io.as_fd().as_raw_fd(), libc::O_CLOEXEC) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn set_nonblocking(&self, yes: bool) {
        self.record.nonblocking.store(yes, Relaxed);
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.record.nonblocking.load(Relaxed)
    }

    /// Sets a time-out, as [`std::net::TcpStream::set_read_timeout`].
    pub(crate) fn set_timeout(&self, side: Side, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a time-out of zero; use None for no time-out",
            ));
        }
        let ns = timeout.map_or(u64::MAX, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        self.side(side).timeout_ns.store(ns, Relaxed);
        Ok(())
    }

    pub(crate) fn timeout(&self, side: Side) -> Option<Duration> {
        match self.side(side).timeout_ns.load(Relaxed) {
            u64::MAX => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    pub(crate) fn set_deadline(&self, side: Side, deadline: Option<Instant>) {
        self.side(side).set_deadline(deadline.map_or(u64::MAX, clock::at_ns));
    }

    /// Gives a clone the settings that clones of std's types share.
    pub(crate) fn copy_settings_to(&self, other: &Descriptor<T>) {
        other.set_nonblocking(self.is_nonblocking());
        for side in [Side::Read, Side::Write] {
            let ns = self.side(side).timeout_ns.load(Relaxed);
            other.side(side).timeout_ns.store(ns, Relaxed);
        }
    }

    /// Registers with the poller at once, to learn whether it takes such a descriptor.
    pub(crate) fn register(&self) -> io::Result<()> {
        self.record.register(self.io.as_fd())
    }
}

impl<T: AsFd> Drop for Descriptor<T> {
    fn drop(&mut self) {
        // SAFETY: not used again.
        unsafe { self.record.give_back(self.io.as_fd()) };
    }
}

impl<T: AsFd> AsFd for Descriptor<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

#[cold]
fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "time-out: the deadline of the operation has passed")
}

#[cold]
fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "use of a closed descriptor: close() was called on it")
}

/// Returns a descriptor on which every operation fails.
fn dead() -> io::Result<&'static OwnedFd> {
    static DEAD: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(dead) = DEAD.get() {
        return Ok(dead);
    }
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_PATH).open("/")?;
    Ok(DEAD.get_or_init(|| file.into()))
}

/// Puts a descriptor into non-blocking mode, or out of it.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>, yes: bool) -> io::Result<()> {
    let mut yes = libc::c_int::from(yes);
    // SAFETY: the request reads an `int`.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &mut yes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
