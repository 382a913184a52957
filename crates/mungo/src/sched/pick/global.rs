//! The global run queues, of fresh and of computing goroutines: intrusive lists under the scheduler's lock.

use crate::protocols::runq::CAPACITY;
use crate::sched::engine::hooks;
use crate::sched::run::g::{G, GPtr};
use crate::sched::run::p::P;
use crate::sched::shared::{Shared, Synced};
use crate::sched::traced;
use mungo_trace::Queue;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// A first-in first-out list, linked through `G::link`.
pub(crate) struct GList {
    head: *mut G,
    tail: *mut G,
    len: usize,
}

// SAFETY: a list of goroutines that no other thread holds.
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

    pub(crate) fn push_front(&mut self, g: GPtr) {
        g.link.set(self.head);
        self.head = g.as_ptr();
        if self.tail.is_null() {
            self.tail = self.head;
        }
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

    /// Passes all of them to `show`, in their order.
    pub(crate) fn each(&self, mut show: impl FnMut(&G)) {
        let mut at = self.head;
        // SAFETY: the list's own, linked through `G::link` and ended by null.
        while let Some(g) = unsafe { at.as_ref() } {
            show(g);
            at = g.link.get();
        }
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

    /// Appends the list `other` in one step: it may be long, and the scheduler's lock is held.
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
    /// Returns the number of goroutines in both queues.
    #[inline]
    pub(crate) fn global_len(&self) -> usize {
        // ORDERING: SeqCst: the looker's half of the idle protocol.
        self.global_len.load(SeqCst)
    }

    /// Returns the number of goroutines in the queue of those that compute.
    #[inline]
    pub(crate) fn computing_len(&self) -> usize {
        self.computing_len.load(Relaxed)
    }

    /// Returns whether fresh goroutines wait in the global queue.
    #[inline]
    pub(crate) fn has_fresh(&self) -> bool {
        self.global_len() > self.computing_len()
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

    /// Queues a goroutine that was interrupted while it computed: at the front if `first`, to end its slice.
    pub(crate) fn push_computing(&self, g: GPtr, first: bool) {
        let mut synced = self.synced.lock();
        self.push_computing_locked(&mut synced, g, first);
    }

    pub(crate) fn push_computing_locked(&self, synced: &mut Synced, g: GPtr, first: bool) {
        match first {
            true => synced.computing.push_front(g),
            false => synced.computing.push(g),
        }
        self.publish_global(synced);
    }

    pub(crate) fn publish_global(&self, synced: &Synced) {
        // Every P reads it at each switch, and it changes rarely.
        if self.computing_len() != synced.computing.len() {
            self.computing_len.store(synced.computing.len(), Relaxed);
        }
        // ORDERING: SeqCst: the submitter's half of the idle protocol.
        self.global_len.store(synced.computing.len() + synced.global.len(), SeqCst);
    }

    /// Takes one fresh goroutine to run, and moves a share of the others into the P's ring.
    pub(crate) fn take_fresh(&self, p: &P) -> Option<GPtr> {
        if !self.has_fresh() {
            return None;
        }
        let mut synced = self.synced.lock();
        self.take_fresh_locked(&mut synced, p)
    }

    fn take_fresh_locked(&self, synced: &mut Synced, p: &P) -> Option<GPtr> {
        let first = synced.global.pop()?;
        traced::found(p, &first, Queue::Global);
        p.counters.global_takes.add(1);
        // Half of the ring stays free: one that runs over moves half of itself back.
        let room = (CAPACITY / 2).saturating_sub(p.runq.len());
        for _ in 0..(synced.global.len() / self.at_once()).min(room) {
            let Some(g) = synced.global.pop() else { break };
            if let Err(full) = p.runq.push_back(g.as_ptr()) {
                p.runq.spill(full, |g| synced.global.push(GPtr::new(g).expect("a goroutine")));
                break;
            }
        }
        self.publish_global(synced);
        Some(first)
    }

    /// Takes one goroutine that computes.
    pub(crate) fn take_computing(&self, p: &P) -> Option<GPtr> {
        if self.computing_len() == 0 {
            return None;
        }
        self.take_computing_locked(&mut self.synced.lock(), p)
    }

    fn take_computing_locked(&self, synced: &mut Synced, p: &P) -> Option<GPtr> {
        let g = synced.computing.pop()?;
        traced::found(p, &g, Queue::Computing);
        p.counters.global_takes.add(1);
        self.publish_global(synced);
        Some(g)
    }

    /// Takes one of any kind: see [`next_locked`](super::next_locked).
    pub(super) fn take_any_locked(&self, synced: &mut Synced, p: &P) -> Option<GPtr> {
        self.take_fresh_locked(synced, p)
            .or_else(|| self.take_computing_locked(synced, p))
            .or_else(|| self.take_held_locked(synced).inspect(|g| traced::found(p, g, Queue::Global)))
    }

    /// Takes, for the monitor, the first goroutine of the global queues that can go on without a P.
    pub(crate) fn take_interrupted(&self) -> Option<GPtr> {
        let mut synced = self.synced.lock();
        let wanted = |g: &G| g.needs_no_p.load(Relaxed) && g.bound.load(Relaxed).is_null();
        let g = synced.computing.take_first(wanted).or_else(|| synced.global.take_first(wanted));
        self.publish_global(&synced);
        drop(synced);
        g.or_else(|| hooks::take_interrupted(self))
    }

    /// Takes at most `n` goroutines of the global queues, for a policy to queue.
    pub(crate) fn take_inbox(&self, n: usize) -> impl Iterator<Item = GPtr> {
        let mut taken = GList::new();
        let mut synced = self.synced.lock();
        while taken.len() < n
            && let Some(g) = synced.global.pop().or_else(|| synced.computing.pop())
        {
            taken.push(g);
        }
        self.publish_global(&synced);
        drop(synced);
        std::iter::from_fn(move || taken.pop())
    }
}

#[cfg(all(test, mungo_native, not(miri)))]
mod tests {
    use super::*;
    use crate::sched::run::current::Running;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    /// It is at home on its thread, and would run on another one.
    #[test]
    fn an_interrupted_goroutine_that_is_bound_is_not_let_go_on_without_a_p() {
        let slice = Duration::from_micros(100);
        let runtime = crate::Runtime::builder().procs(1).time_slice(slice).build().expect("a runtime");
        let (stop, is_bound) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let bound = {
            let (stop, is_bound) = (stop.clone(), is_bound.clone());
            runtime.spawn(move || {
                let _bound = crate::lock_os_thread();
                is_bound.store(true, Relaxed);
                while !stop.load(Relaxed) {}
            })
        };
        runtime.run(move || {
            let (start, mut queued) = (Instant::now(), 0);
            while !is_bound.load(Relaxed) {
                crate::yield_now();
            }
            while queued < 10 {
                let running = Running::enter().expect("a goroutine");
                if running.shared().computing_len() != 0 {
                    queued += 1;
                    assert!(running.shared().take_interrupted().is_none());
                }
                drop(running);
                assert!(start.elapsed().as_secs() < 60, "it is not interrupted");
                crate::yield_now();
            }
            stop.store(true, Relaxed);
        });
        bound.join().expect("no panic");
    }
}
