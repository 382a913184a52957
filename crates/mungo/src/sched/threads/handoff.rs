//! Moves Ps between Ms: picks the M that is woken for work, and the M that gets a P without use.

use crate::policies::order::NEAR;
use crate::protocols::ticket::Dequeued;
use crate::sched::run::g::{G, GPtr};
use crate::sched::run::lock::Guard;
use crate::sched::run::m::M;
use crate::sched::run::p::{P, RETIRE};
use crate::sched::shared::{Shared, Synced};
use crate::sched::sysmon::helper;
use crate::sched::{netpoll, pick};
use crate::sys::this_cpu;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The purpose that an M is woken for, which decides where it should run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It looks for work beside the caller.
    Helper,
    /// It goes on in the place of an M that sleeps, or is about to.
    Successor,
}

impl Synced {
    /// Takes a goroutine that is bound to its thread out of the global queues, and returns the M where it sits. The
    /// caller hands that M a P.
    fn take_bound(&mut self) -> Option<&'static M> {
        loop {
            let is_bound = |g: &G| !g.bound.load(Relaxed).is_null();
            let bound = self.global.take_first(is_bound).or_else(|| self.computing.take_first(is_bound))?;
            // SAFETY: an M that a goroutine is bound to does not end before it is unbound. We took the goroutine out of
            // the queue, as `bound::may_run` does.
            let m = unsafe { &*bound.bound.load(Relaxed) };
            if m.ticket.dequeued() == Dequeued::HandOver {
                return Some(m);
            }
        }
    }

    /// Returns an idle M for a caller that gives its P away, preferably one that sleeps on the same CPU. The first in
    /// the list watches the network, and is taken last.
    fn pop_idle_m(&mut self) -> Option<&'static M> {
        let cpu = this_cpu();
        let mut at_hand = self.idle_ms.backwards().take(NEAR.min(self.idle_ms.len().checked_sub(1)?));
        match at_hand.find(|m| m.cpu.load(Relaxed) == cpu) {
            Some(near) => self.idle_ms.remove(near).then_some(near),
            None => self.pop_born_m(),
        }
    }

    /// Returns the idle M that came last, of those whose thread has begun if there is one: the others may wait for a
    /// goroutine that has no thread.
    fn pop_born_m(&mut self) -> Option<&'static M> {
        let born = self.idle_ms.backwards().find(|m| m.tid.load(Relaxed) != 0);
        let Some(born) = born else { return self.idle_ms.pop_back() };
        self.idle_ms.remove(born).then_some(born)
    }
}

impl Shared {
    /// Wakes an M to look for work that has become visible, if a P is idle and no M looks yet.
    #[inline]
    pub(crate) fn wake_one(&self) {
        if self.counts.claim_wakeup() {
            self.wake_one_slow();
        } else if self.monitor.is_at_ease() && self.counts.are_enough_busy() {
            self.monitor.notice_waiting();
        }
    }

    /// Wakes an M likewise, also if there are as many busy Ps as CPUs: for the monitor, when work waits for longer.
    pub(crate) fn wake_one_more(&self) {
        if self.counts.claim_spare() {
            self.wake_one_slow();
        }
    }

    #[cold]
    fn wake_one_slow(&self) {
        let mut synced = self.synced.lock();
        match self.take_idle_p_locked(&mut synced) {
            Some(p) => self.start_m(synced, p, Role::Helper),
            None => {
                drop(synced);
                _ = self.counts.stop_spinning();
            }
        }
    }

