//! The global run queue: an intrusive list of goroutines under the scheduler's lock. A part of it is urgent.

use super::g::{G, GPtr};
use super::p::P;
use super::shared::{Shared, Synced};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// A first-in first-out list, linked through `G::link`.
pub(crate) struct GList {
    head: *mut G,
    tail: *mut G,
    len: usize,
}

// SAFETY: a list of goroutines that nobody else holds.
unsafe impl Send for GList {}

impl GList {
    pub(crate) const fn new() -> Self {
        GList { head: null_mut(), tail: null_mut(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, g: GPtr) {
        let g = g.as_ptr();
        // SAFETY: the caller owns `g`; `tail` is ours.
        unsafe {
            (*g).link.set(null_mut());
            match self.tail.is_null() {
                true => self.head = g,
                false => (*self.tail).link.set(g),
            }
        }
        self.tail = g;
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<GPtr> {
        let g = GPtr::new(self.head)?;
        self.head = g.link.get();
        if self.head.is_null() {
            self.tail = null_mut();
        }
        self.len -= 1;
        Some(g)
    }

    pub(crate) fn first(&self) -> Option<GPtr> {
        GPtr::new(self.head)
    }

    /// Takes out the first one that is `wanted`; the others keep their order. Looks at all of them.
    pub(crate) fn take_first(&mut self, wanted: impl Fn(&G) -> bool) -> Option<GPtr> {
        let mut found = None;
        for _ in 0..self.len {
            let g = self.pop()?;
            if found.is_none() && wanted(&g) {
                found = Some(g);
            } else {
                self.push(g);
            }
        }
        found
    }

    /// Puts the others behind these, in one step: the lists may be long, and the scheduler's lock is held.
    pub(crate) fn append(&mut self, other: GList) {
        if other.head.is_null() {
            return;
        }
        match self.tail.is_null() {
            true => self.head = other.head,
            // SAFETY: the tail is ours.
            false => unsafe { (*self.tail).link.set(other.head) },
        }
        self.tail = other.tail;
        self.len += other.len;
    }
}

impl Shared {
    #[inline]
    pub(crate) fn global_len(&self) -> usize {
        // ORDERING: SeqCst: the looker's half of the idle protocol.
        self.global_len.load(SeqCst)
    }

    pub(crate) fn push_global(&self, gs: GList) {
        let mut synced = self.synced.lock();
        self.push_global_locked(&mut synced, gs);
    }

    pub(crate) fn push_global_one(&self, g: GPtr) {
        let mut one = GList::new();
        one.push(g);
        self.push_global(one);
    }

    pub(crate) fn push_global_locked(&self, synced: &mut Synced, gs: GList) {
        synced.global.append(gs);
        self.publish_global(synced);
    }

    /// Ahead of all others, and of the Ps' own queues: woken goroutines that every P is too busy for. Whoever is woken
    /// by the clock or the network most often has little to do; behind those that compute it would wait for long.
    pub(crate) fn push_urgent(&self, gs: GList) {
        let mut synced = self.synced.lock();
        synced.urgent.append(gs);
        self.publish_global(&synced);
    }

    pub(super) fn publish_global(&self, synced: &Synced) {
        self.urgent_len.store(synced.urgent.len(), Relaxed);
        // ORDERING: SeqCst: the submitter's half of the idle protocol.
        self.global_len.store(synced.urgent.len() + synced.global.len(), SeqCst);
    }

    /// Whether somebody in the global queue comes before a P's own.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent_len.load(Relaxed) != 0
    }

    /// One goroutine to run, and with `fair` a share of the others into the P's ring.
    pub(crate) fn take_global(&self, p: &P, fair: bool) -> Option<GPtr> {
        if self.global_len() == 0 {
            return None;
        }
        let mut synced = self.synced.lock();
        self.take_global_locked(&mut synced, p, fair)
    }

    pub(crate) fn take_global_locked(&self, synced: &mut Synced, p: &P, fair: bool) -> Option<GPtr> {
        let first = synced.urgent.pop().or_else(|| synced.global.pop())?;
        p.counters.global_takes.add(1);
        if fair {
            let share = synced.global.len() / self.procs().max(1) as usize;
            for _ in 0..share.min(super::runq::CAPACITY / 2) {
                let Some(g) = synced.global.pop() else { break };
                if let Err(full) = p.runq.push_back(g.as_ptr()) {
                    // Half of a ring fits an empty ring; should it not be empty, nothing is lost.
                    p.runq.spill(full, |g| synced.global.push(GPtr::new(g).expect("a goroutine")));
                    break;
                }
            }
        }
        self.publish_global(synced);
        Some(first)
    }

    /// Some of the global queue, for a policy to queue.
    pub(crate) fn take_inbox(&self, n: usize) -> impl Iterator<Item = GPtr> {
        let mut taken = GList::new();
        let mut synced = self.synced.lock();
        while taken.len() < n
            && let Some(g) = synced.urgent.pop().or_else(|| synced.global.pop())
        {
            taken.push(g);
        }
        self.publish_global(&synced);
        drop(synced);
        std::iter::from_fn(move || taken.pop())
    }
}
