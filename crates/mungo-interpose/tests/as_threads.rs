//! What a thread may do and a goroutine must not do otherwise: forks without the C library, modes changed by a copy of
//! a descriptor, terminals, tracers, errors after half a write. Each case is a process of its own.

#[macro_use]
#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{child, go_named, runtime, wait_until, wait_until_parked};
use mungo_interpose::counts;
use std::ffi::{c_int, c_void};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::ptr::{null, null_mut};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

children!(
    raw_forks,
    changed_mode,
    changed_time_out,
    cancelled,
    terminals,
    in_the_background,
    traced,
    short_reads,
    full_datagrams,
    half_a_write,
    inherited_masks,
    small_differences,
    many_messages,
    no_descriptors,
    no_preadv2,
);

fn error() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// What goroutines' calls of a function came to: at once, parked, left to the kernel.
fn counted(function: &str) -> (u64, u64, u64) {
    let found = counts().find(|c| c.function == function).expect("a function");
    (found.passed, found.parked, found.fell_back)
}

#[test]
fn a_child_made_without_the_c_library_has_plain_calls() {
    if child::is_emulated("the emulator does not pass MADV_WIPEONFORK on") {
        return;
    }
    child::run("raw_forks").assert_success();
}

unsafe extern "C" {
    fn _Fork() -> libc::pid_t;
}

/// What a child does: it waits in every way, and ends.
fn in_child(mut near: &UnixStream) -> ! {
    // SAFETY: a child that hangs ends with its parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    std::thread::sleep(Duration::from_millis(2));
    let pair = (Mutex::new(1), Condvar::new());
    let (held, waited) = pair.1.wait_timeout(pair.0.lock().unwrap(), Duration::from_millis(1)).unwrap();
    near.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let empty = near.read(&mut [0]).is_err();
    // SAFETY: ends the child.
    unsafe { libc::_exit(i32::from(!empty || !waited.timed_out()) + *held) };
}

