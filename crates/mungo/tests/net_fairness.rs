//! The order of goroutines when the network wakes many. In processes of their own: any runtime of a process takes its
//! events.

#[macro_use]
mod common;

use common::{Deadline, PATIENCE, child, end, runtime, wait_until};
use mungo::debug::{DumpOptions, State};
use mungo::net::UnixStream;
use mungo::{Runtime, WaitReason, go};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

children!(woken_early_goes_before_woken_late, whoever_waits_behind_a_computation_is_stolen);

/// Two are woken by one write, and the one that runs first computes. While it does, a third is woken.
///
/// It may be overtaken by chance: if the kernel takes the CPU from its thread between its first instruction and its
/// count, another thread gets the P.
fn woken_early_goes_before_woken_late() {
    const ROUNDS: usize = 20;
    let mut overtaken = 0;
    for _ in 0..ROUNDS {
        let rt = runtime(1);
        // No lock: a goroutine that waits for the thread that looks would be overtaken, and rightly.
        let (came, third): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let ((mut first, receiver), (mut late, late_receiver)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let receivers = [receiver.try_clone().unwrap(), receiver, late_receiver];
        let woken: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(i, mut stream)| {
                let (came, third) = (came.clone(), third.clone());
                rt.spawn(move || {
                    stream.read_exact(&mut [0]).unwrap();
                    let before = came.fetch_add(1, SeqCst);
                    if before == 2 {
                        third.store(i, SeqCst);
                    }
                    let computed = Deadline::after(Duration::from_millis(20));
                    while before == 0 && !computed.passed() {}
                })
            })
            .collect();
        wait_until("all wait for the network", || {
            let waits = |state| matches!(state, State::Waiting(WaitReason::NetRead));
            DumpOptions::new().stacks(false).dump().goroutines().iter().filter(|g| waits(g.state)).count() == 3
        });
        rt.spawn(move || first.write_all(&[0, 0]).unwrap());
        wait_until("one of them computes", || came.load(SeqCst) != 0);
        late.write_all(&[0]).unwrap();
        woken.into_iter().for_each(|g| g.join().unwrap());
        overtaken += usize::from(third.load(SeqCst) != 2);
        end(rt);
    }
    assert!(overtaken <= ROUNDS / 10, "{overtaken} of {ROUNDS} were overtaken");
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
        // The stolen one says itself when it ran: the kernel may take the CPU from this one in between.
        let ran_after = Arc::new(AtomicUsize::new(usize::MAX));
        let (behind, seen_there) = (ran_after.clone(), seen.clone());
        go(move || behind.store(seen_there.load(SeqCst), SeqCst));
        go(|| {}); // the last one would be next here, and nobody takes that
        let before = seen.load(SeqCst);
        while ran_after.load(SeqCst) == usize::MAX && !patience.passed() {}
        seen.store(STOP, SeqCst);
        ran_after.load(SeqCst).saturating_sub(before)
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
