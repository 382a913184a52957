//! Tests that look at the waiters of a channel.

use super::{Sender, TrySendError, bounded, select, unbounded};
use crate::go;
use crate::sched::run::park::Entered;
use std::time::{Duration, Instant};

/// Returns how many senders and receivers wait.
fn waiting<T>(tx: &Sender<T>) -> (usize, usize) {
    let entered = Entered::now();
    let locked = tx.chan().core.lock(&entered);
    (locked.senders.len(), locked.receivers.len())
}

#[track_caller]
fn wait_until<T>(tx: &Sender<T>, wanted: (usize, usize)) {
    let start = Instant::now();
    while waiting(tx) != wanted {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?} instead of {wanted:?}", waiting(tx));
        crate::sleep(Duration::from_micros(100));
    }
}

#[test]
fn receivers_are_served_in_the_order_they_came() {
    let (tx, rx) = bounded(0);
    let (out, order) = unbounded();
    for i in 0..20 {
        let (rx, out) = (rx.clone(), out.clone());
        let body = move || {
            // Every third one waits with a deadline, every other in a select: one queue for all.
            let got = match i % 3 {
                0 => rx.recv_timeout(Duration::from_secs(600)).is_ok(),
                1 => select! { recv(rx) -> v => v.is_ok(), default(Duration::from_secs(600)) => false },
                _ => rx.recv().is_ok(),
            };
            out.send((i, got)).unwrap();
        };
        if i % 5 == 0 {
            drop(std::thread::spawn(body))
        } else {
            drop(go(body))
        }
        wait_until(&tx, (0, i + 1));
    }
    for i in 0..20 {
        tx.send(()).unwrap();
        assert_eq!(order.recv(), Ok((i, true)));
    }
}

#[test]
fn senders_are_served_in_the_order_they_came() {
    for capacity in [0, 2] {
        let (tx, rx) = bounded(capacity);
        (0..capacity).for_each(|i| tx.send(i).unwrap());
        for i in capacity..20 {
            let sender = tx.clone();
            go(move || match i % 2 {
                0 => sender.send(i).unwrap(),
                _ => sender.send_timeout(i, Duration::from_secs(600)).unwrap(),
            });
            wait_until(&tx, (i - capacity + 1, 0));
        }
        drop(tx);
        assert!(rx.iter().eq(0..20));
    }
}

#[test]
fn a_select_leaves_no_node_behind() {
    let ((a, rx_a), (b, rx_b)) = (bounded::<u8>(0), bounded::<u8>(0));
    let full = bounded(1);
    full.0.send(0u8).unwrap();
    let full_tx = full.0.clone();
    let selecting = go(move || {
        for _ in 0..2 {
            select! {
                recv(rx_a) -> _ => {}
                recv(rx_b) -> _ => {}
                recv(rx_a) -> _ => {}
                send(full_tx, 1) -> _ => unreachable!(),
                default(Duration::from_secs(600)) => unreachable!(),
            }
        }
        (rx_a, rx_b)
    });
    wait_until(&a, (0, 2));
    wait_until(&b, (0, 1));
    wait_until(&full.0, (1, 0));
    b.send(1).unwrap();
    a.send(1).unwrap();
    let receivers = selecting.join().unwrap();
    assert_eq!((waiting(&a), waiting(&b), waiting(&full.0)), ((0, 0), (0, 0), (0, 0)));
    drop(receivers);
}

/// A place that is promised to a selected sender is not free, and is free again when the promise ends.
#[test]
fn reservations_count() {
    let (tx, rx) = bounded(1);
    let mut select = super::Select::new();
    select.send(&tx);
    let operation = select.select();
    assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
    assert!(tx.is_full() && tx.is_empty());
    let blocked = {
        let tx = tx.clone();
        go(move || tx.send(2).unwrap())
    };
    wait_until(&tx, (1, 0));
    // A receiver need not wait for the promise: another sender has a value.
    assert_eq!(rx.recv(), Ok(2));
    blocked.join().unwrap();
    let blocked = {
        let tx = tx.clone();
        go(move || tx.send(3).unwrap())
    };
    wait_until(&tx, (1, 0));
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(operation)));
    assert!(dropped.is_err());
    blocked.join().unwrap();
    assert_eq!(rx.recv(), Ok(3));
}

/// Waiting for a value that was promised and is not made: the receiver starts again.
#[test]
fn a_broken_promise_does_not_harm_the_receiver() {
    let (tx, rx) = bounded::<u8>(0);
    let receiver = go(move || rx.recv());
    wait_until(&tx, (0, 1));
    let mut select = super::Select::new();
    select.send(&tx);
    let operation = select.select();
    assert_eq!(waiting(&tx), (0, 0), "it is ours");
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(operation)));
    assert!(dropped.is_err());
    wait_until(&tx, (0, 1));
    tx.send(5).unwrap();
    assert_eq!(receiver.join().unwrap(), Ok(5));
}