/// Each way to make a child with memory of its own, from a goroutine whose parent has others that are ready.
fn raw_forks() {
    #[repr(C)]
    struct Clone3 {
        flags: u64,
        rest: [u64; 3],
        signal: u64,
        more: [u64; 6],
    }
    type Way = fn(&UnixStream) -> i64;
    let ways: [Way; 4] = [
        // SAFETY: the child does what a child may.
        |_| unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) },
        |_| {
            let how = Clone3 { flags: 0, rest: [0; 3], signal: libc::SIGCHLD as u64, more: [0; 6] };
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_clone3, &raw const how, size_of::<Clone3>()) }
        },
        // SAFETY: as above.
        |_| i64::from(unsafe { _Fork() }),
        |near| {
            extern "C" fn start(near: *mut c_void) -> c_int {
                // SAFETY: the child has a copy of it.
                in_child(unsafe { &*near.cast::<UnixStream>() })
            }
            let mut stack = vec![0_u128; 16 << 10];
            // SAFETY: as above, on a stack of its own.
            unsafe {
                let top = stack.as_mut_ptr().add(stack.len() - 16).cast();
                i64::from(libc::clone(start, top, libc::SIGCHLD, std::ptr::from_ref(near).cast_mut().cast()))
            }
        },
    ];
    let parent = std::process::id();
    runtime(2).run(|| {
        let (near, _far) = UnixStream::pair().unwrap();
        // Always ready: a child that waits as a goroutine would run them.
        for _ in 0..4 {
            mungo::go(move || {
                while std::process::id() == parent {
                    mungo::yield_now();
                }
                // SAFETY: ends the child.
                unsafe { libc::_exit(99) };
            });
        }
        for way in ways {
            let pid = way(&near) as libc::pid_t;
            if pid == 0 {
                in_child(&near);
            }
            assert!(pid > 0, "{:?}", error());
            near.set_read_timeout(None).unwrap();
            let mut status = 0;
            // SAFETY: room for the status.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 1));
            // The parent goes on as before.
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(counted("clock_nanosleep").1 >= 4, "the parent's sleeps park");
}

/// Returns a stream whose reader was waited for, and its other end.
fn known_to_the_poller() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let reader = go_named("known", move || {
        (&near).read_exact(&mut [0]).unwrap();
        near
    });
    wait_until_parked("known");
    (&far).write_all(&[1]).unwrap();
    (reader.join().unwrap(), far)
}

#[test]
fn a_mode_set_by_a_copy_holds_at_once() {
    child::run("changed_mode").assert_success();
}

fn changed_mode() {
    runtime(2).run(|| {
        let (near, mut far) = known_to_the_poller();
        let copy = near.try_clone().unwrap();
        let (mut reader, name) = (near.try_clone().unwrap(), "waits while the mode changes");
        let waiter = go_named(name, move || reader.read_exact(&mut [0]));
        let original = near.as_raw_fd();
        let second = go_named("waits by the number", move || {
            // SAFETY: a byte of our own.
            unsafe { libc::recv(original, [0_u8].as_mut_ptr().cast(), 1, 0) }
        });
        wait_until_parked(name);
        wait_until_parked("waits by the number");
        copy.set_nonblocking(true).unwrap();
        let before = counted("recv").1;
        assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(counted("recv").1, before, "it did not park");
        copy.set_nonblocking(false).unwrap();
        far.write_all(&[1, 2]).unwrap();
        assert_eq!(second.join().unwrap(), 1);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_time_out_set_by_a_copy_holds_at_once() {
    child::run("changed_time_out").assert_success();
}

/// What is known is looked at again after 0.2 s anyway: so each of twenty reads would take that long, were the change
/// missed. On a busy machine one of them is still shorter.
fn changed_time_out() {
    let took = runtime(2).run(|| {
        let rounds = (0..20).map(|_| {
            let (near, _far) = known_to_the_poller();
            near.try_clone().unwrap().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let start = Instant::now();
            assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            start.elapsed()
        });
        let mut least = Duration::MAX;
        for took in rounds {
            least = least.min(took);
            if least < Duration::from_millis(200) {
                break;
            }
        }
        least
    });
    assert!(took < Duration::from_millis(200), "each took {took:?} at least");
}

#[test]
fn plain_threads_can_be_cancelled() {
    child::run("cancelled").assert_success();
}

/// The calls, as functions that cancellation unwinds.
mod unwinding {
    use super::{c_int, c_void};
    unsafe extern "C-unwind" {
        pub(super) fn recv(fd: c_int, at: *mut c_void, len: usize, flags: c_int) -> isize;
        pub(super) fn read(fd: c_int, at: *mut c_void, len: usize) -> isize;
        pub(super) fn poll(fds: *mut libc::pollfd, n: libc::nfds_t, ms: c_int) -> c_int;
    }
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

static NUMBER: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

/// Notes which thread runs it, and waits.
macro_rules! waits {
    ($fd:ident, $call:expr) => {{
        extern "C-unwind" fn start(fd: *mut c_void) -> *mut c_void {
            let $fd = fd as usize as c_int;
            // SAFETY: no memory involved; the thread ends in the call.
            unsafe {
                NUMBER.store(libc::gettid(), std::sync::atomic::Ordering::SeqCst);
                $call;
            }
            fd
        }
        start as extern "C-unwind" fn(*mut c_void) -> *mut c_void
    }};
}

fn cancelled() {
    use std::sync::atomic::Ordering::SeqCst;
    if !cfg!(target_arch = "x86_64") {
        return; // polls of plain threads are mungo's own elsewhere
    }
    let (near, _far) = UnixStream::pair().unwrap();
    let all = [
        waits!(fd, unwinding::recv(fd, [0_u8; 8].as_mut_ptr().cast(), 8, 0)),
        waits!(fd, unwinding::read(fd, [0_u8; 8].as_mut_ptr().cast(), 8)),
        waits!(fd, unwinding::poll(&mut libc::pollfd { fd, events: libc::POLLIN, revents: 0 }, 1, -1)),
    ];
    for start in all {
        NUMBER.store(0, SeqCst);
        // SAFETY: a thread of our own, which is joined; the function has C's type.
        unsafe {
            let mut thread = 0;
            let argument = near.as_raw_fd() as usize as *mut c_void;
            let start: extern "C" fn(*mut c_void) -> *mut c_void = std::mem::transmute(start);
            assert_eq!(libc::pthread_create(&mut thread, null(), start, argument), 0);
            wait_until("it sleeps", || {
                let number = NUMBER.load(SeqCst);
                let stat =
                    std::fs::read_to_string(format!("/proc/self/task/{number}/stat")).unwrap_or_default();
                stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"))
            });
            assert_eq!(pthread_cancel(thread), 0);
            let mut value = null_mut();
            assert_eq!(libc::pthread_join(thread, &mut value), 0);
            assert_eq!(value as isize, -1, "PTHREAD_CANCELED");
        }
    }
}

/// Opens a terminal; `None`: there is none here. Its modes are set by `change`.
fn terminal(change: impl FnOnce(&mut libc::termios)) -> Option<(std::fs::File, std::fs::File)> {
    let (mut master, mut slave) = (0, 0);
    // SAFETY: room for both numbers and the modes; both descriptors are new.
    unsafe {
        if libc::openpty(&mut master, &mut slave, null_mut(), null(), null()) != 0 {
            eprintln!("skipped: no terminal can be opened here");
            return None;
        }
        let mut modes: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(slave, &mut modes), 0);
        change(&mut modes);
        assert_eq!(libc::tcsetattr(slave, libc::TCSANOW, &modes), 0);
        let file = |fd| std::fs::File::from(OwnedFd::from_raw_fd(fd));
        Some((file(master), file(slave)))
    }
}

#[test]
fn a_terminal_that_does_not_wait_does_not() {
    child::run("terminals").assert_success();
}

fn terminals() {
    runtime(2).run(|| {
        let raw = |least: u8, tenths: u8| {
            move |modes: &mut libc::termios| {
                modes.c_lflag &= !libc::ICANON;
                (modes.c_cc[libc::VMIN], modes.c_cc[libc::VTIME]) = (least, tenths);
            }
        };
        for tenths in [0, 1] {
            let Some((mut master, mut slave)) = terminal(raw(0, tenths)) else { return };
            assert_eq!(slave.read(&mut [0; 8]).unwrap(), 0, "nothing came");
            master.write_all(b"ab").unwrap();
            let mut got = [0; 8];
            wait_until("it has come", || slave.read(&mut got).unwrap() == 2);
            assert_eq!(got[..2], *b"ab");
        }
        // One byte is waited for, without a thread.
        let Some((mut master, mut slave)) = terminal(raw(1, 0)) else { return };
        let waiter = go_named("one byte", move || slave.read(&mut [0; 8]).map(|n| (n, slave)).unwrap().0);
        wait_until_parked("one byte");
        master.write_all(b"a").unwrap();
        assert_eq!(waiter.join().unwrap(), 1);
    });
}

#[test]
fn a_reader_in_the_background_is_told() {
    child::run("in_the_background").assert_success();
}

/// SIGTTIN is ignored, so that a read of the terminal is EIO.
fn in_the_background() {
    use std::os::unix::process::CommandExt;
    let Some((_master, mut slave)) = terminal(|_| ()) else { return };
    // SAFETY: a session of this process's own.
    unsafe {
        libc::signal(libc::SIGTTIN, libc::SIG_IGN);
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN); // at the end, when the terminal is closed
        assert!(libc::setsid() > 0, "{:?}", error());
        assert_eq!(libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0), 0, "{:?}", error());
    }
    let mut other = std::process::Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
    // SAFETY: the group exists as long as the child does.
    let made = unsafe { libc::tcsetpgrp(slave.as_raw_fd(), other.id() as libc::pid_t) };
    let result = runtime(1).run(|| slave.read(&mut [0; 8]).map_err(|e| e.raw_os_error()));
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!((made, result), (0, Err(Some(libc::EIO))));
}

#[test]
fn stops_of_a_traced_child_are_seen() {
    if child::is_emulated("the emulator has no ptrace") {
        return;
    }
    child::run("traced").assert_success();
}

/// A child asks to be traced after its parent began to wait, and stops.
fn traced() {
    runtime(2).run(|| {
        for by_waitid in [false, true] {
            let (reader, mut writer) = std::io::pipe().unwrap();
            // SAFETY: the child does what a child may.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: a byte of the child's, which ends here or is killed.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::read(reader.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1);
                    if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                        libc::_exit(42);
                    }
                    libc::raise(libc::SIGSTOP);
                    libc::_exit(7);
                }
            }
            let waiter = go_named("tracer", move || {
                let mut status = 0;
                // SAFETY: room for the answers.
                unsafe {
                    if by_waitid {
                        let mut info: libc::siginfo_t = std::mem::zeroed();
                        let result = libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, libc::WEXITED);
                        let stopped = info.si_code == libc::CLD_TRAPPED || info.si_code == libc::CLD_STOPPED;
                        return (result == 0, stopped, info.si_status());
                    }
                    let got = libc::waitpid(pid, &mut status, 0);
                    (got == pid, libc::WIFSTOPPED(status), libc::WSTOPSIG(status))
                }
            });
            wait_until_parked("tracer");
            writer.write_all(&[1]).unwrap();
            let (waited, stopped, signal) = waiter.join().unwrap();
            if !stopped && signal == 42 {
                eprintln!("skipped: no process may be traced here");
                return;
            }
            assert_eq!((waited, stopped, signal), (true, true, libc::SIGSTOP));
            let mut status = 0;
            // SAFETY: the child is ours; room for the status.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            }
            assert_eq!((libc::WIFSIGNALED(status), libc::WTERMSIG(status)), (true, libc::SIGKILL));
        }
    });
}

