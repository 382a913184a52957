//! Sockets of std park goroutines, and behave as on threads.

#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{go_named, runtime, wait_until_parked};
use mungo_interpose as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn flags(fd: RawFd) -> i32 {
    // SAFETY: asks only.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}

fn error() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// A pair of connected TCP sockets.
fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn many_connections_need_few_threads() {
    const CONNECTIONS: usize = 200;
    let runtime = runtime(2);
    runtime.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        mungo::scope(|s| {
            s.spawn(|| {
                for _ in 0..CONNECTIONS {
                    let mut stream = listener.accept().unwrap().0;
                    mungo::go(move || {
                        let mut bytes = [0; 32];
                        while let n @ 1.. = stream.read(&mut bytes).unwrap() {
                            stream.write_all(&bytes[..n]).unwrap();
                        }
                    });
                }
            });
            let mut all: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
            mungo::scope(|s| {
                for stream in &mut all {
                    s.spawn(move || {
                        for i in 0..10_u8 {
                            let mut answer = [0; 3];
                            stream.write_all(&[i, 1, 2]).unwrap();
                            stream.read_exact(&mut answer).unwrap();
                            assert_eq!(answer, [i, 1, 2]);
                        }
                    });
                }
            });
            // As they were made: no flag of a descriptor was touched.
            assert!(all.iter().all(|stream| flags(stream.as_raw_fd()) & libc::O_NONBLOCK == 0));
        });
    });
    let metrics = runtime.metrics();
    assert!(metrics.threads < 100, "{} threads", metrics.threads);
}

#[test]
fn several_goroutines_accept_from_one_listener() {
    const EACH: usize = 5;
    runtime(2).run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        mungo::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..EACH).for_each(|_| drop(listener.accept().unwrap())));
            }
            for _ in 0..4 * EACH {
                let mut stream = TcpStream::connect(address).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 0, "accepted and closed");
            }
        });
    });
}

