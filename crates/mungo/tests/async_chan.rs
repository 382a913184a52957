//! Channels for tasks: they mix with goroutines and threads, and a future that is dropped loses nothing.
//!
//! The rule: a value that was handed to a receive future which is dropped goes to the next receiver that waits, else to
//! the front of the channel. The counts here are exact.
#![cfg(feature = "futures")]

mod common;

use common::{Drops, Rng, counting, hasty_runtime, runtime, stress_time, wait_until};
use futures::future::{Either, join, select};
use futures::stream::{FusedStream, StreamExt};
use futures::{SinkExt, Stream};
use mungo::chan::{self, Receiver, Select, bounded, unbounded};
use mungo::{block_on, go};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

#[test]
fn tasks_meet_tasks_goroutines_and_threads() {
    for capacity in [0, 1, 7] {
        let (tx, rx) = bounded(capacity);
        let (answer, answers) = unbounded();
        let mut senders = Vec::new();
        for kind in 0..3 {
            let tx = tx.clone();
            let body = move || match kind {
                0 => block_on(async { (0..100).for_each(|i| block_on(tx.send_async(i)).unwrap()) }),
                _ => (0..100).for_each(|i| tx.send(i).unwrap()),
            };
            match kind {
                2 => drop(std::thread::spawn(body)),
                _ => senders.push(go(body)),
            }
        }
        drop(tx);
        for kind in 0..3 {
            let (rx, answer) = (rx.clone(), answer.clone());
            let body = move || {
                let sum: u64 = match kind {
                    0 => block_on(async {
                        let mut sum = 0;
                        while let Ok(i) = rx.recv_async().await {
                            sum += i;
                        }
                        sum
                    }),
                    1 => futures::executor::block_on(rx.stream().fold(0, async |sum, i| sum + i)),
                    _ => rx.iter().sum(),
                };
                answer.send(sum).unwrap();
            };
            match kind {
                1 => drop(std::thread::spawn(body)),
                _ => drop(go(body)),
            }
        }
        drop(answer);
        assert_eq!(answers.iter().sum::<u64>(), 3 * 4950);
        senders.into_iter().for_each(|s| s.join().unwrap());
    }
}

#[test]
fn one_task_sends_to_itself() {
    for capacity in [0, 1] {
        let (tx, rx) = bounded(capacity);
        let sent = async {
            for i in 0..100 {
                tx.send_async(i).await.unwrap();
            }
        };
        let received = async {
            for i in 0..100 {
                assert_eq!(rx.recv_async().await, Ok(i));
            }
        };
        block_on(join(sent, received));
    }
}

#[test]
fn a_value_handed_to_a_dropped_future_comes_back() {
    for capacity in [Some(0), Some(1), Some(3), None] {
        let (tx, rx) = capacity.map_or_else(unbounded, bounded);
        let (count, waker) = counting();
        let mut first = Box::pin(rx.recv_async());
        assert!(poll(first.as_mut(), &waker).is_pending());
        assert_eq!(tx.try_send(1), Ok(()), "a task that waits is a receiver");
        assert_eq!((count.count(), rx.len()), (1, 0));
        if capacity != Some(0) {
            tx.send(2).unwrap();
        }
        drop(first);
        // In front of what was sent later.
        assert_eq!(rx.try_recv(), Ok(1));
        assert_eq!(rx.try_recv().ok(), (capacity != Some(0)).then_some(2));
        assert!(rx.is_empty());
    }
}

#[test]
fn a_value_of_a_dropped_future_goes_to_the_next_who_waits() {
    let (tx, rx) = bounded(0);
    let (_, waker) = counting();
    let mut first = Box::pin(rx.recv_async());
    assert!(poll(first.as_mut(), &waker).is_pending());
    let second = go({
        let rx = rx.clone();
        move || rx.recv().unwrap()
    });
    let mut third = Box::pin(rx.recv_async());
    tx.send("for the first").unwrap();
    // The goroutine waits or will; both ways it gets the value.
    drop(first);
    assert_eq!(second.join().unwrap(), "for the first");
    assert!(poll(third.as_mut(), &waker).is_pending());
    tx.send("for the third").unwrap();
    assert_eq!(poll(third.as_mut(), &waker), Poll::Ready(Ok("for the third")));
}

