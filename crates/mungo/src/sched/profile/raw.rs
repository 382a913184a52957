//! Profiles as the scheduler knows them: addresses and numbers.

use super::store::{Key, Store};
use super::sums::{Pairs, Sum, Sums};
use super::{LONG_NS, Subject, keeper, ring, waits as sampler};
use crate::reason::WaitReason;
use crate::sched::report::collect::{self, Reach};
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Group {
    trace: usize,
    state: State,
    place: &'static Location<'static>,
}

/// Returns what all goroutines do now. On a plain thread.
pub(crate) fn goroutines() -> Raw {
    let samples = living(Reach::All, |_| true, |seen| Some((1.0, 0.0, seen.state)));
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
            living(Reach::All, is_holder, |seen| {
                let (sum, reason) = charged.get(&seen.g.as_ptr().addr())?;
                Some((sum.count, sum.ns, State::Waiting(*reason)))
            })
        }
        Subject::Runnable => {
            // One that is timed stands for others, as when it is over.
            let is_queued =
                |g: &GRef| sample::queued(g).is_some_and(|(began_ns, _)| counted(began_ns).is_some());
            let samples = living(Reach::Suspended, is_queued, |seen| {
                let (began_ns, weight) = seen.queued?;
                Some((weight as f64, counted(began_ns)? * weight as f64, seen.state))
            });
            // The waits that are over have no state either.
            samples.into_iter().map(|sample| RawSample { state: None, ..sample }).collect()
        }
        _ => living(
            Reach::Suspended,
            |g| has_waited(g, subject, counted),
            |seen| match seen.state {
                State::Waiting(reason) if Subject::of(reason) == subject => {
                    Some((1.0, counted(seen.since_ns)?, seen.state))
                }
                _ => None, // it has gone on
            },
        ),
    }
}

/// Returns whether a goroutine has a wait of this kind that is `counted`. Without holding it: the others should not
/// notice the profile.
fn has_waited(g: &GRef, subject: Subject, counted: impl Fn(u64) -> Option<f64>) -> bool {
    g.state.is_waiting()
        && Subject::of(g.wait_reason()) == subject
        && counted(g.since_ns.load(Relaxed)).is_some()
}

