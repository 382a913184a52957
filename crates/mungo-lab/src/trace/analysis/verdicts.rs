//! What is wrong, in words, with the moments at which it shows.

use super::kernel;
use super::latency::Latency;
use super::places::ProcRow;
use super::stuck::Graph;
use crate::report::table::quantity;
use crate::trace::build::CROWD;
use crate::trace::model::{Model, NONE, NoCpu, Span, UNKNOWN, Why};
use std::collections::{BTreeMap, HashMap};

/// A goroutine that could run and waits longer than this is worth a word, in ns.
pub(crate) const LONG_WAIT_NS: u64 = 5_000_000;
/// A goroutine that runs longer than this while others wait.
const LONG_RUN_NS: u64 = 10_000_000;
/// A thread that blocks longer than this before its processor is taken away.
const LONG_BLOCK_NS: u64 = 20_000_000;
/// A thread that had no CPU for longer than this between two looks at the kernel's counters.
const LONG_NO_CPU_NS: u64 = 1_000_000;
/// Timers that are later than this.
const LATE_TIMER_NS: u64 = 5_000_000;
/// The busiest processor runs that much more than the idlest one.
const IMBALANCE: u64 = 3;
/// Goroutines of one place that have been parked for long, nearly all that it made, and it made them one by one: a pool
/// that waits for work is made at once.
const LEAKED: usize = 10;
/// Time in ns for which each of them has been parked at least.
const LEAK_NS: u64 = 1_000_000_000;
/// Moments that are kept, the worst ones.
const MOMENTS: usize = 5;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Bad,
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Severity::Bad => "bad",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A stretch of the trace to look at.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Of `Model::goroutines`, or [`NONE`].
    pub(crate) g: u32,
    pub(crate) text: String,
}

/// Something that the trace shows.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// For programs: `long-wait`.
    pub(crate) key: &'static str,
    pub(crate) severity: Severity,
    pub(crate) title: String,
    /// What it means, and what to do.
    pub(crate) advice: &'static str,
    pub(crate) count: usize,
    /// The worst first.
    pub(crate) moments: Vec<Moment>,
}

/// A time, in the unit that suits it.
pub(crate) fn time(ns: u64) -> String {
    quantity(ns as f64 / 1e3, "us")
}

/// A moment, as exactly as one would look for it.
pub(crate) fn moment(ns: u64) -> String {
    if ns >= 1_000_000_000 { format!("{:.4} s", ns as f64 / 1e9) } else { time(ns) }
}

/// Everything that is worth a word, the worst first.
pub(super) fn verdicts(model: &Model, latency: &Latency, procs: &[ProcRow], graph: &Graph) -> Vec<Verdict> {
    let mut all = Vec::new();
    all.extend(incomplete(model));
    all.extend(deadlocks(model, graph));
    all.extend(long_waits(model));
    all.extend(long_runs(model));
    all.extend(blocked(model));
    all.extend(stalls(model));
    all.extend(no_cpu(model));
    all.extend(on_cpu(model));
    all.extend(crowds(model));
    all.extend(imbalance(model, latency, procs));
    all.extend(leaks(model));
    all.extend(late_timers(model));
    all.extend(policies(model));
    all.sort_by_key(|v| v.severity);
    all
}

fn incomplete(model: &Model) -> Vec<Verdict> {
    let verdict = |key, title, advice| Verdict {
        key,
        severity: Severity::Warning,
        title,
        advice,
        count: 1,
        moments: Vec::new(),
    };
    let dropped = (model.counts.dropped > 0).then(|| {
        let title = format!("{} events are missing", model.counts.dropped);
        verdict("dropped", title, "They came faster than they could be written; all figures are too low.")
    });
    let torn = model.is_torn.then(|| {
        let title = "The file ends early".to_owned();
        verdict(
            "torn",
            title,
            "The program was killed, still runs, or its disk was full: what is here is right.",
        )
    });
    dropped.into_iter().chain(torn).collect()
}

/// The worst few of what `of` says of all spans, and how many there are.
fn worst(model: &Model, of: impl Fn(u32) -> Option<u64>) -> (usize, Vec<u32>) {
    let mut found: Vec<(u64, u32)> = Vec::new();
    let mut count = 0;
    for s in 0..model.spans.len() as u32 {
        let Some(value) = of(s) else { continue };
        count += 1;
        if found.len() == MOMENTS && found[MOMENTS - 1].0 >= value {
            continue;
        }
        let at = found.partition_point(|&(other, _)| other >= value);
        found.insert(at, (value, s));
        found.truncate(MOMENTS);
    }
    (count, found.into_iter().map(|(_, s)| s).collect())
}

