//! An M's way to put events down.

use super::chunk::{Chunk, RECORDS, Thread};
use super::{DROPPED, STATE, clock, outside, writer};
use mungo_trace::Queue;
use mungo_trace::format::{HAS_TEXT, MAX_TEXT, RECORD, Record, kind};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The events of one M. All of it is the M's thread's: it is in the runtime when it calls, so neither another goroutine
/// nor the preemption handler comes in between. The fields are atomics because a lane is shared with the M.
#[derive(Debug)]
pub(crate) struct Lane {
    runtime: u32,
    m: u32,
    /// The M's thread, as the kernel numbers it.
    tid: AtomicU32,
    /// The session that the rest is of.
    session: AtomicU32,
    /// The number of records in `chunk`; [`RECORDS`]: there is no chunk, or no room.
    at: AtomicU32,
    chunk: AtomicPtr<Chunk>,
    base: AtomicU64,
    /// The goroutine that runs, by the records so far; 0: none.
    running: AtomicU64,
    /// The goroutine whose start was put down together with the stop before it, until it starts; else 0.
    switched: AtomicU64,
    /// Events that were not kept and not reported yet.
    dropped: AtomicU64,
    /// The goroutine that was found last in a queue that is not the P's own, and that queue.
    found: AtomicU64,
    found_in: AtomicU32,
    /// The time of the last stop, in ticks, if the M has not looked around since; else 0.
    stopped: AtomicU64,
}

impl Lane {
    pub(crate) fn new(runtime: u16, m: u32) -> Lane {
        Lane {
            runtime: u32::from(runtime),
            m,
            tid: AtomicU32::new(0),
            session: AtomicU32::new(0),
            at: AtomicU32::new(RECORDS as u32),
            chunk: AtomicPtr::new(null_mut()),
            base: AtomicU64::new(0),
            running: AtomicU64::new(0),
            switched: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            found: AtomicU64::new(0),
            found_in: AtomicU32::new(0),
            stopped: AtomicU64::new(0),
        }
    }

    /// Puts an event down, whose ticks are 0. `running` says which goroutine the M runs, for a lane that does not know
    /// yet.
    ///
    /// TUNED: the event comes as two words. A struct of kind, argument and P lay in memory, where its bytes were read
    /// back in larger pieces than they were written, for which the CPU waits: 4 ns an event. And all that is not the
    /// usual way is one call at the end, so that the usual one keeps everything in registers that need not be saved.
    #[inline(always)]
    pub(crate) fn put(&self, entry: Record, running: impl FnOnce() -> u64) {
        self.put_with(None, entry, running);
    }

    /// Does as [`put`](Self::put) for an event that has a stack, perhaps.
    #[inline(always)]
    pub(crate) fn put_with(&self, stack: Option<u32>, entry: Record, running: impl FnOnce() -> u64) {
        match self.room(stack) {
            Some((at, since)) if self.is_current() => self.write(at, stack, entry.at(since)),
            _ => self.put_now_slow(stack, entry, running()),
        }
    }

    #[cold]
    #[inline(never)]
    fn put_now_slow(&self, stack: Option<u32>, entry: Record, running: u64) {
        self.put_slow(clock::ticks(), stack, entry, &[], running);
    }

    #[inline]
    fn put_at(&self, ticks: u64, stack: Option<u32>, entry: Record, running: u64) {
        let at = self.at.load(Relaxed);
        let since = ticks.wrapping_sub(self.base.load(Relaxed));
        if at + units_of(stack) <= RECORDS as u32 && since <= u64::from(u32::MAX) && self.is_current() {
            self.write(at, stack, entry.at(since as u32));
        } else {
            self.put_slow(ticks, stack, entry, &[], running);
        }
    }

    /// Returns the place in the chunk for a record of now, with its stack, and the ticks since the base; `None`: there
    /// is no room, it needs a new base, or ticks are not the CPU's counter.
    #[inline(always)]
    fn room(&self, stack: Option<u32>) -> Option<(u32, u32)> {
        let at = self.at.load(Relaxed);
        let since = clock::counter()?.wrapping_sub(self.base.load(Relaxed));
        let fits = at + units_of(stack) <= RECORDS as u32;
        (fits && since <= u64::from(u32::MAX)).then_some((at, since as u32))
    }

    /// Returns whether what it knows is of the session that is on.
    #[inline(always)]
    fn is_current(&self) -> bool {
        self.session.load(Relaxed) == STATE.load(Relaxed)
    }

    /// Writes a record to the chunk, which has room at `at`. Its stack comes before it and is committed with it, so
    /// that they are in one block.
    #[inline(always)]
    fn write(&self, at: u32, stack: Option<u32>, record: Record) {
        // SAFETY: chunks are never freed, and there is one if there is room in it.
        let chunk = unsafe { &*self.chunk.load(Relaxed) };
        let next = at + units_of(stack);
        if let Some(stack) = stack {
            chunk.write(at as usize, stack_record(stack, record));
        }
        chunk.write(next as usize - 1, record);
        chunk.commit(next as usize);
        self.at.store(next, Relaxed);
    }