#[test]
fn a_short_read_is_not_made_longer() {
    child::run("short_reads").assert_success();
}

/// A file of the kernel's that gives what it has, and cannot be tried: a second read might wait for more.
fn short_reads() {
    runtime(1).run(|| {
        let mut file = std::fs::File::open("/proc/self/status").unwrap();
        let before = counted("read").2;
        assert!(file.read(&mut vec![0; 1 << 16]).unwrap() > 0);
        assert_eq!(counted("read").2, before, "no second read");
    });
}

#[test]
fn a_datagram_to_a_full_socket_waits_for_it() {
    child::run("full_datagrams").assert_success();
}

fn full_datagrams() {
    let file = common::TempFile::new("full_datagrams");
    runtime(2).run(|| {
        for by_message in [false, true] {
            _ = std::fs::remove_file(&file.0);
            let receiver = UnixDatagram::bind(&file.0).unwrap();
            let sender = UnixDatagram::unbound().unwrap();
            sender.set_nonblocking(true).unwrap();
            let mut sent = 0_u32;
            while sender.send_to(&sent.to_ne_bytes(), &file.0).is_ok() {
                sent += 1;
            }
            sender.set_nonblocking(false).unwrap();
            let (to, before) = (file.0.clone(), counted("sendto").2 + counted("sendmsg").2);
            let waiting = mungo::go(move || {
                for i in 0..3 {
                    let bytes = (sent + i).to_ne_bytes();
                    match by_message {
                        false => assert_eq!(sender.send_to(&bytes, &to).unwrap(), 4),
                        true => send_message(&sender, &bytes, &to),
                    }
                }
            });
            wait_until("it waits in the kernel", || counted("sendto").2 + counted("sendmsg").2 > before);
            for i in 0..sent + 3 {
                let mut bytes = [0; 4];
                receiver.recv(&mut bytes).unwrap();
                assert_eq!(u32::from_ne_bytes(bytes), i);
            }
            waiting.join().unwrap();
        }
    });
}