fn long_waits(model: &Model) -> Option<Verdict> {
    let (count, spans) =
        worst(model, |s| Some(model.spans[s as usize].waited()).filter(|&waited| waited > LONG_WAIT_NS));
    let moment = |s: &u32| {
        let span = &model.spans[*s as usize];
        let never = if span.never_ran { ", until the trace ended" } else { "" };
        let text = format!(
            "{} from {} could run and waited {} in {}{never}",
            model.name(span.g),
            model.place(span.g),
            time(span.waited()),
            model.queue_name(span.home)
        );
        Moment { start: span.ready, end: span.start, g: span.g, text }
    };
    let longest = spans.first().map(|&s| time(model.spans[s as usize].waited()))?;
    Some(Verdict {
        key: "long-wait",
        severity: Severity::Bad,
        title: format!("{count} times a goroutine could run and waited more than 5 ms, once {longest}"),
        advice: "Look at what ran on that processor meanwhile. Shorter slices, more processors or the policies \
                 `priority` and `deadline` help those that must not wait.",
        count,
        moments: spans.iter().map(moment).collect(),
    })
}

/// The longest wait that overlaps with the span, and how many do by more than a millisecond.
fn waiters(model: &Model, s: u32) -> (usize, u64) {
    const NEAR: usize = 2_000;
    let span = &model.spans[s as usize];
    let runtime = model.procs[span.p as usize].runtime;
    let (mut count, mut longest) = (0, 0);
    for other in model.spans[s as usize + 1..].iter().take(NEAR) {
        if model.procs[other.p as usize].runtime != runtime || other.ready >= span.end {
            continue;
        }
        let waited = other.start.min(span.end).saturating_sub(other.ready.max(span.start));
        count += usize::from(waited > 1_000_000);
        longest = longest.max(waited);
    }
    (count, longest)
}

fn long_runs(model: &Model) -> Option<Verdict> {
    let (count, spans) = worst(model, |s| {
        let span = &model.spans[s as usize];
        let long = span.ran() > LONG_RUN_NS && span.why != Why::Blocked;
        (long && waiters(model, s).0 > 0).then_some(span.ran())
    });
    let moment = |s: &u32| {
        let span = &model.spans[*s as usize];
        let (waiting, longest) = waiters(model, *s);
        let text = format!(
            "{} from {} ran {} on {} while {waiting} others waited, up to {}",
            model.name(span.g),
            model.place(span.g),
            time(span.ran()),
            model.proc_name(span.p),
            time(longest)
        );
        Moment { start: span.start, end: span.end, g: span.g, text }
    };
    let longest = spans.first().map(|&s| time(model.spans[s as usize].ran()))?;
    Some(Verdict {
        key: "long-run",
        severity: Severity::Warning,
        title: format!("{count} times a goroutine ran more than 10 ms while others waited, once {longest}"),
        advice: "A slice is 10 ms unless said otherwise. More than that means that other programs had the CPU, or that \
                 it could not be interrupted there: a C library, a lock of the runtime.",
        count,
        moments: spans.iter().map(moment).collect(),
    })
}

fn blocked(model: &Model) -> Option<Verdict> {
    let mut found: Vec<_> =
        model.blocked.iter().filter(|b| b.at - model.spans[b.span as usize].start > 0).collect();
    let blocked_ns = |b: &super::super::model::Blocked| b.at - model.spans[b.span as usize].start;
    found.retain(|b| blocked_ns(b) > LONG_BLOCK_NS);
    found.sort_by_key(|b| std::cmp::Reverse(blocked_ns(b)));
    let worst = time(blocked_ns(found.first()?));
    let moment = |b: &&super::super::model::Blocked| {
        let span = &model.spans[b.span as usize];
        let text = format!(
            "{} from {} held {} for {} until the monitor took it away",
            model.name(span.g),
            model.place(span.g),
            model.proc_name(span.p),
            time(blocked_ns(b))
        );
        Moment { start: span.start, end: b.at, g: span.g, text }
    };
    Some(Verdict {
        key: "blocked",
        severity: Severity::Bad,
        title: format!("{} threads blocked with a processor for more than 20 ms, one {worst}", found.len()),
        advice: "Announce such calls: `mungo::blocking(|| ...)` gives the processor away at once.",
        count: found.len(),
        moments: found.iter().take(MOMENTS).map(moment).collect(),
    })
}

