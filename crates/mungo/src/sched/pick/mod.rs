#![doc = include_str!("README.md")]

pub(crate) mod classes;
pub(crate) mod global;
pub(crate) mod thief;

use crate::policies::Cause;
use crate::policies::order::{FEW, GLOBAL_EVERY, JOINER_WAITS, PS_PER_LOOK};
use crate::protocols::runq::Full;
use crate::protocols::wake::Wake;
use crate::sched::engine::hooks;
use crate::sched::run::g::{G, GPtr};
use crate::sched::run::m::M;
use crate::sched::run::p::{CHARGED, P};
use crate::sched::shared::{Shared, Synced};
use crate::sched::{netpoll, timers, traced};
use crate::sys::clock;
use global::GList;
use mungo_trace::Queue;
use std::sync::atomic::Ordering::Relaxed;
use thief::Take;

// ---- the door in ----

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
            hooks::queue(p, shared, g, why.cause(), why.goes_next(p));
        }
        From::Owner(p) => push(p, shared, g, why.goes_next(p)),
        From::Ran(m, p) if hooks::decides(p) => hooks::requeue(m, p, shared, g, why.cause()),
        From::Ran(_, p) => push_ran(p, shared, g, why == Why::Yielded),
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
                _ => {
                    shared.push_global_one(g);
                    shared.monitor.notice_fresh();
                }
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

/// Wakes a goroutine that is parked, or about to park, and calls an M for it, by the owner of `p`. The caller won the
/// right to wake it.
#[inline(always)]
pub(crate) fn ready(shared: &Shared, g: GPtr, why: Why, p: &P) {
    if g.notify() == Wake::Enqueue {
        enqueue(shared, g, why, From::Owner(p));
        shared.wake_one();
        notice_behind(shared, p);
    }
}

/// Calls the monitor if the goroutine that runs on `p` computes, and has just queued the first one that waits for it
/// (rule 6). Called by the owner of `p`, after [`Shared::wake_one`].
///
/// WHY NOT make room at once, at the end of the call: a goroutine that computes, delivers the result and then waits
/// would go to the back of those that compute, for the last microseconds before its wait.
#[inline(always)]
pub(crate) fn notice_behind(shared: &Shared, p: &P) {
    if p.is_long_run() {
        call_for_one_behind(shared, p);
    }
}

#[cold]
fn call_for_one_behind(shared: &Shared, p: &P) {
    p.end_long_run();
    if shared.counts.idle_ps() == 0 {
        shared.monitor.call();
    }
}

/// Queues the goroutine of an interrupted thread, which gives its P away, under the scheduler's lock. In the preemption
/// handler.
pub(crate) fn enqueue_locked(shared: &Shared, synced: &mut Synced, g: GPtr) {
    hooks::note_cause(shared, &g, Cause::Preempted);
    traced::ready_in(shared, &g, Cause::Preempted, Queue::Computing, shared.computing_len());
    shared.push_computing_locked(synced, g, false);
}

