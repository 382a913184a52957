//! Figures by place, by processor, by pair.

use super::path::{self, Did};
use crate::stats::Times;
use crate::trace::model::{Model, NONE, UNKNOWN};
use std::collections::{BTreeMap, HashMap};

/// Goroutines that were made at one place.
#[derive(Debug)]
pub(crate) struct PlaceRow {
    /// Of `Model::places`.
    pub(crate) place: u32,
    pub(crate) goroutines: u64,
    /// Of those, how many have not ended.
    pub(crate) alive: u64,
    /// Time on a processor, for each stretch.
    pub(crate) run: Times,
    pub(crate) run_ns: u64,
    /// Time runnable and not running, for each stretch.
    pub(crate) wait: Times,
    pub(crate) wait_ns: u64,
    pub(crate) preempted: u64,
}

/// By place, the one that ran most first.
pub(super) fn places(model: &Model) -> Vec<PlaceRow> {
    let row = |place| PlaceRow {
        place,
        goroutines: 0,
        alive: 0,
        run: Times::coarse(),
        run_ns: 0,
        wait: Times::coarse(),
        wait_ns: 0,
        preempted: 0,
    };
    let mut rows: Vec<PlaceRow> = (0..model.places.len() as u32).map(row).collect();
    for g in &model.goroutines {
        let row = &mut rows[g.place as usize];
        row.goroutines += 1;
        row.alive += u64::from(g.ended == UNKNOWN);
    }
    for span in &model.spans {
        let row = &mut rows[model.goroutines[span.g as usize].place as usize];
        row.wait.record_ns(span.waited());
        row.wait_ns = row.wait_ns.saturating_add(span.waited());
        if !span.never_ran {
            row.run.record_ns(span.ran());
            row.run_ns = row.run_ns.saturating_add(span.ran());
            row.preempted += u64::from(span.why.is_preempted());
        }
    }
    rows.retain(|row| row.goroutines > 0);
    rows.sort_by_key(|row| std::cmp::Reverse((row.run_ns, row.wait_ns)));
    rows
}

/// What a processor did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcRow {
    /// Of `Model::procs`.
    pub(crate) proc: u32,
    /// Time in ns that it ran goroutines, that it had nothing to do, and the rest: between two goroutines, or without a
    /// thread.
    pub(crate) busy: u64,
    pub(crate) idle: u64,
    pub(crate) between: u64,
    pub(crate) runs: u64,
    /// Goroutines that it took from others.
    pub(crate) stolen: u64,
}

/// By processor.
pub(super) fn procs(model: &Model) -> Vec<ProcRow> {
    let row = |(i, proc): (usize, &crate::trace::model::Proc)| {
        let busy = model.busy(i);
        let idle: u64 = proc.idle.iter().map(|(start, end)| end - start).sum();
        let runs = proc.spans.iter().filter(|&&s| !model.spans[s as usize].never_ran).count() as u64;
        let between = model.end.saturating_sub(busy.saturating_add(idle));
        ProcRow { proc: i as u32, busy, idle, between, runs, stolen: proc.stolen }
    };
    let mut rows: Vec<ProcRow> = model.procs.iter().enumerate().map(row).collect();
    rows.sort_by_key(|row| (model.procs[row.proc as usize].runtime, model.procs[row.proc as usize].p));
    rows
}

/// Goroutines of one place that made room for those of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preemption {
    /// Of `Model::places`; [`NONE`]: no goroutine ran there next.
    pub(crate) by: u32,
    pub(crate) victim: u32,
    pub(crate) count: u64,
    /// How long victims had run, on average, in ns.
    pub(crate) ran_ns: u64,
}

/// By pair, the most frequent first. If no goroutine is named, it is the next one on that processor.
pub(super) fn preemptions(model: &Model) -> Vec<Preemption> {
    let mut pairs: HashMap<(u32, u32), (u64, u64)> = HashMap::new();
    let place = |g: u32| model.goroutines.get(g as usize).map_or(NONE, |g| g.place);
    for proc in &model.procs {
        for (i, &s) in proc.spans.iter().enumerate() {
            let span = &model.spans[s as usize];
            if !span.why.is_preempted() {
                continue;
            }
            let next = proc.spans.get(i + 1).map_or(NONE, |&next| model.spans[next as usize].g);
            let by = if span.by == NONE { next } else { span.by };
            let pair = pairs.entry((place(by), place(span.g))).or_default();
            *pair = (pair.0 + 1, pair.1 + span.ran());
        }
    }
    let row = |((by, victim), (count, ran))| Preemption { by, victim, count, ran_ns: ran / count };
    let mut rows: Vec<Preemption> = pairs.into_iter().map(row).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.count), row.by, row.victim));
    rows
}

/// Goroutines of one place that woke, or made, those of another.
#[derive(Debug)]
pub(crate) struct Wake {
    /// Of `Model::places`.
    pub(crate) waker: u32,
    pub(crate) woken: u32,
    /// Of `CAUSES`.
    pub(crate) cause: u8,
    /// How long the woken ones waited until they ran.
    pub(crate) wait: Times,
}

/// By pair, the most frequent first.
pub(super) fn wakes(model: &Model) -> Vec<Wake> {
    let mut pairs: HashMap<(u32, u32, u8), Times> = HashMap::new();
    for span in model.spans.iter().filter(|s| s.waker != NONE) {
        let [waker, woken] = [span.waker, span.g].map(|g| model.goroutines[g as usize].place);
        let times = pairs.entry((waker, woken, span.cause)).or_insert_with(Times::coarse);
        times.record_ns(span.waited());
    }
    let row = |((waker, woken, cause), wait)| Wake { waker, woken, cause, wait };
    let mut rows: Vec<Wake> = pairs.into_iter().map(row).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.wait.len()), row.waker, row.woken));
    rows
}

/// Regions, or tasks, of one name.
#[derive(Debug)]
pub(crate) struct RegionRow {
    pub(crate) name: String,
    pub(crate) is_task: bool,
    pub(crate) times: Times,
    /// Of `Model::regions`.
    pub(crate) slowest: usize,
    /// On the critical path of the slowest one, in ns.
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) parked: u64,
}

/// By name. Regions that are not whole are left out.
pub(super) fn regions(model: &Model) -> Vec<RegionRow> {
    let mut names: BTreeMap<(&str, bool), (Times, usize)> = BTreeMap::new();
    let length = |i: usize| model.regions[i].end - model.regions[i].start;
    for (i, region) in model.regions.iter().enumerate().filter(|(_, r)| r.is_whole) {
        let (times, slowest) =
            names.entry((&region.name, region.is_task)).or_insert_with(|| (Times::coarse(), i));
        times.record_ns(length(i));
        if length(i) > length(*slowest) {
            *slowest = i;
        }
    }
    let row = |((name, is_task), (times, slowest)): ((&str, bool), (Times, usize))| {
        let region = &model.regions[slowest];
        let steps = path::critical(model, region.g, region.start, region.end);
        let sum = |of: fn(&Did) -> bool| steps.iter().filter(|s| of(&s.did)).map(|s| s.end - s.start).sum();
        RegionRow {
            name: name.to_owned(),
            is_task,
            times,
            slowest,
            running: sum(|did| matches!(did, Did::Ran)),
            waiting: sum(|did| matches!(did, Did::Waited)),
            parked: sum(|did| matches!(did, Did::Parked | Did::Blocked)),
        }
    };
    names.into_iter().map(row).collect()
}
