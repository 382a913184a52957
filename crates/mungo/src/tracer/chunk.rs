//! Chunks of memory for records, and the pool of those without use.
//!
//! | state  | owner                                                     |
//! |--------|-----------------------------------------------------------|
//! | Free   | the pool's list                                           |
//! | Active | a lane, which appends; the writer reads what is committed |
//! | Sealed | the writer, which frees it                                |
//! | Shared | all threads that are no Ms: `outside.rs`                  |
//! | Full   | the writer, once all of its places are committed          |
//!
//! Chunks are made by the writer's thread, or by the one that starts it, and never freed.

use mungo_trace::format::Record;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Records in a chunk: 32 KiB with its header. TUNED: guess; a chunk lasts 250 µs at the highest rates.
pub(super) const RECORDS: usize = 2040;
/// The most chunks: half a gigabyte, should there be that many threads.
const MAX_CHUNKS: usize = 16_384;

const FREE: u32 = 0;
const ACTIVE: u32 = 1;
const SEALED: u32 = 2;
const SHARED: u32 = 3;
const FULL: u32 = 4;

/// The places for events of threads that are no Ms, of three words each.
pub(super) const PLACES: usize = 2 * RECORDS / 3;

/// A piece of memory with records. See the module for its owner.
#[repr(C, align(64))]
pub(super) struct Chunk {
    state: AtomicU32,
    index: AtomicU32,
    /// Next in the list of free ones, as its index and 1; 0: none.
    next: AtomicU32,
    /// Number of records that are committed. Lane.
    len: AtomicU32,
    /// The runtime and the M that it belongs to. Lane, before it is active.
    runtime: AtomicU32,
    m: AtomicU32,
    /// The thread of the M, as the kernel numbers it.
    tid: AtomicU32,
    /// The order in which chunks became active.
    pub(super) serial: AtomicU64,
    /// The goroutine that runs, and the base, at record `written`. The lane's until it is active, then the writer's.
    pub(super) running: AtomicU64,
    pub(super) base: AtomicU64,
    /// Number of records that were passed on. Writer.
    pub(super) written: AtomicU32,
    /// Places that were taken while it was shared, and tries after that. Stays above [`PLACES`] from then on, until it
    /// is shared again: a thread may come late, whatever the chunk is used for by then.
    pub(super) taken: AtomicU64,
    words: [[AtomicU64; 2]; RECORDS],
}

static CHUNKS: [OnceLock<&'static Chunk>; MAX_CHUNKS] = [const { OnceLock::new() }; MAX_CHUNKS];
/// Number of chunks that exist. Written under the writer's lock.
static MADE: AtomicU32 = AtomicU32::new(0);
/// The first free chunk, as its index and 1, and in the upper half a number that changes with each removal.
static FREE_LIST: AtomicU64 = AtomicU64::new(0);
static SERIALS: AtomicU64 = AtomicU64::new(0);

/// The thread of an M.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Thread {
    pub(super) runtime: u32,
    pub(super) m: u32,
    /// As the kernel numbers it.
    pub(super) tid: u32,
}

impl Chunk {
    /// Returns whose it is.
    pub(super) fn thread(&self) -> Thread {
        let [runtime, m, tid] = [&self.runtime, &self.m, &self.tid].map(|number| number.load(Relaxed));
        Thread { runtime, m, tid }
    }

    /// Writes a record at `at`. By the lane, which commits it.
    #[inline(always)]
    pub(super) fn write(&self, at: usize, record: Record) {
        self.words[at][0].store(record.head, Relaxed);
        self.words[at][1].store(record.body, Relaxed);
    }

    #[inline(always)]
    pub(super) fn commit(&self, len: usize) {
        // ORDERING: Release the records to the writer's `committed`.
        self.len.store(len as u32, Release);
    }

    pub(super) fn committed(&self) -> usize {
        // ORDERING: Acquire the records of the lane's `commit`.
        self.len.load(Acquire) as usize
    }

    pub(super) fn read(&self, at: usize) -> Record {
        Record { head: self.words[at][0].load(Relaxed), body: self.words[at][1].load(Relaxed) }
    }

    /// Passes it to the writer. By the lane.
    pub(super) fn seal(&self) {
        self.state.store(SEALED, Release); // ORDERING: after the last commit
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.state.load(Acquire) == SEALED // ORDERING: as above
    }

