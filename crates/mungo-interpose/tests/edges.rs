//! Where a shim must do nothing but the system call: forked children, signal handlers, the runtime itself. Each case is
//! a process of its own.

#[macro_use]
#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{child, runtime};
use mungo_interpose::counts;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

children!(
    forked,
    vforked,
    handler_on_own_stack,
    handler_on_alternate_stack,
    handler_by_signal,
    switched_off,
    at_the_end,
    masked,
    inherited
);

#[test]
fn a_forked_child_has_plain_calls() {
    child::run("forked").assert_success();
}

/// The child of a goroutine sleeps, locks, reads and closes, and does not disturb its parent.
fn forked() {
    runtime(2).run(|| {
        let (mut near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        far.write_all(&[1]).unwrap();
        let mut reader = near.try_clone().unwrap();
        // It is known to the poller.
        let waiter = common::go_named("parent", move || {
            reader.read_exact(&mut [0; 2]).unwrap();
            reader
        });
        common::wait_until_parked("parent");
        // SAFETY: the child does what a child may, and std's calls that take no lock of another thread.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            std::thread::sleep(Duration::from_millis(2));
            let lock = Mutex::new(1);
            let pair = (Mutex::new(()), Condvar::new());
            _ = pair.1.wait_timeout(pair.0.lock().unwrap(), Duration::from_millis(1));
            near.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let empty = near.read(&mut [0]).is_err();
            // SAFETY: the child uses none of them any more.
            (0..1000).for_each(|fd| _ = unsafe { libc::close(fd) });
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!empty) + *lock.lock().unwrap()) };
        }
        let mut status = 0;
        // SAFETY: room for the status.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(libc::WEXITSTATUS(status), 1);
        far.write_all(&[2]).unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn a_child_that_shares_memory_closes_its_own_descriptors() {
    child::run("vforked").assert_success();
}

fn vforked() {
    runtime(2).run(|| {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = near.as_raw_fd();
        let waiter = common::go_named("parent", move || (&near).read_exact(&mut [0]).map(|()| near));
        common::wait_until_parked("parent");
        // SAFETY: a child that shares our memory until it ends, on a stack of its own, and only closes a descriptor.
        unsafe {
            extern "C" fn in_child(fd: *mut std::ffi::c_void) -> i32 {
                // SAFETY: a descriptor of the child's.
                unsafe { libc::close(fd as usize as i32) }
            }
            let mut stack = vec![0_u128; 4096];
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let top = stack.as_mut_ptr().add(4000).cast();
            let pid = libc::clone(in_child, top, flags, fd as usize as *mut _);
            assert!(pid > 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            assert_eq!(status, 0);
        }
        far.write_all(&[1]).unwrap();
        waiter.join().unwrap().expect("it was not the parent's that was closed");
    });
}

static STARTED: AtomicU32 = AtomicU32::new(0);
static FINISHED: AtomicU32 = AtomicU32::new(0);
static READ_FROM: AtomicI32 = AtomicI32::new(-1);
static WORD: AtomicU32 = AtomicU32::new(0);

/// Does all that waits, in a signal handler: it must block the thread, not leave it.
extern "C" fn handler(_: i32) {
    // SAFETY: this thread's, kept for what was interrupted.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel's number of this thread.
    let thread = unsafe { libc::gettid() };
    let nap = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
    let mut byte = 0_u8;
    // SAFETY: words and bytes of our own.
    unsafe {
        libc::nanosleep(&nap, std::ptr::null_mut());
        libc::sched_yield();
        libc::syscall(
            libc::SYS_futex,
            &raw const WORD,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
            0,
            0,
            0,
        );
        STARTED.fetch_add(1, SeqCst);
        libc::read(READ_FROM.load(SeqCst), (&raw mut byte).cast(), 1);
        assert_eq!(libc::gettid(), thread);
        *libc::__errno_location() = errno;
    }
    FINISHED.fetch_add(1, SeqCst);
}

/// Ends the process, in which goroutines would go on for ever, and says what is known of the thread that was signalled.
fn give_up(runtime: &mungo::Runtime, n: u32, thread: i32) -> ! {
    eprintln!(
        "signal {n}: no handler on thread {thread}, or it does not come to its end; {} began, {} ended",
        STARTED.load(SeqCst),
        FINISHED.load(SeqCst)
    );
    for file in ["status", "syscall", "stat"] {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).unwrap_or_default();
        eprintln!("--- {file}\n{text}");
    }
    eprintln!("{:#?}\n{}", runtime.metrics().interruptions, mungo::debug::dump());
    std::process::abort();
}

