//! Crates that know nothing of goroutines, on goroutines.

#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::runtime;
use mungo_interpose as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Runs `f` on two Ps, and looks that few threads were needed.
fn with_few_threads(f: impl FnOnce() + Send) {
    let runtime = runtime(2);
    runtime.run(f);
    let threads = runtime.metrics().threads;
    assert!(threads < 100, "{threads} threads");
}

#[test]
fn parking_lot_parks_goroutines() {
    const CROWD: usize = 1000;
    with_few_threads(|| {
        let (count, all) = (parking_lot::Mutex::new(0), parking_lot::Condvar::new());
        let shared = parking_lot::RwLock::new(0);
        mungo::scope(|s| {
            for _ in 0..CROWD {
                s.spawn(|| {
                    *shared.write() += 1;
                    let mut count = count.lock();
                    *count += 1;
                    all.notify_all();
                    while *count < CROWD {
                        all.wait(&mut count);
                    }
                    assert!(*shared.read() <= CROWD);
                });
            }
        });
        let held = parking_lot::Mutex::new(());
        let _held = held.lock();
        mungo::scope(|s| _ = s.spawn(|| assert!(held.try_lock_for(Duration::from_millis(2)).is_none())));
    });
}

#[test]
fn crossbeam_channels_park_goroutines() {
    const EACH: usize = 200;
    with_few_threads(|| {
        let (sender, receiver) = crossbeam_channel::bounded::<usize>(0);
        let (never, nothing) = crossbeam_channel::bounded::<usize>(1);
        let total = AtomicUsize::new(0);
        mungo::scope(|s| {
            for _ in 0..EACH {
                s.spawn(|| {
                    crossbeam_channel::select! {
                        recv(receiver) -> n => total.fetch_add(n.unwrap(), Relaxed),
                        recv(nothing) -> _ => unreachable!("nothing is sent"),
                    }
                });
            }
            (1..=EACH).for_each(|n| sender.send(n).unwrap());
        });
        drop(never);
        assert_eq!(total.into_inner(), EACH * (EACH + 1) / 2);
    });
}

#[test]
fn rayon_is_waited_for_by_goroutines() {
    fn sum(range: std::ops::Range<u64>) -> u64 {
        match range.end - range.start {
            n @ ..=1000 => (0..n).map(|i| range.start + i).sum(),
            n => {
                let middle = range.start + n / 2;
                let (a, b) = rayon::join(|| sum(range.start..middle), || sum(middle..range.end));
                a + b
            }
        }
    }
    with_few_threads(|| {
        mungo::scope(|s| {
            for _ in 0..100 {
                s.spawn(|| assert_eq!(sum(0..50_000), 50_000 * 49_999 / 2));
            }
        });
    });
}

#[test]
fn flume_channels_park_goroutines() {
    const EACH: usize = 200;
    with_few_threads(|| {
        let (sender, receiver) = flume::bounded::<usize>(0);
        let total = AtomicUsize::new(0);
        mungo::scope(|s| {
            for _ in 0..EACH {
                s.spawn(|| total.fetch_add(receiver.recv().unwrap(), Relaxed));
            }
            (1..=EACH).for_each(|n| sender.send(n).unwrap());
        });
        assert_eq!(total.into_inner(), EACH * (EACH + 1) / 2);
        assert!(receiver.recv_timeout(Duration::from_millis(1)).is_err());
    });
}

/// Its shards have locks of their own; whoever finds one taken waits.
#[test]
fn dashmap_is_shared_by_goroutines() {
    const CROWD: usize = 500;
    with_few_threads(|| {
        let map = dashmap::DashMap::with_shard_amount(2);
        mungo::scope(|s| {
            for i in 0..CROWD {
                let map = &map;
                s.spawn(move || {
                    let mut entry = map.entry(i % 7).or_insert(0);
                    // Others wait for the shard meanwhile.
                    std::thread::sleep(Duration::from_micros(50));
                    *entry += 1;
                });
            }
        });
        assert_eq!(map.iter().map(|entry| *entry).sum::<usize>(), CROWD);
    });
}

/// The executor of `futures` parks the thread, and wakers unpark it: here goroutines.
#[test]
fn futures_are_waited_for_by_goroutines() {
    const PAIRS: usize = 300;
    with_few_threads(|| {
        mungo::scope(|s| {
            for i in 0..PAIRS {
                let (sender, receiver) = mungo::chan::bounded::<usize>(0);
                s.spawn(move || assert_eq!(futures_executor::block_on(receiver.recv_async()).unwrap(), i));
                s.spawn(move || {
                    std::thread::sleep(Duration::from_millis(2));
                    sender.send(i).unwrap();
                });
            }
        });
    });
}

/// More goroutines than connections; the pool's own threads open them.
#[test]
fn r2d2_pools_are_shared_by_goroutines() {
    const CROWD: usize = 300;
    struct Manager;
    impl r2d2::ManageConnection for Manager {
        type Connection = (UnixStream, UnixStream);
        type Error = std::io::Error;
        fn connect(&self) -> std::io::Result<Self::Connection> {
            UnixStream::pair()
        }
        fn is_valid(&self, connection: &mut Self::Connection) -> std::io::Result<()> {
            connection.0.write_all(&[1])?;
            connection.1.read_exact(&mut [0])
        }
        fn has_broken(&self, _: &mut Self::Connection) -> bool {
            false
        }
    }
    with_few_threads(|| {
        let pool =
            r2d2::Pool::builder().max_size(4).connection_timeout(common::PATIENCE).build(Manager).unwrap();
        mungo::scope(|s| {
            for _ in 0..CROWD {
                s.spawn(|| {
                    let mut pair = pool.get().unwrap();
                    pair.0.write_all(b"abc").unwrap();
                    let mut got = [0; 3];
                    pair.1.read_exact(&mut got).unwrap();
                    assert_eq!(&got, b"abc");
                });
            }
        });
    });
}

