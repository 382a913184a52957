//! The run queue of a P: a ring of 256 and a `runnext` slot, as in Go.
//!
//! One owner (the M that holds the P) pushes and pops; any other M steals. A taker moves `head` (a CAS), the owner
//! alone `tail`. The owner fills `runnext`, and either side empties it by a CAS.
//!
//! Small enough for a model: under loom the ring has 4 places (see the tests).

// An overflow is rare, and its batch goes on the stack: better than an allocation by a worker.
#![allow(clippy::result_large_err)]

use crate::sys::atomic::{AtomicPtr, AtomicU32, total_order};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Places of the ring, one goroutine each.
pub(crate) const CAPACITY: usize = if cfg!(loom) { 4 } else { 256 };
const MASK: u32 = CAPACITY as u32 - 1;

/// The ring is full; the goroutine that did not fit is with the caller, which calls [`RunQueue::spill`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Full<T>(*mut T);

/// A bounded queue of `*mut T`; the thread that takes a pointer out owns what it points to.
#[repr(C)]
pub(crate) struct RunQueue<T> {
    /// Next place to take from. Written by owner and thieves (CAS).
    head: AtomicU32,
    /// Next place to fill. Written by the owner.
    tail: AtomicU32,
    next: AtomicPtr<T>,
    ring: [AtomicPtr<T>; CAPACITY],
}

