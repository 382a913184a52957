//! Scheduling latency: how long goroutines could have run and did not, and what for.

use crate::stats::Times;
use crate::trace::model::{CAUSES, Model, Span};

/// How many spans before a start are looked at for whom it waited. TUNED: guess; with queues of a thousand goroutines
/// each start would otherwise look at a thousand others.
const NEAR: usize = 8;

/// Where a wait of this many ns or more begins, all spans are looked at, as long as `BUDGET` allows.
const LONG_NS: u64 = 1_000_000;

/// Spans that are looked at for long waits, over all. TUNED: about 0.1 s.
const BUDGET: usize = 20_000_000;

/// What a wait consisted of, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Split {
    /// The processor that ran it in the end ran others.
    pub(crate) behind: u64,
    /// That processor had nothing to do: its thread was asleep, or on its way.
    pub(crate) idle: u64,
    /// That processor was between two goroutines, or without a thread.
    pub(crate) between: u64,
}

impl Split {
    fn add(&mut self, other: Split) {
        self.behind = self.behind.saturating_add(other.behind);
        self.idle = self.idle.saturating_add(other.idle);
        self.between = self.between.saturating_add(other.between);
    }
}

/// Waits for one cause.
#[derive(Debug)]
pub(crate) struct CauseRow {
    pub(crate) name: &'static str,
    pub(crate) times: Times,
    pub(crate) split: Split,
}

/// What goroutines waited behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    /// Of `Model::places`.
    pub(crate) place: u32,
    /// Time that goroutines from there ran on a processor for which others waited, once for each that waited.
    pub(crate) ns: u64,
    /// How often a goroutine waited behind one.
    pub(crate) times: u64,
}

/// Waits of all goroutines.
#[derive(Debug)]
pub(crate) struct Latency {
    /// Causes that occur, the one with most time first.
    pub(crate) causes: Vec<CauseRow>,
    pub(crate) all: CauseRow,
    /// The place with most time first.
    pub(crate) behind: Vec<Behind>,
}

/// Looks at each wait.
pub(super) fn latency(model: &Model) -> Latency {
    let row = |name| CauseRow { name, times: Times::default(), split: Split::default() };
    let mut causes: Vec<CauseRow> = CAUSES.iter().map(|&name| row(name)).collect();
    let mut behind: Vec<Behind> =
        (0..model.places.len() as u32).map(|place| Behind { place, ns: 0, times: 0 }).collect();
    let mut budget = BUDGET;
    for proc in 0..model.procs.len() {
        let waits = Waits::new(model, proc);
        for at in 0..waits.spans.len() {
            let span = waits.span(at);
            let split = waits.split(at, &mut behind, &mut budget);
            let row = &mut causes[span.cause as usize];
            row.times.record_ns(span.waited());
            row.split.add(split);
        }
    }
    let mut all = row("all");
    for row in &causes {
        all.times.add(&row.times);
        all.split.add(row.split);
    }
    causes.retain(|row| row.times.len() > 0);
    let total = |s: &Split| s.behind + s.idle + s.between;
    causes.sort_by_key(|row| std::cmp::Reverse(total(&row.split)));
    behind.retain(|b| b.ns > 0);
    behind.sort_by_key(|b| std::cmp::Reverse(b.ns));
    Latency { causes, all, behind }
}

/// The waits for one processor.
struct Waits<'a> {
    model: &'a Model,
    spans: &'a [u32],
    idle: &'a [(u64, u64)],
    /// Time that the processor ran goroutines before each span, in ns.
    before: Vec<u64>,
}

impl<'a> Waits<'a> {
    fn new(model: &'a Model, proc: usize) -> Waits<'a> {
        let proc = &model.procs[proc];
        let mut sum = 0;
        let before = proc.spans.iter().map(|&s| {
            sum += model.spans[s as usize].ran();
            sum - model.spans[s as usize].ran()
        });
        Waits { model, spans: &proc.spans, idle: &proc.idle, before: before.collect() }
    }

    fn span(&self, at: usize) -> &'a Span {
        &self.model.spans[self.spans[at] as usize]
    }

    /// What the wait before the span at `at` consisted of; adds to `behind` the places of those that it waited for.
    fn split(&self, at: usize, behind: &mut [Behind], budget: &mut usize) -> Split {
        let span = self.span(at);
        let waited = span.waited();
        if waited == 0 {
            return Split::default();
        }
        let mut limit = NEAR;
        if waited >= LONG_NS && *budget > 0 {
            limit = at;
        }
        let mut split = Split::default();
        let mut next = at;
        while next > 0 && at - next < limit {
            let other = self.span(next - 1);
            if other.end <= span.ready {
                break;
            }
            next -= 1;
            let ns = other.end.min(span.start).saturating_sub(other.start.max(span.ready));
            split.behind += ns;
            let who = &mut behind[self.model.goroutines[other.g as usize].place as usize];
            who.ns = who.ns.saturating_add(ns);
            who.times += 1;
        }
        if limit > NEAR {
            *budget = budget.saturating_sub(at - next);
        }
        if next > 0 && self.span(next - 1).end > span.ready {
            split.behind += self.sum_from(span.ready, next);
        }
        split.behind = split.behind.min(waited);
        split.idle = self.idle_between(span.ready, span.start).min(waited - split.behind);
        split.between = waited - split.behind - split.idle;
        split
    }

    /// Time that the processor ran goroutines from `from` until the span at `until` begins.
    fn sum_from(&self, from: u64, until: usize) -> u64 {
        let first = self.spans[..until].partition_point(|&s| self.model.spans[s as usize].end <= from);
        let cut = from.saturating_sub(self.span(first).start);
        (self.before[until] - self.before[first]).saturating_sub(cut)
    }

    fn idle_between(&self, from: u64, to: u64) -> u64 {
        let first = self.idle.partition_point(|&(_, end)| end <= from);
        let overlaps = self.idle[first..].iter().take_while(|&&(start, _)| start < to);
        overlaps.map(|&(start, end)| end.min(to) - start.max(from)).sum()
    }
}
