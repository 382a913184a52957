//! Shows what mungo does where goroutines cannot have thread-locals of their own: nothing starts unless that is allowed.
//! Without an argument it runs itself once for each row of the table and compares.

use mungo::{Runtime, ThreadLocals};
use std::io::ErrorKind::Unsupported;
use std::process::{Command, ExitCode};

const REASON: &str = "goroutines cannot have thread-locals of their own here";
const WHAT_TO_DO: [&str; 2] = ["allow_shared_thread_locals", "MUNGO_DEBUG=owntls=0"];

/// What to run, under which `MUNGO_DEBUG`, and whether it is to work.
const ROWS: [(&str, &str, bool); 7] = [
    ("build", "", true),
    ("go", "", false),
    ("main", "", false),
    ("allowed", "", true),
    ("go", "owntls=0", true),
    ("main", "owntls=0", true),
    ("allowed", "owntls=0", true),
];

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => return ExitCode::from(ROWS.iter().filter(|row| !holds(row)).count() as u8),
        Some("build") => {
            is_refused();
            assert!(!mungo_interpose::is_active(), "the crate builds and does nothing");
            assert!(mungo_interpose::counts().all(|c| c.passed + c.parked + c.fell_back == 0));
        }
        Some("go") => assert_eq!(mungo::go(|| 6 * 7).join().unwrap(), 42),
        Some("main") => on_goroutine(),
        Some("allowed") => allowed(),
        Some(other) => panic!("{other}?"),
    }
    ExitCode::SUCCESS
}

fn holds((what, debug, works): &(&str, &str, bool)) -> bool {
    let program = std::env::current_exe().expect("this program");
    // Where an emulator runs this, it runs the child too.
    let mut command = match std::env::var_os("MUNGO_TEST_RUNNER") {
        None => Command::new(program),
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
    };
    let output = command.arg(what).env("MUNGO_DEBUG", debug).output().expect("a child");
    let text = String::from_utf8_lossy(&output.stderr);
    let explains = text.contains(REASON) && WHAT_TO_DO.iter().all(|part| text.contains(part));
    let ok = if *works { output.status.success() } else { output.status.code() == Some(101) && explains };
    println!("{what:8} MUNGO_DEBUG={debug:9} {}", if ok { "ok" } else { "FAILED" });
    if !ok {
        println!("{}\n{text}", output.status);
    }
    ok
}

/// The error value has the reason and what to do, as often as it is asked for.
fn is_refused() {
    for _ in 0..2 {
        let error = Runtime::new().expect_err("no runtime without a word");
        assert_eq!(error.kind(), Unsupported);
        let text = error.to_string();
        assert!(text.contains(REASON) && WHAT_TO_DO.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[mungo::main]
fn on_goroutine() {
    assert_eq!(mungo::go(|| 6 * 7).join().unwrap(), 42);
}

fn allowed() {
    // SAFETY: no goroutine here refers to a thread-local.
    let runtime = unsafe { Runtime::builder().allow_shared_thread_locals() }.build().expect("a runtime");
    assert!(matches!(runtime.info().thread_locals, ThreadLocals::Shared(why) if !why.is_empty()));
    let sum: u64 = runtime.run(|| {
        let all: Vec<_> = (0..1000u64)
            .map(|i| {
                mungo::go(move || {
                    mungo::yield_now();
                    i
                })
            })
            .collect();
        all.into_iter().map(|g| g.join().unwrap()).sum()
    });
    assert_eq!(sum, 499_500);
    // The permission was for that runtime, unless the environment gave it.
    assert_eq!(Runtime::new().is_ok(), std::env::var("MUNGO_DEBUG").is_ok_and(|debug| !debug.is_empty()));
}
