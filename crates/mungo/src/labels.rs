//! Labels of goroutines: pairs of a key and a value, which a goroutine passes on to those that it spawns.
//!
//! A set of labels never changes: a goroutine that gets one more label points to a new set, whose rest is the old one.
//! A set is counted. A goroutine swaps its pointer first and gives the old set back afterwards, so that a signal
//! handler on its thread finds a set that lives, at any point. Should threads [look](LabelCell::look) at labels right
//! now, the last of them gives the old set back (`protocols/retired.rs`): the goroutine does not wait for them.

use crate::protocols::retired::Retired;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Sets that goroutines had, and that a thread may still look at.
static RETIRED: Retired<Arc<Labels>> = Retired::new();

/// A set of labels: one, and the rest.
#[derive(Debug)]
pub(crate) struct Labels {
    /// The number of the label, which it keeps when the set is made anew.
    number: u64,
    key: Arc<str>,
    value: Arc<str>,
    outer: Option<Arc<Labels>>,
}

impl Labels {
    /// Returns `outer` with one more label.
    pub(crate) fn with(outer: Option<Arc<Labels>>, key: &str, value: &str) -> Arc<Labels> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        Arc::new(Labels { number, key: key.into(), value: value.into(), outer })
    }

    /// Returns the number of the label that was added last.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the set without the label of this number.
    pub(crate) fn without(&self, number: u64) -> Option<Arc<Labels>> {
        let (mut inner, mut next) = (Vec::new(), Some(self));
        while let Some(labels) = next
            && labels.number != number
        {
            inner.push(labels);
            next = labels.outer.as_deref();
        }
        let rest = next.and_then(|labels| labels.outer.clone());
        inner.into_iter().rev().fold(rest, |outer, Labels { number, key, value, .. }| {
            Some(Arc::new(Labels { number: *number, key: key.clone(), value: value.clone(), outer }))
        })
    }

    /// Returns the labels by key. Of two with the same key the inner one counts.
    pub(crate) fn pairs(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let mut pairs: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        let mut next = Some(self);
        while let Some(Labels { key, value, outer, .. }) = next {
            if !pairs.iter().any(|(known, _)| known == key) {
                pairs.push((key.clone(), value.clone()));
            }
            next = outer.as_deref();
        }
        pairs.sort();
        pairs
    }
}

/// One set after the other: goroutines that spawn each other, each with one more label, make a chain of any length.
impl Drop for Labels {
    fn drop(&mut self) {
        let mut outer = self.outer.take();
        while let Some(mut labels) = outer.and_then(Arc::into_inner) {
            outer = labels.outer.take();
        }
    }
}

/// The labels of one goroutine: null, or a pointer of `Arc::into_raw`.
#[derive(Debug)]
pub(crate) struct LabelCell(AtomicPtr<Labels>);

impl LabelCell {
    pub(crate) const fn new() -> LabelCell {
        LabelCell(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }

    /// Returns the set, counted once more. Async-signal-safe.
    ///
    /// # Safety
    /// The set stays meanwhile: the caller is this goroutine, a signal handler on its thread, a thread that owns or
    /// holds it, or it looks.
    #[inline]
    pub(crate) unsafe fn get(&self) -> Option<Arc<Labels>> {
        let set = self.0.load(Acquire);
        // SAFETY: by the caller, the cell's own count keeps it.
        (!set.is_null()).then(|| unsafe {
            Arc::increment_strong_count(set);
            Arc::from_raw(set)
        })
    }

    /// Returns the set, counted once more, to a thread that has a handle to the goroutine, which may run.
    pub(crate) fn look(&self) -> Option<Arc<Labels>> {
        // SAFETY: the cell's count is not given back before the look ends.
        RETIRED.look(|| unsafe { self.get() })
    }

    /// Replaces the set, for the goroutine itself, or the owner of one that does not run. Never waits.
    pub(crate) fn replace(&self, set: Option<Arc<Labels>>) {
        let new = set.map_or(std::ptr::null(), Arc::into_raw).cast_mut();
        // ORDERING: Release the set to `get`, Acquire the old one. That a look which has found the old set is seen is
        // what `Retired` sees to.
        let old = self.0.swap(new, AcqRel);
        if !old.is_null() {
            // SAFETY: it came from `into_raw`, and its count was the cell's.
            RETIRED.retire(unsafe { Arc::from_raw(old) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(set: &Option<Arc<Labels>>) -> String {
        let pairs = set.as_ref().map_or(Vec::new(), |set| set.pairs());
        pairs.iter().map(|(key, value)| format!("{key}={value} ")).collect()
    }

    #[test]
    fn labels_are_added_and_taken_in_any_order() {
        let cell = LabelCell::new();
        assert!(cell.is_empty());
        let a = Labels::with(None, "a", "1");
        let b = Labels::with(Some(a.clone()), "b", "2");
        let inner = Labels::with(Some(b.clone()), "a", "3");
        cell.replace(Some(inner.clone()));
        // SAFETY: no other thread knows the cell.
        assert_eq!(text(&unsafe { cell.get() }), "a=3 b=2 ");
        let without_b = inner.without(b.number());
        assert_eq!(text(&without_b), "a=3 ");
        assert_eq!(text(&without_b.unwrap().without(inner.number())), "a=1 ");
        assert_eq!(text(&inner.without(inner.number())), "a=1 b=2 ");
        cell.replace(None);
        assert!(cell.is_empty());
        assert_eq!(Arc::strong_count(&inner), 1);
    }

    /// A goroutine that changes its labels does not wait for a thread that was stopped in the middle of a look.
    #[test]
    fn labels_change_while_a_thread_looks() {
        let cell = LabelCell::new();
        let first = Labels::with(None, "a", "1");
        cell.replace(Some(first.clone()));
        let found = RETIRED.look(|| {
            // SAFETY: it looks.
            let found = unsafe { cell.get() };
            cell.replace(None);
            assert_eq!(Arc::strong_count(&first), 3, "it is given back when the look has ended");
            found
        });
        assert_eq!(text(&found), "a=1 ");
        drop(found);
        while Arc::strong_count(&first) != 1 {
            assert!(cell.look().is_none()); // looks of other tests may have been under way
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn a_long_chain_needs_no_deep_stack() {
        let first = Labels::with(None, "key", "0");
        let number = first.number();
        let chain = (1..100_000).fold(first, |outer, n| Labels::with(Some(outer), "key", &n.to_string()));
        let without_first = chain.without(number);
        drop(chain);
        assert_eq!(text(&without_first), "key=99999 ");
    }
}
