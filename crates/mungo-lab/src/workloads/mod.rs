//! Workloads: each generates its load from a seed, runs it on the current runtime, and accounts for all of it.

mod bimodal;
mod blocking;
mod echo;
mod fanout;
mod mixed_service;
mod open_loop;
mod periodic;
mod pingpong;
mod pipeline;
mod skynet;
mod spawn_storm;
mod timers;

use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::names;
use crate::rng::{Rng, fingerprint};
use crate::stats::Times;
use std::time::{Duration, Instant};

/// A kind of load.
pub(crate) trait Workload: Sync {
    fn name(&self) -> &'static str;

    /// One line for the list.
    fn about(&self) -> &'static str;

    /// Called on a goroutine of the runtime under test; returns when all goroutines of the load have ended, soon after
    /// the time is over.
    ///
    /// # Errors
    /// If the machine or the policy does not let it run.
    fn run(&self, setting: &Setting) -> Result<Outcome>;
}

/// All workloads.
pub(crate) static ALL: [&dyn Workload; 11] = [
    &pingpong::PingPong,
    &fanout::FanOut,
    &pipeline::Pipeline,
    &spawn_storm::SpawnStorm,
    &skynet::Skynet,
    &mixed_service::MixedService,
    &periodic::Periodic,
    &bimodal::Bimodal,
    &blocking::Blocking,
    &timers::Timers,
    &echo::Echo,
];

/// # Errors
/// If there is none of that name.
pub(crate) fn find(name: &str) -> Result<&'static dyn Workload> {
    let found = ALL.iter().find(|w| w.name() == name);
    found.copied().ok_or_else(|| names::unknown("workload", name, ALL.iter().map(|w| w.name())))
}

/// What a workload is told.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) procs: usize,
    pub(crate) length: Duration,
    start: Instant,
    interrupt: Interrupt,
}

impl Setting {
    /// The time runs from now on.
    pub(crate) fn start(seed: u64, procs: usize, length: Duration, interrupt: &Interrupt) -> Setting {
        Setting { seed, procs, length, start: Instant::now(), interrupt: interrupt.clone() }
    }

    /// The time is over, or the user asked for the end.
    pub(crate) fn over(&self) -> bool {
        self.elapsed() >= self.length || self.interrupt.is_set()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Sleeps until `at` after the start, unless the end comes first. Whether it got there.
    pub(crate) fn sleep_until(&self, at: Duration) -> bool {
        // An interrupt should not have to wait for a long sleep.
        const STEP: Duration = Duration::from_millis(100);
        while !self.over() {
            match at.checked_sub(self.elapsed()) {
                None | Some(Duration::ZERO) => return true,
                Some(left) => mungo::sleep(left.min(STEP)),
            }
        }
        false
    }
}

/// What became of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Operations that the load asked for: the sum of the next two.
    pub(crate) generated: u64,
    pub(crate) completed: u64,
    /// Operations that had not begun when the time was over, and were dropped.
    pub(crate) cut_off: u64,
    /// Of the generated load; a function of seed, processors and length.
    pub(crate) fingerprint: u64,
    /// From the start until the last operation was completed.
    pub(crate) elapsed: Duration,
    pub(crate) classes: Vec<Class>,
    /// Jain's index over those that compete, if any do.
    pub(crate) fairness: Option<f64>,
}

impl Outcome {
    /// Of a load in which everything that is generated is completed.
    pub(crate) fn all_done(setting: &Setting, completed: u64, fingerprint: u64) -> Outcome {
        Outcome {
            generated: completed,
            completed,
            fingerprint,
            elapsed: setting.elapsed(),
            ..Outcome::default()
        }
    }
}

/// Operations of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// From the moment when an operation could have run until it ran.
    pub(crate) wait: Option<Times>,
    /// From the same moment until it was done.
    pub(crate) latency: Option<Times>,
    /// Of the operations with a deadline: how many, and how many of them were late.
    pub(crate) deadlines: Option<(u64, u64)>,
}

/// Runs `f` on one goroutine for each of `items`, and returns what they returned.
fn gather<I: Send, R: Send>(items: impl IntoIterator<Item = I>, f: impl Fn(I) -> R + Sync) -> Vec<R> {
    let f = &f;
    mungo::scope(|s| {
        let handles: Vec<_> = items.into_iter().map(|item| s.spawn(move || f(item))).collect();
        handles.into_iter().map(|h| h.join().expect("a workload does not panic")).collect()
    })
}

/// The sum of what several goroutines recorded.
fn merged<'a>(parts: impl IntoIterator<Item = &'a Times>) -> Times {
    let mut all = Times::default();
    parts.into_iter().for_each(|part| all.add(part));
    all
}

/// The fingerprint of endless streams, one a competitor: of what `draw` makes of the first numbers of each.
fn fingerprint_of_streams(seed: u64, streams: u64, draw: impl Fn(&mut Rng) -> u64) -> u64 {
    let each = 4096 / streams.clamp(1, 256);
    let numbers = (0..streams).flat_map(|which| {
        let mut rng = Rng::new(seed, which);
        let draw = &draw;
        (0..each).map(move |_| draw(&mut rng))
    });
    fingerprint(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mungo::Runtime;

    fn run(workload: &dyn Workload, seed: u64) -> Outcome {
        let runtime = Runtime::builder().procs(2).build().unwrap();
        let run = || {
            let setting = Setting::start(seed, 2, Duration::from_millis(60), &Interrupt::default());
            workload.run(&setting)
        };
        let outcome = runtime.run(run).expect("it runs here");
        runtime.shutdown(Duration::from_secs(60)).expect("a workload leaves no goroutines behind");
        outcome
    }

    #[test]
    fn counts_add_up_and_seeds_reproduce_the_load() {
        for workload in ALL {
            let name = workload.name();
            let (one, again, other) = (run(workload, 1), run(workload, 1), run(workload, 2));
            assert_eq!(one.fingerprint, again.fingerprint, "{name}");
            assert_ne!(one.fingerprint, other.fingerprint, "{name}");
            for outcome in [one, again, other] {
                assert_eq!(outcome.generated, outcome.completed + outcome.cut_off, "{name}");
                assert!(!outcome.classes.is_empty(), "{name}");
                assert!(outcome.fairness.is_none_or(|j| j > 0.0 && j <= 1.0 + 1e-9), "{name}");
                for class in &outcome.classes {
                    assert!(class.deadlines.is_none_or(|(all, missed)| missed <= all), "{name}");
                }
            }
        }
    }

    #[test]
    fn an_interrupt_ends_a_workload() {
        let runtime = Runtime::builder().procs(2).build().unwrap();
        for workload in ALL {
            let interrupt = Interrupt::set_for_test();
            let setting = Setting::start(1, 2, Duration::from_secs(3600), &interrupt);
            runtime.run(|| workload.run(&setting)).expect("it runs here");
        }
    }

    #[test]
    fn names_are_found() {
        assert!(ALL.iter().all(|w| find(w.name()).is_ok_and(|found| found.name() == w.name())));
        assert!(find("skynot").err().unwrap().to_string().contains("'skynet'"));
    }
}
