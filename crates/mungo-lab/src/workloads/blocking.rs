//! Goroutines that block their threads, half of them without a word, beside goroutines that compute.

use super::{Class, Outcome, Setting, Workload, fingerprint_of_streams, gather};
use crate::error::Result;
use crate::rng::Rng;
use crate::stats::Times;
use crate::work::compute;
use std::time::{Duration, Instant};

/// Callers that block, for each processor.
const CALLERS: usize = 8;
/// Between two looks at the clock of the computing goroutines.
const CHUNK: Duration = Duration::from_micros(100);

pub(super) struct Blocking;

/// How long a call blocks, in us.
fn nap_us(rng: &mut Rng) -> u64 {
    rng.between(500, 10_000)
}

/// Blocks again and again; each call's lateness.
fn call(which: u64, setting: &Setting) -> Vec<u64> {
    let mut rng = Rng::new(setting.seed, which);
    let mut late = Vec::new();
    while !setting.over() {
        let nap = Duration::from_micros(nap_us(&mut rng));
        let start = Instant::now();
        match which % 2 {
            0 => std::thread::sleep(nap),
            _ => mungo::blocking(|| std::thread::sleep(nap)),
        }
        mungo::yield_now(); // so that it includes the way back to a processor
        late.push(start.elapsed().saturating_sub(nap).as_nanos() as u64);
    }
    late
}

/// Computes in chunks; the time of each beyond its own.
fn chunks(setting: &Setting) -> Vec<u64> {
    let mut waits = Vec::new();
    while !setting.over() {
        let start = Instant::now();
        compute(CHUNK);
        mungo::yield_now();
        waits.push(start.elapsed().saturating_sub(CHUNK).as_nanos() as u64);
    }
    waits
}

impl Workload for Blocking {
    fn name(&self) -> &'static str {
        "blocking"
    }

    fn about(&self) -> &'static str {
        "8 goroutines a processor block their threads for 0.5 to 10 ms, half of them unannounced; one computes"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let callers = (CALLERS * setting.procs) as u64;
        let (calls, chunks) = mungo::scope(|s| {
            let chunks = s.spawn(|| gather(0..setting.procs, |_| chunks(setting)));
            (gather(0..callers, |which| call(which, setting)), chunks.join().expect("computing does not panic"))
        });
        let calls: Times = calls.into_iter().flatten().collect();
        let chunks: Times = chunks.into_iter().flatten().collect();
        let naps = fingerprint_of_streams(setting.seed, callers, nap_us);
        let outcome = Outcome::all_done(setting, calls.len() + chunks.len(), naps);
        let call = Class { name: "call", wait: Some(calls), ..Class::default() };
        let chunk = Class { name: "chunk", wait: Some(chunks), ..Class::default() };
        Ok(Outcome { classes: vec![call, chunk], ..outcome })
    }
}
