//! The places where the scheduler calls the policy in force, if there is one.
//!
//! The default policy has no engine and is not called: a P that has one carries the flag [`POLICY`], which sends its
//! owner here from the slow paths. The owner of a P hands goroutines to the policy itself. All others (plain threads,
//! the signal handler, the monitor) put them into the runtime's global queue, as ever, and the next P that looks for
//! work passes them on: so policy code runs neither in signal handlers nor on foreign threads, and what slips into an
//! old queue while the policy changes is found.

use super::Engine;
use crate::policies::order::COLLECT;
use crate::policies::task::{Cause, Home, Node};
use crate::policies::{Event, Rank};
use crate::sched::pick::{self, Found};
use crate::sched::run::current::Running;
use crate::sched::run::g::{G, GPtr, pool};
use crate::sched::run::m::M;
use crate::sched::run::p::{P, POLICY};
use crate::sched::shared::Shared;
use crate::sched::{netpoll, timers, traced};
use crate::sys::clock;
use mungo_trace::Queue;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Returns the goroutine of a node that is not part of a simulation.
pub(crate) fn g_of(node: NonNull<Node>) -> GPtr {
    // SAFETY: nodes without a home of their own belong to a G and are never freed.
    GPtr::new(unsafe { node.as_ref() }.g().cast()).expect("a goroutine's node")
}

/// Returns whether a policy decides for this P.
#[inline]
pub(crate) fn decides(p: &P) -> bool {
    p.flags.load(Relaxed) & POLICY != 0
}

/// Returns the policy in force, for the owner of a P.
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

/// Hands a runnable goroutine to the policy, by the owner of `p`: see `pick::enqueue`.
#[cold]
#[inline(never)]
pub(crate) fn queue(p: &P, shared: &Shared, g: GPtr, cause: Cause, next: bool) {
    match engine_of(p, shared) {
        Some(engine) => engine.submit(shared, p.id, g, cause, next, true),
        None => pick::push(p, shared, g, next),
    }
}

/// Hands back a goroutine that ran on `m`, stopped, and is runnable. The M is on its own thread-locals.
#[cold]
#[inline(never)]
pub(crate) fn requeue(m: &M, p: &P, shared: &Shared, g: GPtr, cause: Cause) {
    let local = cause == Cause::Yielded;
    match engine_of(p, shared) {
        Some(engine) => {
            engine.charge(m, g.policy, || Some(clock::own_cpu_ns()));
            engine.submit(shared, p.id, g, cause, false, local);
        }
        None => pick::push_ran(p, shared, g, local),
    }
}

/// Tells the policy that a goroutine that ran on `m` waits, or is over. Called before any other thread can see that.
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

/// Passes on some of the global queue, on behalf of P `proc`. The threads that put them there noted the causes.
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

/// Notes why a goroutine is put into the global queue from elsewhere, should a policy ask.
#[inline]
pub(crate) fn note_cause(shared: &Shared, g: &G, cause: Cause) {
    if shared.policy.is_active() {
        g.policy.set_cause(cause);
    }
}

// ---- out of the queues ----

