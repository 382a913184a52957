//! Goroutines that never call the runtime do not keep a sleeper from waking up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[mungo::main(procs = 2)]
fn main() {
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    for _ in 0..8 {
        let (stop, rounds) = (stop.clone(), rounds.clone());
        mungo::go(move || {
            while !stop.load(Relaxed) {
                rounds.fetch_add(1, Relaxed);
            }
        });
    }
    let mut late: Vec<Duration> = (0..200)
        .map(|_| {
            let start = Instant::now();
            mungo::sleep(Duration::from_millis(1));
            start.elapsed() - Duration::from_millis(1)
        })
        .collect();
    stop.store(true, Relaxed);
    late.sort();
    println!("8 loops on 2 procs made {} million rounds meanwhile", rounds.load(Relaxed) / 1_000_000);
    println!("200 sleeps of 1 ms were late by {:?} (median), {:?} (worst)", late[100], late[199]);
}
