//! The rank that a goroutine declares for policies: priority, weight, deadline, period and budget.

use std::io;
use std::time::Duration;

/// The urgency of a goroutine, for policies that ask; from 0, least urgent, to 255.
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
    /// For work when nothing else is to do.
    ///
    /// ```
    /// use mungo::policy::Priority;
    /// assert_eq!(Priority::LOWEST.level(), 0);
    /// ```
    pub const LOWEST: Priority = Priority(0);
    /// For background work.
    ///
    /// ```
    /// use mungo::policy::Priority;
    /// assert!(Priority::LOWEST < Priority::LOW && Priority::LOW < Priority::NORMAL);
    /// ```
    pub const LOW: Priority = Priority(64);
    /// The priority of a goroutine that did not ask for one.
    ///
    /// ```
    /// use mungo::policy::Priority;
    /// assert_eq!(Priority::NORMAL, mungo::priority());
    /// ```
    pub const NORMAL: Priority = Priority(128);
    /// For work that a user or another goroutine waits for.
    ///
    /// ```
    /// use mungo::policy::Priority;
    /// assert!(Priority::NORMAL < Priority::HIGH && Priority::HIGH < Priority::HIGHEST);
    /// ```
    pub const HIGH: Priority = Priority(192);
    /// For work before everything else.
    ///
    /// ```
    /// use mungo::policy::Priority;
    /// assert_eq!(Priority::HIGHEST.level(), u8::MAX);
    /// ```
    pub const HIGHEST: Priority = Priority(255);

    /// Makes a priority of any level.
    ///
    /// ```
    /// use mungo::policy::Priority;
    /// assert!(Priority::new(130) > Priority::NORMAL);
    /// ```
    pub const fn new(level: u8) -> Priority {
        Priority(level)
    }

    /// Returns the level.
    ///
    /// ```
    /// use mungo::policy::Priority;
    /// assert_eq!(Priority::HIGH.level(), 192);
    /// ```
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
///
/// ```
/// use mungo::policy::sim::Machine;
///
/// let mut machine = Machine::new(1, 1);
/// let usual = machine.spawn();
/// assert_eq!(machine.info(usual).weight, mungo::policy::NORMAL_WEIGHT);
/// ```
pub const NORMAL_WEIGHT: u32 = 1024;

/// The settings that [`Builder`](crate::Builder) was given. A field that is `None` is inherited.
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

    /// Returns an error if it makes no sense.
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
