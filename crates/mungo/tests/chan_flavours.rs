//! Channels of every kind: order, capacity, disconnection, close, what happens to values.

mod common;

use common::{Drops, go_named, wait_until, wait_until_parked};
use mungo::chan::{
    CloseError, Receiver, RecvError, RecvTimeoutError, Select, SendError, SendTimeoutError, Sender,
    TryRecvError, TrySendError, after, at, bounded, never, tick, unbounded,
};
use mungo::go;
use std::time::{Duration, Instant};

type Pair<T> = (Sender<T>, Receiver<T>);

/// One of each kind.
fn kinds<T>() -> Vec<Pair<T>> {
    vec![bounded(0), bounded(1), bounded(3), bounded(100), unbounded()]
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn wait_for_receiver<T>(tx: &Sender<T>) {
    let mut select = Select::new();
    select.send(tx);
    wait_until("a receiver waits", || select.try_ready().is_ok());
}

fn wait_for_sender<T>(rx: &Receiver<T>) {
    let mut select = Select::new();
    select.recv(rx);
    wait_until("a sender waits", || select.try_ready().is_ok());
}

#[test]
fn values_come_in_order() {
    for (tx, rx) in kinds() {
        let sender = go(move || (0..1000).for_each(|i| tx.send(i).unwrap()));
        assert!(rx.iter().eq(0..1000));
        sender.join().unwrap();
        assert_eq!(rx.recv(), Err(RecvError));
    }
}

#[test]
fn threads_and_goroutines_mix() {
    for (tx, rx) in kinds() {
        let (to_thread, thread_gets) = bounded(0);
        let thread = std::thread::spawn(move || thread_gets.iter().for_each(|v: u64| tx.send(v * 2).unwrap()));
        let goroutine = go(move || (0..500).for_each(|i| to_thread.send(i).unwrap()));
        assert_eq!(rx.iter().sum::<u64>(), 500 * 499);
        thread.join().unwrap();
        goroutine.join().unwrap();
    }
}

#[test]
fn length_and_capacity() {
    let (tx, rx) = bounded(2);
    assert_eq!((tx.len(), tx.is_empty(), tx.is_full(), tx.capacity()), (0, true, false, Some(2)));
    tx.send(1).unwrap();
    assert_eq!((rx.len(), rx.is_empty(), rx.is_full(), rx.capacity()), (1, false, false, Some(2)));
    tx.send(2).unwrap();
    assert!(tx.is_full() && rx.is_full());
    assert_eq!(tx.try_send(3), Err(TrySendError::Full(3)));

    let (tx, rx) = bounded::<i32>(0);
    assert!(tx.is_full() && tx.is_empty() && rx.is_full() && rx.is_empty());
    assert_eq!((tx.len(), tx.capacity()), (0, Some(0)));

    let (tx, rx) = unbounded();
    (0..1000).for_each(|i| tx.send(i).unwrap());
    assert_eq!((rx.len(), rx.capacity(), rx.is_full()), (1000, None, false));
}

#[test]
fn dropping_the_last_sender_ends_receivers_after_the_last_value() {
    for (tx, rx) in kinds() {
        if tx.capacity() != Some(0) {
            tx.send(1).unwrap();
        }
        let left = tx.len();
        let other = tx.clone();
        drop(tx);
        assert_eq!(rx.len(), left, "another sender is left");
        drop(other);
        assert_eq!(rx.iter().count(), left);
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(rx.recv_timeout(ms(1)), Err(RecvTimeoutError::Disconnected));
    }
}

#[test]
fn dropping_the_last_receiver_returns_values_to_senders() {
    for (tx, rx) in kinds() {
        let other = rx.clone();
        drop(rx);
        drop(other);
        assert_eq!(tx.send(1), Err(SendError(1)));
        assert_eq!(tx.try_send(2), Err(TrySendError::Disconnected(2)));
        assert_eq!(tx.send_timeout(3, ms(1)), Err(SendTimeoutError::Disconnected(3)));
    }
}

#[test]
fn blocked_ones_notice_the_end() {
    let (tx, rx) = bounded::<String>(0);
    let receiver = go(move || rx.recv());
    wait_for_receiver(&tx);
    drop(tx);
    assert_eq!(receiver.join().unwrap(), Err(RecvError));

    let (tx, rx) = bounded(0);
    let sender = go(move || tx.send("back".to_owned()));
    wait_for_sender(&rx);
    drop(rx);
    assert_eq!(sender.join().unwrap(), Err(SendError("back".to_owned())));
}

#[test]
fn close_lets_receivers_drain() {
    for (tx, rx) in kinds() {
        let n = tx.capacity().unwrap_or(5).min(3);
        (0..n).for_each(|i| tx.send(i).unwrap());
        let other = tx.clone();
        assert_eq!(tx.close(), Ok(()));
        assert_eq!(other.close(), Err(CloseError));
        assert_eq!(other.send(9), Err(SendError(9)));
        assert_eq!(other.try_send(9), Err(TrySendError::Disconnected(9)));
        assert!(rx.iter().eq(0..n));
        assert_eq!(rx.recv(), Err(RecvError));
    }
}

#[test]
fn close_returns_the_values_of_blocked_senders() {
    let drops = Drops::leaked();
    for capacity in [0, 1] {
        let (tx, rx) = bounded(capacity);
        (0..capacity).for_each(|_| tx.send(drops.one()).unwrap());
        let blocked: Vec<_> = (0..3)
            .map(|_| {
                let tx = tx.clone();
                go(move || tx.send(drops.one()))
            })
            .collect();
        if capacity == 0 {
            wait_for_sender(&rx);
        }
        tx.close().unwrap();
        let before = drops.count();
        let mut returned = 0;
        for sender in blocked {
            returned += usize::from(sender.join().unwrap().is_err());
        }
        assert_eq!(drops.count(), before + returned, "each came back once");
        assert_eq!(rx.iter().count() + returned, 3 + capacity);
    }
}

#[test]
fn unreceived_values_are_dropped_once() {
    for drop_receiver_first in [false, true] {
        for (tx, rx) in kinds() {
            let drops = Drops::leaked();
            let n = tx.capacity().unwrap_or(1000);
            (0..n).for_each(|_| tx.send(drops.one()).unwrap());
            let received = n / 2;
            (0..received).for_each(|_| drop(rx.recv()));
            assert_eq!(drops.count(), received);
            if drop_receiver_first {
                drop(rx);
                assert_eq!(drops.count(), n, "nobody can receive them");
                drop(tx);
            } else {
                drop(tx);
                assert_eq!(drops.count(), received, "somebody can receive them");
                drop(rx);
            }
            assert_eq!(drops.count(), n);
        }
    }
}

#[test]
fn nothing_and_much_can_be_sent() {
    #[repr(align(256))]
    #[derive(Clone, PartialEq, Debug)]
    struct Aligned([u8; 700]);

    for (tx, rx) in kinds() {
        let sender = go(move || (0..300).for_each(|_| tx.send(()).unwrap()));
        assert_eq!(rx.iter().count(), 300);
        sender.join().unwrap();
    }
    for (tx, rx) in kinds() {
        let sender = go(move || (0..100).for_each(|i| tx.send(Aligned([i; 700])).unwrap()));
        for (i, value) in rx.iter().enumerate() {
            assert_eq!(std::ptr::from_ref(&value) as usize % 256, 0);
            assert_eq!(value, Aligned([i as u8; 700]));
        }
        sender.join().unwrap();
        let mut select = Select::new();
        select.recv(&rx);
        assert_eq!(select.select().recv(&rx), Err(RecvError));
    }
}

#[test]
fn a_channel_goes_through_a_channel() {
    let (tx, rx) = bounded(1);
    let (reply_to, reply) = bounded(0);
    go(move || {
        let reply_to: Sender<&str> = rx.recv().unwrap();
        reply_to.send("pong").unwrap();
    });
    tx.send(reply_to).unwrap();
    assert_eq!(reply.recv(), Ok("pong"));
}

#[test]
fn time_outs_are_never_early() {
    for (tx, rx) in [bounded(0), bounded(1)] {
        let start = Instant::now();
        assert_eq!(rx.recv_timeout(ms(5)), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= ms(5));
        if tx.capacity() == Some(1) {
            tx.send(0).unwrap();
        }
        go(move || {
            let start = Instant::now();
            assert_eq!(tx.send_timeout(1, ms(5)), Err(SendTimeoutError::Timeout(1)));
            assert!(start.elapsed() >= ms(5));
            assert_eq!(tx.send_deadline(2, start), Err(SendTimeoutError::Timeout(2)), "long past");
        })
        .join()
        .unwrap();
        drop(rx);
    }
}

#[test]
fn a_value_in_time_beats_the_clock() {
    for (tx, rx) in kinds() {
        let receiver = go(move || rx.recv_timeout(Duration::from_secs(600)));
        tx.send_timeout(7, Duration::from_secs(600)).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(7));
    }
}

