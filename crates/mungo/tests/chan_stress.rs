//! Channels under stress: random programs of goroutines and threads, checked for lost, doubled and reordered values.

mod common;

use common::{Rng, hasty_runtime, stress_time};
use futures::future::Either;
use mungo::chan::{Receiver, Select, Sender, bounded, select, unbounded};
use mungo::time::sleep_async;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The sender, and its number there.
type Value = (usize, u64);

fn pair(rng: &mut Rng) -> (Sender<Value>, Receiver<Value>) {
    match rng.below(5) {
        0 | 1 => bounded(0),
        2 => bounded(1),
        3 => bounded(1 + rng.below(20) as usize),
        _ => unbounded(),
    }
}

/// Sends `value`, in one of the ways there are.
fn send(rng: &mut Rng, tx: &Sender<Value>, others: &[Receiver<u8>], value: Value) {
    match rng.below(8) {
        // Two that only ask never meet without a buffer between them.
        0 if tx.capacity() != Some(0) => {
            while tx.try_send(value).is_err() {
                mungo::yield_now();
            }
        }
        1 => while tx.send_timeout(value, Duration::from_micros(rng.below(50))).is_err() {},
        2 => select! {
            send(tx, value) -> r => r.unwrap(),
            recv(others[0]) -> _ => unreachable!(),
        },
        3 => {
            let mut select = Select::new();
            others.iter().for_each(|rx| _ = select.recv(rx));
            let index = select.send(tx);
            let operation = select.select();
            assert_eq!(operation.index(), index);
            operation.send(tx, value).unwrap();
        }
        4 => loop {
            select! {
                send(tx, value) -> r => break r.unwrap(),
                default(Duration::from_micros(rng.below(50))) => {}
            }
        },
        5 => mungo::block_on(tx.send_async(value)).unwrap(),
        _ => tx.send(value).unwrap(),
    }
}

/// How many ways there are to receive, and how many of them never give a value back.
const WAYS: u64 = 9;
const WAYS_IN_ORDER: u64 = 8;

/// Receives a value, in one of the first `ways`; `None`: disconnected.
fn recv(rng: &mut Rng, ways: u64, rx: &Receiver<Value>, others: &[Receiver<u8>]) -> Option<Value> {
    match rng.below(ways) {
        0 => loop {
            match rx.try_recv() {
                Ok(value) => return Some(value),
                Err(e) if e.is_disconnected() => return None,
                Err(_) => mungo::yield_now(),
            }
        },
        1 => loop {
            match rx.recv_timeout(Duration::from_micros(rng.below(50))) {
                Ok(value) => return Some(value),
                Err(e) if e.is_disconnected() => return None,
                Err(_) => {}
            }
        },
        2 => select! {
            recv(rx) -> v => v.ok(),
            recv(others[0]) -> _ => unreachable!(),
            recv(rx) -> v => v.ok(),
        },
        3 => {
            let mut select = Select::new();
            others.iter().for_each(|rx| _ = select.recv(rx));
            select.recv(rx);
            select.select().recv(rx).ok()
        }
        4 => loop {
            let mut select = Select::new();
            select.recv(rx);
            select.ready();
            match rx.try_recv() {
                Ok(value) => return Some(value),
                Err(e) if e.is_disconnected() => return None,
                Err(_) => {}
            }
        },
        5 => loop {
            select! {
                recv(rx) -> v => return v.ok(),
                default => mungo::yield_now(),
            }
        },
        6 => mungo::block_on(rx.recv_async()).ok(),
        7 => rx.recv().ok(),
        _ => mungo::block_on(async {
            loop {
                // Whoever loses is dropped, perhaps with a value in it, which must come back.
                let (value, time) = (pin!(rx.recv_async()), pin!(sleep_async(Duration::from_micros(20))));
                if let Either::Left((value, _)) = futures::future::select(value, time).await {
                    return value.ok();
                }
            }
        }),
    }
}

