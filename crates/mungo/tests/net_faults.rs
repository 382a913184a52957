//! What goes wrong on a network: peers that reset or say nothing, time-outs, closing under a reader, no descriptors.

#[macro_use]
mod common;

use common::{child, wait_until};
use mungo::go;
use mungo::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

children!(out_of_descriptors, ten_thousand_connections);

const MS: Duration = Duration::from_millis(1);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Runs `f` on a goroutine and on a plain thread.
fn on_both(f: impl Fn() + Clone + Send + 'static) {
    go(f.clone()).join().unwrap();
    std::thread::spawn(f).join().unwrap();
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_read_times_out_and_never_early() {
    on_both(|| {
        let (client, _server) = pair();
        for ms in [1u32, 3, 20] {
            client.set_read_timeout(Some(ms * MS)).unwrap();
            let t = Instant::now();
            assert_eq!(kind((&client).read(&mut [0])), ErrorKind::TimedOut);
            assert!(t.elapsed() >= ms * MS, "{:?}", t.elapsed());
        }
        assert_eq!(kind(client.set_read_timeout(Some(Duration::ZERO))), ErrorKind::InvalidInput);
        assert_eq!(client.read_timeout().unwrap(), Some(20 * MS));
    });
}

#[test]
fn a_write_times_out() {
    on_both(|| {
        let (client, _server) = pair();
        client.set_write_timeout(Some(5 * MS)).unwrap();
        let t = Instant::now();
        let e = loop {
            if let Err(e) = (&client).write(&[0; 65536]) {
                break e;
            }
        };
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        assert!(t.elapsed() >= 5 * MS);
    });
}

#[test]
fn a_deadline_holds_for_all_reads_together() {
    on_both(|| {
        let (client, server) = pair();
        let t = Instant::now();
        client.set_read_deadline(Some(t + 30 * MS));
        (&server).write_all(b"ab").unwrap();
        assert_eq!((&client).read(&mut [0]).unwrap(), 1);
        assert_eq!((&client).read(&mut [0; 2]).unwrap(), 1);
        assert_eq!(kind((&client).read(&mut [0])), ErrorKind::TimedOut);
        assert!(t.elapsed() >= 30 * MS);
        // Even with something to read.
        (&server).write_all(b"c").unwrap();
        assert_eq!(kind((&client).read(&mut [0])), ErrorKind::TimedOut);
        client.set_read_deadline(None);
        assert_eq!((&client).read(&mut [0]).unwrap(), 1);
    });
}

/// Reads on a goroutine or a thread, and says when it is about to.
fn reading(client: &Arc<TcpStream>, on_goroutine: bool) -> impl FnOnce() -> io::Result<usize> + use<> {
    let (client, at_it) = (client.clone(), Arc::new(AtomicBool::new(false)));
    let says = at_it.clone();
    let body = move || {
        says.store(true, SeqCst);
        (&*client).read(&mut [0])
    };
    let result: Box<dyn FnOnce() -> io::Result<usize>> = match on_goroutine {
        true => {
            let handle = go(body);
            Box::new(move || handle.join().unwrap())
        }
        false => {
            let handle = std::thread::spawn(body);
            Box::new(move || handle.join().unwrap())
        }
    };
    wait_until("it is about to read", || at_it.load(SeqCst));
    std::thread::sleep(MS); // most likely it waits by now; if not, the outcome is the same
    result
}

#[test]
fn a_deadline_in_the_past_ends_a_read_that_waits() {
    for on_goroutine in [true, false] {
        let (client, _server) = pair();
        let client = Arc::new(client);
        let result = reading(&client, on_goroutine);
        client.set_read_deadline(Some(Instant::now()));
        assert_eq!(kind(result()), ErrorKind::TimedOut);
    }
}

#[test]
fn a_close_ends_a_read_that_waits() {
    for on_goroutine in [true, false] {
        let (client, server) = pair();
        let client = Arc::new(client);
        let result = reading(&client, on_goroutine);
        client.close().unwrap();
        assert_eq!(kind(result()), ErrorKind::NotConnected);
        // Later ones too, and the peer sees the end.
        assert_eq!(kind((&*client).read(&mut [0])), ErrorKind::NotConnected);
        assert_eq!(kind((&*client).write(b"x")), ErrorKind::NotConnected);
        assert_eq!((&server).read(&mut [0]).unwrap(), 0);
        client.close().unwrap(); // twice does no harm
    }
}

#[test]
fn a_shutdown_ends_a_read_that_waits() {
    for on_goroutine in [true, false] {
        let (client, _server) = pair();
        let client = Arc::new(client);
        let result = reading(&client, on_goroutine);
        client.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(result().unwrap(), 0);
    }
}

#[test]
fn a_close_ends_an_accept_and_a_receive() {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let accepting = {
        let listener = listener.clone();
        go(move || listener.accept().map(drop))
    };
    let receiving = {
        let socket = socket.clone();
        go(move || socket.recv_from(&mut [0]).map(drop))
    };
    mungo::sleep(MS);
    listener.close().unwrap();
    socket.close().unwrap();
    assert_eq!(kind(accepting.join().unwrap()), ErrorKind::NotConnected);
    assert_eq!(kind(receiving.join().unwrap()), ErrorKind::NotConnected);
}

#[test]
fn a_clone_survives_the_close() {
    let (client, server) = pair();
    let clone = client.try_clone().unwrap();
    client.close().unwrap();
    let reading = go(move || {
        let mut byte = [0];
        (&clone).read_exact(&mut byte).map(|()| byte[0])
    });
    (&server).write_all(b"!").unwrap();
    assert_eq!(reading.join().unwrap().unwrap(), b'!');
}

#[test]
fn a_peer_that_resets() {
    let (client, server) = pair();
    let reading = go(move || {
        let first = (&client).read(&mut [0]);
        (first, (&client).write(b"x"))
    });
    reset(server);
    let (read, write) = reading.join().unwrap();
    assert_eq!(kind(read), ErrorKind::ConnectionReset);
    assert_eq!(kind(write), ErrorKind::BrokenPipe);
}

/// Closes with RST in place of FIN.
fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the value outlives the call.
    let r = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as u32,
        )
    };
    assert_eq!(r, 0);
}

