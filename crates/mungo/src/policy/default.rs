//! The policy of the runtime itself: Go's.
//!
//! Good at: throughput. A woken goroutine runs next on the P of who woke it, while what they share is in the cache;
//! idle Ps steal. It is built into the runtime and pays for no call through the interface.
//!
//! Bad at: it knows no priorities and no deadlines; who wakes up waits in line.

use super::{Options, Policy, Proc, Scheduler, every};

/// The policy of the runtime itself. See `policy/default.rs` for what it is good at.
///
/// ```
/// mungo::policy::set_scheduler(mungo::policy::DefaultPolicy::new());
/// assert_eq!(mungo::policy::get_scheduler().name(), "default");
/// ```
#[derive(Debug)]
pub struct DefaultPolicy {
    every: u32,
    measured: bool,
}

impl DefaultPolicy {
    /// As built in.
    pub fn new() -> DefaultPolicy {
        DefaultPolicy { every: super::GLOBAL_EVERY, measured: false }
    }

    pub(super) fn with_options(options: &mut Options) -> Result<Policy, String> {
        let every = options.number("every", 61, 1..=1_000_000)? as u32;
        let measured = options.number("measured", 0, 0..=1)? == 1;
        if every != super::GLOBAL_EVERY && !measured {
            return Err("'every' has no effect on what is built in: add 'measured=1'".to_owned());
        }
        Ok(DefaultPolicy { every, measured }.into())
    }

    /// The same policy through the interface: slower, with statistics. For comparisons.
    pub fn measured() -> DefaultPolicy {
        DefaultPolicy { measured: true, ..DefaultPolicy::new() }
    }
}

impl Default for DefaultPolicy {
    fn default() -> Self {
        DefaultPolicy::new()
    }
}

impl Scheduler for DefaultPolicy {
    fn name(&self) -> &str {
        "default"
    }

    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, self.every)
    }

    fn is_built_in(&self) -> bool {
        !self.measured
    }
}
