//! The netpoller: who waits for a descriptor, and who asks the kernel.
//!
//! There is one per process, made when somebody first has to wait: a descriptor may be used by goroutines of any
//! runtime, and is registered once, for its life. Any M may poll and wakes whoever is concerned; those of its own
//! runtime go to its own queue, in one batch.
//!
//! Who asks, as in Go:
//! * an M that finds nothing in its own queue and the global one looks without blocking (`find.rs`), before it steals,
//!   but for the ring of a P that stands still; and so does a busy one when it is the global queue's turn;
//! * an M that goes idle *watches*: it blocks here instead of on its futex, at the most until the first timer is due.
//!   One does at a time, in the whole process. Who wants to wake it interrupts the wait (`M::wake`);
//! * the monitor, when nobody has for a while (`watch.rs`).
//!
//! Unlike Go's, who is woken here goes before those that compute. It most often has little to do, and behind a queue
//! of goroutines with a slice of 10 ms each it would wait for long. So it goes to the urgent part of the global queue,
//! or, where nobody else waits, to an empty ring, which is then marked as *fresh* and goes before those who become
//! urgent later; and the monitor takes the P from a goroutine that keeps such a one waiting for a while, as it does for
//! timers. If it computes itself, it is among the others then.
//!
//! "Nobody sleeps while there is work" has its counterpart: who parks here is counted first ([`anyone_waits`]); an M
//! that gives its P up looks at that count last, and watches. While a P is busy nobody need watch: its M looks when it
//! runs out of work, and the monitor before.
//!
//! Plain threads ask for their descriptor alone, with `poll` (`thread.rs`).

#[cfg(not(loom))]
mod epoll;
#[cfg(not(loom))]
mod poller;
mod readiness;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub(crate) use poller::{
    Watching, anyone_waits, interrupt, is_unwatched, look, looks, poll, queue, send_home, take, wait,
};
#[cfg(not(loom))]
pub(crate) use readiness::{Seen, Waited};
#[cfg(not(loom))]
pub(crate) use record::{Direction, Record};
#[cfg(not(loom))]
pub(crate) use thread::Polling;
