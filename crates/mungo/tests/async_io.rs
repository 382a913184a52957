//! Streams for tasks: `AsyncRead` and `AsyncWrite` under `block_on` and other executors.
#![cfg(feature = "futures-io")]

mod common;

use common::{counting, runtime, wait_until};
use futures::future::{join, join_all};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use mungo::net::{TcpListener, TcpStream};
use mungo::{block_on, go};
use plain::echo;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// More than all buffers on the way hold.
const MUCH: usize = 16 << 20;

/// Plain code beside the tasks; the traits have methods of the same names.
mod plain {
    use mungo::net::TcpStream;
    use std::io::{Read, Write};

    /// Sends back what comes, until the end.
    pub(crate) fn echo(mut stream: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while let n @ 1.. = stream.read(&mut buffer).unwrap() {
            stream.write_all(&buffer[..n]).unwrap();
        }
    }

    pub(crate) fn write(mut stream: &TcpStream, bytes: &[u8]) {
        stream.write_all(bytes).unwrap();
    }

    pub(crate) fn read_byte(mut stream: &TcpStream) -> u8 {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        byte[0]
    }
}

/// A task that writes and reads at once: a read that blocked would stop the write, and with it the echo.
async fn both_ways(stream: TcpStream) {
    let sent: Vec<u8> = (0..MUCH).map(|i| (i / 7) as u8).collect();
    let (mut reader, mut writer) = stream.split();
    let write = async {
        writer.write_all(&sent).await.unwrap();
        writer.close().await.unwrap();
    };
    let mut received = Vec::new();
    let read = reader.read_to_end(&mut received);
    let ((), n) = join(write, read).await;
    assert_eq!(n.unwrap(), MUCH);
    assert!(received == sent);
}

#[test]
fn both_ways_at_once_on_a_goroutine() {
    let runtime = runtime(1);
    runtime.run(|| {
        let (client, server) = pair();
        let echo = go(|| echo(server));
        block_on(both_ways(client));
        echo.join().unwrap();
    });
    common::end(runtime);
}

#[test]
fn both_ways_at_once_on_threads_and_a_foreign_executor() {
    let (client, server) = pair();
    let echo = std::thread::spawn(|| echo(server));
    futures::executor::block_on(both_ways(client));
    echo.join().unwrap();
}

#[test]
fn many_streams_of_one_task() {
    let runtime = runtime(2);
    runtime.run(|| {
        let pairs: Vec<_> = (0..50).map(|_| pair()).collect();
        let (clients, servers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let echoes: Vec<_> = servers.into_iter().map(|s| go(|| echo(s))).collect();
        block_on(join_all(clients.into_iter().enumerate().map(async |(i, mut stream)| {
            for round in 0..20 {
                let bytes = [i as u8, round];
                stream.write_all(&bytes).await.unwrap();
                let mut answer = [0; 2];
                stream.read_exact(&mut answer).await.unwrap();
                assert_eq!(answer, bytes);
            }
        })));
        echoes.into_iter().for_each(|e| e.join().unwrap());
    });
    common::end(runtime);
}

/// Tasks that share a direction, more of them than there is room for wakers: none is forgotten.
#[test]
fn many_tasks_read_one_stream() {
    let (client, server) = pair();
    let client = Arc::new(client);
    let readers: Vec<_> = (0..12)
        .map(|_| {
            let client = client.clone();
            go(move || {
                block_on(async {
                    let mut n = 0;
                    while let Ok(1) = (&*client).read(&mut [0]).await {
                        n += 1;
                    }
                    n
                })
            })
        })
        .collect();
    let n = 200;
    for _ in 0..n {
        plain::write(&server, b"x");
        mungo::yield_now();
    }
    drop(server);
    assert_eq!(readers.into_iter().map(|r| r.join().unwrap()).sum::<usize>(), n);
}

/// The waker of the executor is called by whoever polls the network, but never inside the runtime.
#[test]
fn a_task_is_woken_by_data_by_the_end_and_by_close() {
    for how in 0..3 {
        let (client, server) = pair();
        let (count, waker) = counting();
        let (mut reader, mut byte) = (&client, [0]);
        let mut read = reader.read(&mut byte);
        let mut cx = Context::from_waker(&waker);
        assert!(std::pin::Pin::new(&mut read).poll(&mut cx).is_pending());
        match how {
            0 => plain::write(&server, b"x"),
            1 => drop(server),
            _ => client.close().unwrap(),
        }
        wait_until("it is woken", || count.count() > 0);
        match (how, std::pin::Pin::new(&mut read).poll(&mut cx)) {
            (0, Poll::Ready(Ok(1))) | (1, Poll::Ready(Ok(0))) => {}
            (2, Poll::Ready(Err(e))) => assert_eq!(e.kind(), std::io::ErrorKind::NotConnected),
            (how, other) => panic!("{how}: {other:?}"),
        }
    }
}

#[test]
fn what_a_dropped_future_left_does_not_disturb_others() {
    let (client, server) = pair();
    let (count, waker) = counting();
    {
        let (mut reader, mut byte) = (&client, [0]);
        let mut read = reader.read(&mut byte);
        assert!(std::pin::Pin::new(&mut read).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let waits = go(move || plain::read_byte(&client));
    plain::write(&server, b"y");
    assert_eq!(waits.join().unwrap(), b'y');
    // The descriptor is gone by now, and the waker with it.
    drop(waker);
    wait_until("the waker is let go", || Arc::strong_count(&count) == 1);
}
