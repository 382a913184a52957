//! A goroutine inside the runtime, and one that an injected call has suspended.

use super::G;
use std::sync::atomic::{
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

impl G {
    // ORDERING: the goroutine itself writes `in_runtime`, on whichever thread. The compiler fences keep the order
    // towards signal handlers on that thread; towards the monitor, its membarrier orders both sides (see `blocking`).

    /// Enters the runtime, once more: until it leaves it, the goroutine keeps its P and is not interrupted.
    #[inline(always)]
    pub(crate) fn enter_runtime(&self) {
        self.in_runtime.store(self.in_runtime.load(Relaxed) + 1, Relaxed);
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst); // ORDERING: above
    }

    #[inline(always)]
    pub(crate) fn leave_runtime(&self) {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst); // ORDERING: above
        self.in_runtime.store(self.in_runtime.load(Relaxed) - 1, Release);
    }

    /// Returns how many calls of the runtime it is in, one inside the other.
    #[inline(always)]
    pub(crate) fn runtime_depth(&self) -> u32 {
        self.in_runtime.load(Relaxed)
    }

    /// Returns whether it is in the runtime, or suspended.
    pub(crate) fn is_in_runtime(&self) -> bool {
        // ORDERING: Acquire pairs with `leave_runtime`: see `M::is_outside`.
        self.in_runtime.load(Acquire) != 0
    }

    /// Notes where its registers lie, for dumps, before it suspends. Called by the goroutine itself, in an injected
    /// call.
    pub(crate) fn note_interruption(&self, frame: usize) {
        // ORDERING: Release the end of the one before, and the frame: `interruption` reads the count first.
        self.interruptions.fetch_add(1, Release);
        // ORDERING: Release the frame and the count to `interruption`.
        self.interrupted_at.store(frame, Release);
    }

    /// Notes that it goes on. Called by the goroutine itself.
    pub(crate) fn end_interruption(&self) {
        self.interrupted_at.store(0, Relaxed);
        // ORDERING: Release this before what the goroutine writes from now on: a copy of its stack with such a word
        // finds it, after a fence. See `Capture::injected`.
        fence(Release);
    }

    /// Returns where an injected call has it suspended, and the number of this interruption. `None`: it was not
    /// interrupted, or runs.
    pub(crate) fn interruption(&self) -> Option<(usize, u8)> {
        // ORDERING: Acquire pairs with `note_interruption`. The count comes first: the frame is that of this number, or
        // of a later one, which a second look tells.
        let number = self.interruptions.load(Acquire);
        let frame = self.interrupted_at.load(Acquire);
        (frame != 0).then_some((frame, number))
    }
}
