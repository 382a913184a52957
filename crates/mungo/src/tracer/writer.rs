//! The thread that empties the chunks, and the sinks that it serves.
//!
//! It lives while there is a sink. It holds the lock during a round; those who start and stop sinks wait for that. No
//! writer is called with the lock: that is left to a thread of its own (`output.rs`).
//!
//! After a fork the child has no such thread, and perhaps a lock that is never free again: there is no tracing in it.

use super::births::Births;
use super::chunk;
use super::drain::Round;
use super::output::{self, Output, Patience};
use super::sink::{Kept, Recorder, SinkId, Snapshot, Stream, Summary};
use super::triggers::{self, SLOTS, Triggers, Wanted};
use super::{WITH_STACKS, census, clock, names, set_on, stacks};
use crate::sys::say::say;
use crate::sys::{clock as sys_clock, futex, thread};
use std::ffi::c_void;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, Once};

/// Chunks at the start of a session, 8 MiB. TUNED: guess; the writer may be without a CPU for 30 ms at the highest
/// rate of one M. Memory that is not used is not touched.
const FIRST_CHUNKS: usize = 256;
/// Chunks that may wait for the writer, once it has seen that many are needed: 64 MiB. What comes beyond that is
/// dropped. A trace with stacks has them from the start, since the first name may take the writer longer than a round.
const MOST_CHUNKS: usize = 2048;
/// Chunks that are sealed before the writer is called.
const CALL_EVERY: u32 = 16;
/// Time in ns between two rounds, if it is not called.
const PERIOD_NS: u64 = 20_000_000;
/// Time in ns that the end of a process waits for the last round, from the last sign of progress.
const LAST_WORDS_NS: u64 = 5_000_000_000;
/// Time in ns that it waits for a writer, from the last sign of progress: less, so that there is time to say so.
const LAST_WRITE_NS: u64 = 4_000_000_000;
/// Time in ns that the end of a runtime waits for a writer. TUNED: guess: longer than a disk takes, and not long.
const FLUSH_NS: u64 = 100_000_000;
/// Time in ns between two snapshots that a trigger asked one recorder for.
const SNAPSHOT_PAUSE_NS: u64 = 1_000_000_000;
/// Bytes of the thread's stack. Names of functions take the most of it, with what the program has of line tables.
const STACK: usize = 2 << 20;

pub(super) struct Control {
    sinks: Vec<Entry>,
    next_id: u64,
    /// Whether the thread lives, or is about to.
    has_thread: bool,
    /// Traces that have ended and wait for the names of functions.
    unnamed: usize,
    round: Round,
}

struct Entry {
    id: SinkId,
    sink: Sink,
}

enum Sink {
    Stream(Stream),
    Recorder { recorder: Box<Recorder>, slot: usize, triggers: Triggers, last_ns: u64 },
}

static CONTROL: Mutex<Control> =
    Mutex::new(Control { sinks: Vec::new(), next_id: 1, has_thread: false, unnamed: 0, round: Round::new() });

/// Futex: changes with each call of the writer.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// Futex: the number of calls that the last complete round had seen.
static SERVED: AtomicU32 = AtomicU32::new(0);
static SEALED: AtomicU32 = AtomicU32::new(0);
/// Whether the thread lives. Written under the lock.
static ALIVE: AtomicBool = AtomicBool::new(false);
/// The number of that thread, as the kernel counts.
static TID: AtomicI32 = AtomicI32::new(0);
/// Whether this process is the child of a fork.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Whether the process is about to end, and with it all traces.
static LAST_WORDS: AtomicBool = AtomicBool::new(false);