/// A client that sends a byte now and then does not keep a server that has a deadline.
#[test]
fn a_slow_loris_is_cut_off_by_a_deadline() {
    let (client, server) = pair();
    let stop = Arc::new(AtomicBool::new(false));
    let loris = {
        let stop = stop.clone();
        go(move || {
            while !stop.load(SeqCst) && (&client).write_all(b"G").is_ok() {
                mungo::sleep(MS);
            }
        })
    };
    let request = go(move || {
        let t = Instant::now();
        server.set_read_deadline(Some(t + 50 * MS));
        server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut request = Vec::new();
        let e = (&server).read_to_end(&mut request).unwrap_err();
        (e.kind(), t.elapsed(), request.len())
    });
    let (kind, took, _) = request.join().unwrap();
    assert_eq!(kind, ErrorKind::TimedOut);
    assert!(took >= 50 * MS && took < Duration::from_secs(20), "{took:?}");
    stop.store(true, SeqCst);
    loris.join().unwrap();
}

/// The clock and the data come at the same moment, again and again: whoever is first, no byte is lost.
#[test]
fn a_time_out_that_races_with_data() {
    let runtime = common::runtime(2);
    runtime.run(|| {
        let (client, server) = pair();
        client.set_read_timeout(Some(200 * Duration::from_micros(1))).unwrap();
        let writer = go(move || {
            for i in 0..2000u32 {
                (&server).write_all(&[i as u8]).unwrap();
                mungo::sleep(Duration::from_micros(150 + u64::from(i % 100)));
            }
        });
        let (mut timeouts, mut next) = (0, 0u32);
        while next < 2000 {
            let mut buffer = [0; 16];
            match (&client).read(&mut buffer) {
                Ok(n) => {
                    for &byte in &buffer[..n] {
                        assert_eq!(byte, next as u8);
                        next += 1;
                    }
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::TimedOut);
                    timeouts += 1;
                }
            }
        }
        assert!(timeouts > 0, "there was no race");
        writer.join().unwrap();
    });
    common::end(runtime);
}

