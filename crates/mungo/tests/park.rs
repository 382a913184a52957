//! `park` and `unpark`, `park_timeout`, `sleep`.

mod common;

use common::{end, hasty_runtime, runtime, stress_time, wait_until};
use mungo::{current, go, park, park_timeout, sleep};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::time::{Duration, Instant};

#[test]
fn a_token_that_came_first_ends_the_next_park() {
    go(|| {
        current().unpark();
        park();
    })
    .join()
    .unwrap();
}

#[test]
fn tokens_do_not_add_up() {
    go(|| {
        (0..10).for_each(|_| current().unpark());
        park();
        let start = Instant::now();
        park_timeout(Duration::from_millis(2)); // the other nine are gone
        assert!(start.elapsed() >= Duration::from_millis(2));
    })
    .join()
    .unwrap();
}

#[test]
fn a_token_ends_park_timeout_at_once() {
    go(|| {
        current().unpark();
        park_timeout(Duration::MAX);
    })
    .join()
    .unwrap();
}

#[test]
fn unpark_ends_a_park_timeout_without_end() {
    let waiting = go(|| park_timeout(Duration::MAX));
    waiting.goroutine().unpark();
    waiting.join().unwrap();
}

#[test]
fn plain_threads_park_too() {
    let (tx, rx) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        tx.send(current()).unwrap();
        park();
        park_timeout(Duration::from_millis(1));
    });
    rx.recv().unwrap().unpark();
    thread.join().unwrap();
}

