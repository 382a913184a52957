//! The goroutines that wait for another one when the trace ends: for the holder of a lock, or for a goroutine's end.

use crate::trace::model::{Model, NONE, UNKNOWN, Why};
use std::collections::{HashMap, HashSet};

/// A goroutine that waits when the trace ends, and the one that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitsFor {
    pub(crate) g: u32,
    /// The span before the wait.
    pub(crate) span: u32,
    pub(crate) holder: u32,
    /// Whether it is one of a cycle.
    pub(crate) in_cycle: bool,
}

/// The goroutines that wait for another one.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The first to wait first.
    pub(crate) edges: Vec<WaitsFor>,
    /// Goroutines of which each waits for the next one, and the last for the first.
    pub(crate) cycles: Vec<Vec<u32>>,
}

/// Makes the graph. Without all events it is not known who has a lock: then it is empty.
pub(super) fn graph(model: &Model) -> Graph {
    if model.counts.dropped != 0 {
        return Graph::default();
    }
    let mut edges: Vec<WaitsFor> = Vec::new();
    let owners = owners(model);
    let mut by_id = HashMap::new();
    if model.awaited.iter().any(|awaited| awaited.joined != 0) {
        by_id.extend(model.goroutines.iter().zip(0..).map(|(g, index): (_, u32)| ((g.runtime, g.id), index)));
    }
    for (g, goroutine) in model.goroutines.iter().enumerate() {
        let Some(&span) = model.spans_of(g as u32).last() else { continue };
        let last = &model.spans[span as usize];
        if last.why != Why::Parked || goroutine.ended != UNKNOWN {
            continue;
        }
        let holder = match model.awaited[last.reason as usize].joined {
            0 => owners.get(&last.reason).map(|(_, holder)| *holder),
            joined => by_id.get(&(goroutine.runtime, joined)).copied(),
        };
        if let Some(holder) = holder.filter(|holder| ![g as u32, NONE].contains(holder)) {
            edges.push(WaitsFor { g: g as u32, span, holder, in_cycle: false });
        }
    }
    edges.sort_by_key(|edge| (model.spans[edge.span as usize].end, edge.g));
    let cycles = cycles(&edges);
    let members: HashSet<u32> = cycles.iter().flatten().copied().collect();
    edges.iter_mut().for_each(|edge| edge.in_cycle = members.contains(&edge.g));
    Graph { edges, cycles }
}

/// The last known holder of each lock, and since when: the one that a goroutine named when it parked for it, or the one
/// that was woken from its queue after that; [`NONE`] if a goroutine parked for it later and named none: then a thread
/// has it, or a goroutine of another runtime, or several.
fn owners(model: &Model) -> HashMap<u16, (u64, u32)> {
    let mut owners: HashMap<u16, (u64, u32)> = HashMap::new();
    let note = |owners: &mut HashMap<u16, (u64, u32)>, reason, at, holder| {
        let owner = owners.entry(reason).or_insert((at, holder));
        if at >= owner.0 {
            *owner = (at, holder);
        }
    };
    for held in &model.held {
        let span = &model.spans[held.span as usize];
        note(&mut owners, span.reason, span.end, held.holder);
    }
    if model.held.is_empty() {
        return owners;
    }
    for g in 0..model.goroutines.len() as u32 {
        for pair in model.spans_of(g).windows(2) {
            let [before, after] = [pair[0], pair[1]].map(|span| &model.spans[span as usize]);
            // A reader that was woken has the lock with others.
            if before.why == Why::Parked && model.awaited[before.reason as usize].is_mutex {
                note(&mut owners, before.reason, after.ready, g);
            }
        }
    }
    let named: HashSet<u32> = model.held.iter().map(|held| held.span).collect();
    for (index, span) in (0..).zip(&model.spans) {
        if span.why == Why::Parked && owners.contains_key(&span.reason) && !named.contains(&index) {
            note(&mut owners, span.reason, span.end, NONE);
        }
    }
    owners
}

/// The cycles: each goroutine waits for one at the most.
fn cycles(edges: &[WaitsFor]) -> Vec<Vec<u32>> {
    let next: HashMap<u32, u32> = edges.iter().map(|edge| (edge.g, edge.holder)).collect();
    // In which walk each goroutine was seen.
    let (mut seen, mut cycles) = (HashMap::new(), Vec::new());
    for (walk, edge) in edges.iter().enumerate() {
        let (walk, mut at) = (walk as u32, edge.g);
        while at != NONE && !seen.contains_key(&at) {
            seen.insert(at, walk);
            at = next.get(&at).copied().unwrap_or(NONE);
        }
        if seen.get(&at) == Some(&walk) {
            let mut cycle = vec![at];
            let mut member = next[&at];
            while member != at {
                cycle.push(member);
                member = next[&member];
            }
            cycles.push(cycle);
        }
    }
    cycles
}
