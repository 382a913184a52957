//! An M that has nothing to run: it looks for a goroutine, gives its P up and sleeps, until it is given one.

use crate::policies::order::{FEW, IDLE_LIFE_NS, KEEP_IDLE, WARY_NS};
use crate::sched::engine::hooks;
use crate::sched::netpoll::{self, Watching};
use crate::sched::pick::global::GList;
use crate::sched::pick::{self, Found, Look};
use crate::sched::pick::{From, Why, enqueue_all};
use crate::sched::run::g::GPtr;
use crate::sched::run::m::M;
use crate::sched::run::p::{P, PREEMPT, RETIRE};
use crate::sched::run::worker;
use crate::sched::shared::Shared;
use crate::sched::traced;
use crate::stack::slab;
use crate::sys::{clock, this_cpu};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// Finds a goroutine to run; sleeps if there is none. Returns `None` if the thread shall end.
///
/// The M is on its own thread-locals. It has a P when this is called or sleeps until it gets one.
pub(crate) fn runnable(m: &'static M) -> Option<Found> {
    let shared: &Shared = m.shared();
    loop {
        traced::looks_around(m);
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
        if shared.is_stopping() {
            release_p(m, p);
            return None;
        }
        match pick::next(m, p) {
            Look::Found(found) => {
                m.thief.rest();
                if m.is_spinning() {
                    stop_spinning_with_work(m);
                }
                return Some(found);
            }
            Look::Soon => m.thief.nap(),
            Look::Nothing if slab::take_some_apart() => {}
            Look::Nothing => {
                m.thief.rest();
                if let Some(found) = go_idle(m, p) {
                    return found;
                }
            }
        }
    }
}

/// Does what the flags say. Returns `false` if the P is gone.
#[cold]
fn obey(m: &'static M, p: &'static P) -> bool {
    let flags = p.flags.load(Relaxed);
    if flags & PREEMPT != 0 && p.take_request() {
        match hooks::decides(p) {
            true => hooks::slice_over(p, m.shared()),
            // SAFETY: this M owns the P.
            false if p.has_shared_slice() => unsafe { p.end_shared_slice(m.shared()) },
            false => {} // the goroutine that was asked has just made room
        }
    }
    if flags & RETIRE != 0 {
        drop_spinning(m);
        m.drop_p();
        m.shared().retire(p);
        return false;
    }
    true
}

/// Ends the spinning of an M that found work: if it was the last to look, and there is more, it wakes another.
///
/// Most goroutines that a timer wakes park at once, and the M comes back long before another thread is awake. So an M
/// leaves neither a few of them nor the time to another, unless Ms are [wary](is_wary): should it not come back, the
/// monitor finds out. TUNED: `timers n=20000` woke two threads for each timer.
fn stop_spinning_with_work(m: &M) {
    m.set_spinning(false);
    let shared = m.shared();
    let up_for_timers = m.up_for_timers.replace(false);
    // ORDERING: SeqCst in `stop_spinning`: submitters that saw us spin woke no M; so look after it.
    if !shared.counts.stop_spinning() {
        return;
    }
    let has_work = if up_for_timers { has_work_for_another(m) } else { shared.any_work() };
    if has_work || (shared.any_work() || shared.timers_unwatched()) && is_wary(shared) {
        shared.wake_one();
    }
}

/// Returns whether there is more to do than a few goroutines in the M's own ring.
fn has_work_for_another(m: &M) -> bool {
    let shared = m.shared();
    let own = m.p.load(Relaxed).cast_const();
    let is_left = |p: &P| if std::ptr::eq(p, own) { p.runq.len() > FEW } else { !p.runq.is_empty() };
    shared.global_len() != 0 || shared.policy.has_work() || shared.all_ps().any(is_left)
}

/// Returns whether, a short while ago, an M that had got up for timers did not come back soon.
fn is_wary(shared: &Shared) -> bool {
    clock::now_ns() < shared.wary_since_ns.load(Relaxed).saturating_add(WARY_NS)
}

fn drop_spinning(m: &M) {
    if m.is_spinning() {
        stop_spinning_with_work(m);
    }
}

fn release_p(m: &M, p: &'static P) {
    m.drop_p();
    traced::idle(m, p);
    let mut synced = m.shared().synced.lock();
    m.shared().put_idle_locked(&mut synced, p);
    drop(synced);
    drop_spinning(m);
}

