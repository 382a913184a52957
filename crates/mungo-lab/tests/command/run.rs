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
    // Some examples want features.
    let hello = succeeds(&mut run("example:hello"));
    assert!(hello.contains("-p mungo --all-features --example hello"), "{hello}");
    assert!(succeeds(&mut run("example:blocking_crates")).contains("-p mungo-interpose "));
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

/// `key=` of a line, as a number.
fn field(line: &str, key: &str) -> u64 {
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no number after {key}= in {line}"))
}

#[test]
fn a_workload_is_traced_if_asked() {
    let mut command = mungo(&["run", "skynet", "--duration", "150ms", "--procs", "2"]);
    let output = command.env("MUNGO_DEBUG", "schedtrace=10").output().expect("it starts");
    let trace = super::text(&output.stderr);
    if trace.contains("'schedtrace' is not known") {
        return eprintln!("skipped: the runtime has no schedtrace");
    }
    let lines: Vec<&str> = trace.lines().filter(|line| line.starts_with("SCHED ")).collect();
    assert!(!lines.is_empty(), "{trace}");
    for line in lines {
        let (time, rest) = line["SCHED ".len()..].split_once("ms: ").expect("a time");
        assert!(time.parse::<u64>().is_ok(), "{line}");
        assert_eq!(field(rest, "gomaxprocs"), 2, "{line}");
        assert!(field(rest, "idleprocs") <= 2 && field(rest, "threads") >= 1, "{line}");
        let queues = rest.split_once('[').and_then(|(_, queues)| queues.split_once(']')).expect("queues").0;
        let queues: Vec<u64> = queues.split_whitespace().map(|n| n.parse().expect("a length")).collect();
        assert_eq!(queues.len(), 2, "{line}");
    }
}
