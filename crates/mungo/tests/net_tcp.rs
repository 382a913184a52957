//! TCP: our types against std's and against each other.

#[macro_use]
mod common;

use mungo::go;
use mungo::net::{TcpListener, TcpStream};
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listen();
    let client = TcpStream::connect(address).unwrap();
    (client, listener.accept().unwrap().0)
}

fn echo(mut stream: impl Read + Write) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

/// Sends lines and expects each to come back.
fn talk(stream: impl Read + Write, lines: usize) {
    let mut stream = BufReader::new(stream);
    for i in 0..lines {
        stream.get_mut().write_all(format!("line {i}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("line {i}\n"));
    }
}

/// Serves `n` connections, a goroutine each; returns when all have ended.
fn serve(listener: TcpListener, n: usize) -> mungo::JoinHandle<()> {
    go(move || {
        let connections: Vec<_> =
            listener.incoming().take(n).map(|stream| go(|| echo(stream.unwrap()).unwrap())).collect();
        connections.into_iter().for_each(|c| c.join().unwrap());
    })
}

#[test]
fn std_clients_against_our_server() {
    let (listener, address) = listen();
    let server = serve(listener, 8);
    let clients: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || talk(std::net::TcpStream::connect(address).unwrap(), 200)))
        .collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    server.join().unwrap();
}

#[test]
fn our_clients_against_a_std_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let connections: Vec<_> = (0..8)
            .map(|_| listener.accept().unwrap().0)
            .map(|s| std::thread::spawn(|| echo(s).unwrap()))
            .collect();
        connections.into_iter().for_each(|c| c.join().unwrap());
    });
    let clients: Vec<_> = (0..8).map(|_| go(move || talk(TcpStream::connect(address).unwrap(), 200))).collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    server.join().unwrap();
}

#[test]
fn goroutines_on_both_sides() {
    for procs in [1, 2, 4] {
        let runtime = common::runtime(procs);
        runtime.run(|| {
            let (listener, address) = listen();
            let server = serve(listener, 50);
            let clients: Vec<_> =
                (0..50).map(|_| go(move || talk(TcpStream::connect(address).unwrap(), 40))).collect();
            clients.into_iter().for_each(|c| c.join().unwrap());
            server.join().unwrap();
        });
        common::end(runtime);
    }
}

#[test]
fn plain_threads_use_the_same_types() {
    let (listener, address) = listen();
    let server = std::thread::spawn(move || {
        for _ in 0..4 {
            let (stream, _) = listener.accept().unwrap();
            std::thread::spawn(move || echo(stream).unwrap());
        }
    });
    let clients: Vec<_> =
        (0..4).map(|_| std::thread::spawn(move || talk(TcpStream::connect(address).unwrap(), 50))).collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    server.join().unwrap();
}

/// One registration, and goroutines of two runtimes and a thread that use it in turn.
#[test]
fn a_stream_wanders_between_runtimes_and_threads() {
    let (client, server) = pair();
    let echoing = go(move || echo(server).unwrap());
    let client = Arc::new(client);
    let runtimes = [common::runtime(1), common::runtime(2)];
    for _ in 0..20 {
        for runtime in &runtimes {
            let client = client.clone();
            runtime.run(move || talk(&*client, 3));
        }
        talk(&*client, 3);
    }
    runtimes.into_iter().for_each(common::end);
    // The runtime whose M watched may be gone; somebody does all the same.
    let late = client.clone();
    go(move || talk(&*late, 3)).join().unwrap();
    drop(client);
    echoing.join().unwrap();
}

#[test]
fn a_large_transfer_in_both_directions_at_once() {
    const BYTES: usize = 8 << 20;
    let (client, server) = pair();
    let echoing = go(move || echo(server).unwrap());
    let client = Arc::new(client);
    let writer = {
        let client = client.clone();
        go(move || {
            let data: Vec<u8> = (0..BYTES).map(|i| (i * 7 >> 3) as u8).collect();
            (&*client).write_all(&data).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        })
    };
    let mut back = Vec::new();
    (&*client).read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), BYTES);
    assert!(back.iter().enumerate().all(|(i, &b)| b == (i * 7 >> 3) as u8));
    writer.join().unwrap();
    echoing.join().unwrap();
}

#[test]
fn half_close() {
    let (mut client, mut server) = pair();
    let server = go(move || {
        let mut request = String::new();
        server.read_to_string(&mut request).unwrap();
        server.write_all(request.to_uppercase().as_bytes()).unwrap();
    });
    client.write_all(b"half").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "HALF");
    assert!(client.write(b"x").is_err());
    server.join().unwrap();
}

#[test]
fn vectored_and_peek() {
    let (mut client, mut server) = pair();
    go(move || {
        assert_eq!(client.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cde")]).unwrap(), 5);
    })
    .join()
    .unwrap();
    go(move || {
        let mut peeked = [0; 2];
        assert_eq!(server.peek(&mut peeked).unwrap(), 2);
        assert_eq!(&peeked, b"ab");
        let (mut a, mut b) = ([0; 3], [0; 4]);
        assert_eq!(server.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).unwrap(), 5);
        assert_eq!((&a, &b[..2]), (b"abc", &b"de"[..]));
    })
    .join()
    .unwrap();
}

/// Several goroutines accept from one listener: each connection is taken once, and nobody is left behind.
#[test]
fn many_accept_from_one_listener() {
    const N: usize = 64;
    let (listener, address) = listen();
    let listener = Arc::new(listener);
    let taken = Arc::new(AtomicUsize::new(0));
    let acceptors: Vec<_> = (0..8)
        .map(|_| {
            let (listener, taken) = (listener.clone(), taken.clone());
            go(move || {
                while let Ok((stream, _)) = listener.accept() {
                    taken.fetch_add(1, Relaxed);
                    go(move || echo(stream));
                }
            })
        })
        .collect();
    let clients: Vec<_> = (0..N).map(|_| go(move || talk(TcpStream::connect(address).unwrap(), 5))).collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    assert_eq!(taken.load(Relaxed), N);
    listener.close().unwrap();
    acceptors.into_iter().for_each(|a| a.join().unwrap());
}

#[test]
fn from_std_and_back() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let listener = TcpListener::from(listener);
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    let mut client = TcpStream::from(client);
    let reading = go(move || {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        (byte[0], client)
    });
    let mut server = server.into_std().unwrap();
    server.write_all(b"!").unwrap();
    let (byte, client) = reading.join().unwrap();
    assert_eq!(byte, b'!');
    // It blocks its thread again.
    drop(server);
    assert_eq!(client.into_std().unwrap().read(&mut [0]).unwrap(), 0);
}

#[test]
fn set_nonblocking_returns_would_block() {
    let (client, server) = pair();
    go(move || {
        client.set_nonblocking(true).unwrap();
        assert_eq!((&client).read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.set_nonblocking(false).unwrap();
        (&server).write_all(b"x").unwrap();
        assert_eq!((&client).read(&mut [0]).unwrap(), 1);
    })
    .join()
    .unwrap();
}

#[test]
fn nobody_there() {
    let address = {
        let (listener, address) = listen();
        drop(listener);
        address
    };
    go(move || assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused))
        .join()
        .unwrap();
    assert!(TcpStream::connect(&[][..] as &[SocketAddr]).is_err());
}

#[test]
fn names_are_resolved() {
    let (listener, address) = listen();
    go(move || TcpStream::connect(("localhost", address.port())).unwrap()).join().unwrap();
    drop(listener);
}
