//! Iterators over what a receiver gets.

use super::handles::Receiver;
use std::fmt;
use std::iter::FusedIterator;

/// The values of a channel, as they come: [`Receiver::iter`].
///
/// ```
/// let (tx, rx) = mungo::chan::unbounded();
/// mungo::go(move || (0..3).for_each(|n| tx.send(n).unwrap()));
/// assert!(rx.iter().eq(0..3), "it ends when the sender is gone");
/// ```
pub struct Iter<'a, T> {
    pub(super) receiver: &'a Receiver<T>,
}

/// The values that are there: [`Receiver::try_iter`].
///
/// ```
/// let (tx, rx) = mungo::chan::unbounded();
/// tx.send(1).unwrap();
/// assert!(rx.try_iter().eq([1]), "it ends where it would have to wait");
/// ```
pub struct TryIter<'a, T> {
    pub(super) receiver: &'a Receiver<T>,
}

/// The values of a channel, as they come, with the receiver in it.
///
/// ```
/// let (tx, rx) = mungo::chan::unbounded();
/// tx.send(1).unwrap();
/// drop(tx);
/// for value in rx {
///     assert_eq!(value, 1);
/// }
/// ```
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;
    #[inline]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    #[inline]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> FusedIterator for Iter<'_, T> {}
impl<T> FusedIterator for IntoIter<T> {}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Iter { .. }")
    }
}

impl<T> fmt::Debug for TryIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("TryIter { .. }")
    }
}

impl<T> fmt::Debug for IntoIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("IntoIter { .. }")
    }
}
