//! Mutex: exclusion, time-outs, fairness, no lost wake-up.

mod sync_util;

use mungo::sync::lock_api::RawMutex as _;
use mungo::sync::{Mutex, MutexGuard, RawMutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sync_util::{KINDS, Kind, Rng, on_two_procs, run, scaled, seed};

#[test]
fn excludes() {
    for kind in KINDS {
        let n = scaled(50_000);
        let counter = Arc::new(Mutex::new(0usize));
        let shared = counter.clone();
        run(kind, 8, move |_| (0..n).for_each(|_| *shared.lock() += 1));
        assert_eq!(*counter.lock(), 8 * n, "{kind:?}");
    }
}

#[test]
fn is_small_and_can_be_static() {
    static LOCK: Mutex<[u8; 3]> = Mutex::new([1, 2, 3]);
    LOCK.lock()[0] = 7;
    assert_eq!(*LOCK.lock(), [7, 2, 3]);
    assert!(size_of::<RawMutex>() <= 32);
}

#[test]
fn try_lock_does_not_wait() {
    let mutex = Mutex::new(1);
    let guard = mutex.lock();
    assert!(mutex.try_lock().is_none());
    assert!(mutex.is_locked());
    drop(guard);
    assert_eq!(*mutex.try_lock().unwrap(), 1);
    assert!(!mutex.is_locked());
}

#[test]
fn a_panic_unlocks() {
    let mutex = Arc::new(Mutex::new(1));
    let inside = mutex.clone();
    let result = mungo::go(move || {
        let _guard = inside.lock();
        panic!("expected");
    })
    .join();
    assert!(result.is_err());
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn timeouts_are_exact_and_never_early() {
    for kind in [Kind::Goroutines, Kind::Threads] {
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.lock();
        let shared = mutex.clone();
        run(kind, 4, move |i| {
            let timeout = Duration::from_millis(3 * i as u64);
            let start = Instant::now();
            assert!(shared.try_lock_for(timeout).is_none());
            assert!(start.elapsed() >= timeout);
            let deadline = Instant::now() + timeout;
            assert!(shared.try_lock_until(deadline).is_none());
            assert!(Instant::now() >= deadline);
        });
        drop(held);
        assert!(mutex.try_lock().is_some(), "{kind:?}: those who gave up left nothing behind");
    }
}

#[test]
fn a_timed_lock_gets_it_in_time() {
    for kind in KINDS {
        let mutex = Arc::new(Mutex::new(0));
        let held = mutex.lock();
        let asked = Arc::new(AtomicUsize::new(0));
        let (shared, asking) = (mutex.clone(), asked.clone());
        let all = std::thread::spawn(move || {
            run(kind, 3, move |_| {
                asking.fetch_add(1, Relaxed);
                *shared.try_lock_for(Duration::from_secs(600)).expect("long before") += 1;
            })
        });
        while asked.load(Relaxed) < 3 {
            std::thread::yield_now();
        }
        drop(held);
        all.join().unwrap();
        assert_eq!(*mutex.lock(), 3);
    }
}

#[test]
fn a_fair_unlock_hands_over() {
    on_two_procs(|| {
        let mutex = Arc::new(Mutex::new(Vec::new()));
        let mut guard = mutex.lock();
        let asking = Arc::new(AtomicBool::new(false));
        let (shared, asks) = (mutex.clone(), asking.clone());
        let other = mungo::go(move || {
            asks.store(true, Relaxed);
            shared.lock().push("other");
        });
        // The state word says when it is parked.
        while !format!("{:?}", unsafe_raw(&mutex)).contains("waiters: true") {
            mungo::yield_now();
        }
        guard.push("first");
        MutexGuard::unlock_fair(guard);
        mutex.lock().push("second");
        other.join().unwrap();
        assert_eq!(*mutex.lock(), ["first", "other", "second"]);
    });
}

fn unsafe_raw<T>(mutex: &Mutex<T>) -> &RawMutex {
    // SAFETY: to print it.
    unsafe { mutex.raw() }
}

fn on_one_proc<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    mungo::Runtime::builder().procs(1).build().unwrap().run(f)
}

/// Lets others run until the mutex's state says `part`.
#[track_caller]
fn until_it_says<T>(mutex: &Mutex<T>, part: &str) {
    for _ in 0..10_000 {
        if format!("{:?}", unsafe_raw(mutex)).contains(part) {
            return;
        }
        mungo::yield_now();
    }
    panic!("never '{part}': {:?}", unsafe_raw(mutex));
}

fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A goroutine that pushes its name.
fn pusher(mutex: &Arc<Mutex<Vec<&'static str>>>, name: &'static str) -> mungo::JoinHandle<()> {
    let mutex = mutex.clone();
    mungo::go(move || mutex.lock().push(name))
}

/// A holder that unlocks and locks again at once, before the waiter that it has woken can run. The waiter, which has
/// waited for longer than a millisecond, gets in line again, ahead of the other one, and asks for the lock: then it is
/// its, and after it the other's, however quick the holder is. `false`: the holder was too slow.
fn overtakes_once() -> bool {
    let mutex = Arc::new(Mutex::new(Vec::new()));
    let guard = mutex.lock();
    let first = pusher(&mutex, "first");
    until_it_says(&mutex, "waiters: true");
    let second = pusher(&mutex, "second");
    mungo::yield_now(); // it parks behind the first
    compute(Duration::from_millis(2));
    drop(guard);
    let guard = mutex.lock();
    let overtaken = guard.is_empty();
    if overtaken {
        until_it_says(&mutex, "starving: true");
    }
    drop(guard);
    mutex.lock().push("holder");
    first.join().unwrap();
    second.join().unwrap();
    if overtaken {
        assert_eq!(*mutex.lock(), ["first", "second", "holder"]);
    }
    overtaken
}

#[test]
fn a_starving_waiter_is_not_overtaken() {
    on_one_proc(|| assert!((0..1000).any(|_| overtakes_once()), "the holder was always too slow"));
}

/// The same, with a third one that has just come when its turn is there: it ends the hand-overs although a fourth
/// waits. `false`: it took longer than the millisecond after which it wants them itself.
fn calms_down_once() -> bool {
    let mutex = Arc::new(Mutex::new(Vec::new()));
    let guard = mutex.lock();
    let first = pusher(&mutex, "first");
    until_it_says(&mutex, "waiters: true");
    compute(Duration::from_millis(2));
    drop(guard);
    let guard = mutex.lock();
    if !guard.is_empty() {
        return false;
    }
    until_it_says(&mutex, "starving: true");
    let fresh = mutex.clone();
    let second = mungo::go(move || {
        let guard = fresh.lock();
        let state = format!("{:?}", unsafe_raw(&fresh));
        drop(guard);
        assert!(state.contains("waiters: true"), "{state}");
        state.contains("starving: false")
    });
    mungo::yield_now(); // it parks
    let third = pusher(&mutex, "third");
    mungo::yield_now(); // behind it
    drop(guard);
    first.join().unwrap();
    third.join().unwrap();
    second.join().unwrap()
}

#[test]
fn hand_overs_end_with_a_waiter_that_has_just_come() {
    on_one_proc(|| assert!((0..1000).any(|_| calms_down_once()), "it starves until the queue is empty"));
}

#[test]
fn a_fair_unlock_lets_the_next_holder_run() {
    on_one_proc(|| {
        let mutex = Arc::new(Mutex::new(Vec::new()));
        let guard = mutex.lock();
        let other = pusher(&mutex, "other");
        until_it_says(&mutex, "waiters: true");
        MutexGuard::unlock_fair(guard);
        assert_eq!(mutex.try_lock().map(|names| names.len()), Some(1), "it has not run");
        other.join().unwrap();
    });
}

#[test]
fn who_gives_up_leaves_no_trace() {
    on_one_proc(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let shared = mutex.clone();
        let other = mungo::go(move || shared.try_lock_for(Duration::from_millis(1)).is_none());
        assert!(other.join().unwrap());
        until_it_says(&mutex, "waiters: false");
        drop(guard);
    });
}

