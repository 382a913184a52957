//! Try without waiting, wait in the netpoller, try again.

use crate::counters::Counter;
use crate::shims::raw::{self, EAGAIN, EBADF, sys};
use mungo::WaitReason;
use mungo::interpose::{Caller, Side, Slot, Wait, changes, now_ns};
use std::ffi::c_int;

/// A call that may have to wait for a descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) fd: c_int,
    pub(crate) side: Side,
    pub(crate) reason: WaitReason,
    pub(crate) counter: &'static Counter,
    pub(crate) limit: Limit,
    /// For a plain read: the bytes that there is room for. A stream that fills less of them is empty. Else 0.
    pub(crate) room: usize,
    /// Whether the descriptor may be a file's.
    pub(crate) may_be_file: bool,
}

/// Until when a call may take.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// As the descriptor says: at once if it does not block, else by this time-out of a socket (`SO_RCVTIMEO`).
    Option(c_int),
    /// Until this time of the monotonic clock, whatever the descriptor says.
    Until(u64),
}

impl Call {
    pub(crate) fn read(fd: c_int, counter: &'static Counter) -> Call {
        let limit = Limit::Option(libc::SO_RCVTIMEO);
        Call { fd, side: Side::Read, reason: WaitReason::NetRead, counter, limit, room: 0, may_be_file: false }
    }

    pub(crate) fn write(fd: c_int, counter: &'static Counter) -> Call {
        let limit = Limit::Option(libc::SO_SNDTIMEO);
        Call {
            fd,
            side: Side::Write,
            reason: WaitReason::NetWrite,
            counter,
            limit,
            room: 0,
            may_be_file: false,
        }
    }

    /// Calls `attempt` until it returns something else than EAGAIN, and waits in between. If it cannot wait, calls
    /// `kernel`, which may block the thread.
    ///
    /// WHY all in line up to the result: the processor mispredicts each return after a system call, for some 7 ns.
    #[inline(always)]
    pub(crate) fn run(
        self,
        caller: Caller,
        mut attempt: impl FnMut() -> i64,
        kernel: impl FnMut() -> i64,
    ) -> i64 {
        let wait = self.begin();
        if self.room == 0 || !wait.as_ref().is_some_and(Wait::is_drained) {
            let result = attempt();
            if result != EAGAIN {
                self.counter.pass();
                self.note(wait.as_ref(), result);
                return result;
            }
        }
        self.run_slow(caller, wait, attempt, kernel)
    }

