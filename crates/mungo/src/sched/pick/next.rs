//! The door out: picks what a P runs next. [`local`] is the short way, [`any`] asks all sources, one function each.

use super::thief::Take;
use crate::policies::order::{FEW, GLOBAL_EVERY, PS_PER_LOOK};
use crate::sched::engine::hooks;
use crate::sched::run::g::{G, GPtr};
use crate::sched::run::m::M;
use crate::sched::run::p::{CHARGED, P};
use crate::sched::shared::Shared;
use crate::sched::{netpoll, timers, traced};
use crate::sys::clock;
use mungo_trace::Queue;
use std::sync::atomic::Ordering::Relaxed;

/// A goroutine to run, and whether it inherits the time slice.
pub(crate) type Found = (GPtr, bool);

fn own(g: *mut G) -> GPtr {
    GPtr::new(g).expect("queues hold no null")
}

/// Takes the next goroutine of this P, without a lock. Returns `None` if all sources have to be asked.
#[inline(always)]
pub(crate) fn local(p: &P, shared: &Shared) -> Option<Found> {
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

/// Asks all sources once.
pub(crate) fn any(m: &'static M, p: &'static P) -> Look {
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
        if let Some(g) = shared.take_fresh(p, false) {
            return Some((g, false));
        }
    }
    if let Some((g, inherit)) = p.runq.pop() {
        return Some((own(g), inherit));
    }
    if let Some(g) = shared.take_fresh(p, true) {
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
        None => shared.take_fresh(p, true).map(|g| (g, false)),
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
    let is_victim = |p: &&P| contended && p.runq.len() > FEW || m.thief.is_stalled(p);
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
        let take = m.thief.judge(victim);
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
