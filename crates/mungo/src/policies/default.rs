//! The policy of the runtime itself: Go's.
//!
//! Good at: throughput. A woken goroutine runs next on its waker's P, while what they share is in the cache; idle Ps
//! steal. It is built into the runtime and pays for no call through the interface; what it does beyond the bodies of
//! the trait is listed in `policy.rs`.
//!
//! Bad at: it knows no priorities and no deadlines; a woken goroutine waits in line.

use super::{Options, Policy, Proc, Scheduler, every};
use std::any::Any;

/// The policy of the runtime itself. [When to choose it](crate::policy#choosing-one).
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
    /// Makes the policy as it is built in.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, DefaultPolicy};
    ///
    /// let (policy, mut machine) = (DefaultPolicy::new(), Machine::new(2, 1));
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, a, 0, Cause::Spawned);
    /// machine.queue(&policy, b, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&policy, 0), Some(b), "the one spawned last is next in line");
    /// assert_eq!(machine.next(&policy, 1), Some(a), "stolen");
    /// ```
    pub fn new() -> DefaultPolicy {
        DefaultPolicy { every: super::GLOBAL_EVERY, measured: false }
    }

    pub(crate) fn with_options(options: &mut Options) -> Result<Policy, String> {
        let every = options.number("every", u64::from(super::GLOBAL_EVERY), 1..=1_000_000)? as u32;
        let measured = options.number("measured", 0, 0..=1)? == 1;
        if every != super::GLOBAL_EVERY && !measured {
            return Err("'every' has no effect on what is built in: add 'measured=1'".to_owned());
        }
        Ok(DefaultPolicy { every, measured }.into())
    }

    /// Makes the policy of the trait's bodies: slower, with statistics, and without [what they leave
    /// out](crate::policy#what-the-bodies-leave-out). For comparisons.
    ///
    /// ```
    /// use mungo::policy::{self, DefaultPolicy};
    ///
    /// let runtime = mungo::Runtime::builder().procs(1).scheduler(DefaultPolicy::measured()).build()?;
    /// runtime.run(|| {
    ///     mungo::go(|| ()).join().unwrap();
    ///     assert!(policy::stats().sum(|p| p.switches) > 0);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn measured() -> DefaultPolicy {
        DefaultPolicy { measured: true, ..DefaultPolicy::new() }
    }
}

impl Default for DefaultPolicy {
    fn default() -> Self {
        DefaultPolicy::new()
    }
}

/// Returns whether the runtime has this policy built in, and needs no engine for it.
pub(crate) fn is_built_in(policy: &dyn Scheduler) -> bool {
    let policy: &dyn Any = policy;
    policy.downcast_ref::<DefaultPolicy>().is_some_and(|default| !default.measured)
}

impl Scheduler for DefaultPolicy {
    fn name(&self) -> &str {
        "default"
    }

    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, self.every)
    }
}