/// Gaps between two goroutines on a processor, with a goroutine waiting: (start, end, processor, the next span).
fn gaps(model: &Model) -> Vec<(u64, u64, u32, u32)> {
    let mut gaps = Vec::new();
    for (p, proc) in model.procs.iter().enumerate() {
        let mut idle = proc.idle.iter().peekable();
        let mut end = 0;
        for &s in &proc.spans {
            let span = &model.spans[s as usize];
            // What it slept through is no gap; a goroutine must have waited all the time.
            while let Some((_, until)) = idle.next_if(|(since, _)| *since < span.start) {
                end = end.max(*until);
            }
            let start = end.max(span.ready);
            if start.saturating_add(LONG_WAIT_NS) < span.start {
                gaps.push((start, span.start, p as u32, s));
            }
            end = end.max(span.end);
        }
    }
    gaps.sort_by_key(|(start, end, ..)| std::cmp::Reverse(end - start));
    gaps
}

fn stalls(model: &Model) -> Option<Verdict> {
    let gaps = gaps(model);
    let longest = gaps.first().map(|(start, end, ..)| time(end - start))?;
    let moment = |&(start, end, p, s): &(u64, u64, u32, u32)| {
        let g = model.spans[s as usize].g;
        let who = model.name(g);
        let text =
            format!("{} ran no goroutine for {}, while {who} waited", model.proc_name(p), time(end - start));
        Moment { start, end, g, text }
    };
    Some(Verdict {
        key: "stall",
        severity: Severity::Warning,
        title: format!("{} times a processor stood still for more than 5 ms, once {longest}", gaps.len()),
        advice: "Goroutines waited for it. Its thread had no CPU, as on a machine that other programs keep busy, or \
                 with more processors than the CPU quota allows.",
        count: gaps.len(),
        moments: gaps.iter().take(MOMENTS).map(moment).collect(),
    })
}

fn no_cpu(model: &Model) -> Option<Verdict> {
    let mut found: Vec<_> = model.no_cpu.iter().filter(|w| w.waited > LONG_NO_CPU_NS).collect();
    found.sort_by_key(|w| std::cmp::Reverse(w.waited));
    let worst = found.first()?;
    let moment = |w: &&NoCpu| {
        let thread = model.thread_name(w.runtime, w.m);
        let text = format!("{thread} could run and had no CPU for {} of {}", time(w.waited), time(w.within));
        Moment { start: w.at.saturating_sub(w.within), end: w.at, g: NONE, text }
    };
    Some(Verdict {
        key: "no-cpu",
        severity: Severity::Warning,
        title: format!(
            "{} times a thread waited more than 1 ms in the kernel's run queue, once {} of {}",
            found.len(),
            time(worst.waited),
            time(worst.within)
        ),
        advice: "Other threads of the machine had the CPUs, or the limit of a cgroup was reached. What runs on that \
                 thread stands still meanwhile: fewer processors, or a machine of its own, help.",
        count: found.len(),
        moments: found.iter().take(MOMENTS).map(moment).collect(),
    })
}

/// Time in ns that a thread ran goroutines between two looks at the kernel's counters, from which it is asked whether
/// it had a CPU meanwhile.
const LONG_WITHIN_NS: u64 = 10_000_000;

