//! Park and ready: the pair that can lose a wake-up, and does not.
//!
//! A [`Waiter`] stands for whoever is about to block, goroutine or plain thread; it lies on its stack. The
//! blocking side enqueues it somewhere and calls [`wait`](Waiter::wait); the waking side takes it out of there,
//! which makes it the only one, and calls [`wake`](Waiter::wake) once.
//!
//! A wait with a deadline has a [`Claim`] beside the waiter, because the clock is a second waker that comes from
//! elsewhere: whoever takes a waiter out of a queue has to take its claim too before it may wake it.

use super::claim::{Claim, TIMED_OUT};
use super::g::{G, GPtr, Switch, WaitReason};
use super::global::GList;
use super::monitor;
use super::p::P;
use super::shared::Shared;
use super::task::{self, TaskSlot};
use super::wake::Wake;
use crate::current::{self, Running};
use crate::netpoll::Polling;
use crate::policy::{Cause, hooks};
use crate::sys::clock;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicI32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::task::Waker;
use std::thread::Thread;
use std::time::Duration;

/// Somebody who waits for one wake-up.
pub(crate) enum Waiter {
    G(GPtr),
    Thread {
        thread: Thread,
        woken: AtomicBool,
    },
    /// A thread that polls a descriptor.
    Polling(Polling),
    /// A task of an executor, which does not [`wait`](Waiter::wait) but is polled. It lies in its future, or in a box
    /// that belongs to whoever may wake it; under the lock that guards it, or its owner's.
    Task(TaskSlot),
}

/// Plain threads that sleep in a [`Waiter`] and were not woken yet: they will wake nobody. The waker counts
/// down, so that a thread on its way back is never taken for a sleeper.
pub(crate) static SLEEPING_THREADS: AtomicI32 = AtomicI32::new(0);

impl Waiter {
    /// The caller.
    pub(crate) fn current() -> Waiter {
        match current::g() {
            Some(g) => Waiter::G(g.into()),
            None => Waiter::Thread { thread: std::thread::current(), woken: AtomicBool::new(false) },
        }
    }

    /// Blocks until [`wake`](Self::wake). To be called by the one who made it, once per wake-up.
    pub(crate) fn wait(&self, reason: WaitReason) {
        match self {
            Waiter::G(_) => park_current(reason),
            Waiter::Thread { woken, .. } => {
                SLEEPING_THREADS.fetch_add(1, Relaxed);
                monitor::notice_waiting_thread();
                // ORDERING: Acquire what the waker did.
                while !woken.swap(false, Acquire) {
                    std::thread::park();
                }
            }
            Waiter::Polling(_) => unreachable!("it waits with a deadline"),
            Waiter::Task(_) => unreachable!("tasks are polled"),
        }
    }

    /// Blocks until [`wake`](Self::wake), at the most until `deadline_ns` of the monotonic clock (`u64::MAX`: for
    /// ever). `false`: the time is over, and nobody will wake this wait any more.
    ///
    /// Wakers take `claim` before they wake. After a `false` the waiter may still lie in a queue: the caller takes it
    /// out, under the lock under which wakers look at it.
    pub(crate) fn wait_until(&self, reason: WaitReason, deadline_ns: u64, claim: &Claim) -> bool {
        if deadline_ns == u64::MAX {
            self.wait(reason);
            return true;
        }
        match self {
            Waiter::G(_) => {
                let running = Running::enter().expect("a goroutine");
                crate::time::wait_until(running, reason, deadline_ns, claim)
            }
            Waiter::Thread { woken, .. } => {
                if !sleep_thread_until(woken, deadline_ns, claim) {
                    return false;
                }
                // It did not count as sleeping, since the clock would have woken it; undo the waker's count.
                SLEEPING_THREADS.fetch_add(1, Relaxed);
                true
            }
            Waiter::Polling(polling) => polling.wait(deadline_ns, claim),
            Waiter::Task(_) => unreachable!("tasks are polled"),
        }
    }

    /// The task's waker.
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        match self {
            Waiter::Task(slot) => slot.take(),
            _ => None,
        }
    }

    /// Ends the wait of `this`, which may be gone as soon as it is woken.
    ///
    /// # Safety
    /// `this` is alive, and the caller is the only one that wakes it for this wait.
    pub(crate) unsafe fn wake(this: NonNull<Waiter>) {
        let waker = Running::enter();
        // SAFETY: by the caller.
        unsafe { Waiter::wake_by(waker.as_ref(), this) }
    }

    /// As [`wake`](Self::wake), for a caller that is in the runtime already, if it is a goroutine.
    ///
    /// # Safety
    /// As `wake`.
    #[inline(always)]
    pub(crate) unsafe fn wake_by(waker: Option<&Running>, this: NonNull<Waiter>) {
        // SAFETY: by the caller.
        match unsafe { this.as_ref() } {
            Waiter::G(g) => ready_by(waker, *g),
            // SAFETY: by the caller.
            _ => unsafe { Waiter::wake_other(this) },
        }
    }

    /// Apart from the goroutines, so that their way has no jump table.
    #[cold]
    unsafe fn wake_other(this: NonNull<Waiter>) {
        // SAFETY: by the caller; not touched after the store or the notification.
        match unsafe { this.as_ref() } {
            Waiter::G(g) => ready(*g),
            Waiter::Thread { thread, woken } => {
                let thread = thread.clone();
                SLEEPING_THREADS.fetch_sub(1, Relaxed);
                // ORDERING: Release what we did to the sleeper.
                woken.store(true, Release);
                thread.unpark();
            }
            Waiter::Polling(polling) => polling.wake(),
            Waiter::Task(slot) => _ = slot.take().map(task::wake),
        }
    }
}

