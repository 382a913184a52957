//! Chunks to blocks. By the writer.

use super::chunk::{self, Chunk, Thread};
use super::no_cpu::NoCpu;
use super::outside;
use mungo_trace::Event;
use mungo_trace::format::{BLOCK_HEADER, Block, EVENTS, RECORD, Record, kind};
use std::sync::atomic::Ordering::Relaxed;

/// Most bytes in a block of threads that are no Ms, but for one event.
const BLOCK: usize = 1 << 20;

/// What a round took out of the chunks.
#[derive(Default)]
pub(super) struct Round {
    /// Blocks.
    pub(super) bytes: Vec<u8>,
    /// Records that stand for events.
    pub(super) events: u64,
    /// Events that are missing by what the records say, and the number of these records.
    pub(super) missing: u64,
    pub(super) tellers: u64,
    /// Whether there are stacks among them.
    pub(super) has_stacks: bool,
    /// Chunks that lanes have.
    pub(super) active: usize,
    /// Chunks that were full.
    pub(super) freed: usize,
    pub(super) no_cpu: NoCpu,
}

impl Round {
    pub(super) const fn new() -> Round {
        Round {
            bytes: Vec::new(),
            events: 0,
            missing: 0,
            tellers: 0,
            has_stacks: false,
            active: 0,
            freed: 0,
            no_cpu: NoCpu::new(),
        }
    }

    /// Takes what was committed since the last round. `now`: a moment before it, in ticks and ns.
    pub(super) fn take(&mut self, now: (u64, u64)) {
        self.bytes.clear();
        (self.events, self.missing, self.tellers) = (0, 0, 0);
        self.has_stacks = false;
        let mut chunks = Vec::new();
        chunk::each_in_use(|chunk| chunks.push(chunk));
        chunks.sort_by_key(|chunk| chunk.serial.load(Relaxed));
        self.active = chunks.len();
        self.freed = 0;
        let mut threads: Vec<Thread> = Vec::new();
        for chunk in chunks {
            let sealed = chunk.is_sealed(); // first: what is committed after it is for the next round
            self.take_chunk(chunk);
            if sealed {
                self.active -= 1;
                self.freed += 1;
                chunk.free();
            } else {
                threads.push(chunk.thread());
            }
        }
        self.take_outside(now.0);
        self.events += self.no_cpu.look(&threads, now, &mut self.bytes);
    }

    fn take_chunk(&mut self, chunk: &Chunk) {
        let (from, to) = (chunk.written.load(Relaxed) as usize, chunk.committed());
        if from >= to {
            return;
        }
        let (mut running, mut base) = (chunk.running.load(Relaxed), chunk.base.load(Relaxed));
        let Thread { runtime, m, .. } = chunk.thread();
        let header = Block { kind: EVENTS, len: ((to - from) * RECORD) as u32, runtime, m, running, base };
        self.bytes.extend(header.to_bytes());
        let mut text = 0;
        let begin = self.bytes.len();
        self.bytes.resize(begin + (to - from) * RECORD, 0);
        for (at, out) in (from..to).zip(self.bytes[begin..].as_chunks_mut::<RECORD>().0) {
            let record = chunk.read(at);
            *out = record.to_bytes();
            if text != 0 {
                text -= 1;
                continue;
            }
            text = record.text_units();
            self.events += record.events();
            match record.kind() {
                kind::BASE => base = record.body,
                kind::RUNNING | kind::START => running = record.low(),
                kind::STOP => running = 0,
                kind::STACK => self.has_stacks = true,
                kind::DROPPED => {
                    self.missing += record.body;
                    self.tellers += 1;
                }
                kind::SWITCH_NEXT | kind::SWITCH_RING => running = record.switched_to(running),
                _ => {}
            }
        }
        chunk.running.store(running, Relaxed);
        chunk.base.store(base, Relaxed);
        chunk.written.store(to as u32, Relaxed);
    }

    /// Returns the blocks without stacks, for those who did not ask for them.
    pub(super) fn without_stacks(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len());
        for (block, payload) in blocks(&self.bytes) {
            let begin = out.len();
            out.extend(block.to_bytes());
            match block.kind {
                EVENTS => put_without_stacks(&mut out, payload.as_chunks::<RECORD>().0),
                _ => out.extend(payload),
            }
            let len = (out.len() - begin - BLOCK_HEADER) as u32;
            out[begin..][..BLOCK_HEADER].copy_from_slice(&Block { len, ..block }.to_bytes());
        }
        out
    }

    /// Appends blocks with the events of threads that are no Ms.
    fn take_outside(&mut self, now: u64) {
        let outside::Drained { events, lost, active, freed } = outside::drain(now);
        self.missing += lost;
        self.tellers += u64::from(lost != 0);
        self.active += active;
        self.freed += freed;
        self.events += events.len() as u64;
        let mut events = events.into_iter().peekable();
        while let Some(first) = events.peek() {
            let begin = self.bytes.len();
            let mut base = first.ticks;
            self.bytes.extend([0; BLOCK_HEADER]);
            let header = Block { kind: EVENTS, len: 0, runtime: 0, m: Event::OUTSIDE, running: 0, base };
            while let Some(event) = events.next_if(|_| self.bytes.len() - begin < BLOCK) {
                let since = u32::try_from(event.ticks - base).unwrap_or_else(|_| {
                    base = event.ticks;
                    self.push(Record::new(0, kind::BASE, 0, 0, base));
                    0
                });
                self.push(Record { head: event.record.head | u64::from(since), body: event.record.body });
                event.text.into_iter().for_each(|unit| self.push(unit));
            }
            let len = (self.bytes.len() - begin - BLOCK_HEADER) as u32;
            self.bytes[begin..][..BLOCK_HEADER].copy_from_slice(&Block { len, ..header }.to_bytes());
        }
    }

    fn push(&mut self, record: Record) {
        self.bytes.extend(record.to_bytes());
    }
}

/// Appends a block that says how many events are missing before `ticks`. Returns the number of its events.
pub(super) fn put_missing(out: &mut Vec<u8>, missing: u64, ticks: u64) -> u64 {
    let header =
        Block { kind: EVENTS, len: RECORD as u32, runtime: 0, m: Event::OUTSIDE, running: 0, base: ticks };
    out.extend(header.to_bytes());
    out.extend(Record::new(0, kind::DROPPED, 0, 0, missing).to_bytes());
    1
}

/// Appends the records of a block but for the numbers of stacks.
fn put_without_stacks(out: &mut Vec<u8>, records: &[[u8; RECORD]]) {
    let mut text = 0;
    for bytes in records {
        let record = Record::from_bytes(*bytes);
        if text == 0 && record.kind() == kind::STACK {
            continue;
        }
        text = if text == 0 { record.text_units() } else { text - 1 };
        out.extend(bytes);
    }
}

/// Goes through whole blocks: their headers and payloads.
pub(super) fn blocks(mut bytes: &[u8]) -> impl Iterator<Item = (Block, &[u8])> {
    std::iter::from_fn(move || {
        let (header, rest) = bytes.split_first_chunk::<BLOCK_HEADER>()?;
        let block = Block::from_bytes(header);
        let (payload, rest) = rest.split_at_checked(block.len as usize)?;
        bytes = rest;
        Some((block, payload))
    })
}
