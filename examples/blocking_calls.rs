//! Blocking calls, announced or not, block their own thread and no other goroutine.

use std::time::{Duration, Instant};

#[mungo::main(procs = 2)]
fn main() {
    let start = Instant::now();
    let sleepers: Vec<_> = (0..64)
        .map(|i| {
            mungo::go(move || {
                let nap = || std::thread::sleep(Duration::from_millis(100)); // blocks the whole thread
                match i % 2 {
                    0 => nap(),
                    _ => mungo::blocking(nap), // says so: its processor leaves a little earlier
                }
            })
        })
        .collect();
    sleepers.into_iter().for_each(|s| s.join().unwrap());
    println!("64 blocking calls of 100 ms on 2 procs took {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(3), "one after the other they would take 3.2 s");
}
