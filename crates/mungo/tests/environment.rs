//! `MUNGO_*`: each setting of the builder has a variable, and bad ones are named.

#[macro_use]
mod common;

use common::child::{self, Ended};
use mungo::Runtime;
use std::io::ErrorKind;

children!(builds, builds_with_settings, builds_twice);

/// Says what came of it.
fn builds() {
    match Runtime::new() {
        Ok(runtime) => println!("{} procs, {}", runtime.run(mungo::procs), runtime.run(stack)),
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            println!("{e}");
        }
    }
}

fn stack() -> &'static str {
    match std::env::var_os("MUNGO_STACK_SIZE") {
        None => "the usual stack",
        Some(_) if sum() == 600 << 10 => "a large stack",
        Some(_) => "?",
    }
}

/// Uses 600 KiB of stack, which the usual one has not.
#[inline(never)]
fn sum() -> usize {
    let large = std::hint::black_box([1u8; 600 << 10]);
    large.iter().map(|&n| usize::from(n)).sum()
}

fn builds_with_settings() {
    let runtime = Runtime::builder().procs(2).max_threads(100).build().unwrap();
    println!("{} procs", runtime.run(mungo::procs));
}

fn builds_twice() {
    drop((Runtime::new().unwrap(), Runtime::new().unwrap()));
}

fn run(name: &str, variables: &[(&str, &str)]) -> Ended {
    let mut command = child::command(name);
    command.envs(variables.iter().copied());
    child::finish(command)
}

#[test]
fn variables_are_settings() {
    let ended = run("builds", &[("MUNGO_PROCS", "3"), ("MUNGO_STACK_SIZE", "4M"), ("MUNGO_MAX_THREADS", "50")]);
    assert_eq!(ended.assert_success().stdout, "3 procs, a large stack\n");
    assert_eq!(ended.stderr, "");
    let slices =
        [("MUNGO_TIME_SLICE", "1ms"), ("MUNGO_POLICY_WATCHDOG", "1s"), ("MUNGO_DEADLOCK_WARNING", "0")];
    run("builds", &slices).assert_success();
    run("builds", &[("MUNGO_TIMER_SLACK", "1ms")]).assert_success();
    let refused = run("builds", &[("MUNGO_TIMER_SLACK", "1s")]);
    assert_eq!(refused.assert_success().stdout, "timer_slack is 1s: it must be at most 10 ms\n");
}

#[test]
fn what_the_code_says_counts_more() {
    let ended = run("builds_with_settings", &[("MUNGO_PROCS", "7"), ("MUNGO_MAX_THREADS", "1")]);
    assert_eq!(ended.assert_success().stdout, "2 procs\n");
}

#[test]
fn a_bad_value_is_an_error_with_its_name() {
    for (name, value, wanted) in [
        ("MUNGO_PROCS", "many", "a number from 1 to 1024"),
        ("MUNGO_PROCS", "0", "a number from 1 to 1024"),
        ("MUNGO_STACK_SIZE", "big", "a number of bytes as 65536, 256K or 1M"),
        ("MUNGO_MAX_THREADS", "-1", "a number from 1"),
        ("MUNGO_TIME_SLICE", "10", "a duration as 500us, 10ms or 2s"),
        ("MUNGO_DEADLOCK_WARNING", "soon", "a duration as"),
        ("MUNGO_TIMER_SLACK", "little", "a duration as"),
    ] {
        let ended = run("builds", &[(name, value)]);
        let expected = format!("{name} is '{value}': it must be {wanted}");
        assert!(ended.assert_success().stdout.contains(&expected), "{ended:?}");
    }
    let ended = run("builds", &[("MUNGO_TIME_SLICE", "1us")]);
    assert!(ended.assert_success().stdout.contains("from 100 µs to an hour"), "{ended:?}");
}

#[test]
fn an_unknown_name_is_named_once_with_the_closest() {
    let ended = run("builds_twice", &[("MUNGO_PROC", "3")]);
    let warning = "mungo: the variable MUNGO_PROC has no effect: did you mean MUNGO_PROCS?\n";
    assert_eq!(ended.assert_success().stderr, warning);
}
