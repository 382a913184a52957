//! What a goroutine that blocks for ever on channels waits for: read from outside, by `debug::leaked`.

use super::core::Core;
use super::select::Case;
use std::sync::atomic::Ordering::Relaxed;

/// Lies on the frame of the one who waits, and borrows the channels from it.
pub(crate) enum Waits<'a> {
    /// For what can never come: [`never`](super::never), or no case at all.
    Never,
    Receive(&'a Core),
    Send(&'a Core),
    Select(&'a [Case<'a>]),
}

/// A channel in one of its cases. All words: padding may hold anything, an address too, and who looks for addresses
/// keeps these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// What the handles of the channel point to.
    pub(crate) address: usize,
    /// 1: it wants to send; 0: to receive.
    pub(crate) sends: usize,
    /// `usize::MAX`: no limit.
    pub(crate) capacity: usize,
    pub(crate) senders: usize,
    pub(crate) receivers: usize,
}

impl Waits<'_> {
    /// Shows each channel that could end the wait. Does not lock or allocate.
    pub(crate) fn each(&self, mut f: impl FnMut(Wait)) {
        match self {
            Waits::Never => {}
            Waits::Receive(core) => f(Wait::of(core, false)),
            Waits::Send(core) => f(Wait::of(core, true)),
            Waits::Select(cases) => {
                for case in *cases {
                    if let Some(core) = case.core() {
                        f(Wait::of(core, case.is_send()));
                    }
                }
            }
        }
    }
}

impl Wait {
    fn of(core: &Core, sends: bool) -> Wait {
        Wait {
            address: std::ptr::from_ref(core).addr(),
            sends: usize::from(sends),
            capacity: core.capacity,
            senders: core.senders.load(Relaxed),
            receivers: core.receivers.load(Relaxed),
        }
    }
}