/// Past the capacity: nobody else may send before it is received.
#[test]
fn what_came_back_takes_its_place() {
    let (tx, rx) = bounded(0);
    let (_, waker) = counting();
    let mut first = Box::pin(rx.recv_async());
    assert!(poll(first.as_mut(), &waker).is_pending());
    tx.send(1).unwrap();
    drop(first);
    assert_eq!(rx.len(), 1);
    assert!(tx.try_send(2).unwrap_err().is_full());
    let waits = go({
        let tx = tx.clone();
        move || tx.send(2)
    });
    assert_eq!(rx.recv(), Ok(1));
    assert_eq!(rx.recv(), Ok(2));
    waits.join().unwrap().unwrap();
    // It is a channel without a buffer again.
    assert!(tx.try_send(3).is_err() && rx.try_recv().is_err());
    // What came back survives the senders.
    let mut last = Box::pin(rx.recv_async());
    assert!(poll(last.as_mut(), &waker).is_pending());
    tx.send(4).unwrap();
    drop(tx);
    drop(last);
    assert_eq!(rx.iter().collect::<Vec<_>>(), [4]);
}

#[test]
fn a_dropped_send_sends_nothing_and_drops_once() {
    let drops = Drops::default();
    let (tx, rx) = bounded(0);
    let (count, waker) = counting();
    drop(tx.send_async(drops.one())); // never polled
    let mut waits = Box::pin(tx.send_async(drops.one()));
    assert!(poll(waits.as_mut(), &waker).is_pending());
    drop(waits);
    assert_eq!((drops.count(), count.count()), (2, 0));
    assert!(rx.try_recv().is_err());
    let mut taken = Box::pin(tx.send_async(drops.one()));
    assert!(poll(taken.as_mut(), &waker).is_pending());
    let value = rx.try_recv().unwrap();
    drop(taken); // it was received, and is not dropped here
    assert_eq!((drops.count(), count.count()), (2, 1));
    drop(value);
    let mut closed = Box::pin(tx.send_async(drops.one()));
    assert!(poll(closed.as_mut(), &waker).is_pending());
    drop(rx);
    match poll(closed.as_mut(), &waker) {
        Poll::Ready(Err(e)) => drop(e),
        other => panic!("{other:?}"),
    }
    drop(closed);
    assert_eq!((drops.count(), count.count()), (4, 2));
}

#[test]
fn the_last_waker_counts_and_old_ones_are_let_go() {
    let (tx, rx) = bounded(0);
    let (a, wake_a) = counting();
    let (b, wake_b) = counting();
    let mut future = Box::pin(rx.recv_async());
    for waker in [&wake_a, &wake_b, &wake_a, &wake_a, &wake_b] {
        assert!(poll(future.as_mut(), waker).is_pending());
    }
    drop((wake_a, wake_b));
    assert_eq!((Arc::strong_count(&a), Arc::strong_count(&b)), (1, 2));
    tx.send(()).unwrap();
    assert_eq!((a.count(), b.count()), (0, 1));
    drop(future);
    assert_eq!(Arc::strong_count(&b), 1);
}

#[test]
fn disconnection_ends_the_wait() {
    let (tx, rx) = bounded::<i32>(0);
    let waits = go(move || block_on(rx.recv_async()));
    drop(tx);
    assert!(waits.join().unwrap().is_err());
    let (tx, rx) = bounded(0);
    let waits = go(move || block_on(tx.send_async(1)));
    drop(rx);
    assert_eq!(waits.join().unwrap().unwrap_err().0, 1);
    let (tx, rx) = bounded(1);
    tx.close().unwrap();
    assert_eq!(block_on(tx.send_async(3)).unwrap_err().0, 3);
    assert!(block_on(rx.recv_async()).is_err());
}

#[test]
fn clocks_and_never() {
    let start = Instant::now();
    let beats = chan::tick(Duration::from_millis(1));
    block_on(async {
        chan::after(Duration::from_millis(2)).recv_async().await.unwrap();
        for _ in 0..3 {
            beats.recv_async().await.unwrap();
        }
        let never = chan::never::<()>();
        let timer = mungo::time::Timer::new(Duration::from_millis(1));
        match select(pin!(never.recv_async()), pin!(timer.c().recv_async())).await {
            Either::Right((when, _)) => assert!(when.unwrap() >= start),
            Either::Left(_) => unreachable!(),
        }
    });
    assert!(start.elapsed() >= Duration::from_millis(5));
    let later = chan::after(Duration::from_secs(3600));
    drop(block_on(poll_fn(|cx| {
        let mut future = Box::pin(later.recv_async());
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(future)
    })));
}

