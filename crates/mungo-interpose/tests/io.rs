//! Pipes, files, child processes, poll and epoll on goroutines.

#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{child, go_named, runtime, wait_until_parked};
use mungo_interpose as _;
use std::io::{IoSliceMut, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

#[test]
fn pipes_carry_more_than_they_hold() {
    const SIZE: usize = 1 << 20;
    runtime(2).run(|| {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let writing = mungo::go(move || {
            let data = vec![7_u8; SIZE];
            // SAFETY: the bytes outlive the call.
            let written = unsafe { libc::write(writer.as_raw_fd(), data.as_ptr().cast(), SIZE) };
            assert_eq!(written, SIZE as isize, "all, as a pipe that blocks");
        });
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got.len() == SIZE && got.iter().all(|byte| *byte == 7));
    });
}

#[test]
fn parts_are_read_and_written() {
    runtime(2).run(|| {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let waiting = go_named("parts", move || {
            let (mut a, mut b) = ([0; 2], [0; 4]);
            let n = reader.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).unwrap();
            (n, a, b[0])
        });
        wait_until_parked("parts");
        let n = writer.write_vectored(&[std::io::IoSlice::new(b"ab"), std::io::IoSlice::new(b"c")]).unwrap();
        assert_eq!((n, waiting.join().unwrap()), (3, (3, *b"ab", b'c')));
    });
}

#[test]
fn files_are_read_to_their_end() {
    runtime(2).run(|| {
        // SAFETY: a new file without a name.
        let mut file = unsafe {
            let fd = libc::memfd_create(c"test".as_ptr(), 0);
            assert!(fd >= 0);
            std::fs::File::from(OwnedFd::from_raw_fd(fd))
        };
        let data: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
        file.write_all(&data).unwrap();
        file.rewind().unwrap();
        let mut got = Vec::new();
        file.read_to_end(&mut got).unwrap();
        assert!(got == data);
        let mut middle = [0; 4];
        file.read_exact_at(&mut middle, 70_000).unwrap();
        assert_eq!(middle, data[70_000..70_004]);
        file.write_all_at(&[9], 0).unwrap();
        assert_eq!(file.read_at(&mut middle, 99_998).unwrap(), 2, "up to the end");
        file.sync_all().unwrap();
        // Files of the kernel's, which cannot be tried.
        assert!(std::fs::read_to_string("/proc/self/status").unwrap().contains("Threads"));
        assert_eq!(std::fs::read("Cargo.toml").unwrap(), mungo::fs::read("Cargo.toml").unwrap());
    });
}

