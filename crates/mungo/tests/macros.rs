//! `#[mungo::main]` and `#[mungo::test]` with the real runtime.

#[macro_use]
mod common;

use common::child;
use std::error::Error;

children!(plain, with_options, fails, ends_with_its_main_goroutine);

#[mungo::main]
fn plain() {
    assert_eq!(mungo::current().name(), Some("main"));
    assert_eq!(mungo::go(|| 6 * 7).join().unwrap(), 42);
    println!("plain");
}

#[mungo::main(procs = 3, stack_size = 1 << 20, max_threads = 50, time_slice = std::time::Duration::from_millis(5))]
fn with_options() {
    assert_eq!(mungo::procs(), 3);
    println!("with options");
}

#[mungo::main]
fn returns_an_error() -> Result<(), Box<dyn Error>> {
    let _: u8 = "many".parse()?;
    Ok(())
}

fn fails() {
    println!("{}", returns_an_error().unwrap_err());
}

#[mungo::main]
fn ends_with_its_main_goroutine() {
    mungo::go(mungo::park);
}

#[test]
fn programs_run() {
    for (name, says) in [
        ("plain", "plain"),
        ("with_options", "with options"),
        ("fails", "invalid digit"),
        ("ends_with_its_main_goroutine", ""),
    ] {
        let ended = child::run(name);
        assert!(ended.assert_success().stdout.contains(says), "{ended:#?}");
    }
}

#[mungo::test]
fn a_test_is_a_goroutine() {
    assert_eq!(mungo::current().name(), Some("main"));
    assert_eq!(mungo::num_goroutines(), 1);
    mungo::yield_now();
}

#[mungo::test(procs = 1)]
#[should_panic(expected = "from inside")]
fn a_test_may_be_expected_to_panic() {
    mungo::go(|| ()).join().unwrap();
    panic!("from inside");
}

#[mungo::test(procs = 2)]
fn a_test_may_return_a_result() -> Result<(), Box<dyn Error>> {
    assert_eq!(mungo::procs(), "2".parse::<usize>()?);
    Ok(())
}
