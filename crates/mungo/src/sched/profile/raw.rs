//! Profiles as the scheduler knows them: addresses and numbers.

use super::store::{Key, Pairs, Store, Sum};
use super::{LONG_NS, Subject, keeper, ring, waits as sampler};
use crate::labels::Labels;
use crate::reason::WaitReason;
use crate::sched::report::collect;
use crate::sched::report::dump::State;
use crate::sched::report::stacks::Trace;
use crate::sys::clock;
use std::collections::HashMap;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A profile.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    pub(crate) samples: Vec<RawSample>,
    /// Number of samples that could not be kept.
    pub(crate) lost: u64,
    /// Number of threads that could not be sampled.
    pub(crate) threads_missed: u64,
    /// The time that it is about, in ns; 0: a moment.
    pub(crate) duration_ns: u64,
    pub(crate) period_ns: u64,
}

/// A sample, or several equal ones.
#[derive(Debug)]
pub(crate) struct RawSample {
    pub(crate) trace: Arc<Trace>,
    /// The number of events, and their time in ns.
    pub(crate) count: f64,
    pub(crate) ns: f64,
    pub(crate) labels: Pairs,
    pub(crate) goroutine: Option<u64>,
    pub(crate) place: Option<&'static Location<'static>>,
    /// What it did or waited for.
    pub(crate) state: Option<State>,
}

/// Returns the sample of a sum.
pub(super) fn sample(store: &Store, key: &Key, sum: Sum) -> RawSample {
    RawSample {
        trace: store.trace(key).clone(),
        count: sum.count,
        ns: sum.ns,
        labels: store.labels(key).clone(),
        goroutine: (key.goroutine != 0).then_some(key.goroutine),
        place: key.place,
        state: (key.reason != WaitReason::None).then_some(State::Waiting(key.reason)),
    }
}

/// Goroutines that have this in common are one sample.
#[derive(PartialEq, Eq, Hash)]
struct Group {
    trace: usize,
    state: State,
    place: &'static Location<'static>,
    labels: *const Labels,
}

/// Returns what all goroutines do now. On a plain thread.
pub(crate) fn goroutines() -> Raw {
    let samples = living(|seen| Some((1.0, 0.0, seen.state)));
    Raw { samples, ..Raw::default() }
}

/// Returns the waits of a kind since they were first profiled, those that are not over included. On a plain thread.
pub(crate) fn waits(subject: Subject) -> io::Result<Raw> {
    let (now, since) = (clock::now_ns(), sampler::since_ns());
    let mut kept = keeper::lock()?;
    let mut samples = Vec::new();
    if let Some(store) = &mut kept.store {
        store.collect();
        let sums = store.waits.iter().filter(|(key, _)| key.subject == subject);
        samples.extend(sums.map(|(key, sum)| sample(store, key, *sum)));
    }
    drop(kept);
    // A wait that ends between the two looks is in the next profile: it is never counted twice.
    if sampler::waits_are_on() && !matches!(subject, Subject::Mutex | Subject::Runnable) {
        samples.extend(living(|seen| match seen.state {
            State::Waiting(reason) if Subject::of(reason) == subject => {
                let counted_ns = now.saturating_sub(seen.since_ns.max(since));
                (now.saturating_sub(seen.since_ns) >= LONG_NS).then_some((1.0, counted_ns as f64, seen.state))
            }
            _ => None,
        }));
    }
    Ok(Raw {
        samples,
        lost: ring::LOST[1].load(Relaxed),
        threads_missed: 0,
        duration_ns: if since == 0 { 0 } else { now.saturating_sub(since) },
        period_ns: u64::try_from(sampler::block_rate().as_nanos()).unwrap_or(u64::MAX),
    })
}

/// Looks at all goroutines; `value` returns the number and the time in ns that one counts for.
fn living(value: impl Fn(&collect::Seen) -> Option<(f64, f64, State)>) -> Vec<RawSample> {
    let mut groups: HashMap<Group, (Sum, Option<Arc<Labels>>)> = HashMap::new();
    let traces = collect::each(|seen| {
        let Some((count, ns, state)) = value(&seen) else { return };
        let labels = seen.labels.as_ref().map_or(std::ptr::null(), Arc::as_ptr);
        let group = Group { trace: seen.trace, state, place: seen.place, labels };
        // The labels are kept, so that their address stays theirs.
        let (sum, _) = groups.entry(group).or_insert_with(|| (Sum::default(), seen.labels));
        sum.count += count;
        sum.ns += ns;
    });
    let sample = |(group, (sum, labels)): (Group, (Sum, Option<Arc<Labels>>))| RawSample {
        trace: traces[group.trace].clone(),
        count: sum.count,
        ns: sum.ns,
        labels: labels.map_or_else(|| [].into(), |labels| labels.pairs().into()),
        goroutine: None,
        place: Some(group.place),
        state: Some(group.state),
    };
    groups.into_iter().map(sample).collect()
}
