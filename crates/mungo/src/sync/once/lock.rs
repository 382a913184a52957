//! A value that is written once.

use super::{Once, Poison};
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;

/// A cell that is written once, and read by any number of goroutines and threads. As [`std::sync::OnceLock`].
///
/// ```
/// use mungo::sync::OnceLock;
///
/// static NAME: OnceLock<String> = OnceLock::new();
/// assert_eq!(NAME.get(), None);
/// assert_eq!(NAME.get_or_init(|| "gopher".to_owned()), "gopher");
/// assert_eq!(NAME.set("other".to_owned()), Err("other".to_owned()));
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// Written by the caller that runs the `Once`; shared when that is complete.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: one writes it, with the `Once`, and then it is shared; the value may come from and be dropped by another
// goroutine than the owner.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: it owns a `T`.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Makes an empty cell.
    ///
    /// ```
    /// static CONFIG: mungo::sync::OnceLock<u32> = mungo::sync::OnceLock::new();
    /// assert!(CONFIG.get().is_none());
    /// ```
    #[must_use]
    pub const fn new() -> OnceLock<T> {
        OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Returns the value, if it is there. Never waits.
    ///
    /// ```
    /// let cell = mungo::sync::OnceLock::from(3);
    /// assert_eq!(cell.get(), Some(&3));
    /// ```
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: complete, so it was written and is not written again.
        self.once.is_completed().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Returns the value, to its only owner.
    ///
    /// ```
    /// let mut cell = mungo::sync::OnceLock::from(3);
    /// *cell.get_mut().unwrap() += 1;
    /// assert_eq!(cell.into_inner(), Some(4));
    /// ```
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: as `get`, and `&mut self` excludes other references.
        self.once.is_completed().then(|| unsafe { self.value.get_mut().assume_init_mut() })
    }

    /// Writes the value. Waits for a caller that is at it.
    ///
    /// ```
    /// let cell = mungo::sync::OnceLock::new();
    /// assert_eq!(cell.set(1), Ok(()));
    /// assert_eq!(cell.set(2), Err(2));
    /// ```
    ///
    /// # Errors
    /// Returns the value, if there was one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        match value {
            None => Ok(()),
            Some(value) => Err(value),
        }
    }

    /// Returns the value; made by `f` if it is not there. Of several callers, one runs its `f` and the others wait.
    ///
    /// ```
    /// let cell = mungo::sync::OnceLock::new();
    /// assert_eq!(cell.get_or_init(|| 5), &5);
    /// assert_eq!(cell.get_or_init(|| 6), &5);
    /// ```
    ///
    /// # Panics
    /// If `f` panics; the cell stays empty. An `f` that asks for the same cell waits for ever.
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        self.initialise(f)
    }

    #[cold]
    fn initialise<F: FnOnce() -> T>(&self, f: F) -> &T {
        self.once.call_slow(Poison::Forget, |_| {
            let value = f();
            // SAFETY: the `Once` lets one in.
            unsafe { (*self.value.get()).write(value) };
        });
        self.get().expect("just made")
    }

    /// Waits until the value is written, and returns it.
    ///
    /// ```
    /// static ANSWER: mungo::sync::OnceLock<u32> = mungo::sync::OnceLock::new();
    /// let asking = mungo::go(|| *ANSWER.wait());
    /// ANSWER.set(42).unwrap();
    /// assert_eq!(asking.join().unwrap(), 42);
    /// ```
    pub fn wait(&self) -> &T {
        self.once.wait();
        self.get().expect("just waited for")
    }

    /// Returns the value, if there is one, and ends the cell.
    ///
    /// ```
    /// assert_eq!(mungo::sync::OnceLock::<u32>::new().into_inner(), None);
    /// ```
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out, if there is one; the cell is empty again.
    ///
    /// ```
    /// let mut cell = mungo::sync::OnceLock::from(1);
    /// assert_eq!((cell.take(), cell.take()), (Some(1), None));
    /// ```
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed() {
            return None;
        }
        self.once = Once::new();
        // SAFETY: it was complete, and is forgotten with that.
        Some(unsafe { self.value.get_mut().assume_init_read() })
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        let cell = OnceLock::new();
        _ = cell.set(value);
        cell
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        self.get().cloned().map_or_else(OnceLock::new, OnceLock::from)
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => f.debug_tuple("OnceLock").field(value).finish(),
            None => f.write_str("OnceLock(<uninit>)"),
        }
    }
}
