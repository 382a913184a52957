//! How a runtime is configured: by code, by the environment, by the machine.

use crate::cpus::{Decision, QuotaWatch};
use crate::policy::Policy;
use crate::runtime::Runtime;
use crate::sched::shared::MAX_PROCS;
use crate::stack::slab::Class;
use std::io;
use std::time::Duration;

const DEFAULT_MAX_THREADS: u32 = 10_000;
const DEFAULT_TIME_SLICE: Duration = Duration::from_millis(10);
const DEFAULT_POLICY_WATCHDOG: Duration = Duration::from_secs(5);

/// What the runtime was made with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) procs: usize,
    /// How the default number of Ps came about.
    pub(crate) decision: Decision,
    /// It was given by code or by `MUNGO_PROCS`: the quota does not change it.
    pub(crate) procs_by_hand: bool,
    pub(crate) stack_class: Class,
    pub(crate) max_threads: u32,
    pub(crate) time_slice_ns: u64,
    /// The policy to start with; `None`: the one that is built in.
    pub(crate) policy: Option<Policy>,
    /// So long a policy may leave a goroutine waiting while others are served.
    pub(crate) policy_watchdog_ns: u64,
    /// Interrupt goroutines that do not call the runtime.
    pub(crate) async_preempt: bool,
}

/// Makes a [`Runtime`] to measure.
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(2).build()?;
/// assert_eq!(runtime.run(|| mungo::procs()), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct RuntimeBuilder {
    procs: Option<usize>,
    stack_size: Option<usize>,
    max_threads: Option<usize>,
    time_slice: Option<Duration>,
    policy: Option<Policy>,
    policy_watchdog: Option<Duration>,
}

impl RuntimeBuilder {
    /// How many goroutines may run at the same time. Default: `MUNGO_PROCS`, else what the machine, the affinity
    /// mask and the CPU quota of the cgroup allow, re-read while running.
    pub fn procs(mut self, n: usize) -> Self {
        self.procs = Some(n);
        self
    }

    /// The least stack that a goroutine gets, in bytes, unless it asks for another size. Only pages that were touched
    /// cost memory. Default: 256 KiB less guard page and thread-locals.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// The most threads that the runtime starts for goroutines. Default: 10,000.
    ///
    /// A goroutine that blocks its thread keeps it, and so does one that was interrupted while it computed. When there
    /// are no more threads, goroutines that have not begun wait until one of those ends or calls the runtime. A thread
    /// whose goroutine waits for something while it is [locked](crate::lock_os_thread) to it does not count.
    pub fn max_threads(mut self, n: usize) -> Self {
        self.max_threads = Some(n);
        self
    }

    /// How long a goroutine may run while others wait. Default: 10 ms.
    pub fn time_slice(mut self, slice: Duration) -> Self {
        self.time_slice = Some(slice);
        self
    }

    /// The policy that decides which goroutine runs next. Default: `MUNGO_SCHEDULER`, else the one that is built in.
    ///
    /// ```
    /// use mungo::policy::PriorityLevels;
    ///
    /// let runtime = mungo::Runtime::builder().scheduler(PriorityLevels::new()).build()?;
    /// assert_eq!(runtime.run(|| mungo::get_scheduler().name().to_owned()), "priority");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scheduler(mut self, policy: impl Into<Policy>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// So long a policy may leave a goroutine waiting while others are served, or Ps are idle; then the built-in one
    /// replaces it. Default: 5 s.
    pub fn policy_watchdog(mut self, limit: Duration) -> Self {
        self.policy_watchdog = Some(limit);
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    /// `InvalidInput` for settings that make no sense, named in the message; else what the system refused: memory
    /// for stacks, the first two threads.
    pub fn build(self) -> io::Result<Runtime> {
        let (config, quota) = self.config()?;
        Runtime::start(config, quota)
    }

    fn config(self) -> io::Result<(Config, Option<QuotaWatch>)> {
        let watch = QuotaWatch::new();
        let decision = watch.decision();
        let by_hand = match self.procs {
            Some(n) => Some(n),
            None => procs_from_environment()?,
        };
        let procs = by_hand.unwrap_or(decision.procs.min(MAX_PROCS));
        let max_threads = self.max_threads.unwrap_or(DEFAULT_MAX_THREADS as usize);
        if procs == 0 || procs > MAX_PROCS {
            return invalid(format!("procs is {procs}: it must be from 1 to {MAX_PROCS}"));
        }
        if max_threads < procs || max_threads > u32::MAX as usize {
            return invalid(format!(
                "max_threads is {max_threads}: it must be at least procs, which is {procs}"
            ));
        }
        let slice = self.time_slice.unwrap_or(DEFAULT_TIME_SLICE);
        if slice < Duration::from_micros(100) || slice > Duration::from_secs(3600) {
            return invalid(format!("time_slice is {slice:?}: it must be from 100 µs to an hour"));
        }
        let watchdog = self.policy_watchdog.unwrap_or(DEFAULT_POLICY_WATCHDOG);
        if watchdog < Duration::from_millis(20) {
            return invalid(format!("policy_watchdog is {watchdog:?}: it must be at least 20 ms"));
        }
        let policy = match self.policy {
            Some(policy) => Some(policy),
            None => crate::policy::from_environment()?,
        };
        let config = Config {
            policy,
            policy_watchdog_ns: u64::try_from(watchdog.as_nanos()).unwrap_or(u64::MAX),
            procs,
            decision,
            procs_by_hand: by_hand.is_some(),
            stack_class: self.stack_size.map_or(Ok(Class::DEFAULT), Class::for_stack)?,
            max_threads: max_threads as u32,
            time_slice_ns: slice.as_nanos() as u64,
            async_preempt: crate::debug_env::get().async_preempt,
        };
        let quota = by_hand.is_none().then_some(watch);
        Ok((config, quota))
    }
}

fn invalid<T>(why: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn procs_from_environment() -> io::Result<Option<usize>> {
    let Some(value) = std::env::var_os("MUNGO_PROCS") else { return Ok(None) };
    let text = value.to_string_lossy();
    match text.trim().parse() {
        Ok(n) if (1..=MAX_PROCS).contains(&n) => Ok(Some(n)),
        _ if text.trim().is_empty() => Ok(None),
        _ => invalid(format!("MUNGO_PROCS is '{text}': it must be a number from 1 to {MAX_PROCS}")),
    }
}
