//! What a trace says is what happened.

mod common;
mod trace_support;

use common::{go_named, wait_until_parked};
use mungo::chan::unbounded;
use mungo::policy::Chaos;
use mungo::{Metrics, Runtime, trace};
use mungo_trace::{Event, How, Kind, Queue, StackEnd, StackId, Stop, Trace};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trace_support::{Memory, alone};

/// Waits until all goroutines of a runtime are buried, and returns what it counted.
fn settled(runtime: &Runtime) -> Metrics {
    let patience = Instant::now() + Duration::from_secs(60);
    while runtime.metrics().goroutines != 0 {
        assert!(Instant::now() < patience, "goroutines are left");
        std::thread::yield_now();
    }
    runtime.metrics()
}

/// Traces one runtime from its begin until all its goroutines have ended.
fn traced(runtime: impl FnOnce() -> Runtime, work: impl FnOnce() + Send) -> (Trace, Metrics) {
    traced_with(false, runtime, work)
}

/// Whether traces can have stacks here.
const HAS_STACKS: bool = cfg!(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux"));

/// Traces, with stacks or without.
fn traced_with(
    stacks: bool,
    runtime: impl FnOnce() -> Runtime,
    work: impl FnOnce() + Send,
) -> (Trace, Metrics) {
    let memory = Memory::default();
    let tracing = trace::Tracing::builder().stacks(stacks).start_writer(memory.clone()).unwrap();
    let runtime = runtime();
    runtime.run(work);
    let metrics = settled(&runtime);
    let summary = tracing.stop().unwrap();
    let trace = memory.read();
    assert!(!trace.is_torn);
    assert_eq!((summary.dropped, trace.dropped), (0, 0), "dropped");
    assert_eq!(summary.events, trace.events.len() as u64);
    runtime.shutdown(Duration::from_secs(60)).unwrap();
    (trace, metrics)
}

fn count(trace: &Trace, wanted: impl Fn(&Kind) -> bool) -> u64 {
    trace.events.iter().filter(|event| wanted(&event.kind)).count() as u64
}

/// Compares all sums that both have.
fn assert_equal(trace: &Trace, metrics: &Metrics) {
    let sum = |of: fn(&mungo::ProcMetrics) -> u64| metrics.per_proc.iter().map(of).sum::<u64>();
    let stops =
        |wanted: fn(&Stop) -> bool| count(trace, |kind| matches!(kind, Kind::Stop { why, .. } if wanted(why)));
    let starts = |kind: &Kind| matches!(kind, Kind::Start { queue, .. } if *queue != Queue::Thread);
    let pairs = [
        ("spawned", metrics.spawned, count(trace, |kind| matches!(kind, Kind::Created { .. }))),
        ("finished", metrics.finished, stops(|why| matches!(why, Stop::Ended))),
        ("switches", sum(|p| p.switches), count(trace, starts)),
        ("parks", sum(|p| p.parks), stops(|why| matches!(why, Stop::Parked { .. }))),
        ("yields", sum(|p| p.yields), stops(|why| matches!(why, Stop::Yielded))),
        ("preemptions", sum(|p| p.preemptions), stops(|why| matches!(why, Stop::Preempted { .. }))),
        ("retakes", sum(|p| p.retakes), count(trace, |kind| matches!(kind, Kind::BlockedFound { .. }))),
        ("steals", sum(|p| p.steals), count(trace, |kind| matches!(kind, Kind::Steal { .. }))),
    ];
    for (name, counted, traced) in pairs {
        assert_eq!(counted, traced, "{name}: the counter, and the trace");
    }
    for (at, p) in metrics.per_proc.iter().enumerate() {
        let here = |event: &&Event| event.p == Some(at as u32) && starts(&event.kind);
        assert_eq!(trace.events.iter().filter(here).count() as u64, p.switches, "switches of P {at}");
    }
}

/// Checks that the life of each goroutine makes sense.
fn assert_lives(trace: &Trace) {
    #[derive(Debug, PartialEq)]
    enum State {
        Made,
        Ready,
        Runs,
        Off,
        Ended,
    }
    let mut states: HashMap<u64, State> = HashMap::new();
    for (at, event) in trace.events.iter().enumerate() {
        let (g, allowed, next): (u64, &[State], State) = match event.kind {
            Kind::Created { g, .. } => {
                assert!(states.insert(g, State::Made).is_none(), "{g} was made twice");
                continue;
            }
            // One that was queued already may be moved.
            Kind::Ready { g, .. } => (g, &[State::Made, State::Off, State::Ready], State::Ready),
            // One that lost its P goes on without a queue, or where it is.
            Kind::Start { g, queue: Queue::Thread | Queue::None, .. } => {
                (g, &[State::Ready, State::Off, State::Runs], State::Runs)
            }
            Kind::Start { g, .. } => (g, &[State::Ready], State::Runs),
            Kind::Stop { g, why: Stop::Ended } => (g, &[State::Runs, State::Off], State::Ended),
            Kind::Stop { g, .. } => (g, &[State::Runs, State::Off], State::Off),
            _ => continue,
        };
        let was = states.insert(g, next).unwrap_or(State::Ended);
        let near = &trace.events[at.saturating_sub(12)..(at + 12).min(trace.events.len())];
        assert!(allowed.contains(&was), "goroutine {g} was {was:?}, then {event:?}\n{near:#?}");
    }
    assert!(states.values().all(|state| *state == State::Ended), "{states:?}");
}

/// Computes without a call of the runtime.
fn compute(long: Duration) {
    let deadline = common::Deadline::after(long);
    while !deadline.passed() {
        std::hint::spin_loop();
    }
}

/// A bit of everything, by a seed: channels, yields, sleeps, computations, blocked threads, locked ones.
fn mixture(seed: u64, goroutines: u64) {
    let (to, from) = unbounded();
    let handles: Vec<_> = (0..goroutines)
        .map(|n| {
            let (to, from) = (to.clone(), from.clone());
            mungo::go(move || {
                let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ n.wrapping_mul(0xBF58_476D_1CE4_E5B9);
                for _ in 0..20 {
                    dice ^= dice << 13;
                    dice ^= dice >> 7;
                    dice ^= dice << 17;
                    match dice % 64 {
                        0..24 => mungo::yield_now(),
                        24..40 => {
                            to.send(dice).unwrap();
                            from.recv().unwrap();
                        }
                        40..50 => mungo::go(mungo::yield_now).join().unwrap(),
                        50..58 => mungo::sleep(Duration::from_micros(dice % 300)),
                        58..60 => compute(Duration::from_millis(1)),
                        60 => mungo::blocking(|| std::thread::sleep(Duration::from_millis(1))),
                        61 => std::thread::sleep(Duration::from_millis(2)),
                        62 => {
                            let _here = mungo::lock_os_thread();
                            mungo::yield_now();
                        }
                        _ => {
                            let _region = trace::region("region");
                            trace::log(format_args!("{n}"));
                        }
                    }
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

fn runtime_of(procs: usize) -> Runtime {
    Runtime::builder().procs(procs).time_slice(Duration::from_millis(2)).build().unwrap()
}

#[test]
fn the_sums_of_a_trace_are_those_of_the_metrics() {
    let _alone = alone();
    for (seed, procs) in [(1, 1), (2, 2), (3, 4)] {
        let (trace, metrics) = traced(|| runtime_of(procs), || mixture(seed, 120));
        assert_equal(&trace, &metrics);
        assert_lives(&trace);
    }
}

/// Threads that are no Ms share their memory for events, which has to last from one round of the writer to the next:
/// all of this would fit at once.
#[test]
fn a_flood_from_plain_threads_is_all_there() {
    let _alone = alone();
    const THREADS: usize = 2;
    const SPAWNS: usize = 1_000;
    let memory = Memory::default();
    let tracing = trace::start_writer(memory.clone()).unwrap();
    let runtime = runtime_of(2);
    let text = "t".repeat(1000);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..SPAWNS {
                    runtime.spawn(|| ());
                    (0..2).for_each(|_| trace::log(&text)); // 64 places each
                }
            });
        }
    });
    let metrics = settled(&runtime);
    let summary = tracing.stop().unwrap();
    let trace = memory.read();
    assert_eq!((summary.dropped, trace.dropped), (0, 0));
    assert_eq!(summary.events, trace.events.len() as u64);
    assert_eq!(metrics.spawned, (THREADS * SPAWNS) as u64);
    assert_equal(&trace, &metrics);
    assert_lives(&trace);
    let logs = |kind: &Kind| matches!(kind, Kind::Log { text: id, .. } if trace.string(*id) == text);
    assert_eq!(count(&trace, logs), (2 * THREADS * SPAWNS) as u64);
    runtime.shutdown(Duration::from_secs(60)).unwrap();
}

/// Each event that shall have a stack has one, which is known.
#[test]
fn stacks_change_nothing_of_the_sums() {
    let _alone = alone();
    if !HAS_STACKS {
        let refused = trace::Tracing::builder().stacks(true).start_writer(io::sink()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        return;
    }
    for (seed, procs) in [(1, 1), (2, 2), (3, 4)] {
        let (trace, metrics) = traced_with(true, || runtime_of(procs), || mixture(seed, 120));
        assert_equal(&trace, &metrics);
        assert_lives(&trace);
        assert_stacks(&trace);
    }
}

fn assert_stacks(trace: &Trace) {
    for event in &trace.events {
        let has_stack = match event.kind {
            Kind::Stop { why: Stop::Preempted { how: How::Taken, .. }, .. } => false,
            Kind::Stop { why: Stop::Parked { .. } | Stop::Preempted { .. } | Stop::Blocked, .. } => true,
            Kind::Created { parent, .. } => parent.is_some(),
            _ => false,
        };
        assert_eq!(event.stack.is_some(), has_stack, "{event:?}");
        let Some(stack) = event.stack else { continue };
        let known = trace.dictionary.stack(stack).expect("it says what it is");
        assert_eq!(known.end, StackEnd::Whole, "{event:?}: {:?}", names(trace, stack));
        // One that loses its P while it ends is in the scheduler alone.
        let has_function = event.kind.goroutine().is_some() && !trace.dictionary.frames(stack).is_empty();
        let ends = matches!(event.kind, Kind::Stop { why: Stop::Blocked | Stop::Preempted { .. }, .. });
        assert!(has_function || ends, "{event:?}: {:?}", names(trace, stack));
    }
}

fn names(trace: &Trace, stack: StackId) -> Vec<&str> {
    trace.dictionary.all_frames(stack).iter().map(|frame| trace.string(frame.function)).collect()
}

#[test]
fn chaos_does_not_confuse_a_trace() {
    let _alone = alone();
    let runtime = || Runtime::builder().procs(3).scheduler(Chaos::new(7)).build().unwrap();
    let (trace, metrics) = traced_with(HAS_STACKS, runtime, || mixture(4, 100));
    assert_equal(&trace, &metrics);
    assert_lives(&trace);
    let changed = count(&trace, |kind| matches!(kind, Kind::PolicyChanged { .. }));
    assert_eq!(changed, 1);
    assert!(count(&trace, |kind| matches!(kind, Kind::Start { queue: Queue::Policy, .. })) > 100);
}

#[test]
fn a_wait_for_a_lock_names_its_holder() {
    let _alone = alone();
    let ids = Arc::new(Mutex::new((0, 0)));
    let ids_there = ids.clone();
    let (trace, metrics) = traced(
        || runtime_of(1),
        move || {
            let lock = Arc::new(mungo::sync::Mutex::new(()));
            let held = lock.lock();
            let waiter = go_named("waiter", {
                let lock = lock.clone();
                move || drop(lock.lock())
            });
            *ids_there.lock().unwrap() = (mungo::current().id().as_u64(), waiter.goroutine().id().as_u64());
            wait_until_parked("waiter");
            drop(held);
            waiter.join().unwrap();
        },
    );
    assert_equal(&trace, &metrics);
    let (holder, waiter) = *ids.lock().unwrap();
    let held = |event: &Event| matches!(event.kind, Kind::HeldBy { .. });
    let at = trace.events.iter().position(held).expect("an event");
    assert_eq!(trace.events[at].kind, Kind::HeldBy { g: Some(waiter), holder });
    let mut stops = trace.events[at..].iter().filter(|event| matches!(event.kind, Kind::Stop { .. }));
    let next = stops.next().map(|event| event.kind);
    assert!(matches!(next, Some(Kind::Stop { g, why: Stop::Parked { .. } }) if g == waiter), "{next:?}");
    assert_eq!(count(&trace, |kind| matches!(kind, Kind::HeldBy { .. })), 1);
}

/// The objects that goroutines waited for, by their reasons.
fn waits(trace: &Trace) -> Vec<(u64, &str, u64)> {
    let of = |event: &Event| match event.kind {
        Kind::Stop { g, why: Stop::Parked { reason, object } } => Some((g, trace.string(reason), object)),
        _ => None,
    };
    trace.events.iter().filter_map(of).collect()
}

#[test]
fn a_stop_says_what_is_waited_for() {
    let _alone = alone();
    const ROUNDS: usize = 100;
    let (joined, fd) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (joined_there, fd_there) = (joined.clone(), fd.clone());
    let (trace, metrics) = traced(
        || runtime_of(1),
        move || {
            let (to, from_there) = mungo::chan::bounded::<usize>(0);
            let (back, from_here) = mungo::chan::bounded::<usize>(0);
            let pong = mungo::go(move || from_there.iter().for_each(|n| back.send(n).unwrap()));
            *joined_there.lock().unwrap() = pong.goroutine().id().as_u64();
            for n in 0..ROUNDS {
                to.send(n).unwrap();
                assert_eq!(from_here.recv(), Ok(n));
            }
            drop(to);
            pong.join().unwrap();
            let (reader, mut writer) = mungo::net::UnixStream::pair().unwrap();
            *fd_there.lock().unwrap() = std::os::fd::AsRawFd::as_raw_fd(&reader);
            let read = go_named("reads", move || (&reader).read_exact(&mut [0; 1]).unwrap());
            wait_until_parked("reads");
            writer.write_all(&[1]).unwrap();
            read.join().unwrap();
        },
    );
    assert_equal(&trace, &metrics);
    assert_lives(&trace);
    let all = waits(&trace);
    let of = |reason: &str| -> Vec<u64> {
        let mut objects: Vec<u64> = all.iter().filter(|w| w.1.starts_with(reason)).map(|w| w.2).collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    };
    let channels = of("chan ");
    assert!(channels.len() == 2 && !channels.contains(&0), "two channels: {channels:?}");
    assert!(of("join").contains(&*joined.lock().unwrap()), "{all:?}");
    assert_eq!(of("net read"), [*fd.lock().unwrap() as u64], "{all:?}");
    // Two goroutines on one P hand over to each other, and the waker is known.
    let woken = |kind: &Kind| matches!(kind, Kind::Ready { waker: Some(_), queue: Queue::Next, .. });
    assert!(count(&trace, woken) >= ROUNDS as u64);
}
