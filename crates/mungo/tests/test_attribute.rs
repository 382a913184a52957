//! What `#[mungo::test]` does beside running its body: deadlocks, time limits, panics of goroutines without a
//! handle. The cases are ignored tests, some of which fail; one test runs them all in a child process and reads what
//! the harness says.

mod common;

use common::child::{self, Ended};
use mungo::{Builder, chan, go, park, sleep};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const NEVER: Duration = Duration::ZERO;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[mungo::test(deadlock_warning = ms(100))]
#[ignore = "a case"]
fn case_deadlock() {
    let (_tx, rx) = chan::bounded::<()>(0);
    let helper = Builder::new().name("helper".to_owned()).spawn(move || rx.recv()).unwrap();
    _ = helper.join().unwrap();
}

#[mungo::test(deadlock_warning = ms(100), procs = 1)]
#[should_panic(expected = "mungo: deadlock: all goroutines of the test are asleep")]
#[ignore = "a case"]
fn case_deadlock_that_is_expected() {
    park();
}

#[mungo::test(timeout = ms(200))]
#[ignore = "a case"]
fn case_too_slow() {
    sleep(Duration::from_secs(3600));
}

/// What is left behind takes CPU time from the others, until the process ends.
#[mungo::test(timeout = ms(200), procs = 1)]
#[ignore = "a case"]
fn case_computes_too_long() {
    let start = Instant::now();
    while start.elapsed() < ms(10_000) {
        std::hint::black_box(());
    }
}

/// With no timer there is a deadlock, but nothing asks for it: the time limit comes.
#[mungo::test(timeout = ms(300), deadlock_warning = NEVER)]
#[ignore = "a case"]
fn case_deadlock_without_warning() {
    park();
}

#[mungo::test(timeout = NEVER, deadlock_warning = NEVER)]
#[ignore = "a case"]
fn case_no_limits() {
    sleep(ms(100));
}

#[mungo::test(deadlock_warning = ms(5000))]
#[ignore = "a case"]
fn case_a_thread_wakes() {
    let g = mungo::current();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(ms(200));
        g.unpark();
    });
    park();
    thread.join().unwrap();
}

#[mungo::test]
#[ignore = "a case"]
fn case_detached_panic() {
    drop(Builder::new().name("lonely".to_owned()).spawn(|| panic!("the reason")));
}

/// The handle is dropped after the panic, by another goroutine.
#[mungo::test]
#[ignore = "a case"]
fn case_detached_after_the_panic() {
    let handle = Builder::new().name("late".to_owned()).spawn(|| panic!("the late reason")).unwrap();
    while !handle.is_finished() {
        mungo::yield_now();
    }
}

#[mungo::test(detached_panics = "ignore")]
#[ignore = "a case"]
fn case_detached_panic_ignored() {
    drop(go(|| panic!("of no interest")));
}

#[mungo::test(detached_panics = "fail")]
#[ignore = "a case"]
fn case_joined_panic() {
    assert!(go(|| panic!("of interest to the joiner")).join().is_err());
}

/// Goroutines that wait when the test ends are no fault.
#[mungo::test]
#[ignore = "a case"]
fn case_left_behind() {
    go(park);
    go(|| sleep(Duration::from_secs(3600)));
}

/// Prints as a goroutine, and as one that it starts, after a switch.
#[mungo::test(procs = 1)]
#[ignore = "a case"]
fn case_prints() {
    println!("printed by main");
    let child = go(|| {
        mungo::yield_now();
        eprintln!("printed by a child");
        go(|| println!("printed by a grandchild")).join().unwrap();
    });
    child.join().unwrap();
    panic!("the end");
}

/// Where it passes, nothing is shown.
#[mungo::test]
#[ignore = "a case"]
fn case_prints_and_passes() {
    println!("printed in vain");
    go(|| println!("printed in vain")).join().unwrap();
}

static RUNS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// Fails in its third run.
#[mungo::test(policy = "chaos", seeds = 20)]
#[ignore = "a case"]
fn case_seeds() {
    assert_eq!(mungo::get_scheduler().name(), "chaos");
    assert!(RUNS[0].fetch_add(1, Relaxed) != 2, "the third run");
}

/// Returns an error in its second run; the policy need not be named.
#[mungo::test(seeds = 20, procs = 1)]
#[ignore = "a case"]
fn case_seeds_and_a_result() -> Result<(), Box<dyn std::error::Error>> {
    assert_eq!(mungo::get_scheduler().name(), "chaos");
    if RUNS[1].fetch_add(1, Relaxed) == 1 { Err("the second run".into()) } else { Ok(()) }
}

/// Runs as often as it has seeds: the last one panics, as it should.
#[mungo::test(policy = "chaos:delay=1us", seeds = 5)]
#[should_panic(expected = "the fifth run")]
#[ignore = "a case"]
fn case_all_seeds() {
    assert!(RUNS[2].fetch_add(1, Relaxed) != 4, "the fifth run");
}

#[mungo::test(policy = "fifo")]
#[ignore = "a case"]
fn case_policy_by_name() {
    assert_eq!(mungo::get_scheduler().name(), "fifo");
}

