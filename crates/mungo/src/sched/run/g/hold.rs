//! The wake-up of a goroutine that waits, and the holding of one that shall not go on: see `protocols/wake.rs`.

use super::G;
use crate::protocols::wake::Wake;
use crate::sched::profile;
use crate::sched::run::park;
use crate::sched::run::sample::{self, AT_WAKEUP};
use std::sync::atomic::Ordering::Relaxed;

/// The longest time that a goroutine was held, in ns.
#[cfg(test)]
pub(crate) static LONGEST_NS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl G {
    /// Wakes it up: to be called exactly once for each park. `Wake::Enqueue`: the caller owns the G now.
    #[inline]
    pub(crate) fn notify(&self) -> Wake {
        let wake = self.state.notify();
        if wake == Wake::Enqueue {
            self.sample_wakeup();
        }
        wake
    }

    /// Samples the wait that is over, by its new owner, if it is one to be sampled.
    #[inline(always)]
    pub(in crate::sched::run) fn sample_wakeup(&self) {
        if self.stamp.load(Relaxed) == AT_WAKEUP || profile::is_long(self) {
            sample::woken(self);
        }
    }

    /// Holds it still while `f` looks at its stack, if it waits and no other thread looks. The caller delivers a
    /// wake-up that comes meanwhile, afterwards: it is no signal handler, and does not hold the scheduler's lock.
    ///
    /// A profile then knows the wait, but not which goroutine unlocked: that one has gone on.
    pub(crate) fn try_hold<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        #[cfg(test)]
        let began_ns = crate::sys::clock::now_ns();
        let (result, wake) = self.state.inspect(f)?;
        #[cfg(test)]
        LONGEST_NS.fetch_max(crate::sys::clock::now_ns() - began_ns, Relaxed);
        if wake == Wake::Enqueue {
            park::ready_held(self.into());
        }
        Some(result)
    }

    /// As [`try_hold`](Self::try_hold), but waits until no other thread looks. `None`: it does not wait.
    pub(crate) fn hold<R>(&self, mut f: impl FnMut() -> R) -> Option<R> {
        loop {
            let held = self.try_hold(&mut f);
            if held.is_some() || !self.state.is_waiting() {
                return held;
            }
            std::thread::yield_now();
        }
    }
}
