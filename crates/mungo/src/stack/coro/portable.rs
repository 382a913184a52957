//! The switch by corosensei.

use super::super::Slot;
use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A coroutine. Its owner resumes it; it suspends itself.
pub(crate) struct Coro {
    coroutine: UnsafeCell<ManuallyDrop<Coroutine<usize, usize, (), BorrowedSlot>>>,
    /// The yielder that it suspends itself with, since its first step: that gets a `*const Coro`.
    yielder: Cell<*const Yielder<usize, usize>>,
    /// Address below which nothing is in use while it is suspended.
    low: AtomicUsize,
}

/// Bytes below the frame of `suspend` that may be in use.
const SLACK: usize = 512;

impl Coro {
    /// Prepares a coroutine on `slot` that will run `entry(arg)`, which does not return.
    ///
    /// # Safety
    /// The slot is free and stays with the coroutine until it has suspended for the last time.
    #[inline]
    pub(crate) unsafe fn new(slot: &Slot, arg: usize, entry: extern "C" fn(usize)) -> Coro {
        // SAFETY: by the caller. The closure owns nothing, so forgetting the coroutine loses nothing.
        let stack = unsafe { BorrowedSlot::new(slot) };
        let begin = move |yielder: &Yielder<usize, usize>, this: usize| {
            // SAFETY: `resume` passed itself.
            unsafe { &*(this as *const Coro) }.yielder.set(yielder);
            entry(arg);
        };
        let coroutine = ManuallyDrop::new(Coroutine::with_stack(stack, begin));
        Coro { coroutine: UnsafeCell::new(coroutine), yielder: Cell::new(null()), low: AtomicUsize::new(0) }
    }

    /// Runs it until it suspends; returns its word.
    ///
    /// # Safety
    /// One worker at a time; the thread pointer is the goroutine's; not after it suspended for the last time.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) -> usize {
        // SAFETY: by the caller; the coroutine itself touches the yielder only.
        match unsafe { &mut *self.coroutine.get() }.resume(std::ptr::from_ref(self).addr()) {
            CoroutineResult::Yield(word) => word,
            CoroutineResult::Return(()) => unreachable!("a coroutine suspends for the last time"),
        }
    }

    /// Switches to the worker, which gets `word`; returns when some worker resumes it.
    ///
    /// Never in line: in another function's frame the marker may lie anywhere, far above the stack pointer too.
    ///
    /// # Safety
    /// Called on the coroutine's own stack.
    #[inline(never)]
    pub(crate) unsafe fn suspend(&self, word: usize) {
        let marker = 0u8;
        self.low.store(&raw const marker as usize - SLACK, Relaxed);
        // SAFETY: the yielder lives at the coroutine's stack base, and this code runs on that stack.
        unsafe { &*self.yielder.get() }.suspend(word);
    }

    /// Returns where its stack ends while it is suspended: nothing below is in use.
    #[inline]
    pub(crate) fn low(&self) -> usize {
        self.low.load(Relaxed)
    }

    /// Returns the stack pointer of a suspended coroutine. On x86-64 there lie, from there up in words, where to go on
    /// and at [`SAVED_BP`] the RBP.
    ///
    /// corosensei does not say where it is, but holds it, and nothing else that it holds points to that part of the
    /// stack.
    #[cfg_attr(not(all(feature = "backtrace", mungo_native)), allow(dead_code))]
    pub(crate) fn suspended_sp(&self) -> Option<usize> {
        let words = self.coroutine.get().cast::<usize>();
        // SAFETY: it is made of words, all of them initialised: the bounds of the stack, two pointers into it, a
        // function.
        let word = |i| unsafe { words.add(i).read_volatile() };
        let count = size_of_val(&self.coroutine) / size_of::<usize>();
        let near = self.low()..self.low() + SLACK;
        (0..count).map(word).filter(|word| near.contains(word)).min()
    }
}

/// The index of the saved RBP, in words: see `suspended_sp`.
#[cfg_attr(not(all(feature = "backtrace", mungo_native)), allow(dead_code))]
pub(crate) const SAVED_BP: usize = 2;
/// The number of words from the stack pointer on that are not the suspended function's.
#[cfg_attr(not(all(feature = "backtrace", mungo_native)), allow(dead_code))]
pub(crate) const SAVED: usize = 3;

/// A slot lent to a coroutine; the G keeps the slot itself. Its bounds are copied, so that a switch does not touch the
/// slot's header, a cold line on another page. TUNED: 20 ns a switch among 1000 goroutines.
#[derive(Clone, Copy)]
struct BorrowedSlot {
    base: StackPointer,
    limit: StackPointer,
}

// SAFETY: base and limit bound memory that the slot owns; a guard page lies at the limit.
unsafe impl Stack for BorrowedSlot {
    #[inline]
    fn base(&self) -> StackPointer {
        self.base
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.limit
    }
}

impl BorrowedSlot {
    /// # Safety
    /// The coroutine ends before the slot is given back.
    #[inline]
    unsafe fn new(slot: &Slot) -> BorrowedSlot {
        let address = |at| StackPointer::new(at).expect("no mapping at address 0");
        BorrowedSlot { base: address(slot.base()), limit: address(slot.limit()) }
    }
}
