//! Bursts of short-lived goroutines from several places at once.

use super::{Class, Outcome, Setting, Workload, fingerprint_of_streams, gather, merged};
use crate::error::Result;
use crate::rng::{Rng, fingerprint};
use crate::stats::{Times, jain};
use crate::work::compute_ns;
use std::time::Instant;

pub(super) struct SpawnStorm;

/// How many goroutines a burst has, and what each of them takes.
fn burst(rng: &mut Rng) -> (u64, u64) {
    (rng.between(16, 256), rng.between(200, 4000))
}

/// One place that spawns until the time is over: waits for the first run, and lives.
fn storm(place: u64, setting: &Setting) -> (Times, Times) {
    let mut rng = Rng::new(setting.seed, place);
    let (mut waits, mut lives) = (Times::default(), Times::default());
    while !setting.over() {
        let (count, ns) = burst(&mut rng);
        let child = |spawned: Instant| {
            let wait = spawned.elapsed();
            compute_ns(ns);
            (wait, spawned.elapsed())
        };
        for (wait, life) in gather((0..count).map(|_| Instant::now()), child) {
            waits.record(wait);
            lives.record(life);
        }
    }
    (waits, lives)
}

impl Workload for SpawnStorm {
    fn name(&self) -> &'static str {
        "spawn-storm"
    }

    fn about(&self) -> &'static str {
        "2 goroutines a processor spawn bursts of 16 to 256 short ones (0.2 to 4 us) and wait for them"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let places = 2 * setting.procs as u64;
        let storms = gather(0..places, |place| storm(place, setting));
        let counts: Vec<f64> = storms.iter().map(|(_, lives)| lives.len() as f64).collect();
        let lives = merged(storms.iter().map(|s| &s.1));
        let bursts =
            fingerprint_of_streams(setting.seed, places, |rng| fingerprint(<[u64; 2]>::from(burst(rng))));
        let outcome = Outcome::all_done(setting, lives.len(), bursts);
        let wait = merged(storms.iter().map(|s| &s.0));
        let class = Class { name: "goroutine", wait: Some(wait), latency: Some(lives), deadlines: None };
        Ok(Outcome { classes: vec![class], fairness: jain(&counts), ..outcome })
    }
}
