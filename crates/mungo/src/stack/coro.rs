//! The coroutine under a goroutine: the one user of corosensei.
//!
//! A coroutine is started on a slot, resumed by a worker (on the M's own stack, "g0"), and suspends
//! itself with a word for the worker. It never unwinds out: the goroutine's entry catches panics.

use super::Slot;
use super::slab::BorrowedSlot;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;

/// A suspended or running coroutine that yields `Y`s.
pub(crate) struct Coro<Y>(ManuallyDrop<Coroutine<(), Y, (), BorrowedSlot>>);

/// What a coroutine suspends itself with; valid on its own stack only.
pub(crate) struct Suspender<Y>(NonNull<Yielder<(), Y>>);

impl<Y> Clone for Suspender<Y> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Y> Copy for Suspender<Y> {}

impl<Y: 'static> Coro<Y> {
    /// Prepares a coroutine on `slot` that will run `entry(suspender, arg)`.
    ///
    /// # Safety
    /// The slot is free and stays with the coroutine until it [`finished`](Self::resume). `entry` does not unwind.
    #[inline]
    pub(crate) unsafe fn new(slot: &Slot, arg: usize, entry: fn(Suspender<Y>, usize)) -> Self {
        // SAFETY: by the caller. The closure owns nothing, so forgetting the coroutine loses nothing.
        let stack = unsafe { slot.lend() };
        Coro(ManuallyDrop::new(Coroutine::with_stack(stack, move |yielder: &Yielder<(), Y>, ()| {
            entry(Suspender(NonNull::from(yielder)), arg)
        })))
    }

    /// The lowest address within `range` that is part of its state.
    ///
    /// corosensei does not say where a suspended coroutine's stack pointer is, but holds it. Who knows a part of the
    /// stack where nothing else that it holds can point to can find it.
    #[cfg_attr(not(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    pub(crate) fn lowest_word_in(&self, range: Range<usize>) -> Option<usize> {
        let words = std::ptr::from_ref(self).cast::<usize>();
        // SAFETY: `self` is made of words, all of them initialised: the bounds of the stack, two pointers into it, a
        // function.
        let word = |i| unsafe { words.add(i).read_volatile() };
        (0..size_of::<Self>() / size_of::<usize>()).map(word).filter(|word| range.contains(word)).min()
    }

    /// Runs it until it suspends (`Some`) or ends (`None`).
    ///
    /// # Safety
    /// One worker at a time; the thread pointer is the goroutine's; not after it ended.
    #[inline(always)]
    pub(crate) unsafe fn resume(&mut self) -> Option<Y> {
        match self.0.resume(()) {
            CoroutineResult::Yield(y) => Some(y),
            CoroutineResult::Return(()) => None,
        }
    }
}

impl<Y> Suspender<Y> {
    /// Switches to the worker, which gets `word`; returns when the worker resumes.
    ///
    /// # Safety
    /// Called on the coroutine's own stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(self, word: Y) {
        // SAFETY: the yielder lives at the coroutine's stack base, and we are on that stack.
        unsafe { self.0.as_ref() }.suspend(word)
    }
}
