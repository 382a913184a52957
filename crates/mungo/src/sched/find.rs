//! Where work comes from: one function a source, in Go's order.

use super::g::{G, GPtr};
use super::global::GList;
use super::m::M;
use super::monitor;
use super::p::{P, PREEMPT, RETIRE};
use super::shared::Shared;
use super::thief::Take;
use crate::netpoll::{self, Watching};
use crate::policy::hooks;
use crate::sys::{clock, this_cpu};
use crate::time;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// The global queue comes first at every so many ticks, so that two goroutines that respawn each other cannot
/// keep a P from it. Go's number.
const GLOBAL_EVERY: u32 = 61;
/// An M that is about to look at the network first looks at so many other Ps.
const PS_PER_LOOK: usize = 4;

/// A goroutine to run, and whether it inherits the time slice.
pub(crate) type Found = (GPtr, bool);

fn own(g: *mut G) -> GPtr {
    GPtr::new(g).expect("queues hold no null")
}

/// The next goroutine of this P, without a lock: `None` means "look properly".
#[inline]
pub(crate) fn next_local(p: &P, shared: &Shared) -> Option<Found> {
    let others_turn =
        urgent_first(p, shared) || global_turn(p) && (shared.global_len() != 0 || netpoll::is_unwatched());
    if p.flags.load(Relaxed) != 0 || others_turn || time::is_turn(p) {
        return None;
    }
    p.runq.pop().map(|(g, inherit)| (own(g), inherit))
}

/// Not ahead of those in the P's own ring that the network woke earlier. TUNED: 51 connections that ask a web server
/// for little and 13 that ask for computations, with looks at the network 4 ms apart: one light request in a hundred
/// waited for 60 to 130 ms, as others overtook it again and again; 18 like this.
#[inline]
fn urgent_first(p: &P, shared: &Shared) -> bool {
    shared.is_urgent() && !p.has_fresh()
}

/// Not ahead of a `runnext`, which inherits the slice and so does not advance the tick: the turn comes after it, or
/// when the slice ends. WHY NOT at once, as in Go: a preempted goroutine from the global queue takes a whole slice, and
/// one in 61 of those that were just woken waited for that long.
#[inline]
fn global_turn(p: &P) -> bool {
    p.tick.load(Relaxed).is_multiple_of(GLOBAL_EVERY) && !p.runq.has_next()
}

#[inline]
fn timer_is_due(p: &P) -> bool {
    let next = p.timers.next_ns();
    next != u64::MAX && next <= clock::now_ns()
}

/// Finds a goroutine to run; sleeps if there is none. `None`: the runtime stops, the thread ends.
///
/// The M is on its own thread-locals. It has a P when this is called or sleeps until it gets one.
pub(crate) fn runnable(m: &'static M) -> Option<Found> {
    let shared: &Shared = m.shared();
    loop {
        if m.doomed.get() {
            return None;
        }
        let Some(p) = m.p() else {
            if !sleep(m, u64::MAX, None) {
                return None;
            }
            continue;
        };
        if p.flags.load(Relaxed) != 0 && !obey(m, p) {
            continue;
        }
        if shared.stopping.load(Relaxed) {
            release_p(m, p);
            return None;
        }
        match look(m, p) {
            Look::Found(found) => {
                m.thief.rest();
                if m.is_spinning() {
                    stop_spinning_with_work(m);
                }
                return Some(found);
            }
            Look::Soon => m.thief.nap(),
            Look::Nothing => {
                m.thief.rest();
                if let Some(found) = go_idle(m, p) {
                    return found;
                }
            }
        }
    }
}

/// Does what the flags say. `false`: the P is gone.
#[cold]
fn obey(m: &'static M, p: &'static P) -> bool {
    let flags = p.flags.load(Relaxed);
    if flags & PREEMPT != 0 && p.take_request() {
        if hooks::decides(p) {
            hooks::slice_over(p, m.shared());
        }
        // SAFETY: this M owns the P.
        unsafe { p.end_slice(m.shared()) };
    }
    if flags & RETIRE != 0 {
        drop_spinning(m);
        m.drop_p();
        m.shared().retire(p);
        return false;
    }
    true
}

