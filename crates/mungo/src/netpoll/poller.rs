//! The process's one poller, and who looks after it.

use super::epoll::{Epoll, Events};
use super::readiness::{Registered, Seen, Waited};
use super::record::{Direction, Record};
use super::thread;
use crate::runtime::default_runtime;
use crate::sched::g::{GPtr, WaitReason};
use crate::sched::global::GList;
use crate::sched::p::P;
use crate::sched::park;
use crate::sched::shared::Shared;
use crate::sched::task;
use crate::sync::queue::Node;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::task::{Context, Poll, Waker};

/// The process's poller.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) epoll: Epoll,
    /// How often somebody looked. A hint, for the monitor.
    looks: AtomicU64,
    /// An M blocks here.
    watched: AtomicBool,
}

static POLLER: OnceLock<Poller> = OnceLock::new();

/// Those who wait for a descriptor, or were woken and have not run yet.
#[repr(align(128))]
struct Waits(AtomicUsize);

static WAITS: Waits = Waits(AtomicUsize::new(0));

pub(super) fn poller() -> io::Result<&'static Poller> {
    if let Some(poller) = POLLER.get() {
        return Ok(poller);
    }
    let epoll = Epoll::new()?;
    // If another one comes first, ours is closed.
    Ok(POLLER.get_or_init(|| Poller { epoll, looks: AtomicU64::new(0), watched: AtomicBool::new(false) }))
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
    if crate::current::g().is_none() {
        let events =
            if std::ptr::eq(of, &record.read) { libc::POLLIN | libc::POLLRDHUP } else { libc::POLLOUT };
        return thread::wait(&of.readiness, fd, events, seen, deadline_ns);
    }
    record.register(fd)?;
    // ORDERING: SeqCst: see the module; the counterpart is in `Watching::new`.
    WAITS.0.fetch_add(1, SeqCst);
    let waited = of.readiness.wait(seen, reason, &Node::new(deadline_ns));
    WAITS.0.fetch_sub(1, Relaxed);
    Ok(waited)
}

/// The same for a task: pending, if it will be woken.
#[allow(dead_code)] // for the traits of asynchronous I/O
pub(crate) fn poll(
    record: &'static Record,
    of: &Direction,
    fd: BorrowedFd<'_>,
    seen: Seen,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    record.register(fd)?;
    // ORDERING: SeqCst: as in `wait`. Whoever takes the waker counts down.
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
    if crate::current::g().is_none() && is_unwatched() {
        // Not a goroutine, whose M will look when it has nothing else to do.
        default_runtime()?.shared().wake_one();
    }
    Poll::Pending
}

/// Whether somebody may be waiting.
#[inline]
pub(crate) fn anyone_waits() -> bool {
    // ORDERING: SeqCst: see the module.
    WAITS.0.load(SeqCst) != 0
}

/// Somebody waits, and no M blocks for it: those with a P must look.
#[inline]
pub(crate) fn is_unwatched() -> bool {
    anyone_waits() && POLLER.get().is_some_and(|poller| !poller.watched.load(Relaxed))
}

/// A number that changes with each look.
pub(crate) fn looks() -> u64 {
    POLLER.get().map_or(0, |poller| poller.looks.load(Relaxed))
}

/// Looks without blocking, and queues whom that woke on `p`, which the caller owns. `true`: there were some.
pub(crate) fn look(p: &P, shared: &Shared) -> bool {
    let woken = take();
    let any = woken.len() != 0;
    let own = send_home(woken, shared);
    queue(own, p, shared);
    any
}

/// Looks without blocking; the goroutines are the caller's to queue.
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

/// Keeps those of `shared`; the others go to the queues of their own runtimes.
pub(crate) fn send_home(mut woken: GList, shared: &Shared) -> GList {
    let mut own = GList::new();
    while let Some(g) = woken.pop() {
        match std::ptr::eq(g.shared.get(), shared) {
            true => own.push(g),
            false => park::queue_elsewhere(g),
        }
    }
    own
}

/// Queues goroutines that were woken on `p`, which the caller owns. They most often have little to do: where others
/// wait already, they go first, on whatever P is free first. TUNED: in the ring of one P some waited behind all that
/// computed there, and behind who was woken later: 36 instead of 9 ms in one of a hundred, with 13 connections that ask
/// a web server for computations and 51 that do not.
pub(crate) fn queue(mut woken: GList, p: &P, shared: &Shared) {
    let several = woken.len() > 1;
    if p.runq.is_empty() && shared.global_len() == 0 {
        while let Some(g) = woken.pop() {
            park::queue_back(p, shared, g);
        }
        p.mark_fresh();
    } else if woken.len() != 0 {
        shared.push_urgent(woken);
    }
    // The caller takes one of them. Who comes and finds work calls the next.
    if several {
        shared.wake_one();
    }
}

/// Wakes the tasks that waited.
pub(super) fn wake_tasks(wakers: impl Iterator<Item = Waker>) {
    for waker in wakers {
        WAITS.0.fetch_sub(1, Relaxed);
        task::wake(waker);
    }
}

impl Poller {
    fn collect(&self, events: &Events, woken: &mut GList) {
        self.looks.store(self.looks.load(Relaxed).wrapping_add(1), Relaxed);
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
    /// For an M that has put its P on the idle list. `None`: nobody waits, or another one watches.
    pub(crate) fn new() -> Option<Watching> {
        if !anyone_waits() {
            return None;
        }
        let poller = POLLER.get()?;
        // ORDERING: SeqCst: with `Drop` and the list of idle Ps. Whoever stops watching looks for an idle P
        // afterwards; whoever fails here has put its P there before.
        let ours = poller.watched.compare_exchange(false, true, SeqCst, Relaxed).is_ok();
        ours.then(|| Watching(poller)) // not `then_some`: there must not be one, not even to be dropped
    }

    /// Blocks until somebody was woken, or [`interrupt`], or the deadline; or for no reason.
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

/// Ends the wait of the one who watches.
pub(crate) fn interrupt() {
    if let Some(poller) = POLLER.get() {
        poller.epoll.interrupt();
    }
}
