//! The execution tracer's lower half: events into memory, and from there to the code that keeps them.
//!
//! It knows numbers, not goroutines: the scheduler tells it what happened (`sched/traced.rs`), and what existed before
//! (`census.rs`); users start and stop it (`crate::trace`).
//!
//! * An M has a [`Lane`]: it writes records of 16 bytes into a chunk of its own, without a lock, an allocation or a
//!   locked instruction; when the chunk is full it takes another one from a pool. Without one the events are counted as
//!   dropped.
//! * All other threads write into one chunk that they share (`outside.rs`), with one locked instruction an event.
//! * One thread (`writer.rs`) goes through all chunks fifty times a second, or when many are full, and makes blocks of
//!   them (`drain.rs`), which it passes to each sink (`sink.rs`): a file, a writer, or a recorder in memory. Writers
//!   are called by threads of their own (`output.rs`), so that one that stalls holds up nothing else. The tracer's
//!   thread also asks the kernel how long the Ms' threads had no CPU (`no_cpu.rs`).
//!
//! If a sink wants stacks, the record of a stop or a start has the number of a stack before it (`stacks.rs`); the
//! writer's thread says what the numbers mean, with the names of functions (`names.rs`). The scheduler walks.
//!
//! While no sink is there, a place that could be traced costs one load of [`STATE`], which is never written then, and a
//! branch that is not taken.
//!
//! Rejected: a ring per M. It has to be as large as the longest pause of the writer, for each M, and goes through the
//! caches again and again; chunks that were just written out are used again while they are warm.

mod births;
mod census;
mod chunk;
pub(crate) mod clock;
mod deadly;
mod drain;
mod env;
mod lane;
mod names;
mod no_cpu;
mod output;
mod outside;
mod places;
mod sink;
mod stacks;
mod triggers;
mod writer;

pub(crate) use census::{Known, set_census};
pub(crate) use deadly::{die_of, is_own as is_own_handler};
pub(crate) use env::{flush_at_end, start_as_asked};
pub(crate) use lane::Lane;
#[cfg(mungo_stacks)]
pub(crate) use names::{Code, Named, set_code};
pub(crate) use outside::{put as put_outside, put_at as put_outside_at};
pub(crate) use places::number_of as place_number;
pub(crate) use sink::{Kept, SinkId, Summary};
#[cfg(mungo_stacks)]
pub(crate) use stacks::{DEPTH, number_of as stack_number};
pub(crate) use triggers::{Triggers, policy_replaced, region_ended, watches_regions};
pub(crate) use writer::{before_exit, flush, snapshot, start, start_recorder, stop, threads, write_anew};

use std::io;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The number of the session that is on; 0: none. Written under the writer's lock.
static STATE: AtomicU32 = AtomicU32::new(0);

/// The number of sinks that want stacks. Written under the writer's lock.
static WITH_STACKS: AtomicU32 = AtomicU32::new(0);

/// Events that could not be kept since the process began.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns whether events are wanted.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    STATE.load(Relaxed) != 0
}

/// Returns whether a stack is wanted with each event that has one. To be asked if events are.
#[inline(always)]
pub(crate) fn wants_stacks() -> bool {
    cfg!(mungo_stacks) && WITH_STACKS.load(Relaxed) != 0
}

/// Returns an error if stacks are wanted and there can be none.
pub(crate) fn check_stacks(wanted: bool) -> io::Result<()> {
    match wanted && !cfg!(mungo_stacks) {
        true => {
            let why = "traces have stacks on x86-64 Linux only, and with the feature `backtrace` of mungo";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        false => Ok(()),
    }
}

/// Returns a number for a new runtime, from 1 on. Numbers that do not fit 16 bits are the last one that does.
pub(crate) fn new_runtime() -> u16 {
    static RUNTIMES: AtomicU32 = AtomicU32::new(0);
    u16::try_from(RUNTIMES.fetch_add(1, Relaxed) + 1).unwrap_or(u16::MAX)
}

/// Returns a number for a new task or region.
pub(crate) fn new_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Relaxed)
}

/// Switches events on or off.
fn set_on(on: bool) {
    static SESSIONS: AtomicU32 = AtomicU32::new(0);
    let session = if on { (SESSIONS.fetch_add(1, Relaxed) + 1).max(1) } else { 0 };
    // ORDERING: SeqCst: a thread that asked for the end sees, in the round that follows, all that was written before.
    STATE.store(session, SeqCst);
}

#[cfg(test)]
mod tests;
