//! `gdb/mungo.py`: goroutines in gdb, of a process and of a core file. Skipped, with a message, where there is no gdb,
//! or where it may not look at processes.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(mungo_corosensei)))]

mod common;

use common::{PATIENCE, go_named, wait_until_parked};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Runs gdb on this program, as a process or by its core file, and returns what it printed.
fn gdb(target: &Path, commands: &[&str]) -> Option<String> {
    let script = concat!("source ", env!("CARGO_MANIFEST_DIR"), "/gdb/mungo.py");
    let mut gdb = Command::new("timeout");
    gdb.args(["--signal=KILL", &PATIENCE.as_secs().to_string(), "gdb", "-nx", "-batch"]);
    gdb.env_remove("DEBUGINFOD_URLS").stdin(Stdio::null());
    for command in [&["set pagination off", script], commands].concat() {
        gdb.args(["-ex", command]);
    }
    let output = gdb.arg(std::env::current_exe().unwrap()).arg(target).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let refused = [
        "ptrace: ",
        "No such file or directory: 'gdb'",
        "Scripting in the \"Python\"",
        "failed to run command",
    ];
    match refused.iter().find(|part| text.contains(**part)) {
        Some(part) => {
            eprintln!("skipped: {part}: {text}");
            None
        }
        None => Some(text.into_owned()),
    }
}

#[inline(never)]
fn waits_for_something(rx: mungo::chan::Receiver<u32>) -> u32 {
    std::hint::black_box(rx.recv().unwrap_or(7))
}

static SPINS: AtomicBool = AtomicBool::new(true);

#[inline(never)]
fn computes_for_long() {
    while SPINS.load(Relaxed) {
        std::hint::spin_loop();
    }
}

/// Is the program that is debugged, in a child process.
#[test]
#[ignore = "a part of the other tests"]
fn debugged() {
    let (_tx, rx) = mungo::chan::bounded(0);
    go_named("the-waiter", move || waits_for_something(rx));
    go_named("the-computer", computes_for_long);
    wait_until_parked("the-waiter");
    println!("ready");
    mungo::sleep(PATIENCE);
}

/// Starts that program, in a folder, and waits until it is ready.
fn start(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "debugged", "--ignored", "--nocapture"])
        .current_dir(folder)
        .stdout(Stdio::piped());
    // SAFETY: one system call, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_CORE, &all); // if it may not, there is no core file
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap().contains("ready")));
    child
}

const COMMANDS: [&str; 3] = ["mungo goroutines", "mungo goroutine all bt", "mungo goroutine 4000000 bt"];

fn check(text: &str) {
    let line = |name: &str| {
        let found = text.lines().find(|line| line.contains(name));
        found.unwrap_or_else(|| panic!("no {name} in:\n{text}"))
    };
    let waiter = line("'the-waiter'");
    assert!(waiter.contains("[chan receive]"), "{text}");
    assert!(waiter.contains("waits_for_something"), "{text}");
    let computer = line("'the-computer'");
    assert!(["[running]", "[preempted]", "[runnable]"].iter().any(|state| computer.contains(state)), "{text}");
    assert!(text.contains("there is no goroutine 4000000"), "{text}");
    // From the channel up to the first frame of all.
    assert!(text.matches("waits_for_something").count() >= 2, "{text}");
    assert!(text.contains("computes_for_long"), "{text}");
    assert!(text.matches("coro::imp::processor::begin").count() >= 2, "{text}");
}

#[test]
fn gdb_lists_goroutines_of_a_process() {
    let mut child = start(&std::env::temp_dir());
    let text = gdb(Path::new(&child.id().to_string()), &COMMANDS);
    child.kill().unwrap();
    child.wait().unwrap();
    if let Some(text) = text {
        check(&text);
    }
}

/// The kernel's core file has the stacks; gdb's own `gcore` leaves them out, since it stops at guard pages.
#[test]
fn gdb_lists_goroutines_of_a_core_file() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with("core") {
        eprintln!("skipped: core files do not go to the folder of the process: {pattern}");
        return;
    }
    let folder = std::env::temp_dir().join(format!("mungo-core-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut child = start(&folder);
    // SAFETY: no memory involved.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGABRT) };
    child.wait().unwrap();
    let core = std::fs::read_dir(&folder).unwrap().next().map(|file| file.unwrap().path());
    let text = core.and_then(|core| gdb(&core, &COMMANDS));
    std::fs::remove_dir_all(&folder).unwrap();
    match text {
        Some(text) => check(&text),
        None => eprintln!("skipped: no core file, or no gdb"),
    }
}
