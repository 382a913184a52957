//! What a profile consists of.

use super::names::Names;
use super::{gzip, pprof};
use crate::sched::profile::{Raw, RawSample};
use crate::sched::report::dump::{Frame, State};
use crate::sched::report::stacks::{self, Trace};
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What a profile is about. The functions of [`profile`](crate::profile) have the same names.
///
/// ```
/// assert_eq!(mungo::profile::goroutine().kind(), mungo::profile::Kind::Goroutine);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// [`goroutine`](super::goroutine).
    Goroutine,
    /// [`cpu`](super::cpu).
    Cpu,
    /// [`block`](super::block).
    Block,
    /// [`mutex`](super::mutex).
    Mutex,
    /// [`sleep`](super::sleep).
    Sleep,
    /// [`network`](super::network).
    Network,
    /// [`runnable`](super::runnable).
    Runnable,
}

impl Kind {
    /// Returns its name, as in the path of a URL.
    ///
    /// ```
    /// assert_eq!(mungo::profile::Kind::Block.as_str(), "block");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Goroutine => "goroutine",
            Kind::Cpu => "cpu",
            Kind::Block => "block",
            Kind::Mutex => "mutex",
            Kind::Sleep => "sleep",
            Kind::Network => "network",
            Kind::Runnable => "runnable",
        }
    }

    /// Returns the names of a sample's values and their units. They are Go's where Go has such a profile.
    pub(super) fn values(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Kind::Goroutine => &[("goroutine", "count")],
            Kind::Cpu => &[("samples", "count"), ("cpu", "nanoseconds")],
            Kind::Block | Kind::Mutex => &[("contentions", "count"), ("delay", "nanoseconds")],
            Kind::Sleep | Kind::Network | Kind::Runnable => &[("waits", "count"), ("delay", "nanoseconds")],
        }
    }

    pub(super) fn values_of(self, sample: &Sample) -> impl Iterator<Item = u64> {
        let both = [sample.count, u64::try_from(sample.time.as_nanos()).unwrap_or(u64::MAX)];
        both.into_iter().take(self.values().len())
    }

    /// Returns what a period is counted in.
    pub(super) fn period(self) -> (&'static str, &'static str) {
        match self {
            Kind::Cpu => ("cpu", "nanoseconds"),
            other => other.values()[0],
        }
    }
}

/// A profile: samples, and how they came about.
///
/// ```
/// let profile: mungo::profile::Profile = mungo::go(mungo::profile::goroutine).join().unwrap();
/// assert!(profile.total_count() >= 1);
/// ```
#[derive(Clone, Debug)]
pub struct Profile {
    pub(super) kind: Kind,
    pub(super) samples: Vec<Sample>,
    pub(super) taken: SystemTime,
    pub(super) duration: Duration,
    pub(super) period: u64,
    lost: u64,
    threads_missed: u64,
}

/// What happened a number of times at the same place: the same calls, labels, and place of spawn.
///
/// ```
/// let parked = mungo::go(|| mungo::park());
/// let profile = mungo::profile::goroutine();
/// assert!(profile.samples().iter().any(|sample| sample.spawned_at.is_some_and(|place| place.line() > 0)));
/// # parked.goroutine().unpark();
/// # parked.join().unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// The number of goroutines, waits or samples, as estimated.
    pub count: u64,
    /// The time that they took together, as estimated; zero in a goroutine profile.
    pub time: Duration,
    /// The labels of the goroutine, by key: see [`label`](crate::debug::label).
    pub labels: Vec<(Arc<str>, Arc<str>)>,
    /// The number of the goroutine, in a CPU profile; `None`: any, or none.
    pub goroutine: Option<u64>,
    /// The place where it was spawned; `None`: no goroutine.
    pub spawned_at: Option<&'static Location<'static>>,
    /// What it did, or waited for.
    pub state: Option<State>,
    pub(super) stack: Arc<Calls>,
}

