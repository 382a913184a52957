//! `JoinHandle` as a future, under our `block_on` and under other executors.

mod common;

use common::{Drops, counting, hasty_runtime, runtime};
use futures::executor::{LocalPool, ThreadPool};
use futures::future::{Either, join_all, select};
use futures::task::{LocalSpawnExt, SpawnExt};
use mungo::{block_on, go};
use std::future::{poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

#[test]
fn under_a_foreign_executor() {
    assert_eq!(futures::executor::block_on(go(|| 1)).unwrap(), 1);
    let mut pool = LocalPool::new();
    let sum = pool.spawner().spawn_local_with_handle(async {
        let results = join_all((0..100u32).map(|i| {
            go(move || {
                mungo::yield_now();
                i
            })
        }));
        results.await.into_iter().map(|r| r.unwrap()).sum::<u32>()
    });
    assert_eq!(pool.run_until(sum.unwrap()), 4950);
    let pool = ThreadPool::builder().pool_size(2).create().unwrap();
    let tasks: Vec<_> = (0..100u32)
        .map(|i| pool.spawn_with_handle(async move { go(move || i).await.unwrap() }).unwrap())
        .collect();
    let sum: u32 = futures::executor::block_on(join_all(tasks)).into_iter().sum();
    assert_eq!(sum, 4950);
}

#[test]
fn a_panic_is_the_output() {
    let payload = block_on(go(|| panic!("of the goroutine"))).unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "of the goroutine");
}

#[test]
fn scoped_handles_too() {
    let numbers = [1, 2, 3];
    let sum = mungo::scope(|s| {
        let halves = [s.spawn(|| numbers[0]), s.spawn(|| numbers[1] + numbers[2])];
        block_on(join_all(halves)).into_iter().map(|r| r.unwrap()).sum::<i32>()
    });
    assert_eq!(sum, 6);
}

fn poll_once<T>(handle: &mut mungo::JoinHandle<T>, waker: &Waker) -> Poll<std::thread::Result<T>> {
    Pin::new(handle).poll(&mut Context::from_waker(waker))
}

#[test]
fn the_last_task_that_polled_is_woken_once() {
    let (tx, rx) = mungo::chan::bounded::<()>(0);
    let mut handle = go(move || rx.recv().is_err());
    let [(a, wake_a), (b, wake_b)] = [(); 2].map(|()| counting());
    for waker in [&wake_a, &wake_b, &wake_a, &wake_b, &wake_b] {
        assert!(poll_once(&mut handle, waker).is_pending());
    }
    assert!(!handle.is_finished());
    drop(tx);
    common::wait_until("it was woken", || b.count() == 1);
    assert!(handle.is_finished());
    assert!(matches!(poll_once(&mut handle, &wake_a), Poll::Ready(Ok(true))));
    drop(handle);
    assert_eq!((a.count(), b.count()), (0, 1));
}

#[test]
fn what_was_polled_can_be_joined_dropped_or_forgotten() {
    let drops = Drops::leaked();
    let (wakes, waker) = counting();
    for round in 0..30 {
        let (tx, rx) = mungo::chan::bounded::<()>(0);
        let mut handle = go(move || {
            _ = rx.recv();
            drops.one()
        });
        assert!(poll_once(&mut handle, &waker).is_pending());
        match round % 3 {
            0 => {
                drop(tx);
                drop(handle.join().unwrap());
            }
            1 => {
                drop(handle);
                drop(tx);
            }
            _ => {
                drop(tx);
                drop(handle); // at about the same time
            }
        }
    }
    common::wait_until("all results are dropped", || drops.count() == 30);
    common::wait_until("all wakers but ours are dropped", || Arc::strong_count(&wakes) == 2);
}

#[test]
#[should_panic(expected = "result was taken")]
fn ready_once() {
    let mut handle = go(|| ());
    block_on(poll_fn(|cx| Pin::new(&mut handle).poll(cx))).unwrap();
    assert!(handle.is_finished());
    _ = handle.join();
}

#[test]
fn the_loser_of_a_select_goes_on() {
    let runtime = runtime(2);
    runtime.run(|| {
        let (tx, rx) = mungo::chan::bounded(0);
        let slow = go(move || rx.recv().unwrap());
        let slow = match block_on(select(slow, pin!(async { ready(1).await }))) {
            Either::Right((1, slow)) => slow,
            _ => unreachable!(),
        };
        tx.send(5).unwrap();
        assert_eq!(slow.join().unwrap(), 5);
    });
    common::end(runtime);
}

#[test]
fn stress_ends_and_polls_race() {
    let rounds = if cfg!(miri) { 20 } else { 3_000 };
    let runtime = hasty_runtime(2);
    let sum = runtime.run(move || {
        let tasks: Vec<_> = (0..4u64)
            .map(|t| {
                go(move || {
                    (0..rounds)
                        .map(|i| {
                            let goroutine = go(move || i);
                            if i % 3 == t % 3 {
                                mungo::yield_now();
                            }
                            block_on(goroutine).unwrap()
                        })
                        .sum::<u64>()
                })
            })
            .collect();
        block_on(join_all(tasks)).into_iter().map(|r| r.unwrap()).sum::<u64>()
    });
    assert_eq!(sum, 4 * (rounds * (rounds - 1) / 2));
    common::end(runtime);
}