/// Looks at all sources once. The outer `None`: no policy decides any more.
#[cold]
pub(crate) fn look(m: &'static M, p: &'static P) -> Option<Option<Found>> {
    let shared: &Shared = m.shared();
    let engine = engine_of(p, shared)?;
    if timers::is_turn(p) {
        timers::run_due(p, shared, &p.timers);
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
    // The work that other Ps are too busy for: their timers, and what an earlier policy left in their rings.
    let now = clock::now_ns();
    for other in shared.all_ps() {
        if other.timers.next_ns() <= now {
            timers::run_due(p, shared, &other.timers);
        }
        if !other.runq.is_empty()
            && other.id != p.id
            && let Some(g) = other.runq.steal_into(&p.runq, true)
        {
            let g = GPtr::new(g).expect("queues hold no null");
            engine.submit(shared, p.id, g, Cause::Moved, false, true);
            collect(&engine, p, shared); // the ring that is stolen into must be empty
        }
    }
    collect(&engine, p, shared);
    Some(engine.next(m, p))
}

/// Ends the slice: a task that was next in line without a slice of its own has to wait.
pub(crate) fn slice_over(p: &P, shared: &Shared) {
    if let Some(engine) = engine_of(p, shared) {
        engine.lanes[p.id as usize].demote_next();
    }
}

// ---- tasks that come back ----

/// The home of goroutines that a policy does not keep: their runtime's global queue.
pub(crate) struct Goroutines;

impl Home for Goroutines {
    fn came_back(&self, node: &Node, fault: bool) {
        let shared = return_to_runtime(g_of(NonNull::from(node)));
        shared.policy.dropped.fetch_add(u64::from(fault), Relaxed);
    }
}

/// Ends the policy's care for a goroutine that the caller owns.
pub(crate) fn return_to_runtime(g: GPtr) -> Arc<Shared> {
    let shared = g.shared().to_arc(); // it may end as soon as it is queued
    shared.policy.queued.fetch_sub(1, Relaxed);
    pick::enqueue_given_back(&shared, g);
    shared.wake_one();
    shared
}

/// Makes tasks that wait at a P available to all Ps: it goes out of service, or stands still.
pub(crate) fn abandon_lane(shared: &Shared, p: &P) {
    let Some(engine) = shared.policy.current().1 else { return };
    let lane = &engine.lanes[p.id as usize];
    while let Some(task) = lane.pop_front() {
        task.give_back();
    }
}

/// Moves everything back to the global queue for a moment, where `Shared::strand` looks for bound goroutines.
pub(crate) fn abandon_all(shared: &Shared) {
    if let Some(engine) = shared.policy.current().1 {
        engine.empty_queues();
    }
}

impl Engine {
    /// Gives the tasks in the machine's queues back to the runtime.
    pub(crate) fn empty_queues(&self) {
        for lane in self.lanes.iter().chain([&self.global]) {
            while let Some(task) = lane.pop_front() {
                task.give_back();
            }
        }
    }
}

// ---- the monitor and its helper ----

/// Passes on what came from elsewhere when all Ps are busy, so that urgent work need not wait for the end of a slice.
pub(crate) fn serve_inbox(shared: &Shared) {
    if shared.policy.is_active()
        && shared.counts.idle_ps() == 0
        && let Some(engine) = shared.policy.current().1
    {
        pass_on(&engine, shared, 0);
        engine.preempt_for_heads(shared);
    }
}

/// As [`queue`], by the helper: a timer woke a goroutine while every P was busy. Returns `false` if no policy decides.
pub(crate) fn queue_due(shared: &Shared, p: &P, g: GPtr) -> bool {
    let Some(engine) = shared.policy.current().1 else { return false };
    traced::ready_in(shared, &g, Cause::Timer, Queue::Policy, shared.policy.queued.load(Relaxed));
    engine.submit(shared, p.id, g, Cause::Timer, false, true);
    true
}

/// Takes a goroutine that can go on without a P from the policy, which may be in the middle of a call and wait for a
/// lock of that goroutine. The task that the policy has is void then. For the monitor: waits for no lock.
pub(crate) fn take_interrupted(shared: &Shared) -> Option<GPtr> {
    let mut found = None;
    if shared.policy.is_active() {
        shared.policy.try_current(|engine| {
            pool::try_for_each(std::ptr::from_ref(shared), |g| {
                if g.needs_no_p.load(Relaxed)
                    && g.bound.load(Relaxed).is_null()
                    && g.policy.revoke(engine.generation)
                {
                    found = Some(g.into());
                }
                found.is_none()
            });
        });
    }
    if found.is_some() {
        shared.policy.queued.fetch_sub(1, Relaxed);
    }
    found
}

/// Charges `m`, whose P the monitor took, and whose thread has used `cpu_ns`. If the policy is being changed, no
/// goroutine is charged.
pub(crate) fn retaken(shared: &Shared, m: &M, cpu_ns: u64) {
    if shared.policy.is_active()
        && let Some(g) = GPtr::new(m.g.load(Relaxed))
    {
        shared.policy.try_current(|engine| engine.charge(m, g.policy, || Some(cpu_ns)));
    }
}

/// Notes that a bound goroutine is about to be handed a P on its own M, which sleeps.
pub(crate) fn handed_over(home: &M, g: GPtr) {
    let shared = home.shared();
    if shared.policy.is_active()
        && let Some(engine) = shared.policy.current().1
    {
        engine.charge_at_home(home, g);
    }
}

// ---- ranks ----

/// Fills in the rank of a goroutine that is about to start, if ranks are used.
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

/// Ends the rank of a goroutine: the G may serve another runtime next, where ranks are not looked at.
#[inline]
pub(crate) fn end(shared: &Shared, g: &G) {
    if shared.policy.uses_ranks() {
        super::inherit::forget(g);
        g.policy.begin(0, &Rank::default(), None, 0);
    }
}

/// Returns an error if a goroutine with this rank may not start.
pub(crate) fn admit(shared: &Shared, rank: &Rank) -> io::Result<()> {
    rank.check()?;
    if rank.period_budget.is_none() {
        return Ok(());
    }
    let Some(engine) = shared.policy.current().1 else { return Ok(()) };
    let node = Node::new(None);
    node.begin(0, rank, None, clock::now_ns());
    engine.admit(shared, &node.info()).map_err(|why| io::Error::new(io::ErrorKind::QuotaExceeded, why))
}

/// Lets more urgent goroutines go first, after the calling one became less urgent.
pub(crate) fn lowered(running: &Running) {
    let p = running.p();
    if decides(p) {
        p.ask_to_yield(p.tick.load(Relaxed), 0);
    }
}

/// Queues a goroutine anew that became more urgent while it may be in a queue.
///
/// A goroutine of another runtime is not: noting a lock's owner does not keep the owner's runtime alive.
pub(crate) fn raised(g: GPtr) {
    let Some(running) = Running::enter() else { return };
    let shared = running.shared();
    if !shared.policy.is_active() || !std::ptr::eq(g.shared.get(), shared) {
        return;
    }
    let Some(engine) = shared.policy.current().1 else { return };
    let task = match g.policy.lane.load(Relaxed) {
        0 => None,
        crate::policies::queue::GLOBAL => engine.global.remove(g.policy),
        at => engine
            .lanes
            .get((at - crate::policies::queue::FIRST_LOCAL) as usize)
            .and_then(|l| l.remove(g.policy)),
    };
    if let Some(task) = task {
        engine.requeue(shared, task);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::policies::Fifo;
    use crate::protocols::wake::Wake;
    use crate::sched::threads::cap::tests::spawn_waiting;
    use std::sync::Mutex;

    /// Half of each ring goes into the thief's, and two halves of full ones fill that.
    #[test]
    fn what_is_left_in_the_full_rings_of_several_ps_is_not_lost() {
        const EACH: usize = 240;
        const IDLE: usize = 3;
        let runtime =
            crate::Runtime::builder().procs(1 + IDLE).scheduler(Fifo::new()).build().expect("a runtime");
        for _ in 0..10 {
            runtime.run(|| {
                let (waiting, all) = spawn_waiting(IDLE * EACH);
                leave_in_rings_of_idle_ps(&waiting, IDLE, EACH);
                all.into_iter().for_each(|g| g.join().expect("no panic"));
            });
        }
        runtime.shutdown(std::time::Duration::from_secs(60)).expect("all have ended");
    }

    /// Waits until all other Ps are idle and all goroutines wait, and puts these into the rings of those. The calling
    /// goroutine's P finds them when it has nothing else to run.
    fn leave_in_rings_of_idle_ps(waiting: &Mutex<Vec<GPtr>>, ps: usize, each: usize) {
        loop {
            crate::yield_now();
            let running = Running::enter().expect("a goroutine");
            let shared = running.shared();
            let synced = shared.synced.lock();
            if synced.idle_ps.len() < ps || shared.policy.has_work() {
                continue;
            }
            // One of them may have lost its P on the way.
            let Ok(waiting) = waiting.try_lock() else { continue };
            if waiting.len() != ps * each {
                continue;
            }
            for (p, gs) in synced.idle_ps.iter().zip(waiting.chunks(each)) {
                for g in gs.iter().filter(|g| g.notify() == Wake::Enqueue) {
                    pick::push(p, shared, *g, false);
                }
            }
            return;
        }
    }
}
