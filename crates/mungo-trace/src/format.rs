//! The bytes of a trace. `docs/trace.md` says the same in prose.
//!
//! A file is a header and then blocks. A block is a header and a payload whose length is a multiple of 16 bytes. All
//! numbers are little-endian. Times are ticks of a clock of the writer's; blocks of the kind [`SYNC`] say what they are
//! in nanoseconds.

use crate::event::{Cause, How, Queue};
use crate::stack::{Part, StackEnd};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"MUNGOTRC";
/// The version of the format that this crate writes, and the last one that it reads. Version 1 had no hand-overs and no
/// objects, version 2 no holders of locks and no times without a CPU, version 3 no stacks; else they are the same.
pub const VERSION: u32 = 4;
/// Bytes of the file's header.
pub const FILE_HEADER: usize = 32;
/// Bytes of a block's header.
pub const BLOCK_HEADER: usize = 32;
/// The most bytes in the payload of a block: more is not believed.
pub const MAX_PAYLOAD: u32 = 16 << 20;
/// Bytes of a record.
pub const RECORD: usize = 16;

/// A block of records of one M, or of threads that are none.
pub const EVENTS: u32 = 1;
/// A block with the names of wait reasons.
pub const REASONS: u32 = 2;
/// A block with places in the source.
pub const PLACES: u32 = 3;
/// A block with a time by two clocks.
pub const SYNC: u32 = 4;
/// A block with stacks: for each number its return addresses.
pub const STACKS: u32 = 5;
/// A block with the functions at return addresses.
pub const FUNCTIONS: u32 = 6;

/// `Sync::flags`: the trace ends here, as it was meant to.
pub const LAST: u64 = 1;

/// A bit of a record's kind: as many units of 16 bytes follow as its argument says, with a text.
pub const HAS_TEXT: u8 = 0x80;
/// The most bytes of a text in a record.
pub const MAX_TEXT: usize = 63 * RECORD;

/// The kinds of records.
#[allow(missing_docs)] // `docs/trace.md` has the table
pub mod kind {
    pub const BASE: u8 = 1;
    pub const RUNNING: u8 = 2;
    pub const CREATED: u8 = 3;
    pub const READY: u8 = 4;
    pub const START: u8 = 5;
    pub const STOP: u8 = 6;
    pub const PROC_GAINED: u8 = 7;
    pub const PROC_LOST: u8 = 8;
    pub const PROC_IDLE: u8 = 9;
    pub const BLOCKED_FOUND: u8 = 10;
    pub const POLL: u8 = 11;
    pub const TIMERS_RUN: u8 = 12;
    pub const STEAL: u8 = 13;
    pub const THREAD_STARTED: u8 = 14;
    pub const DROPPED: u8 = 15;
    pub const TAKEN: u8 = 16;
    pub const TASK_END: u8 = 17;
    pub const REGION_END: u8 = 18;
    pub const SWITCH_NEXT: u8 = 19;
    pub const SWITCH_RING: u8 = 20;
    pub const EXISTED: u8 = 21;
    pub const HELD_BY: u8 = 22;
    pub const NO_CPU: u8 = 23;
    pub const STACK: u8 = 24;
    pub const TASK_BEGIN: u8 = super::HAS_TEXT | 1;
    pub const REGION_BEGIN: u8 = super::HAS_TEXT | 2;
    pub const LOG: u8 = super::HAS_TEXT | 3;
    pub const NAMED: u8 = super::HAS_TEXT | 4;
    pub const POLICY_CHANGED: u8 = super::HAS_TEXT | 5;
    pub const POLICY_IN_FORCE: u8 = super::HAS_TEXT | 6;
}

/// The arguments of a record of the kind `STOP`.
#[allow(missing_docs)]
pub mod stop {
    pub const YIELDED: u8 = 0;
    pub const PARKED: u8 = 1;
    pub const PREEMPTED: u8 = 2;
    pub const ENDED: u8 = 3;
    pub const BLOCKED: u8 = 4;
}

/// No P, in a record.
pub const NO_P: u16 = u16::MAX;

/// A record: two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// From the low bits on: 32 bits ticks since the base, 8 bits kind, 8 bits argument, 16 bits P; in blocks of
    /// threads that are no Ms the runtime in place of the P.
    pub head: u64,
    /// What depends on the kind.
    pub body: u64,
}