/// Queues a goroutine that a policy did not keep. The caller then wakes an M.
pub(crate) fn enqueue_given_back(shared: &Shared, g: GPtr) {
    g.policy.set_cause(Cause::Moved);
    traced::ready_in(shared, &g, Cause::Moved, Queue::Global, shared.global_len());
    shared.push_global_one(g);
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

/// Queues a goroutine that ran on `p`, which the caller owns: it yielded, or was preempted. Also if the policy that was
/// to have it is gone.
#[inline(always)]
pub(crate) fn push_ran(p: &P, shared: &Shared, g: GPtr, yielded: bool) {
    if !yielded {
        push_preempted(p, shared, g);
    } else if !p.runq.push_back_quietly(g.as_ptr()) {
        // There was no fence: a sleeper that is missed is seen by the next yield, or when the slice ends.
        push(p, shared, g, false);
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

// ---- the door out ----

/// A goroutine to run, and whether it inherits the time slice.
pub(crate) type Found = (GPtr, bool);

fn own(g: *mut G) -> GPtr {
    GPtr::new(g).expect("queues hold no null")
}

/// Takes the next goroutine of this P, without a lock: the short way. Returns `None` if all sources have to be asked.
#[inline(always)]
pub(crate) fn next_local(p: &P, shared: &Shared) -> Option<Found> {
    let others_turn =
        shared.computing_len() != 0 || global_turn(p) && (shared.global_len() != 0 || netpoll::is_unwatched());
    if p.flags.load(Relaxed) != 0 || others_turn || timers::is_turn(p) {
        return None;
    }
    p.runq.pop().map(|(g, inherit)| (own(g), inherit))
}

/// Returns whether the global queue comes before the ring. Not ahead of a `runnext`, which inherits the slice and so
/// does not advance the tick: the turn comes after it, or when the slice ends. WHY NOT at once, as in Go: a preempted
/// goroutine from the global queue takes a whole slice, and one in 61 of those that were just woken waited for that
/// long.
#[inline]
fn global_turn(p: &P) -> bool {
    p.tick.load(Relaxed).is_multiple_of(GLOBAL_EVERY) && !p.runq.has_next()
}

#[inline]
fn timer_is_due(p: &P) -> bool {
    let next = p.timers.next_ns();
    next != u64::MAX && next <= clock::now_ns()
}

/// The result of a look at all sources.
pub(crate) enum Look {
    Found(Found),
    /// A goroutine is next in line on another P, and will run there any moment, or be stolen.
    Soon,
    Nothing,
}

/// Asks all sources once, for an M whose P has nothing at hand.
pub(crate) fn next(m: &'static M, p: &'static P) -> Look {
    if hooks::decides(p)
        && let Some(found) = hooks::look(m, p)
    {
        return found.map_or(Look::Nothing, Look::Found);
    }
    if let Some(found) = fresh_or_computing(m, p) {
        return Look::Found(found);
    }
    let shared: &Shared = m.shared();
    if m.is_spinning() || shared.counts.start_spinning(shared.procs()) {
        m.set_spinning(true);
        return steal(m, p);
    }
    Look::Nothing
}

/// Takes a goroutine of any kind at the last look before `p` becomes idle, under the scheduler's lock: fresh,
/// computing, or held back because of the cap.
pub(crate) fn next_locked(shared: &Shared, synced: &mut Synced, p: &P) -> Option<Found> {
    let g = shared.take_any_locked(synced, p)?;
    Some((g, false))
}

/// Takes a goroutine in the place of one that yields while computing ones wait, and is not queued yet: so one of these
/// has a turn where no fresh one waits. Returns `None` if the P is wanted for something else, or none waits.
///
/// TUNED: `bimodal short_us=20 long_us=2000`. Its generator yields until the next request is due. When it went before
/// the long ones, all that fresh goroutines may take from them was spent on that.
#[cold]
pub(crate) fn instead_of_yielding(m: &'static M, p: &'static P) -> Option<Found> {
    if p.flags.load(Relaxed) & !CHARGED != 0 {
        return None;
    }
    m.load_own_tls();
    traced::looks_around(m);
    fresh_or_computing(m, p)
}

/// Takes a fresh goroutine, or a computing one where there is none or it is their turn; none that another P is about to
/// run.
fn fresh_or_computing(m: &'static M, p: &'static P) -> Option<Found> {
    let shared: &Shared = m.shared();
    // Computing goroutines wait: the time that fresh ones take from them is measured (`classes.rs`).
    let contended = shared.computing_len() != 0;
    let charged = p.flags.load(Relaxed) & CHARGED != 0;
    if charged {
        p.flags.fetch_and(!CHARGED, Relaxed);
    }
    let is_fresh_turn =
        !(contended || charged) || p.credit.settle(clock::now_ns(), p.counters.switches.get() + 1, charged);
    if !is_fresh_turn && let Some(g) = shared.take_computing(p) {
        return Some((g, false));
    }
    if let Some(found) = look_for_fresh(m, p) {
        if contended {
            p.flags.fetch_or(CHARGED, Relaxed);
        }
        return Some(found);
    }
    shared.take_computing(p).map(|g| (g, false))
}

/// Asks the sources of fresh goroutines once, but for what other Ps are about to run.
fn look_for_fresh(m: &'static M, p: &'static P) -> Option<Found> {
    let shared: &Shared = m.shared();
    if timers::is_turn(p) {
        timers::run_due(p, shared, &p.timers);
    }
    // SAFETY: this M owns the P.
    if global_turn(p) || std::mem::take(unsafe { &mut p.core().global_first }) {
        if netpoll::is_unwatched() {
            netpoll::look(p, shared);
        }
        if let Some(g) = shared.take_fresh(p) {
            return Some((g, false));
        }
    }
    if let Some((g, inherit)) = p.runq.pop() {
        return Some((own(g), inherit));
    }
    if let Some(g) = shared.take_fresh(p) {
        return Some((g, false));
    }
    let (unwatched, contended) = (netpoll::is_unwatched(), shared.computing_len() != 0);
    if (unwatched || contended)
        && let Some(g) = rob_stalled(m, p, contended)
    {
        return Some((g, false));
    }
    if !unwatched || !netpoll::look(p, shared) {
        return None;
    }
    match p.runq.pop() {
        Some((g, inherit)) => {
            traced::found(p, &own(g), Queue::Network);
            Some((own(g), inherit))
        }
        None => shared.take_fresh(p).map(|g| (g, false)),
    }
}

/// Steals half of the ring of a P that has not switched for `STALLED_NS`. TUNED: an M that looks at the network first,
/// as Go does, always has a goroutine to run, and those in the ring wait for as long as the kernel lets the thread
/// wait: an echo server with 64 connections on two CPUs, one of which the client needs, answered one request in a
/// hundred after 2.4 ms; 1.3 like this.
///
/// While computing goroutines wait, `contended`, a ring of more than [`FEW`] is enough: fresh ones go first, wherever
/// they are. TUNED: one P computed, and the other had up to a hundred short requests of bimodal 20 µs / 2 ms in its
/// ring.
fn rob_stalled(m: &'static M, p: &'static P, contended: bool) -> Option<GPtr> {
    let own = p;
    let is_victim = |p: &&P| contended && p.runq.len() > FEW || own.seen.is_stalled(p);
    let victim = others(m, p).take(PS_PER_LOOK).find(is_victim)?;
    p.counters.steal_attempts.add(1);
    rob(victim, p, false)
}

/// Returns the other Ps, from a random one on. Ps that shall retire too: their owner may not come to it for long.
fn others(m: &M, p: &P) -> impl Iterator<Item = &'static P> {
    let shared = m.shared();
    let (n, start, own) = (shared.all_ps().count() as u64, m.random(), p.id);
    (0..n).map(move |i| shared.p((start.wrapping_add(i) % n) as u32)).filter(move |other| other.id != own)
}

/// Steals half of the ring of `victim`, and its `runnext` if wanted. Returns one goroutine to run.
fn rob(victim: &P, p: &P, next_too: bool) -> Option<GPtr> {
    let g = victim.runq.steal_into(&p.runq, next_too)?;
    p.counters.steals.add(1);
    let g = own(g);
    traced::stolen(p, victim, &g);
    Some(g)
}

/// Steals half of another P's ring, or runs its due timers, from a random P on; as the thief's patience allows.
fn steal(m: &'static M, p: &'static P) -> Look {
    let shared: &Shared = m.shared();
    let mut left_alone = false;
    for victim in others(m, p) {
        if timer_is_due(victim) {
            timers::run_due(p, shared, &victim.timers);
            if let Some((g, inherit)) = p.runq.pop() {
                traced::found(p, &own(g), Queue::Timer);
                return Look::Found((own(g), inherit));
            }
        }
        let take = m.thief.judge(p, victim);
        p.counters.steal_attempts.add(1);
        if take != Take::Nothing
            && let Some(g) = rob(victim, p, take == Take::NextToo)
        {
            return Look::Found((g, false));
        }
        left_alone |= !victim.runq.is_empty();
    }
    if m.thief.stays(left_alone) { Look::Soon } else { Look::Nothing }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::sched::run::current::Running;
    use crate::sched::threads::cap::tests::with_goroutines;
    use crate::stack::slab::Class;

    #[test]
    fn a_joiner_goes_next_in_line_unless_many_wait() {
        let p = P::new(0, Class::DEFAULT).expect("a P");
        assert!(Why::Joined.goes_next(&p));
        (0..=JOINER_WAITS).for_each(|_| p.runq.push_back(std::ptr::dangling_mut()).expect("room"));
        assert!(!Why::Joined.goes_next(&p) && Why::Woken.goes_next(&p));
        while p.runq.pop().is_some() {}
    }

    #[test]
    fn what_the_network_woke_waits_behind_fresh_ones_of_the_global_queue() {
        with_goroutines(|shared, gs| {
            let running = Running::enter().expect("a goroutine");
            let wake = |g| {
                let mut woken = GList::new();
                woken.push(g);
                enqueue_all(shared, woken, Why::Network, From::Owner(running.p()));
            };
            wake(gs[0]);
            assert!(
                running.p().runq.pop() == Some((gs[0].as_ptr(), false)),
                "in the ring, where nothing waits"
            );
            shared.push_global_one(gs[1]);
            wake(gs[2]);
            assert!(running.p().runq.is_empty());
            assert!(shared.take_inbox(3).eq([gs[1], gs[2]]));
        });
    }

    /// Spawned or woken, the first one that waits behind it is told to the monitor.
    #[test]
    #[cfg_attr(miri, ignore = "no CPU clocks")]
    fn the_monitor_is_called_for_the_first_one_behind_a_goroutine_that_computes() {
        crate::Runtime::builder().procs(1).build().expect("a runtime").run(|| {
            let (sender, receiver) = crate::chan::unbounded();
            crate::go(move || receiver.recv());
            crate::yield_now(); // it waits now
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            let is_noted = || Running::enter().expect("a goroutine").p().is_long_run();
            let compute = || while !is_noted() && std::time::Instant::now() < end {};
            compute();
            assert!(is_noted(), "it computes");
            sender.send(()).expect("a receiver");
            assert!(!is_noted(), "the monitor was not called");
            crate::yield_now();
            compute();
            assert!(is_noted(), "it computes again");
            drop(crate::go(|| ()));
            assert!(!is_noted(), "the monitor was not called for a new one");
        });
    }

    /// The one next in line would inherit the slice that has just ended.
    #[test]
    fn the_end_of_a_shared_slice_sends_the_next_in_line_to_the_back() {
        with_goroutines(|shared, gs| {
            let running = Running::enter().expect("a goroutine");
            let p = running.p();
            p.ask_to_yield(p.tick.load(Relaxed), 0);
            push(p, shared, gs[0], false);
            push(p, shared, gs[1], true);
            push_preempted(p, shared, gs[2]);
            let ring: Vec<_> =
                std::iter::from_fn(|| p.runq.pop()).map(|(g, inherits)| (own(g), inherits)).collect();
            assert_eq!(ring, [(gs[0], false), (gs[1], false)]);
            assert!(shared.take_inbox(2).eq([gs[2]]), "and the preempted one to the global queue");
        });
    }
}
