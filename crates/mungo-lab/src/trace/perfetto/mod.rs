//! `mungo trace perfetto`: the trace in formats that other viewers open.

mod chrome;
mod packets;

use super::analysis::time;
use super::model::{Model, NONE, Region, Span, Why};
use super::write_file;
use crate::error::Result;
use std::path::Path;

/// Goroutines that get a track of their own: those that ran most. A viewer lists all tracks.
const TRACKS: usize = 2_000;

/// Regions and tasks that are drawn: the longest.
const REGIONS: usize = 5_000;

/// Samples of a queue's length that are kept as they are; of more the largest of each stretch is kept.
const SAMPLES: usize = 200_000;

/// `mungo trace perfetto`.
pub(super) fn run(model: &Model, output: &Path, is_chrome: bool) -> Result<()> {
    let tracks = tracks(model);
    let bytes = match is_chrome {
        true => write_file(output, "trace", |out| chrome::write(model, &tracks, out))?,
        false => write_file(output, "trace", |out| packets::write(model, &tracks, out))?,
    };
    if tracks.len() < model.goroutines.len() {
        eprintln!(
            "mungo: {} of {} goroutines have a track of their own: those that ran most",
            tracks.len(),
            model.goroutines.len()
        );
    }
    let how = match is_chrome {
        true => "open it in chrome://tracing or ui.perfetto.dev",
        false => "open it in ui.perfetto.dev",
    };
    eprintln!(
        "mungo: wrote {} ({} of trace, {} MB); {how}",
        output.display(),
        time(model.end),
        bytes / 1_000_000
    );
    Ok(())
}

/// The goroutines with a track, in the order of their numbers.
fn tracks(model: &Model) -> Vec<u32> {
    let ran = |g: u32| model.spans_of(g).iter().map(|&s| model.spans[s as usize].ran()).sum::<u64>();
    let mut all: Vec<(u64, u32)> = (0..model.goroutines.len() as u32).map(|g| (ran(g), g)).collect();
    if all.len() > TRACKS {
        all.sort_by_key(|&(ran, _)| std::cmp::Reverse(ran));
        all.truncate(TRACKS);
    }
    let mut all: Vec<u32> = all.into_iter().map(|(_, g)| g).collect();
    all.sort_unstable();
    all
}

/// The regions that are drawn, in the order of their begin.
fn regions(model: &Model) -> Vec<&Region> {
    let mut all: Vec<&Region> = model.regions.iter().collect();
    if all.len() > REGIONS {
        all.sort_by_key(|r| std::cmp::Reverse(r.end - r.start));
        all.truncate(REGIONS);
    }
    all.sort_by_key(|r| r.start);
    all
}

/// A state of a goroutine.
struct State {
    start: u64,
    end: u64,
    name: String,
}

/// What a goroutine did, in the order of time.
fn states(model: &Model, g: u32) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    let mut before: Option<&Span> = None;
    for &s in model.spans_of(g) {
        let span = &model.spans[s as usize];
        if let Some(before) = before.filter(|before| before.end < span.ready) {
            states.push(State { start: before.end, end: span.ready, name: off(model, before) });
        }
        if span.ready < span.start {
            states.push(State { start: span.ready, end: span.start, name: "runnable".to_owned() });
        }
        if !span.never_ran {
            let name = format!("running on {}", model.proc_name(span.p));
            states.push(State { start: span.start, end: span.end, name });
        }
        before = Some(span);
    }
    let goes_on = |span: &&Span| {
        matches!(span.why, Why::Parked | Why::Blocked) && span.end < model.end && !span.never_ran
    };
    if let Some(before) = before.filter(goes_on) {
        states.push(State { start: before.end, end: model.end, name: off(model, before) });
    }
    states
}

/// What a goroutine did after a span.
fn off(model: &Model, span: &Span) -> String {
    match span.why {
        Why::Parked => format!("parked: {}", model.reasons[span.reason as usize]),
        why => why.text().to_owned(),
    }
}

/// The length of a queue over time: of a processor's, or of the one that all share.
struct Levels {
    /// Index of the processor, or [`NONE`].
    home: u32,
    runtime: u32,
    /// When it changed, and what it was then.
    samples: Vec<(u64, u32)>,
}

fn levels(model: &Model) -> Vec<Levels> {
    let mut homes: Vec<(u32, u32)> =
        (0..model.procs.len()).map(|p| (p as u32, model.procs[p].runtime)).collect();
    let mut runtimes: Vec<u32> = model.procs.iter().map(|p| p.runtime).collect();
    runtimes.sort_unstable();
    runtimes.dedup();
    homes.extend(runtimes.into_iter().map(|runtime| (NONE, runtime)));
    let level = |(home, runtime): (u32, u32)| {
        let is_here = |s: &&Span| {
            s.home == home && model.goroutines[s.g as usize].runtime == runtime && s.ready < s.start
        };
        let spans = model.spans.iter().filter(is_here);
        let mut changes: Vec<(u64, i32)> = spans.flat_map(|s| [(s.ready, 1), (s.start, -1)]).collect();
        changes.sort_unstable_by_key(|&(at, _)| at);
        Levels { home, runtime, samples: thin(sum(&changes), model.end) }
    };
    homes.into_iter().map(level).filter(|l| !l.samples.is_empty()).collect()
}

fn sum(changes: &[(u64, i32)]) -> Vec<(u64, u32)> {
    let mut now = 0i32;
    let mut samples: Vec<(u64, u32)> = Vec::with_capacity(changes.len());
    for &(at, change) in changes {
        now += change;
        match samples.last_mut().filter(|(last, _)| *last == at) {
            Some((_, level)) => *level = now.max(0) as u32,
            None => samples.push((at, now.max(0) as u32)),
        }
    }
    samples
}

/// Of too many samples, the largest of each stretch.
fn thin(samples: Vec<(u64, u32)>, end: u64) -> Vec<(u64, u32)> {
    if samples.len() <= SAMPLES {
        return samples;
    }
    let stretch = (end / (SAMPLES as u64 / 2)).max(1);
    let mut thinned: Vec<(u64, u32)> = Vec::new();
    for (at, level) in samples {
        let at = at / stretch * stretch;
        match thinned.last_mut().filter(|(last, _)| *last == at) {
            Some((_, most)) => *most = level.max(*most),
            None => thinned.push((at, level)),
        }
    }
    thinned
}
