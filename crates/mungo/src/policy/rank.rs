//! What a goroutine says about itself for policies to rank it by: priority, weight, deadline, period and budget.

use crate::current::{self, Running};
use crate::policy::hooks;
use std::io;
use std::time::Duration;

/// How urgent a goroutine is, for policies that ask; from 0, least urgent, to 255.
///
/// ```
/// use mungo::policy::Priority;
///
/// assert!(Priority::HIGH > Priority::NORMAL);
/// assert_eq!(Priority::default(), Priority::NORMAL);
/// assert_eq!(Priority::new(200).level(), 200);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// When nothing else is to do.
    pub const LOWEST: Priority = Priority(0);
    /// Background work.
    pub const LOW: Priority = Priority(64);
    /// What goroutines have if nobody says otherwise.
    pub const NORMAL: Priority = Priority(128);
    /// Somebody waits for it.
    pub const HIGH: Priority = Priority(192);
    /// Before everything else.
    pub const HIGHEST: Priority = Priority(255);

    /// Any level.
    pub const fn new(level: u8) -> Priority {
        Priority(level)
    }

    /// The number.
    pub const fn level(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Priority::NORMAL
    }
}

/// The weight of a goroutine that did not ask for one.
pub const NORMAL_WEIGHT: u32 = 1024;

/// What [`Builder`](crate::Builder) was told. What is `None` is inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) priority: Option<Priority>,
    pub(crate) weight: Option<u32>,
    pub(crate) deadline_after_ns: Option<u64>,
    pub(crate) period_budget: Option<(Duration, Duration)>,
}

impl Rank {
    pub(crate) fn is_default(&self) -> bool {
        *self == Rank::default()
    }

    /// Whether it makes sense.
    pub(crate) fn check(&self) -> io::Result<()> {
        let problem = if self.weight.is_some_and(|w| w == 0 || w > 1 << 20) {
            format!("a weight of {}: it must be from 1 to {}", self.weight.unwrap_or(0), 1 << 20)
        } else if let Some((period, budget)) = self.period_budget
            && (budget.is_zero() || budget > period)
        {
            format!(
                "a budget of {budget:?} in a period of {period:?}: it must be above 0 and not more than that"
            )
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
    }
}

/// The priority of the calling goroutine, with what it inherits at the moment from those who wait for its locks.
/// On a plain thread [`Priority::NORMAL`].
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
/// it. If somebody else has become more urgent by this, policies that care let it run at once. On a plain thread this
/// does nothing.
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