impl Record {
    /// Puts a record together.
    #[inline]
    pub const fn new(ticks: u32, kind: u8, argument: u8, p: u16, body: u64) -> Record {
        let head = ticks as u64 | (kind as u64) << 32 | (argument as u64) << 40 | (p as u64) << 48;
        Record { head, body }
    }

    /// Returns the record with these bytes.
    #[inline]
    pub const fn from_bytes(bytes: [u8; RECORD]) -> Record {
        let both = u128::from_le_bytes(bytes);
        Record { head: both as u64, body: (both >> 64) as u64 }
    }

    /// Returns the bytes of the record.
    #[inline]
    pub const fn to_bytes(self) -> [u8; RECORD] {
        (self.head as u128 | (self.body as u128) << 64).to_le_bytes()
    }

    /// Returns a record of this kind at that time; its own is 0.
    #[inline]
    pub const fn at(self, ticks: u32) -> Record {
        Record { head: self.head | ticks as u64, body: self.body }
    }

    /// Returns the ticks since the base.
    pub const fn ticks(self) -> u32 {
        self.head as u32
    }

    /// Returns the kind.
    pub const fn kind(self) -> u8 {
        (self.head >> 32) as u8
    }

    /// Returns the argument.
    pub const fn argument(self) -> u8 {
        (self.head >> 40) as u8
    }

    /// Returns the P, [`NO_P`] or the runtime.
    pub const fn p(self) -> u16 {
        (self.head >> 48) as u16
    }

    /// Returns the number of units of 16 bytes that follow.
    pub const fn text_units(self) -> usize {
        if self.kind() & HAS_TEXT != 0 { self.argument() as usize } else { 0 }
    }

    /// Returns whether it stands for two events: a stop, and a start at the same moment.
    pub const fn is_switch(self) -> bool {
        matches!(self.kind(), kind::SWITCH_NEXT | kind::SWITCH_RING)
    }

    /// Returns whether a [`STACK`](kind::STACK) before it is its own.
    pub const fn takes_stack(self) -> bool {
        matches!(self.kind(), kind::CREATED | kind::STOP | kind::SWITCH_NEXT | kind::SWITCH_RING)
    }

    /// Returns the number of events that it stands for.
    pub const fn events(self) -> u64 {
        match self.kind() {
            kind::BASE | kind::RUNNING | kind::STACK => 0,
            kind::SWITCH_NEXT | kind::SWITCH_RING => 2,
            _ => 1,
        }
    }

    /// Returns the goroutine that a switch starts, if `stopped` is the one that it stops.
    pub const fn switched_to(self, stopped: u64) -> u64 {
        stopped & !0xFFFF_FFFF | self.body & 0xFFFF_FFFF
    }

    /// Makes one record of a stop of a goroutine that parked, and a start right after it, at the same moment. `None` if
    /// they do not fit.
    #[inline]
    pub fn switch(stopped: u64, stop: Record, started: u64, next: bool) -> Option<Record> {
        let kind = if next { kind::SWITCH_NEXT } else { kind::SWITCH_RING };
        let body = started & 0xFFFF_FFFF | stop.body << 32;
        let fits = stop.argument() == stop::PARKED
            && stopped >> 32 == started >> 32
            && stop.low() >> 32 == 0
            && stop.high() <= u8::MAX as u16;
        fits.then(|| Record::new(0, kind, stop.high() as u8, stop.p(), body))
    }

    /// Returns the low 48 bits of the body: a goroutine, or an object.
    pub const fn low(self) -> u64 {
        self.body & LOW
    }

    /// Returns the high 16 bits of the body.
    pub const fn high(self) -> u16 {
        (self.body >> 48) as u16
    }
}

const LOW: u64 = (1 << 48) - 1;

/// Returns a body of 48 and 16 bits.
#[inline]
pub const fn body(low: u64, high: u16) -> u64 {
    low & LOW | (high as u64) << 48
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// [`EVENTS`], [`REASONS`], [`PLACES`], [`SYNC`], [`STACKS`] or [`FUNCTIONS`]. Others are to be passed over.
    pub kind: u32,
    /// Bytes of the payload.
    pub len: u32,
    /// Events: the runtime; 0 in blocks of threads that are no Ms.
    pub runtime: u32,
    /// Events: the M, or [`Event::OUTSIDE`](crate::Event::OUTSIDE).
    pub m: u32,
    /// Events: the goroutine that runs on the M when the block begins; 0: none.
    pub running: u64,
    /// Events: the time that the first records count from, in ticks.
    pub base: u64,
}

