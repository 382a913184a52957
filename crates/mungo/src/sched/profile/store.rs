//! The sums of samples that are equal.

use super::Subject;
use super::ring::{self, Sample};
use super::sums::{Sum, Sums};
use crate::reason::WaitReason;
use crate::sched::report::stacks::{Image, Trace, Unwinder};
use crate::sys::modules;
use std::panic::Location;
use std::sync::Arc;

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
}

/// Unwinds samples and adds them up.
pub(super) struct Store {
    unwinder: Unwinder,
    /// The state of the loader that the unwinder is for.
    generation: u64,
    pub(super) waits: Sums<Key>,
    /// Those of the CPU profile that is being taken, whose labels end with it.
    pub(super) cpu: Sums<Key>,
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
        let goroutine = if is_cpu { goroutine } else { 0 };
        let key = Key { subject, reason, trace, goroutine, place };
        sums.add(key, labels.as_ref(), Sum { count, ns });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

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
        assert_eq!(sums.len(), (1000, 1001));
        assert_eq!((store.cpu.len(), store.waits.len()), ((0, 1), (1, 2)));
    }
}