pub(super) fn lock() -> io::Result<MutexGuard<'static, Control>> {
    if FORKED.load(Relaxed) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "no trace in the child of a fork"));
    }
    Ok(CONTROL.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Returns the number of the tracer's threads: there is none that could wake a goroutine.
pub(crate) fn threads() -> i64 {
    i64::from(ALIVE.load(Relaxed)) + output::threads()
}

/// Returns whether this is the tracer's thread: it drops the last handle of a goroutine, perhaps, and with it a trace.
fn is_own_thread() -> bool {
    // SAFETY: no memory involved.
    ALIVE.load(Relaxed) && TID.load(Relaxed) == unsafe { libc::gettid() }
}

/// Calls the writer. Safe in a signal handler.
pub(super) fn call() {
    CALLS.fetch_add(1, SeqCst); // ORDERING: after what the caller wants seen, before its look at `SERVED`
    futex::wake(&CALLS, 1);
}

/// Notes that a chunk waits for the writer. Safe in a signal handler.
pub(super) fn note_sealed() {
    if SEALED.fetch_add(1, Relaxed) % CALL_EVERY == CALL_EVERY - 1 {
        call();
    }
}

/// Starts to trace into a writer.
pub(crate) fn start(out: Box<dyn Write + Send>, stacks: bool) -> io::Result<SinkId> {
    let id = add(stacks, |_| Ok(Sink::Stream(Stream::start(out, stacks, output::MOST_WAITING)?)))?;
    let known = census::take(); // without the lock; goroutines that are made from now on are in the trace anyway
    if let Some(Sink::Stream(stream)) =
        lock()?.sinks.iter_mut().find(|entry| entry.id == id).map(|e| &mut e.sink)
    {
        stream.tell(&known, clock::now().0);
    }
    Ok(id)
}

/// Starts to record.
pub(crate) fn start_recorder(kept: Kept, stacks: bool, triggers: Triggers) -> io::Result<SinkId> {
    if triggers.on_exit {
        care_for_exit();
    }
    add(stacks, |control| {
        let used = |slot| control.sinks.iter().any(|entry| entry.slot() == Some(slot));
        let Some(slot) = (0..SLOTS).find(|slot| !used(*slot)) else {
            return Err(io::Error::other(format!("there are {SLOTS} flight recorders already")));
        };
        triggers.arm(slot)?;
        let recorder = Box::new(Recorder::new(kept, stacks));
        Ok(Sink::Recorder { recorder, slot, triggers, last_ns: 0 })
    })
}

fn add(stacks: bool, make: impl FnOnce(&mut Control) -> io::Result<Sink>) -> io::Result<SinkId> {
    super::check_stacks(stacks)?;
    survive_fork();
    clock::per_second();
    let mut control = lock()?;
    if !super::is_on() {
        chunk::make_up_to(FIRST_CHUNKS);
        control.round.no_cpu.clear();
        control.round.take(clock::now()); // left over from before
    }
    if !control.sinks.is_empty() {
        control.do_round(); // what happened before is for the others alone
    }
    if !control.has_thread {
        thread::start(STACK, main, std::ptr::null_mut())?; // it leaves again, should there be no sink
        control.has_thread = true;
        ALIVE.store(true, Relaxed);
    }
    let sink = make(&mut control)?;
    if stacks {
        chunk::make_up_to(MOST_CHUNKS);
        names::refresh();
        WITH_STACKS.fetch_add(1, Relaxed);
    }
    let id = SinkId(control.next_id);
    control.next_id += 1;
    control.sinks.push(Entry { id, sink });
    if !super::is_on() {
        set_on(true);
    }
    Ok(id)
}

/// Ends a trace or a recorder. Returns what it came to, or the first error of its writer.
pub(crate) fn stop(id: SinkId) -> io::Result<Summary> {
    let mut control = lock()?;
    let Some(at) = control.sinks.iter().position(|entry| entry.id == id) else {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the trace has ended already"));
    };
    if control.sinks.len() == 1 {
        set_on(false);
    }
    control.do_round(); // what was put down before
    let Entry { sink, .. } = control.sinks.remove(at);
    forget_stacks_of(&sink);
    if matches!(&sink, Sink::Stream(stream) if stream.has_stacks()) {
        control.unnamed += 1; // the thread stays
        control = wait_for_names(control)?;
        control.unnamed -= 1;
    }
    if let Sink::Recorder { slot, .. } = &sink {
        triggers::disarm(*slot); // with the lock: the slot is free for others after it
    }
    if control.sinks.is_empty() {
        call(); // the thread leaves
    }
    drop(control);
    match sink {
        Sink::Stream(stream) => {
            let (output, summary) = stream.end(clock::now());
            output.finish().map(|()| summary)
        }
        Sink::Recorder { .. } => Ok(Summary::default()),
    }
}

/// Waits until the functions of the stacks so far have names, for a bounded time.
fn wait_for_names(control: MutexGuard<'static, Control>) -> io::Result<MutexGuard<'static, Control>> {
    if is_own_thread() {
        return Ok(control); // there is no other one that finds them
    }
    let (wanted, end_ns) = (stacks::len(), sys_clock::now_ns() + LAST_WORDS_NS);
    drop(control);
    while !names::are_there(wanted) && ALIVE.load(Relaxed) && sys_clock::now_ns() < end_ns {
        let served = SERVED.load(Acquire); // ORDERING: the names of its round, by `main`
        call();
        futex::wait(&SERVED, served, Some(end_ns));
    }
    lock()
}

/// Counts a sink with stacks less. By the holder of the writer's lock.
fn forget_stacks_of(sink: &Sink) {
    if sink.has_stacks() {
        WITH_STACKS.fetch_sub(1, Relaxed);
    }
}

/// Passes on what was put down so far, and waits until it is written. Returns the first error of the writer of `id`.
pub(crate) fn flush(id: SinkId) -> io::Result<()> {
    flush_until(id, None)
}

/// Does as [`flush`], but does not wait for long.
pub(super) fn flush_soon(id: SinkId) -> io::Result<()> {
    flush_until(id, Some(sys_clock::now_ns() + FLUSH_NS))
}

fn flush_until(id: SinkId, end_ns: Option<u64>) -> io::Result<()> {
    let mut control = lock()?;
    control.do_round();
    let output = match control.sinks.iter().find(|entry| entry.id == id).map(|entry| &entry.sink) {
        Some(Sink::Stream(stream)) => stream.output(),
        _ => return Ok(()),
    };
    drop(control);
    output.flush(end_ns);
    output.check()
}

/// Writes what a recorder has. The file is written without the lock: a slow one does not hold up other traces.
pub(crate) fn snapshot(id: SinkId, out: &mut dyn Write) -> io::Result<Summary> {
    let mut control = lock()?;
    if control.sinks.iter().any(|entry| entry.id == id && entry.sink.has_stacks()) {
        control = wait_for_names(control)?;
    }
    control.do_round();
    let snapshot = match control.sinks.iter().find(|entry| entry.id == id).map(|entry| &entry.sink) {
        Some(Sink::Recorder { recorder, .. }) => recorder.snapshot(),
        _ => return Err(io::Error::new(io::ErrorKind::NotFound, "the flight recorder has ended already")),
    };
    drop(control);
    snapshot.write_to(census::take(), out)
}

/// Starts to trace into a writer until the process exits.
pub(crate) fn start_at_exit(out: Box<dyn Write + Send>, stacks: bool) -> io::Result<SinkId> {
    let id = start(out, stacks)?;
    care_for_exit();
    Ok(id)
}

/// Lets the writer do what is left when the process exits.
fn care_for_exit() {
    extern "C" fn at_exit() {
        before_exit(false);
    }
    static ONCE: Once = Once::new();
    // SAFETY: a function that takes nothing; at the exit the threads still live.
    ONCE.call_once(|| _ = unsafe { libc::atexit(at_exit) });
}

/// Lets the writer do what is left before the process ends, while it makes progress: it ends all traces, and recorders
/// hear of the end, and of a deadlock, if that is the reason. Takes no lock and no memory itself, so that a signal
/// handler may call it.
pub(crate) fn before_exit(is_deadlock: bool) {
    if !ALIVE.load(Relaxed) || FORKED.load(Relaxed) || is_own_thread() {
        return;
    }
    triggers::process_ends(is_deadlock);
    LAST_WORDS.store(true, Release); // ORDERING: what came before it is in the round of `main` that sees it
    call();
    let (calls, mut patience) = (CALLS.load(Relaxed), Patience::new(LAST_WORDS_NS));
    loop {
        let served = SERVED.load(Acquire); // ORDERING: the round's end, by `main`
        if served.wrapping_sub(calls) as i32 >= 0 || patience.is_over() {
            return;
        }
        futex::wait(&SERVED, served, Some(patience.end_ns()));
    }
}

/// Runs the writer's thread.
extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_name(format_args!("mungo-trace"));
    thread::block_signals();
    // SAFETY: no memory involved.
    TID.store(unsafe { libc::gettid() }, Relaxed);
    loop {
        let calls = CALLS.load(SeqCst); // ORDERING: before the round, which shall see what the callers did
        let is_last = LAST_WORDS.load(Acquire); // ORDERING: see `before_exit`
        if super::wants_stacks() && (is_last || triggers::is_any_wanted()) {
            name_all(); // before the lock is taken, and wishes with it, which are for those who have their slots now
        }
        let Ok(mut control) = lock() else { break };
        if control.sinks.is_empty() && control.unnamed == 0 {
            names::forget();
            control.has_thread = false;
            ALIVE.store(false, Relaxed);
            break;
        }
        // First: what came before a wish, and before the end, is in this round.
        let wanted = triggers::take_wanted();
        let has_stacks = super::wants_stacks() || control.unnamed != 0;
        control.do_round();
        let snapshots = control.take_snapshots(wanted);
        control.make_room();
        let ended = if is_last { control.end_streams() } else { Vec::new() };
        let needs_census = control.births().any(|births| births.are_too_many());
        drop(control);
        if needs_census {
            let census = census::take(); // without the lock
            let Ok(mut control) = lock() else { break };
            let now = clock::now().0;
            let births = control.births().filter(|births| births.are_too_many());
            births.for_each(|births| births.prune(&census, now));
        }
        write_snapshots(snapshots);
        finish(&ended);
        if has_stacks {
            names::refresh();
            names::name_until(sys_clock::now_ns() + names::AT_A_TIME_NS);
        }
        SERVED.store(calls, Release); // ORDERING: the round to `before_exit`, the names to `wait_for_names`
        futex::wake(&SERVED, u32::MAX);
        futex::wait(&CALLS, calls, Some(sys_clock::now_ns() + PERIOD_NS));
    }
    std::ptr::null_mut()
}

/// Writes snapshots that triggers asked for.
fn write_snapshots(snapshots: Vec<(PathBuf, Snapshot)>) {
    for (path, snapshot) in snapshots {
        if let Err(error) = write_anew(&path, |out| snapshot.write_to(census::take(), out).map(drop)) {
            say!("mungo: no snapshot of the trace in {}: {error}", path.display());
        }
    }
}

/// Waits for the writers of traces that ended with the process.
fn finish(ended: &[Arc<Output>]) {
    for output in ended {
        if let Err(error) = output.finish_soon(LAST_WRITE_NS) {
            say!("mungo: the trace is not complete: {error}");
        }
    }
}

/// Names the functions of all stacks, in a bounded time. By the writer's thread.
fn name_all() {
    let end_ns = sys_clock::now_ns() + LAST_WORDS_NS / 2;
    while !names::name_until(end_ns) && sys_clock::now_ns() < end_ns {}
}

impl Sink {
    fn has_stacks(&self) -> bool {
        match self {
            Sink::Stream(stream) => stream.has_stacks(),
            Sink::Recorder { recorder, .. } => recorder.has_stacks(),
        }
    }
}

impl Entry {
    fn slot(&self) -> Option<usize> {
        match &self.sink {
            Sink::Stream(_) => None,
            Sink::Recorder { slot, .. } => Some(*slot),
        }
    }
}

impl Control {
    /// Passes what was committed so far to all sinks.
    fn do_round(&mut self) {
        let now = clock::now(); // first: whatever was put down before is in this round
        self.round.take(now);
        let all_want_stacks = self.sinks.iter().all(|entry| entry.sink.has_stacks());
        let plain = (self.round.has_stacks && !all_want_stacks).then(|| self.round.without_stacks());
        for entry in &mut self.sinks {
            let blocks = match &plain {
                Some(plain) if !entry.sink.has_stacks() => plain,
                _ => &self.round.bytes,
            };
            match &mut entry.sink {
                Sink::Stream(stream) => stream.accept(&self.round, blocks, now),
                Sink::Recorder { recorder, .. } => recorder.accept(&self.round, blocks, now),
            }
        }
        let broken = |entry: &Entry| matches!(&entry.sink, Sink::Stream(stream) if stream.is_broken());
        if !self.sinks.is_empty() && self.sinks.iter().all(broken) {
            set_on(false); // no thread is left to keep the events
        }
    }

    /// Returns the snapshots that triggers asked for, with their paths. One that comes too soon after the last waits;
    /// the one of a deadlock never does, since the process ends.
    fn take_snapshots(&mut self, wanted: Wanted) -> Vec<(PathBuf, Snapshot)> {
        let now = sys_clock::now_ns();
        let (mut snapshots, mut too_soon) = (Vec::new(), 0);
        for entry in &mut self.sinks {
            if let Sink::Recorder { recorder, slot, triggers, last_ns } = &mut entry.sink
                && wanted.all & 1 << *slot != 0
            {
                let is_last = wanted.last & 1 << *slot != 0;
                if !is_last && now.saturating_sub(*last_ns) < SNAPSHOT_PAUSE_NS {
                    too_soon |= 1 << *slot;
                    continue;
                }
                *last_ns = now;
                snapshots.push((triggers.path.clone(), recorder.snapshot()));
            }
        }
        triggers::put_back(too_soon);
        snapshots
    }

    /// Returns what the recorders know of goroutines whose beginning they have dropped.
    fn births(&mut self) -> impl Iterator<Item = &mut Births> {
        self.sinks.iter_mut().filter_map(|entry| match &mut entry.sink {
            Sink::Recorder { recorder, .. } => Some(recorder.births()),
            Sink::Stream(_) => None,
        })
    }

    /// Makes more chunks, if many were full or lanes have most of them.
    fn make_room(&self) {
        let (active, full) = (self.round.active, self.round.freed);
        let others = chunk::made().saturating_sub(active);
        let wanted = if full > others / 4 { (4 * others).min(MOST_CHUNKS) } else { FIRST_CHUNKS };
        chunk::make_up_to(active + wanted);
    }

    /// Ends all traces, at the end of the process. Their writers are to be waited for.
    fn end_streams(&mut self) -> Vec<Arc<Output>> {
        let mut ended = Vec::new();
        for entry in std::mem::take(&mut self.sinks) {
            if !matches!(entry.sink, Sink::Recorder { .. }) {
                forget_stacks_of(&entry.sink);
            }
            match entry.sink {
                Sink::Recorder { .. } => self.sinks.push(entry),
                Sink::Stream(stream) => ended.push(stream.end(clock::now()).0),
            }
        }
        if self.sinks.is_empty() {
            set_on(false);
        }
        ended
    }
}

/// Writes a file beside `path`, and puts it in its place when it is whole.
pub(crate) fn write_anew(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let mut out = BufWriter::new(File::create(&beside)?);
    let written = write(&mut out).and_then(|()| out.flush()).and_then(|()| fs::rename(&beside, path));
    written.inspect_err(|_| _ = fs::remove_file(&beside))
}

/// Ends the tracing in the child of a fork.
fn survive_fork() {
    extern "C" fn in_child() {
        FORKED.store(true, Relaxed);
        ALIVE.store(false, Relaxed);
        set_on(false);
    }
    static ONCE: Once = Once::new();
    // SAFETY: the function touches atomics only.
    ONCE.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
}
