//! Tests of another processor's build: its programs are run by an emulator, and its C compiler has another name.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The variable with the program that runs binaries of another processor, `qemu-aarch64` for instance.
const RUNNER: &str = "MUNGO_TEST_RUNNER";

/// A program of this build, to be run as this one is.
pub(crate) fn program(path: &Path) -> Command {
    match std::env::var_os(RUNNER) {
        None => Command::new(path),
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(path);
            command
        }
    }
}

/// Whether an emulator runs this, where a test does less of the same then.
pub(crate) fn is_slow() -> bool {
    std::env::var_os(RUNNER).is_some()
}

/// Whether an emulator runs this. The test is then left out, with a line that says so: see `ci/aarch64.sh`.
pub(crate) fn is_emulated(why: &str) -> bool {
    let emulated = is_slow();
    if emulated {
        // Not captured by the test harness, so that it can be counted.
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        _ = writeln!(std::io::stderr(), "skipped under emulation: {name}: {why}");
    }
    emulated
}

/// The C compiler for this processor.
pub(crate) fn cc() -> Command {
    Command::new(std::env::var_os("MUNGO_TEST_CC").unwrap_or_else(|| "cc".into()))
}

/// This binary.
pub(crate) fn this() -> Command {
    program(&std::env::current_exe().expect("this binary"))
}
