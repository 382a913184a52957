//! `mungo bench`: what things cost, side by side with other models of concurrency.

mod contestants;
pub mod goroutines;
mod tasks;
mod threads;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::names;
use crate::out::{Ink, Out};
use crate::progress::Progress;
use crate::report::table;
use crate::stats::Summary;
use contestants::{Absent, Contestant};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A figure, or why there is none.
pub(crate) type Measure = std::result::Result<f64, String>;

fn not_available(why: &str) -> Measure {
    Err(why.to_owned())
}

/// Sleepers of the timer case, and the longest of their sleeps. The foreign programs know these numbers, too.
const TIMERS: usize = 100_000;
const LONGEST_TIMER: Duration = Duration::from_millis(200);
/// Of the wake-up cases: those that compute, how long, and how long the sleeper sleeps each time.
const HOGS: usize = 8;
const HOGS_RUN: Duration = Duration::from_millis(700);
const NAP: Duration = Duration::from_millis(1);

/// Sleeps by `sleep_until` until the time is over: the 99th percentile of the lateness, in µs.
fn lateness(mut sleep_until: impl FnMut(Instant)) -> f64 {
    let mut late = Lateness::new();
    while late.goes_on() {
        let due = Instant::now() + NAP;
        sleep_until(due);
        late.note(due);
    }
    late.p99_us()
}

/// How late a sleeper woke up, each time.
struct Lateness {
    end: Instant,
    late_us: Vec<f64>,
}

impl Lateness {
    fn new() -> Lateness {
        Lateness { end: Instant::now() + HOGS_RUN, late_us: Vec::new() }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    fn note(&mut self, due: Instant) {
        self.late_us.push(due.elapsed().as_nanos() as f64 / 1e3);
    }

    fn p99_us(mut self) -> f64 {
        self.late_us.sort_unstable_by(f64::total_cmp);
        self.late_us[self.late_us.len() * 99 / 100]
    }
}

/// Computes until the flag is set.
fn hog(stop: &AtomicBool) {
    while !stop.load(Relaxed) {}
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Spawn,
    Yield,
    PingPong,
    Channel,
    Select,
    Mutex,
    Timers,
    Memory,
    Wakeup,
    WakeupByPriority,
    WakeupByDeadline,
}

impl Case {
    pub(crate) const ALL: [Case; 11] = [
        Case::Spawn,
        Case::Yield,
        Case::PingPong,
        Case::Channel,
        Case::Select,
        Case::Mutex,
        Case::Timers,
        Case::Memory,
        Case::Wakeup,
        Case::WakeupByPriority,
        Case::WakeupByDeadline,
    ];

    pub(crate) fn name(self) -> &'static str {
        self.description().0
    }

    /// Its name, what one figure is, and the unit.
    fn description(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Case::Spawn => ("spawn", "spawn and join one", "ns"),
            Case::Yield => ("yield", "one yield, 8 tasks", "ns"),
            Case::PingPong => ("pingpong", "round trip, unbuffered", "ns"),
            Case::Channel => ("channel", "one message, 128 places", "ns"),
            Case::Select => ("select", "one message, 4 channels", "ns"),
            Case::Mutex => ("mutex", "lock and unlock, 8 tasks", "ns"),
            Case::Timers => ("timers", "100,000 sleeps: lateness of the last", "ms"),
            Case::Memory => ("memory", "one parked task", "B"),
            Case::Wakeup => ("wakeup", "a sleeper among 8 that compute: 99th percentile late", "us"),
            Case::WakeupByPriority => ("wakeup-priority", "the same, of the highest priority here", "us"),
            Case::WakeupByDeadline => ("wakeup-deadline", "the same, with a deadline here", "us"),
        }
    }

    pub(crate) fn find(name: &str) -> Result<Case> {
        let found = Case::ALL.into_iter().find(|case| case.name() == name);
        found.ok_or_else(|| names::unknown("benchmark", name, Case::ALL.map(Case::name)))
    }
}

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) only: Vec<String>,
    pub(crate) against: Vec<String>,
    pub(crate) procs: Option<usize>,
    pub(crate) repeat: usize,
}

/// `mungo bench`.
pub(crate) fn run(options: &Options, out: &Out, interrupt: &Interrupt) -> Result<()> {
    let cases = match options.only.is_empty() {
        true => Case::ALL.to_vec(),
        false => options.only.iter().map(|name| Case::find(name)).collect::<Result<_>>()?,
    };
    let wanted = wanted(&options.against)?;
    let procs = options.procs.unwrap_or_else(mungo::procs);
    let folder = tempfile::Builder::new().prefix("mungo-bench-").tempdir();
    let folder = folder.map_err(|e| Error::Failed(format!("cannot make a temporary folder: {e}")))?;
    let (contestants, absent) = contestants::invite(&wanted, procs, folder.path())?;
    out.line(out.paint(Ink::Heading, format!("mungo bench: {procs} procs, {}", crate::machine::describe())))?;
    for c in &contestants {
        out.line(format!("  {:<8} {}", c.name, c.what))?;
    }
    for Absent { name, why } in &absent {
        out.line(out.paint(Ink::Faint, format!("  {name:<8} not there: {why}")))?;
    }
    if let Some(remark) = crate::machine::disturbance() {
        out.line(out.paint(Ink::Faint, format!("  {remark}")))?;
    }
    let results = measure(&cases, &contestants, options.repeat, interrupt);
    let how = "each in its own process; x 2 = twice of mungo's";
    out.line(format!("\nmedian (minimum) of {} interleaved runs, {how}", results.rounds))?;
    out.line(results_table(&cases, &contestants, &results, out))?;
    for note in &results.notes {
        out.line(out.paint(Ink::Faint, format!("  - {note}")))?;
    }
    interrupt.check()
}

