//! The macros in the compiler's hands, on a stand-in for the runtime that writes down what is asked
//! of it.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// As much of the `mungo` crate as the macros know, with the bounds that they need.
mod stand_in {
    use std::cell::RefCell;
    use std::fmt;

    thread_local! {
        static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// What the expansion asked for on this thread, once.
    pub(crate) fn take_calls() -> Vec<String> {
        CALLS.take()
    }

    fn note(call: impl fmt::Display) {
        CALLS.with_borrow_mut(|calls| calls.push(call.to_string()));
    }

    #[derive(Debug)]
    pub(crate) struct Runtime;

    impl Runtime {
        pub(crate) fn builder() -> Builder {
            note("builder");
            Builder { fails: false }
        }
    }

    #[derive(Debug)]
    pub(crate) struct Builder {
        fails: bool,
    }

    impl Builder {
        pub(crate) fn procs(self, procs: usize) -> Self {
            note(format_args!("procs {procs}"));
            Builder { fails: procs == 0 }
        }

        pub(crate) fn stack_size(self, stack_size: usize) -> Self {
            note(format_args!("stack_size {stack_size}"));
            self
        }

        pub(crate) fn scheduler(self, scheduler: impl fmt::Debug) -> Self {
            note(format_args!("scheduler {scheduler:?}"));
            self
        }

        pub(crate) fn build(self) -> Result<Runtime, &'static str> {
            note("build");
            if self.fails { Err("no Ps") } else { Ok(Runtime) }
        }
    }

    pub(crate) mod __private {
        use std::time::Duration;

        pub(crate) fn run_main<R>(f: impl FnOnce() -> R + Send + 'static) -> R {
            super::note("run_main");
            f()
        }

        pub(crate) fn run_on<R, E: std::fmt::Display>(
            runtime: Result<super::Runtime, E>,
            f: impl FnOnce() -> R + Send + 'static,
        ) -> R {
            if let Err(e) = runtime {
                panic!("mungo: cannot start the runtime: {e}");
            }
            super::note("run");
            f()
        }

        #[derive(Debug)]
        pub(crate) struct TestOptions;

        impl TestOptions {
            pub(crate) fn new() -> Self {
                super::note("test options");
                TestOptions
            }

            pub(crate) fn timeout(self, timeout: Duration) -> Self {
                super::note(format_args!("timeout {timeout:?}"));
                self
            }

            pub(crate) fn policy(self, policy: &str) -> Self {
                super::note(format_args!("policy {policy}"));
                self
            }

            pub(crate) fn seeds(self, seeds: u64) -> Self {
                super::note(format_args!("seeds {seeds}"));
                self
            }

            pub(crate) fn detached_panics(self, what: &str) -> Self {
                super::note(format_args!("detached panics {what}"));
                self
            }
        }

        pub(crate) fn run_seeds<R: 'static>(
            builder: impl Fn() -> super::Builder,
            _: TestOptions,
            f: impl Fn() -> R + Copy + Send + 'static,
        ) -> R {
            run_on(builder().build(), f);
            run_on(builder().build(), f)
        }

        pub(crate) fn run_test<R: 'static, E: std::fmt::Display>(
            runtime: Result<super::Runtime, E>,
            _: TestOptions,
            f: impl FnOnce() -> R + Send + 'static,
        ) -> R {
            run_on(runtime, f)
        }
    }
}

use stand_in::take_calls;

#[mungo_macros::main(crate = stand_in)]
fn plain() {
    stand_in_was_entered();
}

fn stand_in_was_entered() {
    assert_eq!(take_calls(), ["run_main"]);
}

#[test]
fn main_runs_its_body_on_the_default_runtime() {
    plain();
    assert!(take_calls().is_empty());
}

/// An error that is not `Send`, as is usual in `main`.
#[mungo_macros::main(crate = crate::stand_in)]
pub(crate) fn fallible() -> Result<u8, Box<dyn Error>> {
    let number: u8 = "7".parse()?;
    if number == 7 {
        return Err("seven".into());
    }
    Ok(number)
}

