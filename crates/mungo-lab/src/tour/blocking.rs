//! Blocking calls: a goroutine that blocks its thread loses its processor, not the others theirs.

use super::{Stage, WIDTH};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(100);
const CALLS: usize = 64;

pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    stage.heading(
        "Blocking calls",
        &format!("{CALLS} goroutines block their threads for {NAP:?} in std::thread::sleep, without a word."),
    )?;
    let before: u64 = stage.runtime.metrics().per_proc.iter().map(|p| p.retakes).sum();
    let ((elapsed, blocked, ticks), _) = stage.watch("blocking calls", Duration::from_millis(20), || {
        let start = Instant::now();
        let blocked = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, ended) = (blocked.clone(), stop.clone());
        // A goroutine that has to go on meanwhile.
        let ticker = mungo::go(move || {
            let (mut counts, mut ticks) = (Vec::new(), Vec::new());
            while !ended.load(Relaxed) {
                mungo::sleep(Duration::from_millis(1));
                counts.push(seen.load(Relaxed));
                ticks.push(start.elapsed());
            }
            (counts, ticks)
        });
        let call = |_| {
            let blocked = blocked.clone();
            mungo::go(move || {
                blocked.fetch_add(1, Relaxed);
                std::thread::sleep(NAP);
                blocked.fetch_sub(1, Relaxed);
            })
        };
        let calls: Vec<_> = (0..CALLS).map(call).collect();
        calls.into_iter().for_each(|c| c.join().expect("a nap does not panic"));
        let elapsed = start.elapsed();
        stop.store(true, Relaxed);
        let (counts, ticks) = ticker.join().expect("the ticker does not panic");
        (elapsed, counts, ticks)
    })?;
    let out = stage.out;
    let mut counts = vec![0; WIDTH];
    let mut beats = vec![0; WIDTH];
    for (at, count) in ticks.iter().zip(&blocked) {
        let column = (at.as_secs_f64() / elapsed.as_secs_f64() * WIDTH as f64) as usize;
        if column < WIDTH {
            counts[column] = *count.max(&counts[column]);
            beats[column] += 1;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    stage.draw("blocked", 0, &out.sparkline(&counts, most), &format!("up to {most} at once"))?;
    let most = beats.iter().copied().max().unwrap_or(0);
    stage.draw("ticks", 1, &out.sparkline(&beats, most), "of a 1 ms sleeper")?;
    let after = stage.runtime.metrics();
    let retakes = after.per_proc.iter().map(|p| p.retakes).sum::<u64>() - before;
    let gap = ticks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    stage.say(format!(
        "all back after {elapsed:.0?}, and not {:.0?}: {retakes} times the monitor gave a processor to another thread",
        NAP * CALLS as u32 / stage.procs() as u32
    ))?;
    stage.say(format!("{} threads by now; the longest gap between two ticks was {gap:.1?}", after.threads))
}
