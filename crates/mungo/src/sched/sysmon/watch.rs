//! The monitor's looks at goroutines: which one is blocked, and which one computes while others wait.
//!
//! The monitor does not disturb a goroutine whose P no other goroutine wants. Otherwise, for a P that has not switched
//! for a while:
//! * its goroutine said that it blocks: the P moves on after 20 µs;
//! * its thread's CPU clock stands still and the kernel says that it sleeps: it blocks without a word, the P moves on;
//! * it computes and its slice is over, or a fresh goroutine waits (`pick/classes.rs`): it is asked to make room, and
//!   interrupted if it is not in the runtime.
//!
//! The clock that counts is the thread's CPU clock, beside the wall clock: a thread without a CPU does not compute.

use super::helper;
use super::sight::Sight;
use crate::debug_env::AsyncPreempt;
use crate::policies::order::{
    ANNOUNCED_NS, CONCERNED_NS, CROWDED_NS, FRESH_NS, LATE_TIMER_NS, LET_GO_ON, PARTING_NS, REPEAT_NS,
    STRAY_COMPUTES_NS, STRAYS_PER_LOOK, STUCK_NS, SUSPECT_NS,
};
use crate::protocols::runq::RunQueue;
use crate::sched::config::MAX_PROCS;
use crate::sched::engine::hooks;
use crate::sched::netpoll;
use crate::sched::pick::global::GList;
use crate::sched::profile;
use crate::sched::run::g::{G, GPtr};
use crate::sched::run::m::M;
use crate::sched::run::p::{P, PREEMPT, RETIRE};
use crate::sched::shared::Shared;
use crate::sched::threads::strays::Strays;
use crate::sched::threads::{blocking, preempt};
use crate::sys::{clock, membarrier, task};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The monitor's memory. Its room is made at the start: see `monitor.rs`.
pub(crate) struct Watch {
    seen: Vec<Sight>,
    strays: Strays,
    /// The Ms that were sent the signal and have to pass their P on. At most [`MAX_PROCS`]: more are not sent it.
    parting: Vec<Parting>,
    /// Time in ns at which a goroutine that is in the way of a fresh one can first be interrupted, or at which a slice
    /// is over while others wait; `u64::MAX`: none is.
    ripe_ns: u64,
    /// Time in ns when interrupted goroutines were last let go on without a P.
    released_ns: u64,
    /// A ring for goroutines that are moved from a P's ring.
    scratch: RunQueue<G>,
}

/// An M whose goroutine shall give its P up in the signal handler.
struct Parting {
    m: &'static M,
    p: &'static P,
    tick: u32,
    since_ns: u64,
}

