//! Scatter and gather: one goroutine hands a batch of jobs to workers and waits for all answers, again and again.

use super::{Class, Outcome, Setting, Workload, fingerprint_of_streams, gather, merged};
use crate::error::Result;
use crate::rng::Rng;
use crate::stats::{Times, jain};
use crate::work::compute_ns;
use mungo::chan;
use std::time::Instant;

/// Jobs in a batch.
const BATCH: usize = 64;
/// Workers for each processor.
const WORKERS: usize = 4;

pub(super) struct FanOut;

/// What a job takes: mostly little.
fn work_ns(rng: &mut Rng) -> u64 {
    rng.exponential(10_000.0) as u64 + 500
}

impl Workload for FanOut {
    fn name(&self) -> &'static str {
        "fanout"
    }

    fn about(&self) -> &'static str {
        "batches of 64 jobs (10 us on average) go to 4 workers a processor; a batch waits for its last job"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let (jobs, to_do) = chan::bounded::<(u64, Instant)>(BATCH);
        let (answers, done) = chan::bounded::<()>(BATCH);
        let work = |_| {
            let mut waits = Times::default();
            for (ns, sent) in to_do.clone() {
                waits.record(sent.elapsed());
                compute_ns(ns);
                answers.send(()).expect("a goroutine gathers");
            }
            waits
        };
        let scatter = || {
            let jobs = jobs; // closed when we leave
            let mut rng = Rng::new(setting.seed, 0);
            let mut batches = Times::default();
            while !setting.over() {
                let start = Instant::now();
                (0..BATCH).for_each(|_| jobs.send((work_ns(&mut rng), Instant::now())).expect("workers live"));
                (0..BATCH).for_each(|_| done.recv().expect("workers answer"));
                batches.record(start.elapsed());
            }
            batches
        };
        let (waits, batches) = mungo::scope(|s| {
            let scatter = s.spawn(scatter);
            let waits = gather(0..WORKERS * setting.procs, work);
            (waits, scatter.join().expect("scattering does not panic"))
        });
        let counts: Vec<f64> = waits.iter().map(|w| w.len() as f64).collect();
        let print = fingerprint_of_streams(setting.seed, 1, work_ns);
        let outcome = Outcome::all_done(setting, batches.len() * BATCH as u64, print);
        let job = Class { name: "job", wait: Some(merged(&waits)), ..Class::default() };
        let batch = Class { name: "batch", latency: Some(batches), ..Class::default() };
        Ok(Outcome { classes: vec![job, batch], fairness: jain(&counts), ..outcome })
    }
}
