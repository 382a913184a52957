//! The format of mungo's execution traces, and a reader for them.
//!
//! A trace is a sequence of [events](Event): which goroutine ran when and where, which waited and why, which woke
//! which. `mungo::trace` writes them; `docs/trace.md` describes the file. [`Trace`] holds a whole one, [`Reader`] goes
//! through a large one.
//!
//! What happens to a goroutine, in this order: `Created`, `Ready`, then `Start`, `Stop` and `Ready` again and again,
//! and at last `Stop` with [`Stop::Ended`]. Between `Start` and `Stop` it may lose its P: by `BlockedFound` if it
//! blocks its thread, by a `Stop` with [`How::Taken`] if it computes and its thread does not hear. It then goes on by a
//! `Start` with [`Queue::Thread`], or is queued: `Stop` with [`Stop::Blocked`], and `Ready`.

mod decode;
mod dictionary;
mod error;
mod event;
pub mod format;
mod hash;
#[doc(hidden)]
pub mod proto;
mod reader;
mod stack;

pub use dictionary::{Dictionary, Place, PlaceId, StringId};
pub use error::Error;
pub use event::{Cause, Event, How, Kind, Queue, Stop};
pub use reader::Reader;
pub use stack::{Frame, Part, Stack, StackEnd, StackId};

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// A trace in memory.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The events, in the order of their times.
    pub events: Vec<Event>,
    /// What their numbers mean.
    pub dictionary: Dictionary,
    /// Whether the end is missing: the program still runs, or could not write it.
    pub is_torn: bool,
    /// The number of events that the writer could not keep.
    pub dropped: u64,
}

impl Trace {
    /// Reads the trace in a file.
    ///
    /// # Errors
    /// If there is no such file, or no trace in it. A trace that is cut off is no error.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, Error> {
        Trace::read(BufReader::with_capacity(1 << 20, File::open(path)?))
    }

    /// Reads a trace.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(source: impl Read) -> Result<Trace, Error> {
        let mut reader = Reader::new(source)?;
        let mut events = Vec::new();
        for event in &mut reader {
            events.push(event?);
        }
        // Some may have come late.
        if !events.is_sorted_by_key(|event| event.time_ns) {
            events.sort_by_key(|event| event.time_ns);
        }
        let (is_torn, dropped) = (reader.is_torn(), reader.dropped());
        Ok(Trace { events, dictionary: reader.into_dictionary(), is_torn, dropped })
    }

    /// Returns a text; empty if there is none with this number.
    pub fn string(&self, id: StringId) -> &str {
        self.dictionary.string(id)
    }
}

// The crate's page in a registry: its program is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
