//! The rank of the calling goroutine.

use super::hooks;
use crate::policies::Priority;
use crate::sched::run::current::{self, Running};

/// Returns the priority of the calling goroutine, with what it inherits at the moment from goroutines that wait for
/// its locks. On a plain thread [`Priority::NORMAL`].
///
/// ```
/// use mungo::policy::Priority;
///
/// let child = mungo::Builder::new().priority(Priority::HIGH).spawn(mungo::priority)?;
/// assert_eq!(child.join().unwrap(), Priority::HIGH);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn priority() -> Priority {
    current::g().map_or(Priority::NORMAL, |g| g.policy.priority())
}

/// Changes the priority of the calling goroutine; returns what it was. Goroutines that it starts from now on inherit
/// it. If another goroutine has become more urgent by this, policies that care let it run at once. On a plain thread
/// this does nothing.
///
/// ```
/// use mungo::policy::Priority;
///
/// mungo::go(|| {
///     let before = mungo::set_priority(Priority::LOW);
///     assert_eq!(before, Priority::NORMAL);
///     assert_eq!(mungo::go(mungo::priority).join().unwrap(), Priority::LOW);
/// })
/// .join()
/// .unwrap();
/// ```
pub fn set_priority(priority: Priority) -> Priority {
    let Some(running) = Running::enter() else { return Priority::NORMAL };
    running.shared().policy.note_ranks();
    let before = running.g().policy.set_base_priority(priority);
    if before > priority {
        hooks::lowered(&running);
    }
    before
}
