//! The place of values that were sent and not received.
//!
//! A bounded channel has a ring. An unbounded one has a list of blocks: a ring that doubles would copy a million values
//! under the lock at a time, and never give memory back. One empty block is kept, so a channel in steady use does not
//! allocate.

use std::collections::VecDeque;
use std::mem::{ManuallyDrop, MaybeUninit};

/// Number of values in one block. TUNED: guess; one allocation in 32 sends until the spare block takes over.
const BLOCK: usize = 32;

/// A first-in first-out buffer. The channel knows how many values it holds.
///
/// If a value's destructor panics when the buffer is dropped, the rest leaks, as in crossbeam-channel: dropping on
/// could panic again, which would abort.
pub(super) struct Buffer<T>(ManuallyDrop<Kind<T>>);

enum Kind<T> {
    Ring(VecDeque<T>),
    Blocks(Blocks<T>),
}

impl<T> Buffer<T> {
    pub(super) fn bounded(capacity: usize) -> Buffer<T> {
        Buffer(ManuallyDrop::new(Kind::Ring(VecDeque::with_capacity(capacity))))
    }

    pub(super) fn unbounded() -> Buffer<T> {
        let blocks = Blocks { head: None, tail: std::ptr::null_mut(), first: 0, end: 0, spare: None };
        Buffer(ManuallyDrop::new(Kind::Blocks(blocks)))
    }

    /// Appends a value. The caller saw to it that a ring has a place, but for the rare value that was promised one:
    /// then it grows.
    #[inline]
    pub(super) fn push(&mut self, value: T) {
        match &mut *self.0 {
            Kind::Ring(ring) => ring.push_back(value),
            Kind::Blocks(blocks) => blocks.push(value),
        }
    }

    /// Puts a value before all others. A ring may grow.
    pub(super) fn push_front(&mut self, value: T) {
        match &mut *self.0 {
            Kind::Ring(ring) => ring.push_front(value),
            Kind::Blocks(blocks) => blocks.push_front(value),
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        match &mut *self.0 {
            Kind::Ring(ring) => ring.pop_front(),
            Kind::Blocks(blocks) => blocks.pop(),
        }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        while let Some(value) = self.pop() {
            drop(value);
        }
        // SAFETY: not used any more. Not reached after a panic: then the memory leaks with the values.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

struct Block<T> {
    next: Option<Box<Block<T>>>,
    slots: [MaybeUninit<T>; BLOCK],
}

impl<T> Block<T> {
    fn new() -> Box<Block<T>> {
        let mut block = Box::<Block<T>>::new_uninit();
        // SAFETY: the slots need no initialisation; `next` gets it.
        unsafe {
            (&raw mut (*block.as_mut_ptr()).next).write(None);
            block.assume_init()
        }
    }
}

/// A list of blocks: values lie from place `first` of the head block to before place `end` of the tail block.
pub(super) struct Blocks<T> {
    head: Option<Box<Block<T>>>,
    /// The last block of the list; null if there is none.
    tail: *mut Block<T>,
    first: usize,
    end: usize,
    spare: Option<Box<Block<T>>>,
}

impl<T> Blocks<T> {
    fn push(&mut self, value: T) {
        if self.tail.is_null() || self.end == BLOCK {
            self.grow();
        }
        // SAFETY: the tail is part of the list that `head` owns; the place is free.
        unsafe { (&raw mut (*self.tail).slots[self.end]).cast::<T>().write(value) };
        self.end += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let mut block = self.spare.take().unwrap_or_else(Block::new);
        let tail: *mut Block<T> = &raw mut *block;
        // SAFETY: as in `push`.
        match unsafe { self.tail.as_mut() } {
            Some(last) => last.next = Some(block),
            None => self.head = Some(block),
        }
        self.tail = tail;
        self.end = 0;
    }

    fn push_front(&mut self, value: T) {
        let Some(head) = self.head.as_deref_mut() else { return self.push(value) };
        if self.first == 0 {
            let mut block = self.spare.take().unwrap_or_else(Block::new);
            block.next = self.head.take();
            block.slots[BLOCK - 1].write(value);
            self.head = Some(block);
            self.first = BLOCK - 1;
        } else {
            self.first -= 1;
            head.slots[self.first].write(value);
        }
    }

    fn pop(&mut self) -> Option<T> {
        let is_last = std::ptr::eq(self.tail, self.head.as_deref()?);
        if is_last && self.first == self.end {
            return None;
        }
        let head = self.head.as_deref_mut().expect("looked at above");
        // SAFETY: between `first` and the end lies a value; from here on it is the caller's.
        let value = unsafe { head.slots[self.first].assume_init_read() };
        self.first += 1;
        if is_last && self.first == self.end {
            // Empty: start the block again, it is still warm.
            (self.first, self.end) = (0, 0);
        } else if self.first == BLOCK {
            let mut used = self.head.take().expect("as above");
            self.head = used.next.take();
            self.first = 0;
            self.spare = Some(used);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    #[test]
    fn blocks_keep_order_across_their_ends() {
        let mut buffer = Buffer::unbounded();
        let (mut sent, mut received) = (0, 0);
        for round in 0..200 {
            for _ in 0..round % 97 {
                buffer.push(sent);
                sent += 1;
            }
            for _ in 0..round % 89 {
                match buffer.pop() {
                    Some(v) => assert_eq!(v, received),
                    None => {
                        assert_eq!(sent, received);
                        break;
                    }
                }
                received += 1;
            }
        }
        while let Some(v) = buffer.pop() {
            assert_eq!(v, received);
            received += 1;
        }
        assert_eq!(sent, received);
    }

    #[test]
    fn what_is_put_back_comes_first() {
        for taken in [0, 1, BLOCK - 1, BLOCK] {
            let mut buffer = Buffer::unbounded();
            (0..2 * BLOCK).for_each(|i| buffer.push(i));
            for expected in 0..taken {
                assert_eq!(buffer.pop(), Some(expected));
            }
            (0..3 * BLOCK).for_each(|i| buffer.push_front(1000 + i));
            for expected in (0..3 * BLOCK).rev().map(|i| 1000 + i).chain(taken..2 * BLOCK) {
                assert_eq!(buffer.pop(), Some(expected), "{taken} taken");
            }
            assert_eq!(buffer.pop(), None);
        }
    }

    #[test]
    fn blocks_drop_what_is_left() {
        let counted = Rc::new(());
        let mut buffer = Buffer::unbounded();
        (0..100).for_each(|_| buffer.push(counted.clone()));
        (0..50).for_each(|_| drop(buffer.pop()));
        assert_eq!(Rc::strong_count(&counted), 51);
        drop(buffer);
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    #[test]
    fn a_panic_in_drop_drops_nothing_twice() {
        struct Bomb(usize, Rc<Cell<usize>>);
        impl Drop for Bomb {
            fn drop(&mut self) {
                self.1.set(self.1.get() + 1);
                assert!(self.0 < 7, "boom");
            }
        }
        for mut buffer in [Buffer::unbounded(), Buffer::bounded(80)] {
            let drops = Rc::new(Cell::new(0));
            (0..80).for_each(|i| buffer.push(Bomb(i, drops.clone())));
            assert!(catch_unwind(AssertUnwindSafe(|| drop(buffer))).is_err());
            assert_eq!(drops.get(), 8);
        }
    }
}
