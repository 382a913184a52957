//! What all goroutines do right now: dumps, leaks, and lines about the scheduler.
//!
//! * [`dump`] lists every goroutine with its state, its stack and where it was spawned.
//! * `kill -QUIT`, or Ctrl-\\ on a terminal, prints the same on stderr, and then the process dies of the signal, as it
//!   would have without mungo. If the program had a handler for SIGQUIT before its first runtime, that one is called
//!   too, and the process goes on. `MUNGO_DEBUG=sigquit=continue` prints and goes on, `sigquit=off` leaves the signal
//!   alone.
//! * [`leaked`] lists goroutines that nobody can wake any more.
//! * `MUNGO_DEBUG=schedtrace=1000` prints a line about the scheduler every so many milliseconds, as Go does;
//!   `scheddetail=1` adds a line for each P, M and goroutine.
//!
//! Nothing here costs anything until it is called. Stacks need the feature `backtrace`, which is on by default, and
//! x86-64 Linux; elsewhere dumps have everything but the stacks.

mod collect;
mod dump;
mod leaked;
pub(crate) mod schedtrace;
pub(crate) mod sigquit;
pub(crate) mod stacks;

pub use dump::{Dump, DumpOptions, Frame, GoroutineDump, Stack, State};
pub use leaked::{ChannelInfo, Leaked, leaked};

/// All goroutines of all runtimes of this process, with their stacks, in the limits of [`DumpOptions`].
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
