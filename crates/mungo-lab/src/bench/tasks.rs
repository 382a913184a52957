//! The micro-benchmarks on tokio's tasks. Tokio has no unbuffered channel: capacity 1 there.

use super::{Case, HOGS_RUN, LONGEST_TIMER, Lateness, Measure, NAP, TIMERS};
use crate::goroutines::ns_per;
use crate::machine::status_bytes;
use crate::rng::mix;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::{JoinHandle, yield_now};

pub(super) fn measure(case: Case, procs: usize) -> Measure {
    let runtime = Builder::new_multi_thread().worker_threads(procs).enable_time().build();
    let runtime = runtime.map_err(|e| format!("tokio cannot be started: {e}"))?;
    // On a worker, as a service would be; `block_on` itself is beside them.
    let on_worker = runtime.spawn(async move {
        match case {
            Case::Spawn => spawn(200_000).await,
            Case::Yield => yields(8, 1_000_000).await,
            Case::PingPong => pingpong(100_000).await,
            Case::Channel => channel(1_000_000).await,
            Case::Select => select(200_000).await,
            Case::Mutex => mutex(8, 50_000).await,
            Case::Timers => timers().await,
            Case::Memory => parked(100_000).await,
            Case::Wakeup | Case::WakeupByPriority | Case::WakeupByDeadline => wakeup().await,
        }
    });
    Ok(runtime.block_on(on_worker).expect("a benchmark does not panic"))
}

async fn join_all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.await.expect("a benchmark does not panic");
    }
}

async fn spawn(n: usize) -> f64 {
    const BATCH: usize = 1000;
    let start = Instant::now();
    for _ in 0..n / BATCH {
        join_all((0..BATCH).map(|_| tokio::spawn(async {})).collect()).await;
    }
    ns_per(start, n)
}

async fn yields(tasks: usize, n: usize) -> f64 {
    let each = n / tasks;
    let one = |_| {
        tokio::spawn(async move {
            for _ in 0..each {
                yield_now().await;
            }
        })
    };
    let start = Instant::now();
    join_all((0..tasks).map(one).collect()).await;
    ns_per(start, each * tasks)
}

async fn pingpong(n: usize) -> f64 {
    let (to, mut there) = mpsc::channel::<u64>(1);
    let (back, mut here) = mpsc::channel::<u64>(1);
    let start = Instant::now();
    let pong = tokio::spawn(async move {
        while let Some(ball) = there.recv().await {
            back.send(ball).await.unwrap();
        }
    });
    for i in 0..n {
        to.send(i as u64).await.unwrap();
        here.recv().await.unwrap();
    }
    drop(to);
    join_all(vec![pong]).await;
    ns_per(start, n)
}

async fn channel(n: usize) -> f64 {
    let (tx, mut rx) = mpsc::channel::<u64>(128);
    let start = Instant::now();
    let producer = tokio::spawn(async move {
        for i in 0..n {
            tx.send(i as u64).await.unwrap();
        }
    });
    let mut count = 0;
    while rx.recv().await.is_some() {
        count += 1;
    }
    assert_eq!(count, n);
    join_all(vec![producer]).await;
    ns_per(start, n)
}

async fn select(n: usize) -> f64 {
    let start = Instant::now();
    let mut keep = Vec::new();
    let channels: [mpsc::Receiver<u64>; 4] = std::array::from_fn(|_| {
        let (tx, rx) = mpsc::channel(1);
        keep.push(tx.clone());
        tokio::spawn(async move {
            for i in 0..n / 4 {
                tx.send(i as u64).await.unwrap();
            }
        });
        rx
    });
    let [mut one, mut two, mut three, mut four] = channels;
    let mut sum = 0;
    for _ in 0..n {
        sum += tokio::select! {
            Some(v) = one.recv() => v,
            Some(v) = two.recv() => v,
            Some(v) = three.recv() => v,
            Some(v) = four.recv() => v,
        };
    }
    std::hint::black_box(sum);
    ns_per(start, n)
}

async fn mutex(tasks: usize, each: usize) -> f64 {
    let lock = Arc::new(Mutex::new(0usize));
    let add = |_| {
        let lock = lock.clone();
        tokio::spawn(async move {
            for _ in 0..each {
                *lock.lock().await += 1;
            }
        })
    };
    let start = Instant::now();
    join_all((0..tasks).map(add).collect()).await;
    assert_eq!(*lock.lock().await, tasks * each);
    ns_per(start, tasks * each)
}

async fn timers() -> f64 {
    let longest_us = LONGEST_TIMER.as_micros() as u64;
    let nap = |i| tokio::spawn(tokio::time::sleep(Duration::from_micros(mix(i) % longest_us)));
    let start = Instant::now();
    join_all((0..TIMERS as u64).map(nap).collect()).await;
    (start.elapsed().as_secs_f64() - LONGEST_TIMER.as_secs_f64()) * 1e3
}

/// Only a plain thread can end those that compute: the workers are busy with them.
async fn wakeup() -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(HOGS_RUN);
        stopped.store(true, Relaxed);
    });
    let compute = |_| {
        let stop = stop.clone();
        tokio::spawn(async move { super::hog(&stop) })
    };
    let hogs = (0..super::HOGS).map(compute).collect();
    let mut late = Lateness::new();
    while late.goes_on() {
        let due = Instant::now() + NAP;
        tokio::time::sleep_until(due.into()).await;
        late.note(due);
    }
    join_all(hogs).await;
    late.p99_us()
}

async fn parked(n: usize) -> f64 {
    let gate = Arc::new(Semaphore::new(0));
    let before = status_bytes("VmRSS");
    let wait = |_| {
        let gate = gate.clone();
        tokio::spawn(async move { _ = gate.acquire().await.expect("the gate opens") })
    };
    let tasks = (0..n).map(wait).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let rss = status_bytes("VmRSS") - before;
    gate.add_permits(n);
    join_all(tasks).await;
    rss / n as f64
}
