//! Nobody starves: counted in turns, not in time.

mod common;

use common::{PATIENCE, end, hasty_runtime, preemptions, runtime, wait_until};
use mungo::{Goroutine, Runtime, go, park, yield_now};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Two goroutines that wake each other through `runnext` until told to stop.
fn ping_pong(rt: &Runtime, stop: &Arc<AtomicBool>) -> (Vec<mungo::JoinHandle<()>>, Arc<AtomicU64>) {
    let (turn, turns) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let gs: Arc<Mutex<Vec<Goroutine>>> = Arc::default();
    let pair = (0..2)
        .map(|me| {
            let (stop, turn, turns, gs) = (stop.clone(), turn.clone(), turns.clone(), gs.clone());
            rt.spawn(move || {
                gs.lock().unwrap().push(mungo::current());
                while gs.lock().unwrap().len() < 2 {
                    yield_now();
                }
                let mine = mungo::current().id();
                let other = gs.lock().unwrap().iter().find(|g| g.id() != mine).unwrap().clone();
                while !stop.load(Acquire) {
                    if turn.load(Acquire) % 2 == me {
                        turns.fetch_add(1, Relaxed);
                        turn.fetch_add(1, Release);
                        other.unpark();
                    }
                    park();
                }
                other.unpark();
            })
        })
        .collect();
    (pair, turns)
}

/// A goroutine that parks here ends the test; one that is starved never does.
fn watchdog(stop: &Arc<AtomicBool>) -> impl FnMut() + use<> {
    let (stop, start) = (stop.clone(), Instant::now());
    move || {
        if start.elapsed() > PATIENCE {
            stop.store(true, Release);
            panic!("starved");
        }
    }
}

#[test]
fn a_pair_that_wakes_each_other_cannot_starve_the_ring() {
    let rt = hasty_runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let (pair, turns) = ping_pong(&rt, &stop);
    wait_until("the pair plays", || turns.load(Relaxed) > 1000);
    let served = Arc::new(AtomicU64::new(0));
    let count = served.clone();
    let other = rt.spawn(move || {
        (0..50).for_each(|_| {
            count.fetch_add(1, Relaxed);
            yield_now(); // to the back of the ring
        });
    });
    other.join().unwrap();
    assert_eq!(served.load(Relaxed), 50);
    let before = turns.load(Relaxed);
    wait_until("the pair plays on", || turns.load(Relaxed) > before + 1000);
    stop.store(true, Release);
    pair.iter().for_each(|h| h.goroutine().unpark());
    pair.into_iter().for_each(|h| h.join().unwrap());
    end(rt);
}

#[test]
fn the_global_queue_is_served_while_the_local_one_is_never_empty() {
    let rt = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let local = Arc::new(AtomicU64::new(0));
    // Each yields to the others for ever: the ring always has somebody.
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let (stop, local) = (stop.clone(), local.clone());
            rt.spawn(move || {
                let mut patience = watchdog(&stop);
                while !stop.load(Relaxed) {
                    local.fetch_add(1, Relaxed);
                    patience();
                    yield_now();
                }
            })
        })
        .collect();
    wait_until("the ring is busy", || local.load(Relaxed) > 100);
    for _ in 0..50 {
        let before = local.load(Relaxed);
        let after = rt.spawn({
            let local = local.clone();
            move || local.load(Relaxed)
        });
        let turns = after.join().unwrap() - before;
        // The 61st tick is the global queue's. This thread may lose the CPU between its two looks, so be generous.
        assert!(turns < 5_000_000, "{turns} turns of others before the global queue's");
    }
    stop.store(true, Relaxed);
    busy.into_iter().for_each(|h| h.join().unwrap());
    end(rt);
}

/// Each goroutine spawns its successor, which goes to `runnext`.
#[test]
fn respawning_cannot_starve_the_others() {
    fn respawn(stop: Arc<AtomicBool>, n: Arc<AtomicU64>) {
        n.fetch_add(1, Relaxed);
        if !stop.load(Relaxed) {
            go(move || respawn(stop, n));
        }
    }
    let rt = hasty_runtime(1);
    let (stop, n) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (s, m) = (stop.clone(), n.clone());
    rt.spawn(move || respawn(s, m));
    wait_until("it respawns", || n.load(Relaxed) > 1000);
    let before = preemptions(&rt);
    (0..20).for_each(|_| rt.spawn(yield_now).join().unwrap());
    let passed = preemptions(&rt) - before;
    // Two turns each. Between a join and the next spawn this thread may lose its CPU for some slices.
    assert!(passed < 400, "{passed} slices for 20 goroutines");
    stop.store(true, Relaxed);
    end(rt);
}

