//! A trace with stacks says where goroutines stop.
#![cfg(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux"))]

#[macro_use]
mod common;
mod trace_support;

use common::{TempFile, child, go_named, wait_until_parked};
use mungo::chan::{Receiver, bounded};
use mungo::trace::{self, FlightRecorder, Tracing};
use mungo::{Runtime, go, sync};
use mungo_trace::{Event, How, Kind, StackEnd, StackId, Stop, Trace};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use trace_support::{Memory, alone};

children!(ends, computes_beside_another);

/// Traces with stacks what a goroutine of a runtime with so many Ps does.
fn traced(procs: usize, work: impl FnOnce() + Send) -> Trace {
    let memory = Memory::default();
    let tracing = Tracing::builder().stacks(true).start_writer(memory.clone()).unwrap();
    let slice = Duration::from_millis(2);
    let runtime = Runtime::builder().procs(procs).time_slice(slice).build().unwrap();
    runtime.run(work);
    runtime.shutdown(common::PATIENCE).unwrap();
    let summary = tracing.stop().unwrap();
    let trace = memory.read();
    assert!(!trace.is_torn);
    assert_eq!((summary.stacks_lost, summary.events), (0, trace.events.len() as u64));
    trace
}

/// The last words of the names of a stack's functions that are the program's, the innermost first.
fn functions(trace: &Trace, stack: StackId) -> Vec<String> {
    let frames = trace.dictionary.frames(stack);
    let name = |function: &str| function.rsplit("::").next().unwrap_or_default().to_owned();
    frames.iter().map(|frame| name(trace.string(frame.function))).collect()
}

/// The stacks of the stops for this reason.
fn parked<'a>(trace: &'a Trace, wanted: &'a str) -> impl Iterator<Item = StackId> + 'a {
    trace.events.iter().filter_map(move |event| match event.kind {
        Kind::Stop { why: Stop::Parked { reason, .. }, .. } if trace.string(reason).starts_with(wanted) => {
            Some(event.stack.expect("a stop that parks has a stack"))
        }
        _ => None,
    })
}

/// Whether these functions are in the list, in this order, perhaps with others in between.
fn has_in_order(all: &[String], wanted: &[&str]) -> bool {
    let mut all = all.iter();
    wanted.iter().all(|name| all.any(|function| function == name))
}

/// Checks that a stop for this reason has these functions, from the innermost on, and that its stack is whole.
#[track_caller]
fn assert_parked(trace: &Trace, reason: &str, wanted: &[&str]) {
    let all: Vec<_> = parked(trace, reason).map(|stack| (stack, functions(trace, stack))).collect();
    let found = all.iter().find(|(_, functions)| has_in_order(functions, wanted));
    let (stack, functions) = found.unwrap_or_else(|| panic!("{reason}, {wanted:?}: {all:#?}"));
    assert_eq!(trace.dictionary.stack(*stack).unwrap().end, StackEnd::Whole, "{functions:?}");
    let outermost = functions.last().unwrap();
    assert!(outermost.contains("closure"), "the goroutine's closure is the outermost: {functions:?}");
}

#[inline(never)]
fn takes_a_value(from: &Receiver<u64>) -> u64 {
    black_box(from.recv().unwrap()) + 1
}

#[inline(never)]
fn asks_for_a_value(from: &Receiver<u64>) -> u64 {
    black_box(takes_a_value(black_box(from))) + 1
}

#[inline(never)]
fn takes_the_lock(lock: &sync::Mutex<u64>) -> u64 {
    black_box(*lock.lock()) + 1
}

#[inline(never)]
fn sleeps_for_a_while() -> u64 {
    mungo::sleep(Duration::from_millis(1));
    black_box(1)
}

