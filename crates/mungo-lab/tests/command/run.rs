//! `mungo run`.

use super::{fails, mungo, succeeds};
use std::path::Path;

#[test]
fn a_workload_runs_once() {
    let text =
        succeeds(&mut mungo(&["run", "skynet", "--duration", "30ms", "--procs", "3", "--policy", "default"]));
    assert!(text.contains("skynet under default, 3 procs"), "{text}");
    assert!(text.contains("0 cut off") && text.contains("tree latency p99"), "{text}");
}

/// The environment that a program gets, by one that prints it.
#[test]
fn a_program_gets_its_settings_by_the_environment() {
    let env = ["/usr/bin/env", "/bin/env"].into_iter().find(|path| Path::new(path).exists());
    let Some(env) = env else { return eprintln!("skipped: no program that prints its environment") };
    let text = succeeds(&mut mungo(&["run", "--policy", "default", "--procs", "3", env]));
    assert!(text.lines().any(|line| line == "MUNGO_SCHEDULER=default"), "{text}");
    assert!(text.lines().any(|line| line == "MUNGO_PROCS=3"), "{text}");
}

#[test]
fn an_example_is_run_by_cargo() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root");
    let run = |name: &str| {
        let mut command = mungo(&["run", name]);
        command.current_dir(root).env("CARGO", "echo");
        command
    };
    assert!(succeeds(&mut run("example:hello")).contains("--example hello"));
    assert!(fails(&mut run("example:helo"), 2).contains("'hello'"));
    assert!(fails(run("example:hello").current_dir("/"), 2).contains("checkout"));
}

#[test]
fn a_program_that_fails_or_is_not_there() {
    assert!(fails(&mut mungo(&["run", "./no/such/program"]), 1).contains("cannot start ./no/such/program"));
    let Some(program) = ["/usr/bin/false", "/bin/false"].into_iter().find(|path| Path::new(path).exists())
    else {
        return eprintln!("skipped: no program that fails");
    };
    assert!(fails(&mut mungo(&["run", program]), 1).contains("exit status: 1"));
}
