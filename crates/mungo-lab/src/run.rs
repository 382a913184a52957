//! `mungo run`: one workload, one of the examples, or any program that uses mungo, under a policy.
//!
//! A workload runs in this process, a program in its own, with the settings in its environment. `--threads` makes the
//! threads of a program that does not know mungo goroutines (`preload.rs`). In all,
//! `MUNGO_DEBUG=schedtrace=1000` prints a line a second about the scheduler.

use crate::compare::{self, Options};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::names;
use crate::out::Out;
use crate::policy::Policy;
use crate::preload;
use crate::workloads;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `mungo run TARGET`.
pub(crate) fn run(
    target: &str,
    arguments: &[String],
    policy: &str,
    threads: bool,
    options: &Options,
    out: &Out,
    interrupt: &Interrupt,
) -> Result<()> {
    let policy = Policy::parse(policy)?;
    if let Some(example) = target.strip_prefix("example:").filter(|_| !threads) {
        return start(example_command(example)?, arguments, &policy, options);
    }
    if target.contains('/') {
        let mut command = Command::new(target);
        if threads {
            preload::add(&mut command, Path::new(target))?;
        }
        return start(command, arguments, &policy, options);
    }
    if threads {
        let message = format!("--threads is for programs: give the path of one, as ./{target}");
        return Err(Error::Usage(message));
    }
    let examples = examples().into_iter().map(|name| format!("example:{name}"));
    let examples: Vec<String> = examples.collect();
    let known = workloads::ALL.iter().map(|w| w.name()).chain(examples.iter().map(String::as_str));
    match workloads::find(target) {
        Ok(_) if !arguments.is_empty() => {
            Err(Error::Usage(format!("the workload '{target}' takes no arguments")))
        }
        Ok(workload) => compare::once(workload, &policy, options, out, interrupt),
        Err(_) => Err(names::unknown("workload or example", target, known)),
    }
}

/// The folder with the examples: of the checkout that we are in.
fn examples_folder() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join("examples")).find(|folder| folder.join("hello.rs").is_file())
}

fn examples() -> Vec<String> {
    let names = |folder: PathBuf| {
        let files = folder.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let rust = files.filter(|path| path.extension().is_some_and(|e| e == "rs"));
        Some(rust.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
    };
    let mut all: Vec<String> = examples_folder().and_then(names).unwrap_or_default();
    all.sort();
    all
}

fn example_command(name: &str) -> Result<Command> {
    let Some(folder) = examples_folder() else {
        let message = "the examples are in mungo's source tree: run this inside of a checkout, or give a path";
        return Err(Error::Usage(message.to_owned()));
    };
    let all = examples();
    if !all.iter().any(|known| known == name) {
        return Err(names::unknown("example", name, all.iter().map(String::as_str)));
    }
    let root: &Path = folder.parent().unwrap_or(&folder);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let shims = root.join("crates/mungo-interpose/examples").join(name).with_extension("rs");
    let package = if shims.exists() { "mungo-interpose" } else { "mungo" };
    command.args(["run", "--quiet", "--release", "-p", package, "--all-features", "--example", name, "--"]);
    command.current_dir(root);
    Ok(command)
}

/// Runs a program with our settings in its environment, and passes its status on.
fn start(mut command: Command, arguments: &[String], policy: &Policy, options: &Options) -> Result<()> {
    command.args(arguments).env("MUNGO_SCHEDULER", policy.spec());
    if let Some(procs) = options.procs {
        command.env("MUNGO_PROCS", procs.to_string());
    }
    if let Some(path) = &options.trace {
        let full = std::path::absolute(path).map_err(|e| Error::file("write the trace", path, &e))?;
        command.env("MUNGO_TRACE", full);
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| Error::Failed(format!("cannot start {program}: {e}")))?;
    if let Some(path) = options.trace.as_deref().filter(|path| path.exists()) {
        eprintln!("mungo: {}", crate::trace::advice(path));
    }
    match status.success() {
        true => Ok(()),
        false => Err(Error::Failed(format!("{program} ended with {status}"))),
    }
}
