//! `mungo compare`: the same load under several policies, in turn, until the difference is larger than the noise or is
//! not there.

mod metrics;
mod worst;

pub(crate) use metrics::{Better, Figure};

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::out::Out;
use crate::policy::Policy;
use crate::progress::Progress;
use crate::report::{self, Reports};
use crate::stats::{Summary, Times, best};
use crate::workloads::{Outcome, Setting, Workload};
use mungo::Runtime;
use std::path::PathBuf;
use std::time::Duration;

/// How long a runtime may take to end after its load: the longest is a queue full of requests.
const SHUTDOWN: Duration = Duration::from_secs(60);

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) workload: String,
    pub(crate) policies: Vec<String>,
    pub(crate) procs: Option<usize>,
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    pub(crate) repeat: usize,
    /// `run`: a file. `compare`: a folder.
    pub(crate) trace: Option<PathBuf>,
}

/// One policy in one round.
#[derive(Debug)]
pub(crate) struct Repeat {
    /// From 1 on. Equal rounds had equal loads.
    pub(crate) round: usize,
    pub(crate) seed: u64,
    pub(crate) outcome: Outcome,
    pub(crate) figures: Vec<Figure>,
}

/// All that is known of a policy.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) repeats: Vec<Repeat>,
    /// A page with the trace of its worst round, and the worst second in it, if asked for.
    pub(crate) trace: Option<worst::Worst>,
}

/// The result of a comparison.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) workload: &'static str,
    pub(crate) about: &'static str,
    /// Makes the same comparison again.
    pub(crate) command: String,
    pub(crate) procs: usize,
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    /// As many as were asked for.
    pub(crate) rounds: usize,
    pub(crate) interrupted: bool,
    pub(crate) machine: String,
    /// A remark on other programs, if they matter.
    pub(crate) disturbance: Option<String>,
    pub(crate) contenders: Vec<Contender>,
}

/// A figure under all policies.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) unit: &'static str,
    /// A policy that never reported the figure has none.
    pub(crate) summaries: Vec<Option<Summary>>,
    /// The policy that is better than all others by more than the noise.
    pub(crate) best: Option<usize>,
}

impl Comparison {
    /// One row a figure, in the order of the reports.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut kinds: Vec<&Figure> = Vec::new();
        for figure in self.contenders.iter().flat_map(|c| &c.repeats).flat_map(|r| &r.figures) {
            if kinds.iter().all(|known| known.key != figure.key) {
                kinds.push(figure);
            }
        }
        kinds.into_iter().map(|kind| self.row(kind)).collect()
    }

    fn row(&self, kind: &Figure) -> Row {
        let values: Vec<Vec<f64>> = self.contenders.iter().map(|c| c.values(&kind.key)).collect();
        let complete = values.iter().all(|v| v.len() == values[0].len());
        let best = match kind.better {
            _ if !complete => None,
            Better::Neither => None,
            better => best(&values, better == Better::More),
        };
        let summaries = values.iter().map(|v| Summary::of(v)).collect();
        Row { key: kind.key.clone(), label: kind.label.clone(), unit: kind.unit, summaries, best }
    }
}

impl Contender {
    /// A figure over the rounds in which it was there.
    pub(crate) fn values(&self, key: &str) -> Vec<f64> {
        let of = |repeat: &Repeat| repeat.figures.iter().find(|f| f.key == key).map(|f| f.value);
        self.repeats.iter().filter_map(of).collect()
    }

    /// All waits, or latencies, of the class over all rounds.
    pub(crate) fn times(&self, class: usize, latency: bool) -> Times {
        let mut all = Times::default();
        for repeat in &self.repeats {
            let class = &repeat.outcome.classes[class];
            let times = if latency { &class.latency } else { &class.wait };
            times.iter().for_each(|times| all.add(times));
        }
        all
    }
}

/// `mungo compare`.
pub(crate) fn run(options: &Options, reports: Reports, out: &Out, interrupt: &Interrupt) -> Result<()> {
    let workload = crate::workloads::find(&options.workload)?;
    let policies = options.policies.iter().map(|p| Policy::parse(p)).collect::<Result<Vec<_>>>()?;
    let reports = reports.open()?;
    crate::work::rounds_per_us(); // now, while nothing else runs
    let mut comparison = measure(workload, &policies, options, interrupt)?;
    if comparison.contenders.iter().all(|c| c.repeats.is_empty()) {
        return Err(Error::Interrupted("interrupted before the first round was over; nothing to report"));
    }
    if let Some(folder) = options.trace.as_deref().filter(|_| !interrupt.is_set()) {
        worst::record(workload, &policies, &mut comparison, folder, interrupt)?;
    }
    reports.write(&comparison, out)?;
    interrupt.check()
}

