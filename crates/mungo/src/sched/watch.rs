//! What the monitor looks at: who runs too long, who is blocked, which timer is late.
//!
//! If nobody waits, nobody is disturbed. Otherwise, for a P that has been on the same tick for a while:
//! * its goroutine said that it blocks: the P moves on after 20 µs;
//! * its thread's CPU clock stands still and the kernel says that it sleeps: it blocks without a word, the P moves on;
//! * its slice is over: it is asked to yield, and if it is not in the runtime, the P moves on and it is interrupted;
//! * a timer is due and every P computes: the one that has computed longest makes room.

use super::blocking;
use super::g::{G, GPtr};
use super::global::GList;
use super::m::M;
use super::p::{P, PREEMPT, RETIRE};
use super::preempt;
use super::shared::Shared;
use super::wake::Wake;
use crate::netpoll;
use crate::policy::{Watchdog, hooks};
use crate::sys::{clock, task};
use crate::time::heap::Due;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// An announced blocking call keeps its P so long, as in Go.
const ANNOUNCED_NS: u64 = 20_000;
/// From here on a goroutine on the same tick is suspected of being blocked.
/// TUNED: the P moves on at the second look; looks are at most 1 ms apart while somebody waits.
const SUSPECT_NS: u64 = 50_000;
/// A goroutine that has been seen computing for so long makes room for one that a timer woke.
/// TUNED: a sleeper among those that compute is as late with 0.2 ms.
const TIMER_PREEMPTS_NS: u64 = 1_000_000;
/// The same for one that the network woke.
/// TUNED: 1 % more heavy requests/s in the mixed web server than with 1 ms (medians of 11 runs beside Go's): who is
/// interrupted early has less done, and there are fewer half-done ones in all.
const NETWORK_PREEMPTS_NS: u64 = 500_000;
/// There is one interruption for the network's sake in so much CPU time, and one look at it while all Ps compute. Where
/// requests come by the thousand, each millisecond brings one, and all that compute would be in progress, none done.
/// TUNED: the mixed web server on two CPUs, medians of 11 runs, heavy requests/s and p99 of the light ones: 602, 3.7 ms
/// without this; 624, 7.3 ms with 6 ms; 628, 9.1 ms with 10; 629, 10.7 ms with 16. Go: 652, 152 ms. With the looks at
/// will, those who wait for an answer to ask again took more than their share: 51 connections with light and 13 with
/// heavy requests got 19,600 and 570 answers/s. With 6, 8 and 10 ms 12,200, 10,500 and 8,300 light ones, and 11, 13 and
/// 17 ms in one of a hundred; Go 7,500 and 120 ms, tokio 2,800 and 34 ms. Heavy ones differ less than from run to run.
const INTERRUPTIONS_NS: u64 = 8_000_000;
/// Who was interrupted goes on undisturbed for so long.
const RESUMED_NS: u64 = 4_000_000;
/// A timer so late is not being looked after by its own P.
const LATE_TIMER_NS: u64 = 20_000;
/// A worker in the runtime that does not move for so long waits for a lock that a preempted goroutine may hold.
const STUCK_NS: u64 = 20_000_000;
/// Who has used so much CPU time without a pause is not just on its way from one blocking call to the next.
/// WHY NOT a share of the time that passed: on a busy machine it gets little of it.
const COMPUTES_NS: u64 = 300_000;
/// A goroutine without a P is left alone so long: most go back to sleep, or call the runtime.
const STRAY_COMPUTES_NS: u64 = 1_000_000;
/// So long an interrupted thread has to pass its P on.
const PARTING_NS: u64 = 200_000;
/// Clocks of goroutines without a P that are read at each look.
const STRAYS_PER_LOOK: usize = 32;

/// What was seen of a P.
#[derive(Clone, Copy)]
struct Seen {
    tick: u32,
    m: *const M,
    /// When this tick was first seen.
    since_ns: u64,
    /// The thread's CPU clock when it was first read on this tick, and at the last look.
    cpu_ns: Option<u64>,
    last_cpu_ns: Option<u64>,
}

