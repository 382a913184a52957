//! Samples for profiles: of waits, where goroutines are woken and run again; of CPU time, by a signal.
//!
//! A sample is a copy of a stack (`ring.rs`), taken without a lock or an allocation. A thread of its own unwinds the
//! copies and adds them up (`keeper.rs`, `store.rs`, `sums.rs`).
//!
//! Waits are timed where the histograms are ([`sample`](super::run::sample)): one switch of each P in [`PERIOD_NS`], or
//! each if they are rarer, which then stands for all since the last one. In addition each wait of [`LONG_NS`] by the
//! coarse clock is counted, for itself. Both together are free of bias: whether a wait counts as long does not depend
//! on whether it was timed. Of the timed ones those shorter than the rate are kept with a probability, and count for
//! more.
//!
//! `docs/profiles.md` is the essay about it.
//!
//! Rejected: two looks at the clock for each wait, as in Go. They take 24 ns here, half of a switch.

pub(crate) mod cpu;
mod keeper;
mod raw;
mod ring;
mod store;
mod sums;
mod timers;
mod waits;

pub(crate) use keeper::{is_thread_alive, start_as_asked};
pub(crate) use raw::{Raw, RawSample, goroutines, waits};
pub(crate) use waits::{block_rate, gained, is_long, ran, set_block_rate, waits_are_on, woken};

use crate::reason::WaitReason;

/// Time in ns between two timed switches of a P that is aimed at while waits are profiled.
///
/// TUNED: with 200 µs a ping-pong on one P was slower by 2.2 % (medians of 9 in turns) to 3.5 % (minima): a sample
/// takes some 6 µs with all that follows.
pub(crate) const PERIOD_NS: u64 = 400_000;

/// Time in ns from which each wait is counted, however many there are. It is longer than the coarse clock is old.
pub(crate) const LONG_NS: u64 = 10_000_000;

/// What a sample is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Subject {
    Cpu,
    Block,
    Sleep,
    Network,
    Mutex,
    Runnable,
}

impl Subject {
    /// Returns the profile that a wait belongs to.
    fn of(reason: WaitReason) -> Subject {
        match reason {
            WaitReason::Sleep => Subject::Sleep,
            WaitReason::NetRead | WaitReason::NetWrite | WaitReason::NetAccept | WaitReason::NetConnect => {
                Subject::Network
            }
            _ => Subject::Block,
        }
    }
}
