//! The Ms of a runtime: all that were ever made, and those that sleep.
//!
//! Neither needs the process's allocator. A thread is started where memory may be locked by a goroutine that waits for
//! that very thread, so an M comes straight from the kernel, and the list of sleepers is linked through the Ms.

use crate::sched::run::m::M;
use crate::stack::guard::Mapping;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{null, null_mut};
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Ms that are mapped at a time.
const CHUNK: usize = 64;

#[repr(C)]
struct Chunk {
    ms: [MaybeUninit<M>; CHUNK],
    /// Number of Ms in it that were made. Written under the scheduler's lock.
    used: AtomicUsize,
    older: *mut Chunk,
}

/// All Ms of a runtime that were ever made. They live as long as the runtime, so that a stale pointer to one does no
/// harm. Only the scheduler's lock allows to [`add`](Self::add); any thread may look, without a lock.
pub(crate) struct Registry {
    newest: AtomicPtr<Chunk>,
}

impl Registry {
    pub(crate) const fn new() -> Registry {
        Registry { newest: AtomicPtr::new(null_mut()) }
    }

    /// Maps memory for the next Ms, if [`add`](Self::add) will need some. Called before the lock is taken.
    pub(crate) fn prepare(&self) -> std::io::Result<Spare> {
        // SAFETY: chunks live as long as `self`. ORDERING: Acquire its content.
        let full = unsafe { self.newest.load(Acquire).as_ref() }.is_none_or(|c| c.used.load(Relaxed) == CHUNK);
        Ok(Spare(if full { Some(Mapping::new(size_of::<Chunk>())?) } else { None }))
    }

    /// Adds an M, under the scheduler's lock. Returns `None` if other threads have used up the room meanwhile: prepare
    /// again.
    pub(crate) fn add(&self, m: M, spare: &mut Spare) -> Option<&'static M> {
        let mut newest = self.newest.load(Relaxed);
        // SAFETY: as above.
        if unsafe { newest.as_ref() }.is_none_or(|c| c.used.load(Relaxed) == CHUNK) {
            let fresh = spare.0.take()?.keep().cast::<Chunk>();
            // SAFETY: a fresh mapping of that size, aligned to a page and full of zeros.
            unsafe { (*fresh).older = newest };
            // ORDERING: Release to threads that look.
            self.newest.store(fresh, Release);
            newest = fresh;
        }
        // SAFETY: as above; no thread uses the places from `used` on, and the lock keeps it so.
        unsafe {
            let at = (*newest).used.load(Relaxed);
            let place = (&raw mut (*newest).ms[at]).cast::<M>();
            place.write(m);
            // ORDERING: Release its content to threads that look.
            (*newest).used.store(at + 1, Release);
            Some(&*place)
        }
    }

    /// Returns all Ms that were ever made.
    fn all(&self) -> impl Iterator<Item = &'static M> {
        // ORDERING: Acquire what `add` wrote.
        let mut chunk: *const Chunk = self.newest.load(Acquire);
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                // SAFETY: chunks live as long as the runtime, which the caller holds.
                let this = unsafe { chunk.as_ref() }?;
                if at < this.used.load(Acquire) {
                    at += 1;
                    // SAFETY: made before `used` was raised.
                    return Some(unsafe { this.ms[at - 1].assume_init_ref() });
                }
                (chunk, at) = (this.older, 0);
            }
        })
    }

    /// Returns the Ms whose threads live.
    pub(crate) fn live(&self) -> impl Iterator<Item = &'static M> {
        self.all().filter(|m| m.live.load(Acquire))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let mut chunk = self.newest.load(Relaxed);
        while !chunk.is_null() {
            // SAFETY: `add` kept the mapping, and no thread of the runtime is left. An M has no destructor.
            unsafe {
                let older = (*chunk).older;
                libc::munmap(chunk.cast(), size_of::<Chunk>());
                chunk = older;
            }
        }
    }
}

const _: () = assert!(!std::mem::needs_drop::<M>() && offset_of!(Chunk, ms) == 0);

/// Memory for [`Registry::add`]; given back if it was not needed.
pub(crate) struct Spare(Option<Mapping>);

/// An M's place in a [`List`]. Under the scheduler's lock.
pub(crate) struct Links {
    next: std::cell::Cell<*const M>,
    before: std::cell::Cell<*const M>,
    listed: std::cell::Cell<bool>,
}

