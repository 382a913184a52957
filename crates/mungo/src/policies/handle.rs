//! A policy as a value.

use super::Scheduler;
use std::sync::Arc;

/// A policy, whichever it is.
///
/// ```
/// use mungo::policy::{Fifo, Policy};
///
/// let policy: Policy = Fifo::new().into();
/// assert_eq!(policy.name(), "fifo");
/// ```
#[derive(Clone)]
pub struct Policy(Arc<dyn Scheduler>);

impl Policy {
    /// Returns its name.
    ///
    /// ```
    /// use mungo::policy::{Lifo, Policy};
    ///
    /// assert_eq!(Policy::from(Lifo::new()).name(), "lifo");
    /// ```
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the policy itself.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{self, Cause};
    ///
    /// let policy = policy::by_name("lifo")?;
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// machine.queue(policy.as_scheduler(), a, 0, Cause::Spawned);
    /// assert_eq!(machine.next(policy.as_scheduler(), 0), Some(a));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn as_scheduler(&self) -> &dyn Scheduler {
        &*self.0
    }
}

impl<S: Scheduler> From<S> for Policy {
    fn from(scheduler: S) -> Policy {
        Policy(Arc::new(scheduler))
    }
}

impl From<Arc<dyn Scheduler>> for Policy {
    fn from(scheduler: Arc<dyn Scheduler>) -> Policy {
        Policy(scheduler)
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Policy").field(&self.name()).finish()
    }
}
