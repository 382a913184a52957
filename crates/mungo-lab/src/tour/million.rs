//! A million goroutines, all alive at the same time.

use super::{Stage, WIDTH, grouped};
use crate::error::{Error, Result};
use crate::machine;
use crate::progress::Progress;
use mungo::chan;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What to reckon with for each. TUNED: 4,690 bytes were measured, and 520 of page tables.
const BYTES: f64 = 6.0 * 1024.0;

/// Then those that are there must do: a tour takes less than a minute.
const PATIENCE: Duration = Duration::from_secs(30);

/// As many as fit into half of the memory that can be had.
fn how_many(quick: bool) -> (u64, Option<String>) {
    let wanted: u64 = if quick { 20_000 } else { 1_000_000 };
    let fit = machine::available_memory().map_or(wanted, |bytes| (bytes / 2.0 / BYTES) as u64);
    match fit < wanted {
        true => {
            (fit.max(1000), Some(format!("{} would not fit into half of the free memory", grouped(wanted))))
        }
        false => (wanted, None),
    }
}

pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    let (wanted, less) = how_many(stage.quick);
    stage.heading(
        &format!("{} goroutines", grouped(wanted)),
        "All are alive at once, each with a stack and thread-locals of its own; then all wake up and add their number.",
    )?;
    if let Some(why) = less {
        stage.say(why)?;
    }
    let before = machine::status_bytes("VmRSS");
    let (gate, closed) = chan::bounded::<()>(0);
    let (begun, sum) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    let interrupt = stage.interrupt.clone();
    let spawner = {
        let (begun, sum) = (begun.clone(), sum.clone());
        stage.runtime.spawn(move || {
            let one = |i: u64| {
                let (begun, sum, closed) = (begun.clone(), sum.clone(), closed.clone());
                mungo::Builder::new().spawn(move || {
                    begun.fetch_add(1, Relaxed);
                    _ = closed.recv(); // until the gate is dropped
                    sum.fetch_add(i, Relaxed);
                })
            };
            let go_on = |_: &u64| !interrupt.is_set() && start.elapsed() < PATIENCE;
            (0..wanted).take_while(go_on).map(one).collect::<io::Result<Vec<_>>>()
        })
    };
    follow(stage, "spawning", wanted, || if spawner.is_finished() { wanted } else { begun.load(Relaxed) })?;
    let handles = spawner.join().map_err(|_| Error::Failed("the spawner panicked".to_owned()))?;
    let handles = handles.map_err(|e| Error::Failed(format!("the system has no room for that many: {e}")))?;
    let count = handles.len() as u64;
    follow(stage, "starting", count, || begun.load(Relaxed))?;
    let spawned = start.elapsed();
    if count < wanted {
        stage.say(format!("this machine takes its time: {} of them after {PATIENCE:?}", grouped(count)))?;
    }
    let resident = machine::status_bytes("VmRSS") - before;
    let threads = machine::threads();
    let start = Instant::now();
    drop(gate);
    let waiter = stage.runtime.spawn(move || handles.into_iter().all(|h| h.join().is_ok()));
    follow(stage, "waking", count, || count - stage.runtime.metrics().goroutines.min(count))?;
    let fine = waiter.join().is_ok_and(|fine| fine);
    let woken = start.elapsed();
    let expected = count * count.saturating_sub(1) / 2;
    if !fine || sum.load(Relaxed) != expected {
        return Err(Error::Failed(format!("the sum is {} and should be {expected}", sum.load(Relaxed))));
    }
    let out = stage.out;
    let each = |d: Duration| format!("{:.2} us each", d.as_secs_f64() * 1e6 / count as f64);
    let most = spawned.max(woken).as_secs_f64();
    let picture = out.bar(spawned.as_secs_f64(), most, WIDTH);
    stage.draw("spawned", 0, &picture, &format!("{spawned:.1?}, {}", each(spawned)))?;
    let picture = out.bar(woken.as_secs_f64(), most, WIDTH);
    stage.draw("woken", 1, &picture, &format!("{woken:.1?}, {}", each(woken)))?;
    stage.say(format!(
        "{} goroutines on {threads} threads in {:.1} MiB: {:.1} KiB each; their sum is right",
        grouped(count),
        resident / 1048576.0,
        resident / 1024.0 / count as f64
    ))
}

/// A progress bar until `now` is `end`.
fn follow(stage: &Stage<'_>, what: &str, end: u64, now: impl Fn() -> u64) -> Result<()> {
    let bar = Progress::new(end, what);
    loop {
        let position = now();
        bar.position(position);
        if position >= end {
            return Ok(());
        }
        stage.interrupt.check()?;
        std::thread::sleep(Duration::from_millis(10));
    }
}