/// The monitor's memory.
#[derive(Default)]
pub(super) struct Watch {
    seen: Vec<Seen>,
    /// Ms whose goroutines lost the P.
    strays: Vec<Stray>,
    /// Who was sent the signal and has to pass its P on.
    parting: Vec<Parting>,
    /// A timer is late, and this is when the goroutine that has computed longest has done so long enough; 0: none is.
    ripe_ns: u64,
    /// Not before this is a goroutine interrupted for the network's sake.
    next_interruption_ns: u64,
    /// Not before this does it look at the network.
    next_network_ns: u64,
    /// What [`netpoll::looks`] said.
    net_looks: u64,
    watchdog: Watchdog,
}

/// An M whose goroutine shall give its P up in the signal handler.
struct Parting {
    m: &'static M,
    p: &'static P,
    tick: u32,
    since_ns: u64,
}

/// An M whose goroutine lost the P.
struct Stray {
    m: &'static M,
    /// When its CPU clock was last read, and what it said.
    at_ns: u64,
    cpu_ns: u64,
    /// What the clock said when it was last seen standing still.
    awake_since_cpu_ns: u64,
}

// SAFETY: the monitor's alone; the pointers are compared or lead to Ms, which live as long as the runtime.
unsafe impl Send for Watch {}

impl Watch {
    /// Looks at all Ps. `true`: somebody was blocked, and where one is, others are: look again soon.
    ///
    /// Only then. A monitor that looks too often uses up the credit that the kernel gives to a thread that sleeps, and
    /// waits in line with those that compute. TUNED: a wake-up among spinning goroutines went from 3 ms to 0.1 ms.
    pub(super) fn look(&mut self, shared: &Shared, now: u64) -> bool {
        self.seen.resize(
            shared.all_ps().count(),
            Seen { tick: 0, m: std::ptr::null(), since_ns: now, cpu_ns: None, last_cpu_ns: None },
        );
        hooks::serve_inbox(shared);
        self.serve_urgent(shared, now);
        let mut blocked = false;
        // There may be more by now: `set_procs` runs at the same time.
        for (at, p) in shared.all_ps().take(self.seen.len()).enumerate() {
            blocked |= self.look_at(shared, p, at, now);
        }
        self.serve_late_timers(shared, now);
        self.serve_network(shared, now);
        self.pass_on_in_their_place(shared, now);
        rescue(shared, now);
        self.look_at_strays(now);
        self.watchdog.look(shared, now);
        blocked
    }

    fn look_at(&mut self, shared: &Shared, p: &P, at: usize, now: u64) -> bool {
        let seen = &mut self.seen[at];
        let m = p.m.load(Acquire);
        let tick = p.tick.load(Relaxed);
        if m.is_null() || tick != seen.tick || !std::ptr::eq(m, seen.m) {
            // SAFETY: Ms live as long as the runtime.
            let wanted =
                unsafe { m.as_ref() }.filter(|_| netpoll::anyone_waits() || somebody_waits(shared, p, now));
            let cpu_ns = wanted.and_then(thread_cpu_ns);
            *seen = Seen { tick, m, since_ns: now, cpu_ns, last_cpu_ns: cpu_ns };
            return false;
        }
        // SAFETY: as above.
        let m: &'static M = unsafe { &*m };
        let ran = now - seen.since_ns;
        let flags = p.flags.load(Relaxed);
        if flags & RETIRE == 0 && !somebody_waits(shared, p, now) {
            return false;
        }
        if ran >= ANNOUNCED_NS && announced(m) && blocking::can_retake() {
            return self.retake(shared, m, p, now, false);
        }
        if ran < SUSPECT_NS {
            return false;
        }
        let Some(cpu) = thread_cpu_ns(m) else { return false };
        let first = *seen.cpu_ns.get_or_insert(cpu);
        if seen.last_cpu_ns.replace(cpu) == Some(cpu) && thread_sleeps(m) {
            if m.in_runtime.load(Acquire) == 0 && blocking::can_retake() {
                return self.retake(shared, m, p, now, false);
            }
            if ran >= STUCK_NS {
                release_preempted(shared);
            }
            return false;
        }
        let slice_ns = if hooks::decides(p) { p.slice_ns.load(Relaxed) } else { shared.config.time_slice_ns };
        let computes = cpu.saturating_sub(first) > computes_ns(slice_ns);
        let keeps_woken_waiting = computes
            && ran >= undisturbed_ns(p, tick)
            && (shared.is_urgent() || p.has_fresh())
            && now >= self.next_interruption_ns;
        // Asked already, for a timer's sake or because its slice was over: ask again until it hears.
        if ran >= slice_ns || flags & PREEMPT != 0 || keeps_woken_waiting {
            p.ask_to_yield(tick);
            if keeps_woken_waiting {
                self.note_interruption(shared, now);
            }
            if computes {
                self.evict(shared, m, p, now);
            }
        }
        false
    }

