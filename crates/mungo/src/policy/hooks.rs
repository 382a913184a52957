//! Where the scheduler calls the policy in force, if there is one.
//!
//! The default policy has no engine and is not called: a P that has one carries the flag [`POLICY`], which sends its
//! owner here from the slow paths. Who owns a P hands goroutines to the policy itself. All others (plain threads, the
//! signal handler, the monitor) put them into the runtime's global queue, as ever, and the next P that looks for work
//! passes them on: so policy code runs neither in signal handlers nor on foreign threads, and what slips into an old
//! queue while the policy changes is found.

use super::engine::Engine;
use super::task::{Cause, Node, Task};
use super::{Event, Rank};
use crate::current::Running;
use crate::netpoll;
use crate::sched::find::Found;
use crate::sched::g::{G, GPtr};
use crate::sched::m::M;
use crate::sched::p::{P, POLICY};
use crate::sched::shared::Shared;
use crate::sys::clock;
use crate::time;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The most goroutines that a P passes on from the global queue at a time.
const COLLECT: usize = 256;

/// The goroutine of a node that is not part of a simulation.
pub(super) fn g_of(node: NonNull<Node>) -> GPtr {
    // SAFETY: nodes without a home of their own belong to a G and are never freed.
    unsafe { node.as_ref() }.g().expect("a goroutine's node")
}

/// Whether a policy decides for this P.
#[inline]
pub(crate) fn decides(p: &P) -> bool {
    p.flags.load(Relaxed) & POLICY != 0
}

/// The policy in force, for the owner of a P.
fn engine_of(p: &P, shared: &Shared) -> Option<Arc<Engine>> {
    // SAFETY: the caller owns the P, and calls nothing else meanwhile.
    let core = unsafe { p.core() };
    // ORDERING: Acquire: pairs with the change of the policy.
    if core.policy_epoch != shared.policy.epoch.load(Acquire) {
        let (epoch, engine) = shared.policy.current();
        core.policy_epoch = epoch;
        if let Some(old) = std::mem::replace(&mut core.engine, engine) {
            shared.policy.bury(old);
        }
    }
    core.engine.clone()
}

// ---- into the queues ----

/// The owner of `p` has a runnable goroutine: see `park::queue_next`.
#[cold]
#[inline(never)]
pub(crate) fn queue(p: &P, shared: &Shared, g: GPtr, cause: Cause, next: bool, local: bool) {
    match engine_of(p, shared) {
        Some(engine) => engine.submit(shared, p.id, g, cause, next, local),
        None => crate::sched::park::queue_by_default(p, shared, g, next),
    }
}

/// A goroutine that ran on `m` stopped, and is runnable. The M is on its own thread-locals.
#[cold]
#[inline(never)]
pub(crate) fn requeue(m: &M, p: &P, shared: &Shared, g: GPtr, cause: Cause) {
    let local = cause == Cause::Yielded;
    match engine_of(p, shared) {
        Some(engine) => {
            engine.charge(m, g.policy, || Some(clock::own_cpu_ns()));
            engine.submit(shared, p.id, g, cause, false, local);
        }
        None => shared.push_global_one(g),
    }
}

/// A goroutine that ran on `m` stopped, and waits, or is over. Before anybody else can see that.
#[cold]
#[inline(never)]
pub(crate) fn stopped(m: &M, p: &P, shared: &Shared, g: GPtr, event: Event) {
    if let Some(engine) = engine_of(p, shared) {
        engine.charge(m, g.policy, || Some(clock::own_cpu_ns()));
        engine.tell(shared, p, g, event);
    }
}

/// Passes on what lies in the P's ring and in the global queue.
fn collect(engine: &Engine, p: &P, shared: &Shared) {
    while let Some((g, next)) = p.runq.pop() {
        let g = GPtr::new(g).expect("queues hold no null");
        engine.submit(shared, p.id, g, Cause::Moved, next, true);
    }
    pass_on(engine, shared, p.id);
}

