//! mungo's own switch: what is the same on all processors that have one. What differs is in a file of its own,
//! `x86_64.rs` or `aarch64.rs`: the assembly, and what it leaves on a stack that is not running.

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod processor;

#[cfg_attr(not(feature = "backtrace"), allow(unused_imports))]
pub(crate) use processor::{SAVED, SAVED_BP};

use super::super::Slot;
use processor::{FIRST, begin, switch};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A coroutine. Its owner resumes it; it suspends itself.
#[repr(C)]
pub(crate) struct Coro {
    /// Its stack pointer while it is suspended. Written by the switch; atomic for threads that look at it meanwhile.
    sp: AtomicUsize,
    /// Its worker's stack pointer, while it runs. The switch's alone.
    worker_sp: AtomicUsize,
}

impl Coro {
    /// Prepares a coroutine on `slot` that will run `entry(arg)`, which does not return.
    ///
    /// # Safety
    /// The slot is free and stays with the coroutine until it has suspended for the last time.
    #[inline]
    pub(crate) unsafe fn new(slot: &Slot, arg: usize, entry: extern "C" fn(usize)) -> Coro {
        let mut words = [0; FIRST];
        words[..3].copy_from_slice(&[begin as *const () as usize, entry as usize, arg]);
        let sp = (slot.base() & !15) - size_of_val(&words);
        // SAFETY: the top of a free stack.
        unsafe { (sp as *mut [usize; FIRST]).write(words) };
        Coro { sp: AtomicUsize::new(sp), worker_sp: AtomicUsize::new(0) }
    }

    /// Runs it until it suspends; returns its word.
    ///
    /// # Safety
    /// One worker at a time; the thread pointer is the goroutine's; not after it suspended for the last time.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) -> usize {
        // SAFETY: by the caller; `sp` is as `new` or `suspend` left it.
        unsafe { switch(&self.worker_sp, &self.sp, 0) }
    }

    /// Switches to the worker, which gets `word`; returns when some worker resumes it.
    ///
    /// # Safety
    /// Called on the coroutine's own stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, word: usize) {
        // SAFETY: by the caller; `worker_sp` is as `resume` left it.
        unsafe { switch(&self.sp, &self.worker_sp, word) };
    }

    /// Returns where its stack ends while it is suspended: nothing below is in use.
    #[inline]
    pub(crate) fn low(&self) -> usize {
        self.sp.load(Relaxed)
    }

    /// Returns the stack pointer of a suspended coroutine. From there up lie [`SAVED`] words: where to go on, and at
    /// [`SAVED_BP`] the frame pointer.
    #[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
    pub(crate) fn suspended_sp(&self) -> Option<usize> {
        Some(self.low())
    }
}
