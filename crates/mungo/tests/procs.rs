//! The number of Ps, and runtimes: side by side, inside each other, shut down, dropped.

#[macro_use]
mod common;

use common::{Rng, child, end, runtime, stress_time, threads, wait_until};
use mungo::{Runtime, go, yield_now};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::time::{Duration, Instant};

children!(
    default_procs,
    bad_environment,
    build_and_shut_down,
    threads_end,
    drop_with_live_goroutines,
    drop_with_a_bound_goroutine,
    waits_for_the_next_in_line,
);

#[test]
fn senseless_numbers_are_refused() {
    for n in [0, 1025, usize::MAX] {
        let e = Runtime::builder().procs(n).build().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
        assert!(e.to_string().contains("1024"), "{e}");
    }
    let rt = runtime(2);
    assert_eq!(rt.set_procs(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(rt.set_procs(1025).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(rt.run(mungo::procs), 2);
    assert!(rt.run(|| std::panic::catch_unwind(|| mungo::set_procs(0)).is_err()));
    assert!(Runtime::builder().procs(2).max_threads(1).build().is_err());
    assert!(Runtime::builder().time_slice(Duration::ZERO).build().is_err());
    end(rt);
}

#[test]
fn set_procs_returns_the_old_number() {
    let rt = runtime(3);
    assert_eq!(rt.set_procs(5).unwrap(), 3);
    assert_eq!(rt.set_procs(1).unwrap(), 5);
    assert_eq!(rt.run(|| mungo::set_procs(2)), 1);
    assert_eq!(rt.info().procs, 2);
    end(rt);
}

#[test]
fn info_says_what_the_runtime_is_made_of() {
    let slice = Duration::from_millis(3);
    let rt = Runtime::builder().procs(3).max_threads(77).time_slice(slice).build().unwrap();
    let info = rt.info();
    assert_eq!((info.procs, info.max_threads, info.time_slice), (3, 77, slice));
    assert_eq!(info.procs_source, "set by hand");
    assert_eq!(info.cpus, mungo::num_cpus());
    assert!(!info.version.is_empty());
    end(rt);
    let rt = Runtime::new().unwrap();
    rt.set_procs(2).unwrap();
    assert_eq!(rt.info().procs_source, "set by hand");
    end(rt);
}

/// Ps come and go while goroutines of all kinds run; nobody is lost, and no P is.
#[test]
fn stress_set_procs_under_load() {
    let mut rng = Rng::seeded("stress_set_procs_under_load");
    let rt = runtime(4);
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..40u64)
        .map(|i| {
            let (stop, done) = (stop.clone(), done.clone());
            rt.spawn(move || {
                let _bound = (i < 6).then(mungo::lock_os_thread);
                let mut made = 0u64;
                while !stop.load(Relaxed) {
                    match i % 4 {
                        0 => mungo::park_timeout(Duration::from_micros(30)),
                        1 => yield_now(),
                        2 => mungo::sleep(Duration::from_micros(i)),
                        _ => {
                            let done = done.clone();
                            let one = go(move || done.fetch_add(1, Relaxed));
                            made += 1;
                            if made.is_multiple_of(8) {
                                one.join().unwrap();
                            }
                        }
                    }
                }
                made
            })
        })
        .collect();
    // Two at a time: growing and shrinking race.
    let time = stress_time(Duration::from_millis(1500));
    std::thread::scope(|s| {
        for _ in 0..2 {
            let mut rng = Rng::new(rng.next());
            let rt = &rt;
            s.spawn(move || {
                let start = Instant::now();
                while start.elapsed() < time {
                    rt.set_procs(1 + rng.below(64) as usize).unwrap();
                }
            });
        }
    });
    stop.store(true, Relaxed);
    let made: u64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
    wait_until("all children ended", || done.load(Relaxed) == made);
    rt.set_procs(7).unwrap();
    wait_until("all seven Ps are idle", || rt.metrics().idle_procs == 7);
    end(rt);
}

/// Two goroutines compute on two Ps, and one of them has spawned others, which wait in its queue. Whichever P
/// retires, those are not stuck with it.
#[test]
fn the_queue_of_a_retiring_p_is_not_stuck() {
    let rt = runtime(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let spawned = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicU32::new(0));
    let hogs: Vec<_> = (0..2)
        .map(|i| {
            let (ran, spawned, stop) = (ran.clone(), spawned.clone(), stop.clone());
            rt.spawn(move || {
                for _ in 0..50 * i {
                    let ran = ran.clone();
                    go(move || ran.fetch_add(1, SeqCst));
                }
                spawned.fetch_add(1, Release);
                while stop.load(Acquire) == 0 {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    wait_until("both compute", || spawned.load(Acquire) == 2);
    rt.set_procs(1).unwrap();
    wait_until("the one P ran them all", || ran.load(SeqCst) == 50);
    stop.store(1, Release);
    hogs.into_iter().for_each(|h| h.join().unwrap());
    end(rt);
}

#[test]
fn runtimes_live_side_by_side_and_inside_each_other() {
    let (a, b) = (runtime(1), Arc::new(runtime(2)));
    let inner = b.clone();
    let n = a.run(move || {
        let there = inner.run(|| {
            let deepest = runtime(3);
            let n = deepest.run(mungo::procs);
            end(deepest);
            (n, mungo::procs())
        });
        (there, mungo::procs(), go(move || inner.spawn(mungo::procs).join().unwrap()).join().unwrap())
    });
    assert_eq!(n, ((3, 2), 1, 2));
    end(a);
    end(Arc::into_inner(b).unwrap());
}

#[test]
fn shutdown_waits_for_the_last_goroutine() {
    let rt = runtime(2);
    let ended = Arc::new(AtomicUsize::new(0));
    for i in 0..100 {
        let ended = ended.clone();
        rt.spawn(move || {
            mungo::sleep(Duration::from_micros(i * 100));
            ended.fetch_add(1, SeqCst);
        });
    }
    rt.shutdown(common::PATIENCE).unwrap();
    assert_eq!(ended.load(SeqCst), 100);
}

#[test]
fn shutdown_gives_up_and_the_goroutines_go_on() {
    let rt = runtime(1);
    let go_on = Arc::new(AtomicBool::new(false));
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let go_on = go_on.clone();
            rt.spawn(move || {
                while !go_on.load(Acquire) {
                    mungo::park();
                }
                go(|| 7).join().unwrap() // the runtime still takes new ones from its own
            })
        })
        .collect();
    let e = rt.shutdown(Duration::from_millis(5)).unwrap_err();
    assert_eq!(e.remaining(), 3);
    assert!(e.to_string().contains('3'));
    go_on.store(true, Release);
    waiting.iter().for_each(|w| w.goroutine().unpark());
    waiting.into_iter().for_each(|w| assert_eq!(w.join().unwrap(), 7));
}

fn default_procs() {
    println!("{}", mungo::procs());
}

#[test]
fn the_environment_sets_the_number_of_procs() {
    // Each P has stacks at hand.
    let few = child::is_emulated("guard pages take mappings of their own: no room for the stacks of 1024 Ps");
    let most = if few { "200" } else { "1024" };
    for (value, procs) in [("1", "1"), (" 7 ", "7"), (most, most)] {
        let mut command = child::command("default_procs");
        command.env("MUNGO_PROCS", value);
        assert_eq!(child::finish(command).assert_success().stdout.trim(), procs);
    }
    let mut command = child::command("default_procs");
    command.env("MUNGO_PROCS", "");
    let usual = child::run("default_procs");
    assert_eq!(child::finish(command).assert_success().stdout, usual.stdout);
}

fn bad_environment() {
    let e = Runtime::new().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidInput);
    assert!(mungo::Builder::new().spawn(|| ()).is_err());
    assert_eq!(runtime(3).run(mungo::procs), 3); // by code
    eprintln!("refused: {e}");
}

#[test]
fn a_senseless_environment_is_an_error() {
    for value in ["0", "-1", "1025", "many", "3.5", "99999999999999999999"] {
        let mut command = child::command("bad_environment");
        command.env("MUNGO_PROCS", value);
        let ended = child::finish(command);
        ended.assert_success().assert_says(&format!("refused: MUNGO_PROCS is '{value}'"));
    }
}

fn build_and_shut_down() {
    let round = || {
        let rt = runtime(3);
        rt.run(|| (0..20).map(|_| go(yield_now)).for_each(|h| h.join().unwrap()));
        end(rt);
    };
    (0..20).for_each(|_| round());
    wait_until("the threads ended", || threads() == 1);
    let (files, mappings) = (common::open_files(), common::mappings());
    (0..200).for_each(|_| round());
    wait_until("the threads ended", || threads() == 1);
    assert_eq!(common::open_files(), files);
    // malloc keeps an arena or two more, the C library some thread stacks.
    assert!(common::mappings() <= mappings + 30, "{mappings} mappings became {}", common::mappings());
}

#[test]
fn building_and_shutting_down_leaks_nothing() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    child::run("build_and_shut_down").assert_success();
}

fn threads_end() {
    let rt = runtime(8);
    rt.run(|| {
        let busy: Vec<_> = (0..100).map(|_| go(|| (0..100).for_each(|_| yield_now()))).collect();
        busy.into_iter().for_each(|b| b.join().unwrap());
    });
    assert!(threads() > 2);
    end(rt);
    wait_until("the threads ended", || threads() == 1);
}

#[test]
fn the_threads_end_with_the_runtime() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    child::run("threads_end").assert_success();
}

fn drop_with_live_goroutines() {
    let rt = runtime(2);
    let waiting: Vec<_> = (0..10)
        .map(|i| {
            rt.spawn(move || {
                mungo::park();
                i
            })
        })
        .collect();
    drop(rt);
    assert!(threads() > 1);
    for (i, w) in waiting.into_iter().enumerate() {
        assert!(!w.is_finished());
        w.goroutine().unpark();
        assert_eq!(w.join().unwrap(), i);
    }
    wait_until("the threads ended", || threads() == 1);
}

#[test]
fn a_dropped_runtime_ends_after_its_last_goroutine() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    child::run("drop_with_live_goroutines").assert_success();
}

/// The last goroutine ends together with its thread, which looks no further.
fn drop_with_a_bound_goroutine() {
    let rt = runtime(1);
    let bound = rt.spawn(|| {
        std::mem::forget(mungo::lock_os_thread());
        mungo::park();
    });
    wait_until("it waits", || rt.metrics().per_proc.iter().any(|p| p.parks > 0));
    drop(rt);
    bound.goroutine().unpark();
    bound.join().unwrap();
    wait_until("the threads ended", || threads() == 1);
}

#[test]
fn a_dropped_runtime_ends_after_a_goroutine_that_is_bound() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    child::run("drop_with_a_bound_goroutine").assert_success();
}