/// Parks in a channel, a mutex and a sleep, in functions with names.
fn parks() {
    let (to, from) = bounded(0);
    let taker = go_named("taker", move || asks_for_a_value(&from));
    wait_until_parked("taker");
    to.send(1).unwrap();
    assert_eq!(taker.join().unwrap(), 3);
    let lock = Arc::new(sync::Mutex::new(1));
    let held = lock.lock();
    let waiter = go_named("waiter", {
        let lock = lock.clone();
        move || takes_the_lock(&lock)
    });
    wait_until_parked("waiter");
    drop(held);
    assert_eq!(waiter.join().unwrap(), 2);
    assert_eq!(go(|| black_box(sleeps_for_a_while()) + 1).join().unwrap(), 2);
}

#[test]
fn a_stop_has_the_functions_that_led_to_it() {
    let _alone = alone();
    for procs in [1, 3] {
        let trace = traced(procs, parks);
        assert_parked(&trace, "chan receive", &["takes_a_value", "asks_for_a_value"]);
        assert_parked(&trace, "mutex", &["takes_the_lock"]);
        assert_parked(&trace, "sleep", &["sleeps_for_a_while"]);
        let named = |frame: &mungo_trace::Frame| trace.string(frame.function).ends_with("takes_a_value");
        let mut frames = parked(&trace, "chan receive").flat_map(|stack| trace.dictionary.frames(stack));
        let frame = frames.find(named).unwrap();
        assert!(trace.string(frame.file).ends_with("tests/trace_stacks.rs") && frame.line > 0, "{frame:?}");
    }
}

#[inline(never)]
fn makes_a_goroutine() {
    go(mungo::yield_now).join().unwrap();
    black_box(());
}

#[test]
fn a_goroutine_has_the_stack_of_its_maker() {
    let _alone = alone();
    let trace = traced(1, makes_a_goroutine);
    let created = |event: &Event| matches!(event.kind, Kind::Created { parent: Some(_), .. });
    let event = trace.events.iter().find(|event| created(event)).unwrap();
    let functions = functions(&trace, event.stack.unwrap());
    assert!(has_in_order(&functions, &["makes_a_goroutine"]), "{functions:?}");
    let others =
        trace.events.iter().filter(|event| matches!(event.kind, Kind::Start { .. } | Kind::Ready { .. }));
    assert!(others.into_iter().all(|event| event.stack.is_none()));
}

#[inline(never)]
fn goes_down(depth: usize, from: &Receiver<u64>) -> u64 {
    match depth {
        0 => takes_a_value(from),
        _ => black_box(goes_down(depth - 1, from)) + 1,
    }
}

#[test]
fn a_deep_stack_is_cut_at_its_inner_calls() {
    let _alone = alone();
    const DEPTH: usize = 64;
    let trace = traced(1, || {
        let (to, from) = bounded(0);
        let deep = go_named("deep", move || goes_down(200, &from));
        wait_until_parked("deep");
        to.send(1).unwrap();
        deep.join().unwrap();
    });
    let stacks: Vec<_> = parked(&trace, "chan receive").collect();
    let [stack] = stacks[..] else { panic!("{stacks:?}") };
    let known = trace.dictionary.stack(stack).unwrap();
    assert_eq!((known.addresses.len(), known.end), (DEPTH, StackEnd::Cut));
    let functions = functions(&trace, stack);
    assert!(has_in_order(&functions, &["takes_a_value", "goes_down", "goes_down"]), "{functions:?}");
    assert_eq!(functions.last().unwrap(), "goes_down");
}

static STOP: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn spins_until_it_is_told() -> u64 {
    let mut n = 0u64;
    while !STOP.load(Relaxed) {
        n = n.wrapping_add(1);
    }
    n
}

/// One P: the other goroutine runs when the first one is preempted.
fn computes() {
    STOP.store(false, Relaxed);
    let other = go(|| STOP.store(true, Relaxed));
    spins_until_it_is_told();
    other.join().unwrap();
}

fn preempted(trace: &Trace) -> Vec<(How, StackId)> {
    let stops = trace.events.iter().filter_map(|event| match event.kind {
        Kind::Stop { why: Stop::Preempted { how, .. }, .. } => Some((how, event.stack?)),
        _ => None,
    });
    stops.collect()
}

