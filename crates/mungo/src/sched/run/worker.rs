//! The worker: an M's loop, and on the other side of the switch a goroutine's first and last frames.
//!
//! Goroutines are resumed here, and nowhere else.

use super::m::M;
use super::p::P;
use crate::policies::Event;
use crate::sched::engine::hooks;
use crate::sched::pick::{self, Found, From, Why, enqueue};
use crate::sched::run::current::{self, Running};
use crate::sched::run::g::{Completed, DETACHED, G, GPtr, Switch};
use crate::sched::run::park;
use crate::sched::run::sample::UNTIMED;
use crate::sched::shared::Shared;
use crate::sched::sysmon::monitor;
use crate::sched::threads::{bound, sleep};
use crate::sched::traced;
use crate::stack::tls;
use crate::sys::say::say;
use mungo_trace::Queue;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Runs the loop of a worker thread, which may find a P that was left for it. It holds the runtime until the end.
pub(crate) fn main(m: &'static M) {
    sleep::accept(m);
    while let Some(mut found) = sleep::runnable(m) {
        let mut p = m.p().expect("a worker with a goroutine has a P");
        while let Some(next) = execute(m, &mut p, found) {
            found = next;
        }
        debug_assert!(m.g.load(Relaxed).is_null());
    }
    monitor::pass_watch_on(m.shared());
}

/// Runs one goroutine until it comes back. Returns the next one if it is at hand, so that the M need not
/// come back to its own thread-locals in between.
///
/// `last_p` is the M's P, before and after.
///
/// TUNED: in line in the loop of `main`, and so is what it calls: 3 to 5 ns a switch. `run_without_p` has a copy.
#[inline(always)]
fn execute(m: &'static M, last_p: &mut &'static P, (g, inherit): Found) -> Option<Found> {
    let shared: &Shared = m.shared();
    if !g.bound.load(Relaxed).is_null() && !bound::may_run(m, g) {
        return None;
    }
    if !g.started() && shared.near_cap.load(Relaxed) {
        m.load_own_tls();
        if !shared.may_begin(g) {
            return None;
        }
    }
    let p = *last_p;
    if !inherit {
        p.next_tick();
    }
    let number = p.counters.switches.next();
    traced::start(m, Some(p), &g, inherit);
    if g.stamp.load(Relaxed) != UNTIMED {
        p.sampler.started(&g);
    }
    let timed_ns = if p.sampler.switches.is_turn(number) { p.sampler.begin(number, &g) } else { 0 };
    if !g.started() {
        start(m, p, g);
    }
    let switch = resume(m, g);
    if timed_ns != 0
        && let Some(p) = m.p()
    {
        p.sampler.ended(timed_ns, &g, switch); // perhaps another one than before
    }
    came_off(m, last_p, g, switch)
}

/// Moves to the thread-locals of a goroutine that this M owns, and runs it until it comes back.
#[inline(always)]
fn resume(m: &'static M, g: GPtr) -> Switch {
    m.load_tls_of(&g);
    m.g.store(g.as_ptr(), Relaxed);
    if g.shares_tls() {
        current::set(&*g);
    }
    // SAFETY: this M owns the goroutine, by the callers; its thread-locals are loaded.
    let switch = unsafe { g.resume() };
    if g.shares_tls() {
        current::set(std::ptr::null());
    }
    m.g.store(std::ptr::null_mut(), Relaxed);
    switch
}

/// Serves a goroutine that came off its stack. Returns the next one if it is at hand.
#[inline(always)]
fn came_off(m: &'static M, last_p: &mut &'static P, g: GPtr, switch: Switch) -> Option<Found> {
    let shared: &Shared = m.shared();
    // The M's P may have changed while the goroutine ran, or be gone.
    if !g.bound.load(Relaxed).is_null() {
        let next = bound::came_back(m, g, switch)?;
        *last_p = m.p().expect("a bound goroutine waited for its P");
        return Some(next);
    }
    let Some(p) = m.p() else { return without_p(m, g, switch) };
    *last_p = p;
    match switch {
        Switch::Yield => yielded(m, p, shared, g),
        Switch::Park => parked(m, p, shared, g),
        Switch::Preempted => {
            m.load_own_tls();
            p.counters.preemptions.add(1);
            traced::preempted(m, p, &g, false);
            p.take_request();
            enqueue(shared, g, Why::Preempted, From::Ran(m, p));
            shared.wake_one();
            None
        }
        Switch::WithoutP => unreachable!("it has a P"),
        Switch::End => ended(m, p, shared, g),
    }
}