/// Installs the handler by `sigaction`.
fn by_sigaction(flags: i32) {
    // SAFETY: a handler of the usual kind.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags | libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
}

/// Interrupts threads that run goroutines. A plain thread sends the signals, and what the handlers wait for: nothing
/// that it does needs the runtime, which they may have interrupted.
fn signalled(install: impl FnOnce()) {
    const SIGNALS: u32 = 100;
    let (reader, mut writer) = std::io::pipe().unwrap();
    READ_FROM.store(reader.as_raw_fd(), SeqCst);
    install();
    let (over, victim) = (AtomicBool::new(false), AtomicI32::new(0));
    // Allocates nothing: the interrupted code may be in malloc.
    // SAFETY: the handler is installed; a thread that has ended, and no thread at all, are refused.
    let send =
        |thread: i32, signal: i32| unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
    let runtime = runtime(2);
    // Returns `false` if the thread has ended, and the signal with it.
    let wait_for = |count: &AtomicU32, n: u32, thread: i32| {
        let start = std::time::Instant::now();
        while count.load(SeqCst) < n {
            if send(thread, 0) != 0 {
                return count.load(SeqCst) >= n;
            }
            let is_late = start.elapsed() > common::PATIENCE;
            // This thread may have had no CPU either: the count is looked at once more.
            if is_late && count.load(SeqCst) < n {
                give_up(&runtime, n, thread);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut sent = 0;
            while sent < SIGNALS {
                let thread = victim.swap(0, SeqCst);
                if send(thread, libc::SIGUSR1) == 0 && wait_for(&STARTED, sent + 1, thread) {
                    sent += 1;
                    writer.write_all(&[1]).unwrap();
                    wait_for(&FINISHED, sent, thread);
                }
            }
            over.store(true, SeqCst);
        });
        runtime.run(|| {
            mungo::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        let lock = Mutex::new(0_u64);
                        while !over.load(SeqCst) {
                            // SAFETY: no memory involved.
                            victim.store(unsafe { libc::gettid() }, SeqCst);
                            (0..2000).for_each(|_| *lock.lock().unwrap() += 1);
                            std::thread::yield_now();
                            std::thread::sleep(Duration::from_micros(20));
                        }
                    });
                }
            });
        });
    });
}

#[test]
fn a_handler_on_the_goroutines_stack_keeps_its_thread() {
    child::run("handler_on_own_stack").assert_success();
}

fn handler_on_own_stack() {
    signalled(|| by_sigaction(0));
}

#[test]
fn a_handler_on_the_alternate_stack_keeps_its_thread() {
    child::run("handler_on_alternate_stack").assert_success();
}

fn handler_on_alternate_stack() {
    signalled(|| by_sigaction(libc::SA_ONSTACK));
}

#[test]
fn a_handler_that_signal_installed_keeps_its_thread() {
    child::run("handler_by_signal").assert_success();
}

fn handler_by_signal() {
    // SAFETY: a handler of the usual kind.
    signalled(|| _ = unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) });
}

#[test]
fn it_can_be_switched_off() {
    let mut command = child::command("switched_off");
    command.env("MUNGO_DEBUG", "interpose=0");
    child::finish(command).assert_success();
}

fn switched_off() {
    runtime(2).run(|| {
        std::thread::sleep(Duration::from_millis(1));
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let other = pair.clone();
        let waiter = mungo::go(move || drop(other.1.wait_while(other.0.lock().unwrap(), |go| !*go).unwrap()));
        *pair.0.lock().unwrap() = true;
        pair.1.notify_all();
        waiter.join().unwrap();
    });
    assert!(counts().all(|c| c.passed + c.parked + c.fell_back == 0));
}

#[test]
fn thread_locals_may_block_when_they_end() {
    child::run("at_the_end").assert_success();
}

/// Destructors of thread-locals wait, on goroutines and threads, and the runtime ends behind them.
fn at_the_end() {
    struct Slow(Arc<Mutex<u32>>);
    impl Drop for Slow {
        fn drop(&mut self) {
            let mut count = self.0.lock().unwrap();
            std::thread::sleep(Duration::from_millis(1));
            *count += 1;
        }
    }
    thread_local!(static SLOW: std::cell::RefCell<Option<Slow>> = const { std::cell::RefCell::new(None) });
    let count = Arc::new(Mutex::new(0));
    let leave = |count: Arc<Mutex<u32>>| move || SLOW.with(|slow| *slow.borrow_mut() = Some(Slow(count)));
    let own = runtime(2);
    own.run(|| {
        let all: Vec<_> = (0..20).map(|_| mungo::go(leave(count.clone()))).collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    });
    std::thread::spawn(leave(count.clone())).join().unwrap();
    own.shutdown(common::PATIENCE).unwrap();
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(*count.lock().unwrap(), 21);
}