// ---- with select ----

/// A sender of a `select!` makes its value after it was chosen; the task it was chosen for may be gone by then.
#[test]
fn a_selected_sender_and_a_task() {
    let (_, waker) = counting();
    for leave in [false, true] {
        for capacity in [0, 1] {
            let (tx, rx) = bounded(capacity);
            let mut future = Box::pin(rx.recv_async());
            assert!(poll(future.as_mut(), &waker).is_pending());
            let mut select = Select::new();
            select.send(&tx);
            let chosen = select.select();
            if capacity == 0 {
                assert!(tx.try_send(9).unwrap_err().is_full(), "the task waits for the chosen one");
            }
            if leave {
                drop(future);
                chosen.send(&tx, 1).unwrap();
                assert_eq!((rx.len(), rx.try_recv()), (1, Ok(1)));
            } else {
                chosen.send(&tx, 1).unwrap();
                assert_eq!(poll(future.as_mut(), &waker), Poll::Ready(Ok(1)));
            }
            assert!(rx.is_empty());
        }
    }
}

#[test]
fn a_selected_sender_that_thinks_better_of_it() {
    let (count, waker) = counting();
    let (tx, rx) = bounded(0);
    let mut future = Box::pin(rx.recv_async());
    assert!(poll(future.as_mut(), &waker).is_pending());
    let mut select = Select::new();
    select.send(&tx);
    let chosen = select.select();
    // Its panic while it makes the value gives the place back.
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(chosen)));
    assert!(refused.is_err(), "dropped without a send");
    assert_eq!(count.count(), 1, "to look again");
    assert!(poll(future.as_mut(), &waker).is_pending());
    tx.send(2).unwrap();
    assert_eq!(poll(future.as_mut(), &waker), Poll::Ready(Ok(2)));
}

#[test]
fn a_task_that_was_promised_a_value_hears_of_the_end() {
    let (tx, rx) = bounded::<u32>(0);
    let (wakes, waker) = counting();
    let mut receiving = pin!(rx.recv_async());
    assert!(poll(receiving.as_mut(), &waker).is_pending());
    let mut select = Select::new();
    select.send(&tx);
    let promised = select.select();
    assert_eq!(wakes.count(), 0);
    tx.close().unwrap();
    assert_eq!(wakes.count(), 1);
    assert!(matches!(poll(receiving.as_mut(), &waker), Poll::Ready(Err(_))));
    assert!(promised.send(&tx, 1).is_err());
}

#[test]
fn a_task_comes_to_a_sender_of_a_select() {
    let (tx, rx) = bounded(0);
    for leave in [false, true] {
        let chooses = go({
            let tx = tx.clone();
            move || mungo::select! { send(tx, 5) -> sent => sent.unwrap() }
        });
        let (_, waker) = counting();
        let mut future = Box::pin(rx.recv_async());
        let mut polled = Poll::Pending;
        wait_until("the sender has sent", || {
            if !leave || polled.is_pending() && !chooses.is_finished() {
                polled = if polled.is_pending() { poll(future.as_mut(), &waker) } else { polled };
            }
            chooses.is_finished()
        });
        chooses.join().unwrap();
        if leave && polled.is_pending() {
            drop(future);
            assert_eq!(rx.try_recv(), Ok(5));
        } else if polled.is_pending() {
            assert_eq!(poll(future.as_mut(), &waker), Poll::Ready(Ok(5)));
        } else {
            assert_eq!(polled, Poll::Ready(Ok(5)));
        }
    }
}

// ---- streams and sinks ----

#[test]
fn streams_end_and_move() {
    let (tx, rx) = bounded(2);
    let sends = go(move || (0..10).for_each(|i| tx.send(i).unwrap()));
    block_on(async {
        let mut stream = rx.into_stream();
        assert_eq!(stream.next().await, Some(0));
        let mut moved = Box::new(stream); // between two values it may move
        assert_eq!(moved.by_ref().take(8).collect::<Vec<_>>().await, (1..9).collect::<Vec<_>>());
        assert_eq!((moved.next().await, moved.next().await, moved.next().await), (Some(9), None, None));
        assert!(moved.is_terminated() && moved.size_hint() == (0, None));
    });
    sends.join().unwrap();
}