impl Block {
    /// Returns the bytes of the header.
    pub fn to_bytes(self) -> [u8; BLOCK_HEADER] {
        let mut bytes = [0; BLOCK_HEADER];
        for (at, word) in [self.kind, self.len, self.runtime, self.m].into_iter().enumerate() {
            bytes[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.running.to_le_bytes());
        bytes[24..].copy_from_slice(&self.base.to_le_bytes());
        bytes
    }

    /// Returns the header with these bytes.
    pub fn from_bytes(bytes: &[u8; BLOCK_HEADER]) -> Block {
        Block {
            kind: u32_at(bytes, 0),
            len: u32_at(bytes, 4),
            runtime: u32_at(bytes, 8),
            m: u32_at(bytes, 12),
            running: u64_at(bytes, 16),
            base: u64_at(bytes, 24),
        }
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// The process.
    pub pid: u32,
    /// The time when the trace began, in ns since 1970.
    pub wall_ns: u64,
    /// Ticks in a second, about: for the end of a file that has no [`SYNC`] after it.
    pub ticks_per_second: u64,
}

impl Header {
    /// Returns the bytes of the header.
    pub fn to_bytes(self) -> [u8; FILE_HEADER] {
        let mut bytes = [0; FILE_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.pid.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.wall_ns.to_le_bytes());
        bytes[24..].copy_from_slice(&self.ticks_per_second.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; FILE_HEADER]) -> Header {
        Header {
            version: u32_at(bytes, 8),
            pid: u32_at(bytes, 12),
            wall_ns: u64_at(bytes, 16),
            ticks_per_second: u64_at(bytes, 24),
        }
    }
}

/// The payload of a block of the kind [`SYNC`]. All events with fewer ticks come before it in the file, but for those
/// of a thread that had no CPU just then; they come soon after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The ticks at this moment.
    pub ticks: u64,
    /// The ns since the trace began at this moment.
    pub time_ns: u64,
    /// Events that could not be kept so far.
    pub dropped: u64,
    /// [`LAST`], or 0.
    pub flags: u64,
}

impl Sync {
    /// Bytes of the payload.
    pub const LEN: usize = 32;

    /// Returns the block, its header included.
    pub fn to_bytes(self) -> [u8; BLOCK_HEADER + Sync::LEN] {
        let header = Block { kind: SYNC, len: Sync::LEN as u32, runtime: 0, m: 0, running: 0, base: 0 };
        let mut bytes = [0; BLOCK_HEADER + Sync::LEN];
        bytes[..BLOCK_HEADER].copy_from_slice(&header.to_bytes());
        for (at, word) in [self.ticks, self.time_ns, self.dropped, self.flags].into_iter().enumerate() {
            bytes[BLOCK_HEADER + at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_payload(bytes: &[u8]) -> Option<Sync> {
        (bytes.len() >= Sync::LEN).then(|| Sync {
            ticks: u64_at(bytes, 0),
            time_ns: u64_at(bytes, 8),
            dropped: u64_at(bytes, 16),
            flags: u64_at(bytes, 24),
        })
    }
}

/// Appends a block of the kind [`REASONS`].
pub fn put_reasons<'a>(out: &mut Vec<u8>, reasons: impl Iterator<Item = (u8, &'a str)>) {
    put_entries(out, REASONS, reasons.map(|(number, name)| ([u32::from(number), 0, 0], name)));
}

/// Appends a block of the kind [`PLACES`]: numbers, lines, columns and files.
pub fn put_places<'a>(out: &mut Vec<u8>, places: impl Iterator<Item = (u16, u32, u32, &'a str)>) {
    put_entries(
        out,
        PLACES,
        places.map(|(number, line, column, file)| ([u32::from(number), line, column], file)),
    );
}

