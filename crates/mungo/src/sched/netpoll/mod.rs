//! The netpoller: which goroutines wait for a descriptor, and which threads ask the kernel.
//!
//! There is one per process, made when a goroutine first has to wait: a descriptor may be used by goroutines of any
//! runtime, and is registered once, for its life. Any M may poll and wakes the goroutines concerned; those of its own
//! runtime go to its own queue, in one batch.
//!
//! The kernel is asked, as in Go, by:
//! * an M that finds nothing in its own queue and the global one: it looks without blocking (`pick/mod.rs`), before it
//!   steals, but for the ring of a P that stands still; and so does a busy one when it is the global queue's turn;
//! * an M that goes idle, which *watches*: it blocks here instead of on its futex, at the most until the first timer
//!   is due. One does at a time, in the whole process. A thread that wants to wake it interrupts the wait (`M::wake`);
//! * the monitor's helper, when no M has for a while (`watch.rs`, `helper.rs`).
//!
//! Goroutines that are woken here go before those that compute, until they compute themselves (`sched/pick/README.md`).
//!
//! "No M sleeps while there is work" has its counterpart: a goroutine that parks here is counted first
//! ([`anyone_waits`]); an M that gives its P up looks at that count last, and watches. While a P is busy no M need
//! watch: the P's M looks when it runs out of work, and the monitor before.
//!
//! Plain threads ask for their descriptor alone, with `poll` (`thread.rs`).

mod poller;
mod readiness;
mod record;
mod thread;

pub(crate) use poller::{
    Watching, anyone_waits, has_news, interrupt, is_unwatched, look, poll, queue, send_home, take, wait,
    wait_registered,
};
pub(crate) use readiness::{Seen, Waited};
pub(crate) use record::{Direction, Record};
pub(crate) use thread::Polling;
