//! Traces of what went worst: the round of each policy with the longest waits, once more, with the tracer on. What is
//! reported is measured without it.

use super::{Comparison, Contender, Repeat, repeat};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::policy::Policy;
use crate::trace;
use crate::workloads::Workload;
use mungo::trace::Tracing;
use std::fs;
use std::path::{Path, PathBuf};

/// A second, in ns.
const SECOND: u64 = 1_000_000_000;

/// The page of a trace, and the second in it that was worst, in ns.
#[derive(Clone, Debug)]
pub(crate) struct Worst {
    /// Absolute.
    page: PathBuf,
    from: u64,
    to: u64,
}

impl Worst {
    /// Returns a link to it from a page in `folder`, which is absolute: both can be moved together.
    pub(crate) fn link_from(&self, folder: &Path) -> String {
        let common = self.page.components().zip(folder.components()).take_while(|(a, b)| a == b).count();
        let up = folder.components().skip(common).map(|_| "..".to_owned());
        let down = self.page.components().skip(common).map(|part| encoded(&part.as_os_str().to_string_lossy()));
        format!("{}#t={},{}", up.chain(down).collect::<Vec<_>>().join("/"), self.from, self.to)
    }
}

/// Returns the name of a file as a part of an address.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Starts a trace of this process.
pub(super) fn start(path: &Path) -> Result<Tracing> {
    mungo::trace::start(path).map_err(|e| Error::file("write the trace", path, &e))
}

/// Ends it.
pub(super) fn stop(tracing: Tracing, path: &Path) -> Result<()> {
    tracing.stop().map(drop).map_err(|e| Error::file("write the trace", path, &e))
}

/// The round with the longest waits, or latencies, at the 99th percentile; without such the slowest one.
fn worst(contender: &Contender) -> Option<&Repeat> {
    let badness = |repeat: &Repeat| {
        let figures = repeat.figures.iter();
        let times = figures.clone().filter(|f| f.key.ends_with(".p99")).map(|f| f.value).reduce(f64::max);
        let throughput = figures.clone().find(|f| f.key == "throughput").map_or(0.0, |f| -f.value);
        times.unwrap_or(throughput)
    };
    contender.repeats.iter().max_by(|a, b| badness(a).total_cmp(&badness(b)))
}

/// `priority:age=5ms` as the name of a file.
fn file_name(workload: &str, contender: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    format!("{workload}-{}.trace", contender.chars().map(plain).collect::<String>())
}

/// Records the worst round of each policy, and says where the page is.
pub(super) fn record(
    workload: &'static dyn Workload,
    policies: &[Policy],
    comparison: &mut Comparison,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::file("make the folder", folder, &e))?;
    for (policy, contender) in policies.iter().zip(&mut comparison.contenders) {
        let Some((round, seed)) = worst(contender).map(|repeat| (repeat.round, repeat.seed)) else { continue };
        let path = folder.join(file_name(workload.name(), &contender.name));
        let runtime = policy.runtime(Some(comparison.procs))?;
        let tracing = start(&path)?;
        let done = repeat(workload, runtime, round, seed, comparison.duration, interrupt);
        stop(tracing, &path)?;
        done?;
        interrupt.check()?;
        let model = trace::load(&path)?;
        let page = path.with_added_extension("html");
        trace::write_page(&model, &path, &page)?;
        let full = std::path::absolute(&page).map_err(|e| Error::file("find", &page, &e))?;
        let (from, to) = worst_second(&model);
        contender.trace = Some(Worst { page: full, from, to });
    }
    Ok(())
}

/// The second in which goroutines waited most, from one tenth of a second to the next.
fn worst_second(model: &trace::Model) -> (u64, u64) {
    const STEP: u64 = SECOND / 10;
    let mut waited = vec![0u64; (model.end / STEP) as usize + 1];
    for span in &model.spans {
        waited[(span.start / STEP) as usize] += span.waited();
    }
    let sums = waited.windows(10.min(waited.len())).map(|second| second.iter().sum::<u64>());
    let worst = sums.enumerate().max_by_key(|(_, sum)| *sum).map_or(0, |(at, _)| at as u64 * STEP);
    (worst, (worst + SECOND).min(model.end).max(worst + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_and_encoded() {
        let worst = Worst { page: "/a/my traces/50%/echo#1.trace.html".into(), from: 1, to: 2 };
        assert_eq!(worst.link_from("/a".as_ref()), "my%20traces/50%25/echo%231.trace.html#t=1,2");
        assert_eq!(worst.link_from("/a/b/c".as_ref()), "../../my%20traces/50%25/echo%231.trace.html#t=1,2");
        assert_eq!(worst.link_from("/a/my traces/50%".as_ref()), "echo%231.trace.html#t=1,2");
    }

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(file_name("echo", "priority:age=5ms (2)"), "echo-priority-age-5ms--2-.trace");
    }
}
