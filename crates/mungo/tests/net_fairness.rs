//! Who goes first when the network wakes many. In processes of their own: any runtime of a process takes its events.

#[macro_use]
mod common;

use common::{Deadline, PATIENCE, child, end, runtime, wait_until};
use mungo::net::UnixStream;
use mungo::{Runtime, go};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

children!(woken_early_goes_before_woken_late, whoever_waits_behind_a_computation_is_stolen);

/// Two are woken together, and the first computes. While it does, a third is woken.
fn woken_early_goes_before_woken_late() {
    for _ in 0..20 {
        let rt = runtime(1);
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| UnixStream::pair().unwrap()).unzip();
        let woken: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(i, mut stream)| {
                let (order, waiting) = (order.clone(), waiting.clone());
                rt.spawn(move || {
                    waiting.fetch_add(1, SeqCst);
                    stream.read_exact(&mut [0]).unwrap();
                    order.lock().unwrap().push(i);
                    let computed = Deadline::after(Duration::from_millis(20));
                    while i == 0 && !computed.passed() {}
                })
            })
            .collect();
        wait_until("all wait", || waiting.load(SeqCst) == 3);
        let [mut first, mut second, mut third]: [UnixStream; 3] = senders.try_into().unwrap();
        rt.spawn(move || {
            first.write_all(&[0]).unwrap();
            second.write_all(&[0]).unwrap();
        });
        wait_until("the first computes", || !order.lock().unwrap().is_empty());
        third.write_all(&[0]).unwrap();
        woken.into_iter().for_each(|g| g.join().unwrap());
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
        end(rt);
    }
}

#[test]
fn whoever_was_woken_early_is_not_overtaken() {
    child::run("woken_early_goes_before_woken_late").assert_code(0);
}

/// On one P a goroutine computes and is not interrupted. On the other one a pair plays, and is never out of work.
fn whoever_waits_behind_a_computation_is_stolen() {
    let rt = Runtime::builder().procs(2).time_slice(2 * PATIENCE).build().unwrap();
    let turns = Arc::new(AtomicUsize::new(0));
    let (started, seen) = (Arc::new(AtomicBool::new(false)), turns.clone());
    let computes = started.clone();
    let computing = rt.spawn(move || {
        computes.store(true, SeqCst);
        let patience = Deadline::after(PATIENCE / 2);
        while seen.load(SeqCst) < 1000 && !patience.passed() {}
        let ran = Arc::new(AtomicBool::new(false));
        let behind = ran.clone();
        let before = seen.load(SeqCst);
        go(move || behind.store(true, SeqCst));
        go(|| {}); // the last one would be next here, and nobody takes that
        while !ran.load(SeqCst) && !patience.passed() {}
        seen.swap(STOP, SeqCst) - before
    });
    wait_until("it computes", || started.load(SeqCst));
    let (a, mut b) = UnixStream::pair().unwrap();
    b.write_all(&[0]).unwrap();
    let players = [a, b].map(|mut stream| {
        let turns = turns.clone();
        rt.spawn(move || {
            let mut byte = [0];
            // Until told to stop, or the other one has gone.
            while stream.read(&mut byte).is_ok_and(|n| n == 1) && turns.fetch_add(1, SeqCst) < STOP {
                _ = stream.write_all(&byte);
            }
        })
    });
    let turns = computing.join().unwrap();
    assert!(turns < 10_000, "the pair had {turns} turns meanwhile");
    players.into_iter().for_each(|player| player.join().unwrap());
    end(rt);
}

/// More turns than anybody plays.
const STOP: usize = usize::MAX / 2;

#[test]
fn a_busy_network_is_not_all_there_is_to_do() {
    child::run("whoever_waits_behind_a_computation_is_stolen").assert_code(0);
}
