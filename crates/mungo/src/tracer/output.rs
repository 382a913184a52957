//! The way of a trace to its writer: a queue, and a thread that empties it.
//!
//! A writer may be a pipe that nothing reads, or a disk that hangs. So it is called with no lock held, by a thread that
//! does nothing else: neither the rounds nor other traces wait for it. What may wait for it is bounded.

use crate::sys::{clock, thread};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that may wait for one writer. TUNED: guess: as much as may wait for the tracer's thread.
pub(super) const MOST_WAITING: usize = 64 << 20;
/// Bytes in a call of a writer: a slow one is seen to make progress. TUNED: guess: what a pipe holds.
const PIECE: usize = 64 << 10;
/// Bytes of the thread's stack: the writer is the program's, and may compress, say.
const STACK: usize = 2 << 20;

/// Threads of this module.
static THREADS: AtomicI64 = AtomicI64::new(0);
/// Changes whenever a writer, of a trace or of a snapshot, has taken a piece.
static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of threads that wait for a writer, or for something to write.
pub(super) fn threads() -> i64 {
    THREADS.load(Relaxed)
}

/// Returns a number that changes while writers make progress.
pub(super) fn progress() -> u64 {
    PROGRESS.load(Relaxed)
}

/// Writes piece by piece, and lets those who wait for the end of it see that.
pub(super) fn write_pieces(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    bytes.chunks(PIECE).try_for_each(|piece| {
        out.write_all(piece)?;
        PROGRESS.fetch_add(1, Relaxed);
        Ok(())
    })
}

/// How long the end of a process waits: until no writer has made progress for a while, and not much longer than
/// [`MOST_NS`](Self::MOST_NS). Takes no lock.
pub(super) struct Patience {
    seen: u64,
    each_ns: u64,
    end_ns: u64,
    last_ns: u64,
}

impl Patience {
    /// TUNED: guess: what is kept of the end of a trace, 256 MiB, at 5 MB/s.
    const MOST_NS: u64 = 60_000_000_000;

    pub(super) fn new(each_ns: u64) -> Patience {
        Patience::at(clock::now_ns(), progress(), each_ns)
    }

    fn at(now_ns: u64, seen: u64, each_ns: u64) -> Patience {
        Patience { seen, each_ns, end_ns: now_ns + each_ns, last_ns: now_ns + Patience::MOST_NS }
    }

    /// Returns when to look again.
    pub(super) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    pub(super) fn is_over(&mut self) -> bool {
        self.is_over_at(clock::now_ns(), progress())
    }

    fn is_over_at(&mut self, now_ns: u64, progress: u64) -> bool {
        if std::mem::replace(&mut self.seen, progress) != progress {
            self.end_ns = (now_ns + self.each_ns).min(self.last_ns);
        }
        now_ns >= self.end_ns
    }
}

/// A writer with what waits for it.
pub(super) struct Output {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    /// Bytes that were ever put into the queue, and those that are done with: written, or given up after an error.
    put: u64,
    done: u64,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
    /// Whether nothing more comes.
    is_complete: bool,
    has_ended: bool,
    /// The writer, once the thread has ended.
    out: Option<Box<dyn Write + Send>>,
}

/// What the thread gets.
struct Task {
    output: Arc<Output>,
    out: Box<dyn Write + Send>,
}

