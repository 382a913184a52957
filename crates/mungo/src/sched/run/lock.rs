//! The lock of the scheduler and of all that is above it: its holder is in the runtime, without a detour.

use super::current::NoPreempt;
use crate::lock::{self, Hooks, NoPreemption};

pub(crate) type Lock<T> = lock::Lock<T, NoPreempt>;
pub(crate) type Guard<'a, T> = lock::Guard<'a, T, NoPreempt>;

impl NoPreemption for NoPreempt {
    #[inline]
    fn begin() -> NoPreempt {
        NoPreempt::new()
    }
}

/// The same for locks of lower layers.
pub(crate) static HOOKS: Hooks = Hooks {
    begin: || NoPreempt::new().into_raw(),
    // SAFETY: `begin` returned it.
    end: |raw| drop(unsafe { NoPreempt::from_raw(raw) }),
};