/// Passes on some of the global queue, on behalf of P `proc`. The causes were noted by those who put them there.
fn pass_on(engine: &Engine, shared: &Shared, proc: u32) {
    if shared.global_len() == 0 {
        return;
    }
    for g in shared.take_inbox(COLLECT) {
        // SAFETY: an M that a goroutine is bound to does not end before it is unbound.
        if let Some(home) = unsafe { g.bound.load(Relaxed).as_ref() } {
            engine.charge_at_home(home, g); // it was interrupted
        }
        let cause = g.policy.cause();
        engine.submit(shared, proc, g, cause, false, false);
    }
}

/// Whoever puts a goroutine into the global queue from elsewhere says why, should a policy ask.
#[inline]
pub(crate) fn note_cause(shared: &Shared, g: &G, cause: Cause) {
    if shared.policy.is_active() {
        g.policy.set_cause(cause);
    }
}

// ---- out of the queues ----

/// All sources once. The outer `None`: no policy decides any more.
#[cold]
pub(crate) fn look(m: &'static M, p: &'static P) -> Option<Option<Found>> {
    let shared: &Shared = m.shared();
    let engine = engine_of(p, shared)?;
    if time::is_turn(p) {
        time::run_due(p, shared, &p.timers);
    }
    collect(&engine, p, shared);
    if let Some(found) = engine.next(m, p) {
        return Some(Some(found));
    }
    if netpoll::is_unwatched() && netpoll::look(p, shared) {
        collect(&engine, p, shared);
        return Some(engine.next(m, p));
    }
    if !m.is_spinning() && !shared.counts.start_spinning(shared.procs()) {
        return Some(None);
    }
    m.set_spinning(true);
    // What others are too busy for: their timers, and what an earlier policy left in their rings.
    let now = clock::now_ns();
    for other in shared.all_ps() {
        if other.timers.next_ns() <= now {
            time::run_due(p, shared, &other.timers);
        }
        if !other.runq.is_empty()
            && other.id != p.id
            && let Some(g) = other.runq.steal_into(&p.runq, true)
        {
            let g = GPtr::new(g).expect("queues hold no null");
            engine.submit(shared, p.id, g, Cause::Moved, false, true);
        }
    }
    collect(&engine, p, shared);
    Some(engine.next(m, p))
}

/// The slice is over: who was next in line without one of its own has to wait.
pub(crate) fn slice_over(p: &P, shared: &Shared) {
    if let Some(engine) = engine_of(p, shared) {
        engine.lanes[p.id as usize].demote_next();
    }
}

// ---- tasks that come back ----

/// A policy dropped the task of a goroutine, which is the caller's now.
pub(super) fn came_back(node: NonNull<Node>) {
    let shared = return_to_runtime(g_of(node));
    shared.policy.dropped.fetch_add(1, Relaxed);
}

/// A task that could not be queued, because the policy is being replaced.
pub(super) fn give_back(task: Task) {
    if let Some(node) = task.accept() {
        return_to_runtime(g_of(node));
    }
}

/// Ends the policy's care for a goroutine that the caller owns.
pub(super) fn return_to_runtime(g: GPtr) -> Arc<Shared> {
    let shared = g.shared().to_arc(); // it may end as soon as it is queued
    g.policy.set_cause(Cause::Moved);
    shared.policy.queued.fetch_sub(1, Relaxed);
    shared.push_global_one(g);
    shared.wake_one();
    shared
}

/// A P goes out of service, or stands still: what waits there is for all.
pub(crate) fn abandon_lane(shared: &Shared, p: &P) {
    let Some(engine) = shared.policy.current().1 else { return };
    let lane = &engine.lanes[p.id as usize];
    while let Some(task) = lane.pop_front() {
        give_back(task);
    }
}

/// Everything goes back to the global queue for a moment, where `Shared::strand` looks for bound goroutines.
pub(crate) fn abandon_all(shared: &Shared) {
    if let Some(engine) = shared.policy.current().1 {
        engine.empty_queues();
    }
}

impl Engine {
    /// What lies in the machine's queues goes back to the runtime.
    pub(super) fn empty_queues(&self) {
        for lane in self.lanes.iter().chain([&self.global]) {
            while let Some(task) = lane.pop_front() {
                give_back(task);
            }
        }
    }
}

