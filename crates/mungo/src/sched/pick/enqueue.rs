//! The door in: every goroutine that becomes runnable comes through here.

use super::global::GList;
use crate::policies::Cause;
use crate::policies::order::JOINER_WAITS;
use crate::protocols::runq::Full;
use crate::sched::engine::hooks;
use crate::sched::run::g::{G, GPtr};
use crate::sched::run::m::M;
use crate::sched::run::p::P;
use crate::sched::shared::Shared;
use crate::sched::traced;

/// The reason why a goroutine is queued. The built-in order knows a little more than a policy is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Spawned,
    /// A channel, a lock or `unpark` woke it.
    Woken,
    /// The goroutine that it waited for has ended.
    Joined,
    /// A timer woke it, the first of those that were due at one look.
    FirstTimer,
    Timer,
    Network,
    /// A plain thread woke it, or a goroutine of another runtime.
    Outside,
    /// It blocked its thread, and lost its P meanwhile.
    Unblocked,
    Yielded,
    Preempted,
}

impl Why {
    pub(crate) fn cause(self) -> Cause {
        match self {
            Why::Spawned => Cause::Spawned,
            Why::Woken | Why::Joined => Cause::Woken,
            Why::FirstTimer | Why::Timer => Cause::Timer,
            Why::Network => Cause::Network,
            Why::Outside => Cause::Outside,
            Why::Unblocked => Cause::Unblocked,
            Why::Yielded => Cause::Yielded,
            Why::Preempted => Cause::Preempted,
        }
    }

    /// Returns whether it goes next in line on `p`, rather than to the back of the ring.
    #[inline(always)]
    pub(crate) fn goes_next(self, p: &P) -> bool {
        match self {
            Why::Spawned | Why::Woken | Why::FirstTimer => true,
            Why::Joined => p.runq.len() <= JOINER_WAITS,
            _ => false,
        }
    }
}

/// The thread that queues it.
#[derive(Clone, Copy)]
pub(crate) enum From<'a> {
    /// The owner of this P.
    Owner(&'a P),
    /// The M that it ran on until now, which owns the P and is on its own thread-locals.
    Ran(&'a M, &'a P),
    /// As `Ran`, for a goroutine that stays on its thread: its P goes elsewhere, so it waits where all Ps look.
    Bound(&'a P),
    /// A plain thread, the monitor, its helper, or an M without a P.
    Elsewhere,
}

/// Queues a runnable goroutine that the caller owns. The caller then wakes an M, should a P be idle
/// ([`Shared::wake_one`]); except after [`Why::Yielded`] the goroutine is visible to an M that looks for the last time.
///
/// It is inline, because most callers know both reasons, and then one push is left.
#[inline(always)]
pub(crate) fn enqueue(shared: &Shared, g: GPtr, why: Why, from: From<'_>) {
    traced::ready(shared, &g, why, from);
    match from {
        From::Owner(p) if hooks::decides(p) => {
            hooks::queue(p, shared, g, why.cause(), why.goes_next(p), true);
        }
        From::Owner(p) => push(p, shared, g, why.goes_next(p)),
        From::Ran(m, p) if hooks::decides(p) => hooks::requeue(m, p, shared, g, why.cause()),
        From::Ran(_, p) if why == Why::Yielded => {
            // There is no fence: a sleeper that is missed now is seen by the next yield, or when the slice ends.
            if !p.runq.push_back_quietly(g.as_ptr()) {
                push(p, shared, g, false);
            }
        }
        From::Ran(_, p) => push_preempted(p, shared, g),
        From::Bound(p) => {
            hooks::note_cause(shared, &g, why.cause());
            match why {
                Why::Preempted => push_preempted(p, shared, g),
                _ => shared.push_global_one(g),
            }
        }
        From::Elsewhere => {
            hooks::note_cause(shared, &g, why.cause());
            match why {
                Why::Preempted => shared.push_computing(g, false),
                _ => shared.push_global_one(g),
            }
        }
    }
}

/// Queues goroutines that became runnable at the same moment, in their order.
///
/// Goroutines that the network woke go to the ring only if no fresh goroutine waits there or in the global queue, else
/// to the global queue, for whichever P is free first. TUNED: in the ring of one P some waited behind all that computed
/// there: 36 instead of 9 ms in one of a hundred, with 13 connections that ask a web server for computations and 51
/// that do not.
pub(crate) fn enqueue_all(shared: &Shared, mut gs: GList, why: Why, from: From<'_>) {
    match from {
        From::Owner(p) if why != Why::Network || p.runq.is_empty() && !shared.has_fresh() => {
            while let Some(g) = gs.pop() {
                enqueue(shared, g, why, from);
            }
        }
        _ if gs.len() != 0 => {
            gs.each(|g| {
                hooks::note_cause(shared, g, why.cause());
                traced::ready(shared, g, why, From::Elsewhere);
            });
            shared.push_global(gs);
        }
        _ => {}
    }
}

/// Queues a goroutine in its own runtime, which may end as soon as that has happened.
#[cold]
pub(crate) fn enqueue_at_home(g: GPtr, why: Why) {
    // SAFETY: until it is queued the goroutine lives, and its runtime with it: the workers hold a count.
    let shared = unsafe { &*g.shared.get() }.to_arc();
    enqueue(&shared, g, why, From::Elsewhere);
    shared.wake_one();
    if why == Why::Outside {
        shared.monitor.notice_inbox(&shared);
    }
}

/// Puts a goroutine into the ring of a P that the caller owns, or next in line. Also for policies' leftovers.
#[inline]
pub(crate) fn push(p: &P, shared: &Shared, g: GPtr, next: bool) {
    let pushed = if next { p.runq.push_next(g.as_ptr()) } else { p.runq.push_back(g.as_ptr()) };
    if let Err(full) = pushed {
        spill(p, shared, full);
    }
}

/// Moves half of the P's ring, which is full, to the global queue.
#[cold]
#[inline(never)]
pub(crate) fn spill(p: &P, shared: &Shared, full: Full<G>) {
    p.counters.overflows.add(1);
    let mut list = GList::new();
    p.runq.spill(full, |g| list.push(GPtr::new(g).expect("queues hold no null")));
    shared.push_global(list);
}

/// Queues the goroutine that made room on `p`. If it shared its slice, `runnext`, which would inherit it, queues up
/// too: a pair that wakes each other, or one that respawns itself, would keep the P for ever.
fn push_preempted(p: &P, shared: &Shared, g: GPtr) {
    match p.asked_after_ns() {
        0 => {
            // SAFETY: the caller owns the P.
            unsafe { p.end_shared_slice(shared) };
            shared.push_global_one(g);
        }
        used_ns => {
            let first = g.charge_slice(used_ns, shared.config.time_slice_ns);
            shared.push_computing(g, first);
        }
    }
}
