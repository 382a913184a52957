//! Everything at once, from a seed: nothing is lost.

mod common;

use common::{Rng, end, hasty_runtime, runtime, stress_time};
use mungo::{Goroutine, JoinHandle, Runtime, go, park, park_timeout, scope, sleep, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Counts {
    started: AtomicU64,
    ended: AtomicU64,
    panicked: AtomicU64,
    caught: AtomicU64,
    /// The goroutines that may be unparked, at any time, by any other.
    parked: Mutex<Vec<Goroutine>>,
}

/// Counts its goroutine's end, however it comes.
struct Life<'a>(&'a Counts);

impl<'a> Life<'a> {
    fn new(counts: &'a Counts) -> Self {
        counts.started.fetch_add(1, SeqCst);
        Life(counts)
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

fn child(counts: &Arc<Counts>, seed: u64, depth: u32) -> JoinHandle<()> {
    let counts = counts.clone();
    go(move || act(&counts, Rng::new(seed), depth))
}

/// A short life of random deeds.
fn act(counts: &Arc<Counts>, mut rng: Rng, depth: u32) {
    let _life = Life::new(counts);
    let mut memory: Vec<Vec<u8>> = Vec::new();
    for _ in 0..rng.below(20) {
        match rng.below(12) {
            0 | 1 => yield_now(),
            2 => sleep(Duration::from_nanos(rng.below(100_000))),
            3 => park_timeout(Duration::from_nanos(rng.below(100_000))),
            4 => {
                counts.parked.lock().unwrap().push(mungo::current());
                // Somebody unparks it, if not the end of its time does.
                park_timeout(Duration::from_millis(20));
            }
            5 => {
                // Not under the lock: whoever unparks may lose its slice.
                let g = counts.parked.lock().unwrap().pop();
                g.iter().for_each(Goroutine::unpark);
            }
            6 if depth < 3 => {
                // Detached, so it keeps its panic to itself.
                let (counts, rng) = (counts.clone(), Rng::new(rng.next()));
                go(move || {
                    if catch_unwind(AssertUnwindSafe(|| act(&counts, rng, depth + 1))).is_err() {
                        counts.caught.fetch_add(1, SeqCst);
                    }
                });
            }
            7 if depth < 3 => {
                if child(counts, rng.next(), depth + 1).join().is_err() {
                    counts.caught.fetch_add(1, SeqCst);
                }
            }
            8 if depth < 2 => {
                let n = AtomicU64::new(0);
                scope(|s| {
                    (0..3).for_each(|_| {
                        s.spawn(|| {
                            yield_now();
                            n.fetch_add(1, SeqCst);
                        });
                    });
                });
                assert_eq!(n.load(SeqCst), 3);
            }
            9 => {
                let _guard = mungo::lock_os_thread();
                let tid = common::gettid();
                yield_now();
                sleep(Duration::from_nanos(rng.below(20_000)));
                assert_eq!(tid, common::gettid());
            }
            10 => memory.push(vec![depth as u8; 1 + rng.below(5000) as usize]),
            11 if rng.below(10) == 0 && depth > 0 => {
                counts.panicked.fetch_add(1, SeqCst);
                resume_unwind(Box::new(depth)); // quietly
            }
            _ => _ = memory.pop(),
        }
    }
    assert!(memory.iter().flatten().all(|b| u32::from(*b) == depth));
}

fn mixture(rt: Runtime, mut rng: Rng, change_procs: bool) {
    let counts: Arc<Counts> = Arc::default();
    let time = stress_time(Duration::from_secs(2));
    let start = Instant::now();
    let spawned = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            let (counts, rt, spawned, mut rng) = (&counts, &rt, &spawned, Rng::new(rng.next()));
            s.spawn(move || {
                while start.elapsed() < time {
                    let all: Vec<_> = (0..1 + rng.below(30))
                        .map(|_| {
                            let (counts, seed) = (counts.clone(), rng.next());
                            spawned.fetch_add(1, SeqCst);
                            rt.spawn(move || act(&counts, Rng::new(seed), 0))
                        })
                        .collect();
                    all.into_iter().for_each(|h| h.join().expect("only children panic"));
                    if change_procs {
                        rt.set_procs(1 + rng.below(8) as usize).unwrap();
                    }
                }
            });
        }
    });
    end(rt);
    let [started, ended, panicked, caught] =
        [&counts.started, &counts.ended, &counts.panicked, &counts.caught].map(|c| c.load(SeqCst));
    assert_eq!(started, ended, "lost");
    assert!(started >= spawned.load(SeqCst));
    assert_eq!(panicked, caught);
}

#[test]
fn stress_mixture() {
    mixture(runtime(2), Rng::seeded("stress_mixture"), false);
}

#[test]
fn stress_mixture_with_short_slices() {
    mixture(hasty_runtime(3), Rng::seeded("stress_mixture_with_short_slices"), false);
}

#[test]
fn stress_mixture_while_ps_come_and_go() {
    mixture(hasty_runtime(4), Rng::seeded("stress_mixture_while_ps_come_and_go"), true);
}

/// Rings of goroutines pass a token on, over all runtimes.
#[test]
fn stress_token_rings() {
    let mut rng = Rng::seeded("stress_token_rings");
    let runtimes = [runtime(1), runtime(3)];
    let stop = Arc::new(AtomicBool::new(false));
    let hops = Arc::new(AtomicUsize::new(0));
    let mut all = Vec::new();
    for _ in 0..8 {
        let n = 2 + rng.below(20) as usize;
        let slots: Arc<Vec<(AtomicU64, Mutex<Option<Goroutine>>)>> =
            Arc::new((0..n).map(|_| Default::default()).collect());
        let mut ring = Vec::new();
        for i in 0..n {
            let (slots, stop, hops) = (slots.clone(), stop.clone(), hops.clone());
            let rt = &runtimes[rng.below(2) as usize];
            ring.push(rt.spawn(move || {
                let mut seen = 0;
                loop {
                    while slots[i].0.load(Acquire) == seen {
                        if stop.load(Acquire) {
                            return;
                        }
                        park();
                    }
                    seen += 1;
                    hops.fetch_add(1, Relaxed);
                    let next = &slots[(i + 1) % slots.len()];
                    next.0.fetch_add(1, Release);
                    let g = next.1.lock().unwrap().clone();
                    g.iter().for_each(Goroutine::unpark);
                }
            }));
        }
        for (slot, h) in slots.iter().zip(&ring) {
            *slot.1.lock().unwrap() = Some(h.goroutine());
            h.goroutine().unpark();
        }
        slots[0].0.fetch_add(1, Release);
        ring[0].goroutine().unpark();
        all.extend(ring);
    }
    std::thread::sleep(stress_time(Duration::from_millis(1500)));
    let before = hops.load(Relaxed);
    common::wait_until("the tokens still move", || hops.load(Relaxed) > before + 8);
    stop.store(true, Release);
    all.iter().for_each(|h| h.goroutine().unpark());
    all.into_iter().for_each(|h| h.join().unwrap());
    runtimes.into_iter().for_each(end);
}
