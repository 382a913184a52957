//! First come, first served: each P runs its goroutines in the order in which they became runnable.
//!
//! Good at: order, and an equal share of turns; no goroutine overtakes another on its P. The global queue is looked at
//! only every 127 ticks, so what is local stays local.
//!
//! Bad at: goroutines that talk to each other. An answer waits behind all other goroutines.

use super::{Next, Options, Policy, Proc, Scheduler, Task, every};

/// Strict local order. [When to choose it](crate::policy#choosing-one).
///
/// ```
/// let runtime = mungo::Runtime::builder().scheduler(mungo::policy::Fifo::new()).build()?;
/// assert_eq!(runtime.run(|| mungo::go(|| 1).join().unwrap()), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Fifo {
    every: u32,
}

impl Fifo {
    /// Makes a policy that looks at the global queue first at each 127th tick.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let (policy, mut machine) = (Fifo::new(), Machine::new(1, 1));
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, a, 0, Cause::Yielded);
    /// machine.queue(&policy, b, 0, Cause::Woken);
    /// assert_eq!(machine.next(&policy, 0), Some(a), "no one overtakes");
    /// ```
    pub fn new() -> Fifo {
        Fifo { every: 127 }
    }

    pub(crate) fn with_options(options: &mut Options) -> Result<Policy, String> {
        Ok(Fifo { every: options.number("every", 127, 1..=1_000_000)? as u32 }.into())
    }
}

impl Default for Fifo {
    fn default() -> Self {
        Fifo::new()
    }
}

impl Scheduler for Fifo {
    fn name(&self) -> &str {
        "fifo"
    }

    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, local: bool) {
        match local {
            true => proc.local().push_back(task),
            false => proc.global().push_back(task),
        }
    }

    fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
        proc.local().pop_front().map(Next::from)
    }

    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, self.every)
    }
}
