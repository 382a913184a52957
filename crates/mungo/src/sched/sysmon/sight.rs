//! What the monitor saw of a P at its last look.

use super::watch::thread_cpu_ns;
use crate::policies::order::FEW;
use crate::sched::run::m::M;
use crate::sched::run::p::P;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The monitor's last look at a P.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    pub(super) m: *const M,
    /// The tick, and the time in ns when it was first seen.
    pub(super) tick: u32,
    pub(super) tick_since_ns: u64,
    /// Number of switches, and the time in ns when that number was first seen.
    pub(super) switches: u64,
    pub(super) since_ns: u64,
    /// The thread's CPU clock, in ns, when it was first and last read since then.
    pub(super) first_cpu_ns: Option<u64>,
    pub(super) last_cpu_ns: Option<u64>,
    /// Time in ns from then until the clock was first read.
    pub(super) unread_ns: u64,
    /// Whether the clock did not move between these two.
    pub(super) cpu_stands: bool,
    /// Whether the P has not switched between the last two looks.
    pub(super) same: bool,
    /// Number of goroutines that were ever put into its ring.
    pub(super) pushed: u32,
    /// Whether more than a few of those that were in its ring at the look before are there still.
    pub(super) behind: bool,
}

impl Sight {
    pub(super) const NOTHING: Sight = Sight {
        m: std::ptr::null(),
        tick: 0,
        tick_since_ns: 0,
        switches: 0,
        since_ns: 0,
        first_cpu_ns: None,
        last_cpu_ns: None,
        unread_ns: 0,
        cpu_stands: false,
        same: false,
        pushed: 0,
        behind: false,
    };

    /// Updates it from the P as it is now.
    pub(super) fn update(&mut self, p: &P, now: u64) {
        let m: *const M = p.m.load(Acquire);
        let (tick, switches) = (p.tick.load(Relaxed), p.counters.switches.get());
        let same_m = !m.is_null() && std::ptr::eq(m, self.m);
        if !same_m || tick != self.tick {
            self.tick_since_ns = now;
        }
        self.same = same_m && switches == self.switches;
        if !self.same {
            self.since_ns = p.credit.started_ns(switches).unwrap_or(now).min(now);
            (self.first_cpu_ns, self.last_cpu_ns, self.cpu_stands) = (None, None, false);
        }
        (self.m, self.tick, self.switches) = (m, tick, switches);
        let (taken, pushed) = p.runq.progress();
        self.behind = self.pushed.wrapping_sub(taken) as i32 > FEW as i32;
        self.pushed = pushed;
    }

    pub(super) fn ran_ns(&self, now: u64) -> u64 {
        now - self.since_ns
    }

    /// Reads the CPU clock of the thread, and notes whether it moved since the last time.
    pub(super) fn read_cpu(&mut self, now: u64) {
        // SAFETY: Ms live as long as the runtime.
        let Some(cpu) = unsafe { self.m.as_ref() }.and_then(thread_cpu_ns) else { return };
        if self.first_cpu_ns.is_none() {
            (self.first_cpu_ns, self.unread_ns) = (Some(cpu), self.ran_ns(now));
        }
        self.cpu_stands = self.last_cpu_ns.replace(cpu) == Some(cpu);
    }

    /// Returns the time in ns that the goroutine has used of its slice: what its thread spent without a CPU is not
    /// charged to it, as far as the clock was read.
    ///
    /// TUNED: a goroutine that computes for 3 ms went to the back when its thread had waited 7 ms for a CPU.
    pub(super) fn used_ns(&self, now: u64) -> u64 {
        let ran = self.ran_ns(now);
        if self.first_cpu_ns.is_some() { ran.min(self.unread_ns + self.cpu_ns()) } else { ran }
    }

    /// Returns whether its thread used CPU time without a switch between the last looks.
    pub(super) fn computes(&self) -> bool {
        self.same && self.cpu_ns() != 0
    }

    /// Returns the CPU time in ns that was seen to be used without a switch. A thread without a CPU does not compute.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.last_cpu_ns.zip(self.first_cpu_ns).map_or(0, |(last, first)| last.saturating_sub(first))
    }
}
