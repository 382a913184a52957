//! The settings of a runtime: by code, by the environment, by the machine.

use crate::cpus::{Decision, QuotaWatch};
use crate::debug_env::AsyncPreempt;
use crate::environment;
use crate::policies::Policy;
use crate::policies::order::{LONGEST_SLICE, SHORTEST_SLICE, TIME_SLICE, TIMER_SLACK};
use crate::sched::threads::preempt;
use crate::stack::slab::Class;
use std::io;
use std::time::Duration;

/// The most Ps of a runtime: more than any machine needs.
pub(crate) const MAX_PROCS: usize = 1024;

const DEFAULT_MAX_THREADS: u32 = 10_000;
const DEFAULT_POLICY_WATCHDOG: Duration = Duration::from_secs(5);
const DEFAULT_DEADLOCK_WARNING: Duration = Duration::from_secs(10);

/// Settings that a runtime is made with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) procs: usize,
    /// Says how the default number of Ps came about.
    pub(crate) decision: Decision,
    /// Whether the number of Ps was given by code or by `MUNGO_PROCS`: then the CPU quota does not change it.
    pub(crate) procs_by_hand: bool,
    pub(crate) stack_class: Class,
    pub(crate) max_threads: u32,
    pub(crate) time_slice_ns: u64,
    /// Time in ns for which timers may be put together.
    pub(crate) timer_slack_ns: u64,
    /// The policy to start with; `None`: the built-in one.
    pub(crate) policy: Option<Policy>,
    /// Time in ns for which a policy may leave a goroutine waiting while others are served.
    pub(crate) policy_watchdog_ns: u64,
    /// Says how goroutines that do not call the runtime are interrupted.
    pub(crate) async_preempt: AsyncPreempt,
    /// Duration in ns of a standstill that is not fatal before a warning is printed; 0: never.
    pub(crate) deadlock_warning_ns: u64,
}

/// Settings by code; what is `None` comes from the environment or the machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) procs: Option<usize>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) max_threads: Option<usize>,
    pub(crate) time_slice: Option<Duration>,
    pub(crate) timer_slack: Option<Duration>,
    pub(crate) policy: Option<Policy>,
    pub(crate) policy_watchdog: Option<Duration>,
    pub(crate) allow_shared_tls: bool,
    pub(crate) deadlock_warning: Option<Duration>,
    pub(crate) late_static_tls: Option<bool>,
}

impl Settings {
    /// Returns whether libraries with static thread-locals may be loaded once goroutines run.
    pub(crate) fn late_static_tls(&self) -> io::Result<bool> {
        match self.late_static_tls {
            Some(wanted) => Ok(wanted),
            None => Ok(environment::number("MUNGO_LATE_STATIC_TLS", 0..=1)? == Some(1)),
        }
    }

    /// Returns what a runtime is made with, and the watch of the CPU quota, if that decides the number of Ps.
    pub(crate) fn config(self) -> io::Result<(Config, Option<QuotaWatch>)> {
        environment::warn_of_unknown();
        let watch = QuotaWatch::new();
        let decision = watch.decision();
        let by_hand = match self.procs {
            Some(n) => Some(n),
            None => environment::number("MUNGO_PROCS", 1..=MAX_PROCS)?,
        };
        let procs = by_hand.unwrap_or(decision.procs.min(MAX_PROCS));
        let max_threads = match self.max_threads {
            Some(n) => n,
            None => environment::number("MUNGO_MAX_THREADS", 1..=u32::MAX as usize)?
                .unwrap_or(DEFAULT_MAX_THREADS as usize),
        };
        if procs == 0 || procs > MAX_PROCS {
            return invalid(format!("procs is {procs}: it must be from 1 to {MAX_PROCS}"));
        }
        if max_threads < procs || max_threads > u32::MAX as usize {
            return invalid(format!(
                "max_threads is {max_threads}: it must be at least procs, which is {procs}"
            ));
        }
        let slice = setting(self.time_slice, "MUNGO_TIME_SLICE")?.unwrap_or(TIME_SLICE);
        if !(SHORTEST_SLICE..=LONGEST_SLICE).contains(&slice) {
            return invalid(format!("time_slice is {slice:?}: it must be from 100 µs to an hour"));
        }
        let slack = setting(self.timer_slack, "MUNGO_TIMER_SLACK")?.unwrap_or(TIMER_SLACK);
        if slack > Duration::from_millis(10) {
            return invalid(format!("timer_slack is {slack:?}: it must be at most 10 ms"));
        }
        let watchdog =
            setting(self.policy_watchdog, "MUNGO_POLICY_WATCHDOG")?.unwrap_or(DEFAULT_POLICY_WATCHDOG);
        if watchdog < Duration::from_millis(20) {
            return invalid(format!("policy_watchdog is {watchdog:?}: it must be at least 20 ms"));
        }
        let debug = crate::debug_env::get();
        let warning = setting(self.deadlock_warning, "MUNGO_DEADLOCK_WARNING")?.unwrap_or_else(|| {
            let ms = debug.deadlock_warning_ms.map(u64::from);
            ms.map_or(DEFAULT_DEADLOCK_WARNING, Duration::from_millis)
        });
        let stack_size = match self.stack_size {
            Some(bytes) => Some(bytes),
            None => environment::bytes("MUNGO_STACK_SIZE")?,
        };
        let policy = match self.policy {
            Some(policy) => Some(policy),
            None => crate::policies::from_environment()?,
        };
        let config = Config {
            policy,
            policy_watchdog_ns: nanoseconds(watchdog),
            procs,
            decision,
            procs_by_hand: by_hand.is_some(),
            stack_class: stack_size.map_or_else(Class::usual, Class::for_stack)?,
            max_threads: max_threads as u32,
            time_slice_ns: slice.as_nanos() as u64,
            timer_slack_ns: nanoseconds(slack),
            async_preempt: debug.async_preempt.unwrap_or_else(preempt::usual_way),
            deadlock_warning_ns: nanoseconds(warning),
        };
        let quota = by_hand.is_none().then_some(watch);
        Ok((config, quota))
    }
}

/// Returns a setting of the code, else of the environment.
fn setting(by_code: Option<Duration>, name: &str) -> io::Result<Option<Duration>> {
    match by_code {
        Some(duration) => Ok(Some(duration)),
        None => environment::duration(name),
    }
}

fn invalid<T>(why: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