impl Links {
    pub(crate) const fn new() -> Links {
        use std::cell::Cell;
        Links { next: Cell::new(null()), before: Cell::new(null()), listed: Cell::new(false) }
    }
}

/// A list of Ms, linked through them; an M is in one list at the most. Under the scheduler's lock.
pub(crate) struct List {
    first: *const M,
    last: *const M,
    len: usize,
}

// SAFETY: Ms may be shared, and the links are guarded by the lock that guards the list.
unsafe impl Send for List {}

impl List {
    pub(crate) const fn new() -> List {
        List { first: null(), last: null(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push_back(&mut self, m: &'static M) {
        self.insert(self.last, m, null());
    }

    pub(crate) fn push_front(&mut self, m: &'static M) {
        self.insert(null(), m, self.first);
    }

    fn insert(&mut self, before: *const M, m: &'static M, next: *const M) {
        debug_assert!(!m.links.listed.get());
        m.links.listed.set(true);
        m.links.before.set(before);
        m.links.next.set(next);
        self.join(before, m);
        self.join(m, next);
        self.len += 1;
    }

    /// Makes `b` the neighbour of `a`; null is the end.
    fn join(&mut self, a: *const M, b: *const M) {
        // SAFETY: Ms live as long as the runtime.
        match unsafe { a.as_ref() } {
            Some(a) => a.links.next.set(b),
            None => self.first = b,
        }
        // SAFETY: as above.
        match unsafe { b.as_ref() } {
            Some(b) => b.links.before.set(a),
            None => self.last = a,
        }
    }

    pub(crate) fn pop_back(&mut self) -> Option<&'static M> {
        // SAFETY: as above.
        let last = unsafe { self.last.as_ref() }?;
        self.remove(last);
        Some(last)
    }

    /// Returns whether `m` is in this list; it is in no other.
    pub(crate) fn has(&self, m: &M) -> bool {
        m.links.listed.get()
    }

    /// Takes `m` out, if it is in this list; it is in no other. Returns whether it was.
    pub(crate) fn remove(&mut self, m: &M) -> bool {
        if !m.links.listed.replace(false) {
            return false;
        }
        self.join(m.links.before.get(), m.links.next.get());
        self.len -= 1;
        true
    }

    /// Returns its Ms from the last to the first.
    pub(crate) fn backwards(&self) -> impl Iterator<Item = &'static M> + use<> {
        let mut at = self.last;
        std::iter::from_fn(move || {
            // SAFETY: as above.
            let m = unsafe { at.as_ref() }?;
            at = m.links.before.get();
            Some(m)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: &List) -> Vec<u32> {
        let mut ids: Vec<_> = list.backwards().map(|m| m.id).collect();
        ids.reverse();
        ids
    }

    #[test]
    fn ms_are_listed_in_order_and_found_again() {
        let registry = Registry::new();
        let ms: Vec<_> = (0..200)
            .map(|id| registry.add(M::new(id, null(), 1), &mut registry.prepare().unwrap()).unwrap())
            .collect();
        let mut seen: Vec<_> = registry.all().map(|m| m.id).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..200));
        assert_eq!(registry.live().count(), 0);
        ms[7].live.store(true, Relaxed);
        assert!(registry.live().map(|m| m.id).eq([7]));

        let mut list = List::new();
        ms[..4].iter().for_each(|m| list.push_back(m));
        list.push_front(ms[4]);
        assert_eq!(ids(&list), [4, 0, 1, 2, 3]);
        assert!(list.remove(ms[1]) && !list.remove(ms[1]) && !list.remove(ms[9]));
        assert_eq!(list.pop_back().unwrap().id, 3);
        assert!(list.remove(ms[4]));
        assert_eq!((ids(&list), list.len()), (vec![0, 2], 2));
        assert!(list.remove(ms[2]) && list.remove(ms[0]) && list.is_empty() && list.pop_back().is_none());
        list.push_front(ms[2]);
        assert_eq!(ids(&list), [2]);
    }

    #[test]
    fn an_m_that_finds_the_room_used_up_is_not_added() {
        let registry = Registry::new();
        let mut none = Spare(None);
        assert!(registry.add(M::new(0, null(), 1), &mut none).is_none());
        assert!(registry.add(M::new(0, null(), 1), &mut registry.prepare().unwrap()).is_some());
        assert!(registry.add(M::new(1, null(), 1), &mut none).is_some(), "there is room in the chunk");
    }
}