    /// Gives `p` to a sleeping M, or to one that will be started. At the cap it does so only if a goroutine that has
    /// begun can go on: see `cap.rs`. Unlocks.
    fn start_m<'a>(&'a self, mut synced: Guard<'a, Synced>, p: &'static P, role: Role) {
        let spinning = role == Role::Helper;
        if !self.has_room(&synced) && !self.policy.is_active() {
            self.near_cap.store(true, Relaxed);
            self.hold_back(&mut synced, p);
            let home = if synced.global.len() == 0 { synced.take_bound() } else { None };
            self.publish_global(&synced);
            if home.is_some() || !self.must_go_on(&synced) {
                return self.give_or_rest(synced, p, spinning, home);
            }
        }
        let idle = match role {
            Role::Successor => synced.pop_idle_m(),
            Role::Helper => synced.pop_born_m(),
        };
        let Some(m) = idle else {
            // If a policy decides, the starter strands the P: it may wait for the policy.
            if self.starter.is_refused(self) && !self.policy.is_active() {
                return self.strand(synced, p, spinning);
            }
            synced.wanted.push((p, spinning));
            drop(synced);
            return self.starter.call();
        };
        let is_last = synced.idle_ms.is_empty();
        drop(synced);
        match spinning {
            true => {
                // The kernel would wake it here, beside its waker, and leave it there. TUNED: its naps cost a pair on a
                // channel a context switch each 60 µs, 15 % of the time. Not where goroutines wait for the network: the
                // other CPU is a client's. `echo` with 1,000 connections had 111,000 instead of 141,000 requests/s.
                if m.cpu.load(Relaxed) == this_cpu() && !netpoll::anyone_waits() {
                    self.find_cpu_for(m);
                }
                self.hand_to(m, p, true);
            }
            false => self.hand_to_successor(m, p),
        }
        if is_last {
            self.starter.call(); // the next one is made ahead
        }
    }

    /// Pins the M being woken, which is about to get a P, to a CPU without a running M, preferably the caller's, until
    /// it is awake. The caller's is free if the caller, which has given its P up and will sleep, was alone there. The
    /// kernel would wake the M where it slept, or here, and not see that two share a CPU while another one is idle.
    ///
    /// TUNED: eight goroutines that compute, and one with a deadline each millisecond: 99th percentile of its lateness
    /// 1.7 to 2.3 ms if it always came to the caller's CPU, 0.3 with this.
    fn find_cpu_for(&self, m: &M) {
        let here = this_cpu();
        // SAFETY: Ms live as long as the runtime.
        let ms = self.all_ps().filter_map(|p| unsafe { p.m.load(Acquire).as_ref() });
        let taken =
            ms.filter_map(M::cpu_now).filter(|cpu| *cpu < u128::BITS).fold(0, |all, cpu| all | 1 << cpu);
        m.come_to(here, taken);
    }

    /// Puts a P out of use, because no M is free and the system refuses to start one. Its goroutines go to the global
    /// queue, for the Ms that exist. If one of those waiting is bound to a thread, that thread's M gets the P. Else the
    /// P becomes idle. Unlocks.
    pub(crate) fn strand<'a>(&'a self, mut synced: Guard<'a, Synced>, p: &'static P, spinning: bool) {
        if self.policy.is_active() {
            synced.global.append(p.empty_runq());
        } else {
            self.hold_back(&mut synced, p);
        }
        let home = synced.take_bound();
        self.publish_global(&synced);
        self.give_or_rest(synced, p, spinning, home);
    }

    /// Hands `p` to the M of a bound goroutine that was taken from the queue; if there is none, the P becomes idle.
    /// Unlocks.
    fn give_or_rest<'a>(
        &'a self,
        mut synced: Guard<'a, Synced>,
        p: &'static P,
        spinning: bool,
        home: Option<&'static M>,
    ) {
        if home.is_none() {
            self.put_idle_locked(&mut synced, p);
        }
        drop(synced);
        // ORDERING: SeqCst in `stop_spinning`: submitters that saw us spin woke no M; so look after it. If the system
        // refuses threads, there is no use in it: the monitor tries again.
        if spinning && self.counts.stop_spinning() && self.global_len() != 0 && !self.starter.is_refused(self) {
            self.wake_one();
        }
        if let Some(m) = home {
            self.hand_to_successor(m, p);
        }
    }

    /// Does as [`hand_to`](Self::hand_to), for an M that takes the place of one that sleeps, or is about to.
    pub(crate) fn hand_to_successor(&self, m: &M, p: &P) {
        self.find_cpu_for(m);
        self.hand_to(m, p, false);
    }

    /// Wakes a sleeping M, which the caller took from its list, with a P.
    pub(crate) fn hand_to(&self, m: &M, p: &P, spinning: bool) {
        m.set_spinning(spinning);
        m.next_p.store(std::ptr::from_ref(p).cast_mut(), Relaxed);
        m.wake();
    }

    /// Runs a goroutine that needs no P without one, on a sleeping M, which it returns; the caller took the goroutine
    /// from a queue. `None`: no M sleeps; the goroutine is in the global queue again.
    pub(crate) fn run_without_p(&self, g: GPtr) -> Option<&'static M> {
        let mut synced = self.synced.lock();
        let Some(m) = synced.pop_idle_m() else {
            synced.global.push(g);
            self.publish_global(&synced);
            drop(synced);
            self.starter.call();
            return None;
        };
        let is_last = synced.idle_ms.is_empty();
        drop(synced);
        m.stray.store(true, Relaxed);
        m.next_g.store(g.as_ptr(), Relaxed); // published with the wake-up
        m.wake();
        if is_last {
            self.starter.call();
        }
        Some(m)
    }

    /// Gives the P of an M that sleeps, or is about to, to another M if there is work, else to the idle list.
    pub(crate) fn hand_off(&self, p: &'static P) {
        let mut synced = self.synced.lock();
        if p.flags.load(Relaxed) & RETIRE != 0 {
            // WHY NOT here: that takes memory, and the monitor must not wait for any.
            synced.retiring.push(p);
            drop(synced);
            self.helper.ask(helper::JOB_RETIRE);
        } else if !p.runq.is_empty()
            || self.global_len() > 0
            || self.policy.has_work()
            || p.timers.next_ns() != u64::MAX
        {
            self.start_m(synced, p, Role::Successor);
        } else {
            self.put_idle_locked(&mut synced, p);
            drop(synced);
            // A goroutine may have been pushed between our look and the list. And an M that goes to sleep here looks
            // neither at timers nor at the network.
            if self.any_work() || self.timers_unwatched() || netpoll::is_unwatched() {
                self.wake_one();
            }
        }
    }

    /// Passes the P of an interrupted thread, which goes to sleep, to the next M in one step. `entry` is the thread's
    /// own goroutine, which queues up. Runs in the preemption handler: see the invariants in ARCHITECTURE.md.
    pub(crate) fn pass_on(&self, p: &'static P, entry: Option<GPtr>) {
        let mut synced = self.synced.lock();
        if let Some(g) = entry {
            pick::enqueue_locked(self, &mut synced, g);
        }
        self.start_m(synced, p, Role::Successor);
        self.wake_one();
    }
}