fn spawn(thread: bool, runtime: &mungo::Runtime, f: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce()> {
    if thread {
        let handle = std::thread::spawn(f);
        Box::new(move || handle.join().unwrap())
    } else {
        let handle = mungo::Builder::new().spawn_on(runtime, f).unwrap();
        Box::new(move || handle.join().unwrap())
    }
}

fn round(rng: &mut Rng, runtime: &mungo::Runtime) {
    let (tx, rx) = pair(rng);
    let (senders, receivers) = (1 + rng.below(5) as usize, 1 + rng.below(5) as usize);
    let each = 200 + rng.below(300);
    // A value that a dropped future gives back may come later than those that others received meanwhile.
    let ways = if receivers == 1 || rng.below(2) == 0 { WAYS } else { WAYS_IN_ORDER };
    let in_order = receivers == 1 || ways == WAYS_IN_ORDER;
    let received = Arc::new(AtomicUsize::new(0));
    let mut joins = Vec::new();
    for id in 0..senders {
        let (tx, mut rng) = (tx.clone(), Rng::new(rng.next()));
        joins.push(spawn(rng.below(3) == 0, runtime, move || {
            let quiet: Vec<_> = (0..3).map(|_| bounded::<u8>(0)).collect();
            let others: Vec<_> = quiet.iter().map(|(_, rx)| rx.clone()).collect();
            (0..each).for_each(|i| send(&mut rng, &tx, &others, (id, i)));
        }));
    }
    for _ in 0..receivers {
        let (rx, received, mut rng) = (rx.clone(), received.clone(), Rng::new(rng.next()));
        joins.push(spawn(rng.below(3) == 0, runtime, move || {
            let quiet: Vec<_> = (0..3).map(|_| bounded::<u8>(0)).collect();
            let others: Vec<_> = quiet.iter().map(|(_, rx)| rx.clone()).collect();
            let mut last = vec![None; senders];
            while let Some((id, i)) = recv(&mut rng, ways, &rx, &others) {
                assert!(!in_order || last[id] < Some(i), "sender {id}: {i} after {:?}", last[id]);
                last[id] = Some(i);
                received.fetch_add(1, Relaxed);
            }
        }));
    }
    drop((tx, rx));
    joins.into_iter().for_each(|join| join());
    assert_eq!(received.load(Relaxed), senders * each as usize);
}

#[test]
fn stress_random_programs() {
    let mut rng = Rng::seeded("stress_random_programs");
    let end = Instant::now() + stress_time(Duration::from_secs(3));
    while Instant::now() < end {
        let runtime = hasty_runtime(1 + rng.below(4) as usize);
        (0..10).for_each(|_| round(&mut rng, &runtime));
        common::end(runtime);
    }
}

/// Closing, and dropping the last handle, while others send and receive: each value is received or comes back, once.
#[test]
fn stress_close() {
    let mut rng = Rng::seeded("stress_close");
    let end = Instant::now() + stress_time(Duration::from_secs(2));
    let runtime = hasty_runtime(3);
    while Instant::now() < end {
        let (tx, rx) = pair(&mut rng);
        let (sent, back, received) = (counter(), counter(), counter());
        let mut joins = Vec::new();
        for id in 0..4 {
            let (tx, sent, back) = (tx.clone(), sent.clone(), back.clone());
            joins.push(spawn(id == 0, &runtime, move || {
                for i in 0..100 {
                    let result = if i % 2 == 0 {
                        tx.send((id, i))
                    } else {
                        select! { send(tx, (id, i)) -> r => r }
                    };
                    if result.is_ok() { &sent } else { &back }.fetch_add(1, Relaxed);
                }
            }));
        }
        for id in 0..3 {
            let (rx, received) = (rx.clone(), received.clone());
            joins.push(spawn(id == 0, &runtime, move || _ = received.fetch_add(rx.iter().count(), Relaxed)));
        }
        (0..rng.below(100)).for_each(|_| std::hint::spin_loop());
        tx.close().unwrap();
        drop((tx, rx));
        joins.into_iter().for_each(|join| join());
        let (sent, back, received) = (sent.load(Relaxed), back.load(Relaxed), received.load(Relaxed));
        assert_eq!((sent + back, received), (400, sent));
    }
    common::end(runtime);
}

fn counter() -> Arc<AtomicUsize> {
    Arc::default()
}

/// A select with a default must not miss a value that is in one of its channels at every moment: one channel is filled
/// before the other one is emptied.
#[test]
fn stress_default_is_exact() {
    let runtime = hasty_runtime(2);
    let end = Instant::now() + stress_time(Duration::from_secs(1));
    let (a, b) = (bounded(1), bounded(1));
    a.0.send(()).unwrap();
    let mover = {
        let (a, b) = (a.clone(), b.clone());
        spawn(false, &runtime, move || {
            while Instant::now() < end {
                for (from, to) in [(&a, &b), (&b, &a)] {
                    // The observer may hold the value for a moment.
                    to.0.send(()).unwrap();
                    from.1.recv().unwrap();
                }
            }
        })
    };
    let observer = spawn(false, &runtime, move || {
        let mut looks = 0u64;
        while Instant::now() < end {
            let mut select = Select::new();
            select.recv(&a.1);
            select.recv(&b.1);
            let mut reversed = Select::new();
            reversed.recv(&b.1);
            reversed.recv(&a.1);
            assert!(select.try_ready().is_ok() && reversed.try_ready().is_ok(), "after {looks} looks");
            looks += 1;
        }
    });
    mover();
    observer();
    common::end(runtime);
}
