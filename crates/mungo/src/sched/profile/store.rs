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

/// Number of sums of waits from which on new ones go without labels: the program's memory counts more than labels that
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
    label_numbers: HashMap<Pairs, usize>,
    labels: Vec<Pairs>,
    pub(super) waits: HashMap<Key, Sum>,
    pub(super) cpu: HashMap<Key, Sum>,
}

impl Store {
    pub(super) fn new() -> Store {
        let generation = modules::generation();
        let none: Pairs = Arc::new([]);
        Store {
            unwinder: Unwinder::new(),
            generation,
            label_numbers: HashMap::from([(none.clone(), 0)]),
            labels: vec![none],
            waits: HashMap::new(),
            cpu: HashMap::new(),
        }
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

    pub(super) fn labels(&self, key: &Key) -> &Pairs {
        &self.labels[key.labels]
    }

    fn add(&mut self, sample: Sample, image: Option<&Image<'_>>) {
        let Sample { subject, reason, count, ns, goroutine, place, labels } = sample;
        let trace = match image {
            Some(image) => self.unwinder.number(image),
            None => self.unwinder.number_of(Trace { addresses: Vec::new(), note: Some("it has not run yet") }),
        };
        let is_cpu = subject == Subject::Cpu;
        let labels = match labels {
            Some(_) if !is_cpu && self.waits.len() >= MOST_SUMS => 0,
            labels => self.number_of(labels.as_deref()),
        };
        let goroutine = if is_cpu { goroutine } else { 0 };
        let key = Key { subject, reason, trace, goroutine, place, labels };
        let sum = if is_cpu { &mut self.cpu } else { &mut self.waits }.entry(key).or_default();
        sum.count += count;
        sum.ns += ns;
    }

    fn number_of(&mut self, labels: Option<&Labels>) -> usize {
        let Some(labels) = labels else { return 0 };
        let pairs: Pairs = labels.pairs().into();
        let next = self.labels.len();
        let number = *self.label_numbers.entry(pairs.clone()).or_insert(next);
        if number == next {
            self.labels.push(pairs);
        }
        number
    }
}
