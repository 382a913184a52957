//! Traces of whole processes: by the environment, at the exit, in a deadlock, after a fork.

#[macro_use]
mod common;

use common::{TempFile, child};
use mungo::trace::{self, FlightRecorder};
use mungo_trace::{Kind, Stop, Trace};
use std::path::Path;

children!(
    ends,
    ends_many_runtimes,
    shows_its_rights,
    exits_on_a_goroutine,
    deadlocks,
    deadlocks_with_a_recorder,
    deadlocks_soon,
    forks,
    waits_to_be_killed,
    hears_a_signal,
    does_not_listen_any_more
);

/// Runs a child with this variable.
fn run(name: &str, key: &str, file: &Path) -> child::Ended {
    let mut command = child::command(name);
    command.env(key, file);
    child::finish(command)
}

fn logs(trace: &Trace) -> Vec<&str> {
    let log = |event: &mungo_trace::Event| match event.kind {
        Kind::Log { text, .. } => Some(trace.string(text)),
        _ => None,
    };
    trace.events.iter().filter_map(log).collect()
}

fn ends() {
    mungo::go(|| trace::log("hello")).join().unwrap();
}

fn exits_on_a_goroutine() {
    mungo::go(|| {
        trace::log("good-bye");
        std::process::exit(3);
    })
    .join()
    .unwrap();
}

#[test]
fn the_environment_asks_for_a_trace_to_the_end() {
    let file = TempFile::new("env");
    run("ends", "MUNGO_TRACE", &file.0).assert_success().assert_does_not_say("MUNGO_TRACE");
    let trace = Trace::open(&file.0).unwrap();
    assert!(!trace.is_torn);
    assert_eq!(logs(&trace), ["hello"]);
    run("exits_on_a_goroutine", "MUNGO_TRACE", &file.0).assert_code(3);
    let trace = Trace::open(&file.0).unwrap();
    assert!(!trace.is_torn);
    assert_eq!(logs(&trace), ["good-bye"]);
}

fn shows_its_rights() {
    // SAFETY: no memory involved.
    println!("secure {}", unsafe { libc::getauxval(libc::AT_SECURE) });
    ends();
}

/// The caller of a set-uid program must not be able to write files or to listen with its rights.
#[test]
#[cfg_attr(mungo_asan, ignore = "the sanitizer does not start in a set-uid program")]
fn a_program_with_foreign_rights_ignores_the_environment() {
    use std::os::unix::fs::{PermissionsExt, chown};
    // SAFETY: no memory involved.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root || child::is_emulated("an emulator runs a set-uid program with our rights") {
        eprintln!("skipped: root alone can make a program of another user");
        return;
    }
    let (program, file, socket) = (TempFile::new("setuid"), TempFile::new("secure"), TempFile::new("listen"));
    std::fs::copy(std::env::current_exe().unwrap(), &program.0).unwrap();
    chown(&program.0, Some(65534), None).unwrap();
    std::fs::set_permissions(&program.0, PermissionsExt::from_mode(0o4755)).unwrap();
    let mut command = std::process::Command::new(&program.0);
    command.env("MUNGO_TEST_CHILD", "shows_its_rights").env("MUNGO_TRACE", &file.0);
    command.env("MUNGO_DEBUG", format!("nonsense,listen={}", socket.0.display()));
    let ended = child::finish(command);
    if !ended.assert_success().stdout.contains("secure 1") {
        eprintln!("skipped: the folder of temporary files is mounted without set-uid");
        return;
    }
    ended.assert_does_not_say("MUNGO_");
    assert!(!file.0.exists() && !socket.0.exists());
}

#[test]
fn a_trace_that_cannot_be_written_is_named_and_does_no_harm() {
    let nowhere = Path::new("/nonexistent/folder/trace");
    run("ends", "MUNGO_TRACE", nowhere)
        .assert_success()
        .assert_says("mungo: MUNGO_TRACE=/nonexistent/folder/trace: ");
    let full = Path::new("/dev/full");
    run("ends", "MUNGO_TRACE", full).assert_success().assert_says("mungo: the trace is not complete: ");
}

fn ends_many_runtimes() {
    for _ in 0..3 {
        let runtime = mungo::Runtime::builder().procs(1).build().unwrap();
        runtime.run(|| (0..1000).for_each(|_| trace::log("t".repeat(1000))));
        runtime.shutdown(common::PATIENCE).unwrap();
    }
    println!("they have ended");
}

/// A pipe that is open and that nothing reads: neither a runtime nor the process waits for it for good.
#[test]
fn a_trace_that_nothing_reads_stops_neither_runtimes_nor_the_exit() {
    let file = TempFile::new("fifo");
    let name = std::ffi::CString::new(file.0.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a name that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&file.0).unwrap();
    run("ends_many_runtimes", "MUNGO_TRACE", &file.0)
        .assert_success()
        .assert_says("mungo: the trace is not complete: its writer does not go on");
    drop(reader);
}

fn deadlocks() {
    mungo::go(|| {
        trace::log("for ever");
        mungo::park();
    })
    .join()
    .unwrap();
}

