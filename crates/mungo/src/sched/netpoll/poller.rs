//! The process's one poller, and the threads that look after it; below, the kernel's side: an epoll instance,
//! edge-triggered, and an eventfd that ends a wait.

use super::thread;
use crate::policies::order::POLL_BATCH;
use crate::sched::netpoll::readiness::{Registered, Seen, Waited};
use crate::sched::netpoll::record::{Direction, Record};
use crate::sched::pick::global::GList;
use crate::sched::pick::{From, Why, enqueue_all, enqueue_at_home};
use crate::sched::run::g::{Awaited, GPtr, WaitReason};
use crate::sched::run::p::P;
use crate::sched::run::park::Waiter;
use crate::sched::run::task;
use crate::sched::run::waitq::Node;
use crate::sched::shared::Shared;
use crate::sched::start::default_runtime;
use crate::sched::traced;
use crate::sys::clock;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::task::{Context, Poll, Waker};

/// The process's poller.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) epoll: Epoll,
    /// Whether an M blocks here.
    watched: AtomicBool,
}

static POLLER: OnceLock<Poller> = OnceLock::new();

/// Number of goroutines and tasks that wait for a descriptor, or were woken and have not run yet.
#[repr(align(128))]
struct Waits(AtomicUsize);

static WAITS: Waits = Waits(AtomicUsize::new(0));

pub(crate) fn poller() -> io::Result<&'static Poller> {
    if let Some(poller) = POLLER.get() {
        return Ok(poller);
    }
    let epoll = Epoll::new()?;
    // If another thread comes first, this one's instance is closed.
    Ok(POLLER.get_or_init(|| Poller { epoll, watched: AtomicBool::new(false) }))
}

/// Waits until something may have happened to the descriptor after `seen`, at the most until `deadline_ns`.
pub(crate) fn wait(
    record: &'static Record,
    of: &Direction,
    fd: BorrowedFd<'_>,
    seen: Seen,
    reason: WaitReason,
    deadline_ns: u64,
) -> io::Result<Waited> {
    if crate::sched::run::current::g().is_none() {
        let events =
            if std::ptr::eq(of, &record.read) { libc::POLLIN | libc::POLLRDHUP } else { libc::POLLOUT };
        return thread::wait(&of.readiness, fd, events, seen, deadline_ns);
    }
    record.register(fd)?;
    Ok(wait_registered(of, fd.as_raw_fd(), seen, reason, deadline_ns))
}

/// As [`wait`], for a goroutine, whose descriptor is registered.
pub(crate) fn wait_registered(
    of: &Direction,
    fd: RawFd,
    seen: Seen,
    reason: WaitReason,
    deadline_ns: u64,
) -> Waited {
    // ORDERING: SeqCst: see `netpoll/mod.rs`; the counterpart is in `Watching::new`.
    WAITS.0.fetch_add(1, SeqCst);
    let waited = {
        let node = Node::of(Waiter::current(), Awaited::of_descriptor(fd), deadline_ns);
        of.readiness.wait(seen, reason, &node)
    };
    WAITS.0.fetch_sub(1, Relaxed);
    waited
}

/// As [`wait`], for a task: pending, if it will be woken.
#[allow(dead_code)] // for the traits of asynchronous I/O
pub(crate) fn poll(
    record: &'static Record,
    of: &Direction,
    fd: BorrowedFd<'_>,
    seen: Seen,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    record.register(fd)?;
    // ORDERING: SeqCst: as in `wait`. The thread that takes the waker counts down.
    WAITS.0.fetch_add(1, SeqCst);
    match of.readiness.register(seen, cx) {
        Registered::Fresh => {}
        Registered::InsteadOf(old) => {
            WAITS.0.fetch_sub(1, Relaxed);
            if !old.will_wake(cx.waker()) {
                task::wake(old);
            }
        }
        Registered::No => {
            WAITS.0.fetch_sub(1, Relaxed);
            return Poll::Ready(Ok(()));
        }
    }
    if crate::sched::run::current::g().is_none() && is_unwatched() {
        // The caller is not a goroutine, whose M will look when it has nothing else to do.
        default_runtime()?.wake_one();
    }
    Poll::Pending
}

/// Returns whether a goroutine or task may be waiting.
#[inline]
pub(crate) fn anyone_waits() -> bool {
    // ORDERING: SeqCst: see `netpoll/mod.rs`.
    WAITS.0.load(SeqCst) != 0
}

/// Returns whether there are waiters, and no M blocks for them: then Ms with a P must look.
#[inline]
pub(crate) fn is_unwatched() -> bool {
    // ORDERING: SeqCst: the caller has counted itself, or given a P up, before; an M that stops watching says so and
    // then looks for waiters.
    anyone_waits() && POLLER.get().is_some_and(|poller| !poller.watched.load(SeqCst))
}

/// Returns whether a look would find something. Without memory or locks: for the monitor.
pub(crate) fn has_news() -> bool {
    POLLER.get().is_some_and(|poller| poller.epoll.has_news())
}

/// Looks without blocking, and queues the woken goroutines on `p`, which the caller owns. Returns whether any were.
pub(crate) fn look(p: &P, shared: &Shared) -> bool {
    let woken = take();
    traced::polled(shared, Some(p), woken.len());
    let any = woken.len() != 0;
    let own = send_home(woken, shared);
    queue(own, p, shared);
    any
}

