//! The micro-benchmarks on goroutines. `mungo bench` and `contestant` share them; what each does is fixed by the peers
//! that it is compared with.

use crate::machine::status_bytes;
use crate::rng::mix;
use mungo::chan;
use mungo::sync::{Mutex, WaitGroup};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Nanoseconds since `since` for each of `n` things.
pub fn ns_per(since: Instant, n: usize) -> f64 {
    since.elapsed().as_nanos() as f64 / n as f64
}

fn join_all(handles: Vec<mungo::JoinHandle<()>>) {
    handles.into_iter().for_each(|h| h.join().expect("a benchmark does not panic"));
}

/// Spawns `n` trivial goroutines in batches and waits for each batch: ns for one.
pub fn spawn_join(n: usize, batch: usize) -> f64 {
    let start = Instant::now();
    for _ in 0..n / batch {
        join_all((0..batch).map(|_| mungo::go(|| {})).collect());
    }
    ns_per(start, n / batch * batch)
}

/// `tasks` goroutines yield `n` times in total: ns for one switch.
pub fn yields(tasks: usize, n: usize) -> f64 {
    let each = n / tasks;
    let start = Instant::now();
    join_all((0..tasks).map(|_| mungo::go(move || (0..each).for_each(|_| mungo::yield_now()))).collect());
    ns_per(start, each * tasks)
}

/// Calls `f`, with a number of `calls` in between.
#[inline(never)]
fn deeper(calls: usize, f: &mut dyn FnMut()) {
    match calls {
        0 => f(),
        _ => deeper(calls - 1, f),
    }
    std::hint::black_box(()); // the call above stays one
}

/// Two goroutines, two unbuffered channels: ns for one round trip. Both are `depth` calls deeper than they need be, for
/// traces with stacks.
pub fn pingpong(n: usize, depth: usize) -> f64 {
    let (to, from_there) = chan::bounded::<u64>(0);
    let (back, from_here) = chan::bounded::<u64>(0);
    let start = Instant::now();
    let mut answer = move || (0..n).for_each(|_| back.send(from_there.recv().unwrap()).unwrap());
    let mut ask = move || {
        for i in 0..n {
            to.send(i as u64).unwrap();
            from_here.recv().unwrap();
        }
    };
    let pong = mungo::go(move || deeper(depth, &mut answer));
    let ping = mungo::go(move || deeper(depth, &mut ask));
    join_all(vec![ping, pong]);
    ns_per(start, n)
}

/// `n` numbers through one channel of capacity `cap`: ns for one.
pub fn chan_buf(n: usize, producers: usize, consumers: usize, cap: usize) -> f64 {
    let (tx, rx) = chan::bounded::<u64>(cap);
    let start = Instant::now();
    for _ in 0..producers {
        let tx = tx.clone();
        mungo::go(move || (0..n / producers).for_each(|i| tx.send(i as u64).unwrap()));
    }
    drop(tx);
    let consume = |_| {
        let rx = rx.clone();
        mungo::go(move || rx.iter().count())
    };
    let counts: Vec<_> = (0..consumers).map(consume).collect();
    let total: usize = counts.into_iter().map(|c| c.join().unwrap()).sum();
    assert_eq!(total, n / producers * producers);
    ns_per(start, total)
}

/// One goroutine selects over four channels with a producer each: ns for one message.
pub fn select(n: usize, cap: usize) -> f64 {
    let start = Instant::now();
    let mut keep = Vec::new();
    let channels: [chan::Receiver<u64>; 4] = std::array::from_fn(|_| {
        let (tx, rx) = chan::bounded(cap);
        keep.push(tx.clone());
        mungo::go(move || (0..n / 4).for_each(|j| tx.send(j as u64).unwrap()));
        rx
    });
    let [one, two, three, four] = &channels;
    let mut sum = 0;
    for _ in 0..n / 4 * 4 {
        mungo::select! {
            recv(one) -> v => sum += v.unwrap(),
            recv(two) -> v => sum += v.unwrap(),
            recv(three) -> v => sum += v.unwrap(),
            recv(four) -> v => sum += v.unwrap(),
        }
    }
    black_box(sum);
    ns_per(start, n / 4 * 4)
}