/// Threads that had a CPU for less than half of the time in which they ran goroutines. Of the time without one as much
/// as fits is taken to be outside of that.
fn on_cpu(model: &Model) -> Option<Verdict> {
    let looks = kernel::looks(model);
    let mut ran: HashMap<(u32, u32), Vec<&Span>> = looks.keys().map(|thread| (*thread, Vec::new())).collect();
    for span in &model.spans {
        if let Some(spans) = ran.get_mut(&(model.procs[span.p as usize].runtime, span.m)) {
            spans.push(span);
        }
    }
    let mut found: Vec<(u64, u64, &NoCpu)> = Vec::new();
    for look in looks.values().flatten() {
        let (from, to) = (look.at.saturating_sub(look.within), look.at);
        let spans = &ran[&(look.runtime, look.m)];
        let first = spans.partition_point(|span| span.end <= from);
        let within = spans[first..].iter().take_while(|span| span.start < to);
        let ran: u64 = within.map(|span| span.end.min(to).saturating_sub(span.start.max(from))).sum();
        let without = look.waited.saturating_sub((to - from).saturating_sub(ran));
        if ran >= LONG_WITHIN_NS && without.saturating_mul(2) > ran {
            found.push((without, ran, look));
        }
    }
    found.sort_by_key(|(without, _, look)| (std::cmp::Reverse(*without), look.at, look.m));
    let (without, ran, _) = found.first()?;
    let percent = 100 * ran.saturating_sub(*without) / ran;
    let moment = |&(without, ran, look): &(u64, u64, &NoCpu)| {
        let thread = model.thread_name(look.runtime, look.m);
        let text =
            format!("{thread} ran goroutines for {}, of that {} without a CPU", time(ran), time(without));
        Moment { start: look.at.saturating_sub(look.within), end: look.at, g: NONE, text }
    };
    Some(Verdict {
        key: "on-cpu",
        severity: Severity::Warning,
        title: format!(
            "{} times a thread had a CPU for less than half of the time in which it ran goroutines, once {percent} %",
            found.len()
        ),
        advice: "What a goroutine seems to run is then mostly time in which other threads of the machine ran: the \
                 figures of goroutines are too high. Fewer processors, or a machine of its own, help.",
        count: found.len(),
        moments: found.iter().take(MOMENTS).map(moment).collect(),
    })
}

fn deadlocks(model: &Model, graph: &Graph) -> Vec<Verdict> {
    let moment = |g: u32| {
        let edge = graph.edges.iter().find(|edge| edge.g == g)?;
        let span = &model.spans[edge.span as usize];
        let (what, who) = (&model.reasons[span.reason as usize], model.name(edge.holder));
        let text = format!("{} from {} waits for {what}", model.name(g), model.place(g));
        let text = match model.awaited[span.reason as usize].joined {
            0 => format!("{text} ({who} has it)"),
            _ => text,
        };
        Some(Moment { start: span.end, end: model.end, g, text })
    };
    let verdict = |cycle: &Vec<u32>| Verdict {
        key: "deadlock",
        severity: Severity::Bad,
        title: format!("{} goroutines wait for each other when the trace ends", cycle.len()),
        advice: "Each waits for the next one, and the last for the first: for good, unless a wait has a time limit. \
                 Take locks in one order. `mungo::debug::wait_graph` says the same of a running program.",
        count: cycle.len(),
        moments: cycle.iter().take(2 * MOMENTS).filter_map(|g| moment(*g)).collect(),
    };
    graph.cycles.iter().take(MOMENTS).map(verdict).collect()
}

fn crowds(model: &Model) -> Option<Verdict> {
    let mut found: Vec<_> = model.crowds.iter().collect();
    found.sort_by_key(|c| std::cmp::Reverse(c.peak));
    let peak = found.first()?.peak;
    let moment = |c: &&crate::trace::model::Crowd| {
        let text = format!(
            "up to {} in {}, more than {CROWD} for {}",
            c.peak,
            model.queue_name(c.home),
            time(c.end - c.start)
        );
        Moment { start: c.start, end: c.end, g: NONE, text }
    };
    Some(Verdict {
        key: "queue",
        severity: Severity::Warning,
        title: format!("{} times a queue was longer than {CROWD}, once {peak}", found.len()),
        advice: "More work is made than the processors can do. If it goes on, limit it: a semaphore, a bounded \
                 channel, fewer goroutines at a time.",
        count: found.len(),
        moments: found.iter().take(MOMENTS).map(moment).collect(),
    })
}

fn imbalance(model: &Model, latency: &Latency, procs: &[ProcRow]) -> Vec<Verdict> {
    // Where no goroutine waits there is nothing to share.
    let waited = |runtime| latency.behind_in.get(&runtime).copied().unwrap_or(0);
    let runtimes: std::collections::BTreeSet<u32> = model.procs.iter().map(|p| p.runtime).collect();
    let verdict = |runtime| {
        let of = procs.iter().filter(|row| model.procs[row.proc as usize].runtime == runtime);
        let most = of.clone().max_by_key(|row| row.busy)?;
        let least = of.min_by_key(|row| row.busy)?;
        let uneven = most.busy > least.busy.saturating_mul(IMBALANCE) && most.busy > model.end / 5;
        (uneven && waited(runtime) > model.end / 10).then(|| Verdict {
            key: "imbalance",
            severity: Severity::Warning,
            title: format!(
                "{} ran goroutines for {}, {} for {}",
                model.proc_name(most.proc),
                time(most.busy),
                model.proc_name(least.proc),
                time(least.busy)
            ),
            advice: "Work was there and was not shared. Goroutines that are bound to a thread, and policies that keep \
                     work where it is, do that.",
            count: 1,
            moments: vec![Moment { start: 0, end: model.end, g: NONE, text: "all of the trace".to_owned() }],
        })
    };
    runtimes.into_iter().filter_map(verdict).collect()
}

