//! A value that is made when it is first used.

use super::{Once, Poison};
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A value that is made when it is first used. As [`std::sync::LazyLock`].
///
/// ```
/// use mungo::sync::LazyLock;
///
/// static TABLE: LazyLock<Vec<u32>> = LazyLock::new(|| (0..100).collect());
/// assert_eq!(TABLE.len(), 100);
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    once: Once,
    data: UnsafeCell<Data<T, F>>,
}

/// Before the `Once` runs: how to make it. When it is complete: the value. After a panic: nothing.
union Data<T, F> {
    make: ManuallyDrop<F>,
    value: ManuallyDrop<T>,
}

// SAFETY: one makes the value, with the `Once`, and then it is shared; the closure is used by that one only.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}
// SAFETY: it owns both.
unsafe impl<T: Send, F: Send> Send for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// Makes a cell whose value `make` will make.
    ///
    /// ```
    /// let lazy = mungo::sync::LazyLock::new(|| 6 * 7);
    /// assert_eq!(*lazy, 42);
    /// ```
    #[must_use]
    pub const fn new(make: F) -> LazyLock<T, F> {
        LazyLock { once: Once::new(), data: UnsafeCell::new(Data { make: ManuallyDrop::new(make) }) }
    }

    /// Returns the value, made now if need be.
    ///
    /// ```
    /// let lazy = mungo::sync::LazyLock::new(|| String::from("made"));
    /// assert_eq!(mungo::sync::LazyLock::force(&lazy), "made");
    /// ```
    ///
    /// # Panics
    /// If making it panics, and then always.
    #[inline]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        if !this.once.is_completed() {
            this.make();
        }
        // SAFETY: complete, so it is the value, and is not written again.
        unsafe { &(*this.data.get()).value }
    }

    #[cold]
    fn make(&self) {
        self.once.call_slow(Poison::Refuse, |_| {
            // SAFETY: the `Once` lets one in, once, since a panic poisons it. The closure is there, then the value.
            unsafe {
                let make = ManuallyDrop::take(&mut (*self.data.get()).make);
                let value = make();
                (*self.data.get()).value = ManuallyDrop::new(value);
            }
        });
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T, F> Drop for LazyLock<T, F> {
    fn drop(&mut self) {
        // SAFETY: see `Data`; the caller is the only owner, so the `Once` does not run.
        unsafe {
            match *self.once.state.get_mut() {
                super::COMPLETE => ManuallyDrop::drop(&mut self.data.get_mut().value),
                super::INCOMPLETE => ManuallyDrop::drop(&mut self.data.get_mut().make),
                _ => {}
            }
        }
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> LazyLock<T> {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.once.is_completed() {
            // SAFETY: complete, so it is the value.
            f.debug_tuple("LazyLock").field(unsafe { &*(*self.data.get()).value }).finish()
        } else {
            f.write_str("LazyLock(<uninit>)")
        }
    }
}
