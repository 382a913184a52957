//! Priorities, weights, deadlines, and what locks do to them.

mod common;

use common::{PATIENCE, end, wait_until};
use mungo::policy::{Deadline, Fair, Priority, PriorityLevels};
use mungo::{Builder, Runtime, go, yield_now};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn one_p(policy: impl Into<mungo::policy::Policy>) -> Runtime {
    Runtime::builder().procs(1).scheduler(policy).build().expect("a runtime")
}

/// Spins until told to stop; counts.
fn spin(stop: &AtomicBool, turns: &AtomicU64) {
    while !stop.load(Acquire) {
        turns.fetch_add(1, Relaxed);
    }
}

#[test]
fn ranks_are_inherited_unless_said_otherwise() {
    let rt = one_p(PriorityLevels::new());
    let outer = Builder::new().priority(Priority::new(200)).spawn_on(&rt, || {
        let child = go(mungo::priority);
        let other = Builder::new().priority(Priority::LOW).spawn(mungo::priority).unwrap();
        let before = mungo::set_priority(Priority::new(50));
        let late = go(mungo::priority);
        (child.join().unwrap(), other.join().unwrap(), before, late.join().unwrap())
    });
    let seen = outer.unwrap().join().unwrap();
    assert_eq!(seen, (Priority::new(200), Priority::LOW, Priority::new(200), Priority::new(50)));
    assert_eq!(rt.run(mungo::priority), Priority::NORMAL, "nothing is left behind");
    assert_eq!(mungo::priority(), Priority::NORMAL, "on a plain thread");
    end(rt);
}

#[test]
fn senseless_ranks_are_refused() {
    let ms = Duration::from_millis;
    let refused = |b: Builder| b.spawn(|| ()).unwrap_err().to_string();
    assert!(refused(Builder::new().weight(0)).contains("a weight of 0"));
    assert!(refused(Builder::new().period_budget(ms(10), ms(0))).contains("above 0"));
    assert!(refused(Builder::new().period_budget(ms(10), ms(11))).contains("not more"));
}

/// With one P that is kept busy, the order of those who wait is that of their priorities.
#[test]
fn the_most_urgent_goes_first() {
    let rt = one_p(PriorityLevels::with_age(Duration::from_secs(1000)));
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = order.clone();
    let root = Builder::new().priority(Priority::HIGHEST).spawn_on(&rt, move || {
        let spawn = |level: u8| {
            let seen = seen.clone();
            let builder = Builder::new().priority(Priority::new(level));
            builder.spawn(move || seen.lock().unwrap().push(level)).unwrap()
        };
        let all: Vec<_> = [10, 200, 50, 250, 0, 128].map(spawn).into_iter().collect();
        all.into_iter().for_each(|h| h.join().unwrap());
    });
    root.unwrap().join().unwrap();
    let retakes = rt.metrics().per_proc[0].retakes;
    assert_eq!(*order.lock().unwrap(), [250, 200, 128, 50, 10, 0], "{retakes} times the P was taken");
    end(rt);
}

/// Urgent goroutines that never wait cannot keep an idle one away for ever.
#[test]
fn ageing_lets_the_least_urgent_run() {
    let rt = Runtime::builder()
        .procs(1)
        .time_slice(Duration::from_millis(1))
        .scheduler(PriorityLevels::with_age(Duration::from_micros(50)))
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let turns: Arc<Vec<AtomicU64>> = Arc::new((0..4).map(|_| AtomicU64::new(0)).collect());
    let all: Vec<_> = (0..4)
        .map(|i| {
            let (stop, turns) = (stop.clone(), turns.clone());
            let priority = if i == 0 { Priority::LOWEST } else { Priority::HIGHEST };
            Builder::new().priority(priority).spawn_on(&rt, move || spin(&stop, &turns[i])).unwrap()
        })
        .collect();
    wait_until("the least urgent runs", || turns[0].load(Relaxed) > 0);
    let seen = turns[0].load(Relaxed);
    wait_until("and again", || turns[0].load(Relaxed) > seen);
    stop.store(true, Release);
    all.into_iter().for_each(|h| h.join().unwrap());
    end(rt);
}