/// The tracer's thread is none that might wake a goroutine.
#[test]
fn a_deadlock_is_found_and_its_trace_is_whole() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    let file = TempFile::new("deadlock");
    run("deadlocks", "MUNGO_TRACE", &file.0).assert_code(2).assert_says("all goroutines are asleep");
    let trace = Trace::open(&file.0).unwrap();
    assert!(!trace.is_torn);
    assert_eq!(logs(&trace), ["for ever"]);
    let parked = |kind: &Kind| match kind {
        Kind::Stop { why: Stop::Parked { reason, .. }, .. } => trace.string(*reason) == "park",
        _ => false,
    };
    assert!(trace.events.iter().any(|event| parked(&event.kind)), "{:#?}", trace.events);
}

const SNAPSHOT: &str = "MUNGO_TEST_SNAPSHOT";

fn deadlocks_with_a_recorder() {
    let file = std::env::var_os(SNAPSHOT).unwrap();
    let _recorder = FlightRecorder::builder().to(file).on_deadlock().start().unwrap();
    deadlocks();
}

#[test]
fn a_deadlock_is_recorded() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    let file = TempFile::new("recorder");
    run("deadlocks_with_a_recorder", SNAPSHOT, &file.0).assert_code(2).assert_says("all goroutines are asleep");
    let trace = Trace::open(&file.0).unwrap();
    assert!(!trace.is_torn);
    assert_eq!(logs(&trace), ["for ever"]);
}

/// The child of a fork has neither the thread that writes nor a say in the file.
/// Dies at once after a snapshot.
fn deadlocks_soon() {
    let path = std::env::var_os("MUNGO_TEST_RECORD").unwrap();
    let recorder = FlightRecorder::builder().to(&path).on_deadlock().on_slow_region(std::time::Duration::ZERO);
    let _recorder = recorder.start().unwrap();
    mungo::go(move || {
        drop(trace::region("slow"));
        common::wait_until("it is recorded", || Path::new(&path).exists());
        trace::log("for ever");
        mungo::park();
    })
    .join()
    .unwrap();
}

#[test]
fn a_deadlock_just_after_a_snapshot_is_recorded_too() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    let file = TempFile::new("soon");
    run("deadlocks_soon", "MUNGO_TEST_RECORD", &file.0).assert_code(2);
    assert_eq!(logs(&Trace::open(&file.0).unwrap()), ["for ever"]);
}

/// Runs a child that keeps the end of its trace in memory.
fn run_with_last(name: &str, file: &Path) -> child::Ended {
    let mut command = child::command(name);
    command.env("MUNGO_TRACE", file).env("MUNGO_TRACE_LAST", "10s");
    child::finish(command)
}

fn waits_to_be_killed() {
    mungo::go(|| {
        trace::log("killed");
        // SAFETY: sends a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
        loop {
            mungo::sleep(std::time::Duration::from_millis(1));
        }
    })
    .join()
    .unwrap();
}

fn hears_a_signal() {
    mungo::go(|| {
        let terms = mungo::signal::notify(&[mungo::signal::Signal::TERMINATE]);
        // SAFETY: sends a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
        terms.recv().unwrap();
        trace::log("heard");
    })
    .join()
    .unwrap();
}

fn does_not_listen_any_more() {
    mungo::go(|| {
        trace::log("killed again");
        drop(mungo::signal::notify(&[mungo::signal::Signal::TERMINATE]));
        // SAFETY: sends a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
        loop {
            mungo::sleep(std::time::Duration::from_millis(1));
        }
    })
    .join()
    .unwrap();
}

#[test]
fn the_end_of_a_trace_is_kept_in_memory_and_written_when_the_process_ends() {
    let file = TempFile::new("last");
    let read = || {
        let trace = Trace::open(&file.0).unwrap();
        assert!(!trace.is_torn);
        logs(&trace).concat()
    };
    run_with_last("ends", &file.0).assert_success();
    assert_eq!(read(), "hello");
    run_with_last("exits_on_a_goroutine", &file.0).assert_code(3);
    assert_eq!(read(), "good-bye");
    run_with_last("waits_to_be_killed", &file.0).assert_signal(libc::SIGTERM);
    assert_eq!(read(), "killed");
    run_with_last("hears_a_signal", &file.0).assert_success();
    assert_eq!(read(), "heard");
    run_with_last("does_not_listen_any_more", &file.0).assert_signal(libc::SIGTERM);
    assert_eq!(read(), "killed again");
    if !child::is_emulated("the emulator has a thread of its own") {
        run_with_last("deadlocks", &file.0).assert_code(2).assert_says("all goroutines are asleep");
        assert_eq!(read(), "for ever");
    }
    let nowhere = Path::new("/nonexistent/folder/trace");
    run_with_last("ends", nowhere)
        .assert_success()
        .assert_says("mungo: MUNGO_TRACE=/nonexistent/folder/trace: ");
}

fn forks() {
    mungo::go(|| trace::log("the parent")).join().unwrap();
    // SAFETY: the child calls what may be called there, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        trace::log("the child");
        let on = trace::is_on();
        let refused = trace::start_writer(std::io::sink()).is_err();
        // SAFETY: runs the functions that were registered for the exit, and ends the process.
        unsafe { libc::exit(if on || !refused { 1 } else { 0 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child traces");
    mungo::go(|| trace::log("the parent again")).join().unwrap();
}

#[test]
fn the_child_of_a_fork_does_not_write() {
    let file = TempFile::new("fork");
    run("forks", "MUNGO_TRACE", &file.0).assert_success();
    let trace = Trace::open(&file.0).unwrap();
    assert!(!trace.is_torn);
    assert_eq!(logs(&trace), ["the parent", "the parent again"]);
}
