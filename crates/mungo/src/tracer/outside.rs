//! Events of threads that are no Ms: plain threads, the monitor, its helper, goroutines of other runtimes.
//!
//! They share a buffer. A thread takes places in it by one addition, fills them, and commits by writing the first word,
//! which was zero. The thread that finds the buffer full puts another one in its place. The buffers are of this module
//! alone: a thread that comes late with an old one at worst takes a place in it while it is new again.

use super::lane::{cut, text_unit};
use super::{DROPPED, STATE, clock, writer};
use mungo_trace::format::{HAS_TEXT, RECORD, Record};
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Places in a buffer.
const PLACES: usize = 1024;
const BUFFERS: usize = 8;
/// Looks at the current buffer before an event is given up.
const TRIES: u32 = 1000;

const FREE: u32 = 0;
const CURRENT: u32 = 1;
const FULL: u32 = 2;

/// A head, a body, and the time in ticks. A text has its two words in the places that follow, with a head of 1.
struct Place {
    head: AtomicU64,
    words: [AtomicU64; 2],
}

/// A place that was not used because an event did not fit.
const UNUSED: u64 = u64::MAX;
/// A place with a part of a text.
const TEXT: u64 = 1;

struct Buffer {
    state: AtomicU32,
    /// The places that were taken, and tries after that.
    taken: AtomicU64,
    /// The places that the writer has passed on. Writer.
    written: AtomicU32,
    places: [Place; PLACES],
}

static POOL: [Buffer; BUFFERS] = [const {
    Buffer {
        state: AtomicU32::new(FREE),
        taken: AtomicU64::new(PLACES as u64 + 1),
        written: AtomicU32::new(0),
        places: [const { Place { head: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 2] } }; PLACES],
    }
}; BUFFERS];

/// The index of the current buffer; [`BUFFERS`]: there is none; one more: a thread looks for one.
static NOW: AtomicU32 = AtomicU32::new(BUFFERS as u32);
const LOOKING: u32 = BUFFERS as u32 + 1;

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
        let now = NOW.load(Acquire); // ORDERING: the buffer's reset, by `install`
        let Some(buffer) = POOL.get(now as usize) else {
            if now == BUFFERS as u32 && !install(now) {
                break;
            }
            std::hint::spin_loop();
            continue;
        };
        let at = buffer.taken.fetch_add(units as u64, AcqRel) as usize; // ORDERING: as above, if we came late
        if at + units <= PLACES {
            buffer.fill(at, runtime, entry, ticks, text);
            return;
        }
        if at <= PLACES {
            // This thread is the first that did not fit, so it ends the buffer.
            buffer.places[at..].iter().for_each(|place| place.head.store(UNUSED, Release)); // ORDERING: as `fill`
            buffer.state.store(FULL, Release); // ORDERING: to `drain`
            writer::note_sealed();
            install(now);
        }
    }
    DROPPED.fetch_add(1, Relaxed);
}

/// Puts a free buffer in the place of `old`. Returns `false` if there is none.
fn install(old: u32) -> bool {
    if NOW.compare_exchange(old, LOOKING, AcqRel, Relaxed).is_err() {
        return true; // another thread does
    }
    let claim = |buffer: &&Buffer| buffer.state.compare_exchange(FREE, CURRENT, AcqRel, Relaxed).is_ok();
    match POOL.iter().position(|buffer| claim(&buffer)) {
        Some(next) => {
            POOL[next].taken.store(0, Release); // ORDERING: the writer's reset to threads that take a place
            NOW.store(next as u32, Release); // ORDERING: as above
            true
        }
        None => {
            NOW.store(BUFFERS as u32, Release); // ORDERING: as above
            false
        }
    }
}

impl Buffer {
    fn fill(&self, at: usize, runtime: u16, entry: Record, ticks: u64, text: &[u8]) {
        for (place, unit) in self.places[at + 1..].iter().zip(text.chunks(RECORD)) {
            let unit = text_unit(unit);
            place.words[0].store(unit.head, Relaxed);
            place.words[1].store(unit.body, Relaxed);
            place.head.store(TEXT, Relaxed);
        }
        let place = &self.places[at];
        let units = text.len().div_ceil(RECORD) as u8;
        let (kind, argument) = match units {
            0 => (entry.kind(), entry.argument()),
            _ => (entry.kind() | HAS_TEXT, units),
        };
        place.words[0].store(entry.body, Relaxed);
        place.words[1].store(ticks, Relaxed);
        // ORDERING: Release all of it to `drain`.
        place.head.store(Record::new(0, kind, argument, runtime, 0).head, Release);
    }

    /// Takes what is committed, up to the first place that is not.
    fn drain(&self, out: &mut Vec<Taken>) {
        let mut at = self.written.load(Relaxed) as usize;
        while at < PLACES {
            let place = &self.places[at];
            let head = place.head.load(Acquire); // ORDERING: pairs with `fill`
            if head == 0 {
                break;
            }
            at += 1;
            if head == UNUSED || head == TEXT {
                continue;
            }
            let record = Record { head, body: place.words[0].load(Relaxed) };
            let units = record.text_units().min(PLACES - at);
            let text = self.places[at..at + units].iter();
            let word = |word: &AtomicU64| word.load(Relaxed);
            let text = text.map(|p| Record { head: word(&p.words[0]), body: word(&p.words[1]) }).collect();
            out.push(Taken { ticks: place.words[1].load(Relaxed), record, text });
            at += units;
        }
        self.written.store(at as u32, Relaxed);
        if at == PLACES && self.state.load(Acquire) == FULL {
            self.places.iter().for_each(|place| place.head.store(0, Relaxed));
            self.written.store(0, Relaxed);
            self.state.store(FREE, Release); // ORDERING: the reset to `install`
        }
    }
}

/// An event of a thread that is no M.
pub(super) struct Taken {
    pub(super) ticks: u64,
    pub(super) record: Record,
    pub(super) text: Vec<Record>,
}

/// Takes all events that are there. By the writer.
pub(super) fn drain() -> Vec<Taken> {
    let mut all = Vec::new();
    POOL.iter().for_each(|buffer| buffer.drain(&mut all));
    all.sort_by_key(|taken| taken.ticks);
    all
}