/// Appends one entry of a block of the kind [`STACKS`]: its number, how it ends, and its return addresses, the
/// innermost first.
pub fn put_stack(out: &mut Vec<u8>, number: u32, end: StackEnd, addresses: impl Iterator<Item = u64>) {
    let begin = out.len();
    out.extend([0; RECORD]);
    addresses.for_each(|address| out.extend(address.to_le_bytes()));
    let count = (out.len() - begin - RECORD) / 8;
    for (at, number) in [number, u32::from(end.code()), 0, count as u32].into_iter().enumerate() {
        out[begin + at * 4..][..4].copy_from_slice(&number.to_le_bytes());
    }
    out.resize(begin + (out.len() - begin).next_multiple_of(RECORD), 0);
}

/// Passes the stacks of a block to `f`. Stops where they make no sense.
pub(crate) fn each_stack(mut payload: &[u8], mut f: impl FnMut(u32, StackEnd, Vec<u64>)) {
    while payload.len() >= RECORD {
        let [number, end, _, count] = [0, 4, 8, 12].map(|at| u32_at(payload, at));
        let len = (count as usize).saturating_mul(8);
        let Some(addresses) = payload.get(RECORD..RECORD.saturating_add(len)) else { return };
        let addresses = addresses.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        f(number, StackEnd::from_code(end as u8).unwrap_or(StackEnd::Lost), addresses);
        let next = RECORD + len.next_multiple_of(RECORD);
        payload = payload.get(next..).unwrap_or_default();
    }
}

/// A function at a return address, for a block of the kind [`FUNCTIONS`].
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// The return address, of 48 bits.
    pub address: u64,
    /// The part of the program that it belongs to.
    pub part: Part,
    /// Its name, without a zero.
    pub name: &'a str,
    /// The file of the call; empty: not known.
    pub file: &'a str,
    /// The line of the call; 0: not known.
    pub line: u32,
}

/// Appends one entry of a block of the kind [`FUNCTIONS`]. Several at one address, one after the other, were inlined,
/// the innermost first.
pub fn put_function(out: &mut Vec<u8>, function: Function<'_>) {
    let Function { address, part, name, file, line } = function;
    let high = (address >> 32) as u32 & 0xFFFF | u32::from(part.code()) << 16;
    let text = if file.is_empty() { name.to_owned() } else { format!("{name}\0{file}") };
    put_entry(out, [address as u32, high, line], &text);
}

/// Passes the functions of a block to `f`.
pub(crate) fn each_function(payload: &[u8], mut f: impl FnMut(Function<'_>)) {
    each_entry(payload, |[low, high, line], text| {
        let (name, file) = text.split_once('\0').unwrap_or((text, ""));
        let address = u64::from(low) | u64::from(high & 0xFFFF) << 32;
        let part = Part::from_code((high >> 16) as u8).unwrap_or(Part::Program);
        f(Function { address, part, name, file, line });
    });
}

/// Appends a block: its header, and the payload that `put` appends.
pub fn put_block(out: &mut Vec<u8>, kind: u32, put: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend([0; BLOCK_HEADER]);
    put(out);
    let len = (out.len() - begin - BLOCK_HEADER) as u32;
    let header = Block { kind, len, runtime: 0, m: 0, running: 0, base: 0 };
    out[begin..][..BLOCK_HEADER].copy_from_slice(&header.to_bytes());
}

/// Appends entries of three numbers and a text: the numbers, the text's length, the text, and zeros up to the next
/// multiple of 16 bytes.
fn put_entries<'a>(out: &mut Vec<u8>, kind: u32, entries: impl Iterator<Item = ([u32; 3], &'a str)>) {
    put_block(out, kind, |out| entries.for_each(|(numbers, text)| put_entry(out, numbers, text)));
}

fn put_entry(out: &mut Vec<u8>, numbers: [u32; 3], text: &str) {
    let begin = out.len();
    for number in numbers.into_iter().chain([text.len() as u32]) {
        out.extend(number.to_le_bytes());
    }
    out.extend(text.as_bytes());
    out.resize(begin + (out.len() - begin).next_multiple_of(RECORD), 0);
}