impl<T> RunQueue<T> {
    pub(crate) fn new() -> Self {
        RunQueue {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            next: AtomicPtr::new(null_mut()),
            ring: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    /// Appends `t`. Called by the owner.
    #[inline]
    pub(crate) fn push_back(&self, t: *mut T) -> Result<(), Full<T>> {
        let tail = self.tail.load(Relaxed);
        // ORDERING: Acquire pairs with the CAS of thieves: their reads of a place precede our reuse of it.
        let head = self.head.load(Acquire);
        if tail.wrapping_sub(head) < CAPACITY as u32 {
            self.ring[(tail & MASK) as usize].store(t, Relaxed);
            // ORDERING: SeqCst, as an exchange: publishes the place to thieves (their Acquire of `tail`), and is
            // the submitter's half of the idle protocol (sched/README.md): push, then look for sleepers.
            // TUNED: 2.3 ns here, a store and a fence cost 8.
            self.tail.swap(tail.wrapping_add(1), SeqCst);
            total_order();
            return Ok(());
        }
        Err(Full(t))
    }

    /// Appends `t` without a word to sleepers, for a goroutine that was running here anyway. Returns `false` if the
    /// ring is full. Called by the owner.
    #[inline]
    pub(crate) fn push_back_quietly(&self, t: *mut T) -> bool {
        let tail = self.tail.load(Relaxed);
        // ORDERING: as in `push_back`; Release publishes the place to thieves.
        if tail.wrapping_sub(self.head.load(Acquire)) >= CAPACITY as u32 {
            return false;
        }
        self.ring[(tail & MASK) as usize].store(t, Relaxed);
        self.tail.store(tail.wrapping_add(1), Release);
        true
    }

    /// Puts `t` next in line, and what was next to the back. Called by the owner.
    #[inline]
    pub(crate) fn push_next(&self, t: *mut T) -> Result<(), Full<T>> {
        // ORDERING: SeqCst as in `push_back`.
        let old = self.next.swap(t, SeqCst);
        total_order();
        if old.is_null() { Ok(()) } else { self.push_back(old) }
    }

    /// Takes half of a full ring out, and what did not fit, for the global queue. Called by the owner.
    #[cold]
    pub(crate) fn spill(&self, Full(t): Full<T>, mut each: impl FnMut(*mut T)) {
        const HALF: u32 = CAPACITY as u32 / 2;
        let head = self.head.load(Acquire);
        if self.tail.load(Relaxed).wrapping_sub(head) >= HALF {
            let mut batch = [null_mut(); HALF as usize];
            for (i, place) in batch.iter_mut().enumerate() {
                *place = self.ring[(head.wrapping_add(i as u32) & MASK) as usize].load(Relaxed);
            }
            // ORDERING: Release: our reads of the places come before another taker sees them as free. If it fails,
            // a thief made room, but not for the one in hand, which goes to the global queue alone.
            if self.head.compare_exchange(head, head.wrapping_add(HALF), AcqRel, Relaxed).is_ok() {
                batch.into_iter().for_each(&mut each);
            }
        }
        each(t);
    }

    /// Takes the next goroutine. `true`: it was `runnext` and inherits the time slice. Called by the owner.
    #[inline]
    pub(crate) fn pop(&self) -> Option<(*mut T, bool)> {
        let next = self.next.load(Relaxed);
        // ORDERING: the owner wrote it, so Relaxed on success would do for the data; Acquire against thieves' CAS.
        if !next.is_null() && self.next.compare_exchange(next, null_mut(), Acquire, Relaxed).is_ok() {
            return Some((next, true));
        }
        self.pop_ring().map(|t| (t, false))
    }

    /// Takes from the ring, passing `runnext` over. Called by the owner.
    #[inline]
    pub(crate) fn pop_ring(&self) -> Option<*mut T> {
        loop {
            let head = self.head.load(Acquire);
            if head == self.tail.load(Relaxed) {
                return None;
            }
            let t = self.ring[(head & MASK) as usize].load(Relaxed);
            // ORDERING: Release: the read of the place precedes its reuse (Acquire in `push_back`).
            if self.head.compare_exchange(head, head.wrapping_add(1), Release, Relaxed).is_ok() {
                return Some(t);
            }
        }
    }

    /// Moves `runnext` to the back, because its slice is over. Called by the owner.
    pub(crate) fn demote_next(&self) -> Result<(), Full<T>> {
        let old = self.next.swap(null_mut(), AcqRel);
        if old.is_null() { Ok(()) } else { self.push_back(old) }
    }

    /// Moves half of this queue to `to`, which the caller, a thief, owns, and returns one goroutine of it to run.
    /// `runnext` is taken only if the ring is empty and `next_too` is set.
    pub(crate) fn steal_into(&self, to: &RunQueue<T>, next_too: bool) -> Option<*mut T> {
        let to_tail = to.tail.load(Relaxed);
        let n = self.grab(to, to_tail, next_too);
        let last = n.checked_sub(1)?;
        let t = to.ring[(to_tail.wrapping_add(last) & MASK) as usize].load(Relaxed);
        if last > 0 {
            // The destination was empty: a thief steals only when it has nothing.
            debug_assert!(to_tail.wrapping_sub(to.head.load(Relaxed)) + last <= CAPACITY as u32);
            // ORDERING: SeqCst as in `push_back`.
            to.tail.swap(to_tail.wrapping_add(last), SeqCst);
        }
        Some(t)
    }

    /// Copies half of the ring to `to` from place `at` on, takes it, and returns how many goroutines that were.
    fn grab(&self, to: &RunQueue<T>, at: u32, next_too: bool) -> u32 {
        loop {
            // ORDERING: Acquire on `head` with other takers; SeqCst on `tail` and `next`: the looker's half of the
            // idle protocol (stop spinning, then look again) pairs with the pushes above.
            let head = self.head.load(Acquire);
            let tail = self.tail.load(SeqCst);
            let len = tail.wrapping_sub(head);
            let n = len - len / 2;
            if n == 0 {
                if next_too {
                    let next = self.next.load(SeqCst); // ORDERING: above
                    if !next.is_null() {
                        if self.next.compare_exchange(next, null_mut(), AcqRel, Relaxed).is_err() {
                            continue;
                        }
                        to.ring[(at & MASK) as usize].store(next, Relaxed);
                        return 1;
                    }
                }
                return 0;
            }
            if n > CAPACITY as u32 / 2 {
                continue; // head and tail were read at different times
            }
            for i in 0..n {
                let t = self.ring[(head.wrapping_add(i) & MASK) as usize].load(Relaxed);
                to.ring[(at.wrapping_add(i) & MASK) as usize].store(t, Relaxed);
            }
            // ORDERING: AcqRel: our copies precede the owner's reuse of the places.
            if self.head.compare_exchange(head, head.wrapping_add(n), AcqRel, Relaxed).is_ok() {
                return n;
            }
        }
    }

    /// Returns how many goroutines were ever taken from the ring, and how many were put there, modulo 2^32. From any
    /// thread.
    pub(crate) fn progress(&self) -> (u32, u32) {
        (self.head.load(Relaxed), self.tail.load(Relaxed))
    }

    /// Returns whether there is nothing to take, `runnext` included. From any thread.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: SeqCst as in `grab`. `head` first: a `tail` read later can only make it look fuller.
        total_order();
        let head = self.head.load(SeqCst);
        head == self.tail.load(SeqCst) && self.next.load(SeqCst).is_null()
    }

    /// Returns whether a goroutine is next in line. From any thread.
    pub(crate) fn has_next(&self) -> bool {
        !self.next.load(Relaxed).is_null()
    }

    /// Returns about how many goroutines wait here. From any thread.
    pub(crate) fn len(&self) -> usize {
        let head = self.head.load(Relaxed);
        let ring = self.tail.load(Relaxed).wrapping_sub(head).min(CAPACITY as u32) as usize;
        ring + usize::from(self.has_next())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn fake(i: usize) -> *mut u64 {
        (i * 8) as *mut u64
    }

    #[test]
    fn fifo_with_runnext_first() {
        let q = RunQueue::new();
        q.push_back(fake(1)).unwrap();
        q.push_next(fake(2)).unwrap();
        q.push_next(fake(3)).unwrap(); // kicks 2 to the back
        assert_eq!(q.len(), 3);
        assert_eq!(q.pop(), Some((fake(3), true)));
        assert_eq!(q.pop(), Some((fake(1), false)));
        assert_eq!(q.pop(), Some((fake(2), false)));
        assert_eq!(q.pop(), None);
        assert!(q.is_empty());
    }

    #[test]
    fn overflow_takes_the_older_half() {
        let q = RunQueue::new();
        (1..=CAPACITY).for_each(|i| q.push_back(fake(i)).unwrap());
        let mut spilled = Vec::new();
        q.spill(q.push_back(fake(999)).unwrap_err(), |t| spilled.push(t));
        assert_eq!(spilled, (1..=CAPACITY / 2).chain([999]).map(fake).collect::<Vec<_>>());
        assert_eq!(q.len(), CAPACITY / 2);
    }

    #[test]
    fn a_quiet_push_leaves_a_full_ring_as_it_is() {
        let q = RunQueue::new();
        assert!((1..=CAPACITY).all(|i| q.push_back_quietly(fake(i))));
        assert!(!q.push_back_quietly(fake(999)));
        assert_eq!((q.pop(), q.len()), (Some((fake(1), false)), CAPACITY - 1));
    }

    #[test]
    fn steal_takes_half_and_runnext_last() {
        let (a, b) = (RunQueue::new(), RunQueue::new());
        (1..=7).for_each(|i| a.push_back(fake(i)).unwrap());
        assert_eq!(a.steal_into(&b, false), Some(fake(4)));
        assert_eq!((a.len(), b.len()), (3, 3));
        let c = RunQueue::new();
        c.push_next(fake(9)).unwrap();
        let d = RunQueue::new();
        assert_eq!(c.steal_into(&d, false), None);
        assert_eq!(c.steal_into(&d, true), Some(fake(9)));
        assert!(c.is_empty() && d.is_empty());
    }

    #[test]
    fn thieves_and_owner_share_without_loss() {
        const N: usize = 200_000;
        let owner = RunQueue::<u64>::new();
        let seen: Vec<_> = (0..=N).map(|_| AtomicU32::new(0)).collect();
        let done = std::sync::atomic::AtomicBool::new(false);
        let count = |t: *mut u64| {
            seen[t as usize / 8].fetch_add(1, Relaxed);
        };
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    let own = RunQueue::<u64>::new();
                    while !done.load(Acquire) || !owner.is_empty() {
                        if let Some(t) = owner.steal_into(&own, true) {
                            count(t);
                            while let Some((t, _)) = own.pop() {
                                count(t);
                            }
                        }
                    }
                });
            }
            for i in 1..=N {
                let pushed = if i % 3 == 0 { owner.push_next(fake(i)) } else { owner.push_back(fake(i)) };
                if let Err(full) = pushed {
                    owner.spill(full, count);
                }
                if i % 5 == 0
                    && let Some((t, _)) = owner.pop()
                {
                    count(t);
                }
            }
            done.store(true, Release);
        });
        while let Some((t, _)) = owner.pop() {
            count(t);
        }
        assert!(seen[1..].iter().all(|c| c.load(Relaxed) == 1));
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    fn fake(i: usize) -> *mut u64 {
        (i * 8) as *mut u64
    }

    /// Everything pushed comes out exactly once, whatever owner and thief do at the same time.
    fn model(pushes: usize, as_next: bool) {
        loom::model(move || {
            let q = Arc::new(RunQueue::<u64>::new());
            let seen: Arc<Vec<AtomicUsize>> = Arc::new((0..=pushes).map(|_| AtomicUsize::new(0)).collect());
            let count = |seen: &[AtomicUsize], t: *mut u64| {
                assert_eq!(seen[t as usize / 8].fetch_add(1, Relaxed), 0, "taken twice");
            };
            let thief = {
                let (q, seen) = (q.clone(), seen.clone());
                loom::thread::spawn(move || {
                    let own = RunQueue::<u64>::new();
                    for _ in 0..2 {
                        if let Some(t) = q.steal_into(&own, true) {
                            count(&seen, t);
                        }
                        while let Some((t, _)) = own.pop() {
                            count(&seen, t);
                        }
                    }
                })
            };
            for i in 1..=pushes {
                let pushed = if as_next { q.push_next(fake(i)) } else { q.push_back(fake(i)) };
                if let Err(full) = pushed {
                    q.spill(full, |t| count(&seen, t));
                }
            }
            if let Some((t, _)) = q.pop() {
                count(&seen, t);
            }
            thief.join().unwrap();
            while let Some((t, _)) = q.pop() {
                count(&seen, t);
            }
            assert!(seen[1..].iter().all(|c| c.load(Relaxed) == 1), "lost");
        });
    }

    #[test]
    fn loom_push_pop_steal() {
        model(2, false);
    }

    #[test]
    fn loom_runnext_steal() {
        model(2, true);
    }

    #[test]
    fn loom_overflow_steal() {
        model(5, false);
    }
}