/// Sends by `sendmsg`, to a path.
fn send_message(sender: &UnixDatagram, bytes: &[u8], to: &std::path::Path) {
    // SAFETY: plain numbers; the structures outlive the call.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let path = to.as_os_str().as_encoded_bytes();
        path.iter().zip(&mut address.sun_path).for_each(|(from, to)| *to = *from as libc::c_char);
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = size_of_val(&address) as libc::socklen_t;
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        assert_eq!(libc::sendmsg(sender.as_raw_fd(), &message, 0), bytes.len() as isize);
    }
}

#[test]
fn an_error_after_half_a_write_is_kept() {
    child::run("half_a_write").assert_success();
}

/// The other side resets the connection while a write waits for room: the write says how much it wrote, the next call
/// what happened.
fn half_a_write() {
    const SIZE: usize = 32 << 20;
    runtime(2).run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let writer = go_named("half a write", move || {
            let data = vec![1_u8; SIZE];
            // SAFETY: the bytes outlive the calls.
            let send =
                || unsafe { libc::send(near.as_raw_fd(), data.as_ptr().cast(), SIZE, libc::MSG_NOSIGNAL) };
            (send(), send(), error())
        });
        wait_until_parked("half a write");
        drop(far); // with what it did not read: a reset
        let (first, second, error) = writer.join().unwrap();
        assert!(first > 0 && (first as usize) < SIZE, "{first}");
        assert_eq!((second, error), (-1, Some(libc::ECONNRESET)));
    });
}

#[test]
fn a_thread_has_its_creators_signal_mask() {
    child::run("inherited_masks").assert_success();
}