/// Passes the entries of a block of [`REASONS`], [`PLACES`] or [`FUNCTIONS`] to `f`. Stops where they make no sense.
pub(crate) fn each_entry(mut payload: &[u8], mut f: impl FnMut([u32; 3], &str)) {
    while payload.len() >= RECORD {
        let numbers = [0, 4, 8].map(|at| u32_at(payload, at));
        let len = u32_at(payload, 12) as usize;
        let Some(text) = payload.get(RECORD..RECORD.saturating_add(len)) else { return };
        f(numbers, &String::from_utf8_lossy(text));
        let next = RECORD + len.next_multiple_of(RECORD);
        payload = payload.get(next..).unwrap_or_default();
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Numbers of the variants of an enum, in the file.
macro_rules! codes {
    ($name:ident: $($variant:ident),+) => {
        impl $name {
            /// All of them, in the order of their numbers in the file.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// Returns its number in the file.
            #[inline]
            pub const fn code(self) -> u8 {
                self as u8
            }

            pub(crate) fn from_code(code: u8) -> Option<$name> {
                $name::ALL.get(usize::from(code)).copied()
            }
        }
    };
}

codes!(Cause: Spawned, Woken, Timer, Network, Outside, Unblocked, Yielded, Preempted, Moved);
codes!(Queue: Next, Ring, Global, Computing, Stolen, Policy, Timer, Network, Bound, None, Thread);
codes!(How: Injected, ByThread, Asked, Taken);
codes!(StackEnd: Whole, Cut, Lost, Foreign);
codes!(Part: Program, Scheduler, Begin, Closure);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_variant_is_its_place_in_the_list() {
        assert!(Cause::ALL.iter().enumerate().all(|(at, cause)| usize::from(cause.code()) == at));
        assert!(Queue::ALL.iter().enumerate().all(|(at, queue)| usize::from(queue.code()) == at));
        assert!(How::ALL.iter().enumerate().all(|(at, how)| usize::from(how.code()) == at));
        assert_eq!(Queue::from_code(200), None);
    }

    #[test]
    fn a_record_gives_back_what_was_put_in() {
        let record = Record::new(7, kind::READY, 0x21, 5, body(1 << 40, 300));
        assert_eq!((record.ticks(), record.kind(), record.argument(), record.p()), (7, kind::READY, 0x21, 5));
        assert_eq!((record.low(), record.high(), record.text_units()), (1 << 40, 300, 0));
        assert_eq!(Record::new(0, kind::LOG, 3, NO_P, 0).text_units(), 3);
    }

    #[test]
    fn a_switch_is_a_stop_and_a_start() {
        let high = 5 << 32;
        let parked = |object| Record::new(0, kind::STOP, stop::PARKED, 3, body(object, 7));
        let both = Record::switch(high | 1, parked(0xABCD_EF01), high | 9, true).unwrap();
        assert_eq!((both.kind(), both.argument(), both.p()), (kind::SWITCH_NEXT, 7, 3));
        assert_eq!((both.switched_to(high | 1), both.body >> 32), (high | 9, 0xABCD_EF01));
        assert!(both.is_switch() && both.events() == 2);
        assert_eq!(Record::switch(1, parked(0), 2, false).map(Record::kind), Some(kind::SWITCH_RING));
        assert_eq!(Record::switch(1, parked(0), high, true), None, "the numbers are too far apart");
        assert_eq!(Record::switch(1, parked(1 << 32), 2, true), None, "the object does not fit");
        let yielded = Record::new(0, kind::STOP, stop::YIELDED, 3, 0);
        assert_eq!(Record::switch(1, yielded, 2, true), None);
    }

    #[test]
    fn entries_come_back_and_end_where_they_are_cut() {
        let mut out = Vec::new();
        put_places(&mut out, [(1, 10, 5, "src/main.rs"), (9, 1, 1, "a file with a long name.rs")].into_iter());
        let header = Block::from_bytes(out[..BLOCK_HEADER].try_into().unwrap());
        assert_eq!((header.kind, header.len as usize), (PLACES, out.len() - BLOCK_HEADER));
        let read = |payload: &[u8]| {
            let mut all = Vec::new();
            each_entry(payload, |numbers, text| all.push((numbers, text.to_owned())));
            all
        };
        let all = read(&out[BLOCK_HEADER..]);
        assert_eq!(all[0], ([1, 10, 5], "src/main.rs".to_owned()));
        assert_eq!(all[1], ([9, 1, 1], "a file with a long name.rs".to_owned()));
        assert_eq!(read(&out[BLOCK_HEADER..out.len() - 16]).len(), 1);
    }
}
