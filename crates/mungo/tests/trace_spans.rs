//! Spans of `tracing` are regions of the goroutine that entered them.

#![cfg(feature = "tracing")]

use mungo::{Runtime, trace};
use mungo_trace::{Kind, Trace};
use std::collections::HashMap;
use tracing_subscriber::layer::SubscriberExt;

/// Two goroutines on one P enter spans of the same names, and take turns inside.
fn work() {
    let spans = |n: u64| {
        let outer = tracing::info_span!("outer");
        for _ in 0..3 {
            let _outer = outer.enter(); // the same span again and again
            mungo::yield_now();
            let _inner = tracing::debug_span!("inner").entered();
            mungo::yield_now();
            tracing::info!(n, "said {}", 7);
        }
    };
    let all: Vec<_> = (0..2).map(|n| mungo::go(move || spans(n))).collect();
    all.into_iter().for_each(|one| one.join().unwrap());
}

#[test]
fn spans_are_regions_and_events_are_log_lines() {
    let subscriber = tracing_subscriber::registry().with(trace::layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let file = std::env::temp_dir().join(format!("mungo-spans-{}.trace", std::process::id()));
    let runtime = Runtime::builder().procs(1).build().unwrap();
    runtime.run(work); // with no trace: nothing happens
    let tracing = trace::start(&file).unwrap();
    runtime.run(work);
    tracing.stop().unwrap();
    let trace = Trace::open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();

    let mut open: HashMap<u64, (u64, &str)> = HashMap::new();
    let mut regions: HashMap<(u64, &str), u32> = HashMap::new();
    let mut lines = Vec::new();
    for event in &trace.events {
        match event.kind {
            Kind::RegionBegin { g: Some(g), id, name } => _ = open.insert(id, (g, trace.string(name))),
            Kind::RegionEnd { g, id, .. } => {
                let (began, name) = open.remove(&id).expect("a region that has begun");
                assert_eq!(g, Some(began), "it ends where it began");
                *regions.entry((began, name)).or_default() += 1;
            }
            Kind::Log { g: Some(_), text } => lines.push(trace.string(text)),
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert_eq!(regions.len(), 4, "{regions:?}");
    assert!(regions.values().all(|times| *times == 3), "{regions:?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with("said 7 n=1")).count(), 3, "{lines:?}");
}
