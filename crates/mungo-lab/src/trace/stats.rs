//! `mungo trace stats`: the figures of a trace, as tables or as JSON.

use super::analysis::{
    Analysis, Moment, PARTS, Part, Severity, Split, Verdict, analyse, chain, moment as at, time,
};
use super::model::{CAUSES, Model, NONE, NoCpu};
use crate::error::Result;
use crate::out::{Ink, Out};
use crate::report::table::{self, number, quantity};
use crate::stats::Times;
use crate::tour::grouped;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Rows of a table; the rest is in the JSON.
const ROWS: usize = 12;

/// Rows of a table in the JSON.
const JSON_ROWS: usize = 1_000;

/// Functions of a stack that are shown.
const FUNCTIONS: usize = 6;

/// Hops of the chain that is shown.
const HOPS: usize = 12;

/// `mungo trace stats`.
pub(super) fn run(model: &Model, path: &Path, json: bool, dot: Option<&Path>, out: &Out) -> Result<()> {
    let analysis = analyse(model);
    if let Some(dot) = dot {
        super::write_file(dot, "graph", |to| super::dot::write(model, &analysis.graph, to))?;
    }
    match json {
        true => Ok(out.line(serde_json::to_string_pretty(&to_json(model, &analysis)).expect("plain values"))?),
        false => print(model, &analysis, path, out),
    }
}

/// One line about the trace.
pub(super) fn summary(model: &Model) -> String {
    let policies: Vec<&str> = model.policies.iter().filter(|p| p.0 == 0).map(|p| p.2.as_str()).collect();
    let under = if policies.is_empty() { String::new() } else { format!(" under {}", policies.join(", ")) };
    format!(
        "{}, {} processors, {} goroutines, {} runs, {} events{under}",
        time(model.end),
        model.procs.len(),
        grouped(model.goroutines.len() as u64),
        grouped(model.spans.iter().filter(|s| !s.never_ran).count() as u64),
        grouped(model.counts.events)
    )
}

fn quantiles(times: &Times) -> [String; 4] {
    [0.5, 0.9, 0.99, 1.0].map(|q| quantity(times.quantile_us(q), "us"))
}

fn percent(part: u64, of: u64) -> String {
    format!("{} %", number((1000.0 * part as f64 / of.max(1) as f64).round() / 10.0))
}

/// A table with a title, unless it is empty.
fn section(out: &Out, title: &str, texts: usize, head: &[&str], rows: Vec<Vec<String>>) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let (all, shown) = (rows.len(), rows.len().min(ROWS));
    out.line(format!("\n{}", out.paint(Ink::Heading, title)))?;
    let head = head.iter().map(|h| (*h).to_owned()).collect();
    out.line(table::render(out, texts, head, rows.into_iter().take(ROWS).collect()))?;
    if shown < all {
        out.line(out.paint(Ink::Faint, format!("{} more rows: --json has them", all - shown)))?;
    }
    Ok(())
}

fn print(model: &Model, a: &Analysis, path: &Path, out: &Out) -> Result<()> {
    out.line(out.paint(Ink::Heading, format!("{}: {}", path.display(), summary(model))))?;
    verdicts(a, out)?;
    latency(model, a, out)?;
    places(model, a, out)?;
    processors(model, a, out)?;
    wakes(model, a, out)?;
    waits(model, a, out)?;
    stacks(model, a, out)?;
    graph(model, a, out)?;
    regions(model, a, out)
}

fn verdicts(a: &Analysis, out: &Out) -> Result<()> {
    if a.verdicts.is_empty() {
        out.line("nothing stands out: no long waits, no long runs, no long queues")?;
    }
    for verdict in &a.verdicts {
        let mark = match verdict.severity {
            Severity::Bad => out.glyph("✗", "x"),
            Severity::Warning => "!",
            Severity::Note => "-",
        };
        out.line(format!("{mark} {}", out.paint(Ink::Heading, &verdict.title)))?;
        for moment in verdict.moments.iter().take(2) {
            out.line(out.fold("    ", &format!("at {}: {}", at(moment.start), moment.text)))?;
        }
        out.line(out.paint(Ink::Faint, out.fold("    ", verdict.advice)))?;
    }
    Ok(())
}