/// Returns the waits for locks by the address of the holder's G.
fn charged_to_holders(counted: impl Fn(u64) -> Option<f64>) -> HashMap<usize, (Sum, WaitReason)> {
    let mut charged = HashMap::new();
    for shared in monitor::runtimes() {
        shared.for_each_g(|g| {
            if let Some(g) = GRef::try_new(g)
                && std::ptr::eq(g.shared.get(), &raw const *shared)
                && counted(g.since_ns.load(Relaxed)).is_some()
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

/// Looks at all goroutines in `reach` that `is_wanted`; `value` returns the number and the time in ns that one counts
/// for.
fn living(
    reach: Reach,
    is_wanted: impl Fn(&GRef) -> bool,
    value: impl Fn(&collect::Seen) -> Option<(f64, f64, State)>,
) -> Vec<RawSample> {
    let mut groups: Sums<Group> = Sums::default();
    let traces = collect::each(reach, is_wanted, |seen| {
        let Some((count, ns, state)) = value(&seen) else { return };
        let group = Group { trace: seen.trace, state, place: seen.place };
        groups.add(group, seen.labels.as_ref(), Sum { count, ns });
    });
    let sample = |(group, sum, labels): (&Group, Sum, &Pairs)| RawSample {
        trace: traces[group.trace].clone(),
        count: sum.count,
        ns: sum.ns,
        labels: labels.clone(),
        goroutine: None,
        place: Some(group.place),
        state: Some(group.state),
    };
    groups.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::report::collect::living as all_of;
    use crate::sched::run::g::hold::LONGEST_NS;
    use crate::sys::say::say;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::time::Duration;

    type Counted = fn(u64) -> Option<f64>;

    /// Waits until `wanted` of a runtime's goroutines wait for this.
    fn wait_until(runtime: &crate::Runtime, wanted: usize, reason: WaitReason) {
        let is_one = |g: &&GRef| g.state.is_waiting() && g.wait_reason() == reason;
        while all_of(runtime.shared(), usize::MAX, &mut 0).iter().filter(is_one).count() != wanted {
            std::thread::yield_now();
        }
    }

    /// A profile of sleeps copies the stacks of those that sleep, and interrupts none that runs.
    #[test]
    fn a_profile_of_waits_leaves_alone_what_is_not_in_it() {
        let runtime = crate::Runtime::builder().procs(1).build().unwrap();
        let (stop, (tx, rx)) = (Arc::new(AtomicBool::new(false)), crate::chan::bounded::<()>(0));
        let blocked: Vec<_> = (0..5)
            .map(|_| {
                runtime.spawn({
                    let rx = rx.clone();
                    move || _ = rx.recv()
                })
            })
            .collect();
        let asleep: Vec<_> =
            (0..3).map(|_| runtime.spawn(|| crate::sleep(Duration::from_secs(3600)))).collect();
        wait_until(&runtime, 5, WaitReason::ChanRecv);
        wait_until(&runtime, 3, WaitReason::Sleep);
        let busy = runtime.spawn({
            let stop = stop.clone();
            move || while !stop.load(Relaxed) {}
        });
        let all = all_of(runtime.shared(), usize::MAX, &mut 0);
        let wanted = |subject, counted: Counted| all.iter().filter(|g| has_waited(g, subject, counted)).count();
        let (any, none): (Counted, Counted) = (|_| Some(1.0), |_| None);
        assert_eq!((all.len(), wanted(Subject::Block, any), wanted(Subject::Sleep, any)), (9, 5, 3));
        assert_eq!((wanted(Subject::Network, any), wanted(Subject::Sleep, none)), (0, 0));
        // One that runs by the time of the look, although it was wanted, is not interrupted for it.
        let is_its = |g: &GRef| std::ptr::eq(g.shared.get(), &raw const **runtime.shared());
        let states = |reach| {
            let mut states = Vec::new();
            collect::each(reach, is_its, |seen| states.push(seen.state));
            states
        };
        while !states(Reach::All).iter().any(|state| matches!(state, State::Running)) {}
        assert!(states(Reach::Suspended).iter().all(|state| !matches!(state, State::Running | State::Syscall)));
        stop.store(true, Relaxed);
        busy.join().unwrap();
        drop(tx);
        blocked.into_iter().for_each(|g| g.join().unwrap());
        drop(asleep);
    }

    /// The longest times that were seen beside a profile, or without one.
    #[derive(Default)]
    struct Beside {
        /// Between two turns of a goroutine that yields, and of a send that wakes a goroutine, in ns.
        turn_ns: AtomicU64,
        send_ns: AtomicU64,
        sends: AtomicU64,
    }

    impl Beside {
        /// Counts from now on; prints what was counted.
        fn print(&self, what: &str) {
            let [turn_us, send_us] = [&self.turn_ns, &self.send_ns].map(|ns| ns.swap(0, Relaxed) / 1000);
            let sends = self.sends.swap(0, Relaxed);
            say!("{what}: {turn_us} us between turns, {send_us} us for one of {sends} sends at most");
        }
    }

    /// The figures of docs/profiles.md: `cargo test -p mungo --release --all-features --lib -- --ignored --nocapture
    /// a_profile_of_a_million`.
    #[test]
    #[ignore = "takes 6 GB of memory, and prints how long it takes"]
    fn a_profile_of_a_million_goroutines_stops_no_p() {
        const MANY: usize = 1_000_000;
        let runtime = crate::Runtime::builder().procs(2).build().unwrap();
        let (stop, beside) = (Arc::new(AtomicBool::new(false)), Arc::new(Beside::default()));
        let (tx, rx) = crate::chan::bounded::<()>(0);
        let many: Vec<_> = (0..MANY)
            .map(|_| {
                runtime.spawn({
                    let rx = rx.clone();
                    move || while rx.recv().is_ok() {}
                })
            })
            .collect();
        let waiting = || {
            let mut waiting = 0;
            runtime.shared().for_each_g(|g| waiting += usize::from(g.state.is_waiting()));
            waiting
        };
        while waiting() < MANY {
            std::thread::yield_now();
        }
        let yields = runtime.spawn({
            let (stop, beside) = (stop.clone(), beside.clone());
            move || {
                let mut last_ns = clock::now_ns();
                while !stop.load(Relaxed) {
                    crate::yield_now();
                    let now_ns = clock::now_ns();
                    beside.turn_ns.fetch_max(now_ns - std::mem::replace(&mut last_ns, now_ns), Relaxed);
                }
            }
        });
        // It wakes one after the other, which are sometimes held just then.
        let wakes = runtime.spawn({
            let (stop, beside) = (stop.clone(), beside.clone());
            move || {
                while !stop.load(Relaxed) {
                    let began_ns = clock::now_ns();
                    tx.send(()).unwrap();
                    beside.send_ns.fetch_max(clock::now_ns() - began_ns, Relaxed);
                    beside.sends.fetch_add(1, Relaxed);
                    crate::yield_now();
                }
            }
        });
        for _ in 0..5 {
            LONGEST_NS.store(0, Relaxed);
            beside.print("before");
            let began_ns = clock::now_ns();
            let profile = goroutines();
            let took_ns = clock::now_ns() - began_ns;
            beside.print("with a profile");
            let (took_ms, held_us) = (took_ns / 1_000_000, LONGEST_NS.load(Relaxed) / 1000);
            say!("the profile: {took_ms} ms, {held_us} us for one goroutine at most");
            let is_here = |sample: &&RawSample| sample.place.is_some_and(|place| place.file() == file!());
            let seen: f64 = profile.samples.iter().filter(is_here).map(|sample| sample.count).sum();
            assert_eq!(seen, (MANY + 2) as f64);
            let until_ns = clock::now_ns() + took_ns;
            while clock::now_ns() < until_ns {
                std::thread::sleep(Duration::from_nanos(until_ns.saturating_sub(clock::now_ns())));
            }
            beside.print("as long without one");
        }
        stop.store(true, Relaxed);
        yields.join().unwrap();
        wakes.join().unwrap();
        drop(rx);
        many.into_iter().for_each(|g| g.join().unwrap());
    }
}
