//! Everything at the same time, under slices of 100 µs: two runtimes, other numbers of procs, dumps, an end in between.

mod common;

use common::{Deadline, Rng, hasty_runtime, stress_time, wait_until};
use mungo::{chan, go};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

fn compute(turns: u64) {
    (0..turns).for_each(|n| _ = black_box(n));
}

/// Calls the runtime when it is dropped by a panic.
struct Busy;

impl Drop for Busy {
    fn drop(&mut self) {
        compute(5_000);
        mungo::yield_now();
        compute(5_000);
    }
}

/// One thing of many that a goroutine may do.
fn step(rng: &mut Rng) {
    match rng.below(9) {
        0 => compute(rng.below(100_000)),
        1 => mungo::yield_now(),
        2 => mungo::sleep(Duration::from_micros(rng.below(300))),
        3 => {
            let n = rng.next();
            assert_eq!(go(move || black_box(n)).join().unwrap(), n);
        }
        4 => mungo::blocking(|| {
            compute(rng.below(50_000));
            std::thread::sleep(Duration::from_micros(rng.below(200)));
            compute(rng.below(50_000));
        }),
        5 => {
            let caught = go(|| {
                let _busy = Busy;
                std::panic::resume_unwind(Box::new(7_u8));
            });
            assert_eq!(caught.join().unwrap_err().downcast_ref(), Some(&7_u8));
        }
        6 => {
            let (to, from) = chan::bounded(1);
            go(move || (0..20_u64).for_each(|n| to.send(n).unwrap()));
            let sum: u64 = from.iter().inspect(|n| compute(n * 200)).sum();
            assert_eq!(sum, 190);
        }
        7 => {
            let _guard = mungo::lock_os_thread();
            let thread = common::gettid();
            compute(rng.below(50_000));
            mungo::yield_now();
            assert_eq!(common::gettid(), thread);
        }
        _ => {
            let text = format!("{:?}", vec![rng.next(); 30]);
            assert!(text.len() > 60);
        }
    }
}

fn everything(time: Duration) {
    let mut rng = Rng::seeded("everything");
    let end = Deadline::after(time);
    while !end.passed() {
        let runtimes = [hasty_runtime(2), hasty_runtime(1)];
        let stop = Arc::new(AtomicBool::new(false));
        let steps: Vec<Arc<AtomicU64>> = (0..16).map(|_| Arc::default()).collect();
        let goroutines: Vec<_> = steps
            .iter()
            .enumerate()
            .map(|(at, steps)| {
                let (stop, steps, mut rng) = (stop.clone(), steps.clone(), Rng::new(rng.next()));
                runtimes[at % 2].spawn(move || {
                    while !stop.load(Relaxed) {
                        step(&mut rng);
                        steps.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        for round in 1..=5 {
            runtimes[0].set_procs(1 + rng.below(3) as usize).unwrap();
            assert!(mungo::debug::dump().goroutines().len() >= 16);
            wait_until("all get on", || steps.iter().all(|steps| steps.load(Relaxed) >= 10 * round));
        }
        stop.store(true, Relaxed);
        goroutines.into_iter().for_each(|g| g.join().unwrap());
        runtimes.into_iter().for_each(common::end);
    }
}

#[test]
fn everything_at_the_same_time() {
    everything(Duration::from_secs(1));
}

#[test]
#[ignore = "takes long: ci/stress.sh"]
fn stress_everything_at_the_same_time() {
    everything(stress_time(Duration::from_secs(20)));
}