/// The modes of descriptors belong to all processes that share them: they stay as they were, however this one ends.
#[test]
fn inherited_descriptors_keep_their_modes() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    // SAFETY: asks only.
    let flags = |fd: i32| unsafe { libc::fcntl(fd, libc::F_GETFL) };
    for is_killed in [false, true] {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (near_copy, writer_copy) = (near.try_clone().unwrap(), writer.try_clone().unwrap());
        let before = [flags(near_copy.as_raw_fd()), flags(writer_copy.as_raw_fd())];
        let mut command = child::command("inherited");
        command.stdin(OwnedFd::from(near)).stdout(OwnedFd::from(writer));
        let mut child = command.spawn().unwrap();
        drop(command);
        // It has written, and waits for its input.
        reader.read_exact(&mut [0; 4]).unwrap();
        (&far).write_all(&[1]).unwrap();
        reader.read_exact(&mut [0; 4]).unwrap();
        match is_killed {
            true => child.kill().unwrap(),
            false => (&far).write_all(&[2]).unwrap(),
        }
        assert_eq!(child.wait().unwrap().success(), !is_killed);
        assert_eq!([flags(near_copy.as_raw_fd()), flags(writer_copy.as_raw_fd())], before);
        assert!(before.iter().all(|flags| flags & libc::O_NONBLOCK == 0));
    }
}

/// Reads and writes on goroutines, by way of the poller.
fn inherited() {
    runtime(2).run(|| {
        let reader = mungo::go(|| {
            for _ in 0..2 {
                let mut byte = 0_u8;
                // SAFETY: room for the byte, and four of our own.
                unsafe {
                    assert_eq!(libc::write(1, b"four".as_ptr().cast(), 4), 4);
                    assert_eq!(libc::read(0, (&raw mut byte).cast(), 1), 1);
                }
            }
        });
        reader.join().unwrap();
    });
}

#[test]
fn a_signal_mask_stays_with_its_goroutine() {
    child::run("masked").assert_success();
}

/// Blocks or unblocks a signal for the calling thread. Returns whether it was blocked.
fn mask(how: i32) -> bool {
    // SAFETY: sets of signals of our own.
    unsafe {
        let (mut set, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGUSR1);
        assert_eq!(libc::pthread_sigmask(how, &set, &mut old), 0);
        libc::sigismember(&old, libc::SIGUSR1) == 1
    }
}

unsafe extern "C" {
    fn sighold(signal: libc::c_int) -> libc::c_int;
    fn sigrelse(signal: libc::c_int) -> libc::c_int;
    fn sigblock(bits: libc::c_int) -> libc::c_int;
    fn sigsetmask(bits: libc::c_int) -> libc::c_int;
}

/// Goroutines that leave a signal blocked, for a while or for good: others do not have it, and park as usual.
fn masked() {
    let own = runtime(1);
    own.run(|| {
        for _ in 0..20 {
            mungo::go(|| assert!(!mask(libc::SIG_BLOCK))).join().unwrap();
        }
        let before = counts().find(|c| c.function == "clock_nanosleep").unwrap().fell_back;
        let keeper = mungo::go(|| {
            // SAFETY: no memory involved.
            assert_eq!(unsafe { (sighold(libc::SIGUSR1), sighold(0), sighold(65)) }, (0, -1, -1));
            for _ in 0..20 {
                mungo::sleep(Duration::from_millis(1));
                std::thread::sleep(Duration::from_micros(100));
                assert!(mask(libc::SIG_BLOCK), "it stays");
            }
            assert!(mask(libc::SIG_UNBLOCK));
            std::thread::sleep(Duration::from_millis(1));
            assert!(!mask(libc::SIG_BLOCK), "it is gone");
            let bit = 1 << (libc::SIGUSR1 - 1);
            // SAFETY: no memory involved.
            unsafe {
                assert_eq!(sigrelse(libc::SIGUSR1), 0);
                assert_eq!(sigblock(bit) & bit, 0);
                assert_eq!(sigsetmask(0) & bit, bit);
            }
            assert!(!mask(libc::SIG_UNBLOCK));
        });
        mungo::scope(|s| {
            for _ in 0..200 {
                s.spawn(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    assert!(!mask(libc::SIG_UNBLOCK), "another's mask");
                });
            }
        });
        keeper.join().unwrap();
        let after = counts().find(|c| c.function == "clock_nanosleep").unwrap().fell_back;
        assert_eq!(after - before, 20, "those of the one with a mask");
    });
}
