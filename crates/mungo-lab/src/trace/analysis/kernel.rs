//! Where the kernel's run queue explains that a processor ran no goroutine: its thread could run and had no CPU.
//!
//! The kernel is asked ten times a second how long each thread had none (`NoCpu`), not when. So of the gaps between two
//! goroutines that a thread ran, the longest ones get that time.

use crate::trace::model::{Model, NONE, NoCpu};
use std::collections::HashMap;

/// Gaps that are shorter are the scheduler's: as little time without a CPU is not noted either.
const SHORTEST_NS: u64 = 100_000;

/// The looks at each thread, by its runtime and number, in the order of time.
pub(super) fn looks(model: &Model) -> HashMap<(u32, u32), Vec<&NoCpu>> {
    let mut looks: HashMap<(u32, u32), Vec<&NoCpu>> = HashMap::new();
    for look in &model.no_cpu {
        looks.entry((look.runtime, look.m)).or_default().push(look);
    }
    looks.values_mut().for_each(|looks| looks.sort_by_key(|look| look.at));
    looks
}

/// A gap before a span that a thread ran, and the look at the kernel's counters after it.
struct Gap<'a> {
    start: u64,
    end: u64,
    proc: usize,
    look: &'a NoCpu,
}

/// For each processor the stretches in which its thread had no CPU, in the order of time.
pub(super) fn without_cpu(model: &Model) -> Vec<Vec<(u64, u64)>> {
    let mut all = vec![Vec::new(); model.procs.len()];
    let looks = looks(model);
    if looks.is_empty() {
        return all;
    }
    let mut gaps: Vec<Gap<'_>> = (0..model.procs.len()).flat_map(|proc| gaps(model, proc, &looks)).collect();
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.end - gap.start));
    let mut left: HashMap<*const NoCpu, u64> = HashMap::new();
    for gap in gaps {
        let left = left.entry(std::ptr::from_ref(gap.look)).or_insert(gap.look.waited);
        let taken = (gap.end - gap.start).min(*left);
        *left -= taken;
        if taken > 0 {
            all[gap.proc].push((gap.end - taken, gap.end));
        }
    }
    all.iter_mut().for_each(|stretches| stretches.sort_unstable());
    all
}

fn gaps<'a>(model: &Model, proc: usize, looks: &HashMap<(u32, u32), Vec<&'a NoCpu>>) -> Vec<Gap<'a>> {
    let of = &model.procs[proc];
    let (mut gaps, mut busy_until) = (Vec::new(), 0);
    for span in of.spans.iter().map(|&s| &model.spans[s as usize]).filter(|span| span.m != NONE) {
        let idle = of.idle.partition_point(|&(since, _)| since < span.start);
        let idle_until = idle.checked_sub(1).map_or(0, |last| of.idle[last].1);
        let (start, end) = (idle_until.max(busy_until), span.start);
        busy_until = busy_until.max(span.end);
        if end.saturating_sub(start) < SHORTEST_NS {
            continue;
        }
        let Some(looks) = looks.get(&(of.runtime, span.m)) else { continue };
        let next = looks.get(looks.partition_point(|look| look.at < end));
        if let Some(look) = next.filter(|look| look.at.saturating_sub(look.within) < end) {
            gaps.push(Gap { start, end, proc, look });
        }
    }
    gaps
}
