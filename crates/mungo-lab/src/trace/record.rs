//! `mungo trace record`: runs a program with the tracer on.

use super::Record;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to do with a trace.
pub(crate) fn advice(path: &Path) -> String {
    let path = path.display();
    format!("the trace is in {path}: look at it with 'mungo trace stats {path}' or 'mungo trace view {path}'")
}

/// `mungo trace record`. An interrupt reaches the program, which ends and closes its trace; we wait for that.
pub(super) fn run(record: &Record, _interrupt: &Interrupt) -> Result<()> {
    let output = &record.output;
    let path = std::path::absolute(output).map_err(|e| Error::file("write the trace", output, &e))?;
    take_place(&path)?;
    let mut command = Command::new(&record.program);
    command.args(&record.arguments).env("MUNGO_TRACE", &path);
    if let Some(last) = record.last {
        command.env("MUNGO_TRACE_LAST", format!("{}ns", last.as_nanos()));
    }
    if record.stacks {
        command.env("MUNGO_TRACE_STACKS", "1");
    }
    let program = record.program.display();
    let status = command.status().map_err(|e| Error::Failed(format!("cannot start {program}: {e}")))?;
    let is_written = fs::metadata(&path).is_ok_and(|m| m.len() > 0);
    let is_cut = !is_written && part_of(&path).exists();
    if is_written {
        eprintln!("mungo: {}", advice(output));
    } else {
        _ = fs::remove_file(&path);
    }
    if is_cut {
        let advice = advice(&part_of(output));
        eprintln!("mungo: {program} ended before all of its trace was written; as far as it was, {advice}");
    }
    match status.code() {
        Some(0) if is_written => Ok(()),
        Some(0) if is_cut => Err(Error::Failed("the trace is not complete".to_owned())),
        Some(0) => Err(Error::Failed(format!(
            "{program} has written no trace. It does not use mungo, or one that is older than the tracer, or it has \
             started no runtime"
        ))),
        Some(code) => {
            eprintln!("mungo: {program} ended with {status}");
            Err(Error::Status(code.clamp(1, 255) as u8))
        }
        None => Err(Error::Failed(format!("{program} ended with {status}"))),
    }
}

/// Where a program writes the end of its trace until it is whole.
fn part_of(path: &Path) -> PathBuf {
    path.with_added_extension("part")
}

/// Makes an empty file: one that cannot be written is found before the program runs, and an old trace is not taken for
/// a new one.
fn take_place(path: &Path) -> Result<()> {
    _ = fs::remove_file(part_of(path)); // there is none, most likely
    fs::File::create(path).map(drop).map_err(|e| Error::file("write the trace", path, &e))
}