/// The runtime has begun before the signal is blocked, so that its threads do not block it.
fn inherited_masks() {
    mungo_interpose::threads(true);
    let on_goroutine = std::thread::spawn(mungo::is_goroutine).join().unwrap();
    assert_eq!(on_goroutine, mungo_interpose::is_active());
    // SAFETY: sets and a thread of our own.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGTERM);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut()), 0);
        let took = std::thread::spawn(move || {
            assert_eq!(libc::pthread_kill(libc::pthread_self(), libc::SIGTERM), 0);
            let mut signal = 0;
            assert_eq!(libc::sigwait(&set, &mut signal), 0);
            (signal, mungo::is_goroutine())
        });
        assert_eq!(took.join().unwrap(), (libc::SIGTERM, on_goroutine));
        assert_eq!(libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, null_mut()), 0);
        // A mask that the attributes have.
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert_eq!(pthread_attr_setsigmask_np(&mut attributes, &set), 0);
        extern "C" fn is_blocked(_: *mut c_void) -> *mut c_void {
            // SAFETY: a set of our own.
            unsafe {
                let mut now: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, null(), &mut now);
                libc::sigismember(&now, libc::SIGTERM) as usize as *mut c_void
            }
        }
        let (mut thread, mut value) = (0, null_mut());
        assert_eq!(libc::pthread_create(&mut thread, &attributes, is_blocked, null_mut()), 0);
        assert_eq!(libc::pthread_join(thread, &mut value), 0);
        assert_eq!(value as usize, 1);
        libc::pthread_attr_destroy(&mut attributes);
    }
    let blocked = std::thread::spawn(|| {
        // SAFETY: a set of our own.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, null(), &mut now);
            libc::sigismember(&now, libc::SIGTERM)
        }
    });
    assert_eq!(blocked.join().unwrap(), 0, "others do not have it");
}

unsafe extern "C" {
    fn pthread_attr_setsigmask_np(attributes: *mut libc::pthread_attr_t, set: *const libc::sigset_t) -> c_int;
}

#[test]
fn small_things_are_as_on_threads() {
    child::run("small_differences").assert_success();
}

fn small_differences() {
    runtime(2).run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap().0;
        // Urgent data does not block.
        // SAFETY: a byte of our own.
        let got = unsafe { libc::recv(near.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1, libc::MSG_OOB) };
        assert!(got == -1 && matches!(error(), Some(libc::EAGAIN | libc::EINVAL)));
        // A poll of a descriptor that is closed meanwhile.
        let (near, _far) = UnixStream::pair().unwrap();
        let fd = near.as_raw_fd();
        let waiter = go_named("polls", move || {
            let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: it outlives the call.
            (unsafe { libc::poll(&mut asked, 1, -1) }, asked.revents)
        });
        wait_until_parked("polls");
        drop(near);
        assert_eq!(waiter.join().unwrap(), (1, libc::POLLNVAL));
        // A clock that the operation does not take.
        let word = 1_u32;
        for op in [libc::FUTEX_WAIT, libc::FUTEX_WAKE] {
            let op = op | libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
            // SAFETY: a word of our own, which is another than the one that is waited for.
            let result = unsafe { libc::syscall(libc::SYS_futex, &raw const word, op, 2, 0, 0, 0) };
            assert_eq!((result, error()), (-1, Some(libc::ENOSYS)));
        }
        // Goroutines that connect one socket at a time leave its time-out as it was.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        mungo::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..300).for_each(|_| socket.connect(to).unwrap()));
            }
        });
        assert_eq!(socket.write_timeout().unwrap(), None);
        // An epoll instance, by a time in ns.
        // SAFETY: descriptors and events of our own.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(0));
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
            let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let result = epoll_pwait2(epoll.as_raw_fd(), events.as_mut_ptr(), 2, &time, null());
            assert!(result == 0 || error() == Some(libc::ENOSYS), "before Linux 5.11");
        }
    });
}

unsafe extern "C" {
    fn epoll_pwait2(
        epoll: c_int,
        events: *mut libc::epoll_event,
        n: c_int,
        time: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> c_int;
}

#[test]
fn many_messages_and_files_are_sent_by_one_call() {
    child::run("many_messages").assert_success();
}

/// More messages than there is room for, by one call each, and a file that is larger than a socket's buffer.
fn many_messages() {
    const MESSAGES: usize = 500;
    const SIZE: usize = 4 << 20;
    runtime(2).run(|| {
        let (near, far) = UnixDatagram::pair().unwrap();
        let sender = mungo::go(move || {
            // SAFETY: as many messages as it says.
            by_many(MESSAGES, |all, n| unsafe { libc::sendmmsg(near.as_raw_fd(), all, n, 0) })
        });
        let receiver = go_named("many messages", move || {
            // SAFETY: as above.
            by_many(MESSAGES, |all, n| unsafe { libc::recvmmsg(far.as_raw_fd(), all, n, 0, null_mut()) })
        });
        let (sent, received) = (sender.join().unwrap(), receiver.join().unwrap());
        assert_eq!((sent, received), (MESSAGES as c_int, MESSAGES as c_int));
        // SAFETY: a new file without a name.
        let mut file =
            unsafe { std::fs::File::from(OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), 0))) };
        let data: Vec<u8> = (0..SIZE).map(|i| (i / 7) as u8).collect();
        file.write_all(&data).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let sender = go_named("sends a file", move || {
            let mut at = 0;
            // SAFETY: the place outlives the call.
            let sent = unsafe { libc::sendfile(near.as_raw_fd(), file.as_raw_fd(), &mut at, 2 * SIZE) };
            (sent, at)
        });
        wait_until_parked("sends a file");
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert_eq!(sender.join().unwrap(), (SIZE as isize, SIZE as i64), "to its end");
        assert!(got == data);
    });
}