/// What a look at all sources came to.
enum Look {
    Found(Found),
    /// Somebody is next in line elsewhere, and will run there any moment, or be stolen.
    Soon,
    Nothing,
}

/// All sources once.
fn look(m: &'static M, p: &'static P) -> Look {
    if hooks::decides(p)
        && let Some(found) = hooks::look(m, p)
    {
        return found.map_or(Look::Nothing, Look::Found);
    }
    let shared: &Shared = m.shared();
    if time::is_turn(p) {
        time::run_due(p, shared, &p.timers);
    }
    if global_turn(p) && netpoll::is_unwatched() {
        netpoll::look(p, shared);
    }
    // Not if the next one was just woken. SAFETY: this M owns the P.
    let slice_ended =
        !p.runq.has_next() && !p.has_fresh() && std::mem::take(unsafe { &mut p.core().global_first });
    if (slice_ended || urgent_first(p, shared) || global_turn(p))
        && let Some(g) = shared.take_global(p, false)
    {
        if slice_ended {
            // SAFETY: as above.
            unsafe { p.core() }.global_tick = p.tick.load(Relaxed);
        }
        return Look::Found((g, false));
    }
    if let Some((g, inherit)) = p.runq.pop() {
        return Look::Found((own(g), inherit));
    }
    if let Some(g) = shared.take_global(p, true) {
        return Look::Found((g, false));
    }
    if netpoll::is_unwatched() {
        if let Some(g) = rob_stalled(m, p) {
            return Look::Found((g, false));
        }
        if netpoll::look(p, shared)
            && let Some((g, inherit)) = p.runq.pop()
        {
            return Look::Found((own(g), inherit));
        }
    }
    if m.is_spinning() || shared.counts.start_spinning(shared.procs()) {
        m.set_spinning(true);
        return steal(m, p);
    }
    Look::Nothing
}

/// Half of the ring of a P that stands still. TUNED: who looks at the network first, as Go does, always has somebody to
/// run, and those in the ring wait for as long as the kernel lets the thread wait: an echo server with 64 connections
/// on two CPUs, one of which the client needs, answered one request in a hundred after 2.4 ms; 1.3 like this.
fn rob_stalled(m: &'static M, p: &'static P) -> Option<GPtr> {
    let stalled = others(m, p).take(PS_PER_LOOK).find(|victim| m.thief.is_stalled(victim))?;
    p.counters.steal_attempts.add(1);
    rob(stalled, p, false)
}

/// The other Ps, from a random one on. Those too that shall retire: their owner may not come to it for long.
fn others(m: &M, p: &P) -> impl Iterator<Item = &'static P> {
    let shared = m.shared();
    let (n, start, own) = (shared.all_ps().count() as u64, m.random(), p.id);
    (0..n).map(move |i| shared.p((start.wrapping_add(i) % n) as u32)).filter(move |other| other.id != own)
}

/// Half of the ring of `victim`, and its `runnext` if wanted.
fn rob(victim: &P, p: &P, next_too: bool) -> Option<GPtr> {
    let fresh = victim.has_fresh();
    let g = victim.runq.steal_into(&p.runq, next_too)?;
    p.counters.steals.add(1);
    if fresh {
        p.mark_fresh();
    }
    Some(own(g))
}