/// A tree of goroutines with `size` leaves, numbered from `id` on; sends their sum.
pub fn sky(c: &chan::Sender<u64>, id: u64, size: u64) {
    if size == 1 {
        return c.send(id).unwrap();
    }
    let (tx, rx) = chan::bounded(0);
    for i in 0..10 {
        let tx = tx.clone();
        mungo::go(move || sky(&tx, id + i * (size / 10), size / 10));
    }
    c.send((0..10).map(|_| rx.recv().unwrap()).sum()).unwrap();
}

/// `tasks` goroutines lock, add one and unlock, `each` times: ns for one.
pub fn mutex(tasks: usize, each: usize) -> f64 {
    let lock = Arc::new(Mutex::new(0usize));
    let start = Instant::now();
    let add = |_| {
        let lock = lock.clone();
        mungo::go(move || (0..each).for_each(|_| *lock.lock() += 1))
    };
    join_all((0..tasks).map(add).collect());
    assert_eq!(*lock.lock(), tasks * each);
    ns_per(start, tasks * each)
}

/// `n` goroutines sleep for a pseudo-random part of `longest`: from the first spawn to the last end, and the time that
/// the spawning took.
pub fn timers(n: usize, longest: Duration) -> (Duration, Duration) {
    let start = Instant::now();
    let longest_us = longest.as_micros() as u64;
    let nap = |i: usize| {
        let nap = Duration::from_micros(mix(i as u64) % longest_us);
        mungo::go(move || mungo::sleep(nap))
    };
    let handles = (0..n).map(nap).collect();
    let created = start.elapsed();
    join_all(handles);
    (start.elapsed(), created)
}

/// The sleeper that `builder` makes, among goroutines that compute: how late it wakes up, see `lateness`.
pub(super) fn wakeup(builder: mungo::Builder) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let compute = |_| {
        let stop = stop.clone();
        mungo::go(move || super::hog(&stop))
    };
    let hogs = (0..super::HOGS).map(compute).collect();
    let sleeper = builder.spawn(|| super::lateness(mungo::time::sleep_until)).expect("a goroutine");
    let late = sleeper.join().expect("a benchmark does not panic");
    stop.store(true, Relaxed);
    join_all(hogs);
    late
}

/// What parked goroutines cost.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    /// Resident bytes for each.
    pub rss: f64,
    /// Bytes of page tables for each.
    pub tables: f64,
    /// From the first spawn until all had begun to wait.
    pub create: Duration,
    /// From the first wake-up until all had ended.
    pub wake: Duration,
}

/// `n` goroutines wait on one channel.
pub fn parked(n: usize) -> Parked {
    let (tx, rx) = chan::bounded::<u64>(0);
    let started = Arc::new(AtomicUsize::new(0));
    let all = Arc::new(WaitGroup::new());
    all.add(n);
    let (rss, tables) = (status_bytes("VmRSS"), status_bytes("VmPTE"));
    let start = Instant::now();
    for _ in 0..n {
        let (started, rx, all) = (started.clone(), rx.clone(), all.clone());
        mungo::go(move || {
            started.fetch_add(1, Relaxed);
            rx.recv().expect("a message");
            all.done();
        });
    }
    while started.load(Relaxed) != n {
        mungo::sleep(Duration::from_millis(1));
    }
    let create = start.elapsed();
    mungo::sleep(Duration::from_millis(100));
    let (rss, tables) = (status_bytes("VmRSS") - rss, status_bytes("VmPTE") - tables);
    let start = Instant::now();
    (0..n).for_each(|_| tx.send(1).expect("receivers wait"));
    all.wait();
    Parked { rss: rss / n as f64, tables: tables / n as f64, create, wake: start.elapsed() }
}
