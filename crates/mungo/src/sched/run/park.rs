//! Park and ready: the pair that can lose a wake-up, and does not.
//!
//! A [`Running`] is the calling goroutine inside the runtime, with its P; it suspends itself by giving it up. An
//! [`Entered`] is the same in one word, or a plain thread.
//!
//! A [`Waiter`] stands for a goroutine or plain thread that is about to block; it lies on its stack. The blocking side
//! enqueues it somewhere and calls [`wait`](Waiter::wait); the waking side takes it out of there, which makes it the
//! only waker, and calls [`wake`](Waiter::wake) once.
//!
//! A wait with a deadline has a [`Claim`] beside the waiter, because the clock is a second waker that comes from
//! elsewhere: a waker that takes a waiter out of a queue has to take its claim too before it may wake it.

use crate::policies::Priority;
use crate::protocols::claim::{Claim, TIMED_OUT};
use crate::protocols::wake::Wake;
use crate::sched::netpoll::Polling;
use crate::sched::pick::{self, Why, enqueue_at_home};
use crate::sched::run::current::{self, panic_is_the_threads};
use crate::sched::run::g::{Awaited, G, GPtr, Switch};
use crate::sched::run::m::{CONTESTED, M};
use crate::sched::run::p::{P, PREEMPT};
use crate::sched::run::task::{self, TaskSlot};
use crate::sched::shared::Shared;
use crate::sched::sysmon::monitor;
use crate::sched::threads::{blocking, bound};
use crate::sys::clock;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicI32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::task::Waker;
use std::thread::Thread;
use std::time::Duration;

/// A goroutine inside the runtime, with its P, which no thread takes away before this is dropped.
///
/// Two words: it is passed and returned in registers.
pub(crate) struct Running {
    g: &'static G,
    p: *const P,
}

impl Running {
    /// Enters the runtime; `None` on a plain thread.
    #[inline]
    pub(crate) fn enter() -> Option<Running> {
        let g = current::g()?;
        g.enter_runtime();
        // SAFETY: the M that runs this goroutine. From here on it changes only if the goroutine suspends itself.
        let p = unsafe { (*g.m.load(Relaxed)).p.load(Acquire) };
        if p <= CONTESTED {
            return Some(Running::enter_without_p(g));
        }
        Some(Running { g, p })
    }

    /// Waits for a P, because the goroutine's was taken while it was blocked.
    #[cold]
    fn enter_without_p(g: &'static G) -> Running {
        blocking::reacquire(g, Switch::WithoutP);
        // SAFETY: in the runtime with a P, as one that was leaked is. The monitor may contest it again by now.
        unsafe { Running::retrieve(g) }
    }

    #[inline]
    pub(crate) fn g(&self) -> &'static G {
        self.g
    }

    #[inline]
    pub(crate) fn m(&self) -> &M {
        // SAFETY: the M that runs this goroutine now.
        unsafe { &*self.g.m.load(Relaxed) }
    }

    #[inline]
    pub(crate) fn p(&self) -> &P {
        // SAFETY: ours while in the runtime; Ps live as long as the runtime.
        unsafe { &*self.p }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // The M's: its line is in the cache, and a yield touches one line of the G.
        self.m().shared()
    }

    /// Switches to the worker, and leaves the runtime when the goroutine is resumed, perhaps on another M.
    #[inline(always)]
    pub(crate) fn suspend(self, why: Switch) {
        let g = self.g;
        let hold = panic_is_the_threads(g);
        if hold {
            bound::lock(&self);
        }
        std::mem::forget(self);
        // SAFETY: the caller is this goroutine, and in the runtime.
        unsafe {
            debug_assert_eq!(g.runtime_depth(), 1);
            g.coro().suspend(why as usize);
            if hold {
                bound::unlock(g);
            }
        }
        g.leave_runtime();
    }

    /// Stays in the runtime without this proof, for callers that carry one word only.
    #[inline]
    pub(crate) fn leak(self) -> &'static G {
        ManuallyDrop::new(self).g
    }

    /// Makes the proof again.
    ///
    /// # Safety
    /// The caller is a goroutine in the runtime, with a P, whose proof was [leaked](Self::leak) or not yet made. There
    /// is one proof for each time that it entered.
    #[inline]
    pub(crate) unsafe fn retrieve(g: &'static G) -> Running {
        // SAFETY: the M that runs this goroutine. It has been in the runtime since, so its P is its own, even if the
        // monitor has just contested it: then it is put back.
        let p = unsafe { &*g.m.load(Relaxed) }.p().expect("in the runtime with a P");
        Running { g, p }
    }

    /// Suspends if the time slice is over.
    #[cold]
    fn yield_if_outermost(&self) {
        if self.g.runtime_depth() == 1 && self.p().take_request() {
            self.g.needs_no_p.store(true, Relaxed);
            Running { g: self.g, p: self.p }.suspend(Switch::Preempted);
            self.g.needs_no_p.store(false, Relaxed);
            self.g.enter_runtime();
        }
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        if self.p().flags.load(Relaxed) & PREEMPT != 0 {
            self.yield_if_outermost();
        }
        self.g.leave_runtime();
    }
}

