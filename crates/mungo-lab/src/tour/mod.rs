//! `mungo tour`: each step says what to look at, does it, draws it, and says what was measured.

mod blocking;
mod million;
mod pool;
mod preemption;
mod stealing;
mod timeline;
mod watch;

pub(crate) use timeline::letter;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::out::{Ink, Out};
use mungo::{Runtime, ThreadLocals};

/// How wide pictures are: with their labels and remarks they fit a terminal of 80 columns.
const WIDTH: usize = 45;

/// Processors beyond these are counted and not drawn.
const DRAWN_PROCS: usize = 8;

/// What a step has to its disposal.
struct Stage<'a> {
    runtime: &'a Runtime,
    out: &'a Out,
    interrupt: &'a Interrupt,
    quick: bool,
}

impl Stage<'_> {
    fn procs(&self) -> usize {
        self.runtime.info().procs
    }

    /// What the step is about, and what to look at.
    fn heading(&self, title: &str, look_at: &str) -> Result<()> {
        self.interrupt.check()?;
        self.out.line(format!("\n{}", self.out.paint(Ink::Heading, format!("== {title}"))))?;
        Ok(self.out.line(self.out.paint(Ink::Faint, self.out.fold("   ", look_at)))?)
    }

    fn say(&self, text: impl AsRef<str>) -> Result<()> {
        Ok(self.out.line(self.out.fold("   ", text.as_ref()))?)
    }

    /// A line of a picture.
    fn draw(&self, label: &str, number: usize, picture: &str, remark: &str) -> Result<()> {
        let fill = " ".repeat(WIDTH.saturating_sub(picture.chars().count()));
        let picture = self.out.paint(Ink::Number(number), picture);
        Ok(self.out.line(format!("   {label:<9} {picture}{fill} {remark}").trim_end())?)
    }
}

/// Runs all steps.
pub(crate) fn run(quick: bool, out: &Out, interrupt: &Interrupt) -> Result<()> {
    let runtime = Runtime::new().map_err(|e| Error::Failed(format!("the runtime cannot be started: {e}")))?;
    let stage = Stage { runtime: &runtime, out, interrupt, quick };
    crate::work::rounds_per_us(); // now, while nothing else runs
    configuration(&stage)?;
    pool::show(&stage)?;
    stealing::show(&stage)?;
    preemption::show(&stage)?;
    blocking::show(&stage)?;
    million::show(&stage)?;
    let spawned = runtime.metrics().spawned;
    out.line(format!("\nThat was {} goroutines. Now try:", grouped(spawned)))?;
    for (command, what) in [
        ("mungo compare -w mixed-service --html report.html", "policies side by side"),
        ("mungo bench", "beside threads, tokio, Go"),
        ("mungo workloads; mungo policies", "what there is"),
    ] {
        out.line(format!("   {command:<50} {}", out.paint(Ink::Faint, what)))?;
    }
    Ok(())
}

fn configuration(stage: &Stage<'_>) -> Result<()> {
    let info = stage.runtime.info();
    let title = format!("mungo {}: Go's scheduler as a Rust library", info.version);
    stage.out.line(stage.out.paint(Ink::Heading, title))?;
    let quota = info.cpu_quota.map_or("no CPU quota".to_owned(), |q| format!("a CPU quota of {q:.2}"));
    let procs = format!("{} procs: at most that many goroutines run at a time", info.procs);
    stage.say(format!("{procs} ({} CPUs, {quota})", info.cpus))?;
    stage.say(match info.thread_locals {
        ThreadLocals::Own => "each goroutine has its own thread-locals, and takes them along".to_owned(),
        ThreadLocals::Shared(why) => format!("goroutines share their thread's thread-locals: {why}"),
        _ => String::new(),
    })?;
    stage.say(format!("a slice is {:?}, up to {} threads", info.time_slice, grouped(info.max_threads as u64)))
}

/// A time, given in µs.
fn us(us: f64) -> String {
    format!("{:.1?}", std::time::Duration::from_nanos((us * 1e3) as u64))
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap_or("")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn digits_in_groups() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(super::grouped)[..]);
    }
}