#[mungo::test(policy = "chaoss", seeds = 3)]
#[ignore = "a case"]
fn case_policy_unknown() {}

/// All cases in one process, one after the other on the harness's main thread, or several at a time.
fn run_cases(threads: &str) -> Ended {
    let mut command = child::command("cases");
    command.args(["--ignored", "case_", "--test-threads", threads]);
    child::finish(command)
}

#[track_caller]
fn assert_case(ended: &Ended, name: &str, passes: bool) {
    let verdict = if passes { "ok" } else { "FAILED" };
    let found = ended.stdout.lines().any(|line| {
        line.starts_with(&format!("test case_{name} ")) && line.ends_with(&format!(" ... {verdict}"))
    });
    assert!(found, "{name} is not {verdict}: {ended:#?}");
}

/// The report of the case, as the harness shows it.
#[track_caller]
fn report<'a>(ended: &'a Ended, name: &str) -> &'a str {
    let start = format!("---- case_{name} stdout ----");
    let (_, rest) =
        ended.stdout.split_once(&start).unwrap_or_else(|| panic!("no report of {name}: {ended:#?}"));
    rest.split("---- case_").next().unwrap()
}

#[test]
fn a_test_ends_whatever_its_goroutines_do() {
    for threads in ["1", "4"] {
        let ended = run_cases(threads);
        ended.assert_code(101);
        for name in ["deadlock", "too_slow", "computes_too_long", "deadlock_without_warning"] {
            assert_case(&ended, name, false);
        }
        for name in ["no_limits", "a_thread_wakes", "left_behind", "joined_panic", "detached_panic_ignored"] {
            assert_case(&ended, name, true);
        }
        assert_case(&ended, "deadlock_that_is_expected", true);
        for name in ["detached_panic", "detached_after_the_panic"] {
            assert_case(&ended, name, false);
        }
    }
}

#[test]
fn the_reason_is_said_with_a_dump() {
    let ended = run_cases("2");
    let deadlock = report(&ended, "deadlock");
    assert!(deadlock.contains("mungo: deadlock: all goroutines of the test are asleep"), "{deadlock}");
    assert!(deadlock.contains("mungo: 2 goroutines\n"), "of this runtime alone: {deadlock}");
    assert!(deadlock.contains("'main' [join, ") && deadlock.contains("'helper' [chan receive, "), "{deadlock}");
    assert!(deadlock.contains("panicked at crates/mungo/tests/test_attribute.rs:"), "{deadlock}");
    let slow = report(&ended, "too_slow");
    assert!(slow.contains("mungo: the test has not ended within its time limit of 200ms"), "{slow}");
    assert!(slow.contains("'main' [sleep, "), "{slow}");
    let computes = report(&ended, "computes_too_long");
    assert!(computes.contains("'main' [running]"), "{computes}");
    let lonely = report(&ended, "detached_panic");
    assert!(
        lonely.contains("mungo: a detached goroutine ") && lonely.contains("panicked: the reason"),
        "{lonely}"
    );
    assert!(lonely.contains("'lonely' (spawned at crates/mungo/tests/test_attribute.rs:"), "{lonely}");
}

#[test]
fn what_goroutines_print_is_captured() {
    let ended = run_cases("2");
    let printed = report(&ended, "prints");
    for who in ["main", "a child", "a grandchild"] {
        let line = format!("printed by {who}\n");
        assert_eq!(printed.matches(&line).count(), 1, "{who}: {printed}");
        assert_eq!(ended.stdout.matches(&line).count(), 1, "{who}: {ended:#?}");
        ended.assert_does_not_say(&line);
    }
    assert!(!ended.stdout.contains("in vain"), "{ended:#?}");
    // The panic hook prints too.
    ended.assert_does_not_say("of interest to the joiner");
    assert!(!ended.stdout.contains("of interest to the joiner"), "{ended:#?}");
}

#[test]
fn the_seed_that_fails_is_named() {
    let ended = run_cases("2");
    assert_case(&ended, "seeds", false);
    assert_case(&ended, "seeds_and_a_result", false);
    assert_case(&ended, "all_seeds", true);
    assert_case(&ended, "policy_by_name", true);
    assert_case(&ended, "policy_unknown", false);
    ended.assert_says("failed with seed 2 of policy 'chaos'; MUNGO_TEST_SEED=2 repeats it");
    ended.assert_says("failed with seed 1 of policy 'chaos'; MUNGO_TEST_SEED=1 repeats it");
    let unknown = report(&ended, "policy_unknown");
    assert!(unknown.contains("did you mean 'chaos'?"), "{unknown}");
}

#[test]
fn one_seed_can_be_asked_for() {
    let with_seed = |seed: &str| {
        let mut command = child::command("cases");
        command.env("MUNGO_TEST_SEED", seed).args(["--ignored", "--exact", "case_seeds"]);
        child::finish(command)
    };
    assert_case(with_seed("17").assert_success(), "seeds", true);
    let ended = with_seed("many");
    assert_case(&ended, "seeds", false);
    assert!(report(&ended, "seeds").contains("MUNGO_TEST_SEED is 'many': it must be a number"), "{ended:?}");
}