    /// Begins a wait, if the descriptor was ever waited for. To be followed by a try.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Option<Wait> {
        Slot::find(self.fd).map(|slot| slot.begin(self.side))
    }

    /// Notes what the result of a try says about the next read.
    #[inline(always)]
    fn note(&self, wait: Option<&Wait>, result: i64) {
        if result > 0
            && (result as usize) < self.room
            && let Some(wait) = wait
        {
            wait.note_drained();
        }
    }

    /// Does as [`run`](Self::run), after a try in vain. Takes the closures by value: they need no memory before.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_slow(
        self,
        caller: Caller,
        wait: Option<Wait>,
        mut attempt: impl FnMut() -> i64,
        kernel: impl FnMut() -> i64,
    ) -> i64 {
        self.wait_and_try(caller, wait, &mut attempt).unwrap_or_else(|| {
            self.counter.fall_back();
            block(caller, kernel)
        })
    }

    /// Returns the result; `None`: the goroutine cannot wait for this descriptor, or not here.
    fn wait_and_try(self, caller: Caller, wait: Option<Wait>, attempt: &mut dyn FnMut() -> i64) -> Option<i64> {
        // Before anything is locked or allocated: a signal handler must not.
        if !caller.may_suspend() {
            return None;
        }
        let started_ns = now_ns();
        // A wait that began before the first try need not try again.
        let mut try_first = wait.is_none();
        let mut wait = match wait {
            Some(wait) => wait,
            None => Slot::of(self.fd)?.begin(self.side),
        };
        let slot = wait.slot();
        if slot.is_nets() && matches!(self.limit, Limit::Option(_)) {
            return Some(EAGAIN);
        }
        let mut trust = matches!(self.limit, Limit::Option(_)) && slot.is_known(self.side);
        let mut deadline_ns = None;
        let mut is_counted = false;
        loop {
            if !trust && deadline_ns.is_none() {
                match self.look(slot, started_ns)? {
                    Found::Immediate => return Some(EAGAIN),
                    Found::Until(ns) => deadline_ns = Some(ns),
                }
            }
            if std::mem::replace(&mut try_first, false) {
                let result = attempt();
                if result != EAGAIN {
                    self.note(Some(&wait), result);
                    return Some(result);
                }
            }
            if wait.is_closed() {
                return Some(EBADF);
            }
            if !std::mem::replace(&mut is_counted, true) {
                self.counter.park();
            }
            let woken = match deadline_ns {
                Some(ns) => wait.park(caller, self.reason, ns),
                None => wait.park_trusting(caller, self.reason, started_ns),
            };
            if wait.is_closed() {
                return Some(EBADF);
            }
            if woken {
                wait.again();
                try_first = true;
            } else if deadline_ns.is_some() {
                return Some(EAGAIN);
            } else {
                trust = false;
                slot.forget();
                try_first = true;
            }
        }
    }

    /// Finds out until when to wait, and registers the descriptor. `None`: it cannot be waited for.
    fn look(self, slot: &'static Slot, started_ns: u64) -> Option<Found> {
        match self.limit {
            Limit::Until(ns) => {
                slot.register(self.fd).ok()?;
                Some(Found::Until(ns))
            }
            Limit::Option(option) => {
                let changes = changes();
                if is_nonblocking(self.fd) {
                    // The mode means nothing for a file: a read that misses the page cache waits for the disk.
                    let is_file = self.may_be_file && is_file(self.fd);
                    return (!is_file).then_some(Found::Immediate);
                }
                let timeout_ns = timeout_ns(self.fd, option);
                slot.register(self.fd).ok()?;
                if timeout_ns == u64::MAX {
                    slot.know(self.side, changes);
                    if self.room != 0 && is_tcp(self.fd) {
                        slot.note_stream();
                    }
                }
                Some(Found::Until(started_ns.saturating_add(timeout_ns)))
            }
        }
    }
}

/// Makes a call that may block the thread: announced, but in a signal handler, where the runtime cannot be called.
pub(crate) fn block<T>(caller: Caller, kernel: impl FnOnce() -> T) -> T {
    if caller.may_suspend() { mungo::blocking(kernel) } else { kernel() }
}

enum Found {
    /// The descriptor does not block.
    Immediate,
    /// It blocks, until this time at the most.
    Until(u64),
}

/// Returns whether the descriptor is in non-blocking mode; `false` if there is none.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: asks only.
    let flags = unsafe { sys!(SYS_fcntl, fd, libc::F_GETFL) };
    flags >= 0 && flags as c_int & libc::O_NONBLOCK != 0
}

/// Returns whether the descriptor is a file, or a disk: it cannot be waited for.
pub(crate) fn is_file(fd: c_int) -> bool {
    // SAFETY: plain numbers.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    let asked = unsafe { sys!(SYS_fstat, fd, &raw mut about) };
    asked == 0 && matches!(about.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK)
}

/// Returns a time-out of a socket in ns; `u64::MAX`: it has none, or is not a socket.
pub(crate) fn timeout_ns(fd: c_int, option: c_int) -> u64 {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: room for as many bytes as the length says.
    let got = unsafe { sys!(SYS_getsockopt, fd, libc::SOL_SOCKET, option, &raw mut time, &raw mut len) };
    match (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_usec as u64 * 1000) {
        ns if got == 0 && ns != 0 => ns,
        _ => u64::MAX,
    }
}

/// Returns whether the descriptor is a TCP socket.
fn is_tcp(fd: c_int) -> bool {
    option_of(fd, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// Returns a number that the kernel knows of a socket; `None`: it is no socket.
pub(crate) fn option_of(fd: c_int, option: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: room for as many bytes as the length says.
    let got = unsafe { sys!(SYS_getsockopt, fd, libc::SOL_SOCKET, option, &raw mut value, &raw mut len) };
    (got == 0).then_some(value)
}

/// Returns which of `events` the descriptor is ready for, without waiting; errors and the end count as ready.
pub(crate) fn ready(fd: c_int, events: libc::c_short) -> bool {
    let mut ask = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: `ask` outlives the call.
    unsafe { raw::poll(&raw mut ask, 1, 0) > 0 }
}
