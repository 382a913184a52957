//! Once, OnceLock, LazyLock, WaitGroup, Barrier.

mod sync_util;

use mungo::sync::{Barrier, LazyLock, Once, OnceLock, WaitGroup};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sync_util::{KINDS, Kind, NO_MORE, Rng, meetings, on_two_procs, run, scaled, seed, spin_until};

#[test]
fn once_runs_once_and_the_others_wait() {
    for kind in KINDS {
        for _ in 0..scaled(200) {
            let once = Arc::new(Once::new());
            let calls = Arc::new(AtomicUsize::new(0));
            let (shared, count) = (once.clone(), calls.clone());
            run(kind, 4, move |_| {
                shared.call_once(|| {
                    mungo::yield_now();
                    count.fetch_add(1, Relaxed);
                });
                assert_eq!(count.load(Relaxed), 1, "it is done when call_once returns");
            });
            assert!(once.is_completed());
        }
    }
}

#[test]
fn a_panic_poisons_once() {
    let once = Once::new();
    let failed = catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic!("expected"))));
    assert!(failed.is_err() && !once.is_completed());
    assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| ()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| once.wait())).is_err());
    once.call_once_force(|state| assert!(state.is_poisoned()));
    once.wait();
    once.call_once(|| unreachable!());
}

#[test]
fn once_lock_holds_one_value_and_drops_it() {
    let drops = Arc::new(());
    let cell = OnceLock::new();
    assert!(cell.set(drops.clone()).is_ok());
    assert!(cell.set(drops.clone()).is_err());
    assert_eq!(Arc::strong_count(&drops), 2);
    let copy = cell.clone();
    assert_eq!((copy == cell, Arc::strong_count(&drops)), (true, 3));
    drop((cell, copy));
    assert_eq!(Arc::strong_count(&drops), 1);
    drop(OnceLock::<String>::new());
    assert_eq!(
        format!("{:?} {:?}", OnceLock::from(1), OnceLock::<u8>::new()),
        "OnceLock(1) OnceLock(<uninit>)"
    );
}

#[test]
fn once_lock_is_empty_after_a_panic() {
    let cell: OnceLock<u32> = OnceLock::new();
    assert!(catch_unwind(AssertUnwindSafe(|| cell.get_or_init(|| panic!("expected")))).is_err());
    assert_eq!(cell.get(), None);
    assert_eq!(cell.get_or_init(|| 3), &3);
}

#[test]
fn all_see_the_same_value() {
    for kind in KINDS {
        let cell = Arc::new(OnceLock::new());
        let values = run(kind, 8, move |i| if i == 7 { *cell.wait() } else { *cell.get_or_init(|| i) });
        assert!(values.iter().all(|v| *v == values[0]), "{kind:?}: {values:?}");
    }
}

#[test]
fn lazy_lock_is_made_once_or_not_at_all() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static LAZY: LazyLock<String> = LazyLock::new(|| {
        CALLS.fetch_add(1, Relaxed);
        mungo::yield_now();
        "made".to_owned()
    });
    run(Kind::Mixed, 6, |_| assert_eq!(LAZY.len(), 4));
    assert_eq!(CALLS.load(Relaxed), 1);

    // A closure that owns something, which goes with the closure or with the value.
    let owned = Arc::new(());
    let never = LazyLock::new({
        let owned = owned.clone();
        move || owned
    });
    assert_eq!(format!("{never:?}"), "LazyLock(<uninit>)");
    drop(never);
    assert_eq!(Arc::strong_count(&owned), 1);

    let panics: LazyLock<u32, _> = LazyLock::new({
        let owned = owned.clone();
        move || panic!("expected, {}", Arc::strong_count(&owned))
    });
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| *panics)).is_err());
    }
    drop(panics);
    assert_eq!(Arc::strong_count(&owned), 1);
}

#[test]
fn wait_group_waits_for_all() {
    for kind in KINDS {
        let wg = Arc::new(WaitGroup::new());
        let done = Arc::new(AtomicUsize::new(0));
        let n = 200;
        wg.add(n);
        let (group, count) = (wg.clone(), done.clone());
        let workers = std::thread::spawn(move || {
            run(kind, n, move |_| {
                count.fetch_add(1, Relaxed);
                group.done();
            })
        });
        let (group, count) = (wg.clone(), done.clone());
        run(kind, 4, move |_| {
            group.wait();
            assert_eq!(count.load(Relaxed), n);
        });
        workers.join().unwrap();
    }
}

