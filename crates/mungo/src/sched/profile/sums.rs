//! Sums of what is equal, with labels.

use crate::labels::Labels;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Number of sums of a kind from which on new ones go without labels: the program's memory counts more than labels that
/// are different each time.
const MOST_SUMS: usize = 100_000;

/// The number of events, and their time in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) count: f64,
    pub(super) ns: f64,
}

/// Labels by key.
pub(super) type Pairs = Arc<[(Arc<str>, Arc<str>)]>;

/// Sums by what is summed up, `K`, and its labels: sets with the same keys and values are one.
pub(super) struct Sums<K> {
    by_key: HashMap<(K, usize), Sum>,
    label_numbers: HashMap<Pairs, usize>,
    /// By their number.
    labels: Vec<Pairs>,
    /// The set that was asked for last, and its number: most goroutines inherit one that others have too.
    last: Option<(Arc<Labels>, usize)>,
}

impl<K> Default for Sums<K> {
    fn default() -> Sums<K> {
        let none: Pairs = Arc::new([]);
        let label_numbers = HashMap::from([(none.clone(), 0)]);
        Sums { by_key: HashMap::new(), label_numbers, labels: vec![none], last: None }
    }
}

impl<K: Copy + Eq + Hash> Sums<K> {
    /// Adds to a sum. With too many sums already a new one gets no labels.
    pub(super) fn add(&mut self, key: K, labels: Option<&Arc<Labels>>, sum: Sum) {
        let is_full = self.by_key.len() >= MOST_SUMS;
        let number = labels.and_then(|labels| self.number_of(labels, is_full)).unwrap_or(0);
        let number = if is_full && !self.by_key.contains_key(&(key, number)) { 0 } else { number };
        let known = self.by_key.entry((key, number)).or_default();
        known.count += sum.count;
        known.ns += sum.ns;
    }

    /// Returns all sums, each with its key and its labels.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, Sum, &Pairs)> {
        self.by_key.iter().map(|((key, labels), sum)| (key, *sum, &self.labels[*labels]))
    }

    /// Returns the number of some labels. `None`: they are new, and it `is_full`.
    fn number_of(&mut self, labels: &Arc<Labels>, is_full: bool) -> Option<usize> {
        if let Some((last, number)) = &self.last
            && Arc::ptr_eq(last, labels)
        {
            return Some(*number);
        }
        let pairs = labels.pairs();
        let number = match self.label_numbers.get(&*pairs) {
            Some(number) => *number,
            None if is_full => return None,
            None => {
                let (pairs, number): (Pairs, _) = (pairs.into(), self.labels.len());
                self.label_numbers.insert(pairs.clone(), number);
                self.labels.push(pairs);
                number
            }
        };
        self.last = Some((labels.clone(), number));
        Some(number)
    }
}

#[cfg(test)]
impl<K> Sums<K> {
    /// Returns the number of sums, and of sets of labels.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.by_key.len(), self.labels.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Sum = Sum { count: 1.0, ns: 0.0 };

    fn tenant(name: &str) -> Arc<Labels> {
        Labels::with(None, "tenant", name)
    }

    #[test]
    fn sets_of_the_same_labels_are_one() {
        let mut sums = Sums::default();
        for n in 0..10 {
            sums.add('k', Some(&tenant(["a", "b"][n % 2])), ONE);
            sums.add('k', None, ONE);
        }
        let mut found: Vec<_> = sums.iter().map(|(_, sum, pairs)| (pairs.len(), sum.count)).collect();
        found.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(found, [(0, 10.0), (1, 5.0), (1, 5.0)]);
    }

    /// Beyond the limit: sums that are there go on, new ones have no labels.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn too_many_labels_are_left_out() {
        let mut sums = Sums::default();
        let total = MOST_SUMS + 50;
        (0..total).for_each(|n| sums.add('k', Some(&tenant(&n.to_string())), ONE));
        assert_eq!(sums.len(), (MOST_SUMS + 1, MOST_SUMS + 1));
        let without = |sums: &Sums<char>| sums.by_key[&('k', 0)].count;
        assert_eq!(without(&sums), 50.0);
        sums.add('k', Some(&tenant("7")), ONE);
        assert_eq!(without(&sums), 50.0);
        assert_eq!(sums.by_key[&('k', 8)].count, 2.0);
    }
}
