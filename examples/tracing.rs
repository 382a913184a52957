//! Traces a small program, and says how long its goroutines waited for their turn, by the reason.
//!
//! `mungo trace view FILE` shows such a file as a picture.

use mungo::{chan, go, trace};
use mungo_trace::{Kind, Stop, Trace};
use std::collections::BTreeMap;
use std::time::Duration;

fn pipeline() {
    let (to, from) = chan::bounded(4);
    let producer = go(move || {
        for n in 0..200u64 {
            let _region = trace::region("produce");
            to.send(n).unwrap();
        }
    });
    let consumer = go(move || {
        let request = trace::task("all of it");
        let sum: u64 = from
            .iter()
            .inspect(|n| {
                if n % 50 == 0 {
                    mungo::sleep(Duration::from_millis(1))
                }
            })
            .sum();
        trace::log(format_args!("the sum is {sum}"));
        drop(request);
        sum
    });
    producer.join().unwrap();
    assert_eq!(consumer.join().unwrap(), 19_900);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("mungo-example-{}.trace", std::process::id()));
    let tracing = trace::start(&file)?;
    pipeline();
    let summary = tracing.stop()?;
    println!("{} events, {} bytes, {} dropped", summary.events, summary.bytes, summary.dropped);

    let trace = Trace::open(&file)?;
    std::fs::remove_file(&file)?;
    let (mut waits, mut parks) = (BTreeMap::new(), BTreeMap::new());
    let mut causes = BTreeMap::new();
    for event in &trace.events {
        match event.kind {
            Kind::Ready { g, cause, .. } => _ = causes.insert(g, format!("{cause:?}")),
            Kind::Start { g, waited_ns, .. } => {
                let cause = causes.remove(&g).unwrap_or_else(|| "went on".to_owned());
                let (count, longest) = waits.entry(cause).or_insert((0u32, 0));
                (*count, *longest) = (*count + 1, waited_ns.max(*longest));
            }
            Kind::Stop { why: Stop::Parked { reason, .. }, .. } => {
                *parks.entry(trace.string(reason)).or_insert(0u32) += 1;
            }
            Kind::Log { text, .. } => println!("it said: {}", trace.string(text)),
            _ => {}
        }
    }
    for (cause, (count, longest_ns)) in &waits {
        println!("{count:5} starts of goroutines that were {cause}: waited at most {} µs", longest_ns / 1000);
    }
    for (reason, count) in &parks {
        println!("{count:5} waits: {reason}");
    }
    assert!(waits.contains_key("Spawned") && parks.contains_key("sleep"));
    Ok(())
}