/// The caller, inside the runtime if it is a goroutine. One word, because it is passed around on the fast path.
pub(crate) struct Entered(Option<&'static G>);

impl Entered {
    #[inline]
    pub(crate) fn now() -> Entered {
        Entered(Running::enter().map(Running::leak))
    }

    /// Returns the calling goroutine; `None` on a plain thread.
    #[inline]
    pub(crate) fn g(&self) -> Option<&'static G> {
        self.0
    }

    /// Returns the same caller again: it stays inside until the first one is dropped.
    #[inline]
    pub(crate) fn again(&self) -> ManuallyDrop<Entered> {
        ManuallyDrop::new(Entered(self.0))
    }

    /// Calls `f` with the caller as the scheduler wants it; `None` on a plain thread.
    #[inline]
    pub(crate) fn with_running<R>(&self, f: impl FnOnce(Option<&Running>) -> R) -> R {
        // SAFETY: as in `into_running`, but not dropped.
        let running = self.0.map(|g| ManuallyDrop::new(unsafe { Running::retrieve(g) }));
        f(running.as_deref())
    }

    /// Wakes tasks, whose wakers are user code: outside of the runtime if this is its outermost call.
    #[cold]
    pub(crate) fn wake_tasks(&self, tasks: Vec<Waker>) {
        /// Goes back into the runtime, also after a panic: `Entered` will leave it.
        struct Reenter;
        impl Drop for Reenter {
            fn drop(&mut self) {
                Running::enter().map(Running::leak);
            }
        }
        let mut reenter = None;
        if let Some(g) = self.0
            && g.runtime_depth() == 1
        {
            // SAFETY: leaked in `now`, by this goroutine, and leaked again at the end. No caller keeps an old M or P.
            drop(unsafe { Running::retrieve(g) });
            reenter = Some(Reenter);
        }
        task::wake_all(tasks);
        drop(reenter);
    }

    /// Returns the caller as the scheduler wants it; `None` on a plain thread.
    #[inline]
    pub(crate) fn into_running(self) -> Option<Running> {
        let g = ManuallyDrop::new(self).0?;
        // SAFETY: leaked in `now`, by this goroutine; retrieved here or by `drop`.
        Some(unsafe { Running::retrieve(g) })
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above.
        drop(self.0.map(|g| unsafe { Running::retrieve(g) }));
    }
}

/// A goroutine, thread or task that waits for one wake-up.
pub(crate) enum Waiter {
    G(GPtr),
    Thread {
        thread: Thread,
        woken: AtomicBool,
    },
    /// A thread that polls a descriptor.
    Polling(Polling),
    /// A task of an executor, which does not [`wait`](Waiter::wait) but is polled. It lies in its future, or in a box
    /// that belongs to the thread that may wake it; under the lock that guards it, or its owner's.
    Task(TaskSlot),
}

/// Number of plain threads that sleep in a [`Waiter`] and were not woken yet: they will wake no goroutine. The waker
/// counts down, so that a thread on its way back is never taken for a sleeper.
pub(crate) static SLEEPING_THREADS: AtomicI32 = AtomicI32::new(0);

impl Waiter {
    /// Makes a waiter for the caller.
    pub(crate) fn current() -> Waiter {
        match current::g() {
            Some(g) => Waiter::G(g.into()),
            None => Waiter::Thread { thread: std::thread::current(), woken: AtomicBool::new(false) },
        }
    }

    /// Returns how urgent it is; a plain thread counts as a goroutine without a priority.
    pub(crate) fn urgency(&self) -> u8 {
        match self {
            Waiter::G(g) => g.policy.priority().level(),
            _ => Priority::NORMAL.level(),
        }
    }

