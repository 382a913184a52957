//! What a repeat is reduced to: a list of named figures, the same for every policy.

use crate::stats::Times;
use crate::workloads::{Class, Outcome};
use mungo::Metrics;
use mungo::policy::Stats;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
    /// It explains, and is no merit.
    Neither,
}

/// A named figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// For machines: `light.wait.p99`.
    pub(crate) key: String,
    /// For people: `light wait p99`.
    pub(crate) label: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) value: f64,
}

/// The percentiles that are reported.
pub(crate) const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

fn figure(label: &str, unit: &'static str, better: Better, value: f64) -> Figure {
    Figure { key: label.replace("99.9", "999").replace(' ', "."), label: label.to_owned(), unit, better, value }
}

/// All figures of one repeat.
pub(crate) fn figures(outcome: &Outcome, before: &Metrics, after: &Metrics, stats: &Stats) -> Vec<Figure> {
    let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
    let mut all = vec![figure("throughput", "1/s", Better::More, outcome.completed as f64 / seconds)];
    for class in &outcome.classes {
        all.extend(class_figures(class));
    }
    all.extend(outcome.fairness.map(|j| figure("fairness", "Jain", Better::More, j)));
    // Where there are deadlines the load does not wait for the scheduler, and may be too much for it.
    if outcome.classes.iter().any(|class| class.deadlines.is_some()) {
        all.push(figure("cut off", "", Better::Less, outcome.cut_off as f64));
    }
    all.extend(counter_figures(before, after, stats, outcome.completed));
    all
}

fn class_figures(class: &Class) -> Vec<Figure> {
    let times = |what: &str, times: &Option<Times>| -> Vec<Figure> {
        let some = times.iter().filter(|times| times.len() > 0);
        let all = some.flat_map(|times| PERCENTILES.map(|(name, q)| (name, times.quantile_us(q))));
        let label = |name| format!("{} {what} {name}", class.name);
        all.map(|(name, us)| figure(&label(name), "us", Better::Less, us)).collect()
    };
    let mut all = times("wait", &class.wait);
    all.extend(times("latency", &class.latency));
    if let Some((count, missed)) = class.deadlines {
        let percent = 100.0 * missed as f64 / count.max(1) as f64;
        all.push(figure(&format!("{} missed", class.name), "%", Better::Less, percent));
    }
    all
}

/// What the scheduler did, for each completed operation.
fn counter_figures(before: &Metrics, after: &Metrics, stats: &Stats, completed: u64) -> Vec<Figure> {
    let sum = |of: fn(&mungo::ProcMetrics) -> u64| {
        let total = |m: &Metrics| m.per_proc.iter().map(of).sum::<u64>();
        total(after).saturating_sub(total(before)) as f64
    };
    let per_op = |label: &str, n: f64| figure(label, "/op", Better::Neither, n / completed.max(1) as f64);
    vec![
        per_op("switches", sum(|p| p.switches)),
        // Policies but the default count their steals themselves.
        figure("steals", "", Better::Neither, sum(|p| p.steals) + stats.sum(|p| p.steals_won) as f64),
        figure("preemptions", "", Better::Neither, sum(|p| p.preemptions)),
        figure("retakes", "", Better::Neither, sum(|p| p.retakes)),
    ]
}