/// Its P has one goroutine in line, and will not come to it.
fn waits_for_the_next_in_line() {
    runtime(2).run(|| {
        for _ in 0..20 {
            let ran = Arc::new(AtomicBool::new(false));
            let runs = ran.clone();
            go(move || runs.store(true, Release));
            let patience = common::Deadline::after(common::PATIENCE);
            while !ran.load(Acquire) {
                assert!(!patience.passed(), "nobody took it");
            }
        }
    });
}

/// Without preemption signals, so that its P does not move on.
#[test]
fn the_next_in_line_is_taken_from_a_p_that_stands_still() {
    let mut command = child::command("waits_for_the_next_in_line");
    command.env("MUNGO_DEBUG", "asyncpreempt=0");
    child::finish(command).assert_success();
}

/// Each computes until all of them have begun, and none calls the runtime: there is a P for each, if not a CPU.
#[test]
fn with_more_procs_than_cpus_all_of_them_run() {
    let n = mungo::num_cpus() + 2;
    let runtime = Runtime::builder().procs(n).time_slice(Duration::from_secs(3600)).build().unwrap();
    runtime.run(move || {
        let begun = Arc::new(AtomicUsize::new(0));
        let all = (0..n).map(|_| {
            let begun = begun.clone();
            mungo::spawn(move || {
                begun.fetch_add(1, Relaxed);
                while begun.load(Relaxed) < n {
                    std::hint::spin_loop();
                }
            })
        });
        all.collect::<Vec<_>>().into_iter().for_each(|one| one.join().unwrap());
    });
}
