//! Values that were taken out of a place where other threads may look at them: who gives them back, and when.
//!
//! The place is an atomic pointer of the user's. A look is counted, from before it reads the place until it is done
//! with the value, in one counter for all places: looks are rare. A thread that replaces a value *retires* the old one.
//! While no look is under way it is dropped at once; otherwise it goes to a list, and the look that ends last drops it.
//! So the thread that replaces never waits.
//!
//! A value that is retired in the moment in which the last look ends may stay in the list until the next look ends.
//!
//! Rejected: waiting until no look is under way, as it was. A look takes some ns, but a kernel slice if the kernel
//! takes its thread's CPU away; and looks by several threads may follow each other without a gap.

use crate::sys::atomic::{AtomicPtr, AtomicU32, constant};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Counts looks, and keeps what was retired meanwhile.
pub(crate) struct Retired<T> {
    /// Number of looks under way.
    looks: AtomicU32,
    list: AtomicPtr<Node<T>>,
}

struct Node<T> {
    #[expect(dead_code, reason = "it is dropped with the node")]
    value: T,
    next: *mut Node<T>,
}

impl<T> Retired<T> {
    constant! {
        pub(crate) fn new() -> Retired<T> {
            Retired { looks: AtomicU32::new(0), list: AtomicPtr::new(null_mut()) }
        }
    }

    /// Runs `f`, which may read a place and use the value that it finds: that one is not dropped before `f` ends.
    pub(crate) fn look<R>(&self, f: impl FnOnce() -> R) -> R {
        // ORDERING: AcqRel pairs with `is_looked_at`: the two are one after the other, and if this one is the second,
        // `f` finds what the place has now.
        self.looks.fetch_add(1, AcqRel);
        let result = f();
        // ORDERING: Release our use of the value to the thread that drops it, in `is_looked_at`.
        self.looks.fetch_sub(1, Release);
        if !self.list.load(Relaxed).is_null() {
            self.sweep();
        }
        result
    }

    /// Drops a value as soon as no look can have found it. The caller has taken it out of its place.
    pub(crate) fn retire(&self, value: T) {
        if !self.is_looked_at() {
            return drop(value);
        }
        let node = Box::into_raw(Box::new(Node { value, next: null_mut() }));
        // SAFETY: just made, and in no list.
        unsafe { self.push(node, node) };
    }

    /// Returns whether a look is under way that may have found what was taken out of its place before.
    fn is_looked_at(&self) -> bool {
        // ORDERING: AcqRel, by a write that changes nothing: see `look`. A load could come before the caller's write to
        // the place.
        self.looks.fetch_add(0, AcqRel) != 0
    }

    /// Drops what is in the list, unless another look is under way, which then does so at its end.
    #[cold]
    fn sweep(&self) {
        loop {
            // ORDERING: Acquire the nodes, and that their values were taken out of their places; with `push`.
            let first = self.list.swap(null_mut(), Acquire);
            if first.is_null() {
                return;
            }
            // What is in the list was retired before this question, so no later look finds it.
            let is_looked_at = self.is_looked_at();
            let (mut last, mut next) = (first, first);
            while !next.is_null() {
                last = next;
                // SAFETY: the list is ours since the swap.
                next = unsafe { (*last).next };
                if !is_looked_at {
                    // SAFETY: made by `retire`, and reached once.
                    drop(unsafe { Box::from_raw(last) });
                }
            }
            if !is_looked_at {
                return;
            }
            // SAFETY: as above, and not dropped.
            unsafe { self.push(first, last) };
            // The other look may have ended before the list was back.
            if self.is_looked_at() {
                return;
            }
        }
    }

    /// Puts nodes into the list that hang together, from `first` to `last`.
    ///
    /// # Safety
    /// They are the caller's.
    unsafe fn push(&self, first: *mut Node<T>, last: *mut Node<T>) {
        let mut head = self.list.load(Relaxed);
        loop {
            // SAFETY: by the caller.
            unsafe { (*last).next = head };
            // ORDERING: Release the nodes to `sweep`.
            match self.list.compare_exchange_weak(head, first, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    /// Two values, of which a place has one: 1 while they live.
    struct Shared {
        retired: Retired<Value>,
        place: AtomicUsize,
        values: [Arc<UnsafeCell<u32>>; 2],
    }

    struct Value(Arc<UnsafeCell<u32>>);

    impl Drop for Value {
        fn drop(&mut self) {
            // SAFETY: no look has it: that is what is modelled.
            self.0.with_mut(|value| unsafe { *value = 0 });
        }
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            let values = [(); 2].map(|()| Arc::new(UnsafeCell::new(1)));
            Arc::new(Shared { retired: Retired::new(), place: AtomicUsize::new(0), values })
        }

        fn look(&self) {
            self.retired.look(|| {
                let at = self.place.load(Acquire);
                // SAFETY: the value is not dropped during a look.
                self.values[at].with(|value| assert_eq!(unsafe { *value }, 1));
            });
        }

        /// Puts the second value into the place of the first.
        fn replace(&self) {
            let old = self.place.swap(1, AcqRel);
            self.retired.retire(Value(self.values[old].clone()));
        }

        fn is_dropped(&self) -> bool {
            // SAFETY: all other threads have ended.
            self.values[0].with(|value| unsafe { *value == 0 })
        }
    }

    /// A thread looks while another replaces: what was found lives as long as the look, and ends after the next one.
    #[test]
    fn loom_look_and_retire() {
        loom::model(|| {
            let shared = Shared::new();
            let looker = {
                let shared = shared.clone();
                loom::thread::spawn(move || shared.look())
            };
            shared.replace();
            looker.join().unwrap();
            shared.look();
            assert!(shared.is_dropped());
        });
    }

    /// As above, with two that look: the one that ends first leaves the value to the other.
    #[test]
    fn loom_two_looks_and_retire() {
        loom::model(|| {
            let shared = Shared::new();
            let lookers = [(); 2].map(|()| {
                let shared = shared.clone();
                loom::thread::spawn(move || shared.look())
            });
            shared.replace();
            lookers.into_iter().for_each(|looker| looker.join().unwrap());
            shared.look();
            assert!(shared.is_dropped());
        });
    }
}
