//! Bad input gets a message that helps, and a status that says so.

use super::{fails, mungo, scratch};
use std::fs::{File, OpenOptions};
use std::process::Stdio;

#[test]
fn unknown_names_get_the_closest_one() {
    for (arguments, closest) in [
        (&["compare", "-w", "skynot"][..], "'skynet'"),
        (&["compare", "-w", "storm"], "'spawn-storm'"),
        (&["compare", "-w", "skynet", "-p", "default,defualt"], "'default'"),
        (&["run", "pingpng"], "'pingpong'"),
        (&["run", "--policy", "dfault", "skynet"], "'default'"),
        (&["bench", "--only", "mutx"], "'mutex'"),
        (&["bench", "--against", "tokyo"], "'tokio'"),
        (&["compare", "-w", "skynet", "--polciy", "default"], "'--policy'"),
        (&["comprae"], "'compare'"),
    ] {
        let complaint = fails(&mut mungo(arguments), 2);
        assert!(complaint.contains(closest), "{arguments:?}: {complaint}");
    }
    let complaint = fails(&mut mungo(&["compare", "-w", "qqq"]), 2);
    assert!(complaint.contains("skynet, mixed-service"), "nothing is close, so all are listed: {complaint}");
}

#[test]
fn values_that_make_no_sense() {
    for (option, value, part) in [
        ("--duration", "fast", "750ms"),
        ("--duration", "0", "between"),
        ("--duration", "2h", "unit"),
        ("--procs", "0", "1..=1024"),
        ("--procs", "5000", "1..=1024"),
        ("--repeat", "0", "1..=1000"),
        ("--seed", "x", "invalid digit"),
        ("--policy", "default,,default", "empty name"),
    ] {
        let complaint = fails(mungo(&["compare", "-w", "skynet"]).args([option, value]), 2);
        assert!(complaint.contains(part), "{option} {value}: {complaint}");
    }
    let complaint = fails(&mut mungo(&["compare", "-w", "skynet", "--json", "--csv"]), 2);
    assert!(complaint.contains("standard output"), "{complaint}");
    let same = scratch("same");
    let [json, csv] = ["json", "csv"].map(|kind| format!("--{kind}={}", same.display()));
    let complaint = fails(&mut mungo(&["compare", "-w", "skynet", &json, &csv]), 2);
    assert!(complaint.contains("two reports cannot go to"), "{complaint}");
    assert!(!same.exists(), "a report of nothing is left behind");
    let complaint = fails(&mut mungo(&["--quick", "workloads"]), 2);
    assert!(complaint.contains("mungo tour --quick"), "{complaint}");
}

/// An hour of measurements, which no test waits for.
const LONG: [&str; 7] = ["compare", "-w", "skynet", "--duration", "60m", "--repeat", "1000"];

#[test]
fn a_report_that_cannot_be_written_is_found_before_anything_is_measured() {
    let missing = scratch("no-such-folder").join("report.html");
    let complaint = fails(mungo(&LONG).arg("--html").arg(&missing), 1);
    assert!(complaint.contains("no-such-folder") && complaint.contains("No such file"), "{complaint}");
    let complaint = fails(mungo(&LONG).arg("--html").arg(env!("CARGO_TARGET_TMPDIR")), 1);
    assert!(complaint.contains("directory"), "{complaint}");
}

#[test]
fn a_full_disk_is_reported() {
    let short = ["compare", "-w", "skynet", "--duration", "10ms", "--repeat", "1"];
    for report in ["--json=/dev/full", "--csv=/dev/full", "--html=/dev/full"] {
        let complaint = fails(mungo(&short).arg(report), 1);
        assert!(complaint.contains("/dev/full") && complaint.contains("No space left"), "{complaint}");
    }
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").expect("Linux has it"));
    for arguments in [&["workloads"][..], &["--quick"], &short] {
        let complaint = fails(mungo(arguments).stdout(full()), 1);
        assert!(complaint.contains("standard output: No space left"), "{arguments:?}: {complaint}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_reason_to_complain() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let complaint = fails(mungo(&["workloads"]).stdout(writer), 1);
    assert_eq!(complaint, "");
}

#[test]
fn an_old_report_survives_a_run_that_never_starts() {
    let old = scratch("old.json");
    std::fs::write(&old, "old").expect("a file");
    fails(mungo(&LONG).arg(format!("--json={}", old.display())).args(["--html", "/no/such/folder/x.html"]), 1);
    assert_eq!(std::fs::read_to_string(&old).expect("a file"), "old");
    // A shorter report leaves nothing of a longer one.
    std::fs::write(&old, "x".repeat(1 << 20)).expect("a file");
    let short = ["compare", "-w", "skynet", "--duration", "10ms", "--repeat", "1"];
    super::succeeds(mungo(&short).arg(format!("--json={}", old.display())));
    let value: serde_json::Value = serde_json::from_reader(File::open(&old).expect("a file")).expect("JSON");
    assert_eq!(value["workload"], "skynet");
}