#[test]
fn children_are_waited_for() {
    const CHILDREN: usize = 20;
    let runtime = runtime(2);
    runtime.run(|| {
        mungo::scope(|s| {
            for i in 0..CHILDREN {
                s.spawn(move || {
                    let script = format!("read line; echo \"$line {i}\"; echo {i} >&2; exit {i}");
                    let mut child = Command::new("sh")
                        .args(["-c", &script])
                        .stdin(Stdio::piped())
                        .stdout(Stdio::piped())
                        .stderr(Stdio::piped())
                        .spawn()
                        .unwrap();
                    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
                    let output = child.wait_with_output().unwrap();
                    assert_eq!(output.stdout, format!("hello {i}\n").into_bytes());
                    assert_eq!(output.stderr, format!("{i}\n").into_bytes());
                    assert_eq!(output.status.code(), Some(i as i32));
                });
            }
        });
        let slow = Command::new("sh").args(["-c", "read x"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut slow = std::mem::ManuallyDrop::new(slow);
        let stdin = slow.stdin.take();
        let pid = slow.id() as libc::pid_t;
        let waiter = go_named("a child", move || {
            let mut status = 0;
            // SAFETY: room for the status.
            (unsafe { libc::waitpid(pid, &mut status, 0) }, libc::WEXITSTATUS(status))
        });
        wait_until_parked("a child");
        drop(stdin);
        assert_eq!(waiter.join().unwrap(), (pid, 1));
        // SAFETY: there is no such child.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ECHILD));
    });
}

/// Each collects ten megabytes of a child's; so many at a time that memory suffices, by std's lock and condition.
#[test]
fn the_output_of_children_is_collected() {
    const BYTES: usize = 10_000_000;
    let goroutines = if child::is_emulated("10 goroutines instead of 200") { 10 } else { 200 };
    let runtime = runtime(2);
    runtime.run(|| {
        let (permits, given_back) = (Mutex::new(20), Condvar::new());
        mungo::scope(|s| {
            for _ in 0..goroutines {
                s.spawn(|| {
                    *given_back.wait_while(permits.lock().unwrap(), |left| *left == 0).unwrap() -= 1;
                    let command = format!("head -c {BYTES} /dev/zero; echo done >&2");
                    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
                    assert!(output.status.success());
                    assert_eq!((output.stdout.len(), &output.stderr[..]), (BYTES, &b"done\n"[..]));
                    drop(output);
                    *permits.lock().unwrap() += 1;
                    given_back.notify_one();
                });
            }
        });
    });
    let threads = runtime.metrics().threads;
    assert!(threads < 60, "{threads} threads");
}

fn poll(fds: &mut [libc::pollfd], ms: i32) -> i32 {
    // SAFETY: the descriptors outlive the call.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) }
}

#[test]
fn poll_waits_for_one_or_many() {
    runtime(2).run(|| {
        let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        let ask = |i: usize, events| libc::pollfd { fd: pairs[i].0.as_raw_fd(), events, revents: 0 };
        let start = Instant::now();
        for asked in [1, 3] {
            let mut fds: Vec<_> = (0..asked).map(|i| ask(i, libc::POLLIN)).collect();
            assert_eq!(poll(&mut fds, 0), 0);
            assert_eq!(poll(&mut fds, 3), 0);
        }
        assert_eq!(poll(&mut [], 2), 0);
        assert!(start.elapsed() >= Duration::from_millis(8));
        assert_eq!(poll(&mut [ask(0, libc::POLLIN | libc::POLLOUT)], -1), 1);
        for asked in [1, 3] {
            let mut fds: Vec<_> = (0..asked).map(|i| ask(i, libc::POLLIN)).collect();
            // The same one twice, one that is ignored.
            fds.push(fds[0]);
            fds.push(libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 });
            let name = format!("polls {asked}");
            let waiter = go_named(&name, move || (poll(&mut fds, -1), fds.last().unwrap().revents));
            wait_until_parked(&name);
            (&pairs[0].1).write_all(&[1]).unwrap();
            assert_eq!(waiter.join().unwrap(), (2, 0), "one descriptor, named twice");
            (&pairs[0].0).read_exact(&mut [0]).unwrap();
        }
        let gone = libc::pollfd { fd: 1 << 19, events: libc::POLLIN, revents: 0 };
        let mut fds = [gone, ask(0, libc::POLLIN)];
        assert_eq!((poll(&mut fds, -1), fds[0].revents), (1, libc::POLLNVAL));
    });
}

#[test]
fn epoll_waits_for_its_events() {
    runtime(2).run(|| {
        let (near, mut far) = UnixStream::pair().unwrap();
        // SAFETY: descriptors and events of our own.
        let epoll = unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(0));
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 42 };
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, near.as_raw_fd(), &mut event);
            epoll
        };
        let wait = move |ms| {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
            // SAFETY: room for four.
            let n = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), 4, ms) };
            (n, events[0].u64)
        };
        assert_eq!((wait(0).0, wait(2).0), (0, 0));
        let waiter = go_named("epoll", move || (wait(-1), wait));
        wait_until_parked("epoll");
        far.write_all(&[1]).unwrap();
        let (first, wait) = waiter.join().unwrap();
        assert_eq!((first, wait(-1)), ((1, 42), (1, 42)), "as long as it is there");
    });
}