#[test]
fn park_timeout_and_sleep_are_never_early() {
    let workers: Vec<_> = (0..200u64)
        .map(|i| {
            go(move || {
                for k in 0..10 {
                    let d = Duration::from_micros((i * 37 + k * 211) % 3000);
                    let start = Instant::now();
                    if i % 2 == 0 {
                        park_timeout(d)
                    } else {
                        sleep(d)
                    }
                    assert!(start.elapsed() >= d, "{:?} instead of {d:?}", start.elapsed());
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn no_time_is_a_time() {
    go(|| {
        sleep(Duration::ZERO);
        park_timeout(Duration::ZERO);
        sleep(Duration::from_nanos(1));
    })
    .join()
    .unwrap();
    sleep(Duration::ZERO);
}

/// Whoever loses its slice while it arms its own wake-up is in a run queue when that comes.
#[test]
fn a_timer_may_fire_while_the_slice_ends() {
    let rt = hasty_runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..16u64)
        .map(|i| {
            let (stop, rounds) = (stop.clone(), rounds.clone());
            rt.spawn(move || {
                while !stop.load(Relaxed) {
                    rounds.fetch_add(1, Relaxed);
                    let start = Instant::now();
                    while start.elapsed() < Duration::from_micros(50 * i) {}
                    match i % 3 {
                        0 => sleep(Duration::from_nanos(1)),
                        1 => park_timeout(Duration::from_nanos(100)),
                        _ => sleep(Duration::from_micros(i)),
                    }
                    current().unpark();
                    park();
                }
            })
        })
        .collect();
    std::thread::sleep(stress_time(Duration::from_millis(700)));
    stop.store(true, Relaxed);
    workers.into_iter().for_each(|w| w.join().unwrap());
    assert!(rounds.load(Relaxed) > 0);
    end(rt);
}

/// Each wake-up comes with data; a park that takes a token must see the data of every unpark before.
fn unparkers_race(rt: &mungo::Runtime, plain_threads: bool, time: Duration) {
    const WAKERS: usize = 2;
    let wanted: Arc<[AtomicU64; WAKERS]> = Arc::default();
    let seen: Arc<[AtomicU64; WAKERS]> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let sleeper = {
        let (wanted, seen, stop) = (wanted.clone(), seen.clone(), stop.clone());
        rt.spawn(move || {
            while !stop.load(Acquire) {
                let mut news = false;
                for (w, s) in wanted.iter().zip(seen.iter()) {
                    let now = w.load(Relaxed);
                    if s.load(Relaxed) != now {
                        s.store(now, Release);
                        news = true;
                    }
                }
                if !news {
                    park();
                }
            }
        })
    };
    let waker = |i: usize| {
        let (wanted, seen, g) = (wanted.clone(), seen.clone(), sleeper.goroutine());
        move || {
            let start = Instant::now();
            let mut n = 0;
            while start.elapsed() < time {
                n += 1;
                wanted[i].store(n, Relaxed);
                g.unpark();
                let mut spins = 0u64;
                while seen[i].load(Acquire) != n {
                    spins += 1;
                    if spins.is_multiple_of(64) {
                        mungo::yield_now();
                    }
                    if spins.is_multiple_of(1024) {
                        assert!(start.elapsed() < time + common::PATIENCE, "waker {i}: wake-up {n} was lost");
                    }
                }
            }
            n
        }
    };
    let total: u64 = if plain_threads {
        let threads: Vec<_> = (0..WAKERS).map(|i| std::thread::spawn(waker(i))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    } else {
        let gs: Vec<_> = (0..WAKERS).map(|i| rt.spawn(waker(i))).collect();
        gs.into_iter().map(|g| g.join().unwrap()).sum()
    };
    assert!(total > 0);
    stop.store(true, Release);
    sleeper.goroutine().unpark();
    sleeper.join().unwrap();
}

#[test]
fn no_wakeup_is_lost_among_goroutines() {
    let rt = runtime(3);
    unparkers_race(&rt, false, stress_time(Duration::from_millis(700)));
    end(rt);
}

#[test]
fn no_wakeup_is_lost_from_plain_threads() {
    let rt = runtime(1);
    unparkers_race(&rt, true, stress_time(Duration::from_millis(700)));
    end(rt);
}

/// The time-out and the unpark come at the same moment, again and again.
#[test]
fn unpark_races_with_the_timeout() {
    let rt = runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let sleeper = {
        let (stop, rounds) = (stop.clone(), rounds.clone());
        rt.spawn(move || {
            let mut k = 0;
            while !stop.load(Relaxed) {
                k += 1;
                park_timeout(Duration::from_nanos(k * 97 % 5000));
                rounds.fetch_add(1, Relaxed);
            }
        })
    };
    let g = sleeper.goroutine();
    let start = Instant::now();
    let time = stress_time(Duration::from_millis(700));
    while start.elapsed() < time {
        g.unpark();
        (0..rounds.load(Relaxed) % 64).for_each(|k| _ = std::hint::black_box(k));
    }
    stop.store(true, Relaxed);
    sleeper.join().unwrap();
    end(rt);
}

#[test]
fn unpark_of_a_dead_goroutine_does_nothing() {
    let rt = runtime(1);
    let g = rt.run(current);
    let h = rt.spawn(|| ());
    let (g2, _) = (h.goroutine(), h.join());
    g.unpark();
    g2.unpark();
    // Its G is not reused as long as there is a handle: nobody else is woken.
    let other = rt.spawn(|| {
        let start = Instant::now();
        park_timeout(Duration::from_millis(3));
        assert!(start.elapsed() >= Duration::from_millis(3));
    });
    (0..100).for_each(|_| g.unpark());
    other.join().unwrap();
    end(rt);
    g.unpark();
    g2.unpark();
    assert_eq!(g.name(), Some("main"));
}

#[test]
fn goroutines_of_other_runtimes_unpark() {
    let (a, b) = (runtime(1), runtime(1));
    let rounds = 2000u64;
    let n = Arc::new(AtomicU64::new(0));
    let sleeper = {
        let n = n.clone();
        a.spawn(move || {
            for i in 0..rounds {
                while n.load(Acquire) <= i {
                    park();
                }
            }
        })
    };
    let (g, m) = (sleeper.goroutine(), n.clone());
    b.run(move || {
        for _ in 0..rounds {
            m.fetch_add(1, Release);
            g.unpark();
            mungo::yield_now();
        }
    });
    sleeper.join().unwrap();
    end(a);
    end(b);
}

#[test]
fn very_many_sleep() {
    let n = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    let rt = runtime(2);
    let (awake, early) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for i in 0..n {
        let (awake, early) = (awake.clone(), early.clone());
        rt.spawn(move || {
            let d = Duration::from_micros(500_000 + i as u64 % 1000);
            let start = Instant::now();
            sleep(d);
            early.fetch_add(usize::from(start.elapsed() < d), Relaxed);
            awake.fetch_add(1, SeqCst);
        });
    }
    wait_until("all woke up", || awake.load(SeqCst) == n);
    assert_eq!(early.load(SeqCst), 0);
    end(rt);
}
