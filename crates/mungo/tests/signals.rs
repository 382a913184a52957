//! Signals: the program's own handler for SIGURG gets all that are not ours, and a flood of them does no harm.

mod common;

use common::{Deadline, runtime, wait_until};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    SEEN.fetch_add(1, Relaxed);
}

/// One test, because the handler must be there before the first runtime of the process.
#[test]
fn sigurg_from_outside() {
    // SAFETY: a handler that touches one atomic.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()), 0);
    }
    let rt = runtime(2);
    chained_on_plain_threads();
    chained_on_workers(&rt);
    our_own_are_not_passed_on();
    flood(&rt);
    common::end(rt);
}

fn send(to: libc::pid_t) {
    // SAFETY: a signal to a thread of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), to, libc::SIGURG) };
}

fn chained_on_plain_threads() {
    let before = SEEN.load(Relaxed);
    // SAFETY: asks for this thread's id.
    send(unsafe { libc::gettid() });
    wait_until("the program's handler ran", || SEEN.load(Relaxed) > before);
}

fn chained_on_workers(rt: &mungo::Runtime) {
    let before = SEEN.load(Relaxed);
    let seen = rt.run(move || {
        send(common::gettid()); // it comes before the call returns
        SEEN.load(Relaxed)
    });
    assert_eq!(seen, before + 1, "by `tgkill` of the program itself");
    rt.run(move || {
        let _open = urgent_data_for_this_thread();
        let end = Deadline::after(common::PATIENCE);
        while SEEN.load(Relaxed) == before + 1 && !end.passed() {}
    });
    assert_eq!(SEEN.load(Relaxed), before + 2, "by the kernel");
}

/// What the signal is for: an urgent byte comes to a socket whose owner is this thread.
fn urgent_data_for_this_thread() -> impl Drop {
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        id: libc::pid_t,
    }
    const F_SETOWN_EX: libc::c_int = 15;
    const F_OWNER_TID: libc::c_int = 0;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    let owner = Owner { kind: F_OWNER_TID, id: common::gettid() };
    // SAFETY: descriptors of this function, and memory that outlives the calls.
    unsafe {
        assert_eq!(libc::fcntl(server.as_raw_fd(), F_SETOWN_EX, &owner), 0);
        assert_eq!(libc::send(client.as_raw_fd(), c"!".as_ptr().cast(), 1, libc::MSG_OOB), 1);
    }
    OwnedFd::from(server)
}

fn our_own_are_not_passed_on() {
    let rt = common::hasty_runtime(1);
    let before = SEEN.load(Relaxed);
    let stop = Arc::new(AtomicBool::new(false));
    let all: Vec<_> = (0..3)
        .map(|_| {
            let stop = stop.clone();
            rt.spawn(move || while !stop.load(Relaxed) {})
        })
        .collect();
    wait_until("some were interrupted", || common::preemptions(&rt) > 50);
    stop.store(true, Relaxed);
    all.into_iter().for_each(|g| g.join().unwrap());
    common::end(rt);
    assert_eq!(SEEN.load(Relaxed), before);
}

/// Every thread of the process gets signals all the time, while goroutines compute, sleep and block.
fn flood(rt: &mungo::Runtime) {
    let stop = Arc::new(AtomicBool::new(false));
    let sender = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                    send(task.file_name().to_string_lossy().parse().unwrap());
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        })
    };
    let results: Vec<u64> = rt.run(|| {
        let one = |i: u64| {
            mungo::go(move || {
                let end = Deadline::after(Duration::from_millis(400));
                let mut rounds = 0;
                while !end.passed() {
                    match i % 4 {
                        0 => assert_eq!((0..10_000u64).sum::<u64>(), 49_995_000),
                        1 => mungo::sleep(Duration::from_micros(100)),
                        2 => std::thread::sleep(Duration::from_millis(1)),
                        _ => assert_eq!(mungo::go(move || i).join().unwrap(), i),
                    }
                    rounds += 1;
                }
                rounds
            })
        };
        let all: Vec<_> = (0..12).map(one).collect();
        all.into_iter().map(|g| g.join().unwrap()).collect()
    });
    stop.store(true, Relaxed);
    sender.join().unwrap();
    assert!(results.iter().all(|&rounds| rounds > 0), "{results:?}");
}
