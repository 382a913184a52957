//! Events of threads that are no Ms: plain threads, the monitor, its helper, goroutines of other runtimes, and the
//! preemption handler.
//!
//! They share a chunk of the pool. A thread takes places in it by one addition, fills them, and commits by writing the
//! first word, which was zero. Any thread that finds the chunk full puts another one in its place, so none waits for
//! another. A thread that comes late with an old chunk finds it full, whatever it is used for by then (`Chunk::taken`),
//! or takes a place in it while it is shared again.

use super::chunk::{self, Chunk, PLACES};
use super::lane::{cut, text_unit};
use super::{DROPPED, STATE, clock, writer};
use mungo_trace::format::{HAS_TEXT, RECORD, Record, kind};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Looks at the current chunk before an event is given up: each but the last means that other threads have filled one.
/// TUNED: guess.
const TRIES: u32 = 100;

// A place is a head, a body, and the time in ticks. A text has its two words in the places that follow.

/// The head of a place that was not used because an event did not fit.
const UNUSED: u64 = u64::MAX;
/// The head of a place with a part of a text.
const TEXT: u64 = 1;
/// What is added to the number of places that were taken, so that no thread takes one any more.
const CLOSED: u64 = PLACES as u64 + 1;

/// The current chunk, as its number and 1, and in the upper half a number that changes each time. 0: there was none.
static NOW: AtomicU64 = AtomicU64::new(0);

/// Events that no record speaks of yet: of these threads, and of Ms that are gone.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Puts an event down, for the runtime with this number. Waits for no other thread.
pub(crate) fn put(runtime: u16, entry: Record, text: &str) {
    put_at(clock::ticks_after_loads(), runtime, entry, text);
}

/// As [`put`], for an event at this time.
pub(crate) fn put_at(ticks: u64, runtime: u16, entry: Record, text: &str) {
    if STATE.load(Relaxed) == 0 {
        return;
    }
    let text = cut(text);
    let units = 1 + text.len().div_ceil(RECORD);
    for _ in 0..TRIES {
        let now = NOW.load(Acquire); // ORDERING: the zeros of `take_shared`
        if let Some(chunk) = (now as u32).checked_sub(1).and_then(chunk::chunk) {
            let at = chunk.taken.fetch_add(units as u64, AcqRel) as usize; // ORDERING: as above, if we came late
            if at + units <= PLACES {
                fill(chunk, at, runtime, entry, ticks, text);
                return;
            }
            if at <= PLACES {
                end(chunk, at); // this thread is the first that did not fit
            }
        }
        if !replace(now) {
            break;
        }
    }
    DROPPED.fetch_add(1, Relaxed);
    lose(1);
}

/// Lets the next round say that these events are missing.
pub(super) fn lose(events: u64) {
    LOST.fetch_add(events, Relaxed);
}

/// Gives a chunk whose places from `at` on are of no use to the writer.
fn end(chunk: &Chunk, at: usize) {
    (at..PLACES).for_each(|at| chunk.place(at)[0].store(UNUSED, Release)); // ORDERING: as `fill`
    chunk.fill_up();
    writer::note_sealed();
}

/// Puts another chunk in the place of `old`, unless another thread has. Returns `false` if there is none.
fn replace(old: u64) -> bool {
    let is_replaced = || NOW.load(Relaxed) != old;
    if is_replaced() {
        return true;
    }
    let Some(next) = Chunk::take_shared() else { return is_replaced() };
    let new = (old >> 32).wrapping_add(1) << 32 | u64::from(next.index() + 1);
    // ORDERING: Release the zeros to `put_at`; Acquire those of the chunk that is there instead.
    if NOW.compare_exchange(old, new, AcqRel, Acquire).is_ok() {
        return true;
    }
    // A thread that came late may have taken a place in it already.
    match next.taken.fetch_add(CLOSED, AcqRel) as usize {
        0 => next.free(),
        at if at <= PLACES => end(next, at),
        _ => {} // or all of them: it is ended
    }
    true
}

fn fill(chunk: &Chunk, at: usize, runtime: u16, entry: Record, ticks: u64, text: &[u8]) {
    for (unit, at) in text.chunks(RECORD).zip(at + 1..) {
        let [head, words @ ..] = chunk.place(at);
        let unit = text_unit(unit);
        words[0].store(unit.head, Relaxed);
        words[1].store(unit.body, Relaxed);
        head.store(TEXT, Relaxed);
    }
    let [head, body, time] = chunk.place(at);
    let units = text.len().div_ceil(RECORD) as u8;
    let (kind, argument) = match units {
        0 => (entry.kind(), entry.argument()),
        _ => (entry.kind() | HAS_TEXT, units),
    };
    body.store(entry.body, Relaxed);
    time.store(ticks, Relaxed);
    // ORDERING: Release all of it to `drain_chunk`.
    head.store(Record::new(0, kind, argument, runtime, 0).head, Release);
}

/// Takes what is committed, up to the first place that is not. Returns whether the chunk was given back.
fn drain_chunk(chunk: &'static Chunk, out: &mut Vec<Taken>) -> bool {
    let mut at = chunk.written.load(Relaxed) as usize;
    while at < PLACES {
        let [head, body, time] = chunk.place(at);
        let head = head.load(Acquire); // ORDERING: pairs with `fill`
        if head == 0 {
            break;
        }
        at += 1;
        if head == UNUSED || head == TEXT {
            continue;
        }
        let record = Record { head, body: body.load(Relaxed) };
        let units = record.text_units().min(PLACES - at);
        let unit = |at| {
            let [_, head, body] = chunk.place(at);
            Record { head: head.load(Relaxed), body: body.load(Relaxed) }
        };
        let text = (at..at + units).map(unit).collect();
        out.push(Taken { ticks: time.load(Relaxed), record, text });
        at += units;
    }
    chunk.written.store(at as u32, Relaxed);
    let is_done = at == PLACES && chunk.is_full();
    if is_done {
        chunk.free();
    }
    is_done
}

/// An event of a thread that is no M.
pub(super) struct Taken {
    pub(super) ticks: u64,
    pub(super) record: Record,
    pub(super) text: Vec<Record>,
}

/// The events of a round.
pub(super) struct Drained {
    /// In the order of time.
    pub(super) events: Vec<Taken>,
    /// Number of events that are missing.
    pub(super) lost: u64,
    /// Chunks that go on to be shared.
    pub(super) active: usize,
    /// Chunks that were full.
    pub(super) freed: usize,
}

/// Takes all events that are there. By the writer, whose round began at `now`, in ticks.
pub(super) fn drain(now: u64) -> Drained {
    let (mut events, mut chunks) = (Vec::new(), Vec::new());
    chunk::each_shared(|chunk| chunks.push(chunk));
    chunks.sort_by_key(|chunk| chunk.serial.load(Relaxed));
    let freed = chunks.iter().filter(|chunk| drain_chunk(chunk, &mut events)).count();
    let lost = LOST.swap(0, Relaxed);
    if lost != 0 {
        let record = Record::new(0, kind::DROPPED, 0, 0, lost);
        events.push(Taken { ticks: now, record, text: Vec::new() });
    }
    events.sort_by_key(|taken| taken.ticks);
    Drained { events, lost, active: chunks.len() - freed, freed }
}
