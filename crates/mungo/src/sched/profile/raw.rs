//! Profiles as the scheduler knows them: addresses and numbers.

use super::store::{Key, Pairs, Store, Sum};
use super::{LONG_NS, Subject, keeper, ring, waits as sampler};
use crate::labels::Labels;
use crate::reason::WaitReason;
use crate::sched::report::collect;
use crate::sched::report::dump::State;
use crate::sched::report::stacks::Trace;
use crate::sched::report::waits::holder_of_lock;
use crate::sched::run::g::GRef;
use crate::sched::run::sample;
use crate::sched::sysmon::monitor;
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
pub(super) fn sample_of(store: &Store, (key, sum, labels): (&Key, Sum, &Pairs)) -> RawSample {
    RawSample {
        trace: store.trace(key).clone(),
        count: sum.count,
        ns: sum.ns,
        labels: labels.clone(),
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
    let samples = living(|_| true, |seen| Some((1.0, 0.0, seen.state)));
    Raw { samples, ..Raw::default() }
}

/// Returns the waits of a kind since they were first profiled, those that are not over included. On a plain thread.
pub(crate) fn waits(subject: Subject) -> io::Result<Raw> {
    let (now, since) = (clock::now_ns(), sampler::since_ns());
    let mut kept = keeper::lock()?;
    let mut samples = Vec::new();
    if let Some(store) = &mut kept.store {
        store.collect();
        let sums = store.waits.iter().filter(|(key, ..)| key.subject == subject);
        samples.extend(sums.map(|sum| sample_of(store, sum)));
    }
    drop(kept);
    // A wait that ends between the two looks is in the next profile: it is never counted twice.
    if sampler::waits_are_on() {
        samples.extend(unfinished(subject, now, since));
    }
    Ok(Raw {
        samples,
        lost: ring::LOST[1].load(Relaxed),
        threads_missed: 0,
        duration_ns: if since == 0 { 0 } else { now.saturating_sub(since) },
        period_ns: u64::try_from(sampler::block_rate().as_nanos()).unwrap_or(u64::MAX),
    })
}

/// Returns the waits of a kind that are not over, and at least [`LONG_NS`] old.
fn unfinished(subject: Subject, now: u64, since: u64) -> Vec<RawSample> {
    // The time that counts of a wait that began then.
    let counted = |began_ns: u64| {
        let counted_ns = now.saturating_sub(began_ns.max(since)) as f64;
        (now.saturating_sub(began_ns) >= LONG_NS).then_some(counted_ns)
    };
    match subject {
        Subject::Mutex => {
            let charged = charged_to_holders(counted);
            let is_holder = |g: &GRef| charged.contains_key(&g.ptr().as_ptr().addr());
            living(is_holder, |seen| {
                let (sum, reason) = charged.get(&seen.g.as_ptr().addr())?;
                Some((sum.count, sum.ns, State::Waiting(*reason)))
            })
        }
        Subject::Runnable => {
            // One that is timed stands for others, as when it is over.
            let is_queued =
                |g: &GRef| sample::queued(g).is_some_and(|(began_ns, _)| counted(began_ns).is_some());
            let samples = living(is_queued, |seen| {
                let (began_ns, weight) = seen.queued?;
                Some((weight as f64, counted(began_ns)? * weight as f64, seen.state))
            });
            // The waits that are over have no state either.
            samples.into_iter().map(|sample| RawSample { state: None, ..sample }).collect()
        }
        _ => living(
            |_| true,
            |seen| match seen.state {
                State::Waiting(reason) if Subject::of(reason) == subject => {
                    Some((1.0, counted(seen.since_ns)?, seen.state))
                }
                _ => None,
            },
        ),
    }
}

/// Returns the waits for locks by the address of the holder's G.
fn charged_to_holders(counted: impl Fn(u64) -> Option<f64>) -> HashMap<usize, (Sum, WaitReason)> {
    let mut charged = HashMap::new();
    for shared in monitor::runtimes() {
        shared.for_each_g(|g| {
            if let Some(g) = GRef::try_new(g)
                && std::ptr::eq(g.shared.get(), &raw const *shared)
                && let Some((holder, reason, since_ns)) = holder_of_lock(&g)
                && let Some(ns) = counted(since_ns)
            {
                let (sum, _) = charged.entry(holder.as_ptr().addr()).or_insert((Sum::default(), reason));
                sum.count += 1.0;
                sum.ns += ns;
            }
        });
    }
    charged
}

/// Looks at all goroutines that `is_wanted`; `value` returns the number and the time in ns that one counts for.
fn living(
    is_wanted: impl Fn(&GRef) -> bool,
    value: impl Fn(&collect::Seen) -> Option<(f64, f64, State)>,
) -> Vec<RawSample> {
    let mut groups: HashMap<Group, (Sum, Option<Arc<Labels>>)> = HashMap::new();
    let traces = collect::each(is_wanted, |seen| {
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