impl Output {
    /// Starts a thread for a writer. There is room for more while `most` bytes wait for it.
    pub(super) fn start(out: Box<dyn Write + Send>, most: usize) -> io::Result<Arc<Output>> {
        let output = Arc::new(Output { most, state: Mutex::default(), changed: Condvar::new() });
        let task = Box::into_raw(Box::new(Task { output: output.clone(), out }));
        thread::start(STACK, main, task.cast()).inspect_err(|_| {
            // SAFETY: there is no thread that has it.
            drop(unsafe { Box::from_raw(task) });
        })?;
        // After the start, and before it is less: the thread is counted too late, not too early, so that a look for
        // threads that are not ours finds one too many at worst.
        THREADS.fetch_add(1, Relaxed);
        Ok(output)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is room for more.
    pub(super) fn has_room(&self) -> bool {
        let state = self.lock();
        state.put - state.done <= self.most as u64
    }

    /// Lets the thread write these bytes.
    pub(super) fn put(&self, bytes: Vec<u8>) {
        let mut state = self.lock();
        if state.error.is_none() && !bytes.is_empty() {
            state.put += bytes.len() as u64;
            state.queue.push_back(bytes);
            self.changed.notify_all();
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.lock().error.is_some()
    }

    /// Returns the error that it ended with, if it has.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.lock().error {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    /// Waits until what was put so far is written, or given up, but not beyond `end_ns`.
    pub(super) fn flush(&self, end_ns: Option<u64>) {
        let mut state = self.lock();
        let put = state.put;
        while state.done < put && end_ns.is_none_or(|end_ns| clock::now_ns() < end_ns) {
            state = self.wait(state, end_ns);
        }
    }

    /// Says that nothing more comes.
    pub(super) fn complete(&self) {
        self.lock().is_complete = true;
        self.changed.notify_all();
    }

    /// Waits until all is written and the thread has ended, after [`complete`](Self::complete). Returns the first
    /// error.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut state = self.lock();
        while !state.has_ended {
            state = self.wait(state, None);
        }
        let (out, error) = (state.out.take(), state.error.take());
        drop(state);
        drop(out); // without the lock: it is the program's
        error.map_or(Ok(()), Err)
    }

    /// Does as [`finish`](Self::finish), but gives up when no writer has made progress for `patience_ns`.
    pub(super) fn finish_soon(&self, patience_ns: u64) -> io::Result<()> {
        let mut patience = Patience::new(patience_ns);
        let mut state = self.lock();
        while !state.has_ended {
            if patience.is_over() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its writer does not go on"));
            }
            state = self.wait(state, Some(patience.end_ns()));
        }
        drop(state);
        self.finish()
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, end_ns: Option<u64>) -> MutexGuard<'a, State> {
        let Some(end_ns) = end_ns else {
            return self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let left = Duration::from_nanos(end_ns.saturating_sub(clock::now_ns()));
        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Writes what comes, until the last of it.
    fn serve(&self, out: &mut dyn Write) {
        let mut state = self.lock();
        loop {
            let queue = std::mem::take(&mut state.queue);
            if queue.is_empty() {
                if state.is_complete {
                    return;
                }
                state = self.wait(state, None);
                continue;
            }
            let is_broken = state.error.is_some();
            drop(state);
            let len = queue.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
            let written = if is_broken { Ok(()) } else { write_all(out, queue) };
            state = self.lock();
            state.done += len;
            if let Err(error) = written {
                state.error = Some(error);
            }
            self.changed.notify_all();
        }
    }
}

/// Calls the writer. One that panics has failed.
fn write_all(out: &mut dyn Write, queue: VecDeque<Vec<u8>>) -> io::Result<()> {
    let write = || {
        queue.into_iter().try_for_each(|bytes| write_pieces(out, &bytes))?;
        out.flush()
    };
    catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
}

extern "C" fn main(task: *mut c_void) -> *mut c_void {
    thread::set_name(format_args!("mungo-trace-out"));
    thread::block_signals();
    // SAFETY: from `start`, which has left it to this thread.
    let Task { output, mut out } = *unsafe { Box::from_raw(task.cast::<Task>()) };
    output.serve(&mut out);
    THREADS.fetch_sub(1, Relaxed);
    let mut state = output.lock();
    (state.out, state.has_ended) = (Some(out), true);
    output.changed.notify_all();
    drop(state);
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A writer that goes on when it is told to.
    struct Stalled {
        begun: Sender<()>,
        go_on: Receiver<()>,
        bytes: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            _ = self.begun.send(());
            _ = self.go_on.recv(); // an error: go on for good
            self.bytes.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_waits_for_a_stalled_writer_is_bounded_and_those_who_may_not_wait_do_not() {
        let ((begun, has_begun), (let_go, go_on)) = (channel(), channel());
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let output = Output::start(Box::new(Stalled { begun, go_on, bytes: bytes.clone() }), 100).unwrap();
        output.put(vec![1; 60]);
        has_begun.recv().unwrap();
        assert!(output.has_room());
        output.put(vec![2; 60]);
        assert!(!output.has_room(), "what is on its way counts too");
        output.flush(Some(clock::now_ns() + 1_000_000));
        output.complete();
        let error = output.finish_soon(1_000_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(let_go);
        output.finish().unwrap();
        assert_eq!(*bytes.lock().unwrap(), [[1; 60], [2; 60]].concat());
    }

    #[test]
    fn patience_lasts_while_there_is_progress_and_not_for_ever() {
        let mut patience = Patience::at(1000, 0, 50);
        assert!(!patience.is_over_at(1049, 0));
        assert!(!patience.is_over_at(1050, 1), "there was progress meanwhile");
        assert!(!patience.is_over_at(1099, 1) && patience.is_over_at(1100, 1));
        let mut patience = Patience::at(0, 0, 50);
        let looks = (1..).find(|look| patience.is_over_at(look * 1_000_000_000, *look));
        assert_eq!(looks, Some(Patience::MOST_NS / 1_000_000_000));
    }
}
