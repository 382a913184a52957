//! A pipeline: stages of unequal cost with small buffers in between.

use super::{Class, Outcome, Setting, Workload, fingerprint_of_streams};
use crate::error::Result;
use crate::rng::Rng;
use crate::stats::Times;
use crate::work::compute_ns;
use mungo::chan;
use std::time::{Duration, Instant};

/// What each stage takes on average.
const STAGES_NS: [u64; 5] = [1_000, 3_000, 2_000, 4_000, 1_000];
const BUFFER: usize = 16;

pub(super) struct Pipeline;

/// Something on its way through.
struct Item {
    number: u64,
    start: Instant,
    /// Time in the hands of a stage so far.
    worked: Duration,
}

/// Half to one and a half of the average, by the item's number.
fn work_ns(number: u64, stage: usize) -> u64 {
    let average = STAGES_NS[stage];
    Rng::new(number, stage as u64).between(average / 2, average * 3 / 2)
}

impl Workload for Pipeline {
    fn name(&self) -> &'static str {
        "pipeline"
    }

    fn about(&self) -> &'static str {
        "items pass 5 stages of 1 to 4 us, 16 places between two; all that enter come out"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let (waits, latencies) = mungo::scope(|s| {
            let (source, mut input) = chan::bounded::<Item>(BUFFER);
            s.spawn(move || {
                let mut rng = Rng::new(setting.seed, 0);
                while !setting.over() {
                    let item = Item { number: rng.next(), start: Instant::now(), worked: Duration::ZERO };
                    source.send(item).expect("the first stage lives");
                }
            });
            for stage in 0..STAGES_NS.len() {
                let (output, next) = chan::bounded::<Item>(BUFFER);
                let items = std::mem::replace(&mut input, next);
                s.spawn(move || {
                    for mut item in items {
                        let start = Instant::now();
                        compute_ns(work_ns(item.number, stage));
                        item.worked += start.elapsed();
                        output.send(item).expect("the next stage lives");
                    }
                });
            }
            let (mut waits, mut latencies) = (Times::default(), Times::default());
            for item in input {
                let latency = item.start.elapsed();
                waits.record(latency.saturating_sub(item.worked));
                latencies.record(latency);
            }
            (waits, latencies)
        });
        let print = fingerprint_of_streams(setting.seed, 1, Rng::next);
        let outcome = Outcome::all_done(setting, latencies.len(), print);
        let class = Class { name: "item", wait: Some(waits), latency: Some(latencies), deadlines: None };
        Ok(Outcome { classes: vec![class], ..outcome })
    }
}