fn latency(model: &Model, a: &Analysis, out: &Out) -> Result<()> {
    let present = a.latency.all.split.present();
    let causes = a.latency.causes.iter().chain([&a.latency.all]).map(|row| {
        let mut cells = vec![row.name.to_owned(), grouped(row.times.len())];
        cells.extend(quantiles(&row.times));
        let parts = row.split.parts();
        cells.extend(present.iter().map(|&part| percent(parts[part], row.split.total())));
        cells
    });
    let head: Vec<&str> = ["runnable because", "times", "p50", "p90", "p99", "max"]
        .into_iter()
        .chain(present.iter().map(|&part| PARTS[part].head))
        .collect();
    section(out, "Scheduling latency: from runnable to running", 1, &head, causes.collect())?;
    let behind = a.latency.behind.iter().map(|b| {
        vec![
            model.places[b.place as usize].clone(),
            time(b.ns),
            percent(b.ns, a.latency.all.split.behind_any()),
        ]
    });
    section(
        out,
        "Behind whom: who ran meanwhile",
        1,
        &["made at", "waited behind it", "share"],
        behind.collect(),
    )
}

fn places(model: &Model, a: &Analysis, out: &Out) -> Result<()> {
    let rows = a.places.iter().map(|row| {
        let [p50, _, p99, max] = quantiles(&row.run);
        let [wait_p50, _, wait_p99, wait_max] = quantiles(&row.wait);
        let name = model.places[row.place as usize].clone();
        let counts = [row.goroutines, row.alive].map(grouped);
        let mut cells = vec![name];
        cells.extend(counts);
        cells.extend([time(row.run_ns), p50, p99, max, wait_p50, wait_p99, wait_max]);
        cells.push(grouped(row.preempted));
        cells
    });
    let head = [
        "made at",
        "made",
        "alive",
        "ran",
        "run p50",
        "run p99",
        "run max",
        "wait p50",
        "wait p99",
        "wait max",
        "preempted",
    ];
    section(out, "Goroutines by the place that makes them", 1, &head, rows.collect())?;
    let rows = a.preemptions.iter().map(|row| {
        let by = model.places.get(row.by as usize).map_or("no goroutine", String::as_str);
        let victim = model.places[row.victim as usize].clone();
        vec![by.to_owned(), victim, grouped(row.count), time(row.ran_ns)]
    });
    section(
        out,
        "Who made room for whom",
        2,
        &["for one of", "stopped one of", "times", "after"],
        rows.collect(),
    )
}

fn processors(model: &Model, a: &Analysis, out: &Out) -> Result<()> {
    let rows = a.procs.iter().map(|row| {
        let bar = out.bar(row.busy as f64, model.end as f64, 20);
        let shares = [row.busy, row.idle, row.between].map(|part| percent(part, model.end));
        let mut cells = vec![model.proc_name(row.proc), bar];
        cells.extend(shares);
        cells.extend([row.runs, row.stolen].map(grouped));
        cells
    });
    let head = ["", "", "busy", "asleep", "between", "runs", "stolen"];
    section(out, "Processors", 2, &head, rows.collect())?;
    let rows = no_cpu(model).into_iter().map(|(runtime, m, waited, worst)| {
        vec![model.thread_name(runtime, m), time(waited), time(worst.waited), time(worst.within), at(worst.at)]
    });
    let head = ["", "in all", "most", "of", "before"];
    section(out, "Threads that could run and had no CPU", 1, &head, rows.collect())
}

