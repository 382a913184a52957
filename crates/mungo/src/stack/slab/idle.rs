//! The end of idle slots: their memory goes back to the kernel and to malloc.
//!
//! Once a second the monitor marks the slots that lay in a pool since its last look as *due* ([`mark`]). A worker
//! without work takes them apart, a few at a time ([`take_some_apart`]): the thread block ends as a thread's does,
//! and all pages of the slot but its guard are dropped. What is left is an address, to build the slot from again.
//! If no worker comes to it within a second, the monitor drops the pages of the stack at least. So does the worker if
//! libc has something in the block: such a slot is then left alone until a goroutine has used it again.
//!
//! WHY NOT all of it by the monitor: the end of a thread block calls `free`, and the monitor must not wait for a lock
//! of the allocator.

use super::{Class, MAX_CLASS, MIN_CLASS, Pool, Slot};
use crate::sys::page_size;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether some pool has slots that are due. Written under that pool's lock; a hint without it.
static DUE: AtomicBool = AtomicBool::new(false);

/// Most system calls under a pool's lock, and most slots that a worker takes apart before it looks for work again.
/// TUNED: guess.
const BATCH: usize = 16;

/// A slot that was taken apart: its lowest address, and its number.
#[derive(Debug)]
pub(super) struct Bare {
    at: usize,
    index: u32,
}

impl Bare {
    /// Makes it a slot again.
    pub(super) fn build(self, class: Class) -> Slot {
        // SAFETY: from `Slot::take_apart`: without another owner, and zero.
        unsafe { Slot::build(self.at as *mut u8, class, self.index) }
    }
}

impl Slot {
    /// Ends the thread block and drops all pages but the guard. `Err`: libc has something in the block that would be
    /// lost.
    fn take_apart(self) -> Result<Bare, Slot> {
        // SAFETY: a slot with an owner, which is no goroutine.
        if !unsafe { self.end_tls() } {
            return Err(self);
        }
        let (block, all) = (self.base()..self.end(), self.guard().end..self.end());
        let bare = Bare { at: self.limit(), index: self.header().index };
        // SAFETY: nothing in the slot is in use. Pages that are locked into memory are not dropped; then the part that
        // must be zero is made so.
        unsafe {
            if libc::madvise(all.start as *mut _, all.len(), libc::MADV_DONTNEED) != 0 {
                (block.start as *mut u8).write_bytes(0, block.len());
            }
        }
        Ok(bare)
    }

    /// Gives the pages of the stack below `keep_from` back to the kernel. Does nothing if that lies elsewhere: the
    /// goroutine is on a stack of its own making, and where it left this one is not known.
    ///
    /// # Safety
    /// If `keep_from` is on this stack, nothing below it is in use, nor will be before this returns.
    pub(crate) unsafe fn drop_pages_below(&self, keep_from: usize) {
        let (low, high) = (self.guard().end, keep_from & !(page_size() - 1));
        if low < high && self.stack().contains(&keep_from) {
            // SAFETY: within this slot, above its guard; unused by the caller's word.
            unsafe { libc::madvise(low as *mut _, high - low, libc::MADV_DONTNEED) };
        }
    }
}

impl Pool {
    /// Takes the slots that are due and were idle for the longest time, at most `n`, and reserves as many: a goroutine
    /// that was accepted counts on finding a slot while these are nowhere.
    fn take_due(&mut self, n: usize) -> Vec<Slot> {
        let n = n.min(self.due.saturating_sub(self.stuck)).min(self.mapped - self.reserved);
        self.reserved += n;
        self.due -= n;
        self.low_water -= n;
        self.trimmed = self.trimmed.saturating_sub(n).max(self.stuck);
        self.free.drain(self.stuck..self.stuck + n).collect()
    }

    /// Takes slots back that cannot be taken apart and whose pages were dropped. They are left alone until goroutines
    /// have used them: nothing else changes what libc has in their blocks.
    fn give_stuck(&mut self, slots: Vec<Slot>) {
        for slot in slots {
            self.free.push_front(slot);
            self.stuck += 1;
            self.due += 1;
            self.trimmed += 1;
            self.low_water += 1;
        }
    }
}