/// `mungo measure CONTESTANT PROCS CASE`, by which `bench` starts itself.
pub(crate) fn measure_one(contestant: &str, procs: usize, case: &str, out: &Out) -> Result<()> {
    match contestants::measure_here(contestant, Case::find(case)?, procs) {
        Ok(figure) => out.line(figure.to_string())?,
        Err(why) => out.line(format!("n/a: {why}"))?,
    }
    Ok(())
}

/// mungo itself always takes part: the ratios are to it.
fn wanted(against: &[String]) -> Result<Vec<&'static str>> {
    if against.is_empty() {
        return Ok(contestants::NAMES.to_vec());
    }
    let find = |name: &String| {
        let found = contestants::NAMES.into_iter().find(|known| known == name);
        found.ok_or_else(|| names::unknown("contestant", name, contestants::NAMES))
    };
    let others = against.iter().map(find).filter(|found| !matches!(found, Ok("mungo")));
    std::iter::once(Ok("mungo")).chain(others).collect()
}

/// What was measured.
#[derive(Debug, Default)]
struct Results {
    /// By case and contestant.
    figures: Vec<Vec<Vec<f64>>>,
    /// Whole rounds.
    rounds: usize,
    notes: Vec<String>,
}

fn measure(cases: &[Case], contestants: &[Contestant], repeat: usize, interrupt: &Interrupt) -> Results {
    let mut results =
        Results { figures: vec![vec![Vec::new(); contestants.len()]; cases.len()], ..Results::default() };
    let mut refused = vec![vec![false; contestants.len()]; cases.len()];
    let mut bar = Progress::new((repeat * cases.len() * contestants.len()) as u64, "bench");
    'rounds: for round in 0..repeat {
        for (i, case) in cases.iter().enumerate() {
            for turn in 0..contestants.len() {
                // Each is first once: the one that comes after a heavy one is not always the same.
                let c = (turn + round) % contestants.len();
                bar.doing(format!("{} {}", contestants[c].name, case.name()));
                if interrupt.is_set() {
                    break 'rounds;
                }
                if !refused[i][c] {
                    match contestants[c].measure(*case) {
                        Ok(figure) => results.figures[i][c].push(figure),
                        Err(_) if interrupt.is_set() => break 'rounds,
                        Err(why) => {
                            refused[i][c] = true;
                            results.notes.push(format!("{} {}: {why}", contestants[c].name, case.name()));
                        }
                    }
                }
                bar.step();
            }
        }
        results.rounds += 1;
        bar.milestone(&format!("round {} of {repeat} is done", results.rounds));
    }
    results
}

fn results_table(cases: &[Case], contestants: &[Contestant], results: &Results, out: &Out) -> String {
    let mut head = vec!["".to_owned(), "".to_owned()];
    head.extend(contestants.iter().map(|c| c.name.to_owned()));
    let rows = cases.iter().zip(&results.figures).map(|(case, figures)| {
        let (name, what, unit) = case.description();
        let base = figures.first().and_then(|own| Summary::of(own)).map(|s| s.median);
        let cell = |figures: &Vec<f64>, is_mungo: bool| match (Summary::of(figures), base) {
            (None, _) => "-".to_owned(),
            // A ratio of two latenesses around zero would say nothing.
            (Some(s), Some(base)) if !is_mungo && base > 0.0 && s.median > 0.0 => {
                format!("{} ({})\nx {:.2}", table::number(s.median), table::number(s.min), s.median / base)
            }
            (Some(s), _) => format!("{} ({})\n{unit}", table::number(s.median), table::number(s.min)),
        };
        let cells = figures.iter().enumerate().map(|(c, figures)| cell(figures, c == 0));
        [name.to_owned(), what.to_owned()].into_iter().chain(cells).collect()
    });
    table::render(out, 2, head, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cases_and_contestants() {
        assert!(Case::ALL.iter().all(|case| Case::find(case.name()).is_ok_and(|found| found == *case)));
        assert!(Case::find("mutx").err().unwrap().to_string().contains("'mutex'"));
        assert_eq!(wanted(&["tokio".to_owned()]).unwrap(), ["mungo", "tokio"]);
        assert!(wanted(&["tokyo".to_owned()]).err().unwrap().to_string().contains("'tokio'"));
        // The foreign programs have their own copies of the sizes.
        for source in [include_str!("foreign/bench.go"), include_str!("foreign/bench.js")] {
            assert!(source.contains("timers(100000, 200"), "TIMERS and LONGEST_TIMER");
        }
        let go = include_str!("foreign/bench.go");
        for part in ["wakeup(8, 700*", ", 1*time.Millisecond)"] {
            assert!(go.contains(part), "HOGS, HOGS_RUN and NAP");
        }
    }
}