/// What samples have in common that are the same in two profiles.
type Key = (Vec<usize>, Vec<(Arc<str>, Arc<str>)>, Option<u64>, Option<usize>, Option<State>);

/// The calls of a stack, the innermost first.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) calls: Vec<Call>,
    pub(super) note: Option<&'static str>,
}

/// A call, with what was inlined there.
#[derive(Debug)]
pub(super) struct Call {
    /// An address in the instruction; 0: it stands for a stack that there is not.
    pub(super) address: usize,
    frames: Arc<[Frame]>,
    /// Those that are not the runtime's.
    pub(super) kept: Range<usize>,
}

impl Call {
    pub(super) fn frames(&self) -> &[Frame] {
        &self.frames[self.kept.clone()]
    }
}

impl Sample {
    /// Returns the calls, the innermost first; those of the runtime itself are left out where it waits and begins.
    ///
    /// ```
    /// let profile = mungo::go(mungo::profile::goroutine).join().unwrap();
    /// let functions = profile.samples().iter().flat_map(|sample| sample.frames()).map(|frame| &frame.function);
    /// assert!(functions.into_iter().all(|name| !name.is_empty()));
    /// ```
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.stack.calls.iter().flat_map(Call::frames)
    }

    fn key(&self) -> Key {
        let place = self.spawned_at.map(|place| std::ptr::from_ref(place).addr());
        let addresses = self.stack.calls.iter().map(|call| call.address).collect();
        (addresses, self.labels.clone(), self.goroutine, place, self.state)
    }

    /// Returns why there is no stack, or why it is not complete.
    ///
    /// ```
    /// let profile = mungo::go(mungo::profile::goroutine).join().unwrap();
    /// assert!(profile.samples().iter().all(|sample| sample.note().is_none_or(|why| !why.is_empty())));
    /// ```
    pub fn note(&self) -> Option<&'static str> {
        self.stack.note
    }
}

impl Profile {
    /// Makes a profile, with names, on a plain thread.
    pub(super) fn new(kind: Kind, raw: Raw) -> Profile {
        let Raw { samples, lost, threads_missed, duration_ns, period_ns } = raw;
        let mut names = Names::open();
        let mut stacks: HashMap<(Arc<Trace>, bool), Arc<Calls>> = HashMap::new();
        let mut made: Vec<Sample> = samples
            .into_iter()
            .map(|RawSample { trace, count, ns, labels, goroutine, place, state }| Sample {
                count: count.round() as u64,
                time: Duration::from_nanos(ns.round() as u64),
                labels: labels.to_vec(),
                goroutine,
                spawned_at: place,
                state,
                stack: stacks
                    .entry((trace.clone(), place.is_some()))
                    .or_insert_with(|| Arc::new(calls(kind, &trace, place.is_some(), &mut names)))
                    .clone(),
            })
            .collect();
        made.sort_by_key(|sample| std::cmp::Reverse((sample.time, sample.count)));
        let period = if kind == Kind::Cpu { period_ns } else { 1 };
        let duration = Duration::from_nanos(duration_ns);
        Profile { kind, samples: made, taken: SystemTime::now(), duration, period, lost, threads_missed }
    }

    /// Returns what it is about.
    ///
    /// ```
    /// assert_eq!(mungo::profile::block().kind().as_str(), "block");
    /// ```
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the samples, those with the most time first.
    ///
    /// ```
    /// let profile = mungo::profile::block();
    /// assert!(profile.samples().is_sorted_by(|a, b| a.time >= b.time));
    /// ```
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the sum of all times.
    ///
    /// ```
    /// let profile = mungo::profile::block();
    /// assert_eq!(profile.total_time(), profile.samples().iter().map(|sample| sample.time).sum());
    /// ```
    pub fn total_time(&self) -> Duration {
        self.samples.iter().map(|sample| sample.time).sum()
    }