/// Gives the P up, since nothing was found, looks once more, and sleeps. Returns `None` to look again, `Some(None)` if
/// the thread shall end.
fn go_idle(m: &'static M, p: &'static P) -> Option<Option<Found>> {
    let shared: &Shared = m.shared();
    m.up_for_timers.set(false);
    let mut synced = shared.synced.lock();
    if p.flags.load(Relaxed) & (PREEMPT | RETIRE) != 0 {
        return None; // obey first
    }
    if hooks::decides(p) && shared.global_len() > 0 {
        return None; // for the policy to queue
    }
    if let Some(found) = pick::next_locked(shared, &mut synced, p) {
        drop(synced);
        drop_spinning(m);
        return Some(Some(found));
    }
    m.drop_p();
    traced::idle(m, p);
    shared.put_idle_locked(&mut synced, p);
    drop(synced);

    if m.is_spinning() {
        m.set_spinning(false);
        _ = shared.counts.stop_spinning();
        // Threads that submitted work while we span woke no M: look again, as the very last step (sched/README.md).
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

/// Sleeps on the list of idle Ms, until it is given a P, or takes one when the first timer is due or a goroutine that
/// it watches became ready. Returns `false` if the runtime stops, or there are more than [`KEEP_IDLE`] idle Ms.
fn sleep(m: &'static M, first_timer_ns: u64, watching: Option<Watching>) -> bool {
    let Some(deadline) = join_sleepers(m, first_timer_ns, watching.is_some()) else {
        return false;
    };
    sleep_until(m, deadline, watching)
}

/// Sleeps likewise, for an M that was put on the list before its thread began.
pub(crate) fn sleep_listed(m: &'static M) -> bool {
    sleep_until(m, u64::MAX, None)
}

/// Sleeps until it is woken, or until the deadline in ns; `u64::MAX`: another M keeps the time.
fn sleep_until(m: &'static M, deadline: u64, mut watching: Option<Watching>) -> bool {
    let shared: &Shared = m.shared();
    loop {
        let keeper = deadline != u64::MAX;
        let until = if keeper { deadline } else { clock::now_ns() + IDLE_LIFE_NS };
        let slept = match watching.take() {
            Some(watching) => watch(m, watching, deadline),
            None if m.sleep(Some(until)) => Slept::Woken,
            None => Slept::Deadline,
        };
        if keeper {
            // ORDERING: above. If it is another number, an M that gets up earlier took over, or a later one.
            _ = shared.sleep_until_ns.compare_exchange(deadline, u64::MAX, SeqCst, Relaxed);
        }
        match slept {
            Slept::Woken => {
                if keeper && !m.is_spinning() && shared.timers_unwatched() {
                    // The M was woken to run a goroutine, and will not look at the timers for long.
                    shared.wake_one();
                }
                return woken(m);
            }
            // WHY NOT call an M to keep the time: this one comes back soon, most likely; else the monitor does.
            Slept::Ready => return true,
            Slept::Deadline => {}
        }
        let mut synced = shared.synced.lock();
        if !synced.idle_ms.has(m) {
            // Another thread took us from the list and is about to wake us.
            drop(synced);
            m.sleep(None);
            return woken(m);
        }
        if keeper {
            synced.idle_ms.remove(m);
            drop(synced);
            shared.last_timer_ns.store(deadline, Relaxed);
            take_p_for_timers(m);
            return true;
        }
        if synced.idle_ms.len() > KEEP_IDLE {
            synced.idle_ms.remove(m);
            return false;
        }
    }
}

/// Serves an M on the list that was woken: with a P, or to run a goroutine without one. Returns `false` if the runtime
/// stops.
fn woken(m: &'static M) -> bool {
    match GPtr::new(m.next_g.swap(null_mut(), Acquire)) {
        Some(g) => worker::run_without_p(m, g),
        None => return accept(m),
    }
    true
}

/// The way in which a sleep ended.
enum Slept {
    Woken,
    /// The M has a P and goroutines in its queue, or neither.
    Ready,
    Deadline,
}

/// Sleeps in the netpoller, until the deadline at the most.
fn watch(m: &'static M, watching: Watching, deadline_ns: u64) -> Slept {
    let shared: &Shared = m.shared();
    loop {
        let (woken, ready) = m.sleep_watching(&watching, deadline_ns);
        traced::polled(shared, None, ready.len());
        let ready = netpoll::send_home(ready, shared);
        if ready.len() != 0 {
            // The watch ends first: an M that gives its P up from here on watches in our stead.
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

/// Runs goroutines that became ready, if a P is idle; else queues them for the busy ones.
fn with_work(m: &'static M, ready: GList) -> Slept {
    let shared: &Shared = m.shared();
    let mut synced = shared.synced.lock();
    if !synced.idle_ms.remove(m) {
        drop(synced);
        return late_with_work(m, ready, true);
    }
    let p = shared.take_idle_p_locked(&mut synced);
    drop(synced);
    match p {
        Some(p) => {
            m.take_p(p);
            netpoll::queue(ready, p, shared);
        }
        None => {
            // Every P is busy: they find these goroutines, and the network too from now on. This M sleeps like any
            // other.
            enqueue_all(shared, ready, Why::Network, From::Elsewhere);
            shared.wake_one();
        }
    }
    Slept::Ready
}

/// Queues goroutines that became ready, when another thread has called this M, or is just about to.
#[cold]
fn late_with_work(m: &'static M, ready: GList, wait: bool) -> Slept {
    enqueue_all(m.shared(), ready, Why::Network, From::Elsewhere);
    if wait {
        m.sleep(None);
    }
    Slept::Woken
}

/// Gets on the list. Returns the time in ns to get up for a timer (`u64::MAX`: another M does), or `None` to end.
fn join_sleepers(m: &'static M, first_timer_ns: u64, watching: bool) -> Option<u64> {
    let shared: &Shared = m.shared();
    let synced = shared.synced.lock();
    if shared.is_stopping() {
        return None;
    }
    let mut synced = shared.stop_if_done(synced)?;
    m.cpu.store(this_cpu(), Relaxed);
    match watching {
        true => synced.idle_ms.push_front(m), // the last to be called for something else
        false => synced.idle_ms.push_back(m),
    }
    let first_ns = shared.gets_up_ns(first_timer_ns);
    if first_ns >= shared.sleep_until_ns.load(Relaxed) {
        return Some(u64::MAX);
    }
    // ORDERING: SeqCst: publish until when we sleep, then look at the heaps again: see `timers::announce`.
    shared.sleep_until_ns.store(first_ns, SeqCst);
    let deadline = first_ns.min(shared.gets_up_ns(shared.next_timer_ns()));
    shared.sleep_until_ns.store(deadline, SeqCst); // ORDERING: above
    Some(deadline)
}

/// Takes an idle P to run a timer that is due. If none is idle, the Ps are awake and look for themselves.
fn take_p_for_timers(m: &M) {
    if let Some(p) = m.shared().take_idle_p() {
        m.take_p(p);
        m.set_spinning(true);
        m.shared().counts.must_spin();
        m.up_for_timers.set(true);
    }
}

/// Takes the P that the waker left. Returns `false` if there is none: the runtime stops, or, to a bound goroutine, the
/// monitor lets it run without.
pub(crate) fn accept(m: &M) -> bool {
    // SAFETY: Ps live as long as the runtime. ORDERING: Acquire: pairs with the waker's word.
    match unsafe { m.next_p.swap(null_mut(), Acquire).as_ref() } {
        Some(p) => {
            m.take_p(p);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::run::current;
    use std::time::Duration;

    #[test]
    fn an_m_gets_up_once_in_the_slack() {
        let slack = Duration::from_millis(2);
        let slack_ns = slack.as_nanos() as u64;
        crate::Runtime::builder().procs(1).timer_slack(slack).build().expect("a runtime").run(|| {
            let shared = current::g().expect("a goroutine").shared();
            let now = clock::now_ns();
            assert_eq!(shared.gets_up_ns(now), now, "the first one");
            shared.last_timer_ns.store(now, Relaxed);
            assert_eq!(shared.gets_up_ns(now + 1), now + slack_ns);
            assert_eq!(shared.gets_up_ns(now + slack_ns + 1), now + slack_ns + 1, "after a pause");
            assert_eq!(shared.gets_up_ns(u64::MAX), u64::MAX, "none");
        });
    }

    #[test]
    fn an_m_is_wary_for_a_while() {
        crate::Runtime::builder().procs(1).build().expect("a runtime").run(|| {
            let shared = current::g().expect("a goroutine").shared();
            let now = clock::now_ns();
            assert!(!is_wary(shared));
            shared.wary_since_ns.store(now, Relaxed);
            assert!(is_wary(shared) || clock::now_ns() - now >= WARY_NS);
            shared.wary_since_ns.store(now - WARY_NS, Relaxed);
            assert!(!is_wary(shared));
        });
    }
}
