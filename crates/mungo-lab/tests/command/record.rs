//! Traces of real programs: `mungo trace record`, and `--trace` of `run` and `compare`.

use super::{fails, mungo, scratch, succeeds, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// `mungo trace record` of `mungo run`: the command uses mungo itself.
fn record(output: &Path, more: &[&str], program: &[&str]) -> Command {
    let mut command = mungo(&["trace", "record", "-o"]);
    command.arg(output).args(more).args(program);
    command
}

fn stats(path: &Path) -> Value {
    serde_json::from_str(&succeeds(mungo(&["trace", "stats", "--json"]).arg(path))).expect("JSON")
}

const SKYNET: [&str; 7] = [env!("CARGO_BIN_EXE_mungo"), "run", "skynet", "--duration", "100ms", "--procs", "2"];

#[test]
fn a_program_is_recorded() {
    let path = scratch("recorded.trace");
    let output = record(&path, &[], &SKYNET).output().expect("it starts");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(text(&output.stdout).contains("skynet under default"), "the program's own output is untouched");
    assert!(said.contains("mungo trace stats") && said.contains("recorded.trace"), "{said}");
    let report = stats(&path);
    assert_eq!(report["torn"], false);
    let places = report["places"].as_array().expect("places");
    assert!(places.iter().any(|p| p["place"].as_str().is_some_and(|p| p.contains("skynet.rs"))), "{places:?}");
}

/// The program keeps the end of its trace in memory. It has few events: what is more than 256 MiB is not kept.
#[test]
fn the_last_of_it_is_kept() {
    let program = [env!("CARGO_BIN_EXE_mungo"), "run", "periodic", "--duration", "2s", "--procs", "2"];
    let kept = |last: &str| {
        let path = scratch("last.trace");
        let said = record(&path, &["--last", last], &program).output().expect("it starts");
        assert!(said.status.success(), "{}", text(&said.stderr));
        stats(&path)
    };
    let length = |report: &Value| report["length_ns"].as_u64().expect("a length");
    let (last, whole) = (kept("500ms"), kept("100s"));
    assert!(length(&whole) >= 1_900_000_000, "{}", length(&whole));
    // From a round of the writer on, which is longer than 20 ms if its thread has no CPU, up to the last event: after
    // that the program prints what it found, and ends.
    assert!((1..length(&whole) * 3 / 4).contains(&length(&last)), "{}", length(&last));
    for report in [last, whole] {
        assert_eq!(report["torn"], false);
        // Goroutines from before that still have a place.
        let places = report["places"].as_array().expect("places");
        assert!(places.iter().any(|p| p["place"].as_str().is_some_and(|p| p.contains(".rs"))), "{places:?}");
    }
}

/// A process that is killed while it writes the end of its trace leaves a part of it, beside the file.
#[test]
fn a_part_of_a_trace_is_named() {
    let path = scratch("cut.trace");
    let part = path.with_added_extension("part");
    let script = "test ! -e \"$MUNGO_TRACE.part\" && printf MUNGOTRC > \"$MUNGO_TRACE.part\"; exit $0";
    std::fs::write(&part, "an old one").expect("it can be written");
    for (code, status) in [("0", 1), ("3", 3)] {
        let output = record(&path, &["--last", "1s"], &["sh", "-c", script, code]).output().expect("it starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(
            said.contains("before all of its trace was written") && said.contains("cut.trace.part"),
            "{said}"
        );
        assert_eq!(std::fs::read(&part).expect("it is left"), b"MUNGOTRC");
        assert!(!path.exists(), "an empty file is no trace");
    }
}

#[test]
fn the_exit_status_is_the_programs() {
    let path = scratch("status.trace");
    let said = fails(&mut record(&path, &[], &["sh", "-c", "exit 3"]), 3);
    assert!(said.contains("ended with exit status: 3"), "{said}");
    let said = fails(&mut record(&path, &[], &["true"]), 1);
    assert!(said.contains("has written no trace") && said.contains("does not use mungo"), "{said}");
    assert!(!path.exists(), "an empty trace is left behind");
    assert!(
        fails(&mut record(&path, &[], &["./no/such/program"]), 1).contains("cannot start ./no/such/program")
    );
    let nowhere = Path::new("/no/such/folder/x.trace");
    assert!(fails(&mut record(nowhere, &[], &["true"]), 1).contains("cannot write the trace"));
    assert!(fails(&mut mungo(&["trace", "record"]), 2).contains("PROGRAM"));
}

#[test]
fn a_workload_is_recorded_where_it_runs() {
    let path = scratch("workload.trace");
    let mut command = mungo(&["run", "pingpong", "--duration", "50ms", "--procs", "2"]);
    let output = command.arg(format!("--trace={}", path.display())).output().expect("it starts");
    assert!(
        output.status.success() && text(&output.stderr).contains("mungo trace view"),
        "{}",
        text(&output.stderr)
    );
    let report = stats(&path);
    let wakes = report["wakeups"].as_array().expect("wake-ups");
    assert!(wakes.iter().any(|w| w["cause"] == "woken by a goroutine"), "{wakes:?}");
}

#[test]
fn a_comparison_links_what_went_worst() {
    let (folder, page) = (scratch("worst"), scratch("worst.html"));
    let mut command =
        mungo(&["compare", "-w", "pingpong", "-p", "default,fifo", "--duration", "40ms", "--repeat", "2"]);
    succeeds(command.arg("--trace").arg(&folder).arg("--html").arg(&page));
    let html = std::fs::read_to_string(&page).expect("a page");
    for policy in ["default", "fifo"] {
        let trace = folder.join(format!("pingpong-{policy}.trace"));
        assert!(stats(&trace)["runs"].as_u64() > Some(0));
        let link = format!("href=\"{}/pingpong-{policy}.trace.html#t=", folder.file_name().unwrap().display());
        assert!(html.contains(&link), "no link to {policy}, from the folder of the page");
    }
}

/// The functions of the workload are in the figures, on the page and in what Perfetto gets.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn a_recording_with_stacks_says_where_goroutines_wait() {
    let path = scratch("stacks.trace");
    let program = [env!("CARGO_BIN_EXE_mungo"), "run", "pingpong", "--duration", "100ms", "--procs", "2"];
    assert!(record(&path, &["--stacks"], &program).output().expect("it starts").status.success());
    let report = stats(&path);
    let stacks = report["stacks"].as_array().expect("stacks");
    let functions = |row: &Value| row["stack"].to_string();
    assert!(stacks.iter().any(|row| functions(row).contains("pingpong.rs:")), "{stacks:#?}");
    let text = succeeds(mungo(&["trace", "stats"]).arg(&path));
    assert!(text.contains("Where goroutines waited"), "{text}");
    let (page, out) = (scratch("stacks.html"), scratch("stacks.pftrace"));
    succeeds(mungo(&["trace", "view"]).arg(&path).arg("-o").arg(&page));
    succeeds(mungo(&["trace", "perfetto"]).arg(&path).arg("-o").arg(&out));
    for file in [page, out] {
        let bytes = std::fs::read(&file).expect("a file");
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(has(b"pingpong.rs:"), "{}", file.display());
    }
}
