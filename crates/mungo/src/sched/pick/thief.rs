//! The patience of an M that looks for work.
//!
//! A goroutine that was just woken is about to run where its waker parks, with warm caches. Taken at once, the pair
//! pays for cache misses and for an M that wakes up each time. So a thief takes long rings at once, short ones after
//! two naps, and `runnext` only if the P has not switched since the last look.
//!
//! In between it naps, still spinning as far as the idle protocol is concerned: it looks at all queues afterwards. Go
//! sleeps for 3 µs before it takes a `runnext`, whichever goroutine is in it by then; rings it takes from at once.

use crate::policies::order::{EMPTY_NAPS, FEW, FIRST_NAP_NS, LONGEST_NAP_NS, NAPS_FOR_FEW, STALLED_NS};
use crate::sched::config::MAX_PROCS;
use crate::sched::run::p::P;
use crate::sys::{clock, futex};
use std::cell::{Cell, RefCell, RefMut};
use std::sync::atomic::AtomicU32;

/// The patience of an M that looks for work. Used by its own thread only.
pub(crate) struct Thief {
    /// Number of naps since it began to look.
    naps: Cell<u32>,
    /// Number of the last naps in a row with empty queues.
    empty: Cell<u32>,
}

/// What the owner of a P has seen of each other P, by its id. Used by the owner of the P only.
///
/// WHY NOT in the M, which has the patience: Ms are made under the scheduler's lock, where there is no memory to be had
/// for each P, and 64 places were shared by four Ps each where there are 256: none was ever seen twice.
pub(crate) struct Sightings(RefCell<Box<[Sighting; MAX_PROCS]>>);

/// What was seen of a P. All zeros: nothing yet.
struct Sighting {
    /// Number of switches, modulo 2^32, that it had made when it was last judged.
    judged: u32,
    /// The same, when [`is_stalled`](Sightings::is_stalled) was last asked.
    asked: u32,
    /// The time in ns since when a goroutine has waited in its ring without another switch; 0: none has.
    stalled_since_ns: u64,
}

/// What may be taken from a victim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    Nothing,
    Ring,
    NextToo,
}

impl Sightings {
    /// Makes an empty one. Of its 16 KiB the pages are touched that have Ps.
    pub(crate) fn new() -> Sightings {
        // SAFETY: integers, for which zero is a value.
        Sightings(RefCell::new(unsafe { Box::new_zeroed().assume_init() }))
    }

    fn of(&self, victim: &P) -> RefMut<'_, Sighting> {
        RefMut::map(self.0.borrow_mut(), |seen| &mut seen[victim.id as usize])
    }

    /// Returns whether a goroutine waits in the ring of a P that has not switched for [`STALLED_NS`].
    pub(crate) fn is_stalled(&self, victim: &P) -> bool {
        let switches = victim.counters.switches.get() as u32;
        let mut seen = self.of(victim);
        if std::mem::replace(&mut seen.asked, switches) != switches || victim.runq.is_empty() {
            seen.stalled_since_ns = 0;
            return false;
        }
        let now = clock::now_ns();
        if seen.stalled_since_ns == 0 {
            seen.stalled_since_ns = now;
        }
        now - seen.stalled_since_ns >= STALLED_NS
    }
}

impl Thief {
    pub(crate) fn new() -> Thief {
        Thief { naps: Cell::new(0), empty: Cell::new(0) }
    }

    /// Returns what the owner of the P `own` may take from `victim`.
    pub(crate) fn judge(&self, own: &P, victim: &P) -> Take {
        if !self.moves(own, victim) {
            Take::NextToo
        } else if victim.runq.len() > FEW || self.naps.get() >= NAPS_FOR_FEW {
            Take::Ring
        } else {
            Take::Nothing
        }
    }

    /// Returns whether the P has switched since the last look. One that was not looked at yet counts as moving.
    fn moves(&self, own: &P, victim: &P) -> bool {
        let switches = victim.counters.switches.get() as u32;
        std::mem::replace(&mut own.seen.of(victim).judged, switches) != switches || self.naps.get() == 0
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
            static NEVER_WOKEN: AtomicU32 = AtomicU32::new(0);
            futex::wait(&NEVER_WOKEN, 0, Some(until));
        }
    }

    /// Forgets the naps, because it found work, or gave up.
    pub(crate) fn rest(&self) {
        self.naps.set(0);
        self.empty.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::slab::Class;

    /// Each of 200 Ps has a goroutine next in line and does not move. At the second look, after a nap, a thief may take
    /// all of them, and after a while all of them count as stalled.
    #[test]
    fn a_thief_knows_each_of_many_ps() {
        let ps: Vec<P> = (0..201).map(|id| P::new(id, Class::DEFAULT).expect("a P")).collect();
        let (own, ps) = ps.split_last().expect("many");
        ps.iter().for_each(|p| {
            p.counters.switches.add(1 + u64::from(p.id));
            p.runq.push_next(std::ptr::dangling_mut()).expect("an empty ring");
        });
        let thief = Thief::new();
        assert!(ps.iter().all(|p| thief.judge(own, p) == Take::Nothing), "not looked at yet");
        thief.nap();
        assert!(ps.iter().all(|p| thief.judge(own, p) == Take::NextToo));
        ps[150].counters.switches.add(1);
        assert!(thief.judge(own, &ps[150]) == Take::Nothing, "it moved");

        assert!(!ps.iter().any(|p| own.seen.is_stalled(p)), "asked for the first time");
        assert!(!ps.iter().any(|p| own.seen.is_stalled(p)), "since just now");
        std::thread::sleep(std::time::Duration::from_nanos(STALLED_NS));
        ps[70].counters.switches.add(1);
        assert!(ps.iter().all(|p| own.seen.is_stalled(p) == (p.id != 70)));
        ps.iter().for_each(|p| _ = p.runq.pop());
        assert!(!ps.iter().any(|p| own.seen.is_stalled(p)), "nothing waits there");
    }
}
