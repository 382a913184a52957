//! UDP, Unix sockets, any descriptor, files: our types against std's.

mod common;

use common::{go_named, wait_until_parked};
use mungo::go;
use mungo::net::{Pollable, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A path that nobody has, gone with the value.
struct TempPath(PathBuf);

impl TempPath {
    fn new() -> TempPath {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("mungo-net-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        TempPath(std::env::temp_dir().join(name))
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn udp_against_std() {
    let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = ours.local_addr().unwrap();
    let server = go(move || {
        for _ in 0..100 {
            let mut packet = [0; 64];
            let (n, from) = ours.recv_from(&mut packet).unwrap();
            assert_eq!(ours.send_to(&packet[..n], from).unwrap(), n);
        }
    });
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(common::PATIENCE)).unwrap();
    for i in 0..100u32 {
        client.send_to(&i.to_le_bytes(), address).unwrap();
        let mut answer = [0; 64];
        assert_eq!(client.recv_from(&mut answer).unwrap(), (4, address));
        assert_eq!(answer[..4], i.to_le_bytes());
    }
    server.join().unwrap();
}

#[test]
fn udp_connected_and_timed_out() {
    go(|| {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        a.send(b"hello").unwrap();
        let mut packet = [0; 16];
        assert_eq!(b.peek(&mut packet).unwrap(), 5);
        assert_eq!(b.recv(&mut packet).unwrap(), 5);
        b.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        assert_eq!(b.recv(&mut packet).unwrap_err().kind(), ErrorKind::TimedOut);
        b.set_nonblocking(true).unwrap();
        assert_eq!(b.recv(&mut packet).unwrap_err().kind(), ErrorKind::WouldBlock);
    })
    .join()
    .unwrap();
}

#[test]
fn several_receive_from_one_socket() {
    let server = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = server.local_addr().unwrap();
    let got = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (server, got) = (server.clone(), got.clone());
            go(move || {
                while server.recv(&mut [0; 8]).is_ok() {
                    got.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for i in 1..=200 {
        client.send_to(b"x", address).unwrap();
        common::wait_until("it was received", || got.load(SeqCst) == i);
    }
    server.close().unwrap();
    workers.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn unix_stream_against_std() {
    let path = TempPath::new();
    let listener = UnixListener::bind(&path.0).unwrap();
    let server = go(move || {
        for stream in listener.incoming().take(2) {
            let stream = stream.unwrap();
            go(move || io::copy(&mut &stream, &mut &stream));
        }
    });
    let mut std = std::os::unix::net::UnixStream::connect(&path.0).unwrap();
    std.write_all(b"std").unwrap();
    let mut answer = [0; 3];
    std.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"std");
    let to = path.0.clone();
    go(move || {
        let mut ours = UnixStream::connect(to).unwrap();
        ours.write_all(b"our").unwrap();
        let mut answer = [0; 3];
        ours.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"our");
    })
    .join()
    .unwrap();
    server.join().unwrap();
}

#[test]
fn our_client_against_a_std_unix_server() {
    let path = TempPath::new();
    let listener = std::os::unix::net::UnixListener::bind(&path.0).unwrap();
    let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"hello").unwrap());
    let mut text = String::new();
    UnixStream::connect(&path.0).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    server.join().unwrap();
}

#[test]
fn unix_datagrams() {
    let path = TempPath::new();
    let server = UnixDatagram::bind(&path.0).unwrap();
    let receiving = go(move || {
        let mut packet = [0; 64];
        let n = server.recv(&mut packet).unwrap();
        let from_std = packet[..n].to_vec();
        let (n, from) = server.recv_from(&mut packet).unwrap();
        assert!(from.is_unnamed());
        (from_std, packet[..n].to_vec())
    });
    std::os::unix::net::UnixDatagram::unbound().unwrap().send_to(b"std", &path.0).unwrap();
    UnixDatagram::unbound().unwrap().send_to(b"ours", &path.0).unwrap();
    assert_eq!(receiving.join().unwrap(), (b"std".to_vec(), b"ours".to_vec()));
}

/// The receiver's queue is full, and the kernel says nothing when there is room again: nobody hangs.
#[test]
fn a_datagram_to_a_full_queue_arrives() {
    let path = TempPath::new();
    let server = UnixDatagram::bind(&path.0).unwrap();
    let to = path.0.clone();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let sender = go(move || {
        let client = UnixDatagram::unbound().unwrap();
        client.set_write_timeout(Some(common::PATIENCE)).unwrap();
        for i in 0..2000u32 {
            client.send_to(&i.to_le_bytes(), &to).unwrap();
            counted.fetch_add(1, SeqCst);
        }
    });
    common::wait_until("something was sent", || sent.load(SeqCst) > 5);
    for i in 0..2000u32 {
        let mut packet = [0; 4];
        assert_eq!(server.recv(&mut packet).unwrap(), 4);
        assert_eq!(u32::from_le_bytes(packet), i);
    }
    sender.join().unwrap();
    // And it times out if nobody takes any.
    let client = UnixDatagram::unbound().unwrap();
    client.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    let t = Instant::now();
    let e = (0..).find_map(|_| client.send_to(b"x", &path.0).err()).unwrap();
    assert_eq!(e.kind(), ErrorKind::TimedOut);
    assert!(t.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_pipe_is_pollable_in_both_directions() {
    let (reader, writer) = io::pipe().unwrap();
    let (reader, mut writer) = (Pollable::new(reader).unwrap(), Pollable::new(writer).unwrap());
    let reading = go(move || {
        let mut data = Vec::new();
        (&reader).read_to_end(&mut data).map(|_| data)
    });
    let writing = go(move || writer.write_all(&[7; 1 << 20])); // more than a pipe holds
    writing.join().unwrap().unwrap();
    assert_eq!(reading.join().unwrap().unwrap(), vec![7; 1 << 20]);
}

#[test]
fn waiting_for_a_pollable() {
    let (reader, mut writer) = io::pipe().unwrap();
    let reader = Arc::new(Pollable::new(reader).unwrap());
    let waiting = {
        let reader = reader.clone();
        go(move || reader.readable())
    };
    writer.write_all(b"x").unwrap();
    waiting.join().unwrap().unwrap();
    assert_eq!(reader.read_with(|mut pipe| pipe.read(&mut [0; 9])).unwrap(), 1);
    reader.set_read_deadline(Some(Instant::now() + Duration::from_millis(2)));
    assert_eq!(reader.readable().unwrap_err().kind(), ErrorKind::TimedOut);
    reader.set_read_deadline(None);
    // Another open file behind the same number is not disturbed by the close.
    let waiting = {
        let reader = reader.clone();
        go(move || reader.readable())
    };
    reader.close().unwrap();
    assert!(waiting.join().unwrap().is_err());
}

#[test]
fn descriptors_come_and_go() {
    let (a, mut b) = UnixStream::pair().unwrap();
    let raw = a.into_raw_fd();
    // SAFETY: it is ours now.
    let mut a = unsafe { UnixStream::from_raw_fd(raw) };
    assert_eq!(a.as_raw_fd(), raw);
    let reading = go(move || {
        let mut byte = [0];
        a.read_exact(&mut byte).unwrap();
        a
    });
    b.write_all(b"x").unwrap();
    let fd: OwnedFd = reading.join().unwrap().into();
    // As std's type it blocks again.
    let mut a = std::os::unix::net::UnixStream::from(fd);
    drop(b);
    assert_eq!(a.read(&mut [0]).unwrap(), 0);
}

#[test]
fn files() {
    let path = TempPath::new();
    let at = path.0.clone();
    go(move || {
        let mut file = mungo::fs::File::options().read(true).write(true).create_new(true).open(&at).unwrap();
        file.write_all(b"hello").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert_eq!(file.write_at(b"J", 0).unwrap(), 1);
        file.sync_data().unwrap();
        assert_eq!(mungo::fs::read(&at).unwrap(), b"Jello");
        assert!(mungo::fs::exists(&at).unwrap());
        mungo::fs::remove_file(&at).unwrap();
        assert_eq!(mungo::fs::metadata(&at).unwrap_err().kind(), ErrorKind::NotFound);
    })
    .join()
    .unwrap();
}

#[test]
fn a_descriptor_that_keeps_its_mode_parks_goroutines_all_the_same() {
    let is_blocking = |fd: i32| {
        // SAFETY: no memory involved.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        flags & libc::O_NONBLOCK == 0
    };
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = Pollable::keeping_mode(reader).unwrap();
    let writer = Pollable::keeping_mode(writer).unwrap();
    assert!(is_blocking(reader.as_raw_fd()) && is_blocking(writer.as_raw_fd()));

    // Far more than the pipe holds, in one call: passed on as it is, it would block the thread.
    let writing = go_named("keeps-mode-writer", move || (&writer).write_all(&vec![7; 1 << 20]));
    wait_until_parked("keeps-mode-writer");
    let mut bytes = Vec::new();
    (&reader).read_to_end(&mut bytes).unwrap();
    writing.join().unwrap().unwrap();
    assert_eq!(bytes.len(), 1 << 20);

    let (reader, writer) = std::io::pipe().unwrap();
    let reader = Pollable::keeping_mode(reader).unwrap();
    let (ctx, cancel) = mungo::context::Context::background().with_cancel();
    let reading = go_named("keeps-mode-reader", move || {
        let ended = reader.with_context(&ctx).read(&mut [0; 8]);
        (reader, ended)
    });
    wait_until_parked("keeps-mode-reader");
    cancel.cancel();
    let (reader, ended) = reading.join().unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Other);
    (&writer).write_all(b"x").unwrap();
    assert_eq!((&reader).read(&mut [0; 8]).unwrap(), 1);
}