/// `false`: the time is over, and the claim ours.
fn sleep_thread_until(woken: &AtomicBool, deadline_ns: u64, claim: &Claim) -> bool {
    // ORDERING: Acquire what the waker did.
    while !woken.swap(false, Acquire) {
        let left_ns = deadline_ns.saturating_sub(clock::now_ns());
        if left_ns != 0 {
            std::thread::park_timeout(Duration::from_nanos(left_ns));
        } else if claim.take(TIMED_OUT) {
            return false;
        } else {
            std::thread::park(); // the waker has it and is on its way
        }
    }
    true
}

/// Parks the calling goroutine until its one wake-up.
pub(crate) fn park_current(reason: WaitReason) {
    park_running(Running::enter().expect("a goroutine"), reason);
}

/// As [`park_current`], for who armed its wake-up inside the runtime. It must not leave the runtime in between: it
/// might lose its slice there, and a goroutine in a run queue cannot take the wake-up.
#[inline(always)]
pub(crate) fn park_running(running: Running, reason: WaitReason) {
    let g = running.g();
    if g.state.consume_notification() {
        return;
    }
    g.reason.store(reason as u8, Relaxed);
    g.trimmed.store(false, Relaxed);
    g.since_ns.store(running.shared().monitor.coarse_ns(), Relaxed);
    running.suspend(Switch::Park);
}

/// Makes a parked goroutine runnable. The caller won the right to do so.
pub(crate) fn ready(g: GPtr) {
    ready_by(Running::enter().as_ref(), g);
}

#[inline(always)]
fn ready_by(waker: Option<&Running>, g: GPtr) {
    match waker {
        Some(running) if g.shared.get() == std::ptr::from_ref(running.shared()) => {
            if g.notify() == Wake::Enqueue {
                queue_next(running.p(), running.shared(), g);
                running.shared().wake_one();
            }
        }
        _ => ready_from_outside(g),
    }
}

/// With more goroutines than this in line, a joiner queues up behind them.
/// TUNED: join of a batch of 1000 costs 64 ns a goroutine at the back, 120 ns in `runnext` (the joiner runs after each
/// goroutine and waits for the next); a fork-join recursion prefers `runnext` by 8 %, and its queues are short.
const JOINER_WAITS: usize = 32;

/// Wakes the joiner of the goroutine that ends here.
pub(crate) fn ready_joiner(running: &Running, joiner: NonNull<Waiter>) {
    // SAFETY: the caller took it from `G::join`; it waits until it is woken.
    match unsafe { joiner.as_ref() } {
        Waiter::G(g)
            if running.p().runq.len() > JOINER_WAITS
                && g.shared.get() == std::ptr::from_ref(running.shared()) =>
        {
            ready_on(running.p(), running.shared(), *g, false);
        }
        // SAFETY: a task's waiter is in a box, which went to us when the goroutine completed.
        Waiter::Task(_) => _ = unsafe { Box::from_raw(joiner.as_ptr()) }.take_waker().map(task::wake),
        // SAFETY: as above.
        _ => unsafe { Waiter::wake(joiner) },
    }
}

/// By a plain thread or a goroutine of another runtime.
#[cold]
fn ready_from_outside(g: GPtr) {
    // SAFETY: until it is notified the goroutine lives, and its runtime with it: the workers hold a count. As soon as
    // it is queued it may end and the runtime with it, hence our own count.
    let shared = unsafe { &*g.shared.get() }.to_arc();
    if g.notify() == Wake::Enqueue {
        hooks::note_cause(&shared, &g, Cause::Woken);
        shared.push_global_one(g);
        shared.wake_one();
        shared.monitor.notice_inbox(&shared);
    }
}

/// Queues a goroutine that the caller notified, and owns, in its own runtime.
#[cold]
pub(crate) fn queue_elsewhere(g: GPtr) {
    // SAFETY: as above.
    let shared = unsafe { &*g.shared.get() }.to_arc();
    shared.push_global_one(g);
    shared.wake_one();
}

/// By somebody who owns `p`: next in line or at the back.
pub(crate) fn ready_on(p: &P, shared: &Shared, g: GPtr, next: bool) {
    if g.notify() == Wake::Enqueue {
        match next {
            true => queue_next(p, shared, g),
            false => queue_back(p, shared, g),
        }
        shared.wake_one();
    }
}

/// Puts a goroutine next in line on a P that the caller owns.
#[inline]
pub(crate) fn queue_next(p: &P, shared: &Shared, g: GPtr) {
    if hooks::decides(p) {
        return hooks::queue(p, shared, g, Cause::Woken, true, true);
    }
    if let Err(full) = p.runq.push_next(g.as_ptr()) {
        spill(p, shared, full);
    }
}

/// Puts a goroutine at the back of a P that the caller owns.
#[inline]
pub(crate) fn queue_back(p: &P, shared: &Shared, g: GPtr) {
    if hooks::decides(p) {
        return hooks::queue(p, shared, g, Cause::Woken, false, true);
    }
    if let Err(full) = p.runq.push_back(g.as_ptr()) {
        spill(p, shared, full);
    }
}

/// There was a policy a moment ago, and there is none now.
pub(crate) fn queue_by_default(p: &P, shared: &Shared, g: GPtr, next: bool) {
    let pushed = if next { p.runq.push_next(g.as_ptr()) } else { p.runq.push_back(g.as_ptr()) };
    if let Err(full) = pushed {
        spill(p, shared, full);
    }
}

/// The P's ring is full: half of it goes to the global queue.
#[cold]
#[inline(never)]
pub(crate) fn spill(p: &P, shared: &Shared, full: super::runq::Full<G>) {
    p.counters.overflows.add(1);
    let mut list = GList::new();
    p.runq.spill(full, |g| list.push(GPtr::new(g).expect("queues hold no null")));
    shared.push_global(list);
}
