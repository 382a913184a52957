//! Scheduling latency: how long goroutines could have run and did not, and what for.

use super::kernel;
use crate::stats::Times;
use crate::trace::model::{CAUSES, Model, Span};
use std::collections::BTreeMap;

/// How many spans before a start are looked at for whom it waited. TUNED: guess; with queues of a thousand goroutines
/// each start would otherwise look at a thousand others.
const NEAR: usize = 8;

/// Where a wait of this many ns or more begins, all spans are looked at, as long as `BUDGET` allows.
const LONG_NS: u64 = 1_000_000;

/// Spans that are looked at for long waits, over all. TUNED: about 0.1 s.
const BUDGET: usize = 20_000_000;

/// What a wait consisted of, in ns: what the processor did that ran the goroutine in the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Split {
    /// It ran others.
    pub(crate) behind: u64,
    /// It ran others that could run later only: the policy chose them.
    pub(crate) policy: u64,
    /// It had nothing to do: its thread was asleep, or on its way.
    pub(crate) idle: u64,
    /// It had no thread: the one that had it blocked, and another one was on its way.
    pub(crate) thread: u64,
    /// Its thread could run, and waited in the kernel's run queue.
    pub(crate) kernel: u64,
    /// It was between two goroutines.
    pub(crate) between: u64,
}

/// How to speak of a part of a wait.
#[derive(Debug)]
pub(crate) struct Part {
    /// For programs, and for the page.
    pub(crate) key: &'static str,
    /// The head of a column.
    pub(crate) head: &'static str,
    /// What the processor did.
    pub(crate) did: &'static str,
}

const fn part(key: &'static str, head: &'static str, did: &'static str) -> Part {
    Part { key, head, did }
}

/// The parts of a wait, in the order of [`Split::parts`].
pub(crate) const PARTS: [Part; 6] = [
    part("behind", "behind others", "ran others"),
    part("policy", "policy's choice", "ran others that the policy chose, although they could run later only"),
    part("asleep", "P asleep", "was asleep"),
    part("thread", "no thread", "had no thread, since one had blocked"),
    part("kernel", "no CPU", "had a thread that the kernel gave no CPU"),
    part("between", "between", "was between two goroutines"),
];

impl Split {
    pub(crate) fn parts(&self) -> [u64; 6] {
        [self.behind, self.policy, self.idle, self.thread, self.kernel, self.between]
    }

    /// The parts that are not nothing, by their places in [`PARTS`].
    pub(crate) fn present(&self) -> Vec<usize> {
        (0..PARTS.len()).filter(|&part| self.parts()[part] > 0).collect()
    }

    pub(crate) fn total(&self) -> u64 {
        self.parts().into_iter().fold(0, u64::saturating_add)
    }

    /// Time behind others, whatever the reason.
    pub(crate) fn behind_any(&self) -> u64 {
        self.behind.saturating_add(self.policy)
    }

    fn add(&mut self, other: Split) {
        let parts = [
            (&mut self.behind, other.behind),
            (&mut self.policy, other.policy),
            (&mut self.idle, other.idle),
            (&mut self.thread, other.thread),
            (&mut self.kernel, other.kernel),
            (&mut self.between, other.between),
        ];
        parts.into_iter().for_each(|(sum, part)| *sum = sum.saturating_add(part));
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
    /// Time in ns that goroutines waited behind others, by runtime.
    pub(crate) behind_in: BTreeMap<u32, u64>,
}

/// Looks at each wait.
pub(super) fn latency(model: &Model) -> Latency {
    let row = |name| CauseRow { name, times: Times::default(), split: Split::default() };
    let mut causes: Vec<CauseRow> = CAUSES.iter().map(|&name| row(name)).collect();
    let mut behind: Vec<Behind> =
        (0..model.places.len() as u32).map(|place| Behind { place, ns: 0, times: 0 }).collect();
    let mut budget = BUDGET;
    let mut behind_in: BTreeMap<u32, u64> = BTreeMap::new();
    let without_cpu = kernel::without_cpu(model);
    for (proc, without_cpu) in without_cpu.iter().enumerate() {
        let waits = Waits::new(model, proc, without_cpu);
        let behind_here = behind_in.entry(model.procs[proc].runtime).or_default();
        for at in 0..waits.spans.len() {
            let span = waits.span(at);
            let split = waits.split(at, &mut behind, &mut budget);
            let row = &mut causes[span.cause as usize];
            row.times.record_ns(span.waited());
            row.split.add(split);
            *behind_here = behind_here.saturating_add(split.behind_any());
        }
    }
    let mut all = row("all");
    for row in &causes {
        all.times.add(&row.times);
        all.split.add(row.split);
    }
    causes.retain(|row| row.times.len() > 0);
    causes.sort_by_key(|row| std::cmp::Reverse(row.split.total()));
    behind.retain(|b| b.ns > 0);
    behind.sort_by_key(|b| std::cmp::Reverse(b.ns));
    Latency { causes, all, behind, behind_in }
}

/// The waits for one processor.
struct Waits<'a> {
    model: &'a Model,
    spans: &'a [u32],
    idle: &'a [(u64, u64)],
    without_thread: &'a [(u64, u64)],
    without_cpu: &'a [(u64, u64)],
    /// Time that the processor ran goroutines before each span, in ns.
    before: Vec<u64>,
}

impl<'a> Waits<'a> {
    fn new(model: &'a Model, proc: usize, without_cpu: &'a [(u64, u64)]) -> Waits<'a> {
        let proc = &model.procs[proc];
        let mut sum = 0;
        let before = proc.spans.iter().map(|&s| {
            sum += model.spans[s as usize].ran();
            sum - model.spans[s as usize].ran()
        });
        let before = before.collect();
        let (idle, without_thread) = (&proc.idle, &proc.without_thread);
        Waits { model, spans: &proc.spans, idle, without_thread, without_cpu, before }
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
            let is_chosen = span.in_policy && other.ready > span.ready;
            *(if is_chosen { &mut split.policy } else { &mut split.behind }) += ns;
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
        let mut left = waited;
        let mut take = |part: &mut u64| {
            *part = left.min(*part);
            left -= *part;
        };
        take(&mut split.behind);
        take(&mut split.policy);
        let parts = [
            (&mut split.idle, self.idle),
            (&mut split.thread, self.without_thread),
            (&mut split.kernel, self.without_cpu),
        ];
        for (part, stretches) in parts {
            *part = overlap(stretches, span.ready, span.start);
            take(part);
        }
        split.between = left;
        split
    }

    /// Time that the processor ran goroutines from `from` until the span at `until` begins.
    fn sum_from(&self, from: u64, until: usize) -> u64 {
        let first = self.spans[..until].partition_point(|&s| self.model.spans[s as usize].end <= from);
        let cut = from.saturating_sub(self.span(first).start);
        (self.before[until] - self.before[first]).saturating_sub(cut)
    }
}

/// Returns how much of the time between two moments is in stretches, which are in order.
fn overlap(stretches: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let first = stretches.partition_point(|&(_, end)| end <= from);
    let overlaps = stretches[first..].iter().take_while(|&&(start, _)| start < to);
    overlaps.map(|&(start, end)| end.min(to) - start.max(from)).sum()
}