// ---- the monitor ----

/// All Ps are busy: what came from elsewhere is passed on, so that urgent work need not wait for a slice to end.
pub(crate) fn serve_inbox(shared: &Shared) {
    if shared.policy.is_active()
        && shared.counts.idle_ps() == 0
        && let Some(engine) = shared.policy.current().1
    {
        pass_on(&engine, shared, 0);
        engine.preempt_for_heads(shared);
    }
}

/// A timer woke a goroutine while every P was busy: as [`queue`], by the monitor. `false`: no policy decides.
pub(crate) fn queue_due(shared: &Shared, p: &P, g: GPtr) -> bool {
    let Some(engine) = shared.policy.current().1 else { return false };
    engine.submit(shared, p.id, g, Cause::Timer, false, true);
    true
}

/// The P was taken from `m`, whose thread has used `cpu_ns`.
pub(crate) fn retaken(shared: &Shared, m: &M, cpu_ns: u64) {
    if shared.policy.is_active()
        && let Some(engine) = shared.policy.current().1
        && let Some(g) = GPtr::new(m.g.load(Relaxed))
    {
        engine.charge(m, g.policy, || Some(cpu_ns));
    }
}

/// A bound goroutine is about to be handed a P on its own M, which sleeps.
pub(crate) fn handed_over(home: &M, g: GPtr) {
    let shared = home.shared();
    if shared.policy.is_active()
        && let Some(engine) = shared.policy.current().1
    {
        engine.charge_at_home(home, g);
    }
}

// ---- ranks ----

/// A goroutine is about to start: fills in its rank, if ranks are used.
#[inline]
pub(crate) fn begin(shared: &Shared, g: &G, id: u64, rank: Option<&Rank>, parent: Option<&G>) {
    if rank.is_some() || shared.policy.uses_ranks() {
        begin_ranked(shared, g, id, rank, parent);
    }
}

#[cold]
fn begin_ranked(shared: &Shared, g: &G, id: u64, rank: Option<&Rank>, parent: Option<&G>) {
    shared.policy.note_ranks();
    let parent = parent.map(|g| g.policy);
    g.policy.begin(id, rank.unwrap_or(&Rank::default()), parent, clock::now_ns());
}

/// It has ended, and the G may serve another runtime, where nobody looks.
#[inline]
pub(crate) fn end(shared: &Shared, g: &G) {
    if shared.policy.uses_ranks() {
        super::inherit::forget(g);
        g.policy.begin(0, &Rank::default(), None, 0);
    }
}

/// May a goroutine with this rank start?
pub(crate) fn admit(shared: &Shared, rank: &Rank) -> io::Result<()> {
    rank.check()?;
    if rank.period_budget.is_none() {
        return Ok(());
    }
    let Some(engine) = shared.policy.current().1 else { return Ok(()) };
    let node = Node::new();
    node.begin(0, rank, None, clock::now_ns());
    engine.admit(shared, &node.info()).map_err(|why| io::Error::new(io::ErrorKind::QuotaExceeded, why))
}

/// The calling goroutine became less urgent: whoever is more so goes first.
pub(super) fn lowered(running: &Running) {
    let p = running.p();
    if decides(p) {
        p.ask_to_yield(p.tick.load(Relaxed));
    }
}

/// A goroutine became more urgent while it may be in a queue: it is queued anew.
///
/// If it is of another runtime, it is not: who noted a lock's owner does not keep that one's runtime alive.
pub(super) fn raised(g: GPtr) {
    let Some(running) = Running::enter() else { return };
    let shared = running.shared();
    if !shared.policy.is_active() || !std::ptr::eq(g.shared.get(), shared) {
        return;
    }
    let Some(engine) = shared.policy.current().1 else { return };
    let task = match g.policy.lane.load(Relaxed) {
        0 => None,
        super::queue::GLOBAL => engine.global.remove(g.policy),
        at => engine.lanes.get((at - super::queue::FIRST_LOCAL) as usize).and_then(|l| l.remove(g.policy)),
    };
    if let Some(task) = task {
        engine.requeue(shared, task);
    }
}
