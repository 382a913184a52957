//! The moves of Ps between Ms: who is woken for work, and who gets the P of one that has no use for it.

use super::g::GPtr;
use super::global::GList;
use super::m::M;
use super::p::{P, RETIRE};
use super::shared::{Shared, Synced};
use super::ticket::Dequeued;
use crate::lock::Guard;
use crate::netpoll;
use crate::policy::hooks;
use crate::sys::this_cpu;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// What an M is woken for, which tells where it should run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// To look for work beside the caller.
    Helper,
    /// To go on in the place of one that sleeps, or is about to.
    Successor,
}

/// So many idle Ms are looked at.
const NEAR: usize = 8;

impl Synced {
    /// If the next of the global queue are preempted goroutines: takes one out, and returns the M where it sits. The
    /// caller hands it a P.
    fn take_preempted(&mut self) -> Option<&'static M> {
        while !self.global.first()?.bound.load(Relaxed).is_null() {
            // SAFETY: an M that a goroutine is bound to does not end before it is unbound; it is in the queue.
            let m = unsafe { &*self.global.pop()?.bound.load(Relaxed) };
            if m.ticket.dequeued() == Dequeued::HandOver {
                return Some(m);
            }
        }
        None
    }

    /// An idle M for somebody who gives its P away, preferably one that sleeps on the same CPU. The first in the list
    /// watches the network, and is taken last.
    fn pop_idle_m(&mut self) -> Option<&'static M> {
        let last = self.idle_ms.len().checked_sub(1)?;
        let cpu = this_cpu();
        let mut at_hand = self.idle_ms[1..].iter().rev().take(NEAR);
        let near = at_hand.position(|m| m.cpu.load(Relaxed) == cpu);
        Some(self.idle_ms.remove(last - near.unwrap_or(0)))
    }
}

impl Shared {
    /// After work became visible: one M comes to look, if a P is idle and nobody looks yet.
    #[inline]
    pub(crate) fn wake_one(&self) {
        if self.counts.claim_wakeup() {
            self.wake_one_slow();
        } else if self.monitor.is_at_ease() && self.counts.idle_ps() == 0 {
            self.monitor.notice_waiting();
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

    /// Whether a P that is taken from its M can be given to another one.
    pub(crate) fn can_start_m(&self) -> bool {
        let synced = self.synced.lock();
        !synced.idle_ms.is_empty() || self.has_room_for_m(&synced)
    }

    /// The cap allows one more thread. Those whose locked goroutine waits do not count: it may wait for one that has no
    /// thread yet.
    fn has_room_for_m(&self, synced: &Synced) -> bool {
        let busy = synced.ms.len().saturating_sub(self.waiting_locked.load(Relaxed) as usize);
        busy + synced.wanted.len() < self.config.max_threads as usize
    }

    /// Gives `p` to a sleeping M, or to one that the monitor starts. Unlocks.
    fn start_m<'a>(&'a self, mut synced: Guard<'a, Synced>, p: &'static P, role: Role) {
        let spinning = role == Role::Helper;
        let idle = match role {
            Role::Successor => synced.pop_idle_m(),
            Role::Helper => synced.idle_ms.pop(),
        };
        if let Some(m) = idle {
            drop(synced);
            match spinning {
                true => self.hand_to(m, p, true),
                false => self.succeed(m, p),
            }
            return;
        }
        if !self.has_room_for_m(&synced) {
            self.strand(synced, p, spinning); // at the cap
            return;
        }
        synced.wanted.push((p, spinning));
        drop(synced);
        self.monitor.call();
    }

    /// Calls a sleeping M, which is about to get a P, to a CPU that no M with a P is on: this one, if the caller, who
    /// has given its P up and will sleep, was alone here. The kernel would wake it where it slept, or here, and not
    /// see that two share a CPU while another one is idle.
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

    /// There is no M for this P, and none can be started. Its goroutines go to the global queue, for the Ms that there
    /// are. If one of those waiting is bound to a thread, that is an M: it gets the P. Else the P becomes idle.
    /// Unlocks.
    pub(crate) fn strand<'a>(&'a self, mut synced: Guard<'a, Synced>, p: &'static P, spinning: bool) {
        if self.policy.is_active() {
            drop(synced);
            hooks::abandon_all(self); // a policy's queues are no place to look into
            synced = self.synced.lock();
        }
        let moved = p.empty_runq();
        let mut all = std::mem::replace(&mut synced.urgent, GList::new());
        all.append(std::mem::replace(&mut synced.global, GList::new()));
        all.append(moved);
        synced.global = all;
        let bound = synced.global.take_first(|g| !g.bound.load(Relaxed).is_null());
        self.publish_global(&synced);
        // SAFETY: an M that a goroutine is bound to does not end before it is unbound. We took the goroutine out of the
        // queue, as `bound::may_run` does.
        let home = bound.map(|g| unsafe { &*g.bound.load(Relaxed) });
        let home = home.filter(|m| m.ticket.dequeued() == Dequeued::HandOver);
        if home.is_none() {
            self.put_idle_locked(&mut synced, p);
        }
        drop(synced);
        if spinning {
            _ = self.counts.stop_spinning();
        }
        if let Some(m) = home {
            self.hand_to(m, p, false);
        }
    }

    /// As [`hand_to`](Self::hand_to), in the place of one that sleeps, or is about to.
    pub(crate) fn succeed(&self, m: &M, p: &P) {
        self.find_cpu_for(m);
        self.hand_to(m, p, false);
    }

    /// Wakes a sleeping M, which the caller took from its list, with a P.
    pub(crate) fn hand_to(&self, m: &M, p: &P, spinning: bool) {
        m.set_spinning(spinning);
        m.next_p.store(std::ptr::from_ref(p).cast_mut(), Relaxed);
        m.wake();
    }

    /// The P of one that sleeps, or is about to, goes to an M if there is work, else to the list.
    pub(crate) fn hand_off(&self, p: &'static P) {
        let mut synced = self.synced.lock();
        if p.flags.load(Relaxed) & RETIRE != 0 {
            drop(synced);
            self.retire(p);
        } else if !p.runq.is_empty()
            || self.global_len() > 0
            || self.policy.has_work()
            || p.timers.next_ns() != u64::MAX
        {
            self.start_m(synced, p, Role::Successor);
        } else {
            self.put_idle_locked(&mut synced, p);
            drop(synced);
            // Someone may have pushed between our look and the list. And who goes to sleep here looks at no timers,
            // nor at the network.
            if self.any_work() || self.timers_unwatched() || netpoll::is_unwatched() {
                self.wake_one();
            }
        }
    }

    /// An interrupted thread goes to sleep: its P goes to the next one in one step. `entry` is its own
    /// goroutine, which queues up. In the preemption handler: see the invariants in ARCHITECTURE.md.
    pub(crate) fn pass_on(&self, p: &'static P, entry: Option<GPtr>) {
        let mut synced = self.synced.lock();
        if let Some(g) = entry {
            synced.global.push(g);
        }
        let nobody_else = p.runq.is_empty() && synced.urgent.len() == 0 && !self.policy.is_active();
        let home = if nobody_else { synced.take_preempted() } else { None };
        self.publish_global(&synced);
        match home {
            Some(m) => {
                drop(synced);
                self.succeed(m, p);
            }
            None => self.start_m(synced, p, Role::Successor),
        }
        self.wake_one();
    }
}
