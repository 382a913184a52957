//! The global run queue: an intrusive list of goroutines under the scheduler's lock.

use super::g::{G, GPtr};
use std::ptr::null_mut;

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

    /// Takes out the first one that is `wanted`, if it is among the first `looks`.
    pub(crate) fn take_near(&mut self, looks: u32, wanted: impl Fn(&G) -> bool) -> Option<GPtr> {
        let mut before: *mut G = null_mut();
        let mut at = self.first()?;
        for _ in 0..looks {
            let next = at.link.get();
            if wanted(&at) {
                // SAFETY: the list's goroutines are ours.
                match unsafe { before.as_ref() } {
                    None => return self.pop(),
                    Some(before) => before.link.set(next),
                }
                if next.is_null() {
                    self.tail = before;
                }
                self.len -= 1;
                return Some(at);
            }
            before = at.as_ptr();
            at = GPtr::new(next)?;
        }
        None
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