/// A sender of a select that was chosen counts on its receiver, whose time limit ends with that.
#[test]
fn a_promised_value_is_waited_for_beyond_the_time_limit() {
    let (tx, rx) = bounded(0);
    let (promised, may_send) = bounded(0);
    let sender = go(move || {
        let mut select = Select::new();
        select.send(&tx);
        let chosen = select.select();
        promised.send(()).unwrap();
        chosen.send(&tx, 5).unwrap();
    });
    wait_for_sender(&rx);
    let start = Instant::now();
    let receiver = go(move || rx.recv_deadline(start + ms(1)));
    // The sender is chosen, and sends only once the limit is over.
    wait_until("the limit is over", || start.elapsed() > ms(20));
    may_send.recv().unwrap();
    assert_eq!(receiver.join().unwrap(), Ok(5));
    sender.join().unwrap();
}

#[test]
fn clocks_are_channels() {
    let start = Instant::now();
    let later = after(ms(10));
    assert!(later.is_empty() && later.try_recv() == Err(TryRecvError::Empty));
    assert_eq!(later.recv_timeout(ms(1)), Err(RecvTimeoutError::Timeout));
    let when = later.recv().unwrap();
    assert!(when >= start + ms(10) && Instant::now() >= when);
    assert_eq!(later.recv_timeout(ms(1)), Err(RecvTimeoutError::Timeout), "only once");
    assert_eq!(at(start).recv(), Ok(start), "in the past: at once");

    let ticks = tick(ms(3));
    let clone = ticks.clone();
    assert!(ticks.same_channel(&clone) && !ticks.same_channel(&later));
    let both = [go(move || ticks.recv().unwrap()), go(move || clone.recv().unwrap())];
    let [a, b] = both.map(|g| g.join().unwrap());
    assert_ne!(a, b, "each tick goes to one of them");

    assert_eq!(never::<()>().recv_timeout(ms(1)), Err(RecvTimeoutError::Timeout));
    assert_eq!((never::<()>().len(), never::<()>().capacity()), (0, Some(0)));
    assert_eq!(after(Duration::MAX).try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn iterators() {
    let (tx, rx) = unbounded();
    (0..3).for_each(|i| tx.send(i).unwrap());
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    (0..3).for_each(|i| tx.send(i).unwrap());
    drop(tx);
    let mut seen = 0;
    for value in &rx {
        assert_eq!(value, seen);
        seen += 1;
    }
    assert_eq!((seen, rx.into_iter().next()), (3, None));
}

#[test]
fn handles_are_shared_and_printed() {
    fn everywhere<T: Send + Sync + std::panic::UnwindSafe>(_: &T) {}
    let (tx, rx) = bounded::<i32>(1);
    everywhere(&tx);
    everywhere(&rx);
    assert_eq!(format!("{tx:?} {rx:?}"), "Sender { .. } Receiver { .. }");
    assert_eq!(format!("{:?}", tx.send(1).map_err(|_| ())), "Ok(())");
    assert_eq!(TrySendError::from(SendError(1)), TrySendError::Disconnected(1));
    assert_eq!(SendTimeoutError::from(SendError(1)), SendTimeoutError::Disconnected(1));
    assert_eq!(TryRecvError::from(RecvError), TryRecvError::Disconnected);
    assert_eq!(RecvTimeoutError::from(RecvError), RecvTimeoutError::Disconnected);
    assert_eq!(SendError(5).into_inner(), 5);
}

#[test]
fn a_panic_in_a_destructor_leaves_the_channel_free() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("boom");
        }
    }
    for (tx, rx) in [bounded(1), unbounded()] {
        tx.send(Bomb).unwrap();
        let dropper = go(move || drop(rx));
        assert!(dropper.join().is_err());
        let back = tx.send(Bomb).unwrap_err();
        std::mem::forget(back);
    }
}

#[test]
fn a_receive_from_a_full_buffer_lets_a_sender_in() {
    let (tx, rx) = bounded(2);
    (0..2).for_each(|i| tx.send(i).unwrap());
    let sender = go_named("waits for a place", move || tx.send(2).unwrap());
    wait_until_parked("waits for a place");
    assert_eq!(rx.recv(), Ok(0));
    sender.join().unwrap();
    assert!(rx.len() == 2 && rx.iter().eq(1..3));
}

#[test]
fn without_receivers_nothing_is_in_the_channel() {
    for (tx, rx) in kinds().into_iter().skip(1) {
        tx.send(1).unwrap();
        drop(rx);
        assert!(tx.is_empty());
    }
}