    /// Takes the P from a goroutine outside the runtime that computes or is blocked. `false`: it is inside after all.
    fn retake(&mut self, shared: &Shared, m: &'static M, p: &P, now: u64, computes: bool) -> bool {
        let Some(p) = blocking::retake(m, p) else { return false };
        _ = p.take_request();
        p.m.store(std::ptr::null_mut(), Relaxed);
        let counter = if computes { &p.counters.preemptions } else { &p.counters.retakes };
        counter.add(1);
        let cpu_ns = thread_cpu_ns(m).unwrap_or(0);
        hooks::retaken(shared, m, cpu_ns);
        self.strays.push(Stray { m, at_ns: now, cpu_ns, awake_since_cpu_ns: cpu_ns });
        // SAFETY: Ps live as long as the runtime.
        shared.hand_off(unsafe { &*std::ptr::from_ref(p) });
        true
    }

    /// A thread that was interrupted and has no CPU, or is in libc, does not pass its P on.
    fn pass_on_in_their_place(&mut self, shared: &Shared, now: u64) {
        let mut parting = std::mem::take(&mut self.parting);
        parting.retain(|Parting { m, p, tick, since_ns }| {
            let waits = std::ptr::eq(p.m.load(Acquire), *m) && p.is_asked_on(*tick);
            if waits && now - since_ns >= PARTING_NS {
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

    /// A policy wants Ps for goroutines that have just become runnable.
    fn serve_urgent(&mut self, shared: &Shared, now: u64) {
        for p in shared.all_ps() {
            if p.urgent.load(Relaxed) && p.urgent.swap(false, Relaxed) && p.flags.load(Relaxed) & PREEMPT != 0 {
                // SAFETY: Ms live as long as the runtime.
                if let Some(m) = unsafe { p.m.load(Acquire).as_ref() } {
                    self.evict(shared, m, p, now);
                }
            }
        }
    }

    /// All Ps compute and a timer is due: its goroutine goes next on the P that has computed longest.
    fn serve_late_timers(&mut self, shared: &Shared, now: u64) {
        self.ripe_ns = 0;
        if shared.counts.idle_ps() != 0 || shared.next_timer_ns().saturating_add(LATE_TIMER_NS) > now {
            return;
        }
        if shared.policy.is_active() {
            return self.queue_late_timers(shared, now);
        }
        let Some((seen, p)) = self.longest(shared, |_, _| true) else { return };
        if now - seen.since_ns < TIMER_PREEMPTS_NS {
            self.ripe_ns = seen.since_ns + TIMER_PREEMPTS_NS;
            return;
        }
        let mut woken = GList::new();
        for other in shared.all_ps() {
            take_late(shared, other, now, |g| match p.runq.offer_next(g.as_ptr()) {
                true => p.next_is_late.store(true, Relaxed),
                false => woken.push(g),
            });
        }
        self.make_room(shared, p, seen, woken, now);
    }

    /// All Ps compute and nobody has looked at the network since the last time: whoever became ready goes next, too.
    fn serve_network(&mut self, shared: &Shared, now: u64) {
        if now < self.next_network_ns {
            return;
        }
        let looks = netpoll::looks();
        if std::mem::replace(&mut self.net_looks, looks) != looks
            || shared.counts.idle_ps() != 0
            || !netpoll::is_unwatched()
        {
            return;
        }
        let woken = netpoll::send_home(netpoll::take(), shared);
        self.net_looks = netpoll::looks();
        if woken.len() == 0 {
            return;
        }
        self.next_network_ns = now + interruptions_ns(shared);
        if shared.policy.is_active() {
            return self.queue_woken(shared, woken, now);
        }
        let computes_ns = computes_ns(shared.config.time_slice_ns);
        // One whose thread just waits for a CPU may have little to do itself, and would have to queue up.
        let computes = |seen: &Seen| {
            // SAFETY: Ms live as long as the runtime.
            let cpu_ns = unsafe { seen.m.as_ref() }.and_then(thread_cpu_ns);
            cpu_ns.zip(seen.cpu_ns).is_some_and(|(cpu, first)| cpu.saturating_sub(first) > computes_ns)
        };
        let ripe = |p: &P, seen: &Seen| now - seen.since_ns >= undisturbed_ns(p, seen.tick) && computes(seen);
        match self.longest(shared, ripe) {
            Some((seen, p)) if now >= self.next_interruption_ns => {
                self.note_interruption(shared, now);
                self.make_room(shared, p, seen, woken, now);
            }
            // Somebody comes to the end of a slice, or has not by the next look.
            _ => shared.push_urgent(woken),
        }
    }

    /// A goroutine is interrupted for the network's sake: the next one not so soon.
    fn note_interruption(&mut self, shared: &Shared, now: u64) {
        self.next_interruption_ns = now + interruptions_ns(shared);
    }

    /// The P that has computed longest, of those that are `wanted`.
    fn longest<'a>(&self, shared: &'a Shared, wanted: impl Fn(&P, &Seen) -> bool) -> Option<(Seen, &'a P)> {
        let running = shared.all_ps().zip(&self.seen).filter(|(p, seen)| !seen.m.is_null() && wanted(p, seen));
        running.min_by_key(|(p, seen)| (seen.since_ns, p.id)).map(|(p, seen)| (*seen, p))
    }

    /// Those that were woken go ahead of all others, and the slice of the goroutine on `p` ends.
    fn make_room(&mut self, shared: &Shared, p: &P, seen: Seen, woken: GList, now: u64) {
        shared.push_urgent(woken);
        p.ask_to_yield(seen.tick);
        // SAFETY: Ms live as long as the runtime.
        self.evict(shared, unsafe { &*seen.m }, p, now);
    }

    /// The same if a policy decides: it queues them, and says whether they displace somebody.
    fn queue_late_timers(&mut self, shared: &Shared, now: u64) {
        let mut woken = GList::new();
        for p in shared.all_ps() {
            take_late(shared, p, now, |g| woken.push(g));
        }
        self.queue_woken(shared, woken, now);
    }

    fn queue_woken(&mut self, shared: &Shared, mut woken: GList, now: u64) {
        while let Some(g) = woken.pop() {
            if !hooks::queue_due(shared, shared.p(0), g) {
                shared.push_global_one(g);
            }
        }
        self.serve_urgent(shared, now);
    }

    /// Interrupts a goroutine that computes and was asked to give its P up. If it is in the runtime, it sees the
    /// request there.
    ///
    /// It goes to the end of the queue. WHY NOT first, for the rest of its slice: then the last one to be interrupted
    /// goes on first, and in the mixed web server one request in a hundred waited for 840 ms.
    fn evict(&mut self, shared: &Shared, m: &'static M, p: &P, now: u64) {
        let allowed = shared.config.async_preempt && blocking::can_retake() && shared.can_start_m();
        let outside = m.in_runtime.load(Acquire) == 0;
        let tick = p.tick.load(Relaxed);
        let sent = self.parting.iter().any(|sent| std::ptr::eq(sent.m, m) && sent.tick == tick);
        if !allowed || !outside || sent || thread_sleeps(m) {
            return;
        }
        // SAFETY: Ps live as long as the runtime.
        let p: &'static P = unsafe { &*std::ptr::from_ref(p) };
        self.parting.push(Parting { m, p, tick, since_ns: now });
        preempt::interrupt(m);
    }

    /// Goroutines that lost their P and compute get the signal that brings them back under one.
    fn look_at_strays(&mut self, now: u64) {
        self.strays.retain(|s| s.m.stray.load(Relaxed));
        let turn = self.strays.len().min(STRAYS_PER_LOOK);
        for stray in &mut self.strays[..turn] {
            if now - stray.at_ns < STRAY_COMPUTES_NS || stray.m.in_handler.load(Relaxed) {
                continue;
            }
            let Some(cpu) = thread_cpu_ns(stray.m) else { continue };
            if cpu == stray.cpu_ns {
                stray.awake_since_cpu_ns = cpu;
            } else if cpu.saturating_sub(stray.awake_since_cpu_ns) > COMPUTES_NS {
                interrupt(stray.m);
            }
            (stray.at_ns, stray.cpu_ns) = (now, cpu);
        }
        self.strays.rotate_left(turn);
    }

    /// When to look at the timers: when the first one is due and a little more, or when somebody can make room for it.
    pub(super) fn next_timer_look_ns(&self, shared: &Shared) -> u64 {
        let timer = shared.next_timer_ns().saturating_add(LATE_TIMER_NS).max(self.ripe_ns);
        self.parting.iter().fold(timer, |first, parting| first.min(parting.since_ns + PARTING_NS))
    }

    /// Whether there is a reason to look again within a millisecond.
    pub(super) fn is_concerned(&self, shared: &Shared) -> bool {
        !self.strays.is_empty()
            || !self.parting.is_empty()
            || netpoll::is_unwatched()
            || shared.policy.has_work()
            || (shared.counts.idle_ps() < shared.procs()
                && (shared.any_work() || shared.next_timer_ns() != u64::MAX))
    }
}

/// A P is idle, nobody looks for work, and yet there is some. By the idle protocol this is a moment between two
/// steps of somebody; if it lasts, it is a lost wake-up, and this keeps it from costing more than a millisecond. And
/// the M that watched network and timers may have got up to run a goroutine, which takes long.
fn rescue(shared: &Shared, now: u64) {
    let grace_ns = if shared.timers_unwatched() { LATE_TIMER_NS } else { STUCK_NS };
    let late = shared.next_timer_ns().saturating_add(grace_ns) <= now;
    let unseen = shared.any_work() || netpoll::is_unwatched();
    if shared.counts.idle_ps() != 0 && shared.counts.spinning() == 0 && (late || unseen) {
        shared.wake_one();
    }
}

/// [`INTERRUPTIONS_NS`] of CPU time, in time.
fn interruptions_ns(shared: &Shared) -> u64 {
    INTERRUPTIONS_NS / u64::from(shared.procs())
}

/// So long the goroutine on `p` is not interrupted for the network's sake. One that has been already has longer: it may
/// get done, and does not have to queue up a second time.
fn undisturbed_ns(p: &P, tick: u32) -> u64 {
    if p.has_resumed(tick) { RESUMED_NS } else { NETWORK_PREEMPTS_NS }
}

/// CPU time that makes a goroutine with such a slice one that computes.
fn computes_ns(slice_ns: u64) -> u64 {
    COMPUTES_NS.min(slice_ns / 2)
}

/// Somebody wants this P: its own queue, the global one, or one of its timers.
fn somebody_waits(shared: &Shared, p: &P, now: u64) -> bool {
    !p.runq.is_empty() || shared.global_len() != 0 || shared.policy.has_work() || p.timers.next_ns() <= now
}

fn running_g(m: &M) -> Option<GPtr> {
    GPtr::new(m.g.load(Relaxed))
}

fn announced(m: &M) -> bool {
    running_g(m).is_some_and(|g| g.announced.load(Relaxed))
}

/// The signal must not hit a blocked call: some, as `nanosleep` and `poll`, return EINTR whatever the handler asks for.
fn interrupt(m: &M) {
    if !thread_sleeps(m) {
        preempt::interrupt(m);
    }
}

/// Lets preempted goroutines run on without a P: one of them may hold the lock that a worker waits for.
#[cold]
fn release_preempted(shared: &Shared) {
    let ms: Vec<&'static M> = shared.synced.lock().ms.clone();
    for m in ms {
        if m.in_handler.load(Relaxed) && m.ticket.release() {
            m.wake();
        }
    }
}

fn take_late(shared: &Shared, p: &P, now: u64, mut each: impl FnMut(GPtr)) {
    if p.timers.next_ns() > now {
        return;
    }
    let mut due = [Due::Nothing; 32];
    let n = p.timers.take_due(now, &mut due);
    for due in due.into_iter().take(n) {
        match due {
            Due::Nothing => {}
            // SAFETY: taken from the heap, so its count of ownership is ours to pass on.
            Due::Call(call) => unsafe { (call.run)(call.data, shared, &p.timers) },
            Due::Wake(g) => {
                if G::notify(&g) == Wake::Enqueue {
                    each(g);
                }
            }
        }
    }
}

/// The CPU time that the M's thread has used.
pub(crate) fn thread_cpu_ns(m: &M) -> Option<u64> {
    clock::cpu_ns_of(m.tid.load(Relaxed))
}

/// The kernel's word: sleeping or waiting for a disk, rather than runnable. TUNED: to ask for it takes 20 µs, so not if
/// the clock moves while we look; the mixed web server had done 1 % fewer heavy requests.
pub(crate) fn thread_sleeps(m: &M) -> bool {
    thread_cpu_ns(m) == thread_cpu_ns(m) && task::is_asleep(m.tid.load(Relaxed))
}