    /// Takes a chunk from the pool and makes it active. Safe in a signal handler.
    pub(super) fn take(of: Thread, running: u64, base: u64) -> Option<&'static Chunk> {
        let chunk = pop()?;
        chunk.len.store(0, Relaxed);
        chunk.written.store(0, Relaxed);
        chunk.runtime.store(of.runtime, Relaxed);
        chunk.m.store(of.m, Relaxed);
        chunk.tid.store(of.tid, Relaxed);
        chunk.running.store(running, Relaxed);
        chunk.base.store(base, Relaxed);
        chunk.serial.store(SERIALS.fetch_add(1, Relaxed), Relaxed);
        chunk.state.store(ACTIVE, Release); // ORDERING: the fields above to `each_in_use`
        Some(chunk)
    }

    /// Takes a chunk from the pool for threads that are no Ms, with no place taken. Safe in a signal handler.
    pub(super) fn take_shared() -> Option<&'static Chunk> {
        let chunk = pop()?;
        chunk.written.store(0, Relaxed);
        (0..PLACES).for_each(|at| chunk.place(at)[0].store(0, Relaxed));
        chunk.serial.store(SERIALS.fetch_add(1, Relaxed), Relaxed);
        chunk.state.store(SHARED, Release); // ORDERING: the zeros to `each_shared`
        chunk.taken.store(0, Release); // ORDERING: the zeros to threads that take a place
        Some(chunk)
    }

    /// Returns the words of a place, of a chunk that is shared.
    pub(super) fn place(&self, at: usize) -> &[AtomicU64; 3] {
        &self.words.as_flattened().as_chunks().0[at]
    }

    /// Ends the taking of places, when all of them were taken.
    pub(super) fn fill_up(&self) {
        self.state.store(FULL, Release); // ORDERING: after the marks of unused places, to `is_full`
    }

    pub(super) fn is_full(&self) -> bool {
        self.state.load(Acquire) == FULL // ORDERING: as above
    }

    /// Returns its number.
    pub(super) fn index(&self) -> u32 {
        self.index.load(Relaxed)
    }

    /// Gives it back. By the writer, or by the thread that took it and did not use it.
    pub(super) fn free(&'static self) {
        self.state.store(FREE, Relaxed);
        push(self);
    }
}

/// Returns the chunk with this number.
pub(super) fn chunk(index: u32) -> Option<&'static Chunk> {
    CHUNKS.get(index as usize)?.get().copied()
}

fn pop() -> Option<&'static Chunk> {
    // ORDERING: Acquire what the thread that pushed it wrote, `next` above all.
    let mut head = FREE_LIST.load(Acquire);
    loop {
        let first = chunk((head as u32).checked_sub(1)?)?;
        let tag = (head >> 32).wrapping_add(1) << 32;
        let rest = tag | u64::from(first.next.load(Relaxed));
        match FREE_LIST.compare_exchange_weak(head, rest, AcqRel, Acquire) {
            Ok(_) => return Some(first),
            Err(now) => head = now,
        }
    }
}

fn push(chunk: &'static Chunk) {
    let index = u64::from(chunk.index.load(Relaxed));
    let mut head = FREE_LIST.load(Relaxed);
    loop {
        chunk.next.store(head as u32, Relaxed);
        let first = head >> 32 << 32 | (index + 1);
        // ORDERING: Release `next` to `pop`.
        match FREE_LIST.compare_exchange_weak(head, first, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Passes all chunks that are active or sealed to `f`. By the writer.
pub(super) fn each_in_use(f: impl FnMut(&'static Chunk)) {
    each(|state| matches!(state, ACTIVE | SEALED), f);
}

/// Passes all chunks that are shared, or were, to `f`. By the writer.
pub(super) fn each_shared(f: impl FnMut(&'static Chunk)) {
    each(|state| matches!(state, SHARED | FULL), f);
}

fn each(is_wanted: impl Fn(u32) -> bool, mut f: impl FnMut(&'static Chunk)) {
    for index in 0..MADE.load(Relaxed) {
        // ORDERING: Acquire what is in it by `take` and `take_shared`.
        if let Some(chunk) = chunk(index).filter(|chunk| is_wanted(chunk.state.load(Acquire))) {
            f(chunk);
        }
    }
}

/// Returns the number of chunks that exist.
pub(super) fn made() -> usize {
    MADE.load(Relaxed) as usize
}

/// Makes chunks until there are `n`, or as many as there may be. By the holder of the writer's lock.
pub(super) fn make_up_to(n: usize) {
    for (index, place) in CHUNKS.iter().enumerate().take(n).skip(made()) {
        // SAFETY: atomics, for which zeros are fine.
        let chunk: &'static Chunk = Box::leak(unsafe { Box::<Chunk>::new_zeroed().assume_init() });
        chunk.index.store(index as u32, Relaxed);
        if place.set(chunk).is_err() {
            return; // the lock was not held
        }
        MADE.store(index as u32 + 1, Relaxed);
        push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_has_one_owner_at_a_time() {
        const THREADS: usize = 4;
        let _alone = super::super::tests::alone();
        let before = made();
        make_up_to(before + 3); // fewer than threads
        std::thread::scope(|scope| {
            for m in 0..THREADS as u32 {
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 20 } else { 20_000 } {
                        let Some(chunk) = Chunk::take(Thread { runtime: 1_000_000, m, tid: 0 }, round, 0)
                        else {
                            continue;
                        };
                        chunk.write(0, Record { head: round, body: u64::from(m) });
                        chunk.commit(1);
                        assert_eq!(chunk.read(0), Record { head: round, body: u64::from(m) });
                        assert_eq!((chunk.m.load(Relaxed), chunk.running.load(Relaxed)), (m, round));
                        chunk.free();
                    }
                });
            }
        });
    }
}