/// By thread, as its runtime and number: the time without a CPU in ns, and the worst stretch; the longest first.
fn no_cpu(model: &Model) -> Vec<(u32, u32, u64, NoCpu)> {
    let mut threads: BTreeMap<(u32, u32), (u64, NoCpu)> = BTreeMap::new();
    for look in &model.no_cpu {
        let (waited, worst) = threads.entry((look.runtime, look.m)).or_insert((0, *look));
        *waited = waited.saturating_add(look.waited);
        if look.waited > worst.waited {
            *worst = *look;
        }
    }
    let mut rows: Vec<_> =
        threads.into_iter().map(|((runtime, m), (w, worst))| (runtime, m, w, worst)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.2));
    rows
}

fn wakes(model: &Model, a: &Analysis, out: &Out) -> Result<()> {
    let rows = a.wakes.iter().map(|row| {
        let [p50, _, p99, max] = quantiles(&row.wait);
        let name = |place: u32| model.places[place as usize].clone();
        let cause = CAUSES[row.cause as usize].replace("woken by a goroutine", "woken");
        vec![name(row.waker), name(row.woken), cause, grouped(row.wait.len()), p50, p99, max]
    });
    let head = ["one of", "made runnable one of", "as", "times", "wait p50", "wait p99", "wait max"];
    section(out, "Wake-ups", 3, &head, rows.collect())?;
    let Some(worst) = worst_chain(model) else { return Ok(()) };
    let rows = worst.iter().rev().map(|&s| {
        let span = &model.spans[s as usize];
        vec![
            at(span.ready),
            format!("{} ({})", model.name(span.g), model.place(span.g)),
            CAUSES[span.cause as usize].to_owned(),
            time(span.waited()),
            time(span.ran()),
        ]
    });
    let head = ["at", "goroutine", "runnable because", "waited", "ran"];
    section(out, "The chain of wake-ups to the longest wait of a woken goroutine", 1, &head, rows.collect())
}

fn waits(model: &Model, a: &Analysis, out: &Out) -> Result<()> {
    let rows = a.waits.iter().map(|row| {
        let [p50, _, p99, max] = quantiles(&row.times);
        let what = model.reasons[row.reason as usize].clone();
        let longest = at(model.spans[row.longest as usize].end);
        vec![what, grouped(row.times.len()), time(row.total_ns), p50, p99, max, longest, grouped(row.open)]
    });
    let head = ["", "times", "in all", "p50", "p99", "max", "longest at", "at the end"];
    section(out, "What goroutines waited for", 1, &head, rows.collect())
}

fn stacks(model: &Model, a: &Analysis, out: &Out) -> Result<()> {
    let rows = a.stacks.iter().map(|row| {
        let [p50, _, p99, max] = quantiles(&row.times);
        let (kind, functions) = (model.kinds[row.kind as usize].clone(), model.functions(row.stack, FUNCTIONS));
        vec![kind, functions, grouped(row.times.len()), time(row.total_ns), p50, p99, max, grouped(row.open)]
    });
    let head = ["for", "in, called by", "times", "in all", "p50", "p99", "max", "at the end"];
    section(out, "Where goroutines waited", 2, &head, rows.collect())
}

fn graph(model: &Model, a: &Analysis, out: &Out) -> Result<()> {
    let rows = a.graph.edges.iter().map(|edge| {
        let span = &model.spans[edge.span as usize];
        let name = |g: u32| format!("{} ({})", model.name(g), model.place(g));
        let cycle = if edge.in_cycle { "a cycle" } else { "" };
        vec![
            name(edge.g),
            model.reasons[span.reason as usize].clone(),
            name(edge.holder),
            cycle.to_owned(),
            at(span.end),
        ]
    });
    let head = ["goroutine", "waits for", "of", "", "since"];
    section(out, "Who waits for whom when the trace ends", 4, &head, rows.collect())
}

/// The chain to the longest wait that has one.
fn worst_chain(model: &Model) -> Option<Vec<u32>> {
    let woken = (0..model.spans.len()).filter(|&s| model.spans[s].waker != NONE);
    let worst = woken.max_by_key(|&s| model.spans[s].waited())?;
    Some(chain(model, worst as u32, HOPS))
}