/// Looks without blocking. Returns the woken goroutines, for the caller to queue.
pub(crate) fn take() -> GList {
    let mut woken = GList::new();
    if let Some(poller) = POLLER.get() {
        let mut events = Events::new();
        // Once more if there may be more, so that a crowd comes in two calls, and others have their turn.
        for _ in 0..2 {
            poller.epoll.look(&mut events);
            poller.collect(&events, &mut woken);
            if !events.is_full() {
                break;
            }
        }
    }
    woken
}

/// Returns the goroutines of `shared`; the others go to the queues of their own runtimes.
pub(crate) fn send_home(mut woken: GList, shared: &Shared) -> GList {
    let mut own = GList::new();
    while let Some(g) = woken.pop() {
        match std::ptr::eq(g.shared.get(), shared) {
            true => own.push(g),
            false => enqueue_at_home(g, Why::Network),
        }
    }
    own
}

/// Queues goroutines that were woken, by the owner of `p`, which takes one of them.
pub(crate) fn queue(woken: GList, p: &P, shared: &Shared) {
    let several = woken.len() > 1;
    enqueue_all(shared, woken, Why::Network, From::Owner(p));
    if several {
        shared.wake_one(); // an M that comes and finds work calls the next
    }
}

/// Wakes the tasks that waited.
pub(crate) fn wake_tasks(wakers: impl Iterator<Item = Waker>) {
    for waker in wakers {
        WAITS.0.fetch_sub(1, Relaxed);
        task::wake(waker);
    }
}

impl Poller {
    fn collect(&self, events: &Events, woken: &mut GList) {
        for (token, flags) in events.iter() {
            let Some(record) = Record::of_token(token) else { continue };
            record.fire(flags, |fired| {
                fired.popped.ready_into(|g: GPtr| woken.push(g));
                for waker in fired.waker.into_iter().chain(fired.others) {
                    WAITS.0.fetch_sub(1, Relaxed);
                    task::ready_into(waker, |g| woken.push(g));
                }
            });
        }
    }
}

/// The right to block in the poller, which one thread has at a time.
pub(crate) struct Watching(&'static Poller);

impl Watching {
    /// Starts to watch, for an M that has put its P on the idle list. `None`: no waiters, or another M watches.
    pub(crate) fn new() -> Option<Watching> {
        if !anyone_waits() {
            return None;
        }
        let poller = POLLER.get()?;
        // ORDERING: SeqCst: with `Drop` and the list of idle Ps. An M that stops watching looks for an idle P
        // afterwards; one that fails here has put its P there before.
        let ours = poller.watched.compare_exchange(false, true, SeqCst, Relaxed).is_ok();
        ours.then(|| Watching(poller)) // not `then_some`: there must not be one, not even to be dropped
    }

    /// Blocks until a goroutine was woken, or [`interrupt`], or the deadline; or for no reason. Returns the woken.
    pub(crate) fn wait(&self, deadline_ns: u64) -> GList {
        let mut woken = GList::new();
        let mut events = Events::new();
        self.0.epoll.wait(deadline_ns, &mut events);
        self.0.collect(&events, &mut woken);
        woken
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watched.store(false, SeqCst); // ORDERING: see `new`
    }
}

/// Ends the wait of the M that watches.
pub(crate) fn interrupt() {
    if let Some(poller) = POLLER.get() {
        poller.epoll.interrupt();
    }
}

// ---- the kernel's side ----

/// The token of the eventfd; no record lies at address zero.
const INTERRUPT: u64 = 0;
/// Length in ns above which a wait ends in two steps: see [`Epoll::wait`].
const TWO_STEPS_NS: u64 = 5_000_000;

/// Flags for the end, an error, or urgent data: more than bytes.
pub(crate) const HANGUP_OR_ERROR: u32 =
    (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI) as u32;
pub(crate) const READABLE: u32 = libc::EPOLLIN as u32 | HANGUP_OR_ERROR;
pub(crate) const WRITABLE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;

#[derive(Debug)]
pub(crate) struct Epoll {
    epoll: OwnedFd,
    interrupt: OwnedFd,
}

/// Room for the events of one call.
pub(crate) struct Events {
    events: [libc::epoll_event; POLL_BATCH],
    len: usize,
}

impl Events {
    pub(crate) fn new() -> Events {
        Events { events: [libc::epoll_event { events: 0, u64: 0 }; POLL_BATCH], len: 0 }
    }

    /// Iterates over the token and the flags of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.events[..self.len].iter().map(|e| (e.u64, e.events)).filter(|(token, _)| *token != INTERRUPT)
    }

    /// Returns whether there may be more.
    pub(crate) fn is_full(&self) -> bool {
        self.len == POLL_BATCH
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
        // SAFETY: there is room for `POLL_BATCH` events.
        let n =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), into.events.as_mut_ptr(), POLL_BATCH as i32, 0) };
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

    fn wait_for(&self, timeout_ns: Option<u64>, events: &mut [libc::epoll_event; POLL_BATCH]) -> i32 {
        static COARSE: AtomicBool = AtomicBool::new(false);
        let (epoll, room) = (self.epoll.as_raw_fd(), POLL_BATCH as i32);
        if !COARSE.load(Relaxed) {
            let ts = timeout_ns.map(|ns| libc::timespec {
                tv_sec: (ns / 1_000_000_000) as _, // musl calls its type deprecated
                tv_nsec: (ns % 1_000_000_000) as libc::c_long,
            });
            let ts = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let mask = std::ptr::null::<libc::sigset_t>();
            // SAFETY: there is room for `POLL_BATCH` events, and the time outlives the call.
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
