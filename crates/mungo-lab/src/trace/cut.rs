//! The last seconds of a trace.

use crate::error::{Error, Result};
use mungo_trace::format::{self, BLOCK_HEADER, Block, FILE_HEADER, HAS_TEXT, RECORD, Record, Sync, kind};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Leaves the last of a trace in its file. Texts and places stay; so do the places and names of goroutines that were
/// made before, and the policies that decided.
pub(super) fn keep_last(path: &Path, last: Duration) -> Result<()> {
    let bytes = fs::read(path).map_err(|e| Error::file("read the trace", path, &e))?;
    let Some(kept) = cut(&bytes, last.as_nanos() as u64) else { return Ok(()) };
    // Whole or not at all: what was recorded is not lost to a full disk.
    let part = path.with_added_extension("part");
    fs::write(&part, kept)
        .and_then(|()| fs::rename(&part, path))
        .inspect_err(|_| _ = fs::remove_file(&part))
        .map_err(|e| Error::file("shorten the trace", path, &e))
}

/// A block, and where it lies.
struct At<'a> {
    kind: u32,
    header: &'a [u8],
    payload: &'a [u8],
}

/// Whole blocks, in their order.
fn blocks(bytes: &[u8]) -> Vec<At<'_>> {
    let mut all = Vec::new();
    let mut rest = bytes.get(FILE_HEADER..).unwrap_or_default();
    while let Some((header, after)) = rest.split_at_checked(BLOCK_HEADER) {
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let Some((payload, after)) = after.split_at_checked(number(4) as usize) else { break };
        all.push(At { kind: number(0), header, payload });
        rest = after;
    }
    all
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// The time of a sync in ticks and in ns.
fn times(block: &At<'_>) -> Option<(u64, u64)> {
    (block.kind == format::SYNC && block.payload.len() >= Sync::LEN)
        .then(|| (word(block.payload, 0), word(block.payload, 8)))
}

/// The file without what lies more than `last_ns` before its end; nothing if that is all of it.
fn cut(bytes: &[u8], last_ns: u64) -> Option<Vec<u8>> {
    let blocks = blocks(bytes);
    let (_, end) = blocks.iter().rev().find_map(times)?;
    let from = end.checked_sub(last_ns)?;
    // The last sync before that begins the rest.
    let begin = blocks.iter().rposition(|block| times(block).is_some_and(|(_, ns)| ns <= from))?;
    let (ticks, _) = times(&blocks[begin])?;
    let mut kept = bytes[..FILE_HEADER].to_vec();
    for (i, block) in blocks.iter().enumerate() {
        if i < begin && block.kind == format::EVENTS {
            keep_births(&mut kept, block, ticks);
        } else if i >= begin || block.kind != format::SYNC {
            kept.extend(block.header);
            kept.extend(block.payload);
        }
    }
    Some(kept)
}

/// Appends a block with what a block of events says of new goroutines, as of `ticks`.
fn keep_births(out: &mut Vec<u8>, block: &At<'_>, ticks: u64) {
    let mut kept = Vec::new();
    let mut rest = block.payload;
    while rest.len() >= RECORD {
        let record = Record { head: word(rest, 0), body: word(rest, 8) };
        let length =
            RECORD * (1 + if record.kind() & HAS_TEXT != 0 { usize::from(record.argument()) } else { 0 });
        let Some((this, after)) = rest.split_at_checked(length) else { break };
        let kind = match record.kind() {
            kind::CREATED => Some(kind::EXISTED),
            kind @ (kind::EXISTED | kind::NAMED | kind::POLICY_IN_FORCE) => Some(kind),
            kind::POLICY_CHANGED => Some(kind::POLICY_IN_FORCE),
            _ => None,
        };
        if let Some(kind) = kind {
            // No ticks since the base.
            let head = Record::new(0, kind, record.argument(), record.p(), 0).head;
            kept.extend(head.to_le_bytes());
            kept.extend(&this[8..]);
        }
        rest = after;
    }
    if kept.is_empty() {
        return;
    }
    let number = |at: usize| word(block.header, at) as u32;
    let header = Block {
        kind: format::EVENTS,
        len: kept.len() as u32,
        runtime: number(8),
        m: number(12),
        running: 0,
        base: ticks,
    };
    out.extend(header.to_bytes());
    out.extend(kept);
}
