//! What existed before a trace began: goroutines and policies, of which it would have neither places nor names.
//!
//! The scheduler knows them, the tracer does not: it asks by a pointer that is set when a runtime starts. It asks
//! without its lock, because the last handle of a goroutine may be dropped meanwhile, and with it the program's values.

use super::lane::{cut, text_unit};
use mungo_trace::Event;
use mungo_trace::format::{BLOCK_HEADER, Block, EVENTS, RECORD, Record};
use std::sync::OnceLock;

/// Most bytes in a block, but for one record.
const BLOCK: usize = 1 << 20;

/// What a trace is told of something that exists: a record without a time, and its text.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) runtime: u16,
    pub(crate) kind: u8,
    pub(crate) body: u64,
    /// Empty: none.
    pub(crate) text: Box<str>,
}

static CENSUS: OnceLock<fn() -> Vec<Known>> = OnceLock::new();

/// Sets the function that says what exists; once for the process.
pub(crate) fn set_census(census: fn() -> Vec<Known>) {
    _ = CENSUS.set(census);
}

/// Asks what exists. Without the writer's lock. A value of the program that panics when it is dropped does not take the
/// tracer's thread with it.
pub(super) fn take() -> Vec<Known> {
    let ask = |census: &fn() -> Vec<Known>| std::panic::catch_unwind(census).unwrap_or_default();
    CENSUS.get().map_or_else(Vec::new, ask)
}

/// Appends blocks that say what exists, as of `ticks`. Returns the number of events.
pub(super) fn put(out: &mut Vec<u8>, known: &[Known], ticks: u64) -> u64 {
    let mut rest = known.iter().peekable();
    while rest.peek().is_some() {
        let begin = out.len();
        out.extend([0; BLOCK_HEADER]);
        while let Some(Known { runtime, kind, body, text }) = rest.next_if(|_| out.len() - begin < BLOCK) {
            let text = cut(text);
            let units = text.len().div_ceil(RECORD) as u8;
            push(out, Record::new(0, *kind, units, *runtime, *body));
            text.chunks(RECORD).for_each(|unit| push(out, text_unit(unit)));
        }
        let len = (out.len() - begin - BLOCK_HEADER) as u32;
        let header = Block { kind: EVENTS, len, runtime: 0, m: Event::OUTSIDE, running: 0, base: ticks };
        out[begin..][..BLOCK_HEADER].copy_from_slice(&header.to_bytes());
    }
    known.len() as u64
}

fn push(out: &mut Vec<u8>, record: Record) {
    out.extend(record.to_bytes());
}
