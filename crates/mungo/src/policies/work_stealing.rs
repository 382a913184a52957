//! Prefers others' queues to the global one.
//!
//! Good at: fork and join. Work that one P makes is spread by Ps that have none, before they turn to what came from
//! outside or was preempted; the global queue is looked at first only at each 101st tick.
//!
//! Bad at: what comes from outside: it waits in the global queue as long as any P has something to steal. The 101st
//! tick is its guarantee.

use super::{Next, Options, Policy, Proc, Scheduler, every};

/// Steals before it looks at the global queue. [When to choose it](crate::policy#choosing-one).
///
/// ```
/// let policy = mungo::policy::WorkStealing::new();
/// let runtime = mungo::Runtime::builder().scheduler(policy).build()?;
/// assert_eq!(runtime.run(|| mungo::go(|| 1).join().unwrap()), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct WorkStealing {
    every: u32,
}

impl WorkStealing {
    /// Makes a policy that looks at the global queue first at each 101st tick.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, WorkStealing};
    ///
    /// let (policy, mut machine) = (WorkStealing::new(), Machine::new(2, 1));
    /// let (spawned, outside) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, spawned, 0, Cause::Spawned);
    /// machine.queue(&policy, outside, 0, Cause::Outside);
    /// assert_eq!(machine.next(&policy, 1), Some(spawned), "stolen, before what came from outside");
    /// assert_eq!(machine.next(&policy, 1), Some(outside));
    /// ```
    pub fn new() -> WorkStealing {
        WorkStealing { every: 101 }
    }

    pub(crate) fn with_options(options: &mut Options) -> Result<Policy, String> {
        Ok(WorkStealing { every: options.number("every", 101, 1..=1_000_000)? as u32 }.into())
    }
}

impl Default for WorkStealing {
    fn default() -> Self {
        WorkStealing::new()
    }
}

impl Scheduler for WorkStealing {
    fn name(&self) -> &str {
        "work_stealing"
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        if self.check_global_queue(proc)
            && let Some(task) = self.get_from_global_queue(proc)
        {
            return Some(task.into());
        }
        self.get_from_local_queue(proc)
            .or_else(|| self.steal_work(proc))
            .or_else(|| self.get_from_global_queue(proc).map(Next::from))
    }

    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, self.every)
    }
}
