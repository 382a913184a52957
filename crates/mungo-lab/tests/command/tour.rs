//! The tour, and what it looks like where it is not on a terminal.

use super::{mungo, succeeds};

#[test]
fn the_quick_tour_shows_each_step() {
    let text = succeeds(&mut mungo(&["tour", "--quick"]));
    for step in ["procs", "A worker pool", "Work stealing", "Preemption", "Blocking calls", "20,000 goroutines"]
    {
        assert!(text.contains(step), "no '{step}' in\n{text}");
    }
    assert!(text.contains("their sum is right"), "{text}");
    assert!(text.contains('█'), "{text}");
    assert!(!text.contains('\x1b'), "colours although nobody sees them\n{text}");
}

#[test]
fn without_arguments_it_is_the_tour_and_a_plain_locale_gets_plain_pictures() {
    let text = succeeds(mungo(&["--quick", "--no-color"]).env("LC_ALL", "C"));
    assert!(text.contains("A worker pool"), "{text}");
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn lists_have_a_line_each() {
    let workloads = succeeds(&mut mungo(&["workloads"]));
    for name in [
        "pingpong",
        "fanout",
        "pipeline",
        "spawn-storm",
        "skynet",
        "mixed-service",
        "periodic",
        "bimodal",
        "blocking",
        "timers",
        "echo",
    ] {
        let line = workloads.lines().find(|line| line.split_whitespace().next() == Some(name));
        assert!(line.is_some_and(|line| line.len() > name.len() + 20), "{name} in\n{workloads}");
    }
    let policies = succeeds(&mut mungo(&["--no-color", "policies"]));
    assert!(policies.lines().any(|line| line.starts_with("default ")), "{policies}");
}
