//! Sleeps and polls of the C library answer a goroutine as they answer a thread. On aarch64 they are mungo's own.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use std::ffi::c_int;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// Runs it on a thread, and on a goroutine.
fn on_both(f: fn()) {
    f();
    let runtime = common::runtime(1);
    runtime.run(f);
    common::end(runtime);
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// Runs it, and checks that it took at least 20 ms.
fn takes_20_ms<T>(f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = f();
    assert!(start.elapsed() >= Duration::from_millis(20));
    result
}

const TIME: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const WRONG: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };

fn pipe() -> [c_int; 2] {
    let mut pipe = [0; 2];
    // SAFETY: two descriptors are written.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    pipe
}

fn write(to: c_int) {
    // SAFETY: one byte.
    assert_eq!(unsafe { libc::write(to, [1_u8].as_ptr().cast(), 1) }, 1);
}

fn close(pipe: [c_int; 2]) {
    // SAFETY: descriptors of ours.
    pipe.into_iter().for_each(|file| assert_eq!(unsafe { libc::close(file) }, 0));
}

#[test]
fn sleeps() {
    // SAFETY: times of ours.
    on_both(|| unsafe {
        assert_eq!(takes_20_ms(|| libc::nanosleep(&TIME, null_mut())), 0);
        assert_eq!((libc::nanosleep(&WRONG, null_mut()), errno()), (-1, libc::EINVAL));
        assert_eq!(takes_20_ms(|| libc::usleep(20_000)), 0);
        assert_eq!(libc::sleep(0), 0);
        let clock = |flags, time: &libc::timespec| {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, time, null_mut())
        };
        assert_eq!(takes_20_ms(|| clock(0, &TIME)), 0);
        assert_eq!(clock(0, &WRONG), libc::EINVAL);
        takes_20_ms(|| {
            let mut until: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut until);
            let ns = until.tv_nsec + TIME.tv_nsec;
            until.tv_sec += ns / 1_000_000_000;
            until.tv_nsec = ns % 1_000_000_000;
            assert_eq!(clock(libc::TIMER_ABSTIME, &until), 0);
        });
    });
}

#[test]
fn polls() {
    // SAFETY: structures of ours.
    on_both(|| unsafe {
        let pipe = pipe();
        let mut file = libc::pollfd { fd: pipe[0], events: libc::POLLIN, revents: 0 };
        assert_eq!(takes_20_ms(|| libc::poll(&mut file, 1, 20)), 0);
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        assert_eq!(takes_20_ms(|| libc::ppoll(&mut file, 1, &TIME, &mask)), 0);
        assert_eq!((libc::ppoll(&mut file, 1, &WRONG, &mask), errno()), (-1, libc::EINVAL));
        write(pipe[1]);
        assert_eq!((libc::poll(&mut file, 1, -1), file.revents), (1, libc::POLLIN));
        file.revents = 0;
        assert_eq!((libc::ppoll(&mut file, 1, std::ptr::null(), &mask), file.revents), (1, libc::POLLIN));
        close(pipe);
    });
}

#[test]
fn selects() {
    // SAFETY: structures of ours.
    on_both(|| unsafe {
        let pipe = pipe();
        let mut set: libc::fd_set = std::mem::zeroed();
        let mut select = |mut time: libc::timeval| {
            libc::FD_ZERO(&mut set);
            libc::FD_SET(pipe[0], &mut set);
            let n = libc::select(pipe[0] + 1, &mut set, null_mut(), null_mut(), &mut time);
            (n, time)
        };
        let ms = |ms: libc::suseconds_t| libc::timeval { tv_sec: 0, tv_usec: ms * 1000 };
        let (n, left) = takes_20_ms(|| select(ms(20)));
        assert_eq!((n, left.tv_sec, left.tv_usec), (0, 0, 0), "nothing is left");
        assert_eq!((select(ms(-1)).0, errno()), (-1, libc::EINVAL));
        write(pipe[1]);
        let (n, left) = select(libc::timeval { tv_sec: 9, tv_usec: 999_000 });
        assert!(n == 1 && left.tv_sec == 9 && left.tv_usec <= 999_000, "the rest is left");
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        let mut pselect = |time: *const libc::timespec| {
            libc::FD_ZERO(&mut set);
            libc::FD_SET(pipe[0], &mut set);
            libc::pselect(pipe[0] + 1, &mut set, null_mut(), null_mut(), time, &mask)
        };
        assert_eq!((pselect(&TIME), pselect(std::ptr::null())), (1, 1));
        let none = || libc::pselect(0, null_mut(), null_mut(), null_mut(), &TIME, &mask);
        assert_eq!(takes_20_ms(none), 0);
        close(pipe);
    });
}

#[test]
fn epolls() {
    // SAFETY: structures of ours.
    on_both(|| unsafe {
        let pipe = pipe();
        let epoll = libc::epoll_create1(0);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, pipe[0], &mut event), 0);
        let mut got = [libc::epoll_event { events: 0, u64: 0 }; 2];
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        assert_eq!(takes_20_ms(|| libc::epoll_wait(epoll, got.as_mut_ptr(), 2, 20)), 0);
        assert_eq!(takes_20_ms(|| libc::epoll_pwait(epoll, got.as_mut_ptr(), 2, 20, &mask)), 0);
        assert_eq!((libc::epoll_wait(-1, got.as_mut_ptr(), 2, 0), errno()), (-1, libc::EBADF));
        write(pipe[1]);
        assert_eq!((libc::epoll_wait(epoll, got.as_mut_ptr(), 2, -1), { got[0].u64 }), (1, 7));
        assert_eq!(libc::epoll_pwait(epoll, got.as_mut_ptr(), 2, -1, &mask), 1);
        assert_eq!(libc::close(epoll), 0);
        close(pipe);
    });
}
