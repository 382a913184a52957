//! A test that runs many times, with a seed for its policy each time.

use super::{TestOptions, run_test};
use crate::builder::RuntimeBuilder;
use crate::policies::{self, Policy};
use crate::runtime::Runtime;
use crate::sys::say::say;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The policy of a test with seeds that names none.
const USUAL: &str = "chaos";

/// A seed that the environment asks for, in place of those that the test has.
const VARIABLE: &str = "MUNGO_TEST_SEED";

/// The result of a test.
pub trait Outcome {
    /// Returns whether it fails the test.
    fn is_failure(&self) -> bool;
}

impl Outcome for () {
    fn is_failure(&self) -> bool {
        false
    }
}

impl<T, E> Outcome for Result<T, E> {
    fn is_failure(&self) -> bool {
        self.is_err()
    }
}

/// Runs the body of a `#[mungo::test]` that names a policy, or has seeds: once for each of them. The first failure ends
/// it, and its seed is named on stderr.
///
/// # Panics
/// Panics if the test fails, with a message that says why.
#[track_caller]
pub fn run_seeds<R: Outcome + 'static>(
    builder: impl Fn() -> RuntimeBuilder,
    options: TestOptions,
    f: impl Fn() -> R + Copy + Send + 'static,
) -> R {
    let wanted = match wanted_seed() {
        Ok(wanted) => wanted,
        Err(why) => panic!("{why}"),
    };
    let start = |seed: Option<u64>| -> io::Result<Runtime> {
        builder().scheduler(policy_for(options.policy, seed)?).build()
    };
    if options.seeds == 0 {
        return run_test(start(None), options, f);
    }
    let seeds = wanted.map_or(0..=options.seeds - 1, |seed| seed..=seed);
    let mut last = None;
    for seed in seeds {
        let run = AssertUnwindSafe(|| run_test(start(Some(seed)), options, f));
        let result = catch_unwind(run);
        if result.as_ref().map_or(true, R::is_failure) {
            let policy = options.policy.unwrap_or(USUAL);
            say!("mungo: the test failed with seed {seed} of policy '{policy}'; {VARIABLE}={seed} repeats it");
        }
        match result {
            Err(payload) => resume_unwind(payload),
            Ok(result) if result.is_failure() => return result,
            Ok(result) => last = Some(result),
        }
    }
    last.expect("the range has a seed")
}

/// Returns the policy with its seed.
fn policy_for(name: Option<&str>, seed: Option<u64>) -> io::Result<Policy> {
    let name = name.unwrap_or(USUAL);
    match seed {
        None => policies::by_name(name),
        Some(seed) if name.contains('=') => policies::by_name(&format!("{name},seed={seed}")),
        Some(seed) => policies::by_name(&format!("{name}:seed={seed}")),
    }
}

/// Returns the seed that the environment asks for.
fn wanted_seed() -> Result<Option<u64>, String> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let text = value.to_string_lossy();
    match text.trim().parse() {
        Ok(seed) => Ok(Some(seed)),
        Err(_) if text.trim().is_empty() => Ok(None),
        Err(_) => Err(format!("{VARIABLE} is '{text}': it must be a number, a seed of a #[mungo::test]")),
    }
}