fn classes() -> impl Iterator<Item = Class> {
    (MIN_CLASS..=MAX_CLASS).map(Class)
}

/// Marks the slots that were idle since the last call as due from now on. By the monitor, about once a second. Of
/// those that were due before and are still there it drops the pages of the stacks. Returns whether there is something
/// for [`take_some_apart`]. Allocates and frees nothing.
pub(crate) fn mark() -> bool {
    for class in classes() {
        loop {
            let mut pool = class.pool().lock();
            let end = pool.due.min(pool.trimmed + BATCH);
            if pool.trimmed >= end {
                pool.due = pool.low_water;
                pool.low_water = pool.free.len();
                if pool.due > pool.stuck {
                    DUE.store(true, Relaxed);
                }
                break;
            }
            for slot in pool.free.range(pool.trimmed..end) {
                // SAFETY: a free slot, under the pool's lock. The first page may stay: it is wanted first.
                unsafe { slot.drop_pages_below(slot.base() - 1) };
            }
            pool.trimmed = end;
        }
    }
    DUE.load(Relaxed)
}

/// Takes some slots apart that are due. By a worker without work, on its own thread-locals. Returns whether any were
/// due.
#[inline]
pub(crate) fn take_some_apart() -> bool {
    DUE.load(Relaxed) && take_some_apart_slow()
}

#[cold]
fn take_some_apart_slow() -> bool {
    for class in classes() {
        let due = class.pool().lock().take_due(BATCH);
        if due.is_empty() {
            continue;
        }
        let (mut bare, mut kept, taken) = (Vec::with_capacity(BATCH), Vec::new(), due.len());
        for slot in due {
            match slot.take_apart() {
                Ok(slot) => bare.push(slot),
                Err(slot) => {
                    // SAFETY: a slot of ours for the moment. Of its pages the block's stay, and the first of the stack.
                    unsafe { slot.drop_pages_below(slot.base() - 1) };
                    kept.push(slot);
                }
            }
        }
        let mut pool = class.pool().lock();
        pool.bare.append(&mut bare);
        pool.give_stuck(kept);
        pool.reserved -= taken;
        return true;
    }
    // A slot that becomes due right now is seen at the next mark.
    DUE.store(false, Relaxed);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(mungo_asan, ignore = "malloc is not glibc's, so that no block is known to be free of its cache")]
    fn slots_are_built_again_and_those_that_are_promised_are_left_alone() {
        // A class of its own: pools are the process's.
        let class = Class::for_stack(3 << 20).unwrap();
        class.reserve(4).unwrap();
        let all = class.pool().lock().mapped;
        class.reserve(all - 4).unwrap();
        let take_all = || (0..all).map(|_| class.take()).collect::<Vec<Slot>>();
        let addresses = |slots: &[Slot]| {
            let mut all: Vec<_> = slots.iter().map(|slot| (slot.limit(), slot.thread_pointer())).collect();
            all.sort_unstable();
            all
        };
        let slots = take_all();
        let before = addresses(&slots);
        slots.into_iter().for_each(|slot| class.give(slot));
        let mut pool = class.pool().lock();
        (pool.due, pool.low_water) = (all, all);
        assert_eq!(pool.take_due(all).len(), 0, "each of them is promised to a goroutine");
        drop(pool);
        class.unreserve(all);
        DUE.store(true, Relaxed);
        let start = std::time::Instant::now();
        // Workers of other tests may help.
        while class.pool().lock().bare.len() < all {
            take_some_apart();
            assert!(start.elapsed().as_secs() < 60, "they are not taken apart");
        }
        let pool = class.pool().lock();
        assert_eq!((pool.bare.len(), pool.free.len(), pool.due, pool.reserved), (all, 0, 0, 0));
        drop(pool);
        class.reserve(all).unwrap();
        let slots = take_all();
        assert_eq!(addresses(&slots), before);
        slots.into_iter().for_each(|slot| class.give(slot));
        class.unreserve(all);
    }
}
