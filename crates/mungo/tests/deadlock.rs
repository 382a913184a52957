//! "All goroutines are asleep": found when it is so, and never when it is not. Each case is a process of its own.

#[macro_use]
mod common;

use common::{child, runtime};
use mungo::{go, park, sleep};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

children!(
    main_joins_a_parked_goroutine,
    main_joins_late,
    main_waits_again_and_again,
    main_waits_for_a_scope,
    main_awaits_a_goroutine,
    main_goroutine_parks,
    main_goroutine_parks_with_options,
    a_thread_ends_first,
    a_plain_thread_unparks,
    a_timer_is_pending,
    a_goroutine_computes,
    a_goroutine_blocks_its_thread,
    another_runtime_is_active,
    nobody_waits,
    warned_beside_a_thread,
    warned_with_two_runtimes,
    a_thread_takes_its_time,
);

const DEADLOCK: &str = "fatal error: all goroutines are asleep - deadlock!";
const WARNING: &str = "mungo: warning: all goroutines are asleep, for ";

fn main_joins_a_parked_goroutine() {
    let stuck = mungo::Builder::new().name("stuck".to_owned()).spawn(park).unwrap();
    let waiting = go(move || stuck.join().unwrap());
    waiting.join().unwrap();
}

/// Runs a child that deadlocks.
#[track_caller]
fn assert_deadlock(name: &str) -> child::Ended {
    let ended = child::run(name);
    ended.assert_code(2).assert_says(DEADLOCK);
    ended
}

#[test]
fn each_goroutine_is_listed_with_what_it_waits_for() {
    let ended = assert_deadlock("main_joins_a_parked_goroutine");
    assert!(ended.took < Duration::from_secs(2), "{ended:#?}");
    let lines: Vec<_> = ended.stderr.lines().filter(|l| l.starts_with("goroutine ")).collect();
    assert_eq!(lines.len(), 2, "{ended:#?}");
    let stuck = lines.iter().find(|l| l.contains("'stuck'")).unwrap();
    let waiting = lines.iter().find(|l| !l.contains("'stuck'")).unwrap();
    assert!(stuck.contains("[waiting: park, ") && stuck.contains("tests/deadlock.rs:"), "{stuck}");
    assert!(waiting.contains("[waiting: join, ") && waiting.contains("tests/deadlock.rs:"), "{waiting}");
    let id = |line: &str| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
    assert_ne!(id(stuck), id(waiting));
}

/// Everything has been quiet for long when somebody begins to wait.
fn main_joins_late() {
    let stuck = go(park);
    std::thread::sleep(Duration::from_millis(1200));
    stuck.join().unwrap();
}

#[test]
fn a_deadlock_that_comes_late_is_found() {
    let ended = assert_deadlock("main_joins_late");
    assert!(ended.took < Duration::from_millis(1200) + Duration::from_secs(2), "{ended:#?}");
}

/// Main was woken before, from a wait without end and from one with a deadline.
fn main_waits_again_and_again() {
    let (tx, rx) = mungo::chan::bounded(0);
    let sender = go(move || {
        for _ in 0..2 {
            sleep(Duration::from_millis(50));
            tx.send(()).unwrap();
        }
    });
    rx.recv().unwrap();
    rx.recv_timeout(common::PATIENCE).unwrap();
    sender.join().unwrap();
    go(park).join().unwrap();
}

#[test]
fn a_deadlock_after_waits_that_ended_is_found() {
    assert_deadlock("main_waits_again_and_again");
}

fn main_waits_for_a_scope() {
    mungo::scope(|s| {
        s.spawn(|| mungo::scope(|inner| _ = inner.spawn(park)));
    });
}

#[test]
fn scopes_deadlock_too() {
    assert_deadlock("main_waits_for_a_scope")
        .assert_says("[waiting: end of scope, ")
        .assert_says("[waiting: park, ");
}

