//! The worker: an M's loop. Here, and nowhere else, goroutines are resumed.

use super::bound;
use super::find::{self, Found};
use super::g::{GPtr, Switch};
use super::m::M;
use super::p::P;
use super::park;
use super::shared::Shared;
use crate::current;
use crate::metrics::sample::UNTIMED;
use crate::policy::{Cause, Event, hooks};
use std::sync::atomic::Ordering::Relaxed;

/// The body of a worker thread. It holds the runtime until the end.
pub(crate) fn main(m: &'static M) {
    m.adopt_thread();
    find::accept(m);
    while let Some(mut found) = find::runnable(m) {
        let mut p = m.p().expect("a worker with a goroutine has a P");
        while let Some(next) = execute(m, &mut p, found) {
            found = next;
        }
        debug_assert!(m.g.load(Relaxed).is_null());
    }
}

/// Runs one goroutine until it comes back. Returns the next one if it is at hand, so that the M need not
/// come back to its own thread-locals in between.
///
/// `last_p` is the M's P, then and now.
fn execute(m: &'static M, last_p: &mut &'static P, (g, inherit): Found) -> Option<Found> {
    let shared: &Shared = m.shared();
    if !g.bound.load(Relaxed).is_null() && !bound::may_run(m, g) {
        return None;
    }
    let p = *last_p;
    if !inherit {
        p.next_tick();
    }
    let switch = p.counters.switches.next();
    if g.stamp.get() != UNTIMED {
        p.sampler.started(&g);
    }
    let timed_ns = if p.sampler.switches.is_turn(switch) { p.sampler.begin(switch, &g) } else { 0 };
    if !g.started() {
        start(m, p, g);
    }
    m.load_tls_of(&g);
    m.g.store(g.as_ptr(), Relaxed);
    if g.shares_tls() {
        current::set(&*g);
    }
    // SAFETY: this M owns the goroutine; its thread-locals are loaded.
    let why = unsafe { g.resume() };
    if g.shares_tls() {
        current::set(std::ptr::null());
    }
    m.g.store(std::ptr::null_mut(), Relaxed);
    if timed_ns != 0 {
        p.sampler.ended(timed_ns, &g, why);
    }
    // It may have changed while the goroutine ran, or be gone.
    if !g.bound.load(Relaxed).is_null() {
        let next = bound::came_back(m, g, why)?;
        *last_p = m.p().expect("a bound goroutine waited for its P");
        return Some(next);
    }
    let Some(p) = m.p() else { return without_p(m, g) };
    *last_p = p;
    match why {
        Switch::Yield => yielded(m, p, shared, g),
        Switch::Park => parked(m, p, shared, g),
        Switch::Hungry => {
            m.load_own_tls();
            p.counters.preemptions.add(1);
            p.take_request();
            // SAFETY: this M owns the P.
            unsafe { p.end_slice(shared) };
            match hooks::decides(p) {
                true => hooks::requeue(m, p, shared, g, Cause::Preempted),
                false => shared.push_global_one(g),
            }
            shared.wake_one();
            None
        }
        Switch::WithoutP => unreachable!("it has a P"),
        Switch::End => ended(m, p, shared, g),
    }
}

/// The goroutine was blocked, lost the P and found no other: it queues up, and the M has nothing to do.
#[cold]
fn without_p(m: &M, g: GPtr) -> Option<Found> {
    m.load_own_tls();
    hooks::note_cause(m.shared(), &g, Cause::Woken);
    m.shared().push_global_one(g);
    m.shared().wake_one();
    None
}

/// The first run: a stack.
#[inline]
fn start(m: &M, p: &P, g: GPtr) {
    let class = g.class.get();
    // SAFETY: this M owns the P.
    let slots = unsafe { &mut p.core().slots };
    let slot = if class == slots.class() {
        slots.take()
    } else {
        m.load_own_tls();
        class.take()
    };
    g.start_on(slot);
}

/// Moves to the thread-locals of the next goroutine, or back to the M's own: from here on the one that
/// came back may be published.
#[inline]
fn leave_tls(m: &M, next: &Option<Found>) {
    match next {
        // One that has not started yet has none; one that is bound to a thread sits on it there.
        Some((g, _)) if g.started() && g.bound.load(Relaxed).is_null() => m.load_tls_of(g),
        _ => m.load_own_tls(),
    }
}

#[inline]
fn yielded(m: &'static M, p: &P, shared: &Shared, g: GPtr) -> Option<Found> {
    p.counters.yields.add(1);
    let next = find::next_local(p, shared);
    if next.is_none()
        && p.flags.load(Relaxed) == 0
        && shared.global_len() == 0
        && p.timers.next_ns() == u64::MAX
    {
        return Some((g, false)); // alone
    }
    leave_tls(m, &next);
    if hooks::decides(p) {
        hooks::requeue(m, p, shared, g, Cause::Yielded);
        shared.wake_one();
        return next;
    }
    // No fence: if a sleeper is missed now, the next yield sees it.
    if !p.runq.push_back_quietly(g.as_ptr()) {
        park::queue_back(p, shared, g);
    }
    if shared.counts.idle_ps() != 0 {
        shared.wake_one();
    }
    next
}

#[inline]
fn parked(m: &'static M, p: &P, shared: &Shared, g: GPtr) -> Option<Found> {
    p.counters.parks.add(1);
    let next = find::next_local(p, shared);
    leave_tls(m, &next);
    if hooks::decides(p) {
        // Before anybody else may have it.
        hooks::stopped(m, p, shared, g, Event::Parked(g.wait_reason()));
        if !g.state.park() {
            hooks::queue(p, shared, g, Cause::Woken, true, true);
        }
        return next;
    }
    if !g.state.park() {
        // Woken before it was off its stack.
        match next {
            None => return Some((g, true)),
            Some(_) => park::queue_next(p, shared, g),
        }
    }
    next
}

fn ended(m: &'static M, p: &P, shared: &Shared, g: GPtr) -> Option<Found> {
    if hooks::decides(p) {
        m.load_own_tls();
        hooks::stopped(m, p, shared, g, Event::Ended);
    }
    bury(m, p, g);
    let next = find::next_local(p, shared);
    // A fresh goroutine takes the slot that was just given back: the M can stay on its thread-locals, which
    // are nobody's now.
    if !next.as_ref().is_some_and(|(g, _)| !g.started() && g.bound.load(Relaxed).is_null()) {
        leave_tls(m, &next);
    }
    next
}

/// Takes an ended goroutine apart: its stack and the G go back to their pools.
pub(super) fn bury(m: &M, p: &P, g: GPtr) {
    let slot = g.finish();
    let class = g.class.get();
    if current::own_tls() {
        // In one piece: a signal handler that hits the reset must not find half of a pointer.
        current::set(std::ptr::null());
        // SAFETY: its destructors have run; this thread is perhaps still on the block, and touches no
        // thread-local before it leaves it or the next goroutine starts on it.
        unsafe { slot.reset_tls() };
    }
    // SAFETY: this M owns the P.
    let core = unsafe { p.core() };
    if class == core.slots.class() {
        core.slots.give(slot);
        core.slots.unreserve();
    } else {
        m.load_own_tls();
        class.give(slot);
        class.unreserve(1);
    }
    hooks::end(m.shared(), &g);
    g.state.make_dead();
    core.release_g(g);
    p.counters.finished.add(1);
    m.shared().goroutine_ended();
}
