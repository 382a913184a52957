//! `#[mungo::main]` and `#[mungo::test]`: run a function's body as a goroutine.
//!
//! Use them through the `mungo` crate, which re-exports both under its feature `macros`.
//!
//! Both take these options, each of which becomes one call on the runtime's builder:
//!
//! | option | value | builder call |
//! |---|---|---|
//! | `procs` | how many Ps, that is, how many goroutines run at the same time | `.procs(value)` |
//! | `stack_size` | bytes of address space for a goroutine's stack | `.stack_size(value)` |
//! | `max_threads` | the most threads on which goroutines begin; begun ones get more | `.max_threads(value)` |
//! | `time_slice` | how long a goroutine runs before it is preempted | `.time_slice(value)` |
//! | `scheduler` | the scheduling policy | `.scheduler(value)` |
//! | `deadlock_warning` | after how long a standstill is warned of; a test fails | `.deadlock_warning(value)` |
//! | `crate` | the path of the mungo crate, where it is not `::mungo` | none |
//!
//! A value is any expression; its type is the builder's business. A test has these options more:
//!
//! | option | value |
//! |---|---|
//! | `timeout` | a `Duration`, after which the test fails; 60 s by default, `Duration::ZERO` for no limit |
//! | `detached_panics` | `"fail"` (the default) or `"ignore"`: what a panic of a goroutine without a handle does |
//! | `policy` | the name of a scheduling policy, with options: `"chaos"`, `"priority:age=5ms"` |
//! | `seeds` | how often to run the test, each time with another seed for the policy, by default `"chaos"` |
//!
//! # How it is built
//!
//! `options` reads the attribute's arguments, `function` takes the annotated function apart,
//! `expand` puts the new function together from a template, `error` turns what went wrong into
//! `compile_error!`. There is no parser of Rust in here: the compiler has parsed the function
//! before it calls the macro, so that it is enough to find the few tokens that matter, and
//! everything else goes through untouched, with its spans. That is why errors in the body are
//! reported at the user's own lines.
//!
//! Rejected: `syn`. Building it takes many times as long as building this crate.

// `proc_macro` works inside the compiler alone: unit tests see its twin, which has the same names.
#[cfg(not(test))]
extern crate proc_macro as tokens;
#[cfg(test)]
extern crate proc_macro2 as tokens;

mod error;
mod expand;
mod function;
mod options;

#[cfg(test)]
mod tests;

/// Runs the body of `main` as the main goroutine.
///
/// The program ends when the main goroutine returns, as in Go: goroutines that still run at that
/// moment are not waited for. The function may return whatever a plain `main` may return.
///
/// ```ignore
/// #[mungo::main]
/// fn main() -> std::io::Result<()> {
///     let (tx, rx) = mungo::chan::bounded(1);
///     mungo::go(move || tx.send("hello from a goroutine"));
///     println!("{}", rx.recv().expect("the sender lives until it has sent"));
///     Ok(())
/// }
/// ```
///
/// Without options the program runs on the default runtime. With options it builds one of its own:
///
/// ```ignore
/// #[mungo::main(procs = 4, stack_size = 64 * 1024)]
/// fn main() {
///     assert_eq!(mungo::procs(), 4);
/// }
/// ```
///
/// which is short for
///
/// ```ignore
/// fn main() {
///     mungo::Runtime::builder()
///         .procs(4)
///         .stack_size(64 * 1024)
///         .build()
///         .expect("a runtime")
///         .run(|| {
///             assert_eq!(mungo::procs(), 4);
///         })
/// }
/// ```
///
/// The [crate's page](crate) lists the options. Where `mungo` goes by another name, say so:
///
/// ```ignore
/// #[other_name::main(crate = other_name)]
/// fn main() {}
/// ```
///
/// # Errors at compile time
///
/// The function must have a body and must not be `async`, generic or take arguments; an option must
/// be known, have a value and stand there once.
#[cfg(not(test))]
#[proc_macro_attribute]
pub fn main(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand::expand(expand::Kind::Main, args, item)
}

/// Makes a function a test whose body runs as a goroutine.
///
/// Each test has a runtime of its own, so that tests neither share run queues nor see each other's
/// goroutines. A panic in the body fails the test, or passes it under `#[should_panic]`;
/// `#[ignore]` and a `Result` as the return type work as in any test.
///
/// ```ignore
/// #[mungo::test]
/// fn a_closed_channel_ends_the_loop() {
///     let (tx, rx) = mungo::chan::unbounded();
///     mungo::go(move || (0..3).for_each(|n| tx.send(n).unwrap()));
///     assert_eq!(rx.iter().sum::<i32>(), 3);
/// }
///
/// #[mungo::test(procs = 1)]
/// #[should_panic(expected = "one at a time")]
/// fn on_a_single_p() {
///     panic!("one at a time");
/// }
/// ```
///
/// # What fails a test
///
/// * *A panic* of the body, or of a goroutine that was detached: its handle was dropped, and it panicked before the
///   body ended, or could run when the body ended and panicked within a second. `detached_panics = "ignore"` lets it
///   pass.
/// * *A deadlock*: no goroutine of the test can run, no timer is set, no socket is waited for, and nothing has woken
///   a goroutine for 10 s. `deadlock_warning = Duration::from_secs(30)` allows more time, for tests that wait for
///   threads of other kinds; zero switches the check off.
/// * *Its time limit*, 60 s: `timeout = Duration::from_secs(5)` sets another one, `Duration::ZERO` none.
///
/// The last two print all goroutines of the test with their stacks. Nothing can end the goroutines themselves: they
/// stay behind, with the runtime's threads, and the tests that follow run.
///
/// ```ignore
/// #[mungo::test(timeout = Duration::from_secs(5), detached_panics = "ignore")]
/// fn the_server_survives_a_panic() {
///     // ...
/// }
/// ```
///
/// # Many orders of events
///
/// A race shows up when its goroutines happen to run in the wrong order. `seeds` runs the test again and again under a
/// policy that makes its decisions by chance, with the seeds 0, 1, 2 and so on, each on a runtime of its own:
///
/// ```ignore
/// #[mungo::test(policy = "chaos", seeds = 100)]
/// fn transfers_keep_the_sum() {
///     // ...
/// }
/// ```
///
/// The first failure ends the test, and a line on stderr names its seed; `MUNGO_TEST_SEED=17 cargo test` runs the tests
/// that have seeds with that one alone. With `procs = 1` a seed stands for one order of events.
///
/// # Output
///
/// What goroutines print is captured as a thread's output is, on Linux, in programs that are not stripped, and with
/// versions of Rust that this version of mungo knows (1.95). Elsewhere it is not captured, nor is ever what a thread
/// prints that a goroutine started; `cargo nextest`, which runs each test in a process of its own, captures all.
///
/// The other options are those of [`macro@main`], and so are the errors; a second `#[test]` beside this
/// one is an error too, since the test would run twice.
#[cfg(not(test))]
#[proc_macro_attribute]
pub fn test(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand::expand(expand::Kind::Test, args, item)
}
