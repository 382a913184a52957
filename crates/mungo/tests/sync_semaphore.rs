//! Semaphore and Pool.

mod sync_util;

use mungo::sync::{Pool, Semaphore};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sync_util::{KINDS, Kind, Rng, on_two_procs, run, scaled, seed};

#[test]
fn never_more_than_there_are() {
    for kind in KINDS {
        let semaphore = Arc::new(Semaphore::new(3));
        let inside = Arc::new(AtomicUsize::new(0));
        let shared = semaphore.clone();
        run(kind, 8, move |i| {
            for _ in 0..scaled(3_000) {
                let n = 1 + i % 3;
                let permit = shared.acquire_many(n);
                assert_eq!(permit.count(), n);
                assert!(inside.fetch_add(n, Relaxed) + n <= 3);
                if i == 0 {
                    mungo::yield_now();
                }
                inside.fetch_sub(n, Relaxed);
            }
        });
        assert_eq!(semaphore.available_permits(), 3, "{kind:?}");
    }
}

#[test]
fn who_came_first_is_served_first() {
    on_two_procs(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let order = Arc::new(mungo::sync::Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        // The first asks for two, so that the second, which asks for one, could overtake if it were let.
        for (i, n) in [2, 1, 1].into_iter().enumerate() {
            let (shared, order) = (semaphore.clone(), order.clone());
            waiting.push(mungo::go(move || {
                shared.acquire_many(n).forget();
                order.lock().push(i);
            }));
            // Parked, or at least the state says that somebody is: and the others have not started.
            let queued = |s: &Semaphore| format!("{s:?}").contains("waiters: true");
            while !queued(&semaphore) {
                mungo::yield_now();
            }
            // In line, then, probably; should it not be, the test still holds for the first.
            mungo::sleep(Duration::from_millis(2));
        }
        semaphore.add_permits(1);
        assert!(semaphore.try_acquire().is_none(), "nobody overtakes");
        assert!(order.lock().is_empty(), "one is not enough for the first");
        semaphore.add_permits(1);
        while order.lock().is_empty() {
            mungo::yield_now();
        }
        assert_eq!(*order.lock(), [0]);
        semaphore.add_permits(2);
        waiting.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(semaphore.available_permits(), 0);
    });
}

#[test]
fn timeouts_are_never_early_and_let_the_next_one_pass() {
    for kind in [Kind::Goroutines, Kind::Threads] {
        let semaphore = Arc::new(Semaphore::new(1));
        let held = semaphore.clone().acquire_owned(1);
        let shared = semaphore.clone();
        run(kind, 3, move |i| {
            let (start, timeout) = (Instant::now(), Duration::from_millis(2 * i as u64));
            assert!(shared.acquire_timeout(timeout).is_none());
            assert!(start.elapsed() >= timeout);
            let deadline = Instant::now() + timeout;
            assert!(shared.acquire_deadline(deadline).is_none());
            assert!(Instant::now() >= deadline);
        });
        drop(held);
        assert!(semaphore.try_acquire().is_some(), "{kind:?}");
    }
}

#[test]
fn a_big_one_that_gives_up_is_not_in_the_way() {
    let semaphore = Arc::new(Semaphore::new(1));
    let big = semaphore.clone();
    // It waits for a second permit that never comes, and blocks the small ones only until it gives up.
    let big = mungo::go(move || {
        let _one = big.acquire();
        big.acquire_timeout(Duration::from_millis(20)).is_some()
    });
    let small = semaphore.clone();
    let small = mungo::go(move || drop(small.acquire()));
    assert!(!big.join().unwrap());
    small.join().unwrap();
    assert_eq!(semaphore.available_permits(), 1);
}

/// There are no permits, and the second one wants none: it has to wait only as long as it is not the first.
#[test]
fn one_that_gives_up_lets_the_next_in_line_pass() {
    let semaphore = Arc::new(Semaphore::new(0));
    let (first, second) = (semaphore.clone(), semaphore.clone());
    let first = mungo::go(move || first.acquire_timeout(Duration::from_millis(50)).is_some());
    while !first.is_finished() && !format!("{semaphore:?}").contains("waiters: true") {
        mungo::sleep(Duration::from_micros(100));
    }
    let second = mungo::go(move || drop(second.acquire_many(0)));
    assert!(!first.join().unwrap());
    second.join().unwrap();
}