// SAFETY: the monitor's alone; the pointers are compared or lead to Ms, which live as long as the runtime.
unsafe impl Send for Watch {}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch {
            seen: Vec::with_capacity(MAX_PROCS),
            strays: Strays::new(),
            parting: Vec::with_capacity(MAX_PROCS),
            ripe_ns: u64::MAX,
            released_ns: 0,
            scratch: RunQueue::new(),
        }
    }

    /// Looks at all Ps. Returns whether a goroutine was blocked: where one is, others are, so look again soon.
    ///
    /// WHY NOT always look again soon: a monitor that looks too often uses up the credit that the kernel gives to a
    /// thread that sleeps, and waits in line with those that compute. TUNED: a wake-up among spinning goroutines went
    /// from 3 ms to 0.1 ms.
    pub(crate) fn look(&mut self, shared: &Shared, now: u64) -> bool {
        self.seen.resize(shared.all_ps().count(), Sight::NOTHING);
        self.ripe_ns = u64::MAX;
        let concerned = shared.any_work() || netpoll::anyone_waits();
        for (p, seen) in shared.all_ps().zip(&mut self.seen) {
            seen.update(p, now);
            if concerned || seen.same || p.timers.next_ns() <= now {
                seen.read_cpu(now);
            }
            if seen.computes() && seen.ran_ns(now) >= FRESH_NS && p.runq.is_empty() {
                p.note_long_run(seen.switches);
            }
        }
        if shared.policy.is_active() && (shared.counts.idle_ps() == 0 || shared.policy.has_work()) {
            shared.helper.ask(helper::JOB_POLICY);
        }
        self.serve_urgent(shared, now);
        self.serve_network(shared);
        if shared.policy.is_active() && shared.counts.idle_ps() == 0 && timer_is_late(shared, now) {
            shared.helper.ask(helper::TIMERS);
        }
        let mut blocked = false;
        // There may be more Ps by now: `set_procs` runs at the same time.
        for (at, p) in shared.all_ps().take(self.seen.len()).enumerate() {
            blocked |= self.look_at(shared, p, at, now);
        }
        self.make_room_for_fresh(shared, now);
        self.pass_on_in_their_place(shared, now);
        self.rescue(shared, now);
        self.look_at_strays(now);
        if shared.starter.busy_since_ns().is_some_and(|since| now.saturating_sub(since) >= STUCK_NS) {
            self.let_go_on(shared, None, now);
        }
        blocked
    }

    /// Looks at a P, should a goroutine wait for it: whether its goroutine is blocked, or is in the way of others.
    /// Returns whether it was blocked and lost the P.
    fn look_at(&mut self, shared: &Shared, p: &P, at: usize, now: u64) -> bool {
        if profile::waits_are_on() {
            p.sampler.switches.hurry(now);
        }
        let seen = self.seen[at];
        let flags = p.flags.load(Relaxed);
        // SAFETY: Ms live as long as the runtime.
        let Some(m) = (unsafe { seen.m.as_ref() }) else { return false };
        let wanted = flags & RETIRE != 0 || has_waiting(shared, p, now);
        // An M that blocks does not look at the network. If no other one does, its P goes to an M that watches; while
        // all compute, the helper looks (`serve_network`), and where a P is idle, `rescue` wakes an M.
        let network_waits = shared.counts.idle_ps() == 0 && netpoll::is_unwatched();
        if !wanted && !network_waits {
            return false;
        }
        let slice_ns = if hooks::decides(p) { p.slice_ns.load(Relaxed) } else { shared.config.time_slice_ns };
        let is_short = (1..CONCERNED_NS).contains(&slice_ns); // 0: a policy has not said it yet
        let mut over_ns = slice_ns;
        if is_short {
            // The slices of all Ps end at one look, by the clock. TUNED: `computing tasks=8 slice_us=200`: with a look
            // for each P 2.57 s of CPU time, so 2.20, without slices 1.96.
            over_ns = slice_ns / 2;
            if wanted {
                self.ripe_ns = self.ripe_ns.min((now / slice_ns + 1) * slice_ns);
            }
        }
        let is_judged = seen.same || is_short && seen.ran_ns(now) >= over_ns;
        if !is_judged {
            // Goroutines that wake each other share a slice.
            if wanted && now - seen.tick_since_ns >= over_ns {
                p.ask_to_yield(seen.tick, 0);
            }
            // The last of them has perhaps begun to compute, and no other P will take the rest.
            if !p.runq.is_empty() && self.one_computes() {
                self.ripe_ns = self.ripe_ns.min(now + FRESH_NS);
            }
            return false;
        }
        let ran = seen.ran_ns(now);
        if ran >= ANNOUNCED_NS && announced(m) && (membarrier::is_present() || seen.cpu_stands) {
            return self.retake(shared, m, p, now, false);
        }
        if ran < SUSPECT_NS {
            return false;
        }
        if wanted && !m.is_outside() && ran >= STUCK_NS {
            // The thread sleeps or spins for a lock, or the kernel just gives it no CPU.
            if seen.cpu_ns() >= STUCK_NS / 4 || seen.cpu_stands && thread_sleeps(m) {
                self.let_go_on(shared, Some(p), now);
            }
            return false;
        }
        if seen.cpu_stands && thread_sleeps(m) {
            return m.is_outside() && self.retake(shared, m, p, now, false);
        }
        // A goroutine that was asked already is asked again until it hears.
        let in_the_way =
            ran >= over_ns || flags & PREEMPT != 0 || self.is_in_the_way(shared, p, at, slice_ns, now);
        if wanted && in_the_way {
            self.interrupt(shared, m, p, at, now);
        }
        false
    }

    /// Returns whether the goroutine on `p` computes while a fresh one waits in its ring, or for a timer of it. If only
    /// the time is not yet over, notes when it will be.
    fn is_in_the_way(&mut self, shared: &Shared, p: &P, at: usize, slice_ns: u64, now: u64) -> bool {
        let waits = !p.runq.is_empty() || p.timers.next_ns() <= now;
        waits && !shared.policy.is_active() && self.is_ripe(p, at, slice_ns, now)
    }

    /// Returns whether the goroutine on `p` has computed long enough to make room for a fresh one. If not, notes when
    /// it will have.
    fn is_ripe(&mut self, p: &P, at: usize, slice_ns: u64, now: u64) -> bool {
        if !self.seen[at].computes() {
            return false; // nor will it have soon: its thread has no CPU, or it has just begun
        }
        let ran = self.seen[at].ran_ns(now);
        let fresh_ns = FRESH_NS.min(slice_ns / 2);
        let young_ns = fresh_ns.saturating_sub(ran).max((fresh_ns / 2).saturating_sub(self.seen[at].cpu_ns()));
        let left_ns = young_ns.max(p.credit.worth_in_ns(ran));
        if left_ns != 0 {
            self.ripe_ns = self.ripe_ns.min(now + left_ns);
        }
        left_ns == 0
    }

    /// Makes the P that has computed longest make room, if fresh goroutines wait in the global queue and every P
    /// computes, or too many of them wait in the ring of one P.
    fn make_room_for_fresh(&mut self, shared: &Shared, now: u64) {
        let behind = self.seen.iter().any(|seen| seen.behind);
        if !(behind || shared.has_fresh()) || shared.policy.is_active() || !self.one_computes() {
            return;
        }
        if !behind && !self.all_compute(shared) {
            // A P that does not compute finds them itself, unless it has just begun to compute.
            self.ripe_ns = self.ripe_ns.min(now + FRESH_NS);
            return;
        }
        let mut by_age: Option<(usize, &P)> = None;
        for (at, p) in shared.all_ps().enumerate().take(self.seen.len().min(shared.procs() as usize)) {
            if self.is_ripe(p, at, shared.config.time_slice_ns, now)
                && by_age.is_none_or(|(best, _)| self.seen[at].since_ns < self.seen[best].since_ns)
            {
                by_age = Some((at, p));
            }
        }
        if let Some((at, p)) = by_age {
            // SAFETY: Ms live as long as the runtime.
            self.interrupt(shared, unsafe { &*self.seen[at].m }, p, at, now);
        }
    }

    /// Asks and interrupts the goroutine on `p`, so that it makes room.
    fn interrupt(&mut self, shared: &Shared, m: &'static M, p: &P, at: usize, now: u64) {
        let seen = &self.seen[at];
        p.ask_to_yield(seen.tick, seen.used_ns(now).max(1));
        self.evict(shared, m, p, now);
    }

    /// Takes the P from a goroutine outside the runtime that computes or is blocked. Returns `false` if it is inside
    /// after all.
    fn retake(&mut self, shared: &Shared, m: &'static M, p: &P, now: u64, computes: bool) -> bool {
        let Some(p) = blocking::retake(m, p, computes) else { return false };
        _ = p.take_request();
        p.m.store(std::ptr::null_mut(), Relaxed);
        let counter = if computes { &p.counters.preemptions } else { &p.counters.retakes };
        counter.add(1);
        let cpu_ns = thread_cpu_ns(m).unwrap_or(0);
        hooks::retaken(shared, m, cpu_ns);
        self.strays.add(m, now, cpu_ns, computes);
        // SAFETY: Ps live as long as the runtime.
        shared.hand_off(unsafe { &*std::ptr::from_ref(p) });
        true
    }

    /// Takes the P from threads that were interrupted and do not pass it on, because they have no CPU or are in libc.
    fn pass_on_in_their_place(&mut self, shared: &Shared, now: u64) {
        let mut parting = std::mem::take(&mut self.parting);
        parting.retain(|Parting { m, p, tick, since_ns }| {
            let waits = std::ptr::eq(p.m.load(Acquire), *m) && p.is_asked_on(*tick);
            if waits && now - since_ns >= self.parting_ns(shared) {
                self.retake(shared, m, p, now, true);
                return false;
            }
            if waits && m.declined.swap(false, Relaxed) {
                interrupt(m);
            }
            waits
        });
        self.parting = parting;
    }

    /// Returns the time in ns that an interrupted thread has to give its P up.
    fn parting_ns(&self, shared: &Shared) -> u64 {
        match self.strays.computing() < shared.procs() as usize {
            true => PARTING_NS,
            false => CROWDED_NS,
        }
    }

    /// Serves a policy that wants Ps for goroutines that have just become runnable.
    fn serve_urgent(&mut self, shared: &Shared, now: u64) {
        for p in shared.all_ps() {
            if p.wanted_now.load(Relaxed)
                && p.wanted_now.swap(false, Relaxed)
                && p.flags.load(Relaxed) & PREEMPT != 0
            {
                // SAFETY: Ms live as long as the runtime.
                if let Some(m) = unsafe { p.m.load(Acquire).as_ref() } {
                    self.evict(shared, m, p, now);
                }
            }
        }
    }

    /// Asks the helper to poll the network while all Ps compute, so that none does; it calls the monitor if it woke
    /// goroutines.
    fn serve_network(&mut self, shared: &Shared) {
        if self.all_compute(shared) && netpoll::is_unwatched() && netpoll::has_news() {
            shared.helper.ask(helper::NETWORK);
        }
    }

    /// Interrupts a goroutine that computes and was asked to give its P up. If it is in the runtime, it sees the
    /// request there.
    fn evict(&mut self, shared: &Shared, m: &'static M, p: &P, now: u64) {
        let allowed = match shared.config.async_preempt {
            AsyncPreempt::Off => false,
            AsyncPreempt::Thread => membarrier::is_present(),
            AsyncPreempt::Inject => true,
        };
        let tick = p.tick.load(Relaxed);
        let sent = self.parting.iter().any(|sent| std::ptr::eq(sent.m, m) && sent.tick == tick);
        if !allowed || !m.is_outside() || sent || self.parting.len() == MAX_PROCS || thread_sleeps(m) {
            return;
        }
        // SAFETY: Ps live as long as the runtime.
        let p: &'static P = unsafe { &*std::ptr::from_ref(p) };
        self.parting.push(Parting { m, p, tick, since_ns: now });
        preempt::interrupt(m);
    }

    /// Sends goroutines that lost their P and compute the signal that brings them back under one.
    fn look_at_strays(&mut self, now: u64) {
        self.strays.next(STRAYS_PER_LOOK, |m| {
            let clock = &m.stray_clock;
            if now - clock.at_ns() >= STRAY_COMPUTES_NS
                && !m.in_handler.load(Relaxed)
                && let Some(cpu_ns) = thread_cpu_ns(m)
                && clock.computes(now, cpu_ns)
            {
                interrupt(m);
            }
        });
    }

    /// Lets interrupted goroutines run on without a P, those that sleep in the handler and those in queues: one of them
    /// may hold the lock that the owner of the P `stuck`, or the starter, waits for.
    #[cold]
    fn let_go_on(&mut self, shared: &Shared, stuck: Option<&P>, now: u64) {
        if now - self.released_ns < STUCK_NS {
            return; // they have not had their time yet
        }
        self.released_ns = now;
        for m in shared.ms.live() {
            if m.in_handler.load(Relaxed) && m.ticket.release() {
                // If it computes from now on, the signal brings it back under a P.
                m.stray.store(true, Relaxed);
                self.strays.add(m, now, thread_cpu_ns(m).unwrap_or(0), false);
                m.wake();
            }
        }
        if let Some(stuck) = stuck {
            let mut ring = GList::new();
            while let Some(g) = stuck.runq.steal_into(&self.scratch, true) {
                ring.push(GPtr::new(g).expect("queues hold no null"));
                while let Some((g, _)) = self.scratch.pop() {
                    ring.push(GPtr::new(g).expect("queues hold no null"));
                }
            }
            shared.push_global(ring);
        }
        for _ in 0..LET_GO_ON {
            let Some(g) = shared.take_interrupted() else { break };
            let Some(m) = shared.run_without_p(g) else { break };
            self.strays.add(m, now, thread_cpu_ns(m).unwrap_or(0), false);
        }
    }

    /// Returns the latest time, in ns, of the next look: when the first timer is due and a little more, if its P may
    /// not come to it; when a goroutine can be interrupted for a fresh one; or when one that was interrupted has to
    /// have made room.
    ///
    /// TUNED: with a look after each timer, `timers n=20000` took twice the CPU time, half of it the monitor's.
    pub(crate) fn next_look_ns(&self, shared: &Shared, now: u64) -> u64 {
        let unwatched = shared.counts.idle_ps() != 0 && shared.timers_unwatched();
        let timer_ns = if unwatched || self.one_computes() { shared.next_timer_ns() } else { u64::MAX };
        let first = timer_ns.saturating_add(LATE_TIMER_NS).min(self.ripe_ns);
        // With short slices the next look is near.
        let slice_ns = shared.config.time_slice_ns;
        let repeat_ns = if slice_ns < CONCERNED_NS { REPEAT_NS.max(slice_ns) } else { REPEAT_NS };
        self.parting
            .iter()
            .map(|parting| match now - parting.since_ns < PARTING_NS {
                true => (parting.since_ns + PARTING_NS).min(now + repeat_ns),
                false => now + PARTING_NS, // crowded
            })
            .fold(first, u64::min)
    }

    /// Returns whether no P is idle, and each has used CPU time without a switch since an earlier look.
    pub(crate) fn all_compute(&self, shared: &Shared) -> bool {
        shared.counts.idle_ps() == 0 && self.seen.iter().take(shared.procs() as usize).all(Sight::computes)
    }

    /// Returns whether a P has used CPU time without a switch since an earlier look.
    ///
    /// TUNED: a P that has not switched because its thread has no CPU does not count. With it, `echo` with 1,000
    /// connections had a look each 250 µs, and 111,000 instead of 156,000 requests/s.
    fn one_computes(&self) -> bool {
        self.seen.iter().any(Sight::computes)
    }

    /// Returns whether there is a reason to look again within a millisecond.
    pub(crate) fn is_concerned(&self, shared: &Shared) -> bool {
        !self.strays.is_empty()
            || !self.parting.is_empty()
            || shared.held_len.load(Relaxed) != 0
            || shared.starter.busy_since_ns().is_some()
            || netpoll::is_unwatched()
            || shared.any_work()
            || shared.timers_unwatched()
            || (shared.counts.idle_ps() < shared.procs() && shared.next_timer_ns() != u64::MAX)
    }

    /// Wakes an M if a P is idle, no M looks for work, and yet there is some. By the idle protocol this is a moment
    /// between two steps of a submitter or a looker; if it lasts, it is a lost wake-up, and this keeps it from costing
    /// more than a millisecond. And the M that watched network and timers may have got up to run a goroutine, which
    /// takes long.
    fn rescue(&self, shared: &Shared, now: u64) {
        let unwatched = shared.timers_unwatched();
        let late =
            shared.next_timer_ns().saturating_add(if unwatched { LATE_TIMER_NS } else { STUCK_NS }) <= now;
        let unseen = shared.any_work() || netpoll::is_unwatched();
        if shared.counts.idle_ps() == 0 || shared.counts.spinning() != 0 || !(late || unseen) {
            return;
        }
        // A P that has not switched since the last look, while goroutines wait, or a timer that no M sleeps for. To be
        // late is not enough: the M that got up for the timer is perhaps just about to run it.
        let overdue = late && unwatched || shared.global_len() != 0;
        let is_slow = |(seen, p): (&Sight, &P)| seen.same && (overdue || !p.runq.is_empty());
        if self.seen.iter().zip(shared.all_ps()).any(is_slow) {
            shared.wary_since_ns.store(now, Relaxed);
        } else if !late && !netpoll::is_unwatched() && shared.counts.are_enough_busy() {
            return; // there are as many busy Ps as CPUs, and they move
        }
        shared.wake_one_more();
    }
}

