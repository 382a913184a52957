//! Tools that show what all goroutines do right now: dumps, leaks, and lines about the scheduler.
//!
//! * [`dump`] lists every goroutine with its state, its stack and where it was spawned.
//! * `kill -QUIT`, or Ctrl-\\ on a terminal, prints the same on stderr, and then the process dies of the signal, as it
//!   would have without mungo. If the program had a handler for SIGQUIT before its first runtime, that one is called
//!   too, and the process goes on; so it does where the signal was ignored, as for what a script starts in the
//!   background. `MUNGO_DEBUG=sigquit=continue` prints and goes on, `sigquit=off` leaves the signal alone.
//! * [`wait_graph`] says which goroutine waits for what, and for whom, as text and as a drawing, and finds deadlocks,
//!   also of some goroutines while others run. Dumps and the report of a deadlock have it too.
//! * [`leaked`] lists goroutines that are stuck on channels, and their stacks.
//! * `MUNGO_DEBUG=listen` lets `mungo top PID` watch the program; with the feature `debug-http`, `debug::http` serves
//!   all of this over HTTP.
//! * [`GDB_SCRIPT`] teaches gdb what goroutines are, in processes and core files.
//! * [`label`] marks a goroutine, and those that it spawns, in dumps and profiles.
//! * `MUNGO_DEBUG=schedtrace=1000` prints a line about the scheduler every 1000 milliseconds, as Go does;
//!   `scheddetail=1` adds a line for each P, M and goroutine.
//!
//! Nothing here costs anything until it is called. Stacks need the feature `backtrace`, which is on by default, and
//! Linux on x86-64 or aarch64; elsewhere dumps have everything but the stacks.

#[cfg(feature = "debug-http")]
#[path = "../debug_http/mod.rs"] // of a higher layer: it serves what is here
pub mod http;
mod label;
mod leaked;

use crate::sched::report::waits;

pub use crate::sched::report::dump::{Dump, DumpOptions, Frame, GoroutineDump, Stack, State};
pub use crate::sched::report::waits::{GoroutineWait, ObjectKind, Others, WaitGraph, WaitObject};
pub use label::{Label, label};
pub use leaked::{ChannelInfo, Leaked, leaked};

/// A script for gdb with the commands `mungo goroutines` and `mungo goroutine N bt`, for processes and core files. The
/// command `mungo gdb-script` prints it, too; how to use it is in [the guide](crate::guide::finding_faults#gdb).
///
/// ```
/// let file = std::env::temp_dir().join(format!("mungo-doc-{}.py", std::process::id()));
/// std::fs::write(&file, mungo::debug::GDB_SCRIPT)?; // then, in gdb: source FILE
/// # std::fs::remove_file(&file)?;
/// # std::io::Result::Ok(())
/// ```
pub const GDB_SCRIPT: &str = include_str!("../../gdb/mungo.py");

/// Dumps all goroutines of all runtimes of this process, with their stacks, in the limits of [`DumpOptions`].
///
/// The program goes on meanwhile: each goroutine is seen at some moment of the call, not all at the same one.
///
/// ```
/// let (tx, rx) = mungo::chan::bounded::<()>(0);
/// let waiting = mungo::go(move || rx.recv());
/// let waits = |d: &mungo::debug::Dump| {
///     d.goroutines().iter().any(|g| g.state.to_string() == "chan receive")
/// };
/// while !waits(&mungo::debug::dump()) {}
/// println!("{}", mungo::debug::dump());
/// drop(tx);
/// assert!(waiting.join().unwrap().is_err());
/// ```
pub fn dump() -> Dump {
    DumpOptions::new().dump()
}

/// Returns which goroutine waits for what, and for whom where that is known: the holder of a lock, a goroutine that is
/// joined, those of a scope, and the goroutines that have a handle of a channel or a wait group, which are found by a
/// search of memory as [`leaked`] makes it.
///
/// Goroutines that wait for each other are found also while others run ([`WaitGraph::cycles`]); with them those that
/// wait for one of them, or for what nothing can bring ([`WaitGraph::stuck`]). What is said to be stuck has waited for
/// the same all along two looks that are 25 ms apart. Not found are waits for what no goroutine is known to hold: the
/// readers of a lock, permits of a semaphore, a condition, a barrier, an unpark. Of more than 10,000 goroutines the
/// first 10,000 are looked at, and those of the others, up to as many, that are stuck in waits for locks, joins and
/// scopes. Without a thread for it, if the system refuses one, the graph is empty.
///
/// ```
/// use mungo::sync::{Barrier, Mutex};
/// use std::sync::Arc;
///
/// let (a, b, both) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())), Arc::new(Barrier::new(2)));
/// for (first, second) in [(a.clone(), b.clone()), (b, a)] {
///     let both = both.clone();
///     mungo::go(move || {
///         let _first = first.lock();
///         both.wait();
///         let _second = second.lock(); // waits for ever
///     });
/// }
/// let graph = loop {
///     let graph = mungo::debug::wait_graph();
///     if !graph.cycles().is_empty() {
///         break graph;
///     }
/// };
/// println!("{graph}");
/// assert_eq!(graph.cycles()[0].len(), 2);
/// assert!(graph.to_string().starts_with("deadlock: goroutine "));
/// ```
pub fn wait_graph() -> WaitGraph {
    waits::graph().unwrap_or_default()
}
