//! Priorities, with ageing.
//!
//! Good at: urgent work among much other. A goroutine that becomes runnable displaces a less urgent one at once, not
//! at the end of its slice. No goroutine starves: one that waits rises by one level in each `age` (10 ms), so that one
//! of priority 128 that has waited for 640 ms goes before one of 192 that has just come.
//!
//! Bad at: many Ps, since they share one queue; and goroutines that talk to each other lose the warm cache.
//!
//! Ageing needs no clock work: all waiting goroutines rise at the same pace, so their order among each other does not
//! change, and is known when they are queued: the time of arrival, plus `age` for each level that is missing.

use super::{Next, Options, Policy, Priority, Proc, Scheduler, Task, TaskInfo, every};
use std::time::Duration;

/// Priority levels with ageing. [When to choose it](crate::policy#choosing-one).
///
/// ```
/// use mungo::policy::{Priority, PriorityLevels};
///
/// let runtime = mungo::Runtime::builder().scheduler(PriorityLevels::new()).build()?;
/// let urgent = mungo::Builder::new().priority(Priority::HIGH).spawn_on(&runtime, || 42)?;
/// assert_eq!(urgent.join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PriorityLevels {
    age_ns: u64,
    every: u32,
}

impl PriorityLevels {
    /// Makes a policy under which a waiting goroutine rises by a level in 10 ms.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Priority, PriorityLevels};
    /// use std::time::Duration;
    ///
    /// let (policy, mut machine) = (PriorityLevels::new(), Machine::new(1, 1));
    /// let (usual, urgent) = (machine.spawn(), machine.spawn_with(Priority::HIGH, 1024));
    /// machine.queue(&policy, usual, 0, Cause::Spawned);
    /// machine.advance(Duration::from_millis(641));
    /// machine.queue(&policy, urgent, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&policy, 0), Some(usual), "it has risen by the 64 levels between them");
    /// ```
    pub fn new() -> PriorityLevels {
        PriorityLevels::with_age(Duration::from_millis(10))
    }

    /// Makes a policy under which a waiting goroutine rises by a level in each `age`.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Priority, PriorityLevels};
    /// use std::time::Duration;
    ///
    /// let policy = PriorityLevels::with_age(Duration::from_secs(1));
    /// let mut machine = Machine::new(1, 1);
    /// let (usual, urgent) = (machine.spawn(), machine.spawn_with(Priority::HIGH, 1024));
    /// machine.queue(&policy, usual, 0, Cause::Spawned);
    /// machine.advance(Duration::from_millis(641));
    /// machine.queue(&policy, urgent, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&policy, 0), Some(urgent));
    /// ```
    pub fn with_age(age: Duration) -> PriorityLevels {
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX).clamp(1, 1 << 50);
        PriorityLevels { age_ns, every: 31 }
    }

    pub(crate) fn with_options(options: &mut Options) -> Result<Policy, String> {
        let age = options.duration("age", Duration::from_millis(10))?;
        let every = options.number("every", 31, 1..=1_000_000)? as u32;
        Ok(PriorityLevels { every, ..PriorityLevels::with_age(age) }.into())
    }

    fn key(&self, task: &TaskInfo) -> u64 {
        let missing = u64::from(Priority::HIGHEST.level() - task.priority.level());
        task.enqueued_ns.saturating_add(missing.saturating_mul(self.age_ns))
    }
}

impl Default for PriorityLevels {
    fn default() -> Self {
        PriorityLevels::new()
    }
}

impl Scheduler for PriorityLevels {
    fn name(&self) -> &str {
        "priority"
    }

    /// Queues all in one queue: the most urgent of all is next, whichever P asks.
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
        let key = self.key(&task.info());
        proc.global().push(task, key);
    }

    fn get_from_global_queue(&self, proc: &mut Proc<'_>) -> Option<Task> {
        proc.global().pop_front()
    }

    fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
        proc.local().pop_front().map(Next::from) // only tasks that an earlier policy left
    }

    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, self.every)
    }

    fn should_preempt(&self, running: &TaskInfo, waking: &TaskInfo) -> bool {
        waking.priority > running.priority
    }
}
