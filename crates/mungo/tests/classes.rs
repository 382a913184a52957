//! Fresh goroutines go before those that compute, and neither keeps the other from running. Progress, no clocks.

mod common;

use common::{preemptions, runtime, wait_until};
use mungo::{Runtime, chan, go};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One P, and a slice that does not end.
fn patient_runtime() -> Runtime {
    Runtime::builder().procs(1).time_slice(Duration::from_secs(3600)).build().unwrap()
}

/// A goroutine that computes until it is dropped.
struct Computing {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
}

impl Computing {
    fn start(runtime: &Runtime) -> Computing {
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        runtime.spawn({
            let (stop, turns) = (stop.clone(), turns.clone());
            move || {
                while !stop.load(Relaxed) {
                    turns.fetch_add(1, Relaxed);
                }
            }
        });
        wait_until("it computes", || turns.load(Relaxed) > 0);
        Computing { stop, turns }
    }

    /// Waits until it has got on.
    #[track_caller]
    fn wait_for_turns(&self, n: u64) {
        let before = self.turns.load(Relaxed);
        wait_until("it gets on", || self.turns.load(Relaxed) >= before + n);
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

#[test]
fn a_fresh_goroutine_does_not_wait_for_the_end_of_a_slice() {
    let runtime = patient_runtime();
    let computing = Computing::start(&runtime);
    for n in 0..20 {
        assert_eq!(runtime.spawn(move || n).join().unwrap(), n); // from outside: the global queue
    }
    computing.wait_for_turns(1000);
    drop(computing);
    common::end(runtime);
}

#[test]
fn a_woken_goroutine_does_not_wait_for_the_end_of_a_slice() {
    let runtime = patient_runtime();
    let computing = Computing::start(&runtime);
    let (to, from) = chan::bounded::<u32>(0);
    let echo = runtime.spawn(move || from.recv().unwrap());
    to.send(5).unwrap();
    assert_eq!(echo.join().unwrap(), 5);
    runtime.run(|| (0..20).for_each(|_| mungo::sleep(Duration::from_micros(300)))); // by a timer of its P
    computing.wait_for_turns(1000);
    drop(computing);
    common::end(runtime);
}

#[test]
fn one_that_was_spawned_by_one_that_computes_does_not_wait_either() {
    let runtime = patient_runtime();
    let spawned = runtime.run(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let child = go({
            let ran = ran.clone();
            move || ran.store(true, Relaxed)
        });
        while !ran.load(Relaxed) {} // never calls the runtime
        child.join().is_ok()
    });
    assert!(spawned);
    common::end(runtime);
}

#[test]
fn a_flood_of_fresh_goroutines_does_not_starve_one_that_computes() {
    let runtime = runtime(1);
    let computing = Computing::start(&runtime);
    let stop = Arc::new(AtomicBool::new(false));
    let spawned = Arc::new(AtomicU64::new(0));
    fn again(stop: Arc<AtomicBool>, spawned: Arc<AtomicU64>) {
        (0..2_000).for_each(|n| _ = black_box(n));
        spawned.fetch_add(1, Relaxed);
        if !stop.load(Relaxed) {
            go(move || again(stop, spawned));
        }
    }
    for _ in 0..64 {
        let (stop, spawned) = (stop.clone(), spawned.clone());
        runtime.spawn(move || again(stop, spawned));
    }
    wait_until("the flood rises", || spawned.load(Relaxed) > 10_000);
    for _ in 0..10 {
        let before = spawned.load(Relaxed);
        computing.wait_for_turns(10_000);
        wait_until("the flood goes on", || spawned.load(Relaxed) > before + 100);
    }
    stop.store(true, Relaxed);
    drop(computing);
    common::end(runtime);
}

/// One P computes, the ring of the other one is full: the first makes room, although nothing waits in its own ring.
#[test]
fn fresh_goroutines_in_the_ring_of_another_proc_do_not_wait_for_one_that_computes() {
    let runtime = Runtime::builder().procs(2).time_slice(Duration::from_secs(3600)).build().unwrap();
    let computing = Computing::start(&runtime);
    let stop = Arc::new(AtomicBool::new(false));
    let flood = runtime.spawn({
        let stop = stop.clone();
        move || {
            while !stop.load(Relaxed) {
                let wave: Vec<_> =
                    (0..100).map(|_| go(|| (0..20_000).for_each(|n| _ = black_box(n)))).collect();
                wave.into_iter().for_each(|g| g.join().unwrap());
            }
        }
    });
    wait_until("it is interrupted for them", || preemptions(&runtime) >= 200);
    computing.wait_for_turns(1000);
    stop.store(true, Relaxed);
    drop(computing);
    flood.join().unwrap();
    common::end(runtime);
}

/// A goroutine that yields in a loop waits for nothing: it goes on after each turn of one that computes.
#[test]
fn a_goroutine_that_yields_lets_one_that_computes_go_on() {
    let runtime = runtime(1);
    let computing = Computing::start(&runtime);
    let turns = computing.turns.clone();
    runtime.run(move || {
        // Five in a row: while its thread has no CPU, the computing one is without its P, and a yield is in vain.
        let mut followed = 0;
        let give_up = Instant::now() + Duration::from_secs(60);
        while followed < 5 {
            let before = turns.load(Relaxed);
            mungo::yield_now();
            followed = if turns.load(Relaxed) != before { followed + 1 } else { 0 };
            assert!(Instant::now() < give_up, "{followed} yields in a row");
        }
    });
    drop(computing);
    common::end(runtime);
}

/// Goroutines that wake each other share one slice, which ends; they are no goroutines that compute.
#[test]
fn a_pair_that_shares_slices_does_not_wait_behind_one_that_computes() {
    let runtime = Runtime::builder().procs(1).time_slice(Duration::from_millis(1)).build().unwrap();
    let rounds = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (ping, pinged) = chan::bounded::<()>(0);
    let (pong, ponged) = chan::bounded::<()>(0);
    runtime.spawn(move || while pinged.recv().is_ok() && pong.send(()).is_ok() {});
    let pair = runtime.spawn({
        let (rounds, stop) = (rounds.clone(), stop.clone());
        move || {
            while !stop.load(Relaxed) {
                ping.send(()).unwrap();
                ponged.recv().unwrap();
                rounds.fetch_add(1, Relaxed);
            }
        }
    });
    let computing = Computing::start(&runtime);
    for _ in 0..20 {
        let before = rounds.load(Relaxed);
        wait_until("the pair goes on", || rounds.load(Relaxed) > before + 1_000);
        computing.wait_for_turns(100);
    }
    stop.store(true, Relaxed);
    drop(computing);
    pair.join().unwrap();
    common::end(runtime);
}

#[test]
fn a_goroutine_alone_is_never_interrupted() {
    let runtime = Runtime::builder().procs(1).time_slice(Duration::from_micros(100)).build().unwrap();
    let computing = Computing::start(&runtime);
    let before = (preemptions(&runtime), runtime.metrics().interruptions);
    std::thread::sleep(Duration::from_millis(200)); // a while of many slices; the longer, the stricter
    computing.wait_for_turns(10_000);
    assert_eq!((preemptions(&runtime), runtime.metrics().interruptions), before);
    drop(computing);
    common::end(runtime);
}

/// The same for each P: as many goroutines as Ps.
#[test]
fn goroutines_with_a_proc_each_are_not_interrupted() {
    let runtime = Runtime::builder().procs(2).time_slice(Duration::from_micros(100)).build().unwrap();
    let computing = [Computing::start(&runtime), Computing::start(&runtime)];
    // A signal that was sent while the second one waited may come late.
    wait_until("none is interrupted in 100 ms of many slices", || {
        let before = runtime.metrics().interruptions;
        std::thread::sleep(Duration::from_millis(100));
        computing.iter().for_each(|c| c.wait_for_turns(10_000));
        runtime.metrics().interruptions == before
    });
    drop(computing);
    common::end(runtime);
}

/// None of them is fresh for long, and their slice does not end: after their first turns nothing interrupts them.
#[test]
fn among_goroutines_that_compute_only_the_end_of_a_slice_interrupts() {
    let runtime = patient_runtime();
    let ran = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..3 {
        let (stop, ran) = (stop.clone(), ran.clone());
        runtime.spawn(move || {
            ran.fetch_add(1, Relaxed);
            while !stop.load(Relaxed) {}
        });
    }
    wait_until("all have begun, so that none is fresh", || ran.load(Relaxed) == 3);
    wait_until("none is interrupted in 100 ms", || {
        let before = (preemptions(&runtime), runtime.metrics().interruptions);
        std::thread::sleep(Duration::from_millis(100));
        (preemptions(&runtime), runtime.metrics().interruptions) == before
    });
    stop.store(true, Relaxed);
    common::end(runtime);
}
