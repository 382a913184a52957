//! What goroutines waited for: each channel, lock or descriptor, and for how long.

use crate::stats::Times;
use crate::trace::model::{Model, Why};
use std::collections::HashMap;

/// Rows that are kept: those with most time.
const ROWS: usize = 1_000;

/// The waits for one thing.
#[derive(Debug)]
pub(crate) struct Waits {
    /// Of `Model::reasons`.
    pub(crate) reason: u16,
    /// From the stop to when it was runnable again, or to the end of the trace.
    pub(crate) times: Times,
    pub(crate) total_ns: u64,
    /// The span before the longest one.
    pub(crate) longest: u32,
    pub(crate) longest_ns: u64,
    /// Number of goroutines that still wait at the end.
    pub(crate) open: u64,
}

/// The waits of one kind in one place of the program.
#[derive(Debug)]
pub(crate) struct StackWaits {
    /// Of `Model::kinds`.
    pub(crate) kind: u32,
    /// Of `Model::stacks`; never that of events without one.
    pub(crate) stack: u32,
    pub(crate) times: Times,
    pub(crate) total_ns: u64,
    /// Number of goroutines that still wait at the end.
    pub(crate) open: u64,
}

/// By kind and stack, the longest sum first.
pub(super) fn by_stack(model: &Model) -> Vec<StackWaits> {
    let mut sums: HashMap<(u32, u32), StackWaits> = HashMap::new();
    each(model, |s, ns, is_open| {
        let span = &model.spans[s as usize];
        if span.stack != 0 {
            let (kind, stack) = (model.awaited[span.reason as usize].kind, span.stack);
            let new = || StackWaits { kind, stack, times: Times::coarse(), total_ns: 0, open: 0 };
            let row = sums.entry((kind, stack)).or_insert_with(new);
            row.times.record_ns(ns);
            row.total_ns = row.total_ns.saturating_add(ns);
            row.open += u64::from(is_open);
        }
    });
    let mut rows: Vec<StackWaits> = sums.into_values().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.kind, row.stack));
    rows.truncate(ROWS);
    rows
}

/// Calls `f` for each wait with the span before it, its length in ns, and whether it goes on at the end.
fn each(model: &Model, mut f: impl FnMut(u32, u64, bool)) {
    for g in 0..model.goroutines.len() as u32 {
        let spans = model.spans_of(g);
        for (i, &s) in spans.iter().enumerate() {
            let span = &model.spans[s as usize];
            if span.why == Why::Parked {
                let next = spans.get(i + 1).map(|&next| model.spans[next as usize].ready);
                f(s, next.unwrap_or(model.end).saturating_sub(span.end), next.is_none());
            }
        }
    }
}

/// By what was waited for, the longest sum first.
pub(super) fn waits(model: &Model) -> Vec<Waits> {
    let mut sums = vec![0u64; model.reasons.len()];
    each(model, |s, ns, _| {
        let sum: &mut u64 = &mut sums[model.spans[s as usize].reason as usize];
        *sum = sum.saturating_add(ns.saturating_add(1));
    });
    let mut order: Vec<u16> = (0..=u16::MAX).take(sums.len()).filter(|&i| sums[i as usize] != 0).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(sums[i as usize]));
    order.truncate(ROWS);
    let row = |&reason: &u16| Waits {
        reason,
        times: Times::coarse(),
        total_ns: 0,
        longest: 0,
        longest_ns: 0,
        open: 0,
    };
    let mut rows: Vec<Waits> = order.iter().map(row).collect();
    let mut row_of = vec![usize::MAX; sums.len()];
    order.iter().enumerate().for_each(|(row, &reason)| row_of[reason as usize] = row);
    each(model, |s, ns, is_open| {
        if let Some(row) = rows.get_mut(row_of[model.spans[s as usize].reason as usize]) {
            row.times.record_ns(ns);
            row.total_ns = row.total_ns.saturating_add(ns);
            row.open += u64::from(is_open);
            if ns >= row.longest_ns {
                (row.longest, row.longest_ns) = (s, ns);
            }
        }
    });
    rows
}
