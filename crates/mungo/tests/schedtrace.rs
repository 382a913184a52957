//! `MUNGO_DEBUG=schedtrace=…`: lines that programs which read Go's can read. Each case is a process of its own.

#[macro_use]
mod common;

use common::child;
use std::time::Duration;

children!(busy_then_idle);

/// Some goroutines in known states, then nothing at all.
fn busy_then_idle() {
    let runtime = mungo::Runtime::builder().procs(2).build().unwrap();
    runtime.spawn(|| mungo::sleep(Duration::from_secs(3600)));
    runtime.spawn(mungo::park);
    runtime.run(|| {
        let end = std::time::Instant::now() + Duration::from_millis(150);
        while std::time::Instant::now() < end {}
    });
    // Until enough lines have come: whoever reads them ends us.
    std::thread::sleep(Duration::from_secs(2));
}

fn run(debug: &str) -> child::Ended {
    let mut command = child::command("busy_then_idle");
    command.env("MUNGO_DEBUG", debug);
    child::finish(command)
}

/// The number behind `key=`.
#[track_caller]
fn field(line: &str, key: &str) -> u64 {
    let at = line.find(&format!(" {key}=")).unwrap_or_else(|| panic!("no {key}: {line}"));
    let rest = &line[at + key.len() + 2..];
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{key} is not a number: {line}"))
}

#[test]
fn a_line_per_period_in_gos_format_even_when_idle() {
    let ended = run("schedtrace=100");
    let lines: Vec<_> = ended.assert_success().stderr.lines().collect();
    // On a machine that has no time for us some may be missing.
    assert!(lines.len() >= 5 && lines.len() <= 25, "{ended:#?}");
    let mut last_ms = None;
    for line in &lines {
        let ms: u64 =
            line.strip_prefix("SCHED ").and_then(|l| l.split("ms: ").next()).unwrap().parse().unwrap();
        assert!(last_ms.is_none_or(|last| ms >= last + 100), "{ended:#?}");
        last_ms = Some(ms);
        let head = line.split(" [").next().unwrap();
        let keys: Vec<_> = head.split(' ').skip(2).map(|word| word.split('=').next().unwrap()).collect();
        let go = "gomaxprocs idleprocs threads spinningthreads needspinning idlethreads runqueue";
        assert_eq!(keys.join(" "), go, "{line}");
        assert_eq!(field(line, "gomaxprocs"), 2);
        assert!(field(line, "idleprocs") <= 2 && field(line, "threads") >= 1, "{line}");
        let queues = line.split(['[', ']']).nth(1).unwrap();
        let lengths: Vec<u32> = queues.split(' ').map(|n| n.parse().unwrap()).collect();
        assert_eq!(lengths.len(), 2, "{line}");
    }
    let last = lines.last().unwrap();
    assert_eq!(
        (field(last, "idleprocs"), field(last, "goroutines"), field(last, "timers")),
        (2, 2, 1),
        "{last}"
    );
    assert!(lines.iter().any(|line| field(line, "idleprocs") < 2), "it was busy: {ended:#?}");
}

#[test]
fn details_list_ps_ms_and_goroutines() {
    let ended = run("schedtrace=500,scheddetail=1");
    let text = &ended.assert_success().stderr;
    let last = &text[text.rfind("SCHED ").unwrap()..];
    let with = |prefix: &str| last.lines().filter(|l| l.starts_with(prefix)).collect::<Vec<_>>();
    let ps = with("  P");
    assert_eq!(ps.len(), 2, "{last}");
    assert!(ps.iter().all(|p| p.contains(" status=0 ") && p.contains(" m=nil ")), "idle: {last}");
    assert_eq!(ps.iter().map(|p| field(p, "timerslen")).sum::<u64>(), 1, "{last}");
    assert!(!with("  M").is_empty() && with("  M").iter().all(|m| m.contains(" curg=nil ")), "{last}");
    let gs = with("  G");
    assert_eq!(gs.len(), 2, "{last}");
    assert!(gs.iter().any(|g| g.contains("status=4(sleep) m=nil lockedm=nil")), "{last}");
    assert!(gs.iter().any(|g| g.contains("status=4(park) m=nil")), "{last}");
}

#[test]
fn bad_values_are_named_and_have_no_effect() {
    let ended = run("schedtrace=fast,scheddetail=2");
    ended.assert_success().assert_does_not_say("SCHED");
    ended.assert_says(
        "MUNGO_DEBUG: 'schedtrace=fast' has no effect: the value must be a number of milliseconds",
    );
    ended.assert_says("'scheddetail=2' has no effect: the value must be 0 or 1");
}