fn regions(model: &Model, a: &Analysis, out: &Out) -> Result<()> {
    let rows = a.regions.iter().map(|row| {
        let [p50, _, p99, max] = quantiles(&row.times);
        let kind = if row.is_task { "task" } else { "region" };
        let total = row.running.saturating_add(row.waiting).saturating_add(row.parked);
        let mut cells = vec![row.name.clone(), kind.to_owned(), grouped(row.times.len()), p50, p99, max];
        cells.push(at(model.regions[row.slowest].start));
        cells.extend([row.running, row.waiting, row.parked].map(|part| percent(part, total)));
        cells
    });
    let head = ["", "", "times", "p50", "p99", "max", "slowest at", "it ran", "could run", "parked"];
    section(out, "Regions and tasks, with the critical path of the slowest", 2, &head, rows.collect())
}

fn times_json(times: &Times) -> Value {
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|q| times.quantile_us(q));
    json!({ "count": times.len(), "p50_us": p50, "p90_us": p90, "p99_us": p99, "max_us": max })
}

fn moment_json(model: &Model, moment: &Moment) -> Value {
    let g = model.goroutines.get(moment.g as usize).map(|g| g.id);
    json!({ "start_ns": moment.start, "end_ns": moment.end, "goroutine": g, "text": moment.text })
}

pub(super) fn verdict_json(model: &Model, verdict: &Verdict) -> Value {
    json!({
        "key": verdict.key,
        "severity": verdict.severity.text(),
        "title": verdict.title,
        "advice": verdict.advice,
        "count": verdict.count,
        "moments": verdict.moments.iter().map(|m| moment_json(model, m)).collect::<Vec<_>>(),
    })
}

fn split_json(split: &Split) -> Value {
    let part = |(part, ns): (&Part, u64)| (format!("{}_ns", part.key), ns.into());
    Value::Object(PARTS.iter().zip(split.parts()).map(part).collect())
}

/// Scheduling latency by cause.
fn causes_json(a: &Analysis) -> Vec<Value> {
    let rows = a.latency.causes.iter().chain([&a.latency.all]).map(
        |row| json!({ "cause": row.name, "wait": times_json(&row.times), "split": split_json(&row.split) }),
    );
    rows.collect()
}

/// Behind whom.
fn behind_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a
        .latency
        .behind
        .iter()
        .map(|b| json!({ "place": place_json(model, b.place), "ns": b.ns, "times": b.times }));
    rows.take(JSON_ROWS).collect()
}

/// By place of spawn.
fn places_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a.places.iter().map(|row| {
        json!({
            "place": place_json(model, row.place), "goroutines": row.goroutines, "alive": row.alive,
            "run": times_json(&row.run), "run_ns": row.run_ns,
            "wait": times_json(&row.wait), "wait_ns": row.wait_ns, "preempted": row.preempted,
        })
    });
    rows.take(JSON_ROWS).collect()
}

/// Who made room for whom.
fn preemptions_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a.preemptions.iter().map(|row| {
        let [by, victim] = [row.by, row.victim].map(|place| place_json(model, place));
        json!({ "by": by, "victim": victim, "count": row.count, "ran_ns": row.ran_ns })
    });
    rows.take(JSON_ROWS).collect()
}

/// By processor.
fn procs_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a.procs.iter().map(|row| {
        json!({
            "runtime": model.procs[row.proc as usize].runtime, "p": model.procs[row.proc as usize].p,
            "busy_ns": row.busy, "asleep_ns": row.idle, "between_ns": row.between, "runs": row.runs,
            "stolen": row.stolen,
        })
    });
    rows.collect()
}

/// Who woke whom.
fn wakes_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a.wakes.iter().map(|row| {
        let [waker, woken] = [row.waker, row.woken].map(|place| place_json(model, place));
        let (cause, wait) = (CAUSES[row.cause as usize], times_json(&row.wait));
        json!({ "waker": waker, "woken": woken, "cause": cause, "wait": wait })
    });
    rows.take(JSON_ROWS).collect()
}

