//! Waits that end with a context: mutexes, semaphores, groups, sockets; and functions that start with its end.

mod common;

use common::{PATIENCE, go_named, runtime, wait_until, wait_until_parked};
use mungo::context::{Context, ContextError, after_func};
use mungo::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream};
use mungo::sync::{Mutex, Semaphore, WaitGroup};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn why(error: &io::Error) -> Option<ContextError> {
    error.get_ref().and_then(|inner| inner.downcast_ref()).copied()
}

#[test]
fn a_mutex_that_is_held() {
    let (ctx, cancel) = Context::background().with_cancel();
    let mutex = Arc::new(Mutex::new(0));
    let held = mutex.lock();
    let waiting = {
        let (ctx, mutex) = (ctx.clone(), mutex.clone());
        go_named("locks", move || ctx.lock(&mutex).map(|_| ()))
    };
    wait_until_parked("locks");
    cancel.cancel();
    assert_eq!(waiting.join().unwrap(), Err(ContextError::Canceled));
    drop(held);
    assert_eq!(ctx.lock(&mutex).unwrap_err(), ContextError::Canceled, "done beats a free lock");
    *Context::background().lock(&mutex).unwrap() += 1;
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn a_plain_thread_waits_too() {
    let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(20));
    let (mutex, semaphore) = (Mutex::new(()), Semaphore::new(0));
    let _held = mutex.lock();
    assert_eq!(ctx.lock(&mutex).unwrap_err(), ContextError::DeadlineExceeded);
    assert_eq!(ctx.acquire(&semaphore).unwrap_err(), ContextError::DeadlineExceeded);
    let (other, _cancel) = Context::background().with_timeout(Duration::from_millis(20));
    assert_eq!(other.acquire(&semaphore).unwrap_err(), ContextError::DeadlineExceeded);
}

#[test]
fn many_permits() {
    let semaphore = Arc::new(Semaphore::new(3));
    let (ctx, cancel) = Context::background().with_cancel();
    let two = ctx.acquire_many(&semaphore, 2).unwrap();
    assert_eq!(two.count(), 2);
    let waiting = {
        let (ctx, semaphore) = (ctx.clone(), semaphore.clone());
        go_named("wants two", move || ctx.acquire_many(&semaphore, 2).map(|_| ()))
    };
    wait_until_parked("wants two");
    cancel.cancel();
    assert_eq!(waiting.join().unwrap(), Err(ContextError::Canceled));
    drop(two);
    assert_eq!(semaphore.available_permits(), 3);
}

