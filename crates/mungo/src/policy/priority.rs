//! Priorities, with ageing.
//!
//! Good at: urgent work among much other. A goroutine that becomes runnable displaces a less urgent one at once, not at
//! the end of its slice. Nobody starves: who waits rises by one level in each `age` (10 ms), so that one of priority
//! 128 that has waited for 640 ms goes before one of 192 that has just come.
//!
//! Bad at: many Ps, since they share one queue; and goroutines that talk to each other lose the warm cache.
//!
//! Ageing needs no clock work: all who wait rise at the same pace, so their order among each other does not change,
//! and is known when they are queued: the time of arrival, plus `age` for each level that is missing.

use super::{Next, Options, Policy, Priority, Proc, Scheduler, Task, TaskInfo, every};
use std::time::Duration;

/// Priority levels with ageing. See `policy/priority.rs` for what it is good at.
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
    /// Who waits rises by a level in 10 ms.
    pub fn new() -> PriorityLevels {
        PriorityLevels::with_age(Duration::from_millis(10))
    }

    /// Who waits rises by a level in each `age`.
    pub fn with_age(age: Duration) -> PriorityLevels {
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX).clamp(1, 1 << 50);
        PriorityLevels { age_ns, every: 31 }
    }

    pub(super) fn with_options(options: &mut Options) -> Result<Policy, String> {
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

    /// All in one queue: the most urgent of all is next, whichever P asks.
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
        let key = self.key(&task.info());
        proc.global().push(task, key);
    }

    fn get_from_global_queue(&self, proc: &mut Proc<'_>) -> Option<Task> {
        proc.global().pop_front()
    }

    fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
        proc.local().pop_front().map(Next::from) // only what an earlier policy left
    }

    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, self.every)
    }

    fn should_preempt(&self, running: &TaskInfo, waking: &TaskInfo) -> bool {
        waking.priority > running.priority
    }
}
