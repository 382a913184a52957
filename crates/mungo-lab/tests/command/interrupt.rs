//! Ctrl-C ends a comparison cleanly, with what was measured until then.

use super::{mungo, text};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

fn interrupt(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
}

/// Starts it and waits until it says that a round is done.
fn start(arguments: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = mungo(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("round 1 of") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).expect("text"), 0, "it ended before a round was done");
    }
    (child, stderr)
}

/// Its exit code, what it printed, and the rest of its complaints.
fn end(child: Child, mut stderr: BufReader<std::process::ChildStderr>) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().expect("it ends");
    let mut complaints = String::new();
    stderr.read_to_string(&mut complaints).expect("text");
    (output.status.code(), text(&output.stdout), complaints)
}

#[test]
fn a_comparison_reports_what_it_has() {
    let arguments = ["compare", "-w", "mixed-service", "--duration", "20ms", "--repeat", "1000", "--json"];
    let (child, stderr) = start(&arguments);
    interrupt(&child);
    let (code, json, complaints) = end(child, stderr);
    assert_eq!(code, Some(130), "{complaints}");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON, all of it");
    assert_eq!(report["interrupted"], true);
    for policy in report["policies"].as_array().expect("policies") {
        let repeats = policy["repeats"].as_array().expect("repeats");
        assert!((1..1000).contains(&repeats.len()), "{} repeats", repeats.len());
    }
    assert!(complaints.contains("interrupted"), "{complaints}");
}

#[test]
fn the_table_says_that_it_is_not_complete() {
    let (child, stderr) = start(&["compare", "-w", "timers", "--duration", "20ms", "--repeat", "1000"]);
    interrupt(&child);
    let (code, table, _) = end(child, stderr);
    assert_eq!(code, Some(130));
    assert!(table.contains("interrupted; whole repeats until then:"), "{table}");
}

#[test]
fn a_tour_ends_at_once() {
    let mut command = mungo(&["tour"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("worker pool") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).expect("text"), 0, "it ended early");
    }
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
}
