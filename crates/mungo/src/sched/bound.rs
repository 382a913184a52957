//! A goroutine that is bound to its thread: `lock_os_thread`.
//!
//! The G stays on its M, and the P moves on. Whoever picks such a G from a queue hands its P to that
//! M and goes to sleep itself (Go's `startlockedm`). The M sleeps while its goroutine is parked or queued.

use super::find::Found;
use super::g::{GPtr, Switch};
use super::m::M;
use super::p::P;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// A bound goroutine was dequeued by `m`. If it is another M's, that one gets the P. `false`: `m` has no P now.
#[cold]
pub(crate) fn may_run(m: &'static M, g: GPtr) -> bool {
    let home = g.bound.load(Relaxed);
    if std::ptr::eq(home, m) {
        return true;
    }
    m.load_own_tls();
    let p = m.p().expect("a worker with a goroutine has a P");
    m.p.store(null_mut(), Relaxed);
    // SAFETY: an M that a goroutine is bound to waits for it and does not end.
    m.shared.hand_to(unsafe { &*home }, p, false);
    false
}

/// A bound goroutine came back to its M: publish it, give the P away, sleep until its turn.
/// Returns the same goroutine, or `None` when it ended.
#[cold]
pub(crate) fn came_back(m: &'static M, p: &P, g: GPtr, why: Option<Switch>) -> Option<Found> {
    m.load_own_tls();
    let shared = &m.shared;
    match why {
        None => {
            // It ends while bound, and takes its thread along: who knows what it did to it.
            m.doomed.set(true);
            g.bound.store(null_mut(), Relaxed);
            g.lock_depth.set(0);
            super::worker::bury(m, p, g);
            m.p.store(null_mut(), Relaxed);
            // SAFETY: Ps live as long as the runtime.
            shared.hand_off(unsafe { &*std::ptr::from_ref(p) });
            return None;
        }
        Some(Switch::Park) => {
            p.counters.parks.add(1);
            if !g.state.park() {
                g.state.make_runnable();
                return Some((g, true));
            }
        }
        Some(Switch::Yield | Switch::Hungry) => {
            p.counters.yields.add(1);
            g.state.make_runnable();
            // To the global queue, not to the ring: the P goes elsewhere.
            shared.push_global_one(g);
        }
    }
    m.p.store(null_mut(), Relaxed);
    // SAFETY: Ps live as long as the runtime.
    shared.hand_off(unsafe { &*std::ptr::from_ref(p) });
    m.sleep(None);
    // ORDERING: Acquire: the waker left the P.
    let p = m.next_p.swap(null_mut(), Acquire);
    debug_assert!(!p.is_null(), "only a P wakes a bound goroutine's M");
    m.p.store(p, Relaxed);
    Some((g, false))
}

/// Binds the calling goroutine to its M, or counts one more.
pub(crate) fn lock(running: &crate::current::Running) {
    let g = running.g();
    g.lock_depth.set(g.lock_depth.get() + 1);
    g.bound.store(std::ptr::from_ref(running.m()).cast_mut(), Relaxed);
}

/// Undoes one [`lock`].
pub(crate) fn unlock(g: &super::g::G) {
    g.lock_depth.set(g.lock_depth.get() - 1);
    if g.lock_depth.get() == 0 {
        g.bound.store(null_mut(), Relaxed);
    }
}
