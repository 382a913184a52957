//! Why a file cannot be read.

use crate::format::VERSION;
use std::{fmt, io};

/// Why a file is not read as a trace. A file that is cut off is no error: see [`Trace::is_torn`](crate::Trace).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// It has no bytes.
    Empty,
    /// It is something else.
    Foreign,
    /// It was written by a newer mungo, in a format with this version.
    Newer(u32),
    /// It could not be read.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Empty => f.write_str("the file is empty: was the trace ever flushed?"),
            Error::Foreign => f.write_str("this is not a trace of mungo's"),
            Error::Newer(version) => {
                write!(f, "the trace has version {version}, and this program reads up to {VERSION}: update it")
            }
            Error::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