#[test]
fn who_calls_the_runtime_often_is_preempted() {
    let rt = hasty_runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, spawned) = (stop.clone(), Arc::new(AtomicU64::new(0)));
    let count = spawned.clone();
    let greedy = rt.spawn(move || {
        let mut patience = watchdog(&stopped);
        while !stopped.load(Relaxed) {
            if count.fetch_add(1, Relaxed) % 64 == 0 && mungo::num_goroutines() > 10_000 {
                yield_now(); // enough is enough
            }
            drop(go(|| ()));
            patience();
        }
    });
    wait_until("it spawns", || spawned.load(Relaxed) > 100);
    (0..20).for_each(|_| rt.spawn(|| ()).join().unwrap());
    assert!(preemptions(&rt) > 0);
    stop.store(true, Relaxed);
    greedy.join().unwrap();
    end(rt);
}

/// One goroutine makes all the work; it does not go on before everybody has had a share.
#[test]
fn all_ps_take_part_in_uneven_work() {
    let procs = 4;
    let rt = runtime(procs);
    let stop = Arc::new(AtomicBool::new(false));
    let until = stop.clone();
    rt.spawn(move || {
        while !until.load(Relaxed) {
            for _ in 0..200 {
                go(|| (0..2000).for_each(|k| _ = std::hint::black_box(k)));
            }
            yield_now();
        }
    });
    wait_until("every P ran something, and stole something", || {
        let m = rt.metrics();
        m.per_proc.len() == procs
            && m.per_proc.iter().all(|p| p.switches > 100 && p.steals + p.global_takes > 0)
    });
    assert!(rt.metrics().per_proc.iter().map(|p| p.steals).sum::<u64>() > 0);
    stop.store(true, Relaxed);
    end(rt);
}

/// All are idle, and a plain thread comes: again and again somebody must wake up.
#[test]
fn no_wakeup_from_outside_is_lost() {
    for procs in [1, 2, 4] {
        let rt = runtime(procs);
        let rounds = if cfg!(debug_assertions) { 1500 } else { 3000 };
        for i in 0..rounds {
            if i % 3 == 0 {
                wait_until_idle(&rt);
            }
            let h = rt.spawn(move || i);
            assert_eq!(h.join().unwrap(), i);
        }
        end(rt);
    }
}

fn wait_until_idle(rt: &Runtime) {
    let start = Instant::now();
    while rt.metrics().idle_procs < rt.metrics().procs {
        assert!(start.elapsed() < PATIENCE, "the Ps do not come to rest: {:?}", rt.metrics());
        std::thread::yield_now();
    }
}

/// Bursts from several threads; each goroutine must run although all of them come at once.
#[test]
fn no_wakeup_is_lost_in_bursts() {
    let rt = runtime(3);
    let ran = Arc::new(AtomicUsize::new(0));
    let (threads, rounds, burst) = (4, 300, 10);
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                for _ in 0..rounds {
                    let all: Vec<_> = (0..burst)
                        .map(|_| {
                            let ran = ran.clone();
                            rt.spawn(move || ran.fetch_add(1, SeqCst))
                        })
                        .collect();
                    all.into_iter().for_each(|h| _ = h.join().unwrap());
                }
            });
        }
    });
    assert_eq!(ran.load(SeqCst), threads * rounds * burst);
    end(rt);
}

/// It finds nobody in the queue of its P, and must look further.
#[test]
fn who_only_yields_makes_room_for_those_that_come_from_outside() {
    /// A goroutine from outside has its turn when the P comes to the global queue, which it does every 61 turns.
    const MANY: u64 = 1000;
    let rt = runtime(1);
    for _ in 0..50 {
        let [waits, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (waiting, stopped) = (waits.clone(), stop.clone());
        let yielding = rt.spawn(move || {
            let mut turns = 0;
            while !stopped.load(Relaxed) {
                turns += u64::from(waiting.load(Acquire));
                assert!(turns < MANY, "starved");
                yield_now();
            }
        });
        rt.spawn(move || stop.store(true, Relaxed));
        waits.store(true, Release);
        yielding.join().unwrap();
    }
}
