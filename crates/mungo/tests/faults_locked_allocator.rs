//! The process's allocator has one lock, and goroutines are interrupted while they hold it. Whoever needs memory then
//! waits for a goroutine that waits for a P; so nothing that gives Ps away may need any. Each case is a process of its
//! own.

#[macro_use]
mod common;

use common::{child, wait_until};
use mungo::Runtime;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

children!(
    one_p,
    two_ps,
    with_blocking,
    with_calls,
    with_set_procs,
    with_a_policy,
    with_alarms,
    with_schedtrace,
    stuck_in_the_runtime,
    let_go_on_and_back
);

/// A spin lock around the system's allocator. It is held for long, so that most interruptions come meanwhile.
struct Locked(AtomicBool);

#[global_allocator]
static ALLOCATOR: Locked = Locked(AtomicBool::new(false));

impl Locked {
    fn with<T>(&self, f: impl FnOnce() -> T) -> T {
        while self.0.swap(true, Acquire) {
            spin_loop();
        }
        let result = f();
        (0..200).for_each(|_| spin_loop());
        self.0.store(false, Release);
        result
    }
}

// SAFETY: the system's allocator, one call at a time.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ARMED.load(Relaxed) && ARMED.swap(false, Relaxed) {
            TRAPPED.store(true, Relaxed);
            while !FREED.load(Relaxed) {
                spin_loop();
            }
        }
        // SAFETY: by the caller.
        self.with(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        self.with(|| unsafe { System.dealloc(at, layout) })
    }
}

/// The next allocation does not return before `FREED`.
static ARMED: AtomicBool = AtomicBool::new(false);
static TRAPPED: AtomicBool = AtomicBool::new(false);
static FREED: AtomicBool = AtomicBool::new(false);

/// Goroutines that only allocate, until the drop.
struct Load {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

impl Load {
    fn on(runtime: &Runtime) -> Load {
        let load = Load { stop: Arc::default(), rounds: Arc::default() };
        for _ in 0..4 {
            let (stop, rounds) = (load.stop.clone(), load.rounds.clone());
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    drop(black_box(Box::new([0u8; 64])));
                    (0..400).for_each(|_| spin_loop()); // the lock is not fair: others shall get it at all
                    rounds.fetch_add(1, Relaxed);
                }
            });
        }
        load
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

fn runtime(procs: usize) -> Runtime {
    Runtime::builder().procs(procs).time_slice(Duration::from_millis(1)).build().unwrap()
}

/// Others go on beside those that allocate: a sleeper, one that spawns, and what `beside` does on a plain thread.
fn go_on(runtime: Runtime, beside: impl FnOnce(&Runtime)) {
    let load = Load::on(&runtime);
    let sleeper = runtime.spawn(|| (0..40).for_each(|_| mungo::sleep(Duration::from_millis(1))));
    let spawner = runtime.spawn(|| (0..200).map(|i| mungo::go(move || i).join().unwrap()).sum::<u64>());
    beside(&runtime);
    sleeper.join().unwrap();
    assert_eq!(spawner.join().unwrap(), 199 * 100);
    let rounds = load.rounds.load(Relaxed);
    wait_until("those that allocate go on", || load.rounds.load(Relaxed) > rounds + 100);
    drop(load);
    common::end(runtime);
    println!("done");
}

fn one_p() {
    go_on(runtime(1), |_| ());
}

fn two_ps() {
    go_on(runtime(2), |_| ());
}

/// Each needs a thread while it blocks, and nobody is told.
fn with_blocking() {
    go_on(runtime(1), |runtime| {
        let all: Vec<_> = (0..20u64)
            .map(|i| runtime.spawn(move || (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(i)))))
            .collect();
        let (tx, rx) = std::sync::mpsc::channel();
        let receiver = runtime.spawn(move || rx.recv().unwrap());
        all.into_iter().for_each(|h| h.join().unwrap());
        runtime.spawn(move || tx.send(7).unwrap());
        assert_eq!(receiver.join().unwrap(), 7);
    });
}

