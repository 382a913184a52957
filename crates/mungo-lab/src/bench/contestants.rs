//! The contestants. A contestant is a program that prints one number for a case. Each measurement has a process of its
//! own, so that none inherits another one's memory, threads or warm caches.

use super::{Case, LONGEST_TIMER, Measure, NAP, TIMERS, goroutines, tasks, threads};
use crate::error::{Error, Result};
use mungo::Builder;
use mungo::policy::{self, Priority};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that takes part.
#[derive(Debug)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    /// Its version, or what it consists of.
    pub(crate) what: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

/// The names that `--against` knows.
pub(crate) const NAMES: [&str; 6] = ["mungo", "threads", "tokio", "go", "node", "java"];

/// A contestant that could not come, and why.
#[derive(Debug)]
pub(crate) struct Absent {
    pub(crate) name: &'static str,
    pub(crate) why: String,
}

/// Runs one case of a contestant that is built into this program.
pub(crate) fn measure_here(contestant: &str, case: Case, procs: usize) -> Measure {
    match contestant {
        "mungo" => mungo_case(case, procs),
        "threads" => threads::measure(case),
        "tokio" => tasks::measure(case, procs),
        _ => Err(format!("'{contestant}' is not built in")),
    }
}

fn mungo_case(case: Case, procs: usize) -> Measure {
    let policy = match case {
        Case::WakeupByPriority => "priority",
        Case::WakeupByDeadline => "deadline",
        _ => "default",
    };
    let policy = policy::by_name(policy).expect("a policy of the library's");
    let runtime = mungo::Runtime::builder().procs(procs).scheduler(policy).build();
    let runtime = runtime.map_err(|e| format!("the runtime cannot be started: {e}"))?;
    Ok(runtime.run(|| match case {
        Case::Spawn => goroutines::spawn_join(200_000, 1000),
        Case::Yield => goroutines::yields(8, 1_000_000),
        Case::PingPong => goroutines::pingpong(100_000, 0),
        Case::Channel => goroutines::chan_buf(1_000_000, 1, 1, 128),
        Case::Select => goroutines::select(200_000, 0),
        Case::Mutex => goroutines::mutex(8, 50_000),
        Case::Timers => {
            let (wall, _) = goroutines::timers(TIMERS, LONGEST_TIMER);
            (wall.as_secs_f64() - LONGEST_TIMER.as_secs_f64()) * 1e3
        }
        Case::Memory => goroutines::parked(100_000).rss,
        Case::Wakeup => goroutines::wakeup(Builder::new()),
        Case::WakeupByPriority => goroutines::wakeup(Builder::new().priority(Priority::HIGHEST)),
        Case::WakeupByDeadline => goroutines::wakeup(Builder::new().period_budget(NAP, NAP / 10)),
    }))
}

impl Contestant {
    /// One measurement in a process of its own.
    ///
    /// # Errors
    /// Why there is no figure.
    pub(crate) fn measure(&self, case: Case) -> Measure {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(case.name());
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        let output = command.stdin(Stdio::null()).output().map_err(|e| format!("cannot be started: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let text = text.trim();
        match (text.strip_prefix("n/a: "), text.parse()) {
            (Some(why), _) => Err(why.to_owned()),
            (None, Ok(figure)) if output.status.success() => Ok(figure),
            _ => {
                let complaint = String::from_utf8_lossy(&output.stderr);
                let first = complaint.lines().next().unwrap_or("no output").to_owned();
                Err(format!("ended with {}: {first}", output.status))
            }
        }
    }
}

/// Those of `wanted` that can take part, and those that cannot. Foreign programs are written into `folder` and built.
pub(crate) fn invite(
    wanted: &[&'static str],
    procs: usize,
    folder: &Path,
) -> Result<(Vec<Contestant>, Vec<Absent>)> {
    let me = std::env::current_exe()
        .map_err(|e| Error::Failed(format!("cannot find the program that runs, to start it again: {e}")))?;
    let (mut here, mut absent) = (Vec::new(), Vec::new());
    for &name in wanted {
        let invited = match name {
            "go" => go(folder, procs),
            "node" => node(folder),
            "java" => java(folder, procs),
            _ => Ok(built_in(name, &me, procs)),
        };
        match invited {
            Ok(contestant) => here.push(contestant),
            Err(why) => absent.push(Absent { name, why }),
        }
    }
    Ok((here, absent))
}

fn built_in(name: &'static str, me: &Path, procs: usize) -> Contestant {
    let what = match name {
        "mungo" => concat!("goroutines, ", env!("CARGO_PKG_VERSION")),
        "threads" => "OS threads, crossbeam-channel, std's locks",
        _ => "tokio tasks, multi-threaded runtime; unbuffered channels are of capacity 1 there",
    };
    Contestant {
        name,
        what: what.to_owned(),
        program: me.to_owned(),
        arguments: vec!["measure".to_owned(), name.to_owned(), procs.to_string()],
        environment: Vec::new(),
    }
}

/// What `program arguments` prints, in one line.
fn ask(program: &str, arguments: &[&str], folder: &Path) -> std::result::Result<String, String> {
    let output = Command::new(program).args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("no `{program}` on PATH"),
        _ => format!("`{program}` cannot be started: {e}"),
    })?;
    let complaint = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()),
        false => Err(format!("`{program} {}` failed: {complaint}", arguments.join(" "))),
    }
}

fn write(folder: &Path, name: &str, text: &str) -> std::result::Result<String, String> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(path.display().to_string())
}

type Invited = std::result::Result<Contestant, String>;

fn go(folder: &Path, procs: usize) -> Invited {
    let what = ask("go", &["version"], folder)?;
    write(folder, "bench.go", include_str!("foreign/bench.go"))?;
    ask("go", &["build", "-o", "bench-go", "bench.go"], folder)?;
    let environment = vec![("GOMAXPROCS", procs.to_string())];
    Ok(Contestant { name: "go", what, program: folder.join("bench-go"), arguments: Vec::new(), environment })
}

fn node(folder: &Path) -> Invited {
    let what = format!("Node {}, promises, one thread", ask("node", &["--version"], folder)?);
    let arguments = vec![write(folder, "bench.js", include_str!("foreign/bench.js"))?];
    Ok(Contestant { name: "node", what, program: "node".into(), arguments, environment: Vec::new() })
}

fn java(folder: &Path, procs: usize) -> Invited {
    let version = ask("java", &["--version"], folder)?;
    write(folder, "Bench.java", include_str!("foreign/Bench.java"))?;
    ask("javac", &["-d", ".", "Bench.java"], folder)?;
    let major = version.split(|c: char| !c.is_ascii_digit()).find_map(|part| part.parse::<u32>().ok());
    let kind =
        if major.is_some_and(|n| n >= 21) { "virtual threads" } else { "platform threads (virtual ones: 21)" };
    let class_path = folder.display().to_string();
    let processors = format!("-XX:ActiveProcessorCount={procs}");
    let arguments = vec![processors, "-cp".to_owned(), class_path, "Bench".to_owned()];
    let what = format!("{version}, {kind}");
    Ok(Contestant { name: "java", what, program: "java".into(), arguments, environment: Vec::new() })
}