#[test]
fn main_may_fail() {
    assert_eq!(fallible().unwrap_err().to_string(), "seven");
}

#[mungo_macros::main(crate = stand_in)]
fn never() -> ! {
    panic!("never returns")
}

#[test]
#[should_panic(expected = "never returns")]
fn main_may_diverge() {
    never();
}

#[mungo_macros::main(crate = stand_in)]
fn with_inner_attribute() -> ExitCode {
    #![allow(unused_variables)]
    let unused = 1;
    ExitCode::SUCCESS
}

#[test]
fn inner_attributes_are_allowed() {
    assert_eq!(with_inner_attribute(), ExitCode::SUCCESS);
}

#[mungo_macros::main(
    procs = 2 + 2,
    stack_size = 64 << 10,
    crate = stand_in,
    scheduler = Vec::<u8>::new(),
)]
fn with_options() -> usize {
    4
}

#[test]
fn options_reach_the_builder_in_order() {
    assert_eq!(with_options(), 4);
    let expected = ["builder", "procs 4", "stack_size 65536", "scheduler []", "build", "run"];
    assert_eq!(take_calls(), expected);
}

#[mungo_macros::test(procs = 0, crate = stand_in)]
#[should_panic(expected = "mungo: cannot start the runtime: no Ps")]
fn a_runtime_that_does_not_start_panics() {}

#[mungo_macros::test(crate = stand_in)]
fn a_test_builds_a_runtime() {
    assert_eq!(take_calls(), ["builder", "build", "test options", "run"]);
}

#[mungo_macros::test(crate = stand_in, timeout = Duration::from_secs(5), procs = 2, detached_panics = "ignore")]
fn options_of_a_test_reach_it() {
    let test = ["test options", "timeout 5s", "detached panics ignore", "run"];
    assert_eq!(take_calls(), [&["builder", "procs 2", "build"][..], &test[..]].concat());
}

#[mungo_macros::test(crate = stand_in)]
fn a_test_may_return_a_result() -> Result<(), Box<dyn Error>> {
    let seven: u8 = "7".parse()?;
    assert_eq!(seven, 7);
    Ok(())
}

#[should_panic(expected = "from above")]
#[mungo_macros::test(crate = stand_in)]
fn attributes_above_are_kept() {
    panic!("from above");
}

/// A macro's fragments arrive wrapped in groups that have no delimiters.
macro_rules! functions_by_macro {
    (
        $(#[$meta:meta])* $vis:vis fn $name:ident() -> $ret:ty $body:block;
        $path:path; $procs:expr
    ) => {
        $(#[$meta])*
        #[mungo_macros::main(crate = $path, procs = $procs)]
        $vis fn $name() -> $ret $body
    };
    ($item:item) => {
        #[mungo_macros::main(crate = crate::stand_in)]
        $item
    };
}

functions_by_macro! {
    /// Made of fragments.
    #[inline]
    pub(crate) fn by_fragments() -> u8 { 3 }; stand_in; 1 + 2
}

functions_by_macro! {
    fn by_item() -> u8 { 5 }
}

#[test]
fn functions_that_macros_write_work() {
    assert_eq!(by_fragments(), 3);
    assert_eq!(take_calls(), ["builder", "procs 3", "build", "run"]);
    assert_eq!(by_item(), 5);
    assert_eq!(take_calls(), ["run_main"]);
}

#[mungo_macros::test(crate = stand_in, procs = 2, policy = "chaos", seeds = 2)]
fn seeds_run_the_body_again() {
    let calls = take_calls();
    match calls.first().map(String::as_str) {
        Some("test options") => {
            assert_eq!(
                calls,
                ["test options", "policy chaos", "seeds 2", "builder", "procs 2", "build", "run"]
            );
        }
        _ => assert_eq!(calls, ["builder", "procs 2", "build", "run"]),
    }
}
