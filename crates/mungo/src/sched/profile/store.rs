//! The sums of samples that are equal.

use super::Subject;
use super::ring::{self, Sample};
use crate::labels::Labels;
use crate::reason::WaitReason;
use crate::sched::report::stacks::{Image, Trace, Unwinder};
use crate::sys::modules;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

/// Number of sums of a kind from which on new ones go without labels: the program's memory counts more than labels that
/// are different each time.
const MOST_SUMS: usize = 100_000;

/// What samples have in common that are added up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) subject: Subject,
    pub(super) reason: WaitReason,
    /// The number of its trace.
    pub(super) trace: usize,
    /// The goroutine; 0: none, or any.
    pub(super) goroutine: u64,
    pub(super) place: Option<&'static Location<'static>>,
    /// The number of its labels.
    pub(super) labels: usize,
}

/// The number of events, and their time in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) count: f64,
    pub(super) ns: f64,
}

pub(super) type Pairs = Arc<[(Arc<str>, Arc<str>)]>;

/// Unwinds samples and adds them up.
pub(super) struct Store {
    unwinder: Unwinder,
    /// The state of the loader that the unwinder is for.
    generation: u64,
    pub(super) waits: Sums,
    /// Those of the CPU profile that is being taken, whose labels end with it.
    pub(super) cpu: Sums,
}

/// Sums, and the labels that they are of.
pub(super) struct Sums {
    by_key: HashMap<Key, Sum>,
    label_numbers: HashMap<Pairs, usize>,
    labels: Vec<Pairs>,
}

impl Default for Sums {
    fn default() -> Sums {
        let none: Pairs = Arc::new([]);
        Sums { by_key: HashMap::new(), label_numbers: HashMap::from([(none.clone(), 0)]), labels: vec![none] }
    }
}

impl Sums {
    /// Returns all sums, each with its key and its labels.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, Sum, &Pairs)> {
        self.by_key.iter().map(|(key, sum)| (key, *sum, &self.labels[key.labels]))
    }

    /// Returns the number of some labels, or of none if there are too many already.
    fn number_of(&mut self, labels: Option<&Labels>) -> usize {
        let Some(labels) = labels.filter(|_| self.by_key.len() < MOST_SUMS) else { return 0 };
        let pairs: Pairs = labels.pairs().into();
        let next = self.labels.len();
        let number = *self.label_numbers.entry(pairs.clone()).or_insert(next);
        if number == next {
            self.labels.push(pairs);
        }
        number
    }
}

impl Store {
    pub(super) fn new() -> Store {
        let generation = modules::generation();
        Store { unwinder: Unwinder::new(), generation, waits: Sums::default(), cpu: Sums::default() }
    }

    /// Takes all samples that were made so far.
    pub(super) fn collect(&mut self) {
        let generation = modules::generation();
        if generation != self.generation {
            self.generation = generation;
            self.unwinder.reload();
        }
        ring::drain(|sample, image| self.add(sample, image));
    }

    pub(super) fn trace(&self, key: &Key) -> &Arc<Trace> {
        self.unwinder.get(key.trace)
    }

    fn add(&mut self, sample: Sample, image: Option<&Image<'_>>) {
        let Sample { subject, reason, count, ns, goroutine, place, labels } = sample;
        let trace = match image {
            Some(image) => self.unwinder.number(image),
            None => self.unwinder.number_of(Trace { addresses: Vec::new(), note: Some("it has not run yet") }),
        };
        let is_cpu = subject == Subject::Cpu;
        let sums = if is_cpu { &mut self.cpu } else { &mut self.waits };
        let labels = sums.number_of(labels.as_deref());
        let goroutine = if is_cpu { goroutine } else { 0 };
        let key = Key { subject, reason, trace, goroutine, place, labels };
        let sum = sums.by_key.entry(key).or_default();
        sum.count += count;
        sum.ns += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels as a server has them, that are different for each request.
    #[test]
    fn labels_end_with_the_cpu_profile_that_they_are_of() {
        let mut store = Store::new();
        let sample = |subject, n: usize| Sample {
            subject,
            reason: WaitReason::None,
            count: 1.0,
            ns: 1.0,
            goroutine: 1,
            place: None,
            labels: Some(Labels::with(None, "request", &n.to_string())),
        };
        (0..1000).for_each(|n| store.add(sample(Subject::Cpu, n), None));
        store.add(sample(Subject::Block, 0), None);
        let sums = std::mem::take(&mut store.cpu);
        assert_eq!((sums.iter().count(), sums.labels.len()), (1000, 1001));
        assert_eq!((store.cpu.labels.len(), store.waits.labels.len()), (1, 2));
    }
}