/// `fair`, `fair`: the second one is `fair (2)`. Comparing a policy with itself shows the noise.
fn labels(policies: &[Policy]) -> Vec<String> {
    let label = |(i, policy): (usize, &Policy)| {
        let before = policies[..i].iter().filter(|p| p.spec() == policy.spec()).count();
        match before {
            0 => policy.spec().to_owned(),
            n => format!("{} ({})", policy.spec(), n + 1),
        }
    };
    policies.iter().enumerate().map(label).collect()
}

fn measure(
    workload: &'static dyn Workload,
    policies: &[Policy],
    options: &Options,
    interrupt: &Interrupt,
) -> Result<Comparison> {
    let contender = |name| Contender { name, repeats: Vec::new(), trace: None };
    let procs = policies[0].runtime(options.procs)?.info().procs;
    let mut comparison = Comparison {
        workload: workload.name(),
        about: workload.about(),
        command: format!(
            "mungo compare -w {} -p {} --procs {procs} --duration {:?} --repeat {} --seed {}",
            workload.name(),
            policies.iter().map(Policy::spec).collect::<Vec<_>>().join(","),
            options.duration,
            options.repeat,
            options.seed
        ),
        procs,
        duration: options.duration,
        seed: options.seed,
        rounds: options.repeat,
        interrupted: false,
        machine: crate::machine::describe(),
        disturbance: crate::machine::disturbance(),
        contenders: labels(policies).into_iter().map(contender).collect(),
    };
    let mut bar = Progress::new((policies.len() * (options.repeat + 1)) as u64, workload.name());
    // Round 0 warms up caches and pools and is not counted.
    'rounds: for round in 0..=options.repeat {
        for turn in 0..policies.len() {
            let who = (turn + round) % policies.len(); // none is always first
            bar.doing(format!("round {round}, {}", comparison.contenders[who].name));
            let length =
                if round == 0 { options.duration.min(Duration::from_millis(200)) } else { options.duration };
            let runtime = policies[who].runtime(Some(comparison.procs))?;
            let seed = options.seed.wrapping_add(round as u64);
            let repeat = repeat(workload, runtime, round, seed, length, interrupt)?;
            if interrupt.is_set() {
                comparison.interrupted = true;
                break 'rounds; // the current repeat was cut short: it does not count
            }
            if round > 0 {
                comparison.contenders[who].repeats.push(repeat);
            }
            bar.step();
        }
        if round > 0 {
            bar.milestone(&format!("round {round} of {} is done", options.repeat));
        }
    }
    Ok(comparison)
}

fn repeat(
    workload: &dyn Workload,
    runtime: Runtime,
    round: usize,
    seed: u64,
    length: Duration,
    interrupt: &Interrupt,
) -> Result<Repeat> {
    let before = runtime.metrics();
    let procs = runtime.info().procs;
    let run = || (workload.run(&Setting::start(seed, procs, length, interrupt)), mungo::policy::stats());
    let (outcome, stats) = runtime.run(run);
    let outcome = outcome?;
    if stats.replaced > 0 {
        let why = stats.last_fault.unwrap_or_default();
        return Err(Error::Failed(format!(
            "{}: the policy was replaced by the default: {why}",
            workload.name()
        )));
    }
    let figures = metrics::figures(&outcome, &before, &runtime.metrics(), &stats);
    runtime.shutdown(SHUTDOWN).map_err(|e| Error::Failed(format!("{} did not end: {e}", workload.name())))?;
    Ok(Repeat { round, seed, outcome, figures })
}

/// `mungo run WORKLOAD`: once, and its figures.
pub(crate) fn once(
    workload: &'static dyn Workload,
    policy: &Policy,
    options: &Options,
    out: &Out,
    interrupt: &Interrupt,
) -> Result<()> {
    let runtime = policy.runtime(options.procs)?;
    let procs = runtime.info().procs;
    let tracing = options.trace.as_deref().map(worst::start).transpose()?;
    let repeat = repeat(workload, runtime, 1, options.seed, options.duration, interrupt)?;
    if let Some((tracing, path)) = tracing.zip(options.trace.as_deref()) {
        worst::stop(tracing, path)?;
        eprintln!("mungo: {}", crate::trace::advice(path));
    }
    report::figures(workload, policy.spec(), procs, &repeat, out)?;
    interrupt.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_beside_itself_is_numbered() {
        let policies: Vec<Policy> = (0..3).map(|_| Policy::parse("default").unwrap()).collect();
        assert_eq!(labels(&policies), ["default", "default (2)", "default (3)"]);
    }
}