    /// Blocks until [`wake`](Self::wake). To be called by the thread or goroutine that made it, once per wake-up.
    pub(crate) fn wait(&self, awaited: Awaited) {
        match self {
            Waiter::G(_) => park_current(awaited),
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
    /// ever). Returns `false` if the time is over, and no waker will end this wait any more.
    ///
    /// Wakers take `claim` before they wake. After a `false` the waiter may still lie in a queue: the caller takes it
    /// out, under the lock under which wakers look at it.
    pub(crate) fn wait_until(&self, awaited: Awaited, deadline_ns: u64, claim: &Claim) -> bool {
        if deadline_ns == u64::MAX {
            self.wait(awaited);
            return true;
        }
        match self {
            Waiter::G(_) => {
                let running = Running::enter().expect("a goroutine");
                crate::sched::timers::wait_until(running, awaited, deadline_ns, claim)
            }
            Waiter::Thread { woken, .. } => {
                if !sleep_thread_until(woken, deadline_ns, claim) {
                    return false;
                }
                // The thread did not count as sleeping, since the clock would have woken it; this undoes the waker's
                // count.
                SLEEPING_THREADS.fetch_add(1, Relaxed);
                true
            }
            Waiter::Polling(polling) => polling.wait(deadline_ns, claim),
            Waiter::Task(_) => unreachable!("tasks are polled"),
        }
    }

    /// Takes the task's waker out.
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

    /// Does as [`wake`](Self::wake), for a caller that is in the runtime already, if it is a goroutine.
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

    /// Wakes a thread or a task. Apart from goroutines, so that their way has no jump table.
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

/// Blocks the thread until it is woken. Returns `false` if the time is over, and the claim ours.
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
pub(crate) fn park_current(awaited: Awaited) {
    park_running(Running::enter().expect("a goroutine"), awaited);
}

/// Parks like [`park_current`], for a caller that armed its wake-up inside the runtime. It must not leave the runtime
/// in between: it might lose its slice there, and a goroutine in a run queue cannot take the wake-up.
#[inline(always)]
pub(crate) fn park_running(running: Running, awaited: Awaited) {
    let g = running.g();
    if g.state.consume_notification() {
        return;
    }
    g.reason.store(awaited.reason as u8, Relaxed);
    g.waits_on.store(awaited.on, Relaxed);
    g.trimmed.store(false, Relaxed);
    g.slice_used.set(0);
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
            pick::ready(running.shared(), g, Why::Woken, running.p());
        }
        _ => ready_from_outside(g),
    }
}

/// Wakes the joiner of the goroutine that ends here.
pub(crate) fn ready_joiner(running: &Running, joiner: NonNull<Waiter>) {
    let shared = running.shared();
    // SAFETY: the caller took it from `G::join`; it waits until it is woken.
    match unsafe { joiner.as_ref() } {
        Waiter::G(g) if g.shared.get() == std::ptr::from_ref(shared) => {
            pick::ready(shared, *g, Why::Joined, running.p());
        }
        // SAFETY: a task's waiter is in a box, which went to us when the goroutine completed.
        Waiter::Task(_) => _ = unsafe { Box::from_raw(joiner.as_ptr()) }.take_waker().map(task::wake),
        // SAFETY: as above.
        _ => unsafe { Waiter::wake(joiner) },
    }
}

/// Makes a goroutine runnable, for a plain thread or a goroutine of another runtime.
#[cold]
fn ready_from_outside(g: GPtr) {
    if g.notify() == Wake::Enqueue {
        enqueue_at_home(g, Why::Outside);
    }
}

/// Makes a goroutine runnable that was woken while the caller held it: see [`G::hold`]. From anywhere.
#[cold]
pub(crate) fn ready_held(g: GPtr) {
    g.sample_wakeup();
    enqueue_at_home(g, Why::Outside);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A waker does not wait for a thread that looks at the goroutine and may have lost its CPU: that thread wakes the
    /// goroutine in its place.
    #[test]
    fn a_goroutine_that_is_woken_while_it_is_held_runs_afterwards() {
        let (tx, rx) = crate::chan::bounded::<u32>(0);
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = crate::go(move || {
            tell.send(current::g().map(|g| std::ptr::from_ref(g).addr())).expect("a listener");
            rx.recv()
        });
        // SAFETY: Gs are never freed.
        let g = unsafe { &*(told.recv().expect("a number").expect("a goroutine") as *const G) };
        let send = || {
            let (sent, is_sent) = std::sync::mpsc::channel();
            let tx = tx.clone();
            std::thread::spawn(move || sent.send(tx.send(7).is_ok()));
            (is_sent.recv_timeout(Duration::from_secs(30)), g.state.is_waiting(), g.state.is_alive())
        };
        while !g.state.is_waiting() {
            std::thread::yield_now();
        }
        assert_eq!(g.hold(send), Some((Ok(true), false, true)), "the waker waits for the one who looks");
        assert_eq!(waiter.join().expect("no panic"), Ok(7));
    }

    /// A P that the monitor contests at each point of the way in, and never takes, stays the goroutine's.
    #[test]
    fn a_contested_p_is_found_again() {
        const ENTRIES: usize = 300_000;
        crate::Runtime::builder().procs(1).build().expect("a runtime").run(|| {
            let home = Running::enter().expect("a goroutine");
            // SAFETY: Ms live as long as the runtime, which outlives the thread below.
            let m: &'static M = unsafe { &*std::ptr::from_ref(home.m()) };
            bound::lock(&home); // so that it stays there
            drop(home);
            let ended = Arc::new(AtomicBool::new(false));
            let contestant = std::thread::spawn({
                let ended = ended.clone();
                move || {
                    while !ended.load(Relaxed) {
                        blocking::contest_in_vain(m);
                    }
                }
            });
            for _ in 0..ENTRIES {
                let running = Running::enter().expect("a goroutine");
                assert_eq!(running.p().id, 0);
            }
            ended.store(true, Relaxed);
            contestant.join().expect("the contestant");
            bound::unlock(current::g().expect("a goroutine"));
        });
    }
}
