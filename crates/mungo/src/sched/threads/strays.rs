//! The Ms whose goroutines lost their P, for the monitor: a list through the Ms, which needs no memory.

use crate::policies::order::{COMPUTES_IN_ALL_NS, COMPUTES_NS};
use crate::sched::run::m::M;
use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::Ordering::Relaxed;

/// The monitor's memory of an M whose goroutine has no P. Used by the monitor alone.
pub(crate) struct StrayClock {
    next: Cell<*const M>,
    listed: Cell<bool>,
    /// When its CPU clock was last read, and what it said, both in ns.
    at_ns: Cell<u64>,
    cpu_ns: Cell<u64>,
    /// The CPU time, in ns, when the clock was last seen standing still.
    awake_since_cpu_ns: Cell<u64>,
    /// The CPU time, in ns, when it lost the P, or was last seen to have computed for long in all.
    counted_from_cpu_ns: Cell<u64>,
    /// Whether it computed when it lost the P, rather than being blocked.
    computes: Cell<bool>,
}

impl StrayClock {
    pub(crate) const fn new() -> StrayClock {
        StrayClock {
            next: Cell::new(null()),
            listed: Cell::new(false),
            at_ns: Cell::new(0),
            cpu_ns: Cell::new(0),
            awake_since_cpu_ns: Cell::new(0),
            counted_from_cpu_ns: Cell::new(0),
            computes: Cell::new(false),
        }
    }

    /// Returns when its CPU clock was last read, in ns.
    pub(crate) fn at_ns(&self) -> u64 {
        self.at_ns.get()
    }

    /// Notes that the clock says `cpu_ns` now. Returns whether the goroutine computes: without a blocking call, by what
    /// can be seen, or for long in all. A clock that stands still may also be that of a thread that gets no CPU.
    pub(crate) fn computes(&self, now_ns: u64, cpu_ns: u64) -> bool {
        self.at_ns.set(now_ns);
        if self.cpu_ns.replace(cpu_ns) == cpu_ns {
            self.awake_since_cpu_ns.set(cpu_ns);
        }
        if cpu_ns.saturating_sub(self.counted_from_cpu_ns.get()) > COMPUTES_IN_ALL_NS {
            self.counted_from_cpu_ns.set(cpu_ns);
            return true;
        }
        cpu_ns.saturating_sub(self.awake_since_cpu_ns.get()) > COMPUTES_NS
    }
}

/// The Ms that lost their P and have not been seen with one since. First in, first out.
pub(crate) struct Strays {
    first: *const M,
    last: *const M,
    len: usize,
}

impl Strays {
    pub(crate) const fn new() -> Strays {
        Strays { first: null(), last: null(), len: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many Ms computed when they lost their P, have none yet and are not waiting for one.
    pub(crate) fn computing(&self) -> usize {
        // SAFETY: Ms live as long as the runtime.
        let next = |m: &&'static M| unsafe { m.stray_clock.next.get().as_ref() };
        // SAFETY: as above.
        let all = std::iter::successors(unsafe { self.first.as_ref() }, next);
        all.filter(|m| m.stray_clock.computes.get() && m.stray.load(Relaxed) && !m.asleep.load(Relaxed)).count()
    }

    /// Adds `m`, whose P was taken and whose clock says `cpu_ns`; `computes` tells whether it computed or was blocked.
    pub(crate) fn add(&mut self, m: &'static M, now_ns: u64, cpu_ns: u64, computes: bool) {
        let clock = &m.stray_clock;
        clock.at_ns.set(now_ns);
        clock.cpu_ns.set(cpu_ns);
        clock.awake_since_cpu_ns.set(cpu_ns);
        clock.counted_from_cpu_ns.set(cpu_ns);
        clock.computes.set(computes);
        if !clock.listed.get() {
            self.push(m);
        }
    }

    fn push(&mut self, m: &M) {
        m.stray_clock.listed.set(true);
        m.stray_clock.next.set(null());
        // SAFETY: Ms live as long as the runtime.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.stray_clock.next.set(m),
            None => self.first = m,
        }
        self.last = m;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<&'static M> {
        // SAFETY: as above.
        let m = unsafe { self.first.as_ref() }?;
        self.first = m.stray_clock.next.get();
        if self.first.is_null() {
            self.last = null();
        }
        m.stray_clock.listed.set(false);
        self.len -= 1;
        Some(m)
    }

    /// Passes the next `n` Ms that still have no P to `show`; forgets those that have one again.
    pub(crate) fn next(&mut self, n: usize, mut show: impl FnMut(&'static M)) {
        let mut left = n;
        for _ in 0..self.len {
            if left == 0 {
                return;
            }
            let Some(m) = self.pop() else { return };
            if m.stray.load(Relaxed) {
                self.push(m);
                show(m);
                left -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strays_come_in_turn_until_they_have_a_p() {
        let ms: Vec<&'static M> = (0..5).map(|id| &*Box::leak(Box::new(M::new(id, null(), 1)))).collect();
        let mut strays = Strays::new();
        for m in &ms {
            m.stray.store(true, Relaxed);
            strays.add(m, 1, 1, false);
            strays.add(m, 2, 2, m.id % 2 == 0); // twice is once
        }
        let turn = |strays: &mut Strays, n| {
            let mut ids = Vec::new();
            strays.next(n, |m| ids.push(m.id));
            ids
        };
        assert_eq!(strays.computing(), 3);
        ms[0].asleep.store(true, Relaxed);
        assert_eq!(strays.computing(), 2, "one of them waits for a P");
        assert_eq!(turn(&mut strays, 3), [0, 1, 2]);
        ms[3].stray.store(false, Relaxed);
        assert_eq!(turn(&mut strays, 3), [4, 0, 1]);
        assert_eq!(turn(&mut strays, 9), [2, 4, 0, 1], "each once");
        ms.iter().for_each(|m| m.stray.store(false, Relaxed));
        assert_eq!(turn(&mut strays, 9), []);
        assert!(strays.is_empty());
    }

    #[test]
    fn a_clock_that_stands_still_begins_anew() {
        let clock = StrayClock::new();
        assert!(!clock.computes(1, COMPUTES_NS));
        assert!(!clock.computes(2, COMPUTES_NS), "it slept");
        assert!(!clock.computes(3, 2 * COMPUTES_NS));
        assert!(clock.computes(4, 2 * COMPUTES_NS + 1));
    }

    #[test]
    fn a_thread_that_gets_little_cpu_at_a_time_computes_in_the_end() {
        let clock = StrayClock::new();
        let looks = (0..4 * COMPUTES_IN_ALL_NS).step_by(COMPUTES_NS as usize / 2).flat_map(|cpu| [cpu; 2]);
        let seen = looks.filter(|&cpu| clock.computes(0, cpu)).count();
        assert_eq!(seen, 3, "once each time");
    }
}