/// Calls `call` with room for so many messages of four bytes.
fn by_many(n: usize, call: impl Fn(*mut libc::mmsghdr, libc::c_uint) -> c_int) -> c_int {
    let mut bytes = vec![[0_u8; 4]; n];
    let mut parts: Vec<_> =
        bytes.iter_mut().map(|four| libc::iovec { iov_base: four.as_mut_ptr().cast(), iov_len: 4 }).collect();
    let mut all: Vec<_> = parts
        .iter_mut()
        .map(|part| {
            // SAFETY: plain numbers.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
            message
        })
        .collect();
    call(all.as_mut_ptr(), n as libc::c_uint)
}

#[test]
fn waits_that_need_a_descriptor_do_without() {
    if child::is_emulated("the emulator needs descriptors of its own") {
        return;
    }
    child::run("no_descriptors").assert_success();
}

/// No descriptor can be made: `poll` for several, and `waitpid`, are the kernel's.
fn no_descriptors() {
    runtime(2).run(|| {
        let pairs = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
        let cat = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut child = std::mem::ManuallyDrop::new(cat);
        let (stdin, pid) = (child.stdin.take(), child.id() as libc::pid_t);
        // All that the limit allows are taken.
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: the limit outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        let taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        assert_eq!(error(), Some(libc::EMFILE));
        let before = (counted("poll").2, counted("waitpid").2);
        let mut asked = [&pairs[0].0, &pairs[1].0].map(|s| libc::pollfd {
            fd: s.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let poller = mungo::go(move || {
            // SAFETY: they outlive the call.
            (unsafe { libc::poll(asked.as_mut_ptr(), 2, -1) }, asked[1].revents)
        });
        let waiter = mungo::go(move || {
            let mut status = 0;
            // SAFETY: room for the status.
            (unsafe { libc::waitpid(pid, &mut status, 0) }, status)
        });
        wait_until("both fell back", || {
            (counted("poll").2, counted("waitpid").2) == (before.0 + 1, before.1 + 1)
        });
        (&pairs[1].1).write_all(&[1]).unwrap();
        assert_eq!(poller.join().unwrap(), (1, libc::POLLIN));
        drop(stdin);
        assert_eq!(waiter.join().unwrap(), (pid, 0));
        drop(taken);
    });
}

#[test]
fn a_filter_that_refuses_tries_is_survived() {
    if child::is_emulated("the emulator has no filters of system calls") {
        return;
    }
    child::run("no_preadv2").assert_success();
}

/// A filter refuses `preadv2` and `pwritev2`, as some containers do.
fn no_preadv2() {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let is_call =
        |number: libc::c_long, jt| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, 0, number as u32);
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        is_call(libc::SYS_preadv2, 2),
        is_call(libc::SYS_pwritev2, 1),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a program of our own, for this thread and those that it starts.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0 {
            eprintln!("skipped: no filter can be installed here");
            return;
        }
    }
    const SIZE: usize = 1 << 20;
    runtime(2).run(|| {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let waiter = go_named("filtered", move || {
            let mut got = Vec::new();
            reader.read_to_end(&mut got).map(|n| (n, got.iter().all(|byte| *byte == 3))).unwrap()
        });
        wait_until_parked("filtered");
        writer.write_all(&vec![3; SIZE]).unwrap();
        drop(writer);
        assert_eq!(waiter.join().unwrap(), (SIZE, true));
        assert!(std::fs::read_to_string("Cargo.toml").unwrap().contains("mungo"));
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"ab").unwrap();
        let mut two = [0; 2];
        // SAFETY: room for both.
        assert_eq!(unsafe { libc::read(near.as_raw_fd(), two.as_mut_ptr().cast(), 2) }, 2);
    });
}
