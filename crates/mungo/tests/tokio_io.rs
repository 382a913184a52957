//! Crates that are written for tokio's traits, on goroutines and without a runtime of tokio.
#![cfg(feature = "tokio-io")]

use futures::{SinkExt, StreamExt};
use mungo::net::{TcpListener, TcpStream, UnixStream};
use mungo::{block_on, go};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// More than all buffers on the way hold.
const MUCH: usize = 8 << 20;

#[mungo::test]
fn a_task_reads_and_writes_at_once() {
    let (client, server) = pair();
    let echo = go(move || {
        block_on(async {
            let (mut from, mut to) = (&server, &server);
            let copied = tokio::io::copy(&mut from, &mut to).await.unwrap();
            AsyncWriteExt::shutdown(&mut to).await.unwrap();
            copied
        })
    });
    let received = go(move || {
        block_on(async {
            let sent: Vec<u8> = (0..MUCH).map(|i| (i / 7) as u8).collect();
            let (mut reader, mut writer) = tokio::io::split(client);
            let write = async {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let ((), n) = futures::future::join(write, reader.read_to_end(&mut received)).await;
            assert_eq!(n.unwrap(), MUCH);
            received == sent
        })
    });
    assert!(received.join().unwrap());
    assert_eq!(echo.join().unwrap(), MUCH as u64);
}

#[mungo::test]
fn unix_streams_have_the_traits_too() {
    let (mut left, mut right) = UnixStream::pair().unwrap();
    let reader = go(move || {
        block_on(async {
            let mut text = String::new();
            right.read_to_string(&mut text).await.map(|_| text)
        })
    });
    block_on(async {
        left.write_all(b"through tokio's traits").await.unwrap();
        AsyncWriteExt::shutdown(&mut left).await.unwrap();
    });
    assert_eq!(reader.join().unwrap().unwrap(), "through tokio's traits");
}

#[mungo::test]
fn websockets_of_tokio_tungstenite_run_on_goroutines() {
    const CLIENTS: usize = 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || {
        for stream in listener.incoming().take(CLIENTS) {
            let stream = stream.unwrap();
            go(move || {
                block_on(async {
                    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                    while let Some(Ok(message)) = socket.next().await {
                        if message.is_text() {
                            socket.send(message).await.unwrap();
                        }
                    }
                });
            });
        }
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            go(move || {
                let stream = TcpStream::connect(address).unwrap();
                block_on(async {
                    let url = format!("ws://{address}/");
                    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
                    for i in 0..20 {
                        let message = Message::text(format!("{client}: {i}"));
                        socket.send(message.clone()).await.unwrap();
                        assert_eq!(socket.next().await.unwrap().unwrap(), message);
                    }
                    socket.close(None).await.unwrap();
                });
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();
}
