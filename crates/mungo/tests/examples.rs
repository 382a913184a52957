//! The programs in `examples/` run to their end, and say what they should.
//!
//! Cargo builds them before it runs the tests of the package. One that is not there, because of a filter or a feature,
//! is passed over.

mod common;

use common::child;
use std::path::{Path, PathBuf};

/// Each example, and a part of what it prints.
const EXAMPLES: &[(&str, &str)] = &[
    ("hello", "the sum of 10,000 squares is 333283335000"),
    ("pipeline", "the sum of the squares of 1 to 1000 is 333833500"),
    ("echo", "a hundred clients got back what they sent"),
    ("thread_locals", "found their thread-locals each time"),
    ("webserver", "all requests were answered"),
    ("webserver_hyper", "all requests were answered"),
    ("webserver_axum", "all requests were answered"),
    ("client", "50 pages, 140000 bytes"),
    ("worker_pool", "jobs finished"),
    ("chat", "all guests have left"),
    ("backpressure", "a failure ends all stages: 100 cannot be squared"),
    ("scheduler_pool", "20 results, 10 computed"),
    ("crawler", "200 pages"),
    ("reverse_proxy", "the fast server answers, also in place of the slow one"),
    ("ureq_transport", "a hundred pages of 20 ms each, 500 bytes"),
    ("tls_server", "all requests were answered, the one without TLS was not"),
    ("tls_client", "50 connections, 50 different greetings"),
    ("https_client", "50 pages over TLS, 15000 bytes"),
    ("webserver_mixed", "40 light answers"),
    ("tracing_spans", "the trace has 10 requests and 10 queries"),
    ("profiling", "mutex profile: "),
    ("tight_loop", "200 sleeps of 1 ms were late by"),
    ("blocking_calls", "64 blocking calls of 100 ms on 2 procs took"),
    ("custom_policy", "shortest_first:slice=2ms: an answer takes"),
    ("tracing", "it said: the sum is 19900"),
];

/// Programs in the folder that other crates build and test.
const OF_OTHER_CRATES: &[&str] = &["blocking_crates"];

fn program(name: &str) -> Option<PathBuf> {
    let here = std::env::current_exe().expect("this binary");
    let path = here.parent()?.parent()?.join("examples").join(name);
    path.is_file().then_some(path)
}

#[test]
fn examples_run_and_say_what_they_should() {
    for (name, part) in EXAMPLES {
        let Some(path) = program(name) else {
            eprintln!("{name}: not built");
            continue;
        };
        let mut command = child::program(&path);
        command.env_remove("MUNGO_PROCS").env_remove("MUNGO_SCHEDULER");
        let ended = child::finish(command);
        ended.assert_success();
        assert!(ended.stdout.contains(part), "{name} does not say '{part}': {ended:#?}");
    }
}

#[test]
fn every_program_in_the_folder_is_tested() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files =
        std::fs::read_dir(&folder).expect("the folder of the examples").map(|file| file.unwrap().path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| !OF_OTHER_CRATES.contains(&name.as_str()))
        .collect();
    let mut tested: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
    names.sort();
    tested.sort();
    assert_eq!(names, tested);
}

/// Lines that are neither blank nor a comment.
fn lines_of_code(file: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count())
}

/// The guide has a table: a program, its lines here, its lines in Go.
#[test]
fn the_guide_counts_lines_as_they_are() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
    if !folder.join("go").is_dir() {
        eprintln!("skipped: the crate was unpacked without its repository");
        return;
    }
    let text = include_str!("../src/guide/coming_from_go.md");
    let table = text.split_once("# Programs side by side").expect("the section").1;
    let mut rows = 0;
    for row in table.lines().take_while(|line| !line.starts_with("# ")).filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let here = lines_of_code(&folder.join(name).with_extension("rs"));
        let in_go = lines_of_code(&folder.join("go").join(name).join("main.go"));
        assert_eq!((here, in_go), (cells[2].parse().ok(), cells[3].parse().ok()), "{name}");
        rows += 1;
    }
    assert_eq!(rows, 5);
}
