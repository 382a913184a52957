//! What the scheduler tells the tracer: one function for each kind of event. Goroutines, Ms and Ps become numbers here.
//!
//! With no trace each costs a load and a branch. The thread that calls is in the runtime, and writes into the lane of
//! its own M; a thread that is no M, or has no P to be found by, writes into the shared buffer.

use super::engine::hooks;
use super::engine::inherit::{Holder, Owner};
use super::pick::Found;
use super::pick::{From, Why};
use super::report::stacks;
#[cfg(mungo_stacks)]
use super::report::stacks::Registers;
use super::run::g::{G, GRef};
use super::run::m::M;
use super::run::p::P;
use super::shared::Shared;
use super::sysmon::monitor;
use crate::policies::Cause;
use crate::reason::{Awaited, WaitReason};
use crate::tracer::{self, Known, is_on};
use mungo_trace::format::{NO_P, Record, body, kind, stop};
use mungo_trace::{How, Queue};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

fn id(g: &G) -> u64 {
    g.id.load(Relaxed)
}

/// Returns the number of a stack that `walk` finds, if stacks are wanted.
#[inline(always)]
fn stack(walk: impl FnOnce() -> u32) -> Option<u32> {
    tracer::wants_stacks().then(walk)
}

/// Returns the number of the caller's stack, if stacks are wanted and the caller is the goroutine `g`.
#[inline(always)]
fn stack_here(g: Option<&G>) -> Option<u32> {
    #[cfg(mungo_stacks)]
    return g.and_then(|g| stack(|| stacks::of_caller(g, Registers::here())));
    #[cfg(not(mungo_stacks))]
    g.and(None)
}

/// Returns the goroutine that an M runs; 0: none.
fn running(m: &M) -> u64 {
    // SAFETY: Gs are never freed.
    unsafe { m.g.load(Relaxed).as_ref() }.map_or(0, id)
}

/// Returns the M that owns a P: the caller's.
fn owner(p: &P) -> Option<&M> {
    // SAFETY: Ms live as long as the runtime.
    unsafe { p.m.load(Relaxed).as_ref() }
}

fn number(p: Option<&P>) -> u16 {
    p.map_or(NO_P, |p| p.id as u16)
}

/// Puts an event into the lane of the M that owns `p`.
#[inline(always)]
fn put_by(p: &P, shared: &Shared, kind: u8, argument: u8, body: u64) {
    match owner(p) {
        Some(m) => m.lane.put(Record::new(0, kind, argument, p.id as u16, body), || running(m)),
        None => put_outside(shared, kind, argument, body),
    }
}

#[cold]
#[inline(never)]
fn put_outside(shared: &Shared, kind: u8, argument: u8, body: u64) {
    tracer::put_outside(shared.number, Record::new(0, kind, argument, NO_P, body), "");
}

// ---- a goroutine's life ----

/// A goroutine was made, by `parent` or by a thread that is no M.
#[inline(always)]
pub(crate) fn created(shared: &Shared, g: &G, parent: Option<&G>, place: &'static Location<'static>) {
    if is_on() {
        created_now(shared, g, parent, place);
    }
}

#[cold]
#[inline(never)]
fn created_now(shared: &Shared, g: &G, parent: Option<&G>, place: &'static Location<'static>) {
    let body = body(id(g), tracer::place_number(place));
    // SAFETY: the M that runs the parent, which is in the runtime.
    let m = parent.and_then(|parent| unsafe { parent.m.load(Relaxed).as_ref() });
    let named = |p| Record::new(0, kind::NAMED, 0, p, id(g));
    match m {
        Some(m) => {
            let p = number(m.p());
            let entry = Record::new(0, kind::CREATED, 0, p, body);
            m.lane.put_with(stack_here(parent), entry, || running(m));
            if let Some(name) = g.name() {
                m.lane.put_text(named(p), name, running(m));
            }
        }
        None => {
            put_outside(shared, kind::CREATED, 0, body);
            if let Some(name) = g.name() {
                tracer::put_outside(shared.number, named(NO_P), name);
            }
        }
    }
}

/// A goroutine is about to be queued: see `pick::enqueue`.
#[inline(always)]
pub(crate) fn ready(shared: &Shared, g: &G, why: Why, from: From<'_>) {
    if is_on() {
        match from {
            // The frequent way. Most callers know the cause, and with it what the record has of it.
            From::Owner(p) if why.goes_next(p) && !hooks::decides(p) => {
                ready_next(shared, g, p, why.cause() as u8 | Queue::Next.code() << 4);
            }
            _ => ready_now(shared, g, why, from),
        }
    }
}

/// A goroutine is about to be next in line.
#[cold]
#[inline(never)]
fn ready_next(shared: &Shared, g: &G, p: &P, argument: u8) {
    put_by(p, shared, kind::READY, argument, body(id(g), 0));
}