#[test]
fn a_loop_that_is_interrupted_is_known() {
    let _alone = alone();
    let trace = traced(1, || (0..5).for_each(|_| computes()));
    let all = preempted(&trace);
    let injected = all.iter().filter(|(how, _)| *how == How::Injected);
    let stacks: Vec<_> = injected.map(|(_, stack)| (functions(&trace, *stack), *stack)).collect();
    let is_loop = |functions: &Vec<String>| has_in_order(functions, &["spins_until_it_is_told", "computes"]);
    assert!(stacks.iter().any(|(functions, _)| is_loop(functions)), "{all:?} {stacks:?}");
    for (functions, stack) in stacks {
        // Or at the end of the call that spawns the other one.
        assert!(has_in_order(&functions, &["computes"]), "{functions:?}");
        assert_eq!(trace.dictionary.stack(stack).unwrap().end, StackEnd::Whole);
    }
}

fn computes_beside_another() {
    let runtime = Runtime::builder().procs(1).time_slice(Duration::from_millis(2)).build().unwrap();
    runtime.run(|| {
        parks(); // the rules of the outer functions
        (0..20).for_each(|_| computes());
    });
    runtime.shutdown(common::PATIENCE).unwrap();
}

/// The handler of the signal sleeps with the thread: it walks the stack below.
#[test]
fn a_loop_that_is_interrupted_with_its_thread_is_known() {
    let file = TempFile::new("by-thread");
    let mut command = child::command("computes_beside_another");
    command
        .env("MUNGO_TRACE", &file.0)
        .env("MUNGO_TRACE_STACKS", "1")
        .env("MUNGO_DEBUG", "asyncpreempt=thread");
    child::finish(command).assert_success().assert_does_not_say("MUNGO_TRACE");
    let trace = Trace::open(&file.0).unwrap();
    let all = preempted(&trace);
    let by_thread = all.iter().filter(|(how, _)| *how == How::ByThread);
    let innermost: Vec<_> = by_thread.map(|(_, stack)| functions(&trace, *stack).into_iter().next()).collect();
    assert!(!innermost.is_empty(), "{all:?}");
    let is_loop = |name: &Option<String>| name.as_deref().is_some_and(|n| n != "computes");
    assert!(innermost.iter().all(is_loop), "{innermost:?}");
}