fn main_awaits_a_goroutine() {
    mungo::block_on(go(|| mungo::block_on(std::future::pending::<()>()))).unwrap();
}

#[test]
fn futures_deadlock_too() {
    assert_deadlock("main_awaits_a_goroutine").assert_says("[waiting: block on, ");
}

#[mungo::main]
fn main_goroutine_parks() {
    park();
}

#[mungo::main(procs = 2)]
fn main_goroutine_parks_with_options() {
    go(park).join().unwrap();
}

#[test]
fn the_main_goroutine_may_be_the_one() {
    for name in ["main_goroutine_parks", "main_goroutine_parks_with_options"] {
        assert_deadlock(name).assert_says("'main' (spawned at crates/mungo/tests/deadlock.rs:");
    }
}

fn a_thread_ends_first() {
    let stuck = go(park);
    std::thread::spawn(|| std::thread::sleep(Duration::from_millis(300)));
    stuck.join().unwrap();
}

#[test]
fn it_is_found_when_the_last_plain_thread_is_gone() {
    assert_deadlock("a_thread_ends_first");
}

fn a_plain_thread_unparks() {
    let waiting = go(park);
    let g = waiting.goroutine();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(800));
        g.unpark();
    });
    waiting.join().unwrap();
    thread.join().unwrap();
}

fn a_timer_is_pending() {
    let waiting = go(park);
    let g = waiting.goroutine();
    go(move || {
        sleep(Duration::from_millis(800));
        g.unpark();
    });
    waiting.join().unwrap();
    go(|| mungo::park_timeout(Duration::from_millis(300))).join().unwrap();
}

fn a_goroutine_computes() {
    let waiting = go(park);
    let g = waiting.goroutine();
    go(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_millis(300)); // or it is in a system call
        g.unpark();
    });
    waiting.join().unwrap();
}

/// All Ps are idle then: its own was taken for a goroutine that has ended.
fn a_goroutine_blocks_its_thread() {
    let rt = runtime(1);
    let waiting = rt.spawn(park);
    let g = waiting.goroutine();
    rt.spawn(move || {
        std::thread::sleep(Duration::from_millis(800));
        g.unpark();
    });
    rt.spawn(|| ()).join().unwrap();
    waiting.join().unwrap();
}

fn another_runtime_is_active() {
    let (a, b) = (runtime(1), runtime(1));
    let waiting = a.spawn(park);
    let g = waiting.goroutine();
    b.spawn(move || {
        sleep(Duration::from_millis(500));
        g.unpark();
    });
    waiting.join().unwrap();
}

/// Parked goroutines alone are no deadlock: nobody waits for them.
fn nobody_waits() {
    go(park);
    std::thread::sleep(Duration::from_millis(500));
}

#[test]
fn there_is_no_false_alarm() {
    let cases = [
        "a_plain_thread_unparks",
        "a_timer_is_pending",
        "a_goroutine_computes",
        "a_goroutine_blocks_its_thread",
        "another_runtime_is_active",
        "nobody_waits",
    ];
    std::thread::scope(|s| {
        for name in cases {
            s.spawn(move || _ = child::run(name).assert_success().assert_does_not_say(DEADLOCK));
        }
    });
}

/// Standard error of this process, as a thread of it reads it.
struct OwnStderr {
    reads: std::io::PipeReader,
    original: std::fs::File,
}

impl OwnStderr {
    fn new() -> OwnStderr {
        let (reads, writes) = std::io::pipe().unwrap();
        // SAFETY: descriptors of ours; the copy has no other owner.
        let original = unsafe {
            let copy = libc::dup(2);
            assert!(copy >= 0 && libc::dup2(writes.as_raw_fd(), 2) == 2);
            std::fs::File::from_raw_fd(copy)
        };
        OwnStderr { reads, original }
    }

    /// What is written next, in one piece. It goes on to the original too.
    fn next(&mut self) -> String {
        let mut bytes = [0; 4096];
        let n = self.reads.read(&mut bytes).unwrap();
        self.original.write_all(&bytes[..n]).unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    }
}

