//! No descriptor is free, there is no `/proc`, or a system call is forbidden: goroutines that block are found all the
//! same. Each case is a process of its own.

#[macro_use]
mod common;

use common::{child, runtime};
use mungo::Runtime;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Duration;

children!(
    no_descriptors,
    no_descriptors_by_name,
    no_descriptors_for_sockets,
    no_proc,
    no_membarrier,
    no_membarrier_any_more
);

/// Uses up all descriptors that the process may have.
fn use_up_descriptors() -> Vec<OwnedFd> {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: reads the struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let mut all = Vec::new();
    loop {
        match std::fs::File::open("/dev/null") {
            Ok(file) => all.push(file.into()),
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::EMFILE));
                return all;
            }
        }
    }
}

/// Goroutines that block their threads without a word, in pairs that wait for each other, while Ps come and go.
fn block(rt: &Runtime) {
    for round in 0..10u64 {
        let (tx, rx) = std::sync::mpsc::channel();
        let receiver = rt.spawn(move || rx.recv().unwrap());
        let sleeper = rt.spawn(|| std::thread::sleep(Duration::from_millis(3)));
        let sender = rt.spawn(move || {
            mungo::sleep(Duration::from_millis(1));
            tx.send(round).unwrap();
        });
        rt.set_procs(1 + round as usize % 3).unwrap();
        assert_eq!(receiver.join().unwrap(), round);
        sender.join().unwrap();
        sleeper.join().unwrap();
    }
    // One that computes without a P after it blocked is brought back under one.
    rt.set_procs(1).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = stop.clone();
    let stray = rt.spawn(move || {
        std::thread::sleep(Duration::from_millis(3));
        while !seen.load(std::sync::atomic::Ordering::Relaxed) {}
    });
    for _ in 0..5 {
        rt.spawn(|| mungo::sleep(Duration::from_millis(1))).join().unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    stray.join().unwrap();
}

fn no_descriptors() {
    let rt = runtime(1);
    let _used = use_up_descriptors();
    block(&rt);
    common::end(rt);
    println!("done");
}

/// Also a runtime that starts then.
fn no_descriptors_by_name() {
    mungo::go(|| ()).join().unwrap(); // what is asked of the machine is asked once
    let _used = use_up_descriptors();
    let rt = runtime(2);
    block(&rt);
    assert!(mungo::debug::dump().to_string().contains("goroutine"), "a dump says what it can");
    common::end(rt);
    println!("done");
}

/// What needs a descriptor is an error.
fn no_descriptors_for_sockets() {
    let rt = runtime(1);
    let used = use_up_descriptors();
    let e = rt.run(|| mungo::net::TcpListener::bind("127.0.0.1:0")).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EMFILE), "{e}");
    drop(used);
    rt.run(|| {
        let listener = mungo::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let _first = mungo::net::TcpStream::connect(to).unwrap();
        let _accepted = listener.accept().unwrap();
        // The poller has its own by now; no socket can be made or accepted.
        let _used = use_up_descriptors();
        assert!(mungo::net::TcpStream::connect(to).is_err());
        listener.set_nonblocking(true).unwrap();
        let e = listener.accept().unwrap_err();
        assert!(e.kind() == ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::EMFILE), "{e}");
    });
    block(&rt);
    common::end(rt);
    println!("done");
}

/// Hides `/proc` from this process. `false`: that is not allowed here.
fn hide_proc() -> bool {
    // SAFETY: strings that end with a zero; the process has one thread.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0 && libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) != 0
        {
            return false;
        }
        let none = std::ptr::null();
        libc::mount(c"none".as_ptr(), c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast());
        libc::mount(c"none".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr(), 0, none.cast()) == 0
    }
}

fn no_proc() {
    if !hide_proc() {
        return println!("skipped: this user may not hide /proc");
    }
    assert!(!std::path::Path::new("/proc/self").exists());
    let rt = runtime(1);
    block(&rt);
    _ = mungo::debug::dump();
    common::end(rt);
    println!("done");
}

fn no_membarrier() {
    common::forbid(libc::SYS_membarrier);
    block_and_announce(runtime(1));
}

/// The runtime has counted on it, and then it is gone.
fn no_membarrier_any_more() {
    let rt = runtime(1);
    rt.spawn(|| ()).join().unwrap();
    common::forbid(libc::SYS_membarrier);
    block_and_announce(rt);
    // A channel that many fight for: threads that go to sleep for its lock, and are woken.
    let (tx, rx) = mungo::chan::bounded(1);
    let rt = runtime(2);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (tx, rx) = (tx.clone(), rx.clone());
            rt.spawn(move || {
                (0..20_000).for_each(|i: u32| {
                    tx.send(i).unwrap();
                    rx.recv().unwrap();
                })
            })
        })
        .collect();
    (0..20_000).for_each(|i| {
        tx.send(i).unwrap();
        rx.recv().unwrap();
    });
    tasks.into_iter().for_each(|task| task.join().unwrap());
    common::end(rt);
}

fn block_and_announce(rt: mungo::Runtime) {
    block(&rt);
    // The one that announces itself, too.
    let (tx, rx) = std::sync::mpsc::channel();
    let receiver = rt.spawn(move || mungo::blocking(|| rx.recv().unwrap()));
    let sender = rt.spawn(move || tx.send(7).unwrap());
    assert_eq!(receiver.join().unwrap(), 7);
    sender.join().unwrap();
    common::end(rt);
    println!("done");
}

#[track_caller]
fn assert_done(name: &str) {
    let ended = child::run(name);
    ended.assert_done_or_skipped();
}

#[test]
fn goroutines_that_block_are_found_without_a_descriptor() {
    assert_done("no_descriptors");
}

#[test]
fn a_runtime_starts_without_a_descriptor() {
    assert_done("no_descriptors_by_name");
}

#[test]
fn a_socket_without_a_descriptor_is_an_error() {
    assert_done("no_descriptors_for_sockets");
}

#[test]
fn goroutines_that_block_are_found_without_proc() {
    assert_done("no_proc");
}

#[test]
fn goroutines_that_block_are_found_when_membarrier_is_gone() {
    if child::is_emulated(common::NO_FILTERS) {
        return;
    }
    assert_done("no_membarrier_any_more");
}

#[test]
fn goroutines_that_block_are_found_without_membarrier() {
    if child::is_emulated(common::NO_FILTERS) {
        return;
    }
    assert_done("no_membarrier");
}
