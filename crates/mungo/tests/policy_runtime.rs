//! Every policy in the real runtime: nothing is lost, nothing runs twice, and the runtime does what it always does.

mod common;

use common::{Rng, end, wait_until};
use mungo::policy::{self, Policy};
use mungo::{Builder, Runtime, go, sync::Mutex, yield_now};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

/// All policies of the runtime, the default one also through the interface.
const ALL: [&str; 10] = [
    "default",
    "default:measured=1",
    "fifo",
    "lifo",
    "work_stealing",
    "priority",
    "deadline",
    "fair",
    "numa",
    "chaos:seed=7",
];

fn runtime(name: &str, procs: usize) -> Runtime {
    let policy = policy::by_name(name).expect("a policy");
    Runtime::builder()
        .procs(procs)
        .scheduler(policy)
        .time_slice(Duration::from_millis(1))
        .build()
        .expect("a runtime")
}

fn check_no_fault(rt: &Runtime, name: &str) {
    let stats = rt.policy_stats();
    assert_eq!((stats.dropped_tasks, stats.replaced), (0, 0), "{name}: {stats:?}");
    assert_eq!(stats.policy, name.split(':').next().unwrap());
}

#[test]
fn each_goroutine_runs_once() {
    for name in ALL {
        for procs in [1, 3] {
            let rt = runtime(name, procs);
            let runs: Arc<Vec<AtomicU32>> = Arc::new((0..3000).map(|_| AtomicU32::new(0)).collect());
            rt.run(|| {
                let handles: Vec<_> = (0..runs.len())
                    .map(|i| {
                        let runs = runs.clone();
                        go(move || {
                            if i % 3 == 0 {
                                yield_now();
                            }
                            runs[i].fetch_add(1, Relaxed);
                        })
                    })
                    .collect();
                handles.into_iter().for_each(|h| h.join().unwrap());
            });
            assert!(runs.iter().all(|n| n.load(Relaxed) == 1), "{name}");
            check_no_fault(&rt, name);
            end(rt);
        }
    }
}

#[test]
fn channels_timers_locks_and_threads_work() {
    for name in ALL {
        let rt = runtime(name, 2);
        let total = rt.run(|| {
            let (tx, rx) = mungo::chan::bounded::<u64>(4);
            let sum = Arc::new(Mutex::new(0u64));
            let senders: Vec<_> = (0..20)
                .map(|i| {
                    let tx = tx.clone();
                    go(move || {
                        for j in 0..50 {
                            if j % 10 == i % 10 {
                                mungo::sleep(Duration::from_micros(100));
                            }
                            tx.send(1).unwrap();
                        }
                    })
                })
                .collect();
            drop(tx);
            let receivers: Vec<_> = (0..5)
                .map(|_| {
                    let (rx, sum) = (rx.clone(), sum.clone());
                    go(move || {
                        while let Ok(n) = rx.recv() {
                            *sum.lock() += n;
                        }
                    })
                })
                .collect();
            senders.into_iter().chain(receivers).for_each(|h| h.join().unwrap());
            *sum.lock()
        });
        assert_eq!(total, 1000, "{name}");
        // From a plain thread, and back.
        let from_outside = rt.spawn(|| {
            mungo::blocking(|| std::thread::sleep(Duration::from_millis(2)));
            let _guard = mungo::lock_os_thread();
            yield_now();
            mungo::sleep(Duration::from_millis(1));
            7
        });
        assert_eq!(from_outside.join().unwrap(), 7, "{name}");
        check_no_fault(&rt, name);
        end(rt);
    }
}

/// Goroutines that never call the runtime: every one of them makes progress, whichever policy decides.
#[test]
fn spinners_share_the_ps() {
    for name in ALL {
        let rt = runtime(name, 2);
        let stop = Arc::new(AtomicBool::new(false));
        let turns: Arc<Vec<AtomicU64>> = Arc::new((0..6).map(|_| AtomicU64::new(0)).collect());
        let spinners: Vec<_> = (0..turns.len())
            .map(|i| {
                let (stop, turns) = (stop.clone(), turns.clone());
                rt.spawn(move || {
                    while !stop.load(Acquire) {
                        turns[i].fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        wait_until(&format!("all spin under {name}"), || turns.iter().all(|n| n.load(Relaxed) > 0));
        let seen: Vec<u64> = turns.iter().map(|n| n.load(Relaxed)).collect();
        wait_until(&format!("all spin on under {name}"), || {
            turns.iter().zip(&seen).all(|(n, seen)| n.load(Relaxed) > *seen)
        });
        stop.store(true, Release);
        spinners.into_iter().for_each(|h| h.join().unwrap());
        check_no_fault(&rt, name);
        end(rt);
    }
}

#[test]
fn policies_change_while_goroutines_run() {
    let rt = runtime("default", 3);
    let mut rng = Rng::seeded("policies_change_while_goroutines_run");
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..8)
        .map(|i| {
            let (stop, done) = (stop.clone(), done.clone());
            let work = move || {
                while !stop.load(Acquire) {
                    let (tx, rx) = mungo::chan::bounded::<u32>(i % 3);
                    let child = go(move || {
                        yield_now();
                        tx.send(1).unwrap();
                    });
                    assert_eq!(rx.recv(), Ok(1));
                    child.join().unwrap();
                    if i == 0 {
                        mungo::sleep(Duration::from_micros(50));
                    }
                    if i == 1 {
                        let spin = std::time::Instant::now();
                        while spin.elapsed() < Duration::from_millis(3) {}
                    }
                    done.fetch_add(1, Relaxed);
                }
            };
            let priority = policy::Priority::new((i * 30) as u8);
            Builder::new().priority(priority).spawn_on(&rt, work).unwrap()
        })
        .collect();
    for round in 0..100 {
        let name = ALL[rng.below(ALL.len() as u64) as usize];
        rt.set_scheduler(policy::by_name(name).unwrap());
        let before = done.load(Relaxed);
        if round % 4 == 0 {
            wait_until(&format!("work goes on under {name}"), || done.load(Relaxed) > before + 10);
        }
        if round % 10 == 0 {
            rt.set_procs(1 + rng.below(4) as usize).unwrap();
        }
    }
    stop.store(true, Release);
    workers.into_iter().for_each(|h| h.join().unwrap());
    let stats = rt.policy_stats();
    assert_eq!((stats.dropped_tasks, stats.replaced), (0, 0), "{stats:?}");
    end(rt);
}

#[test]
fn the_original_can_be_put_back() {
    let rt = runtime("fifo", 2);
    rt.run(|| {
        let original: Policy = mungo::get_scheduler();
        mungo::set_scheduler(policy::Lifo::new());
        assert_eq!(mungo::get_scheduler().name(), "lifo");
        assert_eq!(go(|| 1).join().unwrap(), 1);
        mungo::set_scheduler(original);
        assert_eq!(mungo::get_scheduler().name(), "fifo");
        assert_eq!(go(|| 1).join().unwrap(), 1);
    });
    end(rt);
}

#[test]
fn statistics_count() {
    let rt = runtime("default:measured=1", 2);
    rt.run(|| {
        let handles: Vec<_> = (0..500).map(|_| go(yield_now)).collect();
        handles.into_iter().for_each(|h| h.join().unwrap());
    });
    let stats = rt.policy_stats();
    assert!(stats.wait.count() >= 1000, "{stats:?}");
    assert_eq!(stats.sum(|p| p.switches), stats.wait.count());
    assert!(stats.wait.quantile(0.5) <= stats.wait.quantile(0.99));
    assert_eq!(stats.queued, 0);
    end(rt);
}
