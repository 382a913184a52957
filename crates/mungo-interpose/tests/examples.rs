//! The example `blocking_crates` runs to its end, and parks goroutines where it says so.
//!
//! Cargo builds it before it runs the tests of the package. Where a filter kept it from being built, it is passed over.

use std::process::Command;

#[test]
fn blocking_crates_serves_its_clients() {
    let here = std::env::current_exe().expect("this binary");
    let folder = here.parent().and_then(|deps| deps.parent()).expect("the folder of the build");
    let program = folder.join("examples/blocking_crates");
    if !program.is_file() {
        eprintln!("blocking_crates: not built");
        return;
    }
    let output = Command::new(program).env_remove("MUNGO_SCHEDULER").output().expect("the example starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("500 clients of std::net in "), "{text}");
    let is_active = cfg!(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_os = "linux",
        target_env = "gnu"
    ));
    assert!(text.contains(": parked ") == is_active, "{text}");
}
