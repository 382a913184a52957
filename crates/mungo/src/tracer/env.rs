//! `MUNGO_TRACE`: a trace of the whole process, without a change to the program; with `MUNGO_TRACE_LAST` the end of it,
//! with `MUNGO_TRACE_STACKS` stacks too.

use super::sink::{Kept, SinkId};
use super::triggers::Triggers;
use super::{deadly, writer};
use crate::sys::say::say;
use crate::sys::secure;
use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// Most bytes that are kept of the end of a trace. TUNED: guess: 16 million events, which the viewer can show.
const MOST_BYTES: usize = 256 << 20;

static ASKED: OnceLock<Option<SinkId>> = OnceLock::new();

/// Starts the trace that the environment asks for; once for the process, before its first runtime. An error is named on
/// stderr. With `last` that much of its end is kept in memory, and written when the process ends.
pub(crate) fn start_as_asked(last: Option<Duration>, stacks: bool) {
    ASKED.get_or_init(|| {
        let name = secure::variable("MUNGO_TRACE").filter(|name| !name.is_empty())?;
        let name = name
            .to_str()
            .map_or(name.clone(), |text| text.replace("%p", &std::process::id().to_string()).into());
        let checked =
            super::check_stacks(stacks).inspect_err(|error| say!("mungo: MUNGO_TRACE_STACKS: {error}"));
        let stacks = stacks && checked.is_ok();
        let start = || -> io::Result<SinkId> {
            let Some(last) = last else { return writer::start_at_exit(Box::new(File::create(&name)?), stacks) };
            let path = std::path::absolute(&name)?; // the program may go to another folder
            drop(File::create(&path)?); // one that cannot be written is named now
            let triggers = Triggers { path, on_deadlock: true, on_exit: true, ..Triggers::default() };
            let sink = writer::start_recorder(Kept { last, max_bytes: MOST_BYTES }, stacks, triggers)?;
            deadly::catch();
            Ok(sink)
        };
        start().inspect_err(|error| say!("mungo: MUNGO_TRACE={}: {error}", name.display())).ok()
    });
}

/// Writes what happened so far to the file that the environment names, because a runtime has ended. Does not wait for
/// long, should that be a pipe.
pub(crate) fn flush_at_end() {
    if let Some(sink) = ASKED.get().copied().flatten() {
        _ = writer::flush_soon(sink); // said at the exit
    }
}