fn hasty_to_warn() -> mungo::Runtime {
    mungo::Runtime::builder().procs(1).deadlock_warning(Duration::from_millis(50)).build().unwrap()
}

/// The thread that reads the warnings is the other thread, and ends the standstills.
fn warned_beside_a_thread() {
    let (mut stderr, rt) = (OwnStderr::new(), hasty_to_warn());
    let (tx, rx) = mungo::chan::bounded::<()>(0);
    let body = move || {
        park();
        park();
        _ = mungo::Builder::new().name("second".to_owned()).spawn(move || rx.recv()).unwrap().join();
    };
    let stuck = mungo::Builder::new().name("stuck".to_owned()).spawn_on(&rt, body).unwrap();
    let g = stuck.goroutine();
    let thread = std::thread::spawn(move || {
        let first = stderr.next();
        assert!(first.contains("'stuck'") && !first.contains("'second'"), "{first}");
        g.unpark(); // it parks again, which is the same standstill
        std::thread::sleep(Duration::from_millis(500));
        g.unpark();
        let second = stderr.next();
        assert!(second.contains("'stuck'") && second.contains("'second'"), "{second}");
        drop(tx);
    });
    stuck.join().unwrap();
    thread.join().unwrap();
}

#[test]
fn beside_other_threads_each_standstill_is_warned_of_once() {
    let ended = child::run("warned_beside_a_thread");
    ended.assert_success().assert_says(WARNING).assert_does_not_say(DEADLOCK);
    ended.assert_says("It is not fatal because the process has another thread, which may wake one.");
    ended
        .assert_says("[waiting: park, ")
        .assert_says("[waiting: join, ")
        .assert_says("[waiting: chan receive, ");
    assert_eq!(ended.stderr.matches(WARNING).count(), 2, "{ended:#?}");
}

/// Each is quiet, and could only be woken by the other or by a plain thread.
fn warned_with_two_runtimes() {
    let mut stderr = OwnStderr::new();
    let (a, b) = (hasty_to_warn(), runtime(1));
    let first = mungo::Builder::new().name("first".to_owned()).spawn_on(&a, park).unwrap();
    b.spawn(park);
    let g = first.goroutine();
    let thread = std::thread::spawn(move || {
        let text = stderr.next();
        assert!(text.contains(WARNING) && text.contains("'first'"), "{text}");
        g.unpark();
    });
    first.join().unwrap();
    thread.join().unwrap();
}

#[test]
fn runtimes_that_wait_for_each_other_are_warned_of() {
    child::run("warned_with_two_runtimes").assert_success().assert_says(WARNING);
}

fn a_thread_takes_its_time() {
    let waiting = go(park);
    let g = waiting.goroutine();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        g.unpark();
    });
    waiting.join().unwrap();
    thread.join().unwrap();
}

/// The child `name` with `MUNGO_DEBUG=deadlock=ms`.
fn warns(name: &str, ms: u32) -> bool {
    let mut command = child::command(name);
    command.env("MUNGO_DEBUG", format!("deadlock={ms}"));
    let ended = child::finish(command);
    ended.assert_success().assert_does_not_say(DEADLOCK);
    ended.stderr.contains(WARNING)
}

#[test]
fn the_environment_says_when_to_warn() {
    assert!(warns("a_thread_takes_its_time", 50));
    assert!(!warns("a_thread_takes_its_time", 0));
    assert!(!warns("a_thread_takes_its_time", 10_000));
}

#[test]
fn there_is_no_false_warning() {
    let quiet = ["another_runtime_is_active", "nobody_waits", "a_goroutine_blocks_its_thread"];
    for name in ["a_timer_is_pending", "a_goroutine_computes"].into_iter().chain(quiet) {
        assert!(!warns(name, 50), "{name}");
    }
}