/// A terminal has no try. Its reader waits until there is a line.
#[test]
fn a_terminal_is_read_line_by_line() {
    runtime(2).run(|| {
        let (mut master, mut slave) = (0, 0);
        let null = std::ptr::null_mut();
        // SAFETY: room for both numbers.
        let made = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) };
        if made != 0 {
            eprintln!("skipped: no terminal can be opened here");
            return;
        }
        // SAFETY: both are new.
        let (mut master, mut slave) = unsafe {
            (
                std::fs::File::from(OwnedFd::from_raw_fd(master)),
                std::fs::File::from(OwnedFd::from_raw_fd(slave)),
            )
        };
        let reader = go_named("terminal", move || {
            let mut line = [0; 16];
            let n = slave.read(&mut line).unwrap();
            slave.write_all(b"ok").unwrap();
            (line[..n].to_vec(), slave)
        });
        wait_until_parked("terminal");
        master.write_all(b"hello\n").unwrap();
        assert_eq!(reader.join().unwrap().0, b"hello\n");
    });
}

#[test]
fn names_are_looked_up() {
    use std::net::ToSocketAddrs;
    runtime(1).run(|| assert!(("127.0.0.1", 80).to_socket_addrs().unwrap().all(|a| a.ip().is_loopback())));
    runtime(1).run(|| {
        assert!("localhost:80".to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback())))
    });
}

#[test]
fn a_dump_names_what_may_have_blocked_threads() {
    runtime(1).run(|| {
        let file = std::fs::File::open("Cargo.toml").unwrap();
        // SAFETY: no memory involved.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) }, 0);
        let dump = mungo::debug::dump().to_string();
        let line = dump.lines().last().unwrap();
        assert!(line.starts_with("mungo-interpose: calls so far that may have blocked a thread: "), "{dump}");
        assert!(line.contains("flock 1"), "{dump}");
    });
}

/// A page that is not in memory is read from the disk, whatever the mode of the descriptor.
#[test]
fn files_block_in_any_mode() {
    use std::os::unix::fs::OpenOptionsExt;
    const SIZE: usize = 4 << 20;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("files_block_in_any_mode");
    std::fs::write(&path, vec![5_u8; SIZE]).unwrap();
    runtime(1).run(|| {
        for _ in 0..3 {
            let mut file =
                std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
            file.sync_all().unwrap();
            // SAFETY: advice about a file.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            let mut got = Vec::new();
            file.read_to_end(&mut got).unwrap();
            assert!(got.len() == SIZE && got.iter().all(|byte| *byte == 5));
        }
    });
    std::fs::remove_file(&path).unwrap();
}

/// `waitid` for a process that is nobody's child here says so.
#[test]
fn only_children_are_waited_for() {
    runtime(1).run(|| {
        // SAFETY: room for the answer.
        let (result, error) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let parent = libc::getppid() as libc::id_t;
            let result = libc::waitid(libc::P_PID, parent, &mut info, libc::WEXITED);
            (result, std::io::Error::last_os_error().raw_os_error())
        };
        assert_eq!((result, error), (-1, Some(libc::ECHILD)));
        let child = Command::new("sh").args(["-c", "read x; exit 3"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut child = std::mem::ManuallyDrop::new(child);
        let (stdin, pid) = (child.stdin.take(), child.id());
        let waiter = go_named("waitid", move || {
            // SAFETY: room for the answer.
            unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                assert_eq!(libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED), 0);
                (info.si_pid() as u32, info.si_status())
            }
        });
        wait_until_parked("waitid");
        drop(stdin);
        assert_eq!(waiter.join().unwrap(), (pid, 3));
    });
}

