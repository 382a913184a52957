//! Periodic tasks with deadlines among goroutines that never stop computing.

use super::{Class, Outcome, Setting, Workload};
use crate::error::{Error, Result};
use crate::rng::{Rng, fingerprint};
use crate::stats::{Times, jain};
use crate::work::{compute, compute_ns};
use mungo::policy::Priority;
use mungo::{Builder, Scope, ScopedJoinHandle};
use std::io;
use std::time::Duration;

/// Periods of the tasks. Each must be done before its next period begins.
const PERIODS: [Duration; 3] = [Duration::from_millis(5), Duration::from_millis(10), Duration::from_millis(20)];
/// Sets of these tasks for each processor.
const SETS: usize = 2;
/// Work in a period: this part of it, give or take a half. Together: a fifth of the processors.
const PART: u32 = 30;
/// Hogs for each processor.
const HOGS: usize = 2;

pub(super) struct Periodic;

/// A task: its period, when it is released first, and what it has to do in each period.
struct Task {
    period: Duration,
    offset: Duration,
    work: Vec<u64>,
}

fn plan(setting: &Setting) -> Vec<Task> {
    let tasks = (0..SETS * setting.procs).flat_map(|_| PERIODS).enumerate();
    let task = |(i, period): (usize, Duration)| {
        let mut rng = Rng::new(setting.seed, i as u64);
        let average = (period / PART).as_nanos() as u64;
        let offset = Duration::from_nanos(rng.between(0, period.as_nanos() as u64));
        let count = setting.length.saturating_sub(offset).as_nanos().div_ceil(period.as_nanos());
        let work = (0..count).map(|_| rng.between(average / 2, average * 3 / 2)).collect();
        Task { period, offset, work }
    };
    tasks.map(task).collect()
}

/// What one task saw.
#[derive(Default)]
struct Log {
    waits: Times,
    latencies: Times,
    missed: u64,
}

fn periods(task: &Task, setting: &Setting) -> Log {
    let mut log = Log::default();
    for (k, &ns) in task.work.iter().enumerate() {
        let release = task.offset + task.period * k as u32;
        if !setting.sleep_until(release) {
            break;
        }
        log.waits.record(setting.elapsed().saturating_sub(release));
        compute_ns(ns);
        let latency = setting.elapsed().saturating_sub(release);
        log.latencies.record(latency);
        log.missed += u64::from(latency > task.period);
    }
    log
}

/// Starts a task, and tells policies that ask what it is: urgent, periodic, of limited work.
fn start<'scope>(
    task: &'scope Task,
    setting: &'scope Setting,
    scope: &'scope Scope<'scope, '_>,
) -> io::Result<ScopedJoinHandle<'scope, Log>> {
    let most = task.period / PART * 2;
    let builder = Builder::new().priority(Priority::HIGH).period_budget(task.period, most);
    builder.spawn_scoped(scope, move || periods(task, setting))
}

/// Computes until the time is over; how much.
fn hog(setting: &Setting) -> f64 {
    let mut rounds = 0.0;
    while !setting.over() {
        compute(Duration::from_micros(100));
        rounds += 1.0;
    }
    rounds
}

impl Workload for Periodic {
    fn name(&self) -> &'static str {
        "periodic"
    }

    fn about(&self) -> &'static str {
        "6 periodic tasks a processor (5, 10, 20 ms; deadline = period) among 2 hogs a processor that never stop"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let plan = plan(setting);
        let (logs, hogs) = mungo::scope(|s| {
            // Hogs last: under a policy that ranks the tasks first, this goroutine waits with the hogs, and a task that
            // begins late would have missed its first periods.
            let tasks: Vec<_> = plan.iter().map(|task| start(task, setting, s)).collect();
            let hogs: Vec<_> = (0..HOGS * setting.procs).map(|_| s.spawn(|| hog(setting))).collect();
            let end =
                |task: io::Result<ScopedJoinHandle<'_, Log>>| Ok(task?.join().expect("a task does not panic"));
            let logs: io::Result<Vec<Log>> = tasks.into_iter().map(end).collect();
            (logs, hogs.into_iter().map(|h| h.join().expect("a hog does not panic")).collect::<Vec<f64>>())
        });
        let logs = logs.map_err(|e| Error::Failed(format!("the policy refused a periodic task: {e}")))?;
        let generated: u64 = plan.iter().map(|t| t.work.len() as u64).sum();
        let (mut class, mut missed) = (Class { name: "period", ..Class::default() }, 0);
        for log in &logs {
            class.wait.get_or_insert_default().add(&log.waits);
            class.latency.get_or_insert_default().add(&log.latencies);
            missed += log.missed;
        }
        let completed = class.latency.as_ref().map_or(0, Times::len);
        class.deadlines = Some((completed, missed));
        let numbers = plan.iter().flat_map(|t| t.work.iter().copied().chain([t.offset.as_nanos() as u64]));
        Ok(Outcome {
            generated,
            completed,
            cut_off: generated - completed,
            fingerprint: fingerprint(numbers),
            elapsed: setting.elapsed(),
            classes: vec![class],
            fairness: jain(&hogs),
        })
    }
}
