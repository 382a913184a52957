//! The command line.

use crate::compare;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::out::Out;
use crate::report::Reports;
use crate::{bench, listings, names, run, top, tour, trace};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A scheduler laboratory: see goroutines at work, compare scheduling policies, measure.
#[derive(Debug, Parser)]
#[command(name = "mungo", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Verb>,
    #[command(flatten)]
    tour: Tour,
    /// No colours; also by the environment variable NO_COLOR
    #[arg(long, global = true)]
    no_color: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// What the runtime does, shown and measured in less than a minute (the default)
    Tour(Tour),
    /// Run one load under several policies, in turn, and tell the difference from the noise
    Compare(Compare),
    /// Run a workload, an example or a program under a policy
    Run(Run),
    /// What things cost, beside OS threads, tokio, and Go, Node and Java where they are installed
    Bench(Bench),
    /// Record what the scheduler does, and look at it
    #[command(subcommand)]
    Trace(trace::Verb),
    /// What the scheduler of a running program does, in the terminal
    Top(top::Top),
    /// List the workloads
    Workloads,
    /// List the scheduling policies
    Policies,
    /// Print a script for gdb: goroutines and their stacks, of processes and core files
    GdbScript,
    /// One measurement of `bench`, in a process of its own
    #[command(hide = true)]
    Measure { contestant: String, procs: usize, case: String },
}

#[derive(Args, Debug)]
struct Tour {
    /// A few seconds instead of most of a minute: fewer goroutines, shorter steps
    #[arg(long)]
    quick: bool,
}

/// How a load is run.
#[derive(Args, Debug)]
struct Load {
    /// How many goroutines run at the same time [default: as the machine and its CPU quota say]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    procs: Option<u16>,
    /// How long, as in 500ms, 2s, 1m
    #[arg(long, default_value = "1s", value_parser = names::duration)]
    duration: Duration,
    /// Of the generated load: the same seed gives the same load
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args, Debug)]
struct Compare {
    /// Which load: see `mungo workloads`
    #[arg(long, short, value_name = "NAME")]
    workload: String,
    /// Which policies, as in a,b,c:key=value: see `mungo policies`. One twice shows the noise
    #[arg(long, short, value_name = "NAMES", default_value = "default,fifo,priority,fair")]
    policy: String,
    #[command(flatten)]
    load: Load,
    /// How often each policy has its turn
    #[arg(long, short, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// JSON to FILE, or in place of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// CSV to FILE, or in place of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// A page with plots, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Run the worst round of each policy once more, uncounted, and put its trace and a page to look into it with into
    /// FOLDER
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Run {
    /// A workload, `example:NAME`, or the path of a program
    target: String,
    /// What the program gets
    #[arg(trailing_var_arg = true)]
    arguments: Vec<String>,
    /// Record what the scheduler does: see `mungo trace` [default FILE: mungo.trace]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "mungo.trace")]
    trace: Option<PathBuf>,
    /// Which policy: see `mungo policies`
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    policy: String,
    /// Make a program's threads goroutines: any that is dynamically linked, though it does not know mungo
    #[arg(long)]
    threads: bool,
    #[command(flatten)]
    load: Load,
}

#[derive(Args, Debug)]
struct Bench {
    /// Which benchmarks: spawn, yield, pingpong, channel, select, mutex, timers, memory [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// The peers beside it: threads, tokio, go, node, java [default: all that are there]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    against: Vec<String>,
    /// How many goroutines, tasks, ... run at the same time [default: as the machine and its CPU quota say]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    procs: Option<u16>,
    /// How often each has its turn
    #[arg(long, short, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
}

impl Load {
    fn options(
        &self,
        workload: &str,
        policies: Vec<String>,
        repeat: u16,
        trace: Option<PathBuf>,
    ) -> compare::Options {
        compare::Options {
            workload: workload.to_owned(),
            policies,
            procs: self.procs.map(usize::from),
            duration: self.duration,
            seed: self.seed,
            repeat: repeat.into(),
            trace,
        }
    }
}

/// The program `mungo`.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            match e {
                Error::ReaderGone | Error::Status(_) => {}
                Error::Usage(_) => eprintln!("mungo: {e}\n\nFor more information, try 'mungo --help'."),
                _ => eprintln!("mungo: {e}"),
            }
            e.exit_code()
        }
    }
}

fn dispatch(cli: Cli) -> Result<()> {
    let out = Out::new(cli.no_color);
    if cli.command.is_some() && cli.tour.quick {
        return Err(Error::Usage(
            "--quick is for the tour: 'mungo --quick' or 'mungo tour --quick'".to_owned(),
        ));
    }
    match cli.command.unwrap_or(Verb::Tour(cli.tour)) {
        Verb::Workloads => listings::workloads(&out),
        Verb::Policies => listings::policies(&out),
        Verb::GdbScript => listings::gdb_script(&out),
        Verb::Measure { contestant, procs, case } => bench::measure_one(&contestant, procs, &case, &out),
        Verb::Tour(tour) => tour::run(tour.quick, &out, &Interrupt::install()?),
        Verb::Compare(c) => {
            let options = c.load.options(&c.workload, names::policy_list(&c.policy)?, c.repeat, c.trace);
            let reports = Reports { json: c.json, csv: c.csv, html: c.html };
            compare::run(&options, reports, &out, &Interrupt::install()?)
        }
        Verb::Run(r) => {
            let options = r.load.options(&r.target, Vec::new(), 1, r.trace);
            run::run(&r.target, &r.arguments, &r.policy, r.threads, &options, &out, &Interrupt::install()?)
        }
        Verb::Trace(verb) => trace::run(verb, &out),
        Verb::Top(top) => top::run(&top, &out),
        Verb::Bench(b) => {
            let procs = b.procs.map(usize::from);
            let options = bench::Options { only: b.only, against: b.against, procs, repeat: b.repeat.into() };
            bench::run(&options, &out, &Interrupt::install()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
