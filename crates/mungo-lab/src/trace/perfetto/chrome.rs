//! The JSON that chrome://tracing reads, a line an event. Times are in µs there.

use super::{levels, regions, states};
use crate::trace::model::{CAUSES, Model, NONE};
use serde_json::{Value, json};
use std::io::{self, Write};

/// "Processes": one has the processors of a runtime, another one its goroutines.
fn procs_of(runtime: u32) -> u32 {
    2 * runtime
}

fn goroutines_of(runtime: u32) -> u32 {
    2 * runtime + 1
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The file in the making: a line an event.
struct Events<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl Events<'_> {
    fn put(&mut self, value: Value) -> io::Result<()> {
        let before: &[u8] = if std::mem::take(&mut self.is_first) { b"{\"traceEvents\":[\n" } else { b",\n" };
        self.out.write_all(before)?;
        serde_json::to_writer(&mut *self.out, &value).map_err(io::Error::from)
    }
}

/// The whole trace.
pub(super) fn write(model: &Model, tracks: &[u32], out: &mut dyn Write) -> io::Result<()> {
    let mut events = Events { out, is_first: true };
    put_procs(model, &mut events)?;
    put_spans(model, &mut events)?;
    put_levels(model, &mut events)?;
    put_goroutines(model, tracks, &mut events)?;
    put_regions(model, &mut events)?;
    let Events { out, is_first } = events;
    out.write_all(if is_first { b"{\"traceEvents\":[" } else { b"" })?;
    out.write_all(b"\n],\"displayTimeUnit\":\"ns\"}\n")
}

/// The names of the processors' tracks.
fn put_procs(model: &Model, events: &mut Events<'_>) -> io::Result<()> {
    for proc in &model.procs {
        let pid = procs_of(proc.runtime);
        let name = format!("mungo runtime {}", proc.runtime);
        events.put(json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": name } }))?;
        let name = format!("P{}", proc.p);
        events.put(
            json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": proc.p, "args": { "name": name } }),
        )?;
    }
    Ok(())
}

/// What ran on the processors, and who woke whom.
fn put_spans(model: &Model, events: &mut Events<'_>) -> io::Result<()> {
    for (s, span) in model.spans.iter().enumerate() {
        let proc = &model.procs[span.p as usize];
        let (pid, g) = (procs_of(proc.runtime), model.goroutines[span.g as usize].id);
        if span.never_ran {
            continue;
        }
        let mut args = json!({
            "goroutine": g, "waited_us": us(span.waited()), "because": CAUSES[span.cause as usize],
            "ended": span.why.text(),
        });
        if span.stack != 0 {
            args["ended in"] = model.stacks[span.stack as usize].as_str().into();
        }
        events.put(json!({
            "ph": "X", "name": model.place(span.g), "pid": pid, "tid": proc.p, "ts": us(span.start),
            "dur": us(span.ran()), "args": args,
        }))?;
        let waker = Some(span.waker).filter(|&w| w != NONE).and_then(|w| model.span_at(w, span.ready));
        if let Some(waker) = waker {
            let from = &model.procs[model.spans[waker as usize].p as usize];
            let (pid_from, at) = (procs_of(from.runtime), us(span.ready));
            events.put(
                json!({ "ph": "s", "id": s, "name": "wakes", "cat": "wake", "pid": pid_from, "tid": from.p, "ts": at }),
            )?;
            let at = us(span.start);
            events.put(json!({
                "ph": "f", "bp": "e", "id": s, "name": "wakes", "cat": "wake", "pid": pid, "tid": proc.p, "ts": at,
            }))?;
        }
    }
    Ok(())
}

/// The lengths of the queues.
fn put_levels(model: &Model, events: &mut Events<'_>) -> io::Result<()> {
    for level in levels(model) {
        let name = match level.home {
            NONE => "shared queue".to_owned(),
            p => format!("P{} queue", model.procs[p as usize].p),
        };
        let pid = procs_of(level.runtime);
        for (at, length) in level.samples {
            events.put(
                json!({ "ph": "C", "name": name, "pid": pid, "ts": us(at), "args": { "waiting": length } }),
            )?;
        }
    }
    Ok(())
}

/// The tracks of goroutines.
fn put_goroutines(model: &Model, tracks: &[u32], events: &mut Events<'_>) -> io::Result<()> {
    for &g in tracks {
        let goroutine = &model.goroutines[g as usize];
        let (pid, tid) = (goroutines_of(goroutine.runtime), goroutine.id);
        let name = format!("{} from {}", model.name(g), model.place(g));
        events.put(
            json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": name } }),
        )?;
        for state in states(model, g) {
            let (ts, dur) = (us(state.start), us(state.end - state.start));
            events
                .put(json!({ "ph": "X", "name": state.name, "pid": pid, "tid": tid, "ts": ts, "dur": dur }))?;
        }
    }
    Ok(())
}

/// Regions and tasks.
fn put_regions(model: &Model, events: &mut Events<'_>) -> io::Result<()> {
    for (i, region) in regions(model).into_iter().enumerate() {
        // One of a thread that is no goroutine belongs to no runtime, which is 0.
        let runtime = model.goroutines.get(region.g as usize).map_or(0, |g| g.runtime);
        let (pid, cat) = (procs_of(runtime), if region.is_task { "task" } else { "region" });
        for (ph, at) in [("b", region.start), ("e", region.end)] {
            events.put(
                json!({ "ph": ph, "cat": cat, "id": i, "name": region.name, "pid": pid, "tid": 0, "ts": us(at) }),
            )?;
        }
    }
    Ok(())
}