/// Returns whether a timer is due that no P has looked after.
fn timer_is_late(shared: &Shared, now: u64) -> bool {
    shared.next_timer_ns().saturating_add(LATE_TIMER_NS) <= now
}

/// Returns whether a goroutine waits for this P: in its own queue, in the global one, or for one of its timers.
fn has_waiting(shared: &Shared, p: &P, now: u64) -> bool {
    !p.runq.is_empty() || shared.global_len() != 0 || shared.policy.has_work() || p.timers.next_ns() <= now
}

fn running_g(m: &M) -> Option<GPtr> {
    GPtr::new(m.g.load(Relaxed))
}

fn announced(m: &M) -> bool {
    running_g(m).is_some_and(|g| g.announced.load(Relaxed))
}

/// Interrupts the M's thread, unless it sleeps. The signal must not hit a blocked call: some, as `nanosleep` and
/// `poll`, return EINTR whatever the handler asks for.
fn interrupt(m: &M) {
    if !thread_sleeps(m) {
        preempt::interrupt(m);
    }
}

/// Returns the CPU time, in ns, that the M's thread has used.
pub(crate) fn thread_cpu_ns(m: &M) -> Option<u64> {
    clock::cpu_ns_of(m.tid.load(Relaxed))
}

/// Returns whether the M's thread sleeps or waits for a disk, rather than being runnable. Where the kernel does not
/// tell (no descriptor is free, `/proc` is not there), a thread whose CPU clock stands still counts as asleep: to take
/// the P of one that waits for a CPU does no harm. TUNED: to ask for it takes 20 µs, so not if the clock moves while we
/// look; the mixed web server had done 1 % fewer heavy requests.
pub(crate) fn thread_sleeps(m: &M) -> bool {
    thread_cpu_ns(m) == thread_cpu_ns(m) && task::is_asleep(m.tid.load(Relaxed)).unwrap_or(true)
}