/// Half of somebody's ring, or the due timers of somebody, from a random start; as the thief's patience allows.
fn steal(m: &'static M, p: &'static P) -> Look {
    let shared: &Shared = m.shared();
    let mut left_alone = false;
    for victim in others(m, p) {
        if timer_is_due(victim) {
            time::run_due(p, shared, &victim.timers);
            if let Some((g, inherit)) = p.runq.pop() {
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

/// A spinning M found work: if it was the last to look, somebody else must, should there be more.
fn stop_spinning_with_work(m: &M) {
    m.set_spinning(false);
    // ORDERING: SeqCst in `stop_spinning`: submitters that saw us spin woke nobody; so look after it.
    if m.shared().counts.stop_spinning() && (m.shared().any_work() || m.shared().timers_unwatched()) {
        m.shared().wake_one();
    }
}

fn drop_spinning(m: &M) {
    if m.is_spinning() {
        stop_spinning_with_work(m);
    }
}

fn release_p(m: &M, p: &'static P) {
    m.drop_p();
    let mut synced = m.shared().synced.lock();
    m.shared().put_idle_locked(&mut synced, p);
    drop(synced);
    drop_spinning(m);
}

/// Nothing found: gives the P up, looks once more, sleeps. `Some(None)`: the runtime stops.
fn go_idle(m: &'static M, p: &'static P) -> Option<Option<Found>> {
    let shared: &Shared = m.shared();
    let mut synced = shared.synced.lock();
    if p.flags.load(Relaxed) & (PREEMPT | RETIRE) != 0 {
        return None; // obey first
    }
    if hooks::decides(p) && shared.global_len() > 0 {
        return None; // for the policy to queue
    }
    if let Some(g) = shared.take_global_locked(&mut synced, p, true) {
        drop(synced);
        drop_spinning(m);
        return Some(Some((g, false)));
    }
    m.drop_p();
    shared.put_idle_locked(&mut synced, p);
    drop(synced);

    if m.is_spinning() {
        m.set_spinning(false);
        _ = shared.counts.stop_spinning();
        // Work submitted while we span woke nobody: look again, as the very last step (sched/README.md).
        if shared.any_work()
            && let Some(p) = shared.take_idle_p()
        {
            m.take_p(p);
            m.set_spinning(true);
            shared.counts.must_spin();
            return None;
        }
    }
    match sleep(m, shared.next_timer_ns(), Watching::new()) {
        true => None,
        false => Some(None),
    }
}

/// Sleeps on the list of idle Ms, until it is given a P, or takes one when the first timer is due or a goroutine became
/// ready that it watches. `false`: the runtime stops, or there are more idle Ms than anybody needs.
fn sleep(m: &'static M, first_timer_ns: u64, mut watching: Option<Watching>) -> bool {
    let shared: &Shared = m.shared();
    let Some(deadline) = join_sleepers(m, first_timer_ns, watching.is_some()) else {
        drop(watching);
        return end();
    };
    loop {
        let keeper = deadline != u64::MAX;
        let until = if keeper { deadline } else { clock::now_ns() + IDLE_LIFE_NS };
        let slept = match watching.take() {
            Some(watching) => watch(m, watching, deadline),
            None if m.sleep(Some(until)) => Slept::Woken,
            None => Slept::Deadline,
        };
        if keeper {
            // ORDERING: above. If it is another number, an earlier riser took over, or a later one.
            _ = shared.sleep_until_ns.compare_exchange(deadline, u64::MAX, SeqCst, Relaxed);
        }
        match slept {
            Slept::Woken => {
                if keeper && !m.is_spinning() && shared.timers_unwatched() {
                    // It was woken to run a goroutine, and will not look at the timers for long.
                    shared.wake_one();
                }
                return accept(m) || end();
            }
            // WHY NOT call somebody to keep the time: it comes back soon, most likely; else the monitor does.
            Slept::Ready => return true,
            Slept::Deadline => {}
        }
        let mut synced = shared.synced.lock();
        let Some(at) = synced.idle_ms.iter().position(|other| other.id == m.id) else {
            // Somebody took us from the list and is about to wake us.
            drop(synced);
            m.sleep(None);
            return accept(m) || end();
        };
        if keeper {
            synced.idle_ms.swap_remove(at);
            drop(synced);
            take_p_for_timers(m);
            return true;
        }
        if synced.idle_ms.len() > KEEP_IDLE {
            synced.idle_ms.swap_remove(at);
            return false;
        }
    }
}

/// The runtime stops, and this M with it. If it watched, somebody of another runtime must.
#[cold]
fn end() -> bool {
    monitor::pass_watch_on();
    false
}

/// How a sleep ended.
enum Slept {
    Woken,
    /// It has a P and goroutines in its queue, or none of both.
    Ready,
    Deadline,
}

/// Sleeps in the netpoller, until the deadline at the most.
fn watch(m: &'static M, watching: Watching, deadline_ns: u64) -> Slept {
    let shared: &Shared = m.shared();
    loop {
        let (woken, ready) = m.sleep_watching(&watching, deadline_ns);
        let ready = netpoll::send_home(ready, shared);
        if ready.len() != 0 {
            // First: who gives its P up from here on watches in our stead.
            drop(watching);
            return if woken { late_with_work(m, ready, false) } else { with_work(m, ready) };
        }
        if woken {
            return Slept::Woken;
        }
        if deadline_ns != u64::MAX && clock::now_ns() >= deadline_ns {
            return Slept::Deadline;
        }
    }
}

/// Goroutines became ready: with an idle P this M runs them.
fn with_work(m: &'static M, ready: GList) -> Slept {
    let shared: &Shared = m.shared();
    let mut synced = shared.synced.lock();
    let Some(at) = synced.idle_ms.iter().position(|other| other.id == m.id) else {
        drop(synced);
        return late_with_work(m, ready, true);
    };
    synced.idle_ms.swap_remove(at);
    let p = shared.take_idle_p_locked(&mut synced);
    drop(synced);
    match p {
        Some(p) => {
            m.take_p(p);
            netpoll::queue(ready, p, shared);
        }
        None => {
            // Every P is busy: they find them, and the network too from now on. This M sleeps like any other.
            shared.push_urgent(ready);
            shared.wake_one();
        }
    }
    Slept::Ready
}

/// The same, when somebody else has called this M, or is just about to.
#[cold]
fn late_with_work(m: &'static M, ready: GList, wait: bool) -> Slept {
    m.shared().push_urgent(ready);
    if wait {
        m.sleep(None);
    }
    Slept::Woken
}

/// Gets on the list. Returns when to get up for a timer (`u64::MAX`: another M does), or `None` to end.
fn join_sleepers(m: &'static M, first_timer_ns: u64, watching: bool) -> Option<u64> {
    let shared: &Shared = m.shared();
    let mut synced = shared.synced.lock();
    if shared.stopping.load(Relaxed) {
        return None;
    }
    m.cpu.store(this_cpu(), Relaxed);
    match watching {
        true => synced.idle_ms.insert(0, m), // the last to be called for something else
        false => synced.idle_ms.push(m),
    }
    if first_timer_ns >= shared.sleep_until_ns.load(Relaxed) {
        return Some(u64::MAX);
    }
    // ORDERING: SeqCst: publish until when we sleep, then look at the heaps again: see `time::add`.
    shared.sleep_until_ns.store(first_timer_ns, SeqCst);
    let deadline = first_timer_ns.min(shared.next_timer_ns());
    shared.sleep_until_ns.store(deadline, SeqCst); // ORDERING: above
    Some(deadline)
}

/// A timer is due: run it, with any idle P. If none is idle, the Ps are awake and look for themselves.
fn take_p_for_timers(m: &M) {
    if let Some(p) = m.shared().take_idle_p() {
        m.take_p(p);
        m.set_spinning(true);
        m.shared().counts.must_spin();
    }
}

/// Takes the P that the waker left. `false`: there is none; the runtime stops, or, to a bound goroutine, the monitor
/// lets it run without.
pub(super) fn accept(m: &M) -> bool {
    // SAFETY: Ps live as long as the runtime. ORDERING: Acquire: pairs with the waker's word.
    match unsafe { m.next_p.swap(null_mut(), Acquire).as_ref() } {
        Some(p) => {
            m.take_p(p);
            true
        }
        None => false,
    }
}

/// So long an idle M waits for work before it ends, if there are more than [`KEEP_IDLE`].
const IDLE_LIFE_NS: u64 = 5_000_000_000;
const KEEP_IDLE: usize = 4;
