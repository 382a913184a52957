//! Time-outs against an idle channel leave nothing behind. Alone in its process, because it looks at the memory.

mod common;

use mungo::chan::{bounded, select};
use std::time::Duration;

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    text.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number") * 4096
}

#[test]
#[cfg_attr(miri, ignore = "a million rounds")]
fn a_million_time_outs_leave_nothing_behind() {
    let runtime = common::runtime(1);
    let rounds = if cfg!(debug_assertions) { 50_000 } else { 500_000 };
    // A goroutine that keeps the P awake, so that timers are looked at often.
    let (stop, stopped) = bounded::<()>(0);
    let busy = move || {
        while stopped.try_recv().is_err_and(|e| e.is_empty()) {
            mungo::yield_now();
        }
    };
    let busy = mungo::Builder::new().spawn_on(&runtime, busy).unwrap();
    let task = move || {
        let (tx, rx) = bounded::<[u64; 16]>(0);
        let round = || {
            select! {
                recv(rx) -> _ => unreachable!(),
                send(tx, [0; 16]) -> _ => unreachable!(),
                default(Duration::from_nanos(500)) => {}
            }
            _ = rx.recv_timeout(Duration::from_nanos(500));
        };
        (0..10_000).for_each(|_| round());
        let before = resident_bytes();
        (0..rounds).for_each(|_| round());
        let after = resident_bytes();
        assert!(after < before + (4 << 20), "{before} bytes became {after}");
        // Nobody waits there any more.
        assert!(tx.try_send([0; 16]).is_err() && rx.try_recv().is_err());
    };
    mungo::Builder::new().spawn_on(&runtime, task).unwrap().join().unwrap();
    drop(stop);
    busy.join().unwrap();
    common::end(runtime);
}