#[test]
fn time_outs_are_the_sockets() {
    runtime(2).run(|| {
        let (mut near, _far) = tcp_pair();
        let patience = Duration::from_millis(30);
        near.set_read_timeout(Some(patience)).unwrap();
        for _ in 0..2 {
            let start = Instant::now();
            assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(start.elapsed() >= patience);
        }
        let patience = Duration::from_millis(50);
        near.set_read_timeout(Some(patience)).unwrap();
        let start = Instant::now();
        assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let took = start.elapsed();
        println!("a time-out of 50 ms took {took:.1?}");
        assert!(took >= patience);
        // A buffer that is full.
        near.set_write_timeout(Some(patience)).unwrap();
        let chunk = vec![1; 1 << 20];
        let refused = std::iter::repeat_with(|| near.write(&chunk)).take(1000).find_map(Result::err);
        assert_eq!(refused.expect("full at last").kind(), ErrorKind::WouldBlock);
        // A time-out that is set while others trust in there being none.
        let (near, far) = UnixStream::pair().unwrap();
        let reader = near.try_clone().unwrap();
        let first = go_named("timed later", move || (&reader).read(&mut [0]).unwrap());
        wait_until_parked("timed later");
        (&far).write_all(&[1]).unwrap();
        assert_eq!(first.join().unwrap(), 1);
        near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn what_does_not_block_stays_so() {
    runtime(2).run(|| {
        let (mut near, mut far) = tcp_pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        // It blocks, does not, and blocks again.
        far.write_all(&[1, 2]).unwrap();
        near.read_exact(&mut [0; 2]).unwrap();
        for _ in 0..2 {
            near.set_nonblocking(true).unwrap();
            assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            near.set_nonblocking(false).unwrap();
            let mut reader = near.try_clone().unwrap();
            let waiting = go_named("blocks again", move || reader.read(&mut [0]).unwrap());
            wait_until_parked("blocks again");
            far.write_all(&[1]).unwrap();
            assert_eq!(waiting.join().unwrap(), 1);
        }
        // SAFETY: a byte of our own.
        let got = unsafe { libc::recv(near.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT) };
        assert_eq!((got, error()), (-1, Some(libc::EAGAIN)));
    });
}

#[test]
fn a_large_write_is_written_as_a_whole() {
    const SIZE: usize = 8 << 20;
    runtime(2).run(|| {
        let (near, mut far) = tcp_pair();
        let data: Vec<u8> = (0..SIZE).map(|i| i as u8).collect();
        let expected = data.clone();
        let writer = mungo::go(move || {
            // SAFETY: the bytes outlive the call.
            let sent = unsafe { libc::send(near.as_raw_fd(), data.as_ptr().cast(), SIZE, 0) };
            assert_eq!(sent, SIZE as isize, "as a blocking socket");
        });
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == expected);
    });
}

/// A goroutine that waits for a descriptor is told when it is closed, by whomever, and does not read from the next one
/// of that number.
#[test]
fn close_ends_the_wait() {
    runtime(2).run(|| {
        for round in 0..4 {
            let (near, far) = UnixStream::pair().unwrap();
            let fd = near.into_raw_fd();
            let name = format!("closed {round}");
            let waiter = go_named(&name, move || {
                let mut byte = [0_u8];
                // SAFETY: a byte of our own.
                let got = unsafe { libc::recv(fd, byte.as_mut_ptr().cast(), 1, 0) };
                (got, error())
            });
            wait_until_parked(&name);
            // SAFETY: the descriptor is ours.
            let close = move || assert_eq!(unsafe { libc::close(fd) }, 0);
            match round {
                0 => close(),
                1 => std::thread::spawn(close).join().unwrap(),
                _ => {
                    // SAFETY: both are ours.
                    assert_eq!(unsafe { libc::dup2(far.as_raw_fd(), fd) }, fd);
                }
            }
            assert_eq!(waiter.join().unwrap(), (-1, Some(libc::EBADF)));
            if round >= 2 {
                close();
            }
        }
    });
}

/// A number that passes to another socket behind our back, by system calls that no shim sees.
#[test]
fn a_number_that_was_reused_unseen_is_noticed() {
    runtime(2).run(|| {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut reader = near.try_clone().unwrap();
        let first = go_named("before", move || {
            reader.read_exact(&mut [0]).unwrap();
            reader
        });
        wait_until_parked("before");
        far.write_all(&[1]).unwrap();
        let mut reader = first.join().unwrap();
        let (other, mut other_far) = UnixStream::pair().unwrap();
        // SAFETY: both are ours. It goes straight to the kernel: `syscall` looks at futexes alone.
        unsafe { libc::syscall(libc::SYS_dup3, other.as_raw_fd(), reader.as_raw_fd(), 0) };
        let second = go_named("after", move || {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            byte[0]
        });
        wait_until_parked("after");
        other_far.write_all(&[42]).unwrap();
        assert_eq!(second.join().unwrap(), 42);
    });
}

#[test]
fn shutdown_and_end_wake_the_reader() {
    runtime(2).run(|| {
        let (near, far) = tcp_pair();
        let mut reader = near.try_clone().unwrap();
        let waiter = go_named("shut down", move || reader.read(&mut [0]).unwrap());
        wait_until_parked("shut down");
        near.shutdown(Shutdown::Read).unwrap();
        assert_eq!(waiter.join().unwrap(), 0);
        let mut reader = far.try_clone().unwrap();
        let waiter = go_named("ended", move || reader.read(&mut [0]).unwrap());
        wait_until_parked("ended");
        drop(near);
        assert_eq!(waiter.join().unwrap(), 0);
    });
}

#[test]
fn connections_fail_as_on_threads() {
    runtime(2).run(|| {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(TcpStream::connect(closed).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let refused = TcpStream::connect_timeout(&closed, Duration::from_secs(5)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(UnixStream::connect("/nonexistent").is_err());
        let mut byte = [0_u8];
        // SAFETY: a byte of our own; there is no such descriptor.
        let got = unsafe { libc::recv(-1, byte.as_mut_ptr().cast(), 1, 0) };
        assert_eq!((got, error()), (-1, Some(libc::EBADF)));
        // SAFETY: the kernel refuses the address.
        let got = unsafe { libc::read(0, std::ptr::null_mut(), 0) };
        assert!(got == 0 || error().is_some());
    });
}

#[test]
fn datagrams_come_one_by_one() {
    runtime(2).run(|| {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = b.local_addr().unwrap();
        let receiver = go_named("datagram", move || {
            let mut bytes = [0; 16];
            let (n, from) = b.recv_from(&mut bytes).unwrap();
            (bytes[..n].to_vec(), from)
        });
        wait_until_parked("datagram");
        a.send_to(b"one", to).unwrap();
        assert_eq!(receiver.join().unwrap(), (b"one".to_vec(), a.local_addr().unwrap()));
    });
}

/// A socket passes from std to this crate's own types and back, while the poller knows it.
#[test]
fn sockets_pass_between_std_and_mungo() {
    runtime(2).run(|| {
        let (near, mut far) = tcp_pair();
        let mut reader = near.try_clone().unwrap();
        let first = go_named("by std", move || {
            reader.read_exact(&mut [0]).unwrap();
            reader
        });
        wait_until_parked("by std");
        far.write_all(&[1]).unwrap();
        let mut own = mungo::net::TcpStream::from(first.join().unwrap());
        let second = go_named("by mungo", move || {
            own.read_exact(&mut [0]).unwrap();
            own
        });
        wait_until_parked("by mungo");
        far.write_all(&[2]).unwrap();
        drop(second.join().unwrap());
    });
}
