//! One mechanism for a goroutine that stays on its thread.
//!
//! `lock_os_thread`, and a goroutine preempted by a signal: the G stays on its M, and the P moves on. Whoever later
//! picks such a G from a queue hands its P to that M and goes to sleep itself (Go's `startlockedm`). The M sleeps
//! while its goroutine is parked or queued; its [`Ticket`](super::ticket::Ticket) says for what.

use super::find::{self, Found};
use super::g::{G, GPtr, Switch};
use super::m::M;
use super::p::P;
use super::ticket::{Dequeued, Wait};
use crate::current::Running;
use crate::policy::{Cause, Event, hooks};
use crate::sys::this_cpu;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

/// A bound goroutine was dequeued by `m`, a worker with a P. `true`: run it here.
#[cold]
pub(crate) fn may_run(m: &'static M, g: GPtr) -> bool {
    let home = g.bound.load(Relaxed);
    if std::ptr::eq(home, m) {
        return true;
    }
    // SAFETY: an M that a goroutine is bound to does not end before it is unbound.
    let home = unsafe { &*home };
    if home.ticket.dequeued() == Dequeued::Void {
        return false;
    }
    m.load_own_tls();
    let p = m.p().expect("a worker with a goroutine has a P");
    hooks::handed_over(home, g);
    m.drop_p();
    m.shared().succeed(home, p);
    false
}

/// A bound goroutine came back to its M: publish it, give the P away, sleep until its turn.
/// Returns the same goroutine, or `None` when it ended.
#[cold]
pub(crate) fn came_back(m: &'static M, g: GPtr, why: Switch) -> Option<Found> {
    m.load_own_tls();
    let p = m.p().expect("a bound goroutine waits for its P before it switches");
    // The M will sleep for it; whoever wakes the goroutine queues it.
    let wait = m.ticket.wait();
    debug_assert_eq!(wait, Wait::Queue);
    match why {
        Switch::End => {
            _ = m.ticket.dequeued();
            if hooks::decides(p) {
                hooks::stopped(m, p, m.shared(), g, Event::Ended);
            }
            end(m, p, g);
            return None;
        }
        Switch::Park => {
            p.counters.parks.add(1);
            if hooks::decides(p) {
                hooks::stopped(m, p, m.shared(), g, Event::Parked(g.wait_reason()));
            }
            if !g.state.park() {
                _ = m.ticket.dequeued();
                return Some((g, true));
            }
        }
        _ => {
            p.counters.yields.add(1);
            hooks::note_cause(m.shared(), &g, Cause::Yielded);
            // To the global queue, not to the ring: the P goes elsewhere.
            m.shared().push_global_one(g);
        }
    }
    m.shared().waiting_locked.fetch_add(1, Relaxed);
    give_p_away(m, p);
    loop {
        m.sleep(None);
        if find::accept(m) {
            m.shared().waiting_locked.fetch_sub(1, Relaxed);
            return Some((g, false));
        }
        // The monitor meant to release a goroutine that slept here before, in the handler. Wait on; if the entry in the
        // queue was taken for void meanwhile, it needs another one.
        if m.ticket.wait() == Wait::Queue {
            m.shared().push_global_one(g);
            m.shared().wake_one();
        }
    }
}

/// It ends while bound, and takes its thread along: who knows what it did to it.
fn end(m: &'static M, p: &'static P, g: GPtr) {
    m.doomed.set(true);
    g.bound.store(null_mut(), Relaxed);
    g.lock_depth.set(0);
    super::worker::bury(m, p, g);
    give_p_away(m, p);
}

fn give_p_away(m: &M, p: &'static P) {
    m.drop_p();
    m.shared().hand_off(p);
}

/// An entry of this M's goroutine is in a queue still.
pub(crate) fn owes_ticket(m: &M) -> bool {
    m.ticket.is_owed()
}

/// An interrupted goroutine passes its P on, if it still has it, and waits for another one. In the preemption handler.
pub(crate) fn give_way(m: &M, g: &G) {
    let p = m.p();
    if let Some(p) = p {
        p.counters.preemptions.add(1);
        p.take_request();
        // SAFETY: this M owns the P. The goroutine was not in the runtime, so nobody is in the middle of using it.
        unsafe { p.end_slice(m.shared()) };
        m.drop_p();
    }
    queue_and_sleep(m, g, p);
}

/// A goroutine without a P queues up and sleeps with its thread. In the runtime. Returns `false` if the monitor let it
/// run without a P.
pub(crate) fn wait_for_p(m: &M, g: &G) -> bool {
    queue_and_sleep(m, g, None)
}

/// The same, and passes on the P that it had.
fn queue_and_sleep(m: &M, g: &G, p: Option<&'static P>) -> bool {
    g.bound.store(std::ptr::from_ref(m).cast_mut(), Relaxed);
    m.cpu.store(this_cpu(), Relaxed);
    let entry = (m.ticket.wait() == Wait::Queue).then_some(g.into());
    hooks::note_cause(m.shared(), g, Cause::Preempted);
    match (p, entry) {
        (Some(p), entry) => m.shared().pass_on(p, entry),
        (None, Some(g)) => {
            m.shared().push_global_one(g);
            m.shared().wake_one();
        }
        (None, None) => m.shared().wake_one(),
    }
    m.sleep(None);
    if !find::accept(m) {
        // The entry in the queue still leads to this M: the goroutine stays bound until that is resolved.
        m.stray.store(true, Relaxed);
        return false;
    }
    if let Some(p) = m.p() {
        p.mark_resumed();
    }
    unbind_unless_locked(g);
    true
}

/// No queue holds the goroutine, so it is bound only if it asked for it.
pub(crate) fn unbind_unless_locked(g: &G) {
    if g.lock_depth.get() == 0 {
        g.bound.store(null_mut(), Relaxed);
    }
}

/// Binds the calling goroutine to its M, or counts one more.
pub(crate) fn lock(running: &Running) {
    let g = running.g();
    g.lock_depth.set(g.lock_depth.get() + 1);
    g.bound.store(std::ptr::from_ref(running.m()).cast_mut(), Relaxed);
}

/// Undoes one [`lock`].
pub(crate) fn unlock(g: &G) {
    g.lock_depth.set(g.lock_depth.get() - 1);
    unbind_unless_locked(g);
}
