//! Goroutines that are bound to their thread.

mod common;

use common::{end, gettid, runtime, stress_time, thread_exists, wait_until};
use mungo::{go, lock_os_thread, park, sleep, yield_now};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::time::{Duration, Instant};

#[test]
fn the_thread_stays_the_same() {
    let rt = runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..20)
        .map(|_| {
            let stop = stop.clone();
            rt.spawn(move || {
                while !stop.load(Relaxed) {
                    yield_now();
                }
            })
        })
        .collect();
    let bound: Vec<_> = (0..5)
        .map(|_| {
            rt.spawn(|| {
                let _guard = lock_os_thread();
                let tid = gettid();
                for i in 0..100u64 {
                    match i % 4 {
                        0 => yield_now(),
                        1 => sleep(Duration::from_micros(i)),
                        2 => mungo::park_timeout(Duration::from_micros(i)),
                        _ => go(|| ()).join().unwrap(),
                    }
                    assert_eq!(gettid(), tid);
                }
                tid
            })
        })
        .collect();
    let mut tids: Vec<_> = bound.into_iter().map(|b| b.join().unwrap()).collect();
    stop.store(true, Relaxed);
    others.into_iter().for_each(|o| o.join().unwrap());
    assert!(!tids.is_empty());
    tids.dedup();
    end(rt);
}

#[test]
fn locks_nest() {
    let rt = runtime(1);
    let moved = rt.run(|| {
        let outer = lock_os_thread();
        let inner = lock_os_thread();
        let tid = gettid();
        drop(inner);
        (0..50).for_each(|_| yield_now());
        assert_eq!(gettid(), tid, "one lock is left");
        drop(outer);
        gettid() == tid
    });
    assert!(moved);
    drop(lock_os_thread()); // a plain thread is on its thread anyway
    end(rt);
}

/// Nobody else runs on a bound goroutine's thread, even while it is parked.
#[test]
fn the_thread_is_for_one_goroutine() {
    let rt = runtime(2);
    let go_on = Arc::new(AtomicBool::new(false));
    let (tx, rx) = std::sync::mpsc::channel();
    let bound = {
        let go_on = go_on.clone();
        rt.spawn(move || {
            let _guard = lock_os_thread();
            tx.send(gettid()).unwrap();
            while !go_on.load(Acquire) {
                park();
            }
        })
    };
    let tid = rx.recv().unwrap();
    let others: Vec<_> = (0..500)
        .map(|_| {
            rt.spawn(move || {
                yield_now();
                assert_ne!(gettid(), tid);
            })
        })
        .collect();
    others.into_iter().for_each(|o| o.join().unwrap());
    go_on.store(true, Release);
    bound.goroutine().unpark();
    bound.join().unwrap();
    end(rt);
}

#[test]
fn a_goroutine_that_ends_while_bound_takes_its_thread_along() {
    for procs in [1, 2] {
        let rt = runtime(procs);
        for _ in 0..20 {
            let tid = rt.run(|| {
                std::mem::forget(lock_os_thread());
                gettid()
            });
            wait_until("the thread ended", || !thread_exists(tid));
        }
        assert_eq!(rt.run(|| go(|| 1).join().unwrap()), 1);
        // One that drops its guard leaves the thread to the others.
        rt.run(|| drop(lock_os_thread()));
        end(rt);
    }
}

#[test]
fn a_panic_drops_the_guard() {
    let rt = runtime(1);
    let h = rt.spawn(|| {
        let _guard = lock_os_thread();
        panic!("as it should");
    });
    assert!(h.join().is_err());
    assert_eq!(rt.run(|| 3), 3);
    end(rt);
}

/// Pairs of bound goroutines wake each other, while Ps come and go.
/// The cap is one thread, and its goroutine waits for others, which need one.
#[test]
fn who_waits_while_bound_does_not_take_the_last_thread() {
    let runtime = mungo::Runtime::builder().procs(1).max_threads(1).build().unwrap();
    let sum: u64 = runtime.run(|| {
        let _locked = mungo::lock_os_thread();
        let (tx, rx) = mungo::chan::bounded(0);
        let others: Vec<_> = (0..4u64).map(|i| go(move || i)).collect();
        go(move || (0..4u64).for_each(|i| tx.send(i).unwrap()));
        others.into_iter().map(|h| h.join().unwrap()).sum::<u64>() + rx.iter().sum::<u64>()
    });
    assert_eq!(sum, 12);
}

