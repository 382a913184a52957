//! The kernel's side: an epoll instance, edge-triggered, and an eventfd that ends a wait.

use crate::sys::clock;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Number of events that are taken at a time.
pub(crate) const BATCH: usize = 128;
/// The token of the eventfd; no record lies at address zero.
const INTERRUPT: u64 = 0;
/// Length in ns above which a wait ends in two steps: see [`Epoll::wait`].
const TWO_STEPS_NS: u64 = 5_000_000;

/// Flags for the end, an error, or urgent data: more than bytes.
pub(crate) const PECULIAR: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI) as u32;
pub(crate) const READABLE: u32 = libc::EPOLLIN as u32 | PECULIAR;
pub(crate) const WRITABLE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;

#[derive(Debug)]
pub(crate) struct Epoll {
    epoll: OwnedFd,
    interrupt: OwnedFd,
}

/// Room for the events of one call.
pub(crate) struct Events {
    events: [libc::epoll_event; BATCH],
    len: usize,
}

impl Events {
    pub(crate) fn new() -> Events {
        Events { events: [libc::epoll_event { events: 0, u64: 0 }; BATCH], len: 0 }
    }

    /// Iterates over the token and the flags of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.events[..self.len].iter().map(|e| (e.u64, e.events)).filter(|(token, _)| *token != INTERRUPT)
    }

    /// Returns whether there may be more.
    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: no memory involved.
        let (epoll, interrupt) = unsafe {
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
            )
        };
        let this = Epoll { epoll, interrupt };
        // Level-triggered, so that a look without blocking does not swallow it.
        this.control(libc::EPOLL_CTL_ADD, this.interrupt.as_raw_fd(), libc::EPOLLIN as u32, INTERRUPT)?;
        Ok(this)
    }

    /// Registers a descriptor for its life.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let flags = READABLE | WRITABLE | libc::EPOLLET as u32;
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), flags, token)
    }

    /// As [`add`](Self::add); a registration that is there already is replaced.
    pub(super) fn add_or_take_over(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        match self.add(fd, token) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {
                let flags = READABLE | WRITABLE | libc::EPOLLET as u32;
                self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), flags, token)
            }
            done => done,
        }
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // It fails only if it was not registered, which is fine.
        _ = self.control(libc::EPOLL_CTL_DEL, fd.as_raw_fd(), 0, INTERRUPT);
    }

    /// Returns whether a look would find something. Takes nothing.
    pub(crate) fn has_news(&self) -> bool {
        let mut ask = libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `ask` outlives the call, which does not block.
        unsafe { libc::poll(&mut ask, 1, 0) > 0 }
    }

    fn control(&self, op: libc::c_int, fd: RawFd, flags: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: flags, u64: token };
        // SAFETY: `event` outlives the call.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes what is there, without blocking.
    pub(crate) fn look(&self, into: &mut Events) {
        // SAFETY: there is room for `BATCH` events.
        let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), into.events.as_mut_ptr(), BATCH as i32, 0) };
        into.len = n.max(0) as usize;
    }

    /// Blocks until there is an event or an interrupt, or until `deadline_ns`; may return for no reason. To be called
    /// by one thread at a time.
    pub(crate) fn wait(&self, deadline_ns: u64, into: &mut Events) {
        into.len = self.wait_for(timeout_ns(deadline_ns), &mut into.events).max(0) as usize;
        if into.events[..into.len].iter().any(|e| e.u64 == INTERRUPT) {
            let mut count = 0u64;
            // SAFETY: eight bytes to write to. It does not block; whatever it returns, the count is zero then.
            unsafe { libc::read(self.interrupt.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
    }

    fn wait_for(&self, timeout_ns: Option<u64>, events: &mut [libc::epoll_event; BATCH]) -> i32 {
        static COARSE: AtomicBool = AtomicBool::new(false);
        let (epoll, room) = (self.epoll.as_raw_fd(), BATCH as i32);
        if !COARSE.load(Relaxed) {
            let ts = timeout_ns.map(|ns| libc::timespec {
                tv_sec: (ns / 1_000_000_000) as _, // musl calls its type deprecated
                tv_nsec: (ns % 1_000_000_000) as libc::c_long,
            });
            let ts = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let mask = std::ptr::null::<libc::sigset_t>();
            // SAFETY: there is room for `BATCH` events, and the time outlives the call.
            let n = unsafe {
                libc::syscall(libc::SYS_epoll_pwait2, epoll, events.as_mut_ptr(), room, ts, mask, 0usize)
            };
            if n >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
                return n as i32;
            }
            COARSE.store(true, Relaxed); // Linux before 5.11
        }
        let ms = timeout_ns.map_or(-1, |ns| ns.div_ceil(1_000_000).min(i32::MAX as u64) as i32);
        // SAFETY: as above.
        unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, ms) }
    }

    /// Ends the wait of the thread that waits, or else the next one. Also from the preemption handler: `errno` stays.
    pub(crate) fn interrupt(&self) {
        let one = 1u64;
        // SAFETY: eight bytes to read from; `errno` is this thread's. It can fail only if the count is near 2^64.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::write(self.interrupt.as_raw_fd(), (&raw const one).cast(), 8);
            *errno = before;
        }
    }
}

/// Returns how many ns to wait until the deadline. The kernel may be late by a thousandth of it, so a long wait ends
/// early, and the next one is short.
fn timeout_ns(deadline_ns: u64) -> Option<u64> {
    if deadline_ns == u64::MAX {
        return None;
    }
    let left = deadline_ns.saturating_sub(clock::now_ns());
    Some(if left > TWO_STEPS_NS { left - left / 256 } else { left })
}