#[cfg(all(test, mungo_native, not(miri)))]
mod tests {
    use crate::sched::pick;
    use crate::sched::run::current::Running;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// A worker waits in the runtime, as for a lock, and its holder lies in the worker's own ring.
    #[test]
    fn an_interrupted_goroutine_in_the_ring_of_a_stuck_p_goes_on() {
        let slice = Duration::from_micros(100);
        let runtime = crate::Runtime::builder().procs(1).time_slice(slice).build().expect("a runtime");
        let (turns, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let holder = {
            let (turns, stop) = (turns.clone(), stop.clone());
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    turns.fetch_add(1, Relaxed);
                }
            })
        };
        runtime.run(move || {
            let start = Instant::now();
            loop {
                let running = Running::enter().expect("a goroutine");
                if let Some(holder) = running.shared().take_interrupted() {
                    pick::push(running.p(), running.shared(), holder, false);
                    let before = turns.load(Relaxed);
                    while turns.load(Relaxed) == before {
                        assert!(start.elapsed().as_secs() < 60, "it lies in the ring");
                    }
                    break;
                }
                drop(running);
                assert!(start.elapsed().as_secs() < 60, "it is not interrupted");
                crate::yield_now();
            }
            stop.store(true, Relaxed);
        });
        holder.join().expect("no panic");
    }
}