#[inline(never)]
fn blocks_its_thread(begun: &AtomicBool, until: &AtomicBool) {
    mungo::blocking(|| {
        begun.store(true, Relaxed);
        while !until.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    black_box(());
}

#[test]
fn a_call_that_blocked_is_known_when_it_comes_back() {
    let _alone = alone();
    let trace = traced(1, || {
        static BLOCKS: AtomicBool = AtomicBool::new(false);
        static RUNS: AtomicBool = AtomicBool::new(false);
        STOP.store(false, Relaxed);
        let other = go(|| {
            while !BLOCKS.load(Relaxed) {
                mungo::yield_now();
            }
            RUNS.store(true, Relaxed); // it has the only P now
            spins_until_it_is_told()
        });
        blocks_its_thread(&BLOCKS, &RUNS);
        STOP.store(true, Relaxed);
        other.join().unwrap();
    });
    let blocked = |event: &&Event| matches!(event.kind, Kind::Stop { why: Stop::Blocked, .. });
    let stacks = trace.events.iter().filter(blocked).map(|event| event.stack.unwrap());
    let all: Vec<_> = stacks.map(|stack| functions(&trace, stack)).collect();
    assert!(all.iter().any(|functions| has_in_order(functions, &["blocks_its_thread"])), "{all:?}");
}

#[test]
fn nothing_is_read_of_a_stack_that_is_not_the_goroutines() {
    let _alone = alone();
    let trace = traced(1, || {
        let (to, from) = bounded(0);
        let taker = go_named("elsewhere", move || stacker::grow(1 << 20, || takes_a_value(&from)));
        wait_until_parked("elsewhere");
        to.send(1).unwrap();
        assert_eq!(taker.join().unwrap(), 2);
    });
    let stacks: Vec<_> = parked(&trace, "chan receive").collect();
    let [stack] = stacks[..] else { panic!("{stacks:?}") };
    let known = trace.dictionary.stack(stack).unwrap();
    assert_eq!((known.addresses.len(), known.end), (0, StackEnd::Foreign));
}

#[test]
fn a_file_that_is_cut_off_has_the_stacks_before() {
    let _alone = alone();
    let memory = Memory::default();
    let tracing = Tracing::builder().stacks(true).start_writer(memory.clone()).unwrap();
    (0..3).for_each(|_| parks());
    tracing.stop().unwrap();
    let bytes = memory.0.lock().unwrap().clone();
    let whole = Trace::read(&bytes[..]).unwrap();
    for part in 1..20 {
        let trace = Trace::read(&bytes[..bytes.len() * part / 20]).unwrap();
        assert!(trace.is_torn && trace.events.len() <= whole.events.len());
        for event in &trace.events {
            assert!(event.stack.is_none_or(|stack| trace.dictionary.frames(stack).len() < 100));
        }
    }
    assert_parked(&whole, "mutex", &["takes_the_lock"]);
}

#[test]
fn a_trace_that_does_not_want_stacks_has_none() {
    let _alone = alone();
    let (with, without) = (Memory::default(), Memory::default());
    let first = trace::start_writer(without.clone()).unwrap();
    parks();
    let second = Tracing::builder().stacks(true).start_writer(with.clone()).unwrap();
    (0..20).for_each(|_| parks());
    second.stop().unwrap();
    parks();
    let summary = first.stop().unwrap();
    let plain = without.read();
    assert_eq!((plain.events.len() as u64, plain.is_torn), (summary.events, false));
    assert!(plain.events.iter().all(|event| event.stack.is_none()));
    let trace = with.read();
    assert_parked(&trace, "chan receive", &["takes_a_value", "asks_for_a_value"]);
    let of_both = plain.events.iter().filter(|event| matches!(event.kind, Kind::Created { .. })).count();
    assert!(of_both >= 22 * 3, "{of_both} goroutines");
}

#[test]
fn a_recorder_names_the_stacks_of_what_it_kept() {
    let _alone = alone();
    let last = Duration::from_millis(100);
    let recorder = FlightRecorder::builder().last(last).stacks(true).start().unwrap();
    parks(); // the stacks are new here, in blocks that the recorder drops
    mungo::sleep(Duration::from_millis(300));
    let file = TempFile::new("stacks-snapshot");
    let trace = loop {
        parks();
        recorder.snapshot(&file.0).unwrap();
        let trace = Trace::open(&file.0).unwrap();
        // On a busy machine these are dropped too by now.
        if parked(&trace, "chan receive").count() + parked(&trace, "sleep").count() > 1 {
            break trace;
        }
    };
    let began = trace.events.iter().find(|event| matches!(event.kind, Kind::Stop { .. })).unwrap().time_ns;
    assert!(began > 100_000_000, "the first blocks were dropped: {began}");
    assert_parked(&trace, "chan receive", &["takes_a_value", "asks_for_a_value"]);
    assert_parked(&trace, "sleep", &["sleeps_for_a_while"]);
}

fn ends() {
    go(parks).join().unwrap();
}

#[test]
fn the_environment_asks_for_stacks() {
    for (last, wanted) in [(None, "1"), (Some("10s"), "1"), (None, "0")] {
        let file = TempFile::new("env-stacks");
        let mut command = child::command("ends");
        command.env("MUNGO_TRACE", &file.0).env("MUNGO_TRACE_STACKS", wanted);
        if let Some(last) = last {
            command.env("MUNGO_TRACE_LAST", last);
        }
        child::finish(command).assert_success().assert_does_not_say("MUNGO_TRACE");
        let trace = Trace::open(&file.0).unwrap();
        match wanted {
            "1" => assert_parked(&trace, "mutex", &["takes_the_lock"]),
            _ => assert!(trace.events.iter().all(|event| event.stack.is_none())),
        }
    }
}
