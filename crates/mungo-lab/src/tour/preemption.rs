//! Preemption: loops that never call the runtime share the processors, and a sleeper still wakes up in time.

use super::timeline::{Span, lanes, letter};
use super::{DRAWN_PROCS, Stage, WIDTH};
use crate::error::Result;
use crate::out::Ink;
use crate::stats::{Times, jain};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Spins until `end`: when it ran, as far as it can tell from gaps in its own time. Shorter gaps than `gap` are the
/// kernel's doing.
fn hog(who: usize, start: Instant, end: Duration, gap: Duration) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut current = Span { who, start: start.elapsed(), end: start.elapsed() };
    loop {
        // No call into the runtime anywhere in this loop.
        (0..1000u64).for_each(|i| _ = black_box(i));
        let now = start.elapsed();
        if now - current.end > gap {
            spans.push(current);
            current.start = now;
        }
        current.end = now;
        if now >= end {
            spans.push(current);
            return spans;
        }
    }
}

pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    let (procs, slice) = (stage.procs(), stage.runtime.info().time_slice);
    let hogs = 3 * procs;
    let length = Duration::from_millis(if stage.quick { 200 } else { 600 });
    stage.heading(
        "Preemption",
        &format!(
            "{hogs} goroutines ({} to {}) spin and never call the runtime; another one sleeps 1 ms, again and again.",
            letter(0),
            letter(hogs - 1)
        ),
    )?;
    let ((spans, late), _) = stage.watch("preemption", Duration::from_millis(20), move || {
        let start = Instant::now();
        let hogs: Vec<_> = (0..hogs).map(|who| mungo::go(move || hog(who, start, length, slice / 2))).collect();
        let mut late = Times::default();
        while start.elapsed() < length {
            let before = Instant::now();
            mungo::sleep(Duration::from_millis(1));
            late.record(before.elapsed().saturating_sub(Duration::from_millis(1)));
        }
        let spans = hogs.into_iter().flat_map(|h| h.join().expect("a hog does not panic"));
        (spans.collect::<Vec<Span>>(), late)
    })?;
    let out = stage.out;
    for (lane, picture) in lanes(&spans, procs.min(DRAWN_PROCS), WIDTH, length).iter().enumerate() {
        let cell = |who: &Option<usize>| match who {
            Some(who) => out.paint(Ink::Number(*who), letter(*who).to_string()),
            None => " ".to_owned(),
        };
        let picture: String = picture.iter().map(cell).collect();
        out.line(format!("   {:<9} {picture}", format!("proc {lane}")))?;
    }
    let share =
        |who| spans.iter().filter(|s| s.who == who).map(|s| (s.end - s.start).as_secs_f64()).sum::<f64>();
    let shares: Vec<f64> = (0..hogs).map(share).collect();
    stage.say(format!(
        "{:.0?} from left to right, blank: another program had the CPU. Fairness among the loops (Jain): {:.2} of 1",
        length,
        jain(&shares).unwrap_or(0.0)
    ))?;
    stage.say(format!(
        "{} sleeps of 1 ms were late by {} (median), {} (p99), {} (worst)",
        late.len(),
        super::us(late.quantile_us(0.5)),
        super::us(late.quantile_us(0.99)),
        super::us(late.max_us())
    ))
}
