//! The patience of an M that looks for work.
//!
//! A goroutine that was just woken is about to run where its waker parks, with warm caches. Taken at once, the pair
//! pays for cache misses and for an M that wakes up each time. So a thief looks twice: it robs a P at once of
//! many, of few a little later, and of its `runnext` only if the P has not switched since the last look.
//!
//! In between it naps, still spinning as far as the idle protocol is concerned: it looks at all queues afterwards.
//! Go sleeps for 3 µs before it takes a `runnext`, whoever is in it by then; rings it robs at once.

use super::p::P;
use crate::sys::{clock, futex};
use std::cell::{Cell, RefCell, RefMut};
use std::sync::atomic::AtomicU32;

/// The first nap; each is twice as long as the one before, up to the longest.
/// TUNED: a pair on a channel switches every 0.1 to 3 µs. Ping-pong on two Ps took 316 ns, now 165; on one P 156.
const FIRST_NAP_NS: u64 = 3_000;
const LONGEST_NAP_NS: u64 = 48_000;
/// So few waiting goroutines are left alone for so many naps.
/// TUNED: of 1, 2, 3 naps: a select over four senders took 240, 201, 191 ns a message, with buffers 85, 67, 60; 301 and
/// 105 without. A fork-join recursion of 3 µs tasks gains too.
const FEW: usize = 6;
const NAPS_FOR_FEW: u32 = 2;
/// So many naps pass with empty queues before a thief that saw somebody in line gives up.
const EMPTY_NAPS: u32 = 4;
/// A P with goroutines in its ring that has not switched for so long most likely has a thread without a CPU.
/// TUNED: 50 to 400 µs are alike; without a time, a P in the middle of a system call is taken for one.
const STALLED_NS: u64 = 100_000;

/// What an M that looks for work remembers. Its own thread's.
pub(crate) struct Thief {
    /// Naps since it began to look.
    naps: Cell<u32>,
    /// Of those, the last ones with empty queues.
    empty: Cell<u32>,
    /// By P.
    seen: RefCell<Vec<Seen>>,
}

/// What was seen of a P.
#[derive(Clone, Default)]
struct Seen {
    /// How many switches it had made when it was last judged.
    judged: u64,
    /// The same when [`is_stalled`](Thief::is_stalled) was last asked, and since when somebody has waited in its ring
    /// without another one.
    asked: u64,
    stalled_since_ns: Option<u64>,
}

/// What may be taken from a victim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Nothing,
    Ring,
    NextToo,
}

impl Thief {
    pub(super) fn new() -> Thief {
        Thief { naps: Cell::new(0), empty: Cell::new(0), seen: RefCell::new(Vec::new()) }
    }

    fn seen_of(&self, victim: &P) -> RefMut<'_, Seen> {
        let mut seen = self.seen.borrow_mut();
        let at = victim.id as usize;
        if seen.len() <= at {
            seen.resize(at + 1, Seen::default());
        }
        RefMut::map(seen, |seen| &mut seen[at])
    }

    pub(super) fn judge(&self, victim: &P) -> Take {
        if !self.moves(victim) {
            Take::NextToo
        } else if victim.runq.len() > FEW || self.naps.get() >= NAPS_FOR_FEW {
            Take::Ring
        } else {
            Take::Nothing
        }
    }

    /// Whether the P has switched since the last look. One that was not looked at yet counts as moving.
    fn moves(&self, victim: &P) -> bool {
        let switches = victim.counters.switches.get();
        std::mem::replace(&mut self.seen_of(victim).judged, switches) != switches || self.naps.get() == 0
    }

    /// Somebody waits in the ring of a P that has not switched for a while.
    pub(super) fn is_stalled(&self, victim: &P) -> bool {
        let switches = victim.counters.switches.get();
        let mut seen = self.seen_of(victim);
        if std::mem::replace(&mut seen.asked, switches) != switches || victim.runq.is_empty() {
            seen.stalled_since_ns = None;
            return false;
        }
        let now = clock::now_ns();
        now - *seen.stalled_since_ns.get_or_insert(now) >= STALLED_NS
    }

    /// Nothing was taken. Whether to nap and look again.
    pub(super) fn stays(&self, left_alone: bool) -> bool {
        self.empty.set(if left_alone { 0 } else { self.empty.get() + 1 });
        left_alone || (self.naps.get() != 0 && self.empty.get() <= EMPTY_NAPS)
    }

    pub(super) fn nap(&self) {
        let n = self.naps.get();
        self.naps.set(n + 1);
        let until = clock::now_ns() + (FIRST_NAP_NS << n.min(16)).min(LONGEST_NAP_NS);
        if n == 0 {
            // Too short for the kernel.
            while clock::now_ns() < until {
                std::hint::spin_loop();
            }
        } else {
            static NOBODY_WAKES_IT: AtomicU32 = AtomicU32::new(0);
            futex::wait(&NOBODY_WAKES_IT, 0, Some(until));
        }
    }

    /// It found work, or gave up.
    pub(super) fn rest(&self) {
        self.naps.set(0);
        self.empty.set(0);
    }
}
