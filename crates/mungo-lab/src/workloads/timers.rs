//! Thousands of goroutines that sleep: how late do they wake up?

use super::{Class, Outcome, Setting, Workload, fingerprint_of_streams, gather};
use crate::error::Result;
use crate::rng::Rng;
use crate::stats::Times;
use std::time::{Duration, Instant};

/// Sleepers for each processor.
const SLEEPERS: usize = 1000;

pub(super) struct Timers;

/// How long a sleep is, in us.
fn nap_us(rng: &mut Rng) -> u64 {
    rng.between(1000, 100_000)
}

/// Sleeps again and again; each sleep's lateness.
fn sleep(which: u64, setting: &Setting) -> Vec<u64> {
    let mut rng = Rng::new(setting.seed, which);
    let mut late = Vec::new();
    while !setting.over() {
        let nap = Duration::from_micros(nap_us(&mut rng));
        let start = Instant::now();
        mungo::sleep(nap);
        late.push(start.elapsed().saturating_sub(nap).as_nanos() as u64);
    }
    late
}

impl Workload for Timers {
    fn name(&self) -> &'static str {
        "timers"
    }

    fn about(&self) -> &'static str {
        "1000 goroutines a processor sleep 1 to 100 ms, again and again; wait = lateness"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let sleepers = (SLEEPERS * setting.procs) as u64;
        let late: Times = gather(0..sleepers, |which| sleep(which, setting)).into_iter().flatten().collect();
        let naps = fingerprint_of_streams(setting.seed, sleepers, nap_us);
        let outcome = Outcome::all_done(setting, late.len(), naps);
        Ok(Outcome { classes: vec![Class { name: "sleep", wait: Some(late), ..Class::default() }], ..outcome })
    }
}
