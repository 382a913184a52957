//! A runtime ends while tasks of executors wait for something of it. Each case is a process of its own, without a
//! default runtime that would help.
#![cfg(feature = "futures-io")]

#[macro_use]
mod common;

use common::{Wakes, child, counting, runtime, wait_until};
use futures::io::AsyncRead;
use mungo::net::UnixStream;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll};

children!(data_after_the_end, data_at_the_end, timer_after_the_end);

/// A task begins to wait for data.
fn wait_for_data(stream: &mut UnixStream) -> Arc<Wakes> {
    let (wakes, waker) = counting();
    let polled = Pin::new(stream).poll_read(&mut Context::from_waker(&waker), &mut [0; 8]);
    assert!(matches!(polled, Poll::Pending), "{polled:?}");
    wakes
}

/// A runtime whose idle thread watches the network.
fn watching_runtime() -> mungo::Runtime {
    let rt = runtime(1);
    rt.run(|| {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let late = mungo::go(move || {
            mungo::sleep(std::time::Duration::from_millis(2));
            b.write_all(b"x").unwrap();
        });
        std::io::Read::read_exact(&mut a, &mut [0]).unwrap();
        late.join().unwrap();
    });
    rt
}

fn data_after_the_end() {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let rt = watching_runtime();
    // On a goroutine, so that its runtime is the one that watches.
    let (wakes, ours) = rt.run(move || (wait_for_data(&mut ours), ours));
    common::end(rt);
    assert_eq!(wakes.count(), 0);
    theirs.write_all(b"x").unwrap();
    wait_until("the task is woken", || wakes.count() == 1);
    drop(ours);
}

#[test]
fn a_task_is_woken_by_the_network_after_its_runtime_has_ended() {
    child::run("data_after_the_end").assert_success();
}

fn data_at_the_end() {
    for _ in 0..common::stress_time(std::time::Duration::from_secs(2)).as_millis() / 4 {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let rt = watching_runtime();
        let (wakes, ours) = rt.run(move || (wait_for_data(&mut ours), ours));
        let barrier = Arc::new(Barrier::new(2));
        let writer = {
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                barrier.wait();
                theirs.write_all(b"x").unwrap();
                theirs
            })
        };
        barrier.wait();
        common::end(rt);
        let theirs = writer.join().unwrap();
        wait_until("the task is woken", || wakes.count() == 1);
        drop((ours, theirs));
    }
}

#[test]
fn a_task_is_woken_though_its_runtime_ends_at_that_moment() {
    child::run("data_at_the_end").assert_success();
}

fn timer_after_the_end() {
    let (wakes, waker) = counting();
    let rt = runtime(1);
    let mut sleep = rt.run(move || {
        let mut sleep = Box::pin(mungo::time::sleep_async(std::time::Duration::from_millis(100)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        sleep
    });
    common::end(rt);
    wait_until("the task is woken", || wakes.count() == 1);
    let (_, waker) = counting();
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

#[test]
fn a_task_is_woken_by_its_timer_after_its_runtime_has_ended() {
    child::run("timer_after_the_end").assert_success();
}