/// Every P computes; an urgent goroutine that is woken by a timer, a thread or a goroutine displaces one of them.
#[test]
fn urgent_wakeups_displace_computing_goroutines() {
    for policy in ["priority", "deadline"] {
        // Slices so long that nothing but a displacement can let it run.
        let rt = Runtime::builder()
            .procs(2)
            .time_slice(Duration::from_secs(100))
            .scheduler(mungo::policy::by_name(policy).unwrap())
            .build()
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let turns: Arc<[AtomicU64; 2]> = Arc::default();
        let (tx, rx) = mungo::chan::bounded::<u32>(0);
        let urgent = Builder::new()
            .priority(Priority::HIGH)
            .period_budget(Duration::from_millis(20), Duration::from_millis(1))
            .spawn_on(&rt, move || {
                let mut woken = 0;
                for _ in 0..5 {
                    mungo::sleep(Duration::from_millis(1));
                    woken += rx.recv().unwrap();
                }
                woken
            })
            .unwrap();
        let hogs: Vec<_> = (0..2)
            .map(|i| {
                let (stop, turns) = (stop.clone(), turns.clone());
                let builder = Builder::new().priority(Priority::LOW);
                builder.spawn_on(&rt, move || spin(&stop, &turns[i])).unwrap()
            })
            .collect();
        wait_until("both compute", || turns.iter().all(|n| n.load(Relaxed) > 0));
        for _ in 0..5 {
            tx.send_timeout(1, PATIENCE).unwrap();
        }
        assert_eq!(urgent.join().unwrap(), 5, "{policy}");
        let stats = rt.policy_stats();
        assert!(stats.sum(|p| p.preemptions) >= 1, "{policy}: {stats:?}");
        stop.store(true, Release);
        hogs.into_iter().for_each(|h| h.join().unwrap());
        end(rt);
    }
}

#[test]
fn who_becomes_less_urgent_makes_room() {
    let rt = one_p(PriorityLevels::with_age(Duration::from_secs(1000)));
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = order.clone();
    let root = Builder::new().priority(Priority::HIGHEST).spawn_on(&rt, move || {
        let log = seen.clone();
        let other = Builder::new().priority(Priority::HIGH).spawn(move || log.lock().unwrap().push("other"));
        seen.lock().unwrap().push("first");
        mungo::set_priority(Priority::LOW);
        seen.lock().unwrap().push("last");
        other.unwrap().join().unwrap();
    });
    root.unwrap().join().unwrap();
    assert_eq!(*order.lock().unwrap(), ["first", "other", "last"]);
    end(rt);
}

/// Low holds the lock, High waits for it, Middle computes for ever: without inheritance Low would never run again.
#[test]
fn the_holder_of_a_lock_is_as_urgent_as_who_waits_for_it() {
    let rt = Runtime::builder()
        .procs(1)
        .time_slice(Duration::from_millis(1))
        .scheduler(PriorityLevels::with_age(Duration::from_secs(1000)))
        .build()
        .unwrap();
    let lock = Arc::new(mungo::sync::Mutex::new(()));
    let stop = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicU64::new(0));
    let root = Builder::new().priority(Priority::HIGHEST);
    let (outer, inner) = (lock.clone(), Arc::new(mungo::sync::Mutex::new(())));
    let (stopped, counted) = (stop.clone(), turns.clone());
    let root = root.spawn_on(&rt, move || {
        let rank = |level| Builder::new().priority(Priority::new(level));
        // A chain: High waits for `outer`, whose holder waits for `inner`, whose holder is the least urgent.
        let (ready, is_ready) = mungo::chan::unbounded();
        let (held, told) = (inner.clone(), ready.clone());
        let low = rank(1).spawn(move || {
            let guard = held.lock();
            told.send(()).unwrap();
            for _ in 0..10 {
                yield_now(); // to whoever is more urgent
            }
            let boosted = mungo::priority();
            drop(guard);
            (boosted, mungo::priority())
        });
        is_ready.recv().unwrap();
        let (first, second) = (outer.clone(), inner.clone());
        let middle = rank(2).spawn(move || {
            let _outer = first.lock();
            ready.send(()).unwrap();
            let _inner = second.lock();
            mungo::priority()
        });
        is_ready.recv().unwrap();
        let hog = rank(100).spawn(move || spin(&stopped, &counted));
        let high = rank(200).spawn(move || drop(outer.lock()));
        high.unwrap().join().unwrap();
        (low.unwrap().join().unwrap(), middle.unwrap().join().unwrap(), hog.unwrap())
    });
    let ((boosted, after), middle, hog) = {
        // The goroutines of low priority end only after the hog did.
        let high_is_done = || lock.try_lock().is_some() && turns.load(Relaxed) > 0;
        wait_until("the urgent one got the lock although somebody computes", high_is_done);
        stop.store(true, Release);
        root.unwrap().join().unwrap()
    };
    hog.join().unwrap();
    assert_eq!((boosted, after), (Priority::new(200), Priority::new(1)));
    assert_eq!(middle, Priority::new(200));
    end(rt);
}