#[cold]
#[inline(never)]
fn ready_now(shared: &Shared, g: &G, why: Why, from: From<'_>) {
    let fresh = || (Queue::Global, shared.global_len().saturating_sub(shared.computing_len()));
    let computing = || (Queue::Computing, shared.computing_len());
    let preempted = |p: &P| if p.asked_after_ns() == 0 { fresh() } else { computing() };
    let (p, (queue, position)) = match from {
        From::Owner(p) | From::Ran(_, p) if hooks::decides(p) => {
            (Some(p), (Queue::Policy, shared.policy.queued.load(Relaxed)))
        }
        From::Owner(p) if why.goes_next(p) => (Some(p), (Queue::Next, 0)),
        From::Owner(p) => (Some(p), (Queue::Ring, p.runq.len())),
        From::Ran(_, p) if why != Why::Yielded => (Some(p), preempted(p)),
        From::Ran(_, p) => (Some(p), (Queue::Ring, p.runq.len())),
        From::Bound(p) if why == Why::Preempted => (Some(p), preempted(p)),
        From::Bound(p) => (Some(p), fresh()),
        From::Elsewhere if why == Why::Preempted => (None, computing()),
        From::Elsewhere => (None, fresh()),
    };
    put_ready(shared, g, p, why.cause(), queue, position);
}

/// A goroutine is about to be queued by a way of its own.
#[inline]
pub(crate) fn ready_in(shared: &Shared, g: &G, cause: Cause, queue: Queue, position: usize) {
    if is_on() {
        put_ready(shared, g, None, cause, queue, position);
    }
}

#[inline]
fn put_ready(shared: &Shared, g: &G, p: Option<&P>, cause: Cause, queue: Queue, position: usize) {
    let argument = cause as u8 | queue.code() << 4;
    let body = body(id(g), u16::try_from(position).unwrap_or(u16::MAX));
    match p {
        Some(p) => put_by(p, shared, kind::READY, argument, body),
        None => put_outside(shared, kind::READY, argument, body),
    }
}

/// The owner of `p` found a goroutine in a queue that is not its ring.
#[inline(always)]
pub(crate) fn found(p: &P, g: &G, queue: Queue) {
    if is_on()
        && let Some(m) = owner(p)
    {
        m.lane.note_found(id(g), queue.code());
    }
}

/// An M got a P for the goroutine that is bound to its thread.
#[inline(always)]
pub(crate) fn found_bound(m: &M, g: &G) {
    if is_on() {
        m.lane.look_around();
        m.lane.note_found(id(g), Queue::Bound.code());
    }
}

/// An M begins to run a goroutine, which it found `next` in line or elsewhere.
#[inline(always)]
pub(crate) fn start(m: &M, p: Option<&P>, g: &G, next: bool) {
    if is_on() {
        m.lane.start(id(g), || number(p), next);
    }
}

/// An M that has no goroutine at hand looks for one.
#[inline(always)]
pub(crate) fn looks_around(m: &M) {
    if is_on() {
        m.lane.look_around();
    }
}

/// A goroutine goes on, on the thread that it stayed on without a P.
#[inline(always)]
pub(crate) fn goes_on(m: &M, g: &G) {
    if is_on() {
        m.lane.look_around();
        m.lane.note_found(id(g), Queue::Thread.code());
        start(m, m.p(), g, false);
    }
}

#[cold]
#[inline(never)]
fn put_stop(m: &M, p: Option<&P>, g: &G, stack: Option<u32>, argument: u8, body: u64) {
    m.lane.stop(id(g), stack, Record::new(0, kind::STOP, argument, number(p), body));
}

/// A goroutine yielded.
#[inline(always)]
pub(crate) fn yielded(m: &M, p: &P, g: &G) {
    if is_on() {
        put_stop(m, Some(p), g, None, stop::YIELDED, 0);
    }
}

/// A goroutine waits, and the M will run `next` if it is there. Before a waker can see that.
#[inline(always)]
pub(crate) fn parked(m: &M, p: &P, g: &G, next: Option<Found>) {
    if is_on() {
        parked_now(m, p, g, next);
    }
}

#[cold]
#[inline(never)]
fn parked_now(m: &M, p: &P, g: &G, next: Option<Found>) {
    let stack = stack(|| stacks::of_suspended(g));
    let awaited = g.awaited();
    if is_lock(awaited.reason) {
        put_holder(m, p, g, awaited);
    }
    let body = body(object(awaited), awaited.reason as u16);
    let entry = Record::new(0, kind::STOP, stop::PARKED, p.id as u16, body);
    match next {
        // Others may be refused: see `worker::execute`.
        Some((next, inherits)) if next.started() && next.bound.load(Relaxed).is_null() => {
            m.lane.switch(id(g), stack, entry, id(&next), inherits);
        }
        _ => m.lane.stop(id(g), stack, entry),
    }
}