/// A copy of a descriptor that is not there leaves the other one as it is, and waits for it go on.
#[test]
fn a_copy_that_fails_ends_no_wait() {
    runtime(2).run(|| {
        let (near, mut far) = UnixStream::pair().unwrap();
        let to = near.as_raw_fd();
        let waiter = go_named("copied over", move || (&near).read_exact(&mut [0]));
        wait_until_parked("copied over");
        // SAFETY: calls that fail.
        unsafe {
            assert_eq!(libc::dup2(-1, to), -1);
            assert_eq!(libc::dup3(12_345_678, to, 0), -1);
            assert_eq!(libc::dup3(0, to, -1), -1);
        }
        far.write_all(&[1]).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// Addresses that are not there: the kernel says so.
#[test]
fn wrong_addresses_are_refused() {
    if child::is_emulated("qemu 7.2 has no process_vm_readv, by which such an address is noticed") {
        return;
    }
    let error = || std::io::Error::last_os_error().raw_os_error();
    let nowhere = 0x1000 as *const libc::c_void;
    let (_near, far) = UnixStream::pair().unwrap();
    let fd = far.as_raw_fd();
    let ask = |nowhere: *const libc::c_void| {
        // SAFETY: the kernel looks at the addresses, and refuses them.
        unsafe {
            let (clock, rest) = (libc::CLOCK_MONOTONIC, std::ptr::null_mut());
            assert_eq!(libc::clock_nanosleep(clock, 0, nowhere.cast(), rest), libc::EFAULT);
            assert_eq!((libc::nanosleep(nowhere.cast(), rest), error()), (-1, Some(libc::EFAULT)));
            assert_eq!((libc::connect(fd, nowhere.cast(), 16), error()), (-1, Some(libc::EFAULT)));
            assert_eq!((libc::write(fd, nowhere, 1), error()), (-1, Some(libc::EFAULT)));
        }
    };
    ask(nowhere);
    let at = nowhere as usize;
    runtime(1).run(|| ask(at as *const libc::c_void));
    // SAFETY: on a plain thread the kernel looks at the time.
    unsafe {
        let word = 0_u32;
        let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        assert_eq!(libc::syscall(libc::SYS_futex, &raw const word, op, 0, nowhere), -1);
        assert_eq!(error(), Some(libc::EFAULT));
    }
}

/// Times that the kernel refuses, that are over at once, and that are never over.
#[test]
fn waits_of_no_time_and_of_years() {
    runtime(2).run(|| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let ask = || libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let ppoll = |time: libc::timespec| {
            // SAFETY: all outlives the call.
            unsafe { libc::ppoll(&mut ask(), 1, &time, std::ptr::null()) }
        };
        let select = |mut time: libc::timeval| {
            // SAFETY: plain numbers; all outlives the call.
            unsafe {
                let mut set: libc::fd_set = std::mem::zeroed();
                libc::FD_SET(fd, &mut set);
                let null = std::ptr::null_mut();
                libc::select(fd + 1, &mut set, null, null, &mut time)
            }
        };
        let invalid = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        assert_eq!(ppoll(libc::timespec { tv_sec: 0, tv_nsec: 0 }), 0);
        assert_eq!(select(libc::timeval { tv_sec: 0, tv_usec: 0 }), 0);
        assert_eq!(poll(&mut [ask()], 0), 0);
        for (tv_sec, tv_nsec) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            assert_eq!(ppoll(libc::timespec { tv_sec, tv_nsec }), -1);
            assert!(invalid());
        }
        assert_eq!(select(libc::timeval { tv_sec: -1, tv_usec: 0 }), -1);
        assert!(invalid());
        mungo::scope(|s| {
            let years = [
                s.spawn(|| ppoll(libc::timespec { tv_sec: i64::MAX, tv_nsec: 0 })),
                s.spawn(|| select(libc::timeval { tv_sec: i64::MAX / 2, tv_usec: 0 })),
                s.spawn(|| poll(&mut [ask()], i32::MAX)),
                s.spawn(|| poll(&mut [ask()], i32::MIN)),
            ];
            std::thread::sleep(Duration::from_millis(5));
            writer.write_all(&[1]).unwrap();
            for wait in years {
                assert_eq!(wait.join().unwrap(), 1);
            }
        });
    });
}