/// Those that hold the lock, and were let go on, come back to the runtime by themselves.
fn with_calls() {
    go_on(runtime(1), |runtime| {
        let all: Vec<_> = (0..4)
            .map(|_| {
                runtime.spawn(|| {
                    for round in 0..1_000 {
                        drop(black_box(Box::new([0u8; 64])));
                        if round % 16 == 0 {
                            mungo::yield_now();
                        }
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().unwrap());
    });
}

fn with_set_procs() {
    go_on(runtime(1), |runtime| {
        for i in 0..100 {
            runtime.set_procs(1 + i % 4).unwrap();
            std::thread::sleep(Duration::from_micros(500));
        }
        runtime.set_procs(1).unwrap();
        runtime.spawn(|| std::thread::sleep(Duration::from_millis(5))).join().unwrap();
    });
}

/// The policy allocates, and so does what asks it.
fn with_a_policy() {
    let policy = mungo::policy::PriorityLevels::new();
    let slice = Duration::from_millis(1);
    go_on(Runtime::builder().procs(1).time_slice(slice).scheduler(policy).build().unwrap(), |_| ());
}

/// Timers that call functions, which send to channels and set timers.
fn with_alarms() {
    go_on(runtime(1), |runtime| {
        let beats = runtime.spawn(|| {
            let tick = mungo::chan::tick(Duration::from_millis(1));
            let timers: Vec<_> = (0..100).map(|i| mungo::chan::after(Duration::from_millis(i % 7))).collect();
            timers.into_iter().for_each(|t| _ = t.recv().unwrap());
            (0..20).for_each(|_| _ = tick.recv().unwrap());
        });
        beats.join().unwrap();
    });
}

/// The first timer of a P takes memory, in the runtime, with the only P; the goroutine that ends the wait is in a
/// queue.
fn stuck_in_the_runtime() {
    let rt = runtime(1);
    let frees = rt.spawn(|| {
        // It is suspended when its slice is over, in a call that does not wait.
        let (_tx, rx) = mungo::chan::bounded::<u32>(1);
        while !TRAPPED.load(Relaxed) {
            assert!(rx.try_recv().is_err());
        }
        FREED.store(true, Relaxed);
        (0..100).for_each(|_| mungo::yield_now());
    });
    let sleeps = rt.spawn(|| {
        mungo::yield_now();
        ARMED.store(true, Relaxed);
        mungo::sleep(Duration::from_millis(1));
    });
    sleeps.join().unwrap();
    frees.join().unwrap();
    assert!(TRAPPED.load(Relaxed), "nothing was allocated");
    common::end(rt);
    println!("done");
}

/// One that was let go on without a P, and computes, shares the P with others again.
fn let_go_on_and_back() {
    let rt = runtime(1);
    let stop = Arc::<AtomicBool>::default();
    let compute = |stop: &AtomicBool| {
        while !stop.load(Relaxed) {
            spin_loop();
        }
    };
    let seen = stop.clone();
    let frees = rt.spawn(move || {
        while !TRAPPED.load(Relaxed) {
            spin_loop();
        }
        FREED.store(true, Relaxed);
        compute(&seen);
    });
    let seen = stop.clone();
    let sleeps = rt.spawn(move || {
        ARMED.store(true, Relaxed);
        mungo::sleep(Duration::from_millis(1)); // its first timer takes memory
        compute(&seen);
    });
    wait_until("the one that was in a queue went on", || FREED.load(Relaxed));
    let interruptions = || {
        let all = rt.metrics().interruptions;
        all.injected + all.by_thread
    };
    let before = interruptions();
    wait_until("the two take turns", || interruptions() > before + 20);
    stop.store(true, Relaxed);
    frees.join().unwrap();
    sleeps.join().unwrap();
    common::end(rt);
    println!("done");
}

fn with_schedtrace() {
    go_on(runtime(1), |_| ());
}

#[track_caller]
fn assert_done(ended: &child::Ended) {
    assert!(ended.assert_success().stdout.contains("done"), "{ended:#?}");
}

#[test]
fn one_that_waits_in_a_queue_goes_on_without_a_processor() {
    assert_done(&child::run("stuck_in_the_runtime"));
}

#[test]
fn one_that_was_let_go_on_comes_back() {
    for mode in ["inject", "thread"] {
        let mut command = child::command("let_go_on_and_back");
        command.env("MUNGO_DEBUG", format!("asyncpreempt={mode}"));
        assert_done(&child::finish(command));
    }
}

#[test]
fn one_processor_goes_on() {
    assert_done(&child::run("one_p"));
}

#[test]
fn two_processors_go_on() {
    assert_done(&child::run("two_ps"));
}

#[test]
fn threads_are_started_for_those_that_block() {
    assert_done(&child::run("with_blocking"));
}

#[test]
fn those_that_call_the_runtime_in_between_go_on() {
    assert_done(&child::run("with_calls"));
}

#[test]
fn processors_come_and_go() {
    assert_done(&child::run("with_set_procs"));
}

#[test]
fn a_policy_that_allocates_goes_on() {
    assert_done(&child::run("with_a_policy"));
}

#[test]
fn timers_that_call_functions_go_off() {
    assert_done(&child::run("with_alarms"));
}

#[test]
fn the_scheduler_is_traced() {
    let mut command = child::command("with_schedtrace");
    command.env("MUNGO_DEBUG", "schedtrace=1,scheddetail=1");
    assert_done(&child::finish(command));
}

/// Interrupted goroutines sleep in the handler then, with an entry in a queue, and are let go on from there.
#[test]
fn all_of_this_holds_with_thread_switching() {
    let cases =
        ["one_p", "two_ps", "with_blocking", "with_calls", "with_set_procs", "with_a_policy", "with_alarms"];
    for case in cases {
        let mut command = child::command(case);
        command.env("MUNGO_DEBUG", "asyncpreempt=thread");
        assert_done(&child::finish(command));
    }
}
