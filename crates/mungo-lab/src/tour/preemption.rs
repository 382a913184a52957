//! Preemption: loops that never call the runtime share the processors, and a sleeper still wakes up in time. What is
//! drawn is what the tracer recorded.

use super::{DRAWN_PROCS, Stage, WIDTH, letter};
use crate::error::{Error, Result};
use crate::stats::{Times, jain};
use crate::trace::{self, Model, replay};
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A trace in memory.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Spins until `end`. Returns its number, and how many rounds it made.
fn hog(start: Instant, end: Duration) -> (u64, f64) {
    let (id, mut rounds) = (mungo::current().id().as_u64(), 0u64);
    while start.elapsed() < end {
        // No call into the runtime anywhere in this loop.
        (0..1000u64).for_each(|i| _ = black_box(i));
        rounds += 1;
    }
    (id, rounds as f64)
}

pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    let hogs = 3 * stage.procs();
    let length = Duration::from_millis(if stage.quick { 200 } else { 600 });
    stage.heading(
        "Preemption",
        &format!(
            "{hogs} goroutines ({} to {}) spin and never call the runtime; another one sleeps 1 ms, again and again.",
            letter(0),
            letter(hogs - 1)
        ),
    )?;
    let failed = |e: &dyn std::fmt::Display| Error::Failed(format!("the tracer failed: {e}"));
    let bytes = Bytes::default();
    let tracing = mungo::trace::start_writer(bytes.clone()).map_err(|e| failed(&e))?;
    let ((spun, late), _) = stage.watch("preemption", Duration::from_millis(20), move || {
        let start = Instant::now();
        let hogs: Vec<_> = (0..hogs).map(|_| mungo::go(move || hog(start, length))).collect();
        let mut late = Times::default();
        while start.elapsed() < length {
            let before = Instant::now();
            mungo::sleep(Duration::from_millis(1));
            late.record(before.elapsed().saturating_sub(Duration::from_millis(1)));
        }
        let spun = hogs.into_iter().map(|h| h.join().expect("a hog does not panic"));
        (spun.collect::<Vec<_>>(), late)
    })?;
    tracing.stop().map_err(|e| failed(&e))?;
    let bytes = std::mem::take(&mut *bytes.0.lock().unwrap_or_else(PoisonError::into_inner));
    let recorded = mungo_trace::Trace::read(&bytes[..]).map_err(|e| failed(&e))?;
    let ids: Vec<u64> = spun.iter().map(|(id, _)| *id).collect();
    draw(stage, &trace::build(&recorded), &ids, length)?;
    let shares: Vec<f64> = spun.iter().map(|(_, rounds)| *rounds).collect();
    stage.say(format!(
        "{length:.0?} from left to right, as the tracer saw it: who ran most of each column, blank: none of these. \
         Fairness among the loops (Jain): {:.2} of 1",
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

/// The processors, from the moment on at which the first of `ids` ran.
fn draw(stage: &Stage<'_>, model: &Model, ids: &[u64], length: Duration) -> Result<()> {
    let index = |id: &u64| model.find(*id);
    let letters: Vec<u32> = ids.iter().filter_map(index).collect();
    let first = letters.iter().filter_map(|&g| model.first_run(g)).min().unwrap_or(0);
    let picture =
        replay::Picture::with_letters(model, first, first + length.as_nanos() as u64, WIDTH, &letters);
    for row in picture.rows.iter().take(DRAWN_PROCS) {
        stage.out.line(format!("   {:<9} {}", row.label, replay::paint(&row.cells, stage.out)))?;
    }
    Ok(())
}