/// Runs a goroutine that waited in a queue, on an M without a P: it may hold a lock that Ms with a P wait for. It comes
/// back when it next calls the runtime. The M may have a P afterwards.
#[cold]
#[inline(never)]
pub(crate) fn run_without_p(m: &'static M, g: GPtr) {
    traced::goes_on(m, &g);
    let switch = resume(m, g); // it does not count on a P (`G::needs_no_p`)
    let Some(mut p) = m.p() else {
        without_p(m, g, switch);
        return;
    };
    let mut next = came_off(m, &mut p, g, switch);
    while let Some(found) = next {
        next = execute(m, &mut p, found);
    }
}

/// Queues a goroutine without a P, which was blocked, lost the P and found no other, or was interrupted while it
/// computed without one. The M has nothing to do afterwards.
#[cold]
fn without_p(m: &M, g: GPtr, switch: Switch) -> Option<Found> {
    m.load_own_tls();
    traced::blocked(m, &g, traced::At::Suspended);
    m.stray.store(false, Relaxed); // it has no goroutine any more
    let why = if switch == Switch::Preempted { Why::Preempted } else { Why::Unblocked };
    enqueue(m.shared(), g, why, From::Elsewhere);
    m.shared().wake_one();
    None
}

/// Gives a goroutine its stack, before its first run.
#[inline(always)]
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
#[inline(always)]
fn leave_tls(m: &M, next: &Option<Found>) {
    match next {
        // A goroutine that has not started yet has none; one that is bound to a thread sits on it there.
        Some((g, _)) if g.started() && g.bound.load(Relaxed).is_null() => m.load_tls_of(g),
        _ => m.load_own_tls(),
    }
}

#[inline(always)] // in two places, of which one is hot
fn yielded(m: &'static M, p: &'static P, shared: &Shared, g: GPtr) -> Option<Found> {
    p.counters.yields.add(1);
    traced::yielded(m, p, &g);
    let mut next = pick::next_local(p, shared);
    if next.is_none() && shared.computing_len() != 0 {
        next = pick::instead_of_yielding(m, p);
    }
    if next.is_none()
        && p.flags.load(Relaxed) == 0
        && shared.global_len() == 0
        && p.timers.next_ns() == u64::MAX
    {
        traced::found(p, &g, Queue::None);
        return Some((g, false)); // alone
    }
    leave_tls(m, &next);
    enqueue(shared, g, Why::Yielded, From::Ran(m, p));
    if shared.counts.idle_ps() != 0 || hooks::decides(p) {
        shared.wake_one();
    }
    next
}

#[inline(always)] // in two places, of which one is hot
fn parked(m: &'static M, p: &P, shared: &Shared, g: GPtr) -> Option<Found> {
    p.counters.parks.add(1);
    let next = pick::next_local(p, shared);
    traced::parked(m, p, &g, next);
    leave_tls(m, &next);
    if hooks::decides(p) {
        // The hook comes before another thread may have the goroutine.
        hooks::stopped(m, p, shared, g, Event::Parked(g.wait_reason()));
        if !g.state.park() {
            enqueue(shared, g, Why::Woken, From::Owner(p));
        }
        return next;
    }
    if !g.state.park() {
        // The goroutine was woken before it was off its stack.
        match next {
            None => {
                traced::found(p, &g, Queue::None);
                return Some((g, true));
            }
            Some(_) => traced::woken_before(m, p, || enqueue(shared, g, Why::Woken, From::Owner(p))),
        }
    }
    next
}

#[inline(always)] // as above
fn ended(m: &'static M, p: &P, shared: &Shared, g: GPtr) -> Option<Found> {
    if hooks::decides(p) {
        m.load_own_tls();
        hooks::stopped(m, p, shared, g, Event::Ended);
    }
    bury(m, p, g);
    let next = pick::next_local(p, shared);
    // A fresh goroutine takes the slot that was just given back: the M can stay on its thread-locals, which no
    // goroutine uses now.
    if !next.as_ref().is_some_and(|(g, _)| !g.started() && g.bound.load(Relaxed).is_null()) {
        leave_tls(m, &next);
    }
    next
}

