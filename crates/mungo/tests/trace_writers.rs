//! Traces that come and go, writers that fail, and the flight recorder.

mod common;
mod trace_support;

use common::{TempFile, wait_until};
use mungo::policy::{Next, Proc, Scheduler};
use mungo::trace::{self, FlightRecorder};
use mungo::{Runtime, go};
use mungo_trace::{Kind, Stop, Trace};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trace_support::alone;

/// A writer into memory that fails after so many bytes.
#[derive(Clone)]
struct Limited {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
    panics: bool,
}

impl Limited {
    fn new(room: usize) -> Limited {
        Limited { bytes: Arc::default(), room, panics: false }
    }

    fn read(&self) -> Trace {
        Trace::read(&self.bytes.lock().unwrap()[..]).expect("a trace")
    }
}

impl Write for Limited {
    fn write(&mut self, new: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        let n = new.len().min(self.room - bytes.len());
        if n == 0 && !new.is_empty() {
            drop(bytes);
            assert!(!self.panics, "a writer that panics");
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.extend(&new[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Some goroutines that wake each other.
fn work(rounds: usize) {
    let (to, from) = mungo::chan::bounded(0);
    let other = go(move || (0..rounds).for_each(|n| to.send(n).unwrap()));
    (0..rounds).for_each(|n| assert_eq!(from.recv(), Ok(n)));
    other.join().unwrap();
}

fn ended(trace: &Trace) -> usize {
    let is_end = |kind: &Kind| matches!(kind, Kind::Stop { why: Stop::Ended, .. });
    trace.events.iter().filter(|event| is_end(&event.kind)).count()
}

fn starts(trace: &Trace) -> usize {
    trace.events.iter().filter(|event| matches!(event.kind, Kind::Start { .. })).count()
}

#[test]
fn a_full_disk_ends_the_trace_and_nothing_else() {
    let _alone = alone();
    let tracing = trace::start("/dev/full").unwrap();
    work(1000);
    wait_until("nobody is left to trace for", || !trace::is_on());
    let error = tracing.stop().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    work(10);
}

#[test]
fn a_writer_that_fails_in_between_leaves_a_readable_trace() {
    let _alone = alone();
    for (room, panics) in [(20_000, false), (20_001, true), (50_017, false)] {
        let limited = Limited { panics, ..Limited::new(room) };
        let tracing = trace::start_writer(limited.clone()).unwrap();
        work(5000);
        wait_until("the writer has failed", || tracing.flush().is_err());
        work(100);
        tracing.stop().unwrap_err();
        let trace = limited.read();
        assert!(trace.is_torn && trace.events.len() > 500, "{} events", trace.events.len());
        assert_eq!(limited.bytes.lock().unwrap().len(), room, "all that fits is there");
    }
}

#[test]
fn one_writer_that_fails_does_not_harm_another() {
    let _alone = alone();
    let (bad, good) = (Limited::new(5000), Limited::new(usize::MAX));
    let bad = trace::start_writer(bad).unwrap();
    let tracing = trace::start_writer(good.clone()).unwrap();
    work(2000);
    bad.stop().unwrap_err();
    assert!(trace::is_on());
    work(10);
    let summary = tracing.stop().unwrap();
    assert!(!trace::is_on());
    let trace = good.read();
    assert_eq!(trace.events.len() as u64, summary.events);
    assert!(!trace.is_torn);
}

/// A trace to a pipe that nothing reads.
fn stalled() -> (io::PipeReader, trace::Tracing) {
    let (reader, writer) = io::pipe().unwrap();
    (reader, trace::start_writer(writer).unwrap())
}

/// Returns the bytes of texts that have been logged: more than a pipe holds.
fn log_much(bytes: usize) -> usize {
    let text = "t".repeat(1000);
    let logs = bytes / 1024;
    (0..logs).for_each(|_| trace::log(&text));
    logs
}

#[test]
fn a_writer_that_stalls_holds_nothing_up() {
    let _alone = alone();
    let (mut reader, to_pipe) = stalled();
    let file = TempFile::new("beside");
    let recorder = FlightRecorder::start().unwrap();
    log_much(1 << 20);
    // All of this would wait for the lock of a round that waits for the pipe.
    for _ in 0..3 {
        let memory = Limited::new(usize::MAX);
        let tracing = trace::start_writer(memory.clone()).unwrap();
        work(100);
        tracing.flush().unwrap();
        recorder.snapshot(&file.0).unwrap();
        let summary = tracing.stop().unwrap();
        assert_eq!(memory.read().events.len() as u64, summary.events);
    }
    let read = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map(|_| bytes)
    });
    let summary = to_pipe.stop().unwrap();
    let trace = Trace::read(&read.join().unwrap().unwrap()[..]).unwrap();
    assert!(!trace.is_torn && summary.dropped == 0, "it is slow, and whole");
    assert_eq!(trace.events.len() as u64, summary.events);
}

#[test]
fn a_pipe_that_is_closed_ends_a_stalled_trace() {
    let _alone = alone();
    let (reader, to_pipe) = stalled();
    log_much(1 << 20);
    drop(reader);
    let error = to_pipe.stop().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

/// What waits for a writer is bounded; the rest is counted, in the sums and by events.
#[test]
fn what_a_stalled_writer_loses_is_counted() {
    let _alone = alone();
    let (mut reader, to_pipe) = stalled();
    let beside = trace::start_writer(io::sink()).unwrap();
    let mut logs = 0;
    for _ in 0..80 {
        logs += log_much(1 << 20);
        beside.flush().unwrap(); // a round: nothing is lost on the way to it
    }
    assert_eq!(beside.stop().unwrap().dropped, 0);
    let read = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map(|_| bytes)
    });
    let summary = to_pipe.stop().unwrap();
    let trace = Trace::read(&read.join().unwrap().unwrap()[..]).unwrap();
    assert!(!trace.is_torn && summary.dropped > 0);
    let told = |event: &mungo_trace::Event| if let Kind::Dropped { count } = event.kind { count } else { 0 };
    let told: u64 = trace.events.iter().map(told).sum();
    assert_eq!((told, trace.dropped), (summary.dropped, summary.dropped));
    assert_eq!(trace.events.len() as u64, summary.events);
    let kept = trace.events.iter().filter(|event| matches!(event.kind, Kind::Log { .. })).count();
    assert!(kept < logs && kept as u64 + summary.dropped >= logs as u64, "{kept} of {logs}: {summary:?}");
}

#[test]
fn a_thousand_runtimes_fit_one_trace() {
    let _alone = alone();
    let memory = Limited::new(usize::MAX);
    let tracing = trace::start_writer(memory.clone()).unwrap();
    const RUNTIMES: usize = 1000;
    for n in 0..RUNTIMES {
        let runtime = Runtime::builder().procs(1 + n % 3).build().unwrap();
        runtime.run(|| go(mungo::yield_now).join().unwrap());
        runtime.shutdown(common::PATIENCE).unwrap();
    }
    let summary = tracing.stop().unwrap();
    assert_eq!(summary.dropped, 0);
    let trace = memory.read();
    let of_ends = trace.events.iter().filter(|e| matches!(e.kind, Kind::Stop { why: Stop::Ended, .. }));
    let runtimes: HashSet<u32> = of_ends.map(|event| event.runtime).collect();
    assert_eq!(runtimes.len(), RUNTIMES);
    assert_eq!(ended(&trace), 2 * RUNTIMES);
}

#[test]
fn traces_start_and_stop_while_goroutines_run() {
    let _alone = alone();
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (stop, rounds) = (stop.clone(), rounds.clone());
            go(move || {
                while !stop.load(Relaxed) {
                    work(10);
                    rounds.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..50 {
        let memory = Limited::new(usize::MAX);
        let tracing = trace::start_writer(memory.clone()).unwrap();
        let before = rounds.load(Relaxed);
        wait_until("goroutines have run", || rounds.load(Relaxed) > before + 1);
        let summary = tracing.stop().unwrap();
        let trace = memory.read();
        assert!(!trace.is_torn);
        assert_eq!(trace.events.len() as u64, summary.events);
        assert!(starts(&trace) > 0);
    }
    stop.store(true, Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

#[test]
fn goroutines_start_and_stop_traces_too() {
    let _alone = alone();
    let starters: Vec<_> = (0..4)
        .map(|_| {
            go(|| {
                for _ in 0..25 {
                    let memory = Limited::new(usize::MAX);
                    let tracing = trace::start_writer(memory.clone()).unwrap();
                    trace::log("here");
                    mungo::yield_now();
                    tracing.stop().unwrap();
                    let trace = memory.read();
                    let logs = trace.events.iter().filter(|event| matches!(event.kind, Kind::Log { .. }));
                    assert!(logs.count() >= 1, "{:#?}", trace.events);
                }
            })
        })
        .collect();
    starters.into_iter().for_each(|starter| starter.join().unwrap());
    assert!(!trace::is_on());
}

#[test]
fn what_a_program_says_is_in_the_trace() {
    let _alone = alone();
    let memory = Limited::new(usize::MAX);
    let tracing = trace::start_writer(memory.clone()).unwrap();
    let request = trace::task("request");
    let named = mungo::Builder::new().name("handler".to_owned());
    named
        .spawn(move || {
            let _region = trace::region("a region whose name is longer than sixteen bytes");
            trace::log(format_args!("{} of {}", 3, 7));
            drop(request);
        })
        .unwrap()
        .join()
        .unwrap();
    trace::log("");
    tracing.stop().unwrap();
    let trace = memory.read();
    let find = |wanted: &dyn Fn(Kind) -> Option<String>| -> Vec<String> {
        trace.events.iter().filter_map(|event| wanted(event.kind)).collect()
    };
    let text = |id| trace.string(id).to_owned();
    let regions = find(&|kind| match kind {
        Kind::RegionBegin { g: Some(_), name, .. } | Kind::RegionEnd { g: Some(_), name, .. } => {
            Some(text(name))
        }
        _ => None,
    });
    assert_eq!(regions, ["a region whose name is longer than sixteen bytes"; 2]);
    let tasks = find(&|kind| match kind {
        Kind::TaskBegin { g: None, name, .. } | Kind::TaskEnd { g: Some(_), name, .. } => Some(text(name)),
        _ => None,
    });
    assert_eq!(tasks, ["request"; 2]);
    let logs = find(&|kind| match kind {
        Kind::Log { text: id, .. } => Some(text(id)),
        _ => None,
    });
    assert_eq!(logs, ["3 of 7", ""]);
    let names = find(&|kind| match kind {
        Kind::Named { name, .. } => Some(text(name)),
        _ => None,
    });
    assert_eq!(names, ["handler"]);
    let places = find(&|kind| match kind {
        Kind::Created { place, .. } => Some(trace.dictionary.place_name(place)),
        _ => None,
    });
    assert!(places.iter().any(|place| place.contains("tests/trace_writers.rs:")), "{places:?}");
}

#[test]
fn a_recorder_keeps_the_last_bytes() {
    let _alone = alone();
    const KEPT: usize = 100_000;
    let recorder = FlightRecorder::builder().max_bytes(KEPT).start().unwrap();
    let file = TempFile::new("kept");
    let before = recorder.snapshot(&file.0).unwrap();
    for _ in 0..20 {
        work(1000);
        recorder.snapshot(&file.0).unwrap(); // a round each time
    }
    trace::log("the last");
    let summary = recorder.snapshot(&file.0).unwrap();
    assert!(summary.events > before.events);
    let trace = Trace::open(&file.0).unwrap();
    assert!(!trace.is_torn);
    assert_eq!(trace.events.len() as u64, summary.events);
    let said = |event: &mungo_trace::Event| match event.kind {
        Kind::Log { text, .. } => trace.string(text) == "the last",
        _ => false,
    };
    assert!(trace.events.iter().any(said));
    // At most what is kept, or one round if that is more; and the dictionaries.
    let bytes = std::fs::metadata(&file.0).unwrap().len();
    assert_eq!(bytes, summary.bytes);
    assert!(bytes < 20 * 1000 * 4 * 16, "{bytes} bytes: nothing was forgotten");
}

#[test]
fn a_slow_region_is_recorded() {
    let _alone = alone();
    let file = TempFile::new("slow");
    let recorder =
        FlightRecorder::builder().to(&file.0).on_slow_region(Duration::from_millis(5)).start().unwrap();
    go(|| {
        let _fast = trace::region("fast");
    })
    .join()
    .unwrap();
    go(|| {
        let _slow = trace::region("slow");
        mungo::sleep(Duration::from_millis(6));
    })
    .join()
    .unwrap();
    wait_until("there is a snapshot", || file.0.exists());
    drop(recorder);
    let trace = Trace::open(&file.0).unwrap();
    let slow = trace.events.iter().any(|event| match event.kind {
        Kind::RegionEnd { name, .. } => trace.string(name) == "slow",
        _ => false,
    });
    assert!(slow, "{:#?}", trace.events);
}

/// A snapshot is made at most once a second, and none is forgotten.
#[test]
fn a_second_slow_region_within_a_second_is_recorded_too() {
    let _alone = alone();
    let file = TempFile::new("slow-again");
    let recorder = FlightRecorder::builder().to(&file.0).on_slow_region(Duration::ZERO).start().unwrap();
    drop(trace::region("first"));
    wait_until("there is a snapshot", || file.0.exists());
    drop(trace::region("second"));
    let regions = |file: &TempFile| {
        let trace = Trace::open(&file.0).unwrap();
        trace.events.iter().filter(|event| matches!(event.kind, Kind::RegionBegin { .. })).count()
    };
    wait_until("there is another", || regions(&file) == 2);
    drop(recorder);
}

/// A wish may come in the middle of a round of the writer: the snapshot is that of the next round.
#[test]
fn what_came_just_before_a_wish_is_in_the_snapshot() {
    /// Takes long.
    struct Slow;

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(1));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let _alone = alone();
    let everything = trace::start_writer(Slow).unwrap();
    let often = TempFile::new("often");
    let rounds = FlightRecorder::builder().to(&often.0).on_slow_region(Duration::ZERO).start().unwrap();
    for round in 0..20 {
        let file = TempFile::new(&format!("wish-{round}"));
        let recorder = FlightRecorder::builder().to(&file.0).on_signal(libc::SIGUSR2).start().unwrap();
        go(|| {
            drop(trace::region("calls the writer"));
            std::thread::sleep(Duration::from_millis(1)); // in the middle of its round, most likely
            trace::log("just before");
            // SAFETY: the recorder catches it.
            unsafe { libc::raise(libc::SIGUSR2) };
        })
        .join()
        .unwrap();
        wait_until("there is a snapshot", || file.0.exists());
        drop(recorder);
        let trace = Trace::open(&file.0).unwrap();
        let is_it = |text| trace.string(text) == "just before";
        let has = trace.events.iter().any(|event| matches!(event.kind, Kind::Log { text, .. } if is_it(text)));
        assert!(has, "round {round}: {:#?}", trace.events);
    }
    drop(rounds);
    everything.stop().unwrap();
}

#[test]
fn a_signal_that_cannot_be_caught_is_an_error_each_time() {
    let _alone = alone();
    let file = TempFile::new("uncaught");
    for _ in 0..2 {
        let recorder = FlightRecorder::builder().to(&file.0).on_signal(libc::SIGKILL).start();
        assert_eq!(recorder.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

/// Of what happened before it started nothing is in a trace, also if another one is on.
#[test]
fn a_second_trace_begins_with_its_start() {
    let _alone = alone();
    let (first, second) = (Limited::new(usize::MAX), Limited::new(usize::MAX));
    let one = trace::start_writer(first.clone()).unwrap();
    work(100);
    let runtime = Runtime::builder().procs(1).build().unwrap();
    runtime.run(|| {
        trace::log("before");
        let two = trace::start_writer(second.clone()).unwrap();
        trace::log("after");
        two.stop().unwrap();
    });
    one.stop().unwrap();
    let logs = |limited: &Limited| {
        let trace = limited.read();
        let log = |event: &mungo_trace::Event| match event.kind {
            Kind::Log { text, .. } => Some(trace.string(text).to_owned()),
            _ => None,
        };
        trace.events.iter().filter_map(log).collect::<Vec<_>>()
    };
    assert_eq!(logs(&first), ["before", "after"]);
    assert_eq!(logs(&second), ["after"]);
}

/// The places and names of goroutines that the trace says existed, by their numbers.
fn existed(trace: &Trace) -> Vec<(u64, String, Option<String>)> {
    let name_of = |wanted: u64, runtime: u32| {
        trace.events.iter().find_map(|event| match event.kind {
            Kind::Named { g, name } if g == wanted && event.runtime == runtime => {
                Some(trace.string(name).to_owned())
            }
            _ => None,
        })
    };
    let of = |event: &mungo_trace::Event| match event.kind {
        Kind::Existed { g, place } => Some((g, trace.dictionary.place_name(place), name_of(g, event.runtime))),
        _ => None,
    };
    trace.events.iter().filter_map(of).collect()
}

fn count(trace: &Trace, wanted: impl Fn(&Kind) -> bool) -> usize {
    trace.events.iter().filter(|event| wanted(&event.kind)).count()
}

/// What one wants to know of a server that has run for days.
#[test]
fn goroutines_from_before_have_places_and_names_and_count_as_no_spawns() {
    let _alone = alone();
    let runtime = Runtime::builder().procs(2).scheduler(mungo::policy::Fifo::new()).build().unwrap();
    let (to, from) = mungo::chan::bounded::<u32>(0);
    let worker = {
        let from = from.clone();
        runtime
            .run(move || mungo::Builder::new().name("worker 17".to_owned()).spawn(move || from.recv()).unwrap())
    };
    let unnamed = runtime.spawn(move || from.recv());
    let before = runtime.metrics();
    let out = Limited::new(usize::MAX);
    let tracing = trace::start_writer(out.clone()).unwrap();
    runtime.run(|| go(|| ()).join().unwrap());
    let after = runtime.metrics();
    let summary = tracing.stop().unwrap();
    let trace = out.read();
    assert_eq!(trace.events.len() as u64, summary.events);
    assert_eq!(
        count(&trace, |kind| matches!(kind, Kind::Created { .. })) as u64,
        after.spawned - before.spawned
    );
    let all = existed(&trace);
    let find = |id: u64| all.iter().find(|(g, ..)| *g == id).unwrap_or_else(|| panic!("{id} of {all:?}"));
    let (_, place, name) = find(worker.goroutine().id().as_u64());
    assert!(place.contains("trace_writers.rs:"), "{place}");
    assert_eq!(name.as_deref(), Some("worker 17"));
    let (_, place, name) = find(unnamed.goroutine().id().as_u64());
    assert!(place.contains("trace_writers.rs:") && name.is_none(), "{place} {name:?}");
    let is_fifo = |kind: &Kind| matches!(kind, Kind::PolicyInForce { name } if trace.string(*name) == "fifo");
    assert_eq!(count(&trace, is_fifo), 1);
    drop(to);
    assert!(worker.join().unwrap().is_err() && unnamed.join().unwrap().is_err());
}

/// The recorder has forgotten how they were made.
#[test]
fn a_snapshot_knows_goroutines_from_before_its_events() {
    let _alone = alone();
    let recorder = FlightRecorder::builder().max_bytes(4 << 10).start().unwrap();
    let (to, from) = mungo::chan::bounded::<u32>(0);
    let worker = mungo::Builder::new().name("worker".to_owned()).spawn(move || from.recv()).unwrap();
    let id = worker.goroutine().id().as_u64();
    let file = TempFile::new("existed");
    wait_until("it is forgotten", || {
        work(1000);
        recorder.snapshot(&file.0).unwrap();
        let trace = Trace::open(&file.0).unwrap();
        count(&trace, |kind| matches!(kind, Kind::Created { g, .. } if *g == id)) == 0
    });
    let trace = Trace::open(&file.0).unwrap();
    let all = existed(&trace);
    let (_, place, name) = all.iter().find(|(g, ..)| *g == id).expect("it lives");
    assert!(place.contains("trace_writers.rs:"), "{place}");
    assert_eq!(name.as_deref(), Some("worker"));
    let first = trace.events.first().expect("events");
    assert!(
        matches!(first.kind, Kind::Existed { .. } | Kind::Named { .. } | Kind::PolicyInForce { .. }),
        "{first:?}"
    );
    drop(to);
    assert!(worker.join().unwrap().is_err());
}

/// A plain thread spawns them: their ends are often read before their beginnings.
#[test]
fn a_recorder_forgets_those_that_ended() {
    let _alone = alone();
    let recorder = FlightRecorder::builder().max_bytes(4 << 10).start().unwrap();
    for _ in 0..10_000 {
        go(|| ()).join().unwrap();
    }
    let file = TempFile::new("ended");
    recorder.snapshot(&file.0).unwrap();
    let told = existed(&Trace::open(&file.0).unwrap()).len();
    assert!(
        told < 1000,
        "{told} of 10,000 goroutines, all of which have ended, were there before the snapshot"
    );
}

/// Goroutines come and go while traces start: each that is told of is a whole one.
#[test]
fn a_trace_that_starts_among_short_lives_names_the_right_ones() {
    let _alone = alone();
    let ended = Arc::new(AtomicBool::new(false));
    let spawner = {
        let ended = ended.clone();
        go(move || {
            while !ended.load(Relaxed) {
                let name = |n: u32| mungo::Builder::new().name(format!("short {n}")).spawn(mungo::yield_now);
                (0..50).map(|n| name(n).unwrap()).for_each(|short| short.join().unwrap());
            }
        })
    };
    let mut told = 0;
    for _ in 0..50 {
        let out = Limited::new(usize::MAX);
        trace::start_writer(out.clone()).unwrap().stop().unwrap();
        let trace = out.read();
        for (_, place, name) in existed(&trace) {
            let is_short = name.as_deref().is_some_and(|name| name.starts_with("short "));
            assert!(!is_short || place.contains("trace_writers.rs:"), "{place} {name:?}");
            told += 1;
        }
    }
    ended.store(true, Relaxed);
    spawner.join().unwrap();
    assert!(told >= 50, "{told}: the one that spawns at least");
}

/// The file of the snapshot is a pipe that nobody empties for a while.
#[test]
fn a_slow_snapshot_does_not_hold_up_other_traces() {
    let _alone = alone();
    let file = TempFile::new("slow-pipe");
    let beside = TempFile::new("slow-pipe.part");
    let name = std::ffi::CString::new(beside.0.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let recorder = FlightRecorder::start().unwrap();
    work(5000);
    let path = file.0.clone();
    let snapshot = std::thread::spawn(move || recorder.snapshot(path));
    let mut pipe = std::fs::File::open(&beside.0).unwrap();
    let mut bytes = vec![0; 1];
    pipe.read_exact(&mut bytes).unwrap(); // it is written, and there is more than the pipe holds
    let started = Arc::new(AtomicBool::new(false));
    let other = {
        let started = started.clone();
        std::thread::spawn(move || {
            let tracing = trace::start_writer(io::sink()).unwrap();
            started.store(true, Relaxed);
            tracing.stop().unwrap();
        })
    };
    wait_until("another trace has started", || started.load(Relaxed));
    assert!(!snapshot.is_finished(), "the pipe is full");
    pipe.read_to_end(&mut bytes).unwrap();
    other.join().unwrap();
    let summary = snapshot.join().unwrap().unwrap();
    assert_eq!(summary.bytes, bytes.len() as u64);
    Trace::read(&bytes[..]).unwrap();
}

#[test]
fn a_signal_is_recorded() {
    let _alone = alone();
    let file = TempFile::new("signal");
    let recorder = FlightRecorder::builder().to(&file.0).on_signal(libc::SIGUSR2).start().unwrap();
    work(100);
    // SAFETY: the recorder catches it.
    unsafe { libc::raise(libc::SIGUSR2) };
    wait_until("there is a snapshot", || file.0.exists());
    drop(recorder);
    assert!(starts(&Trace::open(&file.0).unwrap()) > 0);
    let error = FlightRecorder::builder().to("x").on_signal(9999).start().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    let error = FlightRecorder::builder().on_deadlock().start().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    assert!(!trace::is_on(), "a recorder that could not start");
}

/// A policy that panics when it is asked.
struct Panics;

impl Scheduler for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn next_task(&self, _proc: &mut Proc<'_>) -> Option<Next> {
        panic!("on purpose");
    }
}

#[test]
fn a_policy_that_is_replaced_is_recorded() {
    let _alone = alone();
    let file = TempFile::new("policy");
    let recorder = FlightRecorder::builder().to(&file.0).on_policy_replaced().start().unwrap();
    let runtime = Runtime::builder().procs(1).scheduler(Panics).build().unwrap();
    runtime.run(|| go(|| ()).join().unwrap());
    wait_until("there is a snapshot", || file.0.exists());
    drop(recorder);
    common::end(runtime);
    let trace = Trace::open(&file.0).unwrap();
    let names: Vec<_> = trace
        .events
        .iter()
        .filter_map(|event| match event.kind {
            Kind::PolicyChanged { name } => Some(trace.string(name)),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["panics", "default"]);
}

#[test]
fn nine_recorders_are_too_many() {
    let _alone = alone();
    let recorders: Vec<_> = (0..8).map(|_| FlightRecorder::start().unwrap()).collect();
    assert!(FlightRecorder::start().is_err());
    drop(recorders);
    assert!(!trace::is_on());
    drop(FlightRecorder::start().unwrap());
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| task.ok());
    let is_ours = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "mungo-trace")
    };
    wait_until("the thread has left", || !threads().any(is_ours));
}