#[test]
fn stress_bound_pairs() {
    let mut rng = common::Rng::seeded("stress_bound_pairs");
    let rt = runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicUsize::new(0));
    let turns = Arc::new(AtomicU64::new(0));
    for pair in 0..8 {
        let turn = Arc::new(AtomicU64::new(0));
        let gs: Arc<std::sync::Mutex<Vec<mungo::Goroutine>>> = Arc::default();
        for me in 0..2 {
            let (stop, ended, turns) = (stop.clone(), ended.clone(), turns.clone());
            let (turn, gs) = (turn.clone(), gs.clone());
            rt.spawn(move || {
                let _guard = (pair + me > 0).then(lock_os_thread); // one is free
                gs.lock().unwrap().push(mungo::current());
                wait_until("the other is there", || gs.lock().unwrap().len() == 2);
                let mine = mungo::current().id();
                let other = gs.lock().unwrap().iter().find(|g| g.id() != mine).unwrap().clone();
                let tid = (pair + me > 0).then(gettid);
                while !stop.load(Acquire) {
                    if turn.load(Acquire) % 2 == me {
                        turn.fetch_add(1, Release);
                        turns.fetch_add(1, Relaxed);
                        other.unpark();
                    } else {
                        park();
                    }
                    assert!(tid.is_none_or(|tid| tid == gettid()));
                }
                other.unpark();
                ended.fetch_add(1, SeqCst);
            });
        }
    }
    let start = Instant::now();
    while start.elapsed() < stress_time(Duration::from_millis(1000)) {
        rt.set_procs(1 + rng.below(5) as usize).unwrap();
        std::thread::sleep(Duration::from_micros(rng.below(500)));
    }
    stop.store(true, Release);
    wait_until("all ended", || ended.load(SeqCst) == 16);
    assert!(turns.load(Relaxed) > 0);
    rt.set_procs(3).unwrap();
    wait_until("all Ps are idle", || rt.metrics().idle_procs == 3);
    end(rt);
}

/// The M that sleeps until the next timer may be woken to run somebody else for long: then another one keeps the time.
#[test]
fn timers_are_watched_while_a_bound_goroutine_gives_its_p_away() {
    for _ in 0..20 {
        let rt = runtime(2);
        let woke = Arc::new(AtomicBool::new(false));
        let sleeping = woke.clone();
        rt.spawn(move || {
            sleep(Duration::from_millis(2));
            sleeping.store(true, Release);
        });
        let waits_for = woke.clone();
        let bound = rt.spawn(move || {
            let _guard = lock_os_thread();
            sleep(Duration::from_micros(300)); // now the other one sleeps too, and an M keeps the time
            let until = waits_for.clone();
            let busy = go(move || {
                let start = Instant::now();
                while !until.load(Acquire) {
                    assert!(start.elapsed() < common::PATIENCE, "the sleeper was forgotten");
                    std::hint::spin_loop();
                }
            });
            busy.join().unwrap(); // parks, and hands its P with the busy one to some M
        });
        bound.join().unwrap();
        assert!(woke.load(Acquire));
        end(rt);
    }
}

/// The workers leave when the last goroutine of a closed runtime ends, also if its thread ends with it.
/// Its P is busy when it comes back.
#[test]
fn a_bound_goroutine_that_lost_its_p_waits_for_one_on_its_thread() {
    let rt = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let computes = {
        let stop = stop.clone();
        rt.spawn(move || while !stop.load(Relaxed) {})
    };
    let bound = rt.spawn(|| {
        let _guard = lock_os_thread();
        let tid = gettid();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            yield_now();
            assert_eq!(gettid(), tid);
        }
    });
    bound.join().unwrap();
    stop.store(true, Relaxed);
    computes.join().unwrap();
    end(rt);
}

#[test]
fn the_last_goroutine_may_be_locked() {
    for procs in [1, 2] {
        let rt = runtime(procs);
        let (tx, rx) = mungo::chan::bounded::<()>(0);
        let waits = Arc::new(AtomicBool::new(false));
        rt.spawn({
            let waits = waits.clone();
            move || {
                std::mem::forget(lock_os_thread());
                waits.store(true, Release);
                rx.recv()
            }
        });
        wait_until("the goroutine runs", || waits.load(Acquire));
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30)); // so that the runtime is closed first, as a rule
            drop(tx);
        });
        rt.shutdown(common::PATIENCE).expect("all threads end");
        sender.join().unwrap();
    }
}
