//! Work stealing: one processor gets all the work, and the others come for their share.

use super::watch::fit;
use super::{DRAWN_PROCS, Stage, WIDTH, grouped};
use crate::error::Result;
use crate::rng::Rng;
use crate::work::compute_ns;
use std::time::{Duration, Instant};

/// What just fits into the queue of a processor.
const BURST: usize = 240;

pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    let bursts = if stage.quick { 4 } else { 16 };
    stage.heading(
        "Work stealing",
        &format!(
            "One goroutine spawns {bursts} bursts of {BURST} (10 to 190 us each) into its own queue; others steal."
        ),
    )?;
    let before = stage.runtime.metrics();
    let (elapsed, samples) = stage.watch("work stealing", Duration::from_millis(1), move || {
        let start = Instant::now();
        let mut rng = Rng::new(1, 0);
        let mut spawn = |_| {
            let ns = rng.between(10_000, 190_000);
            mungo::go(move || compute_ns(ns))
        };
        for _ in 0..bursts {
            let handles: Vec<_> = (0..BURST).map(&mut spawn).collect();
            handles.into_iter().for_each(|h| h.join().expect("computing does not panic"));
        }
        start.elapsed()
    })?;
    let after = stage.runtime.metrics();
    let procs = stage.procs();
    let queues: Vec<Vec<u64>> = (0..procs).map(|p| samples.iter().map(|s| s.queues[p]).collect()).collect();
    let out = stage.out;
    for (p, queue) in queues.iter().enumerate().take(DRAWN_PROCS) {
        let most = queue.iter().copied().max().unwrap_or(0);
        let picture = out.sparkline(&fit(queue, WIDTH), 256);
        stage.draw(&format!("P{p} queue"), p, &picture, &format!("up to {most} of 256"))?;
    }
    let deltas = after.per_proc.iter().zip(&before.per_proc);
    let ran: Vec<u64> = deltas.clone().map(|(a, b)| a.switches - b.switches).collect();
    let most = ran.iter().copied().max().unwrap_or(1) as f64;
    for (p, n) in ran.iter().enumerate().take(DRAWN_PROCS) {
        stage.draw(&format!("P{p} ran"), p, &out.bar(*n as f64, most, WIDTH), &grouped(*n))?;
    }
    let steals: u64 = deltas.map(|(a, b)| a.steals - b.steals).sum();
    stage.say(format!(
        "all done after {elapsed:.0?}; {steals} raids, each of which took half of another P's queue"
    ))
}
