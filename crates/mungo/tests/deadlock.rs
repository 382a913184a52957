//! "All goroutines are asleep": found when it is so, and never when it is not. Each case is a process of its own.

#[macro_use]
mod common;

use common::{child, runtime};
use mungo::{go, park, sleep};
use std::time::{Duration, Instant};

children!(
    main_joins_a_parked_goroutine,
    main_joins_late,
    main_waits_for_a_scope,
    main_awaits_a_goroutine,
    main_goroutine_parks,
    main_goroutine_parks_with_options,
    a_thread_ends_first,
    a_plain_thread_unparks,
    a_timer_is_pending,
    a_goroutine_computes,
    another_runtime_is_active,
    nobody_waits,
);

const DEADLOCK: &str = "fatal error: all goroutines are asleep - deadlock!";

fn main_joins_a_parked_goroutine() {
    let stuck = mungo::Builder::new().name("stuck".to_owned()).spawn(park).unwrap();
    let waiting = go(move || stuck.join().unwrap());
    waiting.join().unwrap();
}

/// Runs a child that deadlocks.
#[track_caller]
fn assert_deadlock(name: &str) -> child::Ended {
    let ended = child::run(name);
    ended.assert_code(2).assert_says(DEADLOCK);
    ended
}

#[test]
fn each_goroutine_is_listed_with_what_it_waits_for() {
    let ended = assert_deadlock("main_joins_a_parked_goroutine");
    assert!(ended.took < Duration::from_secs(2), "{ended:#?}");
    let lines: Vec<_> = ended.stderr.lines().filter(|l| l.starts_with("goroutine ")).collect();
    assert_eq!(lines.len(), 2, "{ended:#?}");
    let stuck = lines.iter().find(|l| l.contains("'stuck'")).unwrap();
    let waiting = lines.iter().find(|l| !l.contains("'stuck'")).unwrap();
    assert!(stuck.contains("[waiting: park, ") && stuck.contains("tests/deadlock.rs:"), "{stuck}");
    assert!(waiting.contains("[waiting: join, ") && waiting.contains("tests/deadlock.rs:"), "{waiting}");
    let id = |line: &str| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
    assert_ne!(id(stuck), id(waiting));
}

/// Everything has been quiet for long when somebody begins to wait.
fn main_joins_late() {
    let stuck = go(park);
    std::thread::sleep(Duration::from_millis(1200));
    stuck.join().unwrap();
}

#[test]
fn a_deadlock_that_comes_late_is_found() {
    let ended = assert_deadlock("main_joins_late");
    assert!(ended.took < Duration::from_millis(1200) + Duration::from_secs(2), "{ended:#?}");
}

fn main_waits_for_a_scope() {
    mungo::scope(|s| {
        s.spawn(|| mungo::scope(|inner| _ = inner.spawn(park)));
    });
}

#[test]
fn scopes_deadlock_too() {
    assert_deadlock("main_waits_for_a_scope")
        .assert_says("[waiting: end of scope, ")
        .assert_says("[waiting: park, ");
}

fn main_awaits_a_goroutine() {
    mungo::block_on(go(|| mungo::block_on(std::future::pending::<()>()))).unwrap();
}

#[test]
fn futures_deadlock_too() {
    assert_deadlock("main_awaits_a_goroutine").assert_says("[waiting: block on, ");
}

#[mungo::main]
fn main_goroutine_parks() {
    park();
}

#[mungo::main(procs = 2)]
fn main_goroutine_parks_with_options() {
    go(park).join().unwrap();
}

#[test]
fn the_main_goroutine_may_be_the_one() {
    for name in ["main_goroutine_parks", "main_goroutine_parks_with_options"] {
        assert_deadlock(name).assert_says("'main' (spawned at crates/mungo/tests/deadlock.rs:");
    }
}

fn a_thread_ends_first() {
    let stuck = go(park);
    std::thread::spawn(|| std::thread::sleep(Duration::from_millis(300)));
    stuck.join().unwrap();
}

#[test]
fn it_is_found_when_the_last_plain_thread_is_gone() {
    assert_deadlock("a_thread_ends_first");
}

fn a_plain_thread_unparks() {
    let waiting = go(park);
    let g = waiting.goroutine();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(800));
        g.unpark();
    });
    waiting.join().unwrap();
    thread.join().unwrap();
}

fn a_timer_is_pending() {
    let waiting = go(park);
    let g = waiting.goroutine();
    go(move || {
        sleep(Duration::from_millis(800));
        g.unpark();
    });
    waiting.join().unwrap();
    go(|| mungo::park_timeout(Duration::from_millis(300))).join().unwrap();
}

fn a_goroutine_computes() {
    let waiting = go(park);
    let g = waiting.goroutine();
    go(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_millis(300)); // or it is in a system call
        g.unpark();
    });
    waiting.join().unwrap();
}

fn another_runtime_is_active() {
    let (a, b) = (runtime(1), runtime(1));
    let waiting = a.spawn(park);
    let g = waiting.goroutine();
    b.spawn(move || {
        sleep(Duration::from_millis(500));
        g.unpark();
    });
    waiting.join().unwrap();
}

/// Parked goroutines alone are no deadlock: nobody waits for them.
fn nobody_waits() {
    go(park);
    std::thread::sleep(Duration::from_millis(500));
}

#[test]
fn there_is_no_false_alarm() {
    let cases = [
        "a_plain_thread_unparks",
        "a_timer_is_pending",
        "a_goroutine_computes",
        "another_runtime_is_active",
        "nobody_waits",
    ];
    std::thread::scope(|s| {
        for name in cases {
            s.spawn(move || _ = child::run(name).assert_success().assert_does_not_say(DEADLOCK));
        }
    });
}