#[test]
fn a_dropped_stream_loses_nothing() {
    let (tx, rx) = bounded(0);
    let (_, waker) = counting();
    let mut stream = rx.stream();
    assert!(Pin::new(&mut stream).poll_next(&mut Context::from_waker(&waker)).is_pending());
    tx.send(1).unwrap();
    drop(stream);
    assert_eq!(rx.try_recv(), Ok(1));
}

#[test]
fn sinks_send_in_order_and_flush() {
    let (tx, rx) = bounded(1);
    let receives = go(move || rx.iter().collect::<Vec<_>>());
    block_on(async {
        let mut sink = tx.into_sink();
        for i in 0..10 {
            sink.feed(i).await.unwrap();
        }
        sink.flush().await.unwrap();
        sink.send(10).await.unwrap();
        sink.close().await.unwrap();
    });
    assert_eq!(receives.join().unwrap(), (0..11).collect::<Vec<_>>());
    let (tx, rx) = bounded(0);
    drop(rx);
    assert_eq!(block_on(tx.sink().send(5)).unwrap_err().0, 5);
}

// ---- counts ----

/// Receives with futures that are polled once or twice and dropped, until the channel is disconnected.
fn receive_impatiently(rng: &mut Rng, rx: &Receiver<u64>, woken: &Waker) -> (u64, u64) {
    let (mut n, mut sum) = (0, 0);
    loop {
        let mut future = Box::pin(rx.recv_async());
        let mut polled = poll(future.as_mut(), woken);
        for _ in 0..rng.below(3) {
            if polled.is_pending() {
                (0..rng.below(100)).for_each(|_| std::hint::spin_loop());
                polled = poll(future.as_mut(), woken);
            }
        }
        match polled {
            Poll::Ready(Ok(i)) => (n, sum) = (n + 1, sum + i),
            Poll::Ready(Err(_)) => return (n, sum),
            Poll::Pending => drop(future), // perhaps with a value in it
        }
        mungo::yield_now();
    }
}

#[test]
fn stress_dropped_receives_lose_nothing() {
    let mut rng = Rng::seeded("stress_dropped_receives_lose_nothing");
    let end = Instant::now() + stress_time(Duration::from_secs(2));
    let runtime = hasty_runtime(2);
    let each = if cfg!(miri) { 10 } else { 500 };
    while Instant::now() < end {
        let (tx, rx) = match rng.below(4) {
            0 | 1 => bounded(0),
            2 => bounded(1 + rng.below(3) as usize),
            _ => unbounded(),
        };
        let mut receivers = Vec::new();
        for kind in 0..4 {
            let (rx, mut rng) = (rx.clone(), Rng::new(rng.next()));
            let body = move || match kind {
                0 => rx.iter().fold((0, 0), |(n, sum), i| (n + 1, sum + i)),
                _ => receive_impatiently(&mut rng, &rx, &counting().1),
            };
            receivers.push(mungo::Builder::new().spawn_on(&runtime, body).unwrap());
        }
        let mut senders = Vec::new();
        for kind in 0..3u64 {
            let tx = tx.clone();
            let body = move || {
                for i in 1..=each {
                    match (i + kind) % 3 {
                        0 => tx.send(i).unwrap(),
                        1 => mungo::select! { send(tx, i) -> sent => sent.unwrap() },
                        _ => block_on(tx.send_async(i)).unwrap(),
                    }
                }
            };
            senders.push(mungo::Builder::new().spawn_on(&runtime, body).unwrap());
        }
        drop(tx);
        senders.into_iter().for_each(|s| s.join().unwrap());
        let received = receivers.into_iter().map(|r| r.join().unwrap());
        let received = received.fold((0, 0), |(n, sum), r| (n + r.0, sum + r.1));
        assert_eq!(received, (3 * each, 3 * (each * (each + 1) / 2)));
        assert!(rx.try_recv().is_err_and(|e| e.is_disconnected()), "nothing is left");
    }
    common::end(runtime);
}

#[test]
fn many_tasks_of_one_executor() {
    let runtime = runtime(2);
    let total = runtime.run(|| {
        let (tx, rx) = bounded(0);
        let sends = go(move || (0..1000u64).for_each(|i| tx.send(i).unwrap()));
        let sum = block_on(async {
            let tasks = futures::stream::FuturesUnordered::new();
            for _ in 0..50 {
                tasks.push(rx.stream().fold(0u64, async |sum, i| sum + i));
            }
            tasks.fold(0, async |a, b| a + b).await
        });
        sends.join().unwrap();
        sum
    });
    assert_eq!(total, 499_500);
    common::end(runtime);
}
