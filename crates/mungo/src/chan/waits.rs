//! Says which channels a goroutine waits for that blocks on channels: for reports and `debug::leaked`.

use super::channel::Core;
use super::select::Case;
use crate::reason::{Awaited, Several, WaitReason};
use std::sync::atomic::Ordering::Relaxed;

/// Returns the channels of a select, for its [`Awaited`].
#[inline]
pub(super) fn of_cases(cases: &&[Case<'_>]) -> Several {
    /// # Safety
    /// It is what `of_cases` was given, and alive.
    unsafe fn each(cases: *const (), f: &mut dyn FnMut(usize, bool)) {
        // SAFETY: by the caller.
        for case in unsafe { *cases.cast::<&[Case<'_>]>() } {
            if let Some(core) = case.core() {
                f(std::ptr::from_ref(core).addr(), case.is_send());
            }
        }
    }
    Several::new(cases, each)
}

/// A channel in one of the wait's cases. All fields are words: padding may hold anything, an address too, and the
/// search for addresses keeps these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The address that the handles of the channel point to.
    pub(crate) address: usize,
    /// 1: it wants to send; 0: to receive.
    pub(crate) sends: usize,
    /// `usize::MAX`: no limit.
    pub(crate) capacity: usize,
    pub(crate) senders: usize,
    pub(crate) receivers: usize,
}

/// Calls `f` with each channel that could end a wait on channels. Does not lock or allocate.
///
/// # Safety
/// It is the wait of a goroutine that is held while it waits, for one of the channels' reasons.
pub(crate) unsafe fn each(awaited: Awaited, mut f: impl FnMut(Wait)) {
    // SAFETY: the goroutine borrows the channels while it waits.
    let of = |address: usize, sends| Wait::of(unsafe { &*(address as *const Core) }, sends);
    match awaited.object() {
        0 => {}
        // SAFETY: by the caller.
        several if awaited.reason == WaitReason::Select => unsafe {
            (*(several as *const Several)).each(|address, sends| f(of(address, sends)));
        },
        address => f(of(address, awaited.reason == WaitReason::ChanSend)),
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