    /// Puts an event with a text down, which is cut off at [`MAX_TEXT`] bytes.
    pub(crate) fn put_text(&self, entry: Record, text: &str, running: u64) {
        let text = cut(text);
        let units = text.len().div_ceil(RECORD) as u8;
        let entry = Record::new(0, entry.kind() | HAS_TEXT, units, entry.p(), entry.body);
        self.put_slow(clock::ticks(), None, entry, text, running);
    }

    /// Puts down that the M starts to run `g`, which it found where it noted, or else `next` in line or in its ring;
    /// unless [`switch`](Self::switch) has done so.
    ///
    /// The time is that of the stop before, if the M had the next one at hand.
    #[inline(always)]
    pub(crate) fn start(&self, g: u64, p: impl FnOnce() -> u16, next: bool) {
        if self.switched.swap_plain(0) != g || !self.is_current() {
            self.start_alone(g, p(), next);
        }
    }

    #[cold]
    #[inline(never)]
    fn start_alone(&self, g: u64, p: u16, next: bool) {
        let found = self.take_found(g);
        let own = if next { Queue::Next } else { Queue::Ring };
        let entry = Record::new(0, kind::START, found.unwrap_or(own.code()), p, g);
        let ticks = match (if self.is_current() { self.stopped.load(Relaxed) } else { 0 }, found) {
            (0, None) => clock::ticks(),
            // The goroutine was made runnable by another thread; this start comes after that.
            (0, Some(_)) => clock::ticks_after_loads(),
            (stopped, _) => stopped,
        };
        self.put_at(ticks, None, entry, 0);
        self.stopped.store(0, Relaxed);
        self.running.store(g, Relaxed);
    }

    /// Puts down that the M stops to run `g`.
    pub(crate) fn stop(&self, g: u64, stack: Option<u32>, entry: Record) {
        let ticks = self.stop_ticks(g, entry);
        self.put_at(ticks, stack, entry, g);
        self.running.store(0, Relaxed);
        self.stopped.store(ticks, Relaxed);
    }

    /// Puts down that the M stops to run `g`, and starts to run `to`, which it found `next` in line or in its ring.
    ///
    /// TUNED: one record rather than two: `contestant pingpong_unbuf` writes a third less.
    #[inline(always)]
    pub(crate) fn switch(&self, g: u64, stack: Option<u32>, entry: Record, to: u64, next: bool) {
        let Some(both) = Record::switch(g, entry, to, next) else {
            return self.stop(g, stack, entry); // the start comes by itself
        };
        match self.room(stack) {
            Some((at, since)) if self.is_current() && self.running.load(Relaxed) == g => {
                self.write(at, stack, both.at(since));
                self.switched_to(to);
            }
            _ => self.switch_slow(g, stack, both, to),
        }
    }

    #[cold]
    #[inline(never)]
    fn switch_slow(&self, g: u64, stack: Option<u32>, both: Record, to: u64) {
        let ticks = self.stop_ticks(g, both);
        self.put_at(ticks, stack, both, g);
        self.switched_to(to);
    }

    #[inline(always)]
    fn switched_to(&self, g: u64) {
        self.switched.store(g, Relaxed);
        self.running.store(g, Relaxed);
        self.stopped.store(0, Relaxed);
    }

    /// Returns the time for a stop of `g`. Lets readers know that the M ran it, if they do not.
    #[inline]
    fn stop_ticks(&self, g: u64, entry: Record) -> u64 {
        let ticks = clock::ticks();
        if !self.is_current() || self.running.load(Relaxed) != g {
            self.put_at(ticks, None, Record::new(0, kind::RUNNING, 0, entry.p(), g), g);
            self.running.store(g, Relaxed);
        }
        ticks
    }

    /// Lets `f` put events down that the goroutine on its way to run did not cause.
    pub(crate) fn without_waker(&self, p: u16, f: impl FnOnce()) {
        let (g, session) = (self.running.swap_plain(0), self.session.load(Relaxed));
        self.put(Record::new(0, kind::RUNNING, 0, p, 0), || 0);
        f();
        if self.session.load(Relaxed) == session {
            self.put(Record::new(0, kind::RUNNING, 0, p, g), || g);
            self.running.store(g, Relaxed);
        }
    }

    /// Notes that the M looks around for a goroutine.
    #[inline]
    pub(crate) fn look_around(&self) {
        self.stopped.store(0, Relaxed);
    }

    /// Notes where `g` was found.
    pub(crate) fn note_found(&self, g: u64, queue: u8) {
        self.found_in.store(u32::from(queue), Relaxed);
        self.found.store(g, Relaxed);
    }