fn is_lock(reason: WaitReason) -> bool {
    use WaitReason::{Mutex, Once, RwLockRead, RwLockWrite};
    matches!(reason, Mutex | RwLockRead | RwLockWrite | Once)
}

/// Puts down which goroutine has the lock that `g` is about to park for, if it is known, and of the same runtime.
#[cold]
#[inline(never)]
fn put_holder(m: &M, p: &P, g: &G, awaited: Awaited) {
    // SAFETY: `g` borrows the lock until it runs again, and this M is about to park it.
    let (holder, _) = unsafe { &*(awaited.object() as *const Owner) }.holder();
    if let Holder::G(holder) = holder
        && holder.as_ptr().cast_const() != std::ptr::from_ref(g)
        && std::ptr::eq(holder.shared.get(), g.shared.get())
    {
        m.lane.put(Record::new(0, kind::HELD_BY, 0, p.id as u16, body(id(&holder), 0)), || id(g));
    }
}

/// Passes on that a goroutine which has just parked was woken before, while the M is about to run another one: that is
/// not its waker.
#[inline(always)]
pub(crate) fn woken_before(m: &M, p: &P, enqueue: impl FnOnce()) {
    match is_on() {
        true => m.lane.without_waker(p.id as u16, enqueue),
        false => enqueue(),
    }
}

/// Returns the number that the object of a goroutine's wait has in a trace, of 32 bits; 0: it is none, or several. Of
/// an address these are the bits from the fourth on: objects that are less than 32 GiB apart have different ones.
fn object(awaited: Awaited) -> u64 {
    let number = match (awaited.reason, awaited.object()) {
        (_, 0) => 0,
        (WaitReason::None | WaitReason::Sleep | WaitReason::Select, _) => 0,
        // SAFETY: Gs are never freed.
        (WaitReason::Join, g) => id(unsafe { &*(g as *const G) }),
        (_, on) => match awaited.descriptor() {
            Some(fd) => u64::from(fd),
            None => on as u64 >> 3,
        },
    };
    number & 0xFFFF_FFFF
}

/// A goroutine has ended.
#[inline(always)]
pub(crate) fn ended(m: &M, p: &P, g: &G) {
    if is_on() {
        put_stop(m, Some(p), g, None, stop::ENDED, 0);
    }
}

/// A goroutine makes room. `on_thread`: its thread sleeps with it.
#[inline(always)]
pub(crate) fn preempted(m: &M, p: &P, g: &G, on_thread: bool) {
    if is_on() {
        preempted_now(m, p, g, on_thread);
    }
}

#[cold]
#[inline(never)]
fn preempted_now(m: &M, p: &P, g: &G, on_thread: bool) {
    let how = match on_thread {
        true => How::ByThread,
        false if g.needs_no_p.load(Relaxed) => How::Injected,
        false => How::Asked,
    };
    let stack = stack(|| match how {
        How::ByThread => stacks::of_interrupted(m, g),
        _ => stacks::of_suspended(g),
    });
    put_stop(m, Some(p), g, stack, stop::PREEMPTED, body(p.asked_for(), u16::from(how.code())));
}

/// Where a goroutine is that lost its P.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// It is suspended.
    Suspended,
    /// It calls.
    Caller,
    /// In the handler of a signal, which calls.
    Handler,
}

/// A goroutine without a P is about to be queued.
#[inline(always)]
pub(crate) fn blocked(m: &M, g: &G, at: At) {
    if is_on() {
        blocked_now(m, g, at);
    }
}

#[cold]
#[inline(never)]
fn blocked_now(m: &M, g: &G, at: At) {
    let stack = match at {
        At::Suspended => stack(|| stacks::of_suspended(g)),
        At::Caller => stack_here(Some(g)),
        At::Handler => stack(|| stacks::of_interrupted(m, g)),
    };
    put_stop(m, None, g, stack, stop::BLOCKED, 0);
    m.lane.look_around();
}

/// A moment at which a goroutine runs outside of the runtime, on an M whose P is contested.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// 0: events are not wanted.
    ticks: u64,
    g: u64,
}

/// Notes the moment before the monitor takes the P of `m`: what the goroutine then does without a P comes after it.
#[inline(always)]
pub(crate) fn moment(m: &M) -> Moment {
    match is_on() {
        true => Moment { ticks: tracer::clock::ticks(), g: running(m) },
        false => Moment { ticks: 0, g: 0 },
    }
}