/// Takes an ended goroutine apart: its stack and the G go back to their pools.
pub(crate) fn bury(m: &M, p: &P, g: GPtr) {
    traced::ended(m, p, &g);
    let slot = g.finish();
    #[cfg(mungo_asan)]
    slot.unpoison();
    let class = g.class.get();
    if current::own_tls() {
        // The pointer is cleared in one piece: a signal handler that hits the reset must not find half of it.
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
    p.counters.finished.add(1); // the last one is noticed when its M has nothing else to run: see `closing.rs`
}

// ---- the first and last frames of a goroutine ----

/// Runs the goroutine on its coroutine, from the first resume to the end. It does not return.
pub(super) extern "C" fn begin(g: usize) {
    // SAFETY: the G that `start_on` passed; it lives until its worker finishes it.
    let g = unsafe { &*(g as *const G) };
    current::set(g);
    g.leave_runtime(); // from here on it is in its own code
    if let Some(name) = g.name()
        && current::own_tls()
    {
        tls::set_thread_name(name);
    }
    // SAFETY: a runtime lives as long as its goroutines.
    if let Some(capture) = unsafe { &*g.shared.get() }.output_capture.get()
        && current::own_tls()
    {
        capture.begin(); // the threads of a runtime have it from the one that built it
    }
    // SAFETY: prepared together with its storage.
    unsafe { g.entry()(g) };
    end(g);
    // SAFETY: on its own stack; `end` stayed in the runtime.
    unsafe { g.suspend(Switch::End) };
    unreachable!("an ended goroutine was resumed");
}

/// Runs the closure, stores the result, and ends the goroutine's thread-locals.
///
/// # Safety
/// The storage of `g` holds an `F`.
pub(super) unsafe fn run<F, T>(g: &G)
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    // SAFETY: by the caller, twice: the closure out, the result in.
    unsafe {
        let f = g.take::<F>();
        let result = catch_unwind(AssertUnwindSafe(f));
        g.put::<std::thread::Result<T>>(result);
        g.set_drop_result(Some(drop_result::<T>));
        // No handle will ask for the result: it is dropped here, where it was made and while its thread-locals are
        // there.
        if g.join.load(Acquire) == DETACHED {
            g.discard_result();
        }
        if let Some(slot) = g.slot()
            && current::own_tls()
        {
            slot.run_tls_destructors();
        }
    }
}

/// Publishes the end. It is neither generic nor inlined into each goroutine's code.
fn end(g: &G) {
    let joiner = match g.complete() {
        Completed::Joiner(joiner) => Some(joiner),
        Completed::Quietly => None,
        Completed::Detached => {
            drop_late(g);
            None
        }
    };
    let running = Running::enter().expect("a goroutine");
    if let Some(joiner) = joiner {
        park::ready_joiner(&running, joiner);
    }
    // SAFETY: a scope waits until each of its goroutines has left it.
    if let Some(scope) = unsafe { g.scope.get().as_ref() } {
        scope.leave();
    }
    // The goroutine suspends for the last time inside the runtime: its worker goes on from there.
    std::mem::forget(running);
}

/// Drops a result that was left to us, because the handle was dropped at the last moment. Its drop may use
/// thread-locals, and those are gone: they begin anew, for the result alone.
#[cold]
fn drop_late(g: &G) {
    let slot = g.slot().filter(|_| current::own_tls());
    // SAFETY: still on this goroutine, at its end: no frame refers to a thread-local. No handle took the result, nor
    // can one any more.
    unsafe {
        if let Some(slot) = &slot {
            current::set(std::ptr::null()); // no goroutine for a while: a signal finds a plain thread
            slot.reset_tls();
            current::set(g);
        }
        g.discard_result();
        if let Some(slot) = &slot {
            slot.run_tls_destructors();
        }
    }
}

unsafe fn drop_result<T>(g: &G) {
    // SAFETY: `run` put it there and no handle took it.
    let result = unsafe { g.take::<std::thread::Result<T>>() };
    if let Err(payload) = &result {
        // SAFETY: a scope lives as long as its goroutines and the handles to them.
        match unsafe { g.scope.get().as_ref() } {
            Some(scope) => scope.note_panic(),
            None => report_detached_panic(g, payload.as_ref()),
        }
    }
    if catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
        say!("mungo: fatal: the result of goroutine {} panicked when it was dropped", describe(g));
        std::process::abort();
    }
}

/// Says which goroutine a panic was of, since no handle joins it. The panic hook has printed its message and place.
#[cold]
fn report_detached_panic(g: &G, payload: &(dyn Any + Send)) {
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("Box<dyn Any>");
    let who = describe(g);
    say!("mungo: goroutine {who} panicked and no handle joins it: {message}");
    // The runtime is the caller's, which is there: that of `g` may have ended before its handle was dropped.
    if let Some(running) = Running::enter() {
        _ = running.shared().detached_panic.set(format!("goroutine {who} panicked: {message}"));
    }
}

/// Returns a text like `7 'name' (spawned at src/main.rs:10:5)`.
pub(crate) fn describe(g: &G) -> String {
    let id = g.id.load(Relaxed);
    let place = g.place();
    match g.name() {
        Some(name) => format!("{id} '{name}' (spawned at {place})"),
        None => format!("{id} (spawned at {place})"),
    }
}
