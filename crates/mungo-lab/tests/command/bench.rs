//! `mungo bench`: the contestants that are there are measured, the others are named.

use super::{mungo, succeeds};

#[test]
fn peers_are_measured_side_by_side() {
    let arguments =
        ["bench", "--only", "mutex,timers", "--against", "threads,tokio", "--repeat", "1", "--procs", "2"];
    let text = succeeds(&mut mungo(&arguments));
    let row =
        |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    for part in ["mungo", "threads", "tokio"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains("\n") && row("mutex").matches('(').count() == 3, "three figures\n{text}");
    assert!(text.contains("x "), "ratios\n{text}");
    assert!(text.contains("threads timers: a thread for each of 100,000 timers"), "{text}");
}

#[test]
fn absent_tool_chains_are_named() {
    let arguments = ["bench", "--only", "yield", "--against", "go,node,java", "--repeat", "1"];
    let text = succeeds(mungo(&arguments).env("PATH", ""));
    for program in ["go", "node", "java"] {
        assert!(text.contains(&format!("not there: no `{program}` on PATH")), "{text}");
    }
}
