//! The critical path of a region: wake-ups, followed backward.

use crate::trace::model::{Model, NONE, Why};

/// Steps of a path that are found at most.
const MOST_STEPS: usize = 10_000;

/// Goroutines that wait for each other, one inside of the other.
const DEEPEST: usize = 50;

/// What a goroutine did in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Ran,
    /// It could have run, and did not.
    Waited,
    /// It waited for something that no goroutine did: a timer, the network, or what the trace does not say.
    Parked,
    /// It blocked its thread.
    Blocked,
}

/// What one goroutine did for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) did: Did,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The critical path of what `g` did from `from` to `to`, in the order of time. While `g` is parked, the path goes on
/// with the goroutine that woke it, and leads no further back than to the moment at which `g` parked.
pub(crate) fn critical(model: &Model, g: u32, from: u64, to: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    walk(model, g, from, to, 0, &mut steps);
    steps.reverse();
    steps
}

fn walk(model: &Model, g: u32, from: u64, to: u64, depth: usize, steps: &mut Vec<Step>) {
    let mut end = to;
    let spans = model.spans_of(g);
    let later = spans.partition_point(|&s| model.spans[s as usize].ready < to);
    let push = |did, start: u64, end: u64, steps: &mut Vec<Step>| {
        let start = start.max(from);
        if start < end {
            steps.push(Step { did, start, end });
        }
    };
    for &s in spans[..later].iter().rev() {
        let span = &model.spans[s as usize];
        if end <= from || steps.len() >= MOST_STEPS {
            return;
        }
        // After this span, until the one that was looked at before: what it did off the processor.
        if span.end < end {
            let did = if span.why == Why::Blocked { Did::Blocked } else { Did::Parked };
            push(did, span.end, end, steps);
            end = span.end;
        }
        push(Did::Ran, span.start, end, steps);
        end = end.min(span.start);
        push(Did::Waited, span.ready, end, steps);
        end = end.min(span.ready);
        if end <= from {
            return;
        }
        if span.waker != NONE && span.waker != g && depth < DEEPEST {
            let parked = before(model, spans, span.ready).unwrap_or(from).max(from);
            walk(model, span.waker, parked, end, depth + 1, steps);
            end = end.min(parked);
        }
    }
    if depth == 0 {
        push(Did::Parked, from, end, steps);
    }
}

/// When the goroutine came off its processor, before `at`.
fn before(model: &Model, spans: &[u32], at: u64) -> Option<u64> {
    let later = spans.partition_point(|&s| model.spans[s as usize].start < at);
    let span = &model.spans[*spans[..later].last()? as usize];
    Some(span.end)
}

/// The spans that led to `span`, each woken by the next one, at most `most`.
pub(crate) fn chain(model: &Model, span: u32, most: usize) -> Vec<u32> {
    let mut spans = vec![span];
    while spans.len() < most {
        let last = &model.spans[spans[spans.len() - 1] as usize];
        let Some(before) = Some(last.waker).filter(|&w| w != NONE).and_then(|w| model.span_at(w, last.ready))
        else {
            break;
        };
        if spans.contains(&before) {
            break;
        }
        spans.push(before);
    }
    spans
}