/// Regions and tasks.
fn regions_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a.regions.iter().map(|row| {
        json!({
            "name": row.name, "task": row.is_task, "time": times_json(&row.times),
            "slowest": {
                "start_ns": model.regions[row.slowest].start, "end_ns": model.regions[row.slowest].end,
                "running_ns": row.running, "runnable_ns": row.waiting, "parked_ns": row.parked,
            },
        })
    });
    rows.take(JSON_ROWS).collect()
}

/// What was waited for.
fn waits_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a.waits.iter().map(|row| {
        let what = &model.reasons[row.reason as usize];
        let longest = model.spans[row.longest as usize].end;
        json!({
            "for": what, "time": times_json(&row.times), "total_ns": row.total_ns,
            "longest_at_ns": longest, "at_the_end": row.open,
        })
    });
    rows.take(JSON_ROWS).collect()
}

/// Where it was waited.
fn stacks_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a.stacks.iter().map(|row| {
        json!({
            "for": model.kinds[row.kind as usize], "time": times_json(&row.times), "total_ns": row.total_ns,
            "at_the_end": row.open, "stack": model.stacks[row.stack as usize].lines().collect::<Vec<_>>(),
        })
    });
    rows.take(JSON_ROWS).collect()
}

/// Who waits for whom at the end.
fn graph_json(model: &Model, a: &Analysis) -> Vec<Value> {
    let rows = a.graph.edges.iter().map(|edge| {
        let span = &model.spans[edge.span as usize];
        let [g, holder] = [edge.g, edge.holder].map(|g| model.goroutines[g as usize].id);
        json!({
            "goroutine": g, "for": model.reasons[span.reason as usize], "of": holder, "since_ns": span.end,
            "in_cycle": edge.in_cycle,
        })
    });
    rows.take(JSON_ROWS).collect()
}

/// Threads without a CPU.
fn no_cpu_json(model: &Model) -> Vec<Value> {
    let rows = no_cpu(model).into_iter().map(|(runtime, m, waited, worst)| {
        json!({
            "runtime": runtime, "m": m, "waited_ns": waited,
            "worst": { "before_ns": worst.at, "waited_ns": worst.waited, "within_ns": worst.within },
        })
    });
    rows.take(JSON_ROWS).collect()
}

/// Policies.
fn policies_json(model: &Model) -> Vec<Value> {
    let rows = model.policies.iter().map(|p| json!({ "at_ns": p.0, "runtime": p.1, "name": p.2 }));
    rows.collect()
}

fn place_json(model: &Model, place: u32) -> Option<&String> {
    model.places.get(place as usize)
}

fn to_json(model: &Model, a: &Analysis) -> Value {
    json!({
        "mungo": env!("CARGO_PKG_VERSION"),
        "length_ns": model.end,
        "events": model.counts.events,
        "dropped": model.counts.dropped,
        "torn": model.is_torn,
        "goroutines": model.goroutines.len(),
        "runs": model.spans.iter().filter(|s| !s.never_ran).count(),
        "polls": model.counts.polls,
        "timers": model.counts.timers,
        "steals": model.counts.steals,
        "threads": model.counts.threads,
        "policies": policies_json(model),
        "verdicts": a.verdicts.iter().map(|v| verdict_json(model, v)).collect::<Vec<_>>(),
        "latency": causes_json(a),
        "behind": behind_json(model, a),
        "places": places_json(model, a),
        "preemptions": preemptions_json(model, a),
        "processors": procs_json(model, a),
        "wakeups": wakes_json(model, a),
        "waits": waits_json(model, a),
        "stacks": stacks_json(model, a),
        "waiting": graph_json(model, a),
        "no_cpu": no_cpu_json(model),
        "regions": regions_json(model, a),
    })
}
