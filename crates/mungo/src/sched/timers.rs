//! Timers: a heap of them on each P, and what goes off when they are due.
//!
//! Each P has a heap of timers (`heap.rs`), which its M runs between two goroutines, and any M that has nothing else
//! to do. An M that goes to sleep does so until the first timer of all heaps is due. All times are those of the
//! monotonic clock; nothing wakes early.
//!
//! An entry of a heap is a sleeping goroutine, a wait that a waker may end first (a claim decides), or an alarm
//! (`alarm.rs`): a function that is called, behind `Timer`, `Ticker` and the deadlines of a
//! `Context`. The timers of a P that goes away move to another P, the alarms of a runtime
//! that ends to the default runtime.

pub(crate) mod alarm;
pub(crate) mod heap;
pub(crate) mod sleep;

use crate::policies::order::TIMERS_CROWD;
use crate::protocols::claim::{Claim, TIMED_OUT};
use crate::protocols::wake::Wake;
use crate::sched::pick::{From, Why, enqueue};
use crate::sched::run::current::Running;
use crate::sched::run::g::{Awaited, G, WaitReason};
use crate::sched::run::p::P;
use crate::sched::run::park;
use crate::sched::shared::Shared;
use crate::sched::traced;
use crate::sys::clock;
use heap::{Action, Due, Node, TimerHeap};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Puts the calling goroutine to sleep until `deadline_ns`.
pub(crate) fn sleep_entered(running: Running, deadline_ns: u64) {
    // Nothing else wakes this park.
    let first = running.p().timers.add_sleeper(deadline_ns, running.g().into());
    announce(running.shared(), first, deadline_ns);
    park::park_running(running, WaitReason::Sleep.on(deadline_ns as usize & !Awaited::TIMED).timed());
}

/// Waits for `unpark`, at the most until `deadline_ns`. The token is `TOKEN_PARKED`.
pub(crate) fn park_until(g: &'static G, deadline_ns: u64) {
    let Some(running) = Running::enter() else { return };
    let node = Node::new(deadline_ns, Action::UnlessUnparked(g.into()));
    // SAFETY: cancelled below before the frame ends.
    unsafe { start(&running, &node) };
    park::park_running(running, WaitReason::Park.on(0).timed());
    node.cancel();
}

/// Parks the calling goroutine until a waker or the clock takes `claim`. Returns `false` if it was the clock.
pub(crate) fn wait_until(running: Running, awaited: Awaited, deadline_ns: u64, claim: &Claim) -> bool {
    let awaited = awaited.timed();
    if deadline_ns == clock::UNTIL_CLAIMED {
        park::park_running(running, awaited);
        return claim.winner() != Some(TIMED_OUT);
    }
    let node = Node::new(deadline_ns, Action::UnlessClaimed(running.g().into(), claim.into()));
    // SAFETY: cancelled below before the frame ends.
    unsafe { start(&running, &node) };
    park::park_running(running, awaited);
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

/// Wakes an M if a timer that was added is due before the Ms that sleep would wake up.
#[inline]
pub(crate) fn announce(shared: &Shared, first: bool, when_ns: u64) {
    // ORDERING: SeqCst: the caller published the heap's first time; the M that goes to sleep publishes until when, and
    // looks at the heaps again. One of the two sees the other.
    if first && shared.gets_up_ns(when_ns) < shared.sleep_until_ns.load(SeqCst) {
        // The woken M looks at the heaps before it sleeps. If no P is idle, the Ps look at their own.
        shared.wake_one();
    }
}

/// Returns whether it is the turn of the timers of `p`; for its owner.
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
    p.runq.len() >= TIMERS_CROWD
}

/// Runs what is due on `heap`, as far as the ring has room; by an M that owns `p`. The first goroutine goes next in
/// line: it has waited for its time, the others in the queue only for the P. The rest go to the back.
pub(crate) fn run_due(p: &P, shared: &Shared, heap: &TimerHeap) {
    let mut due = [Due::Nothing; TIMERS_CROWD];
    let room = TIMERS_CROWD.saturating_sub(p.runq.len()).max(1);
    let (now_ns, first_ns) = (clock::now_ns(), heap.next_ns());
    let n = heap.take_due(now_ns, &mut due[..room]);
    traced::timers_run(p, shared, n, now_ns.saturating_sub(first_ns));
    p.timer_tick.set(p.tick.load(Relaxed));
    let mut why = Why::FirstTimer;
    for due in due.into_iter().take(n) {
        match due {
            Due::Nothing => {}
            // SAFETY: taken from the heap, so its count of ownership is ours to pass on.
            Due::Call(call) => unsafe { (call.run)(call.data, shared, heap) },
            Due::Wake(g) => {
                if g.notify() == Wake::Enqueue {
                    enqueue(shared, g, std::mem::replace(&mut why, Why::Timer), From::Owner(p));
                    // SAFETY: it slept, so it has run.
                    unsafe { g.prefetch_stack() };
                }
            }
        }
    }
    // The caller takes one of them. For the rest one call is enough: an M that comes and finds work calls the next.
    if p.runq.len() > 1
        || shared.global_len() != 0
        || shared.policy.has_work()
        || heap.next_ns() <= clock::now_ns()
    {
        shared.wake_one();
    }
}
