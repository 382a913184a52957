//! The micro-benchmarks on OS threads, with crossbeam's channels and std's locks.

use super::{Case, Measure, not_available};
use crate::goroutines::ns_per;
use crate::machine::status_bytes;
use crossbeam_channel as chan;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Threads are slow to start: fewer of everything. Figures are for one operation.
pub(super) fn measure(case: Case) -> Measure {
    Ok(match case {
        Case::Spawn => spawn(2_000),
        Case::Yield => yields(8, 100_000),
        Case::PingPong => pingpong(10_000),
        Case::Channel => channel(300_000),
        Case::Select => select(40_000),
        Case::Mutex => mutex(8, 20_000),
        Case::Timers => return not_available("a thread for each of 100,000 timers"),
        Case::Memory => return parked(2_000),
        Case::Wakeup | Case::WakeupByPriority | Case::WakeupByDeadline => wakeup(),
    })
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().expect("a benchmark does not panic"));
}

fn spawn(n: usize) -> f64 {
    const BATCH: usize = 100;
    let start = Instant::now();
    for _ in 0..n / BATCH {
        join_all((0..BATCH).map(|_| thread::spawn(|| {})).collect());
    }
    ns_per(start, n)
}

fn yields(tasks: usize, n: usize) -> f64 {
    let each = n / tasks;
    let start = Instant::now();
    join_all((0..tasks).map(|_| thread::spawn(move || (0..each).for_each(|_| thread::yield_now()))).collect());
    ns_per(start, each * tasks)
}

fn pingpong(n: usize) -> f64 {
    let (to, there) = chan::bounded::<u64>(0);
    let (back, here) = chan::bounded::<u64>(0);
    let start = Instant::now();
    let pong = thread::spawn(move || there.iter().for_each(|ball| back.send(ball).unwrap()));
    for i in 0..n {
        to.send(i as u64).unwrap();
        here.recv().unwrap();
    }
    drop(to);
    join_all(vec![pong]);
    ns_per(start, n)
}

fn channel(n: usize) -> f64 {
    let (tx, rx) = chan::bounded::<u64>(128);
    let start = Instant::now();
    let producer = thread::spawn(move || (0..n).for_each(|i| tx.send(i as u64).unwrap()));
    assert_eq!(rx.iter().count(), n);
    join_all(vec![producer]);
    ns_per(start, n)
}

fn select(n: usize) -> f64 {
    let start = Instant::now();
    let mut keep = Vec::new();
    let channels: [chan::Receiver<u64>; 4] = std::array::from_fn(|_| {
        let (tx, rx) = chan::bounded(0);
        keep.push(tx.clone());
        thread::spawn(move || (0..n / 4).for_each(|i| tx.send(i as u64).unwrap()));
        rx
    });
    let [one, two, three, four] = &channels;
    let mut sum = 0;
    for _ in 0..n {
        chan::select! {
            recv(one) -> v => sum += v.unwrap(),
            recv(two) -> v => sum += v.unwrap(),
            recv(three) -> v => sum += v.unwrap(),
            recv(four) -> v => sum += v.unwrap(),
        }
    }
    black_box(sum);
    ns_per(start, n)
}

fn mutex(tasks: usize, each: usize) -> f64 {
    let lock = Arc::new(Mutex::new(0usize));
    let start = Instant::now();
    let add = |_| {
        let lock = lock.clone();
        thread::spawn(move || (0..each).for_each(|_| *lock.lock().unwrap() += 1))
    };
    join_all((0..tasks).map(add).collect());
    assert_eq!(*lock.lock().unwrap(), tasks * each);
    ns_per(start, tasks * each)
}

fn wakeup() -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let compute = |_| {
        let stop = stop.clone();
        thread::spawn(move || super::hog(&stop))
    };
    let hogs = (0..super::HOGS).map(compute).collect();
    let late = super::lateness(|due| thread::sleep(due.saturating_duration_since(Instant::now())));
    stop.store(true, Relaxed);
    join_all(hogs);
    late
}

fn parked(n: usize) -> Measure {
    let (started, all_started) = chan::bounded::<()>(n);
    let (keep, parked) = chan::bounded::<()>(0);
    let before = status_bytes("VmRSS");
    let mut threads = Vec::new();
    for _ in 0..n {
        let (started, parked) = (started.clone(), parked.clone());
        let thread = thread::Builder::new().spawn(move || {
            started.send(()).expect("the main thread counts");
            _ = parked.recv();
        });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(e) => return not_available(&format!("the system refused thread {}: {e}", threads.len())),
        }
    }
    (0..n).for_each(|_| all_started.recv().expect("all start"));
    thread::sleep(Duration::from_millis(100)); // until they have settled down in their receives
    let rss = status_bytes("VmRSS") - before;
    drop(keep);
    join_all(threads);
    Ok(rss / n as f64)
}
