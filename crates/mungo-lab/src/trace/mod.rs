//! `mungo trace`: record what the scheduler did, and look at it. A file a verb; all of them use the tables of
//! `model.rs` and the figures of `analysis/`.

pub(crate) mod analysis;
mod build;
mod dot;
mod model;
mod perfetto;
mod record;
pub(crate) mod replay;
mod stats;
mod view;

pub(crate) use build::build;
pub(crate) use model::Model;
pub(crate) use record::advice;
pub(crate) use view::run as write_page;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::names;
use crate::out::Out;
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `mungo trace` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a program that uses mungo, and record what its scheduler does
    Record(Record),
    /// Which goroutines waited, for how long, behind which; what each place in the source costs
    Stats(Stats),
    /// A page to look into the trace with: verdicts, time lines, wake-ups. It needs no network
    View(View),
    /// Convert the trace for Perfetto's viewer (ui.perfetto.dev), or for chrome://tracing
    Perfetto(Perfetto),
    /// Draw the trace in the terminal: processors as rows, goroutines as letters
    Replay(Replay),
}

/// `mungo trace record`.
#[derive(Args, Debug)]
pub(crate) struct Record {
    /// Where the trace goes
    #[arg(long, short, value_name = "FILE", default_value = "mungo.trace")]
    pub(crate) output: PathBuf,
    /// Keep the last of it only, as in 10s, in the program's memory: for programs that run long
    #[arg(long, value_name = "TIME", value_parser = names::duration)]
    pub(crate) last: Option<Duration>,
    /// With stacks: where goroutines wait, by function
    #[arg(long)]
    pub(crate) stacks: bool,
    /// The program
    pub(crate) program: PathBuf,
    /// What it gets
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<String>,
}

/// `mungo trace stats`.
#[derive(Args, Debug)]
pub(crate) struct Stats {
    /// A trace
    file: PathBuf,
    /// For programs
    #[arg(long)]
    json: bool,
    /// Also draw who waits for whom when the trace ends, for Graphviz: dot -Tsvg OUT.dot
    #[arg(long, value_name = "OUT.dot")]
    dot: Option<PathBuf>,
}

/// `mungo trace view`.
#[derive(Args, Debug)]
pub(crate) struct View {
    /// A trace
    file: PathBuf,
    /// Where the page goes [default: beside the trace, with .html at the end]
    #[arg(long, short, value_name = "OUT.html")]
    output: Option<PathBuf>,
}

/// `mungo trace perfetto`.
#[derive(Args, Debug)]
pub(crate) struct Perfetto {
    /// A trace
    file: PathBuf,
    /// Where it goes
    #[arg(long, short, value_name = "OUT")]
    output: PathBuf,
    /// JSON, as chrome://tracing reads it: larger, for small traces
    #[arg(long)]
    chrome: bool,
}

/// `mungo trace replay`.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// A trace
    file: PathBuf,
    /// From when on, as in 1.5s
    #[arg(long, value_name = "TIME", value_parser = names::duration)]
    from: Option<Duration>,
    /// For how long [default: to the end]
    #[arg(long, value_name = "TIME", value_parser = names::duration)]
    length: Option<Duration>,
}

/// Runs a verb.
pub(crate) fn run(verb: Verb, out: &Out) -> Result<()> {
    match verb {
        Verb::Record(record) => record::run(&record, &Interrupt::install()?),
        Verb::Stats(s) => {
            s.dot.as_ref().map_or(Ok(()), |dot| refuse_itself(&s.file, dot))?;
            stats::run(&load(&s.file)?, &s.file, s.json, s.dot.as_deref(), out)
        }
        Verb::View(v) => {
            let output = v.output.unwrap_or_else(|| v.file.with_added_extension("html"));
            refuse_itself(&v.file, &output)?;
            view::run(&load(&v.file)?, &v.file, &output)
        }
        Verb::Perfetto(p) => {
            refuse_itself(&p.file, &p.output)?;
            perfetto::run(&load(&p.file)?, &p.output, p.chrome)
        }
        Verb::Replay(r) => replay::run(&load(&r.file)?, r.from.unwrap_or_default(), r.length, out),
    }
}

/// Writing over what is being read would lose it.
fn refuse_itself(input: &Path, output: &Path) -> Result<()> {
    let same =
        |a: &Path, b: &Path| a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    match same(input, output) {
        true => Err(Error::Usage(format!("{} would be overwritten: choose another name", input.display()))),
        false => Ok(()),
    }
}

/// Reads a trace.
///
/// # Errors
/// Says what is wrong with the file, and what to do about it.
pub(crate) fn load(path: &Path) -> Result<Model> {
    let file = File::open(path).map_err(|e| Error::file("read the trace", path, &e))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(Error::Failed(format!("{} is a folder, not a trace", path.display())));
    }
    let buffered = |file| BufReader::with_capacity(1 << 20, file);
    let model = match build::stream(buffered(file)).map_err(|e| explain(path, &e))? {
        Some(model) => model,
        None => {
            let file = File::open(path).map_err(|e| Error::file("read the trace", path, &e))?;
            build(&mungo_trace::Trace::read(buffered(file)).map_err(|e| explain(path, &e))?)
        }
    };
    if model.counts.events == 0 {
        return Err(Error::Failed(format!(
            "there are no events in {}: the program ended, or was killed, before a goroutine ran; or the file is \
             damaged",
            path.display()
        )));
    }
    Ok(model)
}

fn explain(path: &Path, error: &mungo_trace::Error) -> Error {
    let path = path.display();
    Error::Failed(match error {
        mungo_trace::Error::Empty => format!(
            "{path} is empty: the program that should have written it has not, or was killed at once. \
             Record again with 'mungo trace record PROGRAM'"
        ),
        mungo_trace::Error::Foreign => format!(
            "{path} is not a trace of mungo's. 'mungo trace record PROGRAM' makes one, or MUNGO_TRACE=FILE in the \
             environment of a program"
        ),
        mungo_trace::Error::Newer(version) => format!(
            "{path} was recorded by a newer mungo (version {version} of the format, this command knows {}). \
             Install the mungo-lab that belongs to it",
            mungo_trace::format::VERSION
        ),
        other => format!("cannot read the trace {path}: {other}"),
    })
}

/// Writes a file in one go, by `write`.
fn write_file(
    path: &Path,
    what: &str,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<u64> {
    let failed = |e: std::io::Error| Error::file(&format!("write the {what}"), path, &e);
    let file = File::create(path).map_err(failed)?;
    let mut buffer = std::io::BufWriter::with_capacity(1 << 20, file);
    write(&mut buffer).and_then(|()| buffer.flush()).map_err(failed)?;
    Ok(std::fs::metadata(path).map_or(0, |m| m.len()))
}