/// A listener that accepts nothing is full after some connections; a further one waits until the context is done, or
/// until there is room.
#[test]
fn a_unix_connection_to_a_listener_that_is_full() {
    let path = std::env::temp_dir().join(format!("mungo-context-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // SAFETY: no memory involved.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 1) }, 0);
    let mut streams = Vec::new();
    let error = loop {
        let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(20));
        match UnixStream::connect_context(&ctx, &path) {
            Ok(stream) => streams.push(stream),
            Err(e) => break e,
        }
    };
    assert!(!streams.is_empty() && streams.len() < 10, "{}", streams.len());
    assert_eq!(why(&error), Some(ContextError::DeadlineExceeded));
    let (ctx, _cancel) = Context::background().with_timeout(PATIENCE);
    let late = {
        let path = path.clone();
        go_named("connects", move || UnixStream::connect_context(&ctx, &path))
    };
    wait_until_parked("connects");
    drop(listener.accept().unwrap());
    late.join().unwrap().unwrap();
    std::fs::remove_file(&path).unwrap();
    let missing = UnixStream::connect_context(&Context::background(), &path).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let long = "x".repeat(200);
    let refused = UnixStream::connect_context(&Context::background(), long).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_unix_datagram() {
    let (a, b) = UnixDatagram::pair().unwrap();
    let (ctx, cancel) = Context::background().with_cancel();
    a.with_context(&ctx).send(b"one").unwrap();
    assert_eq!(b.with_context(&ctx).recv(&mut [0; 8]).unwrap(), 3);
    let waiting = go_named("receives", move || (b.with_context(&ctx).recv_from(&mut [0; 8]).unwrap_err(), b));
    wait_until_parked("receives");
    cancel.cancel();
    let (error, b) = waiting.join().unwrap();
    assert_eq!(why(&error), Some(ContextError::Canceled));
    a.send(b"two").unwrap();
    assert_eq!(b.recv(&mut [0; 8]).unwrap(), 3, "the socket is usable");
}

#[test]
fn a_waiter_that_leaves_does_not_block_those_behind() {
    let semaphore = Arc::new(Semaphore::new(1));
    let held = semaphore.acquire_many(1);
    let (ctx, cancel) = Context::background().with_cancel();
    let (first, second) = (semaphore.clone(), semaphore.clone());
    let first = go_named("first", move || ctx.acquire(&first).map(|_| ()));
    wait_until_parked("first");
    let second = go_named("second", move || drop(second.acquire()));
    wait_until_parked("second");
    cancel.cancel();
    assert_eq!(first.join().unwrap(), Err(ContextError::Canceled));
    drop(held);
    second.join().unwrap();
    assert_eq!(semaphore.available_permits(), 1);
}

/// Locks, unlocks and cancellations meet at any moment; no lock is lost and no wait goes on.
#[test]
fn stress_locks_against_cancellation() {
    let rt = runtime(4);
    rt.run(|| {
        let mutex = Arc::new(Mutex::new(0u64));
        let semaphore = Arc::new(Semaphore::new(2));
        let got = Arc::new(AtomicUsize::new(0));
        let all = WaitGroup::new();
        for _ in 0..300 {
            let (ctx, cancel) = Context::background().with_cancel();
            for i in 0..4 {
                let (ctx, mutex, semaphore, got) = (ctx.clone(), mutex.clone(), semaphore.clone(), got.clone());
                all.go(move || {
                    for _ in 0..10 {
                        if i % 2 == 0 {
                            if let Ok(mut guard) = ctx.lock(&mutex) {
                                *guard += 1;
                                mungo::yield_now();
                                got.fetch_add(1, SeqCst);
                            }
                        } else if ctx.acquire(&semaphore).is_ok() {
                            mungo::yield_now();
                        }
                    }
                });
            }
            mungo::yield_now();
            all.go(move || cancel.cancel());
        }
        all.wait();
        assert_eq!(*mutex.lock(), got.load(SeqCst) as u64);
        assert_eq!(semaphore.available_permits(), 2);
    });
    common::end(rt);
}

#[test]
fn a_wait_group() {
    let (ctx, cancel) = Context::background().with_cancel();
    let wg = Arc::new(WaitGroup::new());
    let token = wg.token();
    let waiting = {
        let (ctx, wg) = (ctx.clone(), wg.clone());
        go_named("waits", move || ctx.wait(&wg))
    };
    wait_until_parked("waits");
    cancel.cancel();
    assert_eq!(waiting.join().unwrap(), Err(ContextError::Canceled));
    drop(token);
    assert_eq!(Context::background().wait(&wg), Ok(()));
}

#[test]
fn reads_end_and_the_socket_stays_usable() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let server = Arc::new(listener.accept()?.0);
    let (ctx, cancel) = Context::background().with_cancel();
    let reading = {
        let (ctx, server) = (ctx.clone(), server.clone());
        go_named("reads", move || server.with_context(&ctx).read_exact(&mut [0; 8]))
    };
    wait_until_parked("reads");
    cancel.cancel();
    assert_eq!(why(&reading.join().unwrap().unwrap_err()), Some(ContextError::Canceled));
    client.write_all(b"12345678")?;
    let done = server.with_context(&ctx).read(&mut [0; 8]).unwrap_err();
    assert_eq!(why(&done), Some(ContextError::Canceled), "done beats bytes that are there");
    let mut bytes = [0; 8];
    (&*server).read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"12345678");
    Ok(())
}

#[test]
fn one_of_two_readers_is_cancelled() -> io::Result<()> {
    let (mut client, server) = UnixStream::pair()?;
    let server = Arc::new(server);
    let (ctx, cancel) = Context::background().with_cancel();
    let (first, second) = (server.clone(), server.clone());
    let first = go_named("cancelled", move || first.with_context(&ctx).read(&mut [0; 8]));
    let second = go_named("stays", move || (&*second).read(&mut [0; 8]));
    wait_until_parked("cancelled");
    wait_until_parked("stays");
    cancel.cancel();
    assert!(first.join().unwrap().is_err());
    client.write_all(b"x")?;
    assert_eq!(second.join().unwrap()?, 1);
    Ok(())
}