/// A descriptor's number is used again at once, many times; events of the old one must not reach the new one's readers
/// in a way that they notice, nor be missing.
#[test]
fn numbers_that_are_used_again() {
    let runtime = common::runtime(2);
    runtime.run(|| {
        let workers: Vec<_> = (0..4u8)
            .map(|w| {
                go(move || {
                    for i in 0..300u32 {
                        let (a, b) = UnixStream::pair().unwrap();
                        let reader = go(move || {
                            let mut byte = [0];
                            (&b).read_exact(&mut byte).map(|()| byte[0])
                        });
                        if i % 3 == 0 {
                            mungo::yield_now();
                        }
                        (&a).write_all(&[w]).unwrap();
                        drop(a); // an event that comes late
                        assert_eq!(reader.join().unwrap().unwrap(), w);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
    common::end(runtime);
}

/// Close and read meet in every order.
#[test]
fn closing_under_readers_stress() {
    let runtime = common::runtime(2);
    runtime.run(|| {
        for i in 0..500u32 {
            let (a, b) = UnixStream::pair().unwrap();
            let a = Arc::new(a);
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    let a = a.clone();
                    go(move || (&*a).read(&mut [0]))
                })
                .collect();
            (0..i % 5).for_each(|_| mungo::yield_now());
            a.close().unwrap();
            for reader in readers {
                assert_eq!(kind(reader.join().unwrap()), ErrorKind::NotConnected);
            }
            assert_eq!((&b).read(&mut [0]).unwrap(), 0);
        }
    });
    common::end(runtime);
}

/// All Ps compute, and yet a request is answered, long before they are done.
#[test]
fn a_request_is_answered_while_all_ps_compute() {
    let runtime = common::runtime(2);
    let (client, server) = pair();
    let stop = Arc::new(AtomicBool::new(false));
    let waiting = Arc::new(AtomicUsize::new(0));
    let echo = {
        let waiting = waiting.clone();
        runtime.spawn(move || {
            let mut byte = [0];
            loop {
                waiting.fetch_add(1, SeqCst);
                match (&server).read(&mut byte).unwrap() {
                    0 => return,
                    _ => (&server).write_all(&byte).unwrap(),
                }
            }
        })
    };
    let spinning: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(move || while !stop.load(SeqCst) {})
        })
        .collect();
    wait_until("the server reads", || waiting.load(SeqCst) == 1);
    for i in 0..20u8 {
        (&client).write_all(&[i]).unwrap();
        let mut byte = [0];
        (&client).read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], i);
    }
    stop.store(true, SeqCst);
    drop(client);
    echo.join().unwrap();
    spinning.into_iter().for_each(|s| s.join().unwrap());
    common::end(runtime);
}

fn limit_descriptors(n: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the value outlives both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = n.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    limit.rlim_cur
}

/// Descriptors run out; the server notes it, waits, and goes on when there are some again.
fn out_of_descriptors() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let errors = Arc::new(AtomicUsize::new(0));
    // Clients that connect, without descriptors of this process: it has none to spare.
    limit_descriptors(64);
    let mut held: Vec<_> = (0..).map_while(|_| TcpStream::connect(address).ok()).collect();
    assert!(held.len() > 20 && held.len() < 64, "{}", held.len());
    let counted = errors.clone();
    let server = go(move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => return (&stream).write_all(b"hello").unwrap(),
                Err(e) => {
                    assert_eq!(e.raw_os_error(), Some(libc::EMFILE));
                    counted.fetch_add(1, SeqCst);
                }
            }
        }
    });
    wait_until("it has failed", || errors.load(SeqCst) >= 3);
    assert!(errors.load(SeqCst) < 100, "it spins");
    let mut first = held.swap_remove(0);
    held.truncate(10);
    let mut text = String::new();
    first.set_read_timeout(Some(common::PATIENCE)).unwrap();
    first.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    server.join().unwrap();
}

#[test]
fn accept_backs_off_and_recovers() {
    child::run("out_of_descriptors").assert_code(0);
}

/// As many connections as the limit allows, ten thousand at the most: all wait, then all are served.
fn ten_thousand_connections() {
    let descriptors = limit_descriptors(20_100);
    let n = (descriptors.saturating_sub(100) / 2).min(10_000) as usize;
    println!("{n} connections");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let server = go(move || {
        let serve = |stream: TcpStream| {
            let mut request = [0; 4];
            (&stream).read_exact(&mut request).unwrap();
            (&stream).write_all(&request).unwrap();
        };
        let all: Vec<_> =
            listener.incoming().take(n).map(|s| s.unwrap()).map(|s| go(move || serve(s))).collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    });
    let mut clients: Vec<TcpStream> = (0..n).map(|_| TcpStream::connect(address).unwrap()).collect();
    let clients: Vec<_> = clients
        .drain(..)
        .enumerate()
        .map(|(i, stream)| {
            go(move || {
                (&stream).write_all(&(i as u32).to_le_bytes()).unwrap();
                let mut answer = [0; 4];
                (&stream).read_exact(&mut answer).unwrap();
                assert_eq!(u32::from_le_bytes(answer), i as u32);
            })
        })
        .collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    server.join().unwrap();
}

#[test]
fn ten_thousand_at_once() {
    let ended = child::run("ten_thousand_connections");
    ended.assert_code(0);
    println!("{}", ended.stdout);
}