#[test]
fn permits_can_be_added_and_forgotten() {
    let semaphore = Semaphore::new(0);
    assert!(semaphore.try_acquire().is_none());
    semaphore.add_permits(5);
    semaphore.acquire_many(2).forget();
    assert_eq!(semaphore.available_permits(), 3);
    assert!(semaphore.try_acquire_many(4).is_none());
    drop(semaphore.acquire_many(0));
    let too_many = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        semaphore.add_permits(Semaphore::MAX_PERMITS);
    }));
    assert!(too_many.is_err());
    assert_eq!(semaphore.available_permits(), 3);
}

/// What is refused changes nothing, also for those that wait.
#[test]
fn too_many_permits_are_not_given_to_those_that_wait() {
    let semaphore = Arc::new(Semaphore::new(1));
    let waiter = {
        let semaphore = semaphore.clone();
        std::thread::spawn(move || semaphore.acquire_many(3).count())
    };
    let start = Instant::now();
    while !format!("{semaphore:?}").contains("waiters: true") {
        assert!(start.elapsed().as_secs() < 60, "it does not wait");
        std::thread::yield_now();
    }
    let too_many = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        semaphore.add_permits(Semaphore::MAX_PERMITS);
    }));
    assert!(too_many.is_err());
    assert_eq!(semaphore.available_permits(), 1);
    semaphore.add_permits(2);
    assert_eq!(waiter.join().unwrap(), 3);
}

#[test]
fn stress_semaphore() {
    let seed = seed();
    for kind in KINDS {
        let semaphore = Arc::new(Semaphore::new(5));
        let inside = Arc::new(AtomicUsize::new(0));
        let shared = semaphore.clone();
        run(kind, 8, move |i| {
            let mut rng = Rng::new(seed ^ i as u64);
            for _ in 0..scaled(5_000) {
                let permit = match rng.below(4) {
                    0 => shared.acquire_timeout(Duration::from_nanos(rng.below(30_000))),
                    1 => shared.try_acquire_many(1 + rng.below(5) as usize),
                    _ => Some(shared.acquire_many(1 + rng.below(5) as usize)),
                };
                if let Some(permit) = permit {
                    assert!(inside.fetch_add(permit.count(), Relaxed) + permit.count() <= 5);
                    if rng.below(50) == 0 {
                        mungo::yield_now();
                    }
                    inside.fetch_sub(permit.count(), Relaxed);
                }
            }
        });
        assert_eq!(semaphore.available_permits(), 5, "{kind:?}");
    }
}

struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Counted {
        alive.fetch_add(1, Relaxed);
        Counted(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn a_pool_is_bounded_and_drops_what_it_keeps() {
    let alive = Arc::new(AtomicUsize::new(0));
    let pool = Pool::with_bound(4, {
        let alive = alive.clone();
        move || Counted::new(&alive)
    });
    let many: Vec<_> = (0..1000).map(|_| pool.get()).collect();
    many.into_iter().for_each(|value| pool.put(value));
    let kept = alive.load(Relaxed);
    assert!((1..=4 * mungo::num_cpus().next_power_of_two()).contains(&kept), "{kept}");
    pool.clear();
    assert_eq!(alive.load(Relaxed), 0);
    drop(pool.lend());
    assert_eq!(alive.load(Relaxed), 1);
    drop(pool);
    assert_eq!(alive.load(Relaxed), 0);
}

/// A plain thread has one place for what it puts back.
#[test]
fn a_pool_keeps_as_many_as_it_is_told() {
    let pool = Pool::with_bound(2, || 0);
    (1..=3).for_each(|n| pool.put(n));
    assert_eq!([pool.try_get(), pool.try_get(), pool.try_get()], [Some(2), Some(1), None]);
}

/// A value is in one hand at a time, whoever puts and gets.
#[test]
fn stress_pool() {
    let seed = seed();
    for kind in KINDS {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let pool = Arc::new(Pool::new(move || {
            counter.fetch_add(1, Relaxed);
            Box::new(0u64)
        }));
        run(kind, 8, move |i| {
            let mut rng = Rng::new(seed ^ i as u64);
            for _ in 0..scaled(20_000) {
                let mut value = pool.lend();
                let before = **value;
                if rng.below(20) == 0 {
                    mungo::yield_now();
                }
                assert_eq!(**value, before);
                **value += 1;
            }
        });
        assert!(made.load(Relaxed) <= scaled(20_000), "{kind:?}: most were used again");
    }
}
