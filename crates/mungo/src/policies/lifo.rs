//! Last come, first served.
//!
//! Good at: warm caches, and recursion that forks: the newest goroutine's data is in the cache, and the tree of tasks
//! is walked in depth, so few are alive at a time. Thieves take the oldest, which are the largest.
//!
//! Bad at: fairness. A goroutine that came early may wait for as long as new ones come: the watchdog replaces this
//! policy if that lasts. What is preempted goes to the global queue, which is looked at at each 61st tick, and is
//! served in order.

use super::{Next, Options, Policy, Proc, Scheduler, Task, every};

/// The newest first. [When to choose it](crate::policy#choosing-one).
///
/// ```
/// let runtime = mungo::Runtime::builder().scheduler(mungo::policy::Lifo::new()).build()?;
/// assert_eq!(runtime.run(|| mungo::go(|| 1).join().unwrap()), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Lifo {
    every: u32,
}

impl Lifo {
    /// Makes a policy that looks at the global queue first at each 61st tick.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Lifo};
    ///
    /// let (policy, mut machine) = (Lifo::new(), Machine::new(2, 1));
    /// let [a, b, c] = [(); 3].map(|()| machine.spawn());
    /// for id in [a, b, c] {
    ///     machine.queue(&policy, id, 0, Cause::Spawned);
    /// }
    /// assert_eq!(machine.next(&policy, 0), Some(c), "the newest");
    /// assert_eq!(machine.next(&policy, 1), Some(a), "a thief takes the oldest");
    /// ```
    pub fn new() -> Lifo {
        Lifo { every: super::GLOBAL_EVERY }
    }

    pub(crate) fn with_options(options: &mut Options) -> Result<Policy, String> {
        Ok(Lifo { every: options.number("every", 61, 1..=1_000_000)? as u32 }.into())
    }
}

impl Default for Lifo {
    fn default() -> Self {
        Lifo::new()
    }
}

impl Scheduler for Lifo {
    fn name(&self) -> &str {
        "lifo"
    }

    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, local: bool) {
        // A goroutine that yields lets others go first: it is not new.
        match local && task.info().cause != super::Cause::Yielded {
            true => proc.local().push_front(task),
            false => proc.global().push_back(task),
        }
    }

    fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
        proc.local().pop_front().map(Next::from)
    }

    fn steal_work(&self, proc: &mut Proc<'_>) -> Option<Next> {
        let start = proc.random();
        for attempt in 0.. {
            let victim = self.victim(proc, start, attempt)?;
            if victim != proc.id()
                && let Some(oldest) = proc.of(victim).pop_back()
            {
                return Some(oldest.into());
            }
        }
        None
    }

    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, self.every)
    }
}