/// Two that do nothing but hold the lock, and one that wants it now and then: by Go's rule it waits for a millisecond
/// and some hand-overs, so that the others get no more than a few thousand turns. Counted, not timed.
#[test]
fn nobody_starves() {
    on_two_procs(|| {
        let mutex = Arc::new(Mutex::new(0u64));
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..4)
            .map(|_| {
                let (mutex, stop) = (mutex.clone(), stop.clone());
                mungo::go(move || {
                    while !stop.load(Relaxed) {
                        let mut n = mutex.lock();
                        *n += 1;
                        let until = Instant::now() + Duration::from_micros(100);
                        while Instant::now() < until {
                            std::hint::spin_loop();
                        }
                    }
                })
            })
            .collect();
        let mut most = 0;
        for _ in 0..20 {
            let before = *mutex.lock();
            most = most.max(*mutex.lock() - before);
        }
        stop.store(true, Relaxed);
        hogs.into_iter().for_each(|h| h.join().unwrap());
        // A millisecond is ten turns; then the queue of four, with some room for a busy machine.
        assert!(most < 500, "overtaken {most} times");
    });
}

#[test]
fn all_get_their_share() {
    on_two_procs(|| {
        let mutex = Arc::new(Mutex::new([0u64; 4]));
        let enough = scaled(20_000) as u64;
        let workers: Vec<_> = (0..4)
            .map(|i| {
                let mutex = mutex.clone();
                mungo::go(move || {
                    loop {
                        let mut turns = mutex.lock();
                        turns[i] += 1;
                        if turns.iter().all(|&n| n >= 3) && turns.iter().sum::<u64>() > enough {
                            return;
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
        assert!(mutex.lock().iter().all(|&n| n >= 3));
    });
}

#[test]
fn the_raw_mutex_works_alone() {
    static RAW: RawMutex = RawMutex::INIT;
    static mut COUNTER: usize = 0;
    run(Kind::Mixed, 4, |_| {
        for _ in 0..scaled(10_000) {
            RAW.lock();
            // SAFETY: under the lock, which is ours until we unlock it.
            unsafe {
                COUNTER += 1;
                RAW.unlock();
            }
        }
    });
    // SAFETY: nobody else is left.
    assert_eq!(unsafe { COUNTER }, 4 * scaled(10_000));
}

/// Plain, timed and fair locks of all kinds of workers, with random pauses inside and outside.
#[test]
fn stress_mixed_locks() {
    let seed = seed();
    for kind in KINDS {
        let mutex = Arc::new(Mutex::new((0usize, 0usize)));
        let shared = mutex.clone();
        let got: usize = run(kind, 10, move |i| {
            let mut rng = Rng::new(seed ^ i as u64);
            let mut got = 0;
            for _ in 0..scaled(10_000) {
                let guard = match rng.below(8) {
                    0 => shared.try_lock_for(Duration::from_nanos(rng.below(50_000))),
                    1 => shared.try_lock(),
                    _ => Some(shared.lock()),
                };
                let Some(mut guard) = guard else { continue };
                got += 1;
                guard.0 += 1;
                if rng.below(200) == 0 {
                    mungo::yield_now();
                }
                guard.1 += 1;
                match rng.below(10) {
                    0 => MutexGuard::unlock_fair(guard),
                    1 => MutexGuard::unlocked(&mut guard, mungo::yield_now),
                    _ => drop(guard),
                }
            }
            got
        })
        .into_iter()
        .sum();
        assert_eq!(*mutex.lock(), (got, got), "{kind:?}");
    }
}

/// Timers and unlocks at the same moment: one of them wins each time, and nothing is lost.
#[test]
fn stress_timeouts_against_unlocks() {
    let seed = seed();
    on_two_procs(move || {
        let mutex = Arc::new(Mutex::new(0usize));
        let workers: Vec<_> = (0..6u64)
            .map(|i| {
                let mutex = mutex.clone();
                mungo::go(move || {
                    let mut rng = Rng::new(seed.wrapping_add(i));
                    let mut got = 0;
                    for _ in 0..scaled(3_000) {
                        let wait = Duration::from_nanos(rng.below(100_000));
                        if let Some(mut guard) = mutex.try_lock_for(wait) {
                            got += 1;
                            *guard += 1;
                            mungo::sleep(Duration::from_nanos(rng.below(60_000)));
                        }
                    }
                    got
                })
            })
            .collect();
        let got: usize = workers.into_iter().map(|w| w.join().unwrap()).sum();
        assert_eq!(*mutex.lock(), got);
    });
}