/// The monitor took `p` from `m` at that moment: its goroutine is blocked, or `computes` and does not hear.
#[inline(always)]
pub(crate) fn retaken(m: &M, p: &P, at: Moment, computes: bool) {
    if at.ticks != 0 {
        let kind = if computes { kind::TAKEN } else { kind::BLOCKED_FOUND };
        let entry = Record::new(0, kind, 0, NO_P, body(at.g, p.id as u16));
        tracer::put_outside_at(at.ticks, m.shared().number, entry, "");
    }
}

// ---- Ms and Ps ----

/// An M got a P.
#[inline(always)]
pub(crate) fn gained(m: &M, p: &P) {
    if is_on() {
        m.lane.look_around();
        put_proc(m, p, kind::PROC_GAINED);
    }
}

/// An M is about to lose its P.
#[inline(always)]
pub(crate) fn lost(m: &M, p: &P) {
    if is_on() {
        put_proc(m, p, kind::PROC_LOST);
    }
}

/// An M gave its P up, for want of work.
#[inline(always)]
pub(crate) fn idle(m: &M, p: &P) {
    if is_on() {
        put_proc(m, p, kind::PROC_IDLE);
    }
}

#[cold]
#[inline(never)]
fn put_proc(m: &M, p: &P, kind: u8) {
    m.lane.put(Record::new(0, kind, 0, p.id as u16, 0), || running(m));
}

/// An M's thread began.
pub(crate) fn thread_started(m: &M) {
    if is_on() {
        m.lane.put(Record::new(0, kind::THREAD_STARTED, 0, NO_P, 0), || 0);
    }
}

/// The owner of `p`, whose ring was empty, stole from `victim`: `g`, and those that are in the ring now.
#[inline(always)]
pub(crate) fn stolen(p: &P, victim: &P, g: &G) {
    if is_on()
        && let Some(m) = owner(p)
    {
        let taken = 1 + p.runq.len() as u64;
        put_by(p, m.shared(), kind::STEAL, 0, u64::from(victim.id) | taken << 32);
        found(p, g, Queue::Stolen);
    }
}

/// Goroutines whose descriptors are ready were found; by the owner of `p`, or a thread without a P.
#[inline(always)]
pub(crate) fn polled(shared: &Shared, p: Option<&P>, ready: usize) {
    if is_on() && ready != 0 {
        match p {
            Some(p) => put_by(p, shared, kind::POLL, 0, ready as u64),
            None => put_outside(shared, kind::POLL, 0, ready as u64),
        }
    }
}

/// Timers were run by the owner of `p`: `count`, of which the first was late by `late_ns`.
#[inline(always)]
pub(crate) fn timers_run(p: &P, shared: &Shared, count: usize, late_ns: u64) {
    if is_on() && count != 0 {
        put_by(p, shared, kind::TIMERS_RUN, 0, body(late_ns, u16::try_from(count).unwrap_or(u16::MAX)));
    }
}

/// Returns what exists: the policies of all runtimes, and goroutines with the places where they were spawned and their
/// names. One that ends meanwhile is there or not; one that was just made may be in the trace already.
pub(crate) fn census() -> Vec<Known> {
    let mut known = Vec::new();
    for shared in monitor::runtimes() {
        let runtime = shared.number;
        let policy = shared.policy.policy().name().into();
        known.push(Known { runtime, kind: kind::POLICY_IN_FORCE, body: 0, text: policy });
        shared.for_each_g(|g| {
            // With a handle it is the same goroutine all the time.
            let Some(g) = GRef::try_new(g).filter(|g| std::ptr::eq(g.shared.get(), Arc::as_ptr(&shared)))
            else {
                return;
            };
            if !g.state.is_alive() {
                return;
            }
            let body = body(id(&g), tracer::place_number(g.place()));
            known.push(Known { runtime, kind: kind::EXISTED, body, text: "".into() });
            if let Some(name) = g.name().filter(|name| !name.is_empty()) {
                known.push(Known { runtime, kind: kind::NAMED, body: id(&g), text: name.into() });
            }
        });
    }
    known
}

/// Another policy is in force.
pub(crate) fn policy_changed(shared: &Shared, name: &str) {
    if is_on() {
        let entry = Record::new(0, kind::POLICY_CHANGED, 0, NO_P, 0);
        tracer::put_outside(shared.number, entry, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records have the number of a cause as policies see it, and readers look it up in the trace's own list.
    #[test]
    fn a_cause_has_the_same_number_in_a_trace() {
        let in_trace = mungo_trace::Cause::ALL.iter().map(|cause| (cause.code(), format!("{cause:?}")));
        let ours = Cause::ALL.iter().map(|cause| (*cause as u8, format!("{cause:?}")));
        assert_eq!(ours.collect::<Vec<_>>(), in_trace.collect::<Vec<_>>());
    }
}