/// Goroutines that one place made more than [`LEAK_NS`] before the trace ends.
#[derive(Default)]
struct Made {
    count: usize,
    /// When the first and the last of those that were made in the trace were.
    times: Option<(u64, u64)>,
    /// Since when which goroutine is parked, and the span before that; none if it has been since before the trace.
    parked: Vec<(u64, u32, Option<u32>)>,
}

fn leaks(model: &Model) -> Vec<Verdict> {
    let Some(until) = model.end.checked_sub(LEAK_NS) else { return Vec::new() };
    let mut places: BTreeMap<u32, Made> = BTreeMap::new();
    let is_old = |created| created == UNKNOWN || created < until;
    for (g, goroutine) in model.goroutines.iter().enumerate().filter(|(_, g)| is_old(g.created)) {
        let made = places.entry(goroutine.place).or_default();
        if goroutine.created != UNKNOWN {
            let (first, last) = made.times.unwrap_or((goroutine.created, goroutine.created));
            made.times = Some((first.min(goroutine.created), last.max(goroutine.created)));
        }
        made.count += 1;
        let last = model.spans_of(g as u32).last().copied();
        let is_parked = match last.map(|last| &model.spans[last as usize]) {
            Some(span) => span.why == Why::Parked && span.end < until,
            None => goroutine.created == UNKNOWN, // it existed, and could not run
        };
        if is_parked && goroutine.ended == UNKNOWN {
            let since = last.map_or(0, |last| model.spans[last as usize].end);
            made.parked.push((since, g as u32, last));
        }
    }
    places.into_iter().filter_map(|(place, made)| leak(model, place, made)).collect()
}

fn leak(model: &Model, place: u32, mut made: Made) -> Option<Verdict> {
    let one_by_one = made.times.is_some_and(|(first, last)| last - first > model.end / 4);
    if made.parked.len() < LEAKED || made.parked.len() * 10 < made.count * 9 || !one_by_one {
        return None;
    }
    made.parked.sort_unstable();
    let moment = |&(since, g, s): &(u64, u32, Option<u32>)| {
        let text = match s.map(|s| &model.spans[s as usize]) {
            Some(span) => {
                let reason = &model.reasons[span.reason as usize];
                format!("{} parked ({reason}) and did not run again", model.name(g))
            }
            None => format!("{} existed before the trace, and does not run in it", model.name(g)),
        };
        Moment { start: since, end: since, g, text }
    };
    Some(Verdict {
        key: "leak",
        severity: Severity::Warning,
        title: format!(
            "{} goroutines made at {} are parked for more than {} and have not ended",
            made.parked.len(),
            model.places[place as usize],
            time(LEAK_NS)
        ),
        advice: "They may be waiting for good. `mungo::debug::leaked` says which of them nothing can wake any more.",
        count: made.parked.len(),
        moments: made.parked.iter().take(MOMENTS).map(moment).collect(),
    })
}

fn late_timers(model: &Model) -> Option<Verdict> {
    let (late, at) = model.counts.latest_timer;
    (late > LATE_TIMER_NS).then(|| Verdict {
        key: "late-timer",
        severity: Severity::Warning,
        title: format!("Timers ran up to {} late", time(late)),
        advice: "All processors computed, or the kernel gave the thread no CPU when it was due.",
        count: 1,
        moments: vec![Moment {
            start: at.saturating_sub(late),
            end: at,
            g: NONE,
            text: format!("{} late", time(late)),
        }],
    })
}

/// A policy that is there from the beginning is none.
fn policies(model: &Model) -> Vec<Verdict> {
    let changes = model.policies.iter().filter(|(at, ..)| *at > 0);
    let verdict = |(at, _, name): &(u64, u32, String)| Verdict {
        key: "policy",
        severity: Severity::Note,
        title: format!("The policy {name} decides from {} on", time(*at)),
        advice: "The program asked for it, or the runtime replaced a policy that failed.",
        count: 1,
        moments: vec![Moment { start: *at, end: *at, g: NONE, text: format!("from here on: {name}") }],
    };
    changes.map(verdict).collect()
}
