//! Why a command ended early, and the exit status that says so.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line asks for something that does not exist.
    Usage(String),
    /// Something went wrong.
    Failed(String),
    /// Ctrl-C. What was measured has been printed, or this says that there is nothing.
    Interrupted(&'static str),
    /// A program that we ran failed, and has said why: its exit status is ours.
    Status(u8),
    /// The reader of our output went away, as `head` does.
    ReaderGone,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Something that was done to a file failed.
    pub(crate) fn file(doing: &str, path: &Path, e: &io::Error) -> Error {
        Error::Failed(format!("cannot {doing} {}: {e}", path.display()))
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Error::Usage(_) => 2,
            Error::Status(code) => *code,
            Error::Failed(_) | Error::ReaderGone => 1,
            Error::Interrupted(_) => 130,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(what) | Error::Failed(what) => f.write_str(what),
            Error::Interrupted(what) => f.write_str(what),
            Error::Status(code) => write!(f, "the program ended with exit status {code}"),
            Error::ReaderGone => f.write_str("no program reads the output"),
        }
    }
}

/// Only writes to standard output are allowed to use `?` on an `io::Result`; all others name their file.
impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Error::ReaderGone,
            _ => Error::Failed(format!("cannot write to standard output: {e}")),
        }
    }
}