    /// Returns the sum of all counts.
    ///
    /// ```
    /// let profile = mungo::go(mungo::profile::goroutine).join().unwrap();
    /// assert!(profile.total_count() >= 1, "the one that asked");
    /// ```
    pub fn total_count(&self) -> u64 {
        self.samples.iter().map(|sample| sample.count).sum()
    }

    /// Returns the number of samples that could not be kept, because they came faster than they were collected.
    ///
    /// ```
    /// assert_eq!(mungo::profile::goroutine().lost(), 0, "nothing is sampled there");
    /// ```
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns what was added since `before`, an earlier profile of the same kind: for collectors that ask for the last
    /// seconds. Waits that were not over are counted with the time since.
    ///
    /// ```
    /// let before = mungo::profile::block();
    /// let last = mungo::profile::block().since(&before);
    /// assert!(last.total_count() <= mungo::profile::block().total_count());
    /// ```
    pub fn since(mut self, before: &Profile) -> Profile {
        let mut known: HashMap<Key, (u64, Duration)> = HashMap::new();
        for sample in &before.samples {
            let (count, time) = known.entry(sample.key()).or_default();
            *count += sample.count;
            *time += sample.time;
        }
        for sample in &mut self.samples {
            let known = known.get_mut(&sample.key()).map(|(count, time)| {
                let (seen, waited) = (sample.count.min(*count), sample.time.min(*time));
                (*count, *time) = (*count - seen, *time - waited);
                (seen, waited)
            });
            let (seen, waited) = known.unwrap_or_default();
            (sample.count, sample.time) = (sample.count - seen, sample.time - waited);
        }
        self.samples.retain(|sample| sample.count != 0 || !sample.time.is_zero());
        self.duration = self.taken.duration_since(before.taken).unwrap_or_default();
        self.lost = self.lost.saturating_sub(before.lost);
        self
    }

    /// Writes it as gzipped protocol buffers, which `go tool pprof` and collectors of profiles read.
    ///
    /// ```
    /// let mut file = Vec::new();
    /// mungo::profile::goroutine().write_to(&mut file)?;
    /// assert_eq!(file[..2], [0x1f, 0x8b], "gzip");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, to: impl Write) -> io::Result<()> {
        gzip::write(&pprof::encode(self), to)
    }

    /// Returns what is to be said of it beside its samples.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.lost != 0 {
            remarks.push(format!("{} samples were lost", self.lost));
        }
        if self.threads_missed != 0 {
            remarks.push(format!("{} threads could not be sampled: no timer", self.threads_missed));
        }
        remarks
    }
}

/// Names the calls of a trace.
fn calls(kind: Kind, trace: &Trace, is_goroutine: bool, names: &mut Names) -> Calls {
    if trace.addresses.is_empty() {
        let function = format!("[{}]", trace.note.unwrap_or("no stack"));
        let frames: Arc<[Frame]> = [Frame { function, file: None, line: None }].into();
        return Calls { calls: vec![Call { address: 0, frames, kept: 0..1 }], note: trace.note };
    }
    let named: Vec<Arc<[Frame]>> = trace.addresses.iter().map(|address| names.of(*address)).collect();
    let all: Vec<Frame> = named.iter().flat_map(|frames| frames.iter().cloned()).collect();
    let kept = match kind {
        Kind::Cpu if is_goroutine => 0..stacks::of_program(&all).end.max(1),
        Kind::Cpu => 0..all.len(),
        _ => stacks::of_program(&all),
    };
    let mut calls = Vec::new();
    let mut at = 0;
    for (address, frames) in trace.addresses.iter().zip(named) {
        let (start, end) = (kept.start.max(at) - at, kept.end.min(at + frames.len()).max(at) - at);
        at += frames.len();
        if start < end {
            calls.push(Call { address: address - 1, frames, kept: start..end });
        }
    }
    Calls { calls, note: trace.note }
}
