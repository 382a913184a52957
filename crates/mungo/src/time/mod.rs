//! Time: sleeping, timers, and deadlines for work.
//!
//! ```
//! use mungo::chan::{bounded, select};
//! use mungo::time::{Ticker, Timer};
//! use std::time::Duration;
//!
//! let (_tx, rx) = bounded::<u32>(0);
//! let patience = Timer::new(Duration::from_millis(20));
//! let beat = Ticker::new(Duration::from_millis(1));
//! let mut beats = 0;
//! loop {
//!     select! {
//!         recv(rx) -> _ => unreachable!("nobody sends"),
//!         recv(beat.c()) -> _ => beats += 1,
//!         recv(patience.c()) -> _ => break,
//!     }
//! }
//! assert!(beats > 0);
//! ```
//!
//! # How it is built
//!
//! Each P has a heap of timers (`heap.rs`), which its M runs between two goroutines, and any M that has nothing else
//! to do. An M that goes to sleep does so until the first timer of all heaps is due. All times are those of the
//! monotonic clock; nothing wakes early.
//!
//! An entry of a heap is a sleeping goroutine, a wait that somebody else may end first (a claim decides), or an
//! alarm (`alarm.rs`): a function that is called, behind [`Timer`], [`Ticker`] and the deadlines of a
//! [`Context`](crate::context::Context). The timers of a P that goes away move to another P, the alarms of a runtime
//! that ends to the default runtime.

pub(crate) mod alarm;
pub(crate) mod heap;
mod sleep;
mod ticker;
mod timeout;
mod timer;

pub use sleep::{Sleep, sleep_async, sleep_until_async};
pub use ticker::Ticker;
pub use timeout::{Elapsed, timeout};
pub use timer::Timer;

use crate::current::Running;
use crate::policy::{Cause, hooks};
use crate::sched::claim::{Claim, TIMED_OUT};
use crate::sched::g::{G, WaitReason};
use crate::sched::p::P;
use crate::sched::park;
use crate::sched::runq;
use crate::sched::shared::Shared;
use crate::sched::wake::Wake;
use crate::sys::clock;
use heap::{Action, Due, Node, TimerHeap};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Puts the calling goroutine to sleep for at least `d`; its P runs others meanwhile.
///
/// On a plain thread this is [`std::thread::sleep`].
///
/// ```
/// use std::time::{Duration, Instant};
///
/// mungo::go(|| {
///     let t = Instant::now();
///     mungo::sleep(Duration::from_millis(5));
///     assert!(t.elapsed() >= Duration::from_millis(5));
/// })
/// .join()
/// .unwrap();
/// ```
pub fn sleep(d: Duration) {
    let Some(running) = Running::enter() else { return std::thread::sleep(d) };
    if d.is_zero() {
        drop(running);
        return crate::yield_now();
    }
    sleep_entered(running, clock::after_ns(d));
}

/// Sleeps until `deadline`, and not at all if that has passed.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(3);
/// mungo::time::sleep_until(deadline);
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until(deadline: Instant) {
    match Running::enter() {
        Some(running) if deadline > Instant::now() => sleep_entered(running, clock::at_ns(deadline)),
        Some(_) => {}
        None => std::thread::sleep(deadline.saturating_duration_since(Instant::now())),
    }
}

/// The calling goroutine sleeps until `deadline_ns`.
fn sleep_entered(running: Running, deadline_ns: u64) {
    // Nobody else wakes this park.
    let first = running.p().timers.add_sleeper(deadline_ns, running.g().into());
    announce(running.shared(), first, deadline_ns);
    park::park_running(running, WaitReason::Sleep);
}

/// Waits for `unpark`, at the most until `deadline_ns`. The token is `TOKEN_PARKED`.
pub(crate) fn park_until(g: &'static G, deadline_ns: u64) {
    let Some(running) = Running::enter() else { return };
    let node = Node::new(deadline_ns, Action::UnlessUnparked(g.into()));
    // SAFETY: cancelled below before the frame ends.
    unsafe { start(&running, &node) };
    park::park_running(running, WaitReason::Park);
    node.cancel();
}