    /// Returns where `g` was found, if it was noted, and forgets it.
    fn take_found(&self, g: u64) -> Option<u8> {
        (self.found.swap_plain(0) == g).then(|| self.found_in.load(Relaxed) as u8)
    }

    /// Ends it with its thread.
    pub(crate) fn close(&self) {
        self.seal();
        if self.is_current() {
            outside::lose(self.dropped.swap_plain(0)); // it has no further record that could say so
        }
        self.session.store(0, Relaxed);
    }

    fn seal(&self) {
        // SAFETY: chunks are never freed.
        if let Some(chunk) = unsafe { self.chunk.load(Relaxed).as_ref() } {
            self.chunk.store(null_mut(), Relaxed);
            self.at.store(RECORDS as u32, Relaxed);
            chunk.seal();
            writer::note_sealed();
        }
    }

    #[cold]
    #[inline(never)]
    fn put_slow(&self, ticks: u64, stack: Option<u32>, entry: Record, text: &[u8], running: u64) {
        // ORDERING: SeqCst: see `set_on`.
        let session = STATE.load(SeqCst);
        if session == 0 {
            return; // it has just ended
        }
        if self.session.swap_plain(session) != session {
            self.seal();
            self.running.store(running, Relaxed);
            self.dropped.store(0, Relaxed);
            // SAFETY: no memory involved.
            self.tid.store(unsafe { libc::gettid() } as u32, Relaxed);
        }
        let units = units_of(stack) as usize + text.len().div_ceil(RECORD);
        // One more for the base, and one for the number of dropped events.
        if self.at.load(Relaxed) as usize + units + 1 > RECORDS {
            self.seal();
            let running = self.running.load(Relaxed);
            let me = Thread { runtime: self.runtime, m: self.m, tid: self.tid.load(Relaxed) };
            let Some(chunk) = Chunk::take(me, running, ticks) else {
                self.dropped.store(self.dropped.load(Relaxed) + entry.events(), Relaxed);
                DROPPED.fetch_add(entry.events(), Relaxed);
                return;
            };
            self.chunk.store(std::ptr::from_ref(chunk).cast_mut(), Relaxed);
            self.base.store(ticks, Relaxed);
            self.at.store(0, Relaxed);
            if let dropped @ 1.. = self.dropped.swap_plain(0) {
                self.append(Record::new(0, kind::DROPPED, 0, entry.p(), dropped), &[]);
            }
        }
        let since = ticks.saturating_sub(self.base.load(Relaxed));
        let since = u32::try_from(since).unwrap_or_else(|_| {
            self.append(Record::new(0, kind::BASE, 0, entry.p(), ticks), &[]);
            self.base.store(ticks, Relaxed);
            0
        });
        let at = self.at.load(Relaxed);
        match text.is_empty() {
            true => self.write(at, stack, entry.at(since)),
            false => self.append(entry.at(since), text),
        }
    }

    /// Appends a record and its text to the chunk, which has room.
    fn append(&self, record: Record, text: &[u8]) {
        // SAFETY: chunks are never freed; there is one.
        let chunk = unsafe { &*self.chunk.load(Relaxed) };
        let mut at = self.at.load(Relaxed) as usize;
        chunk.write(at, record);
        at += 1;
        for unit in text.chunks(RECORD) {
            chunk.write(at, text_unit(unit));
            at += 1;
        }
        chunk.commit(at);
        self.at.store(at as u32, Relaxed);
    }
}

/// Returns the number of records that an event takes.
#[inline(always)]
fn units_of(stack: Option<u32>) -> u32 {
    1 + u32::from(stack.is_some())
}

/// Returns the record with the stack of another record.
#[inline(always)]
fn stack_record(stack: u32, of: Record) -> Record {
    Record::new(of.ticks(), kind::STACK, 0, of.p(), u64::from(stack))
}

/// Returns the bytes of a text, at most [`MAX_TEXT`], whole characters.
pub(super) fn cut(text: &str) -> &[u8] {
    let end = text.floor_char_boundary(MAX_TEXT.min(text.len()));
    &text.as_bytes()[..end]
}

/// Returns up to 16 bytes of a text as two words.
pub(super) fn text_unit(bytes: &[u8]) -> Record {
    let mut unit = [0; RECORD];
    unit[..bytes.len()].copy_from_slice(bytes);
    Record::from_bytes(unit)
}

/// A swap of a value with one writer, without a locked instruction.
trait SwapPlain<T> {
    fn swap_plain(&self, value: T) -> T;
}

impl SwapPlain<u64> for AtomicU64 {
    fn swap_plain(&self, value: u64) -> u64 {
        let old = self.load(Relaxed);
        self.store(value, Relaxed);
        old
    }
}

impl SwapPlain<u32> for AtomicU32 {
    fn swap_plain(&self, value: u32) -> u32 {
        let old = self.load(Relaxed);
        self.store(value, Relaxed);
        old
    }
}