/// Each goroutine has a runtime of tokio's, whose loop parks it.
#[test]
fn tokio_runs_on_goroutines() {
    const RUNTIMES: usize = 100;
    with_few_threads(|| {
        mungo::scope(|s| {
            for _ in 0..RUNTIMES {
                s.spawn(|| {
                    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    tokio.block_on(async {
                        use tokio::io::{AsyncReadExt, AsyncWriteExt};
                        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                        let address = listener.local_addr().unwrap();
                        let server = tokio::spawn(async move {
                            let (mut stream, _) = listener.accept().await.unwrap();
                            let byte = stream.read_u8().await.unwrap();
                            stream.write_u8(byte + 1).await.unwrap();
                        });
                        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                        tokio::time::sleep(Duration::from_millis(3)).await;
                        stream.write_u8(41).await.unwrap();
                        assert_eq!(stream.read_u8().await.unwrap(), 42);
                        server.await.unwrap();
                    });
                });
            }
        });
    });
}

/// Answers one request for each connection, as a small web server does.
fn serve(listener: &TcpListener, requests: usize, pause: Duration) {
    for _ in 0..requests {
        let mut stream = listener.accept().unwrap().0;
        mungo::go(move || {
            let mut request = Vec::new();
            let mut bytes = [0; 256];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                let n = stream.read(&mut bytes).unwrap();
                request.extend_from_slice(&bytes[..n]);
            }
            std::thread::sleep(pause);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            stream.write_all(answer.as_bytes()).unwrap();
        });
    }
}

/// Lets this process have as many descriptors as it may. Returns how many.
fn raise_descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer, and a limit within what is allowed.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    limit.rlim_cur
}

/// All are on their way at the same time.
#[test]
fn ureq_fetches_on_goroutines() {
    // Two descriptors for each: the client's and the server's.
    let requests = usize::try_from(raise_descriptors() / 3).map_or(2000, |most| most.min(2000));
    with_few_threads(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        mungo::scope(|s| {
            s.spawn(|| serve(&listener, requests, Duration::from_millis(200)));
            let agent = Arc::new(ureq::Agent::new_with_defaults());
            for _ in 0..requests {
                let agent = agent.clone();
                s.spawn(move || {
                    let mut answer = agent.get(format!("http://{address}/")).call().unwrap();
                    assert_eq!(answer.body_mut().read_to_string().unwrap(), "hello");
                });
            }
        });
    });
}

/// TLS over std's sockets: handshakes, and some data both ways.
#[test]
fn rustls_talks_on_goroutines() {
    const SESSIONS: usize = 100;
    const BYTES: usize = 50_000;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = rustls::ServerConfig::builder().with_no_client_auth();
    let server = Arc::new(server.with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let client = Arc::new(client);
    with_few_threads(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        mungo::scope(|s| {
            s.spawn(|| {
                for _ in 0..SESSIONS {
                    let (mut stream, server) = (listener.accept().unwrap().0, server.clone());
                    mungo::go(move || {
                        let mut session = rustls::ServerConnection::new(server).unwrap();
                        let mut tls = rustls::Stream::new(&mut session, &mut stream);
                        let mut bytes = vec![0; BYTES];
                        tls.read_exact(&mut bytes).unwrap();
                        bytes.iter_mut().for_each(|byte| *byte ^= 1);
                        tls.write_all(&bytes).unwrap();
                        tls.conn.send_close_notify();
                        tls.flush().unwrap();
                    });
                }
            });
            for i in 0..SESSIONS {
                let client = client.clone();
                s.spawn(move || {
                    let mut session =
                        rustls::ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
                    let mut stream = TcpStream::connect(address).unwrap();
                    let mut tls = rustls::Stream::new(&mut session, &mut stream);
                    tls.write_all(&[i as u8; BYTES]).unwrap();
                    let mut answer = Vec::new();
                    tls.read_to_end(&mut answer).unwrap();
                    assert!(answer.len() == BYTES && answer.iter().all(|byte| *byte == i as u8 ^ 1));
                });
            }
        });
    });
}

#[test]
fn tungstenite_talks_on_goroutines() {
    const SOCKETS: usize = 100;
    with_few_threads(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        mungo::scope(|s| {
            s.spawn(|| {
                for _ in 0..SOCKETS {
                    let stream = listener.accept().unwrap().0;
                    mungo::go(move || {
                        let mut socket = tungstenite::accept(stream).unwrap();
                        while let Ok(message) = socket.read() {
                            if message.is_text() {
                                socket.send(message).unwrap();
                            }
                        }
                    });
                }
            });
            for i in 0..SOCKETS {
                s.spawn(move || {
                    let stream = TcpStream::connect(address).unwrap();
                    let (mut socket, _) = tungstenite::client(format!("ws://{address}/"), stream).unwrap();
                    for round in 0..5 {
                        socket.send(format!("{i} {round}").into()).unwrap();
                        assert_eq!(socket.read().unwrap().into_text().unwrap(), format!("{i} {round}"));
                    }
                    socket.close(None).unwrap();
                });
            }
        });
    });
}
