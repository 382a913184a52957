//! `MUNGO_TRACE`: a trace of the whole process, without a change to the program.

use super::sink::SinkId;
use super::writer;
use crate::sys::say::say;
use crate::sys::secure;
use std::fs::File;
use std::io;
use std::sync::OnceLock;

static ASKED: OnceLock<Option<SinkId>> = OnceLock::new();

/// Starts the trace that the environment asks for; once for the process, before its first runtime. An error is named on
/// stderr.
pub(crate) fn start_as_asked() {
    ASKED.get_or_init(|| {
        let name = secure::variable("MUNGO_TRACE").filter(|name| !name.is_empty())?;
        let name = name
            .to_str()
            .map_or(name.clone(), |text| text.replace("%p", &std::process::id().to_string()).into());
        let start = || -> io::Result<SinkId> { writer::start_at_exit(Box::new(File::create(&name)?)) };
        start().inspect_err(|error| say!("mungo: MUNGO_TRACE={}: {error}", name.display())).ok()
    });
}

/// Writes what happened so far to the file that the environment names, because a runtime has ended.
pub(crate) fn flush_at_end() {
    if let Some(sink) = ASKED.get().copied().flatten() {
        _ = writer::flush(sink); // said at the exit
    }
}
