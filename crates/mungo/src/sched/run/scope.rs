//! The goroutines of a scope, counted.

use super::park::Waiter;
use crate::reason::WaitReason;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};

/// The state of a scope. It lies on the frame of [`scope`]; its goroutines point to it.
pub(crate) struct ScopeData {
    /// Number of goroutines that have not left, plus one for the scope's own closure.
    running: AtomicUsize,
    panicked: AtomicBool,
    waiter: Waiter,
}

impl ScopeData {
    /// Makes the data of a scope whose owner is the caller.
    pub(crate) fn new() -> ScopeData {
        let (running, panicked) = (AtomicUsize::new(1), AtomicBool::new(false));
        ScopeData { running, panicked, waiter: Waiter::current() }
    }

    /// Counts a goroutine that is about to be spawned.
    pub(crate) fn enter(&self) {
        self.running.fetch_add(1, Relaxed);
    }

    /// Takes back the count of one that was not. The scope's own count is still there.
    pub(crate) fn give_up(&self) {
        self.running.fetch_sub(1, Relaxed);
    }

    /// Returns the number of goroutines, and one for the owner until it waits.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Relaxed)
    }

    /// Waits until all goroutines have left, by the owner. Returns whether one panicked.
    pub(crate) fn wait(&self) -> bool {
        // ORDERING: as in `leave`.
        if self.running.fetch_sub(1, AcqRel) != 1 {
            self.waiter.wait(WaitReason::Scope.on(std::ptr::from_ref(self).addr()));
        }
        self.panicked.load(Relaxed)
    }

    /// Counts one goroutine of the scope less: it has ended, and its result is dropped or with its handle.
    pub(crate) fn leave(&self) {
        // ORDERING: Release the goroutine's work to the scope's owner, Acquire that of the others for the last one.
        if self.running.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: the owner waits for exactly this.
            unsafe { Waiter::wake(NonNull::from(&self.waiter)) };
        }
    }

    /// Notes that a result which was never joined was a panic.
    pub(crate) fn note_panic(&self) {
        self.panicked.store(true, Relaxed);
    }
}
