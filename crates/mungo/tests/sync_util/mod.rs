//! Workers of all kinds, and random numbers that can be repeated.
#![allow(dead_code)] // WHY: each test file uses a part of it

use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kind of thread that does the work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Goroutines,
    Threads,
    Mixed,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Goroutines, Kind::Threads, Kind::Mixed];

/// Runs `f(i)` for each `i` below `n`, all at once, by workers of this kind, and returns what they returned.
pub(crate) fn run<T: Send + 'static>(
    kind: Kind,
    n: usize,
    f: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    enum Worker<T> {
        Goroutine(mungo::JoinHandle<T>),
        Thread(std::thread::JoinHandle<T>),
    }
    let f = Arc::new(f);
    let workers: Vec<_> = (0..n)
        .map(|i| {
            let f = f.clone();
            match kind {
                Kind::Goroutines => Worker::Goroutine(mungo::go(move || f(i))),
                Kind::Mixed if i % 2 == 0 => Worker::Goroutine(mungo::go(move || f(i))),
                _ => Worker::Thread(std::thread::spawn(move || f(i))),
            }
        })
        .collect();
    let join = |worker| match worker {
        Worker::Goroutine(g) => g.join(),
        Worker::Thread(t) => t.join(),
    };
    workers.into_iter().map(|w| join(w).unwrap_or_else(|payload| std::panic::resume_unwind(payload))).collect()
}

/// On two Ps at least, whatever machine this is.
pub(crate) fn on_two_procs<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    mungo::Runtime::builder().procs(2).build().unwrap().run(f)
}

/// xorshift.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// The seed of this run, printed so that a failure can be repeated.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("MUNGO_STRESS_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |d| d.as_nanos() as u64)
    });
    eprintln!("MUNGO_STRESS_SEED={seed}");
    seed
}

/// Less work without optimisation.
pub(crate) fn scaled(n: usize) -> usize {
    if cfg!(debug_assertions) { n / 10 } else { n }
}

/// Rounds, from 1 on, of two threads that meet in each. They end early after [`MEETING_TIME`]: two threads that share a
/// CPU with others need milliseconds for a round instead of microseconds.
pub(crate) fn meetings(rounds: usize) -> impl Iterator<Item = usize> {
    let start = Instant::now();
    (1..=rounds).take_while(move |_| start.elapsed() < MEETING_TIME)
}

/// See [`meetings`].
const MEETING_TIME: Duration = Duration::from_secs(10);

/// Told to the other thread when there are no more [`meetings`].
pub(crate) const NO_MORE: usize = usize::MAX;

/// Quick where both have a CPU, and not in the way where they share one.
pub(crate) fn spin_until(holds: impl Fn() -> bool) {
    for spins in 0.. {
        if holds() {
            return;
        }
        match spins < 1000 {
            true => std::hint::spin_loop(),
            false => std::thread::yield_now(),
        }
    }
}