/// Parks the calling goroutine until a waker or the clock takes `claim`; `false`: it was the clock.
pub(crate) fn wait_until(running: Running, reason: WaitReason, deadline_ns: u64, claim: &Claim) -> bool {
    let node = Node::new(deadline_ns, Action::UnlessClaimed(running.g().into(), claim.into()));
    // SAFETY: cancelled below before the frame ends.
    unsafe { start(&running, &node) };
    park::park_running(running, reason);
    node.cancel();
    claim.winner() != Some(TIMED_OUT)
}

/// Starts a timer on the caller's P.
///
/// # Safety
/// The node does not move or end before it fired or was cancelled.
unsafe fn start(running: &Running, node: &Node) {
    // SAFETY: by the caller.
    let first = unsafe { running.p().timers.add(node) };
    announce(running.shared(), first.expect("a runtime with goroutines"), node.when_ns());
}

/// A timer was added: wakes who must know.
#[inline]
fn announce(shared: &Shared, first: bool, when_ns: u64) {
    // ORDERING: SeqCst: we published the heap's first time; the M that goes to sleep publishes until when, and looks
    // at the heaps again. One of the two sees the other.
    if first && when_ns < shared.sleep_until_ns.load(SeqCst) {
        // Whoever comes looks at the heaps before it sleeps. If no P is idle, the Ps look at their own.
        shared.wake_one();
    }
}

/// With so many goroutines in line, the ring is crowded: timers come in one by one.
const CROWDED: usize = runq::CAPACITY / 2;

/// Whether it is the turn of the timers of `p`; for its owner.
///
/// In a crowd that is so once a tick: a goroutine whose timer was due goes next in line without a tick, then comes
/// one of the ring, then a timer again. So neither starves the other, and a burst of timers does not flood the
/// global queue.
#[inline]
pub(crate) fn is_turn(p: &P) -> bool {
    let next_ns = p.timers.next_ns();
    next_ns != u64::MAX
        && (p.timer_tick.get() != p.tick.load(Relaxed) || !is_crowded(p))
        && next_ns <= clock::now_ns()
}

#[inline]
fn is_crowded(p: &P) -> bool {
    p.runq.len() >= CROWDED
}

/// Runs what is due on `heap`, as far as the ring has room; by an M that owns `p`. The first goroutine goes next in
/// line: it has waited for its time, the others in the queue only for the P. The rest go to the back.
pub(crate) fn run_due(p: &P, shared: &Shared, heap: &TimerHeap) {
    let mut due = [Due::Nothing; CROWDED];
    let room = CROWDED.saturating_sub(p.runq.len()).max(1);
    let n = heap.take_due(clock::now_ns(), &mut due[..room]);
    p.timer_tick.set(p.tick.load(Relaxed));
    let mut first = true;
    for due in due.into_iter().take(n) {
        match due {
            Due::Nothing => {}
            // SAFETY: taken from the heap, so its count of ownership is ours to pass on.
            Due::Call(call) => unsafe { (call.run)(call.data, shared, heap) },
            Due::Wake(g) => {
                if g.notify() == Wake::Enqueue {
                    if hooks::decides(p) {
                        hooks::queue(p, shared, g, Cause::Timer, std::mem::take(&mut first), true);
                        continue;
                    }
                    match std::mem::replace(&mut first, false) {
                        true => park::queue_next(p, shared, g),
                        false => park::queue_back(p, shared, g),
                    }
                    // SAFETY: it slept, so it has run.
                    unsafe { g.prefetch_stack() };
                }
            }
        }
    }
    // The caller takes one of them. For the rest one call is enough: who comes and finds work calls the next.
    if p.runq.len() > 1
        || shared.global_len() != 0
        || shared.policy.has_work()
        || heap.next_ns() <= clock::now_ns()
    {
        shared.wake_one();
    }
}