#[test]
fn writes_and_datagrams_end_at_the_deadline() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let _server = listener.accept()?;
    let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(20));
    let mut writer = client.with_context(&ctx);
    // Far more than the kernel's buffers hold.
    let error = (0..10_000).find_map(|_| writer.write_all(&[0; 1 << 16]).err()).expect("the buffers are full");
    assert_eq!((error.kind(), why(&error)), (ErrorKind::TimedOut, Some(ContextError::DeadlineExceeded)));
    let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(5));
    let error = UdpSocket::bind("127.0.0.1:0")?.with_context(&ctx).recv_from(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    Ok(())
}

#[test]
fn accepts_end_and_plain_threads_hear_it() -> io::Result<()> {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
    let (ctx, cancel) = Context::background().with_cancel();
    let thread = {
        let (ctx, listener) = (ctx.clone(), listener.clone());
        std::thread::spawn(move || listener.with_context(&ctx).accept().map(|_| ()))
    };
    let goroutine = {
        let (ctx, listener) = (ctx.clone(), listener.clone());
        go_named("accepts", move || listener.with_context(&ctx).accept().map(|_| ()))
    };
    wait_until_parked("accepts");
    cancel.cancel();
    assert_eq!(why(&thread.join().unwrap().unwrap_err()), Some(ContextError::Canceled));
    assert_eq!(why(&goroutine.join().unwrap().unwrap_err()), Some(ContextError::Canceled));
    let _client = TcpStream::connect(listener.local_addr()?)?;
    listener.accept()?;
    Ok(())
}

#[test]
fn a_connect_that_nobody_answers() -> io::Result<()> {
    // A listener whose queue is full, so that further connections hang.
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    // SAFETY: no memory involved.
    unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) };
    let address = listener.local_addr()?;
    let mut clients = Vec::new();
    let start = Instant::now();
    let error = loop {
        assert!(start.elapsed() < PATIENCE && clients.len() < 64, "the queue was never full");
        let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(300));
        match TcpStream::connect_context(&ctx, address) {
            Ok(client) => clients.push(client),
            Err(e) => break e,
        }
    };
    assert_eq!(why(&error), Some(ContextError::DeadlineExceeded));
    Ok(())
}

#[test]
fn functions_start_when_a_context_is_done_and_can_be_called_off() {
    let calls = Arc::new(AtomicUsize::new(0));
    let call = |n: usize| {
        let calls = calls.clone();
        move || _ = calls.fetch_add(n, SeqCst)
    };
    let (parent, cancel) = Context::background().with_cancel();
    let (child, _cancel) = parent.with_cancel();
    after_func(&child.with_value(1), call(1));
    let off = after_func(&parent, call(1000));
    after_func(&parent, call(10));
    assert!(off.stop() && !off.stop());
    cancel.cancel();
    wait_until("both were called", || calls.load(SeqCst) == 11);
    after_func(&child, call(100)); // at once
    wait_until("the late one was called", || calls.load(SeqCst) == 111);

    let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(1));
    after_func(&ctx, call(5));
    wait_until("the deadline's was called", || calls.load(SeqCst) == 116);
    assert!(!after_func(&Context::background(), call(1)).stop());
}

#[test]
fn functions_of_a_timer_run_on_goroutines_and_outlive_their_runtime() {
    let (tx, rx) = mungo::chan::bounded(1);
    let rt = runtime(1);
    let sender = tx.clone();
    rt.run(move || {
        mungo::time::after_func(Duration::from_millis(1), move || {
            mungo::sleep(Duration::from_millis(1)); // it may block
            sender.send(1).unwrap();
        });
    });
    assert_eq!(rx.recv_timeout(PATIENCE), Ok(1));
    rt.run(move || mungo::time::after_func(Duration::from_millis(30), move || tx.send(2).unwrap()));
    common::end(rt);
    assert_eq!(rx.recv_timeout(PATIENCE), Ok(2), "the default runtime took it over");
}

/// Timers are called off while they go off: each function runs, or its `stop` says so.
#[test]
fn stress_stop_against_the_clock() {
    let rt = runtime(2);
    let (ran, stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, off) = (ran.clone(), stopped.clone());
    rt.run(move || {
        for i in 0..2000u64 {
            let ran = count.clone();
            let timer =
                mungo::time::after_func(Duration::from_micros(i % 50), move || _ = ran.fetch_add(1, SeqCst));
            mungo::sleep(Duration::from_micros(i % 37));
            if timer.stop() {
                off.fetch_add(1, SeqCst);
            }
        }
    });
    wait_until("all have run or were called off", || ran.load(SeqCst) + stopped.load(SeqCst) == 2000);
    common::end(rt);
}