#[test]
fn wait_group_counts_panics_and_tokens() {
    let wg = WaitGroup::new();
    let failed = wg.go(|| panic!("expected"));
    let token = wg.token();
    let tokens = [token.clone(), token];
    assert!(failed.join().is_err());
    assert!(!wg.wait_timeout(Duration::from_millis(1)));
    drop(tokens);
    wg.wait();
    assert_eq!(wg.count(), 0);
}

#[test]
#[should_panic(expected = "more done than added")]
fn wait_group_does_not_go_below_zero() {
    WaitGroup::new().done();
}

#[test]
fn wait_group_does_not_overflow() {
    let wg = WaitGroup::new();
    wg.add(usize::MAX / 2);
    for n in [1, usize::MAX / 2 + 1, usize::MAX] {
        assert!(catch_unwind(AssertUnwindSafe(|| wg.add(n))).is_err(), "{n} more");
    }
    assert_eq!(wg.count(), usize::MAX / 2);
}

#[test]
fn wait_group_timeouts_are_never_early() {
    for kind in [Kind::Goroutines, Kind::Threads] {
        run(kind, 3, |i| {
            let wg = WaitGroup::new();
            wg.add(1);
            let (start, timeout) = (Instant::now(), Duration::from_millis(3 * i as u64));
            assert!(!wg.wait_timeout(timeout));
            assert!(start.elapsed() >= timeout);
            wg.done();
            assert!(wg.wait_timeout(Duration::ZERO));
        });
    }
}

/// Used again at once: each round's wait sees its own zero, and not the next round's.
#[test]
fn stress_wait_group_reuse() {
    on_two_procs(|| {
        let wg = Arc::new(WaitGroup::new());
        for round in 0..scaled(5_000) {
            let finished = Arc::new(AtomicUsize::new(0));
            let n = 1 + round % 5;
            for _ in 0..n {
                let finished = finished.clone();
                wg.go(move || finished.fetch_add(1, Relaxed));
            }
            wg.wait();
            assert_eq!(finished.load(Relaxed), n);
        }
    });
}

#[test]
fn barrier_lets_one_lead_each_round() {
    for kind in KINDS {
        let (n, rounds) = (5, scaled(2_000));
        let barrier = Arc::new(Barrier::new(n));
        let round_of = Arc::new((0..n).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
        let led = run(kind, n, move |i| {
            let mut led = 0;
            for round in 1..=rounds {
                round_of[i].store(round, Relaxed);
                led += usize::from(barrier.wait().is_leader());
                // Nobody is a round behind, or more than one ahead.
                assert!(round_of.iter().all(|r| (round..=round + 1).contains(&r.load(Relaxed))));
            }
            led
        });
        assert_eq!(led.iter().sum::<usize>(), rounds, "{kind:?}");
    }
}

#[test]
fn stress_once_lock() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for _ in 0..scaled(1_000) {
        let kind = KINDS[rng.below(2) as usize * 2]; // threads are slow to start
        let cell = Arc::new(OnceLock::new());
        let seeds: Vec<u64> = (0..4).map(|_| rng.below(3)).collect();
        let shared = cell.clone();
        let seen = run(kind, 4, move |i| match seeds[i] {
            0 => shared.set(i).map_or_else(|_| *shared.wait(), |()| i),
            _ => *shared.get_or_init(|| {
                mungo::yield_now();
                i
            }),
        });
        assert!(seen.iter().all(|v| v == cell.get().unwrap()));
    }
}

/// Two threads, of which the second does something at about the time when the first begins to wait for it; each round
/// the times are others. A waiter that looks, and then sleeps without another look, sleeps for ever.
fn meet(rounds: usize, prepares: impl Fn(), waits: impl Fn(usize), wakes: impl Fn(usize) + Sync) {
    let round = AtomicUsize::new(0);
    let delay = |n: usize| (0..n).for_each(|_| std::hint::spin_loop());
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 1..=rounds {
                spin_until(|| round.load(Relaxed) >= i);
                if round.load(Relaxed) == NO_MORE {
                    break;
                }
                delay(i % 23);
                wakes(i - 1);
            }
        });
        for i in meetings(rounds) {
            prepares();
            round.store(i, Relaxed);
            delay(i / 23 % 23);
            waits(i - 1);
        }
        round.store(NO_MORE, Relaxed);
    });
}

#[test]
fn stress_a_wait_group_comes_to_zero_as_the_wait_begins() {
    let group = WaitGroup::new();
    meet(scaled(200_000), || group.add(1), |_| group.wait(), |_| group.done());
}

#[test]
fn stress_once_is_done_as_the_wait_begins() {
    let all: Vec<Once> = (0..scaled(200_000)).map(|_| Once::new()).collect();
    meet(all.len(), || (), |i| all[i].wait(), |i| all[i].call_once(|| ()));
}
