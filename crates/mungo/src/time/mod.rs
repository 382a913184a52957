//! Time: sleeping, and the timers behind it.

pub(crate) mod heap;

use crate::current::Running;
use crate::sched::claim::{Claim, TIMED_OUT};
use crate::sched::g::{G, GPtr, WaitReason};
use crate::sched::p::P;
use crate::sched::park;
use crate::sched::shared::Shared;
use crate::sys::clock;
use heap::{Node, TimerHeap};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

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
    let node = Node::new(clock::after_ns(d), heap::Action::Wake, running.g());
    // SAFETY: the node stays on this frame until it fired: nobody else wakes this park.
    unsafe { add(running.shared(), &running.p().timers, &node) };
    park::park_running(running, WaitReason::Sleep);
}

/// Waits for `unpark`, at the most until `deadline_ns`. The token is `TOKEN_PARKED`.
pub(crate) fn park_until(g: &'static G, deadline_ns: u64) {
    let Some(running) = Running::enter() else { return };
    let node = Node::new(deadline_ns, heap::Action::UnlessUnparked, g);
    // SAFETY: cancelled below before the frame ends.
    unsafe { add(running.shared(), &running.p().timers, &node) };
    park::park_running(running, WaitReason::Park);
    // In the runtime, because it takes a lock that workers take too.
    let _running = Running::enter();
    node.cancel();
}

/// Parks the calling goroutine until a waker or the clock takes `claim`; `false`: it was the clock.
pub(crate) fn wait_until(running: Running, reason: WaitReason, deadline_ns: u64, claim: &Claim) -> bool {
    let node = Node::new(deadline_ns, heap::Action::UnlessClaimed(claim.into()), running.g());
    // SAFETY: cancelled below before the frame ends.
    unsafe { add(running.shared(), &running.p().timers, &node) };
    park::park_running(running, reason);
    node.cancel();
    claim.winner() != Some(TIMED_OUT)
}

/// Starts a timer on a P's heap, and wakes who must know.
///
/// # Safety
/// The node does not move or end before it fired or was cancelled.
unsafe fn add(shared: &Shared, heap: &TimerHeap, node: &Node) {
    // SAFETY: by the caller.
    let first = unsafe { heap.add(node) };
    // ORDERING: SeqCst: we published the heap's first time; the M that goes to sleep publishes until when, and looks
    // at the heaps again. One of the two sees the other.
    if first && node.when_ns() < shared.sleep_until_ns.load(SeqCst) {
        // Whoever comes looks at the heaps before it sleeps. If no P is idle, the Ps look at their own.
        shared.wake_one();
    }
}

/// Runs what is due on `heap`; by an M that owns `p`. The first goroutine goes next in line: it has waited for its time,
/// the others in the queue only for the P. The rest go to the back, so that a burst of timers starves nobody.
pub(crate) fn run_due(p: &P, shared: &Shared, heap: &TimerHeap, now_ns: u64) {
    let mut first = true;
    while heap.next_ns() <= now_ns {
        let mut due: [Option<GPtr>; 32] = [None; 32];
        let n = heap.take_due(now_ns, &mut due);
        for g in due.into_iter().take(n).flatten() {
            park::ready_on(p, shared, g, first);
            first = false;
        }
        if n == 0 {
            break;
        }
    }
}
