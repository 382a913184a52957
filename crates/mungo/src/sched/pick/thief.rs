//! The patience of an M that looks for work.
//!
//! A goroutine that was just woken is about to run where its waker parks, with warm caches. Taken at once, the pair
//! pays for cache misses and for an M that wakes up each time. So a thief takes long rings at once, short ones after
//! two naps, and `runnext` only if the P has not switched since the last look.
//!
//! In between it naps, still spinning as far as the idle protocol is concerned: it looks at all queues afterwards. Go
//! sleeps for 3 µs before it takes a `runnext`, whichever goroutine is in it by then; rings it takes from at once.

use crate::policies::order::{EMPTY_NAPS, FEW, FIRST_NAP_NS, LONGEST_NAP_NS, NAPS_FOR_FEW, STALLED_NS};
use crate::sched::run::p::P;
use crate::sys::{clock, futex};
use std::cell::{Cell, RefCell, RefMut};
use std::sync::atomic::AtomicU32;

/// Ps that a thief remembers. WHY NOT all, in a vector: an M that looks for work must not wait for memory with a P in
/// hand.
const REMEMBERED: usize = 64;

/// The memory of an M that looks for work. Used by its own thread only.
pub(crate) struct Thief {
    /// Number of naps since it began to look.
    naps: Cell<u32>,
    /// Number of the last naps in a row with empty queues.
    empty: Cell<u32>,
    /// What was seen of each P; where there are more Ps than places, the last one that was looked at.
    seen: RefCell<[Seen; REMEMBERED]>,
}

/// What was seen of a P.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The P's id.
    of: u32,
    /// Number of switches that it had made when it was last judged.
    judged: u64,
    /// Number of switches when [`is_stalled`](Thief::is_stalled) was last asked, and the time in ns since when a
    /// goroutine has waited in its ring without another switch.
    asked: u64,
    stalled_since_ns: Option<u64>,
}

/// What may be taken from a victim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    Nothing,
    Ring,
    NextToo,
}

impl Thief {
    pub(crate) fn new() -> Thief {
        Thief { naps: Cell::new(0), empty: Cell::new(0), seen: RefCell::new([Seen::default(); REMEMBERED]) }
    }

    fn seen_of(&self, victim: &P) -> RefMut<'_, Seen> {
        RefMut::map(self.seen.borrow_mut(), |seen| {
            let seen = &mut seen[victim.id as usize % REMEMBERED];
            if seen.of != victim.id {
                *seen = Seen { of: victim.id, ..Seen::default() };
            }
            seen
        })
    }

    pub(crate) fn judge(&self, victim: &P) -> Take {
        if !self.moves(victim) {
            Take::NextToo
        } else if victim.runq.len() > FEW || self.naps.get() >= NAPS_FOR_FEW {
            Take::Ring
        } else {
            Take::Nothing
        }
    }

    /// Returns whether the P has switched since the last look. One that was not looked at yet counts as moving.
    fn moves(&self, victim: &P) -> bool {
        let switches = victim.counters.switches.get();
        std::mem::replace(&mut self.seen_of(victim).judged, switches) != switches || self.naps.get() == 0
    }

    /// Returns whether a goroutine waits in the ring of a P that has not switched for [`STALLED_NS`].
    pub(crate) fn is_stalled(&self, victim: &P) -> bool {
        let switches = victim.counters.switches.get();
        let mut seen = self.seen_of(victim);
        if std::mem::replace(&mut seen.asked, switches) != switches || victim.runq.is_empty() {
            seen.stalled_since_ns = None;
            return false;
        }
        let now = clock::now_ns();
        now - *seen.stalled_since_ns.get_or_insert(now) >= STALLED_NS
    }

    /// Returns whether to nap and look again, after a look at which nothing was taken.
    pub(crate) fn stays(&self, left_alone: bool) -> bool {
        self.empty.set(if left_alone { 0 } else { self.empty.get() + 1 });
        left_alone || (self.naps.get() != 0 && self.empty.get() <= EMPTY_NAPS)
    }

    pub(crate) fn nap(&self) {
        let n = self.naps.get();
        self.naps.set(n + 1);
        let until = clock::now_ns() + (FIRST_NAP_NS << n.min(16)).min(LONGEST_NAP_NS);
        if n == 0 {
            // The nap is too short for the kernel.
            while clock::now_ns() < until {
                std::hint::spin_loop();
            }
        } else {
            static NOBODY_WAKES_IT: AtomicU32 = AtomicU32::new(0);
            futex::wait(&NOBODY_WAKES_IT, 0, Some(until));
        }
    }

    /// Forgets the naps, because it found work, or gave up.
    pub(crate) fn rest(&self) {
        self.naps.set(0);
        self.empty.set(0);
    }
}