/// The CPU time that the calling thread has used.
fn thread_cpu_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// Spinning goroutines get CPU time by weight, within 5 %. Each is locked to its thread, which runs nobody else
/// meanwhile: so the thread's CPU clock is its own. Turns would not do: CPUs that
/// others use too are not equally fast.
#[test]
fn fair_divides_cpu_time_by_weight() {
    for procs in [1, 2] {
        let policy = Fair::with_slice(Duration::from_millis(1));
        let rt = Runtime::builder().procs(procs).scheduler(policy).build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let weights = [1024u32, 2048, 3072, 1024, 3072, 2048];
        let used_ns: Arc<Vec<AtomicU64>> = Arc::new(weights.iter().map(|_| AtomicU64::new(0)).collect());
        let spinners: Vec<_> = weights
            .iter()
            .enumerate()
            .map(|(i, weight)| {
                let (stop, used_ns) = (stop.clone(), used_ns.clone());
                let spin = move || {
                    let _locked = mungo::lock_os_thread();
                    let start = thread_cpu_ns();
                    while !stop.load(Acquire) {
                        (0..10_000).for_each(|k| _ = std::hint::black_box(k));
                        used_ns[i].store(thread_cpu_ns() - start, Relaxed);
                    }
                };
                Builder::new().weight(*weight).spawn_on(&rt, spin).unwrap()
            })
            .collect();
        let read = || used_ns.iter().map(|n| n.load(Relaxed)).collect::<Vec<u64>>();
        wait_until("all have begun", || read().iter().all(|n| *n > 0));
        // On a busy machine the monitor may be late by many slices, and somebody get too much; but that is made up for,
        // so the shares approach what is due. If they did not, this would wait in vain.
        let total_weight = f64::from(weights.iter().sum::<u32>());
        let mut shares = Vec::new();
        wait_until("the shares are what is due, within 5 %", || {
            let used = read();
            let total = used.iter().sum::<u64>() as f64;
            let due = |weight: u32| total * f64::from(weight) / total_weight;
            shares =
                used.iter().zip(weights).map(|(ns, weight)| *ns as f64 / due(weight)).collect::<Vec<f64>>();
            total > 300e6 && shares.iter().all(|share| (0.95..1.05).contains(share))
        });
        stop.store(true, Release);
        spinners.into_iter().for_each(|h| h.join().unwrap());
        assert_eq!(shares.len(), weights.len());
        end(rt);
    }
}

#[test]
fn budgets_are_admitted_while_there_is_room() {
    let rt = one_p(Deadline::new());
    let ms = Duration::from_millis;
    let (tx, rx) = mungo::chan::unbounded::<()>();
    let spawn = |budget| {
        let rx = rx.clone();
        let builder = Builder::new().period_budget(ms(10), ms(budget));
        builder.spawn_on(&rt, move || _ = rx.recv())
    };
    let first = spawn(5).unwrap();
    let second = spawn(4).unwrap();
    let error = spawn(1).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
    assert!(error.to_string().contains("10 % of a CPU, and 90 % of 95 % are promised"), "{error}");
    tx.send(()).unwrap();
    tx.send(()).unwrap();
    first.join().unwrap();
    second.join().unwrap();
    // What they had is free again; and without a policy that promises anything nobody is refused.
    let third = {
        let mut third = None;
        wait_until("the share is given back", || {
            third = spawn(9).ok();
            third.is_some()
        });
        third.unwrap()
    };
    rt.set_scheduler(mungo::policy::DefaultPolicy::new());
    let more: Vec<_> = (0..5).map(|_| spawn(9).unwrap()).collect();
    (0..6).for_each(|_| tx.send(()).unwrap());
    third.join().unwrap();
    more.into_iter().for_each(|h| h.join().unwrap());
    end(rt);
}

#[test]
fn missed_deadlines_are_counted() {
    let rt = one_p(Deadline::new());
    let deadline = Builder::new().deadline(Duration::from_millis(1));
    let late = deadline.clone().spawn_on(&rt, || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(3) {}
    });
    late.unwrap().join().unwrap();
    wait_until("the miss is counted", || rt.policy_stats().sum(|p| p.deadline_misses) == 1);
    let early = Builder::new().deadline(Duration::from_secs(1000)).spawn_on(&rt, || ());
    early.unwrap().join().unwrap();
    rt.run(|| go(|| ()).join().unwrap());
    assert_eq!(rt.policy_stats().sum(|p| p.deadline_misses), 1);
    end(rt);
}
