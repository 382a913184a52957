//! Goroutines that block their thread, announced or not, do not keep others from running.

mod common;

use common::{Deadline, runtime, wait_until};
use mungo::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// `n` goroutines block until `release`, all at the same time: on fewer procs that works only if each loses its P.
fn all_block_together(n: usize, block: impl Fn(&AtomicBool) + Send + Sync + Clone + 'static) {
    let runtime = runtime(1);
    let inside = Arc::new(AtomicUsize::new(0));
    let release = Arc::new(AtomicBool::new(false));
    let handles: Vec<_> = (0..n)
        .map(|_| {
            let (inside, release, block) = (inside.clone(), release.clone(), block.clone());
            runtime.spawn(move || {
                inside.fetch_add(1, Release);
                block(&release);
            })
        })
        .collect();
    wait_until("all are inside", || inside.load(Acquire) == n);
    release.store(true, Release);
    handles.into_iter().for_each(|h| h.join().unwrap());
}

fn nap_until(release: &AtomicBool) {
    while !release.load(Acquire) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn unannounced_sleeps_lose_their_p() {
    all_block_together(16, nap_until);
}

#[test]
fn announced_calls_lose_their_p() {
    all_block_together(16, |release| mungo::blocking(|| nap_until(release)));
}

#[test]
fn blocking_returns_the_value_and_passes_panics_on() {
    let runtime = runtime(1);
    assert_eq!(runtime.run(|| mungo::blocking(|| 5)), 5);
    let panicked = runtime.run(|| std::panic::catch_unwind(|| mungo::blocking(|| panic!("inside"))).is_err());
    assert!(panicked);
    assert_eq!(mungo::blocking(|| 6), 6, "on a plain thread it just runs");
    let nested = runtime.run(|| mungo::blocking(|| mungo::blocking(|| 1) + 1));
    assert_eq!(nested, 2);
}

#[test]
fn a_contended_std_mutex_blocks_its_holder_only() {
    let runtime = runtime(1);
    let lock = Arc::new(std::sync::Mutex::new(()));
    let held = lock.lock().unwrap();
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let lock = lock.clone();
            runtime.spawn(move || drop(lock.lock().unwrap()))
        })
        .collect();
    // Though four goroutines sit in the mutex on one P, others run.
    for i in 0..20 {
        assert_eq!(runtime.run(move || i), i);
    }
    drop(held);
    waiters.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn waitpid_and_pipes_block_their_thread_only() {
    let runtime = runtime(1);
    let child = runtime.spawn(|| std::process::Command::new("sleep").arg("0.2").status().map(|s| s.success()));
    let mut others = 0;
    while !child.is_finished() {
        runtime.run(mungo::yield_now);
        others += 1;
    }
    assert!(child.join().unwrap().expect("the sleep command"));
    assert!(others > 0);
}

/// DESIGN: taking the P needs no signal, so a C call sees no EINTR because of us.
#[test]
fn blocked_c_calls_see_no_interruption() {
    let runtime = runtime(2);
    let interrupted = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let calls: Vec<_> = (0..12)
        .map(|i| {
            let interrupted = interrupted.clone();
            runtime.spawn(move || {
                let end = Deadline::after(Duration::from_millis(500));
                while !end.passed() {
                    // SAFETY: plain C calls on local data.
                    let r = unsafe {
                        match i % 3 {
                            0 => libc::usleep(15_000),
                            1 => libc::poll(std::ptr::null_mut(), 0, 15).min(0),
                            _ => {
                                let ts = libc::timespec { tv_sec: 0, tv_nsec: 15_000_000 };
                                libc::nanosleep(&ts, std::ptr::null_mut())
                            }
                        }
                    };
                    if r != 0 {
                        interrupted.fetch_add(1, Relaxed);
                    }
                }
            })
        })
        .collect();
    // Hogs, so that slices end and signals are sent.
    for _ in 0..4 {
        let stop = stop.clone();
        runtime.spawn(move || while !stop.load(Relaxed) {});
    }
    calls.into_iter().for_each(|c| c.join().unwrap());
    stop.store(true, Relaxed);
    assert_eq!(interrupted.load(Relaxed), 0);
}

/// The same for goroutines that compute, and so are interrupted, between their calls.
#[test]
fn c_calls_between_computations_see_no_eintr() {
    let runtime = runtime(2);
    let interrupted = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mixed = (0..8u64).map(|i| {
        let (interrupted, stop) = (interrupted.clone(), stop.clone());
        runtime.spawn(move || {
            let mut random = common::Rng::new(i);
            while !stop.load(Relaxed) {
                let end = Deadline::after(Duration::from_micros(500 + random.below(12_000)));
                while !end.passed() {}
                // SAFETY: plain C calls.
                let failed = unsafe {
                    [libc::usleep(random.below(300) as u32), libc::poll(std::ptr::null_mut(), 0, 1)]
                        .map(|r| r != 0)
                };
                interrupted.fetch_add(failed.into_iter().filter(|f| *f).count(), Relaxed);
            }
        })
    });
    let mixed: Vec<_> = mixed.collect();
    wait_until("they were interrupted often", || common::preemptions(&runtime) > 300);
    stop.store(true, Relaxed);
    mixed.into_iter().for_each(|g| g.join().unwrap());
    assert_eq!(interrupted.load(Relaxed), 0);
}

/// The same for calls that wait with a time-out of their own, which the kernel never restarts. On x86-64: elsewhere the
/// C library's own calls cannot be made again.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn calls_with_a_time_out_see_no_eintr() {
    use std::os::fd::AsRawFd;
    let runtime = common::hasty_runtime(2);
    let interrupted = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mixed = (0..8u64).map(|i| {
        let (interrupted, stop) = (interrupted.clone(), stop.clone());
        runtime.spawn(move || {
            let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
            near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let mut random = common::Rng::new(i);
            let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            while !stop.load(Relaxed) {
                let end = Deadline::after(Duration::from_micros(50 + random.below(2_000)));
                while !end.passed() {}
                let (fd, mut byte) = (near.as_raw_fd(), 0_u8);
                // SAFETY: a byte, a message and a set of our own; no signal is waited for.
                unsafe {
                    let at = (&raw mut byte).cast();
                    let mut part = libc::iovec { iov_base: at, iov_len: 1 };
                    let mut message: libc::msghdr = std::mem::zeroed();
                    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
                    let none: libc::sigset_t = std::mem::zeroed();
                    let calls: [&dyn Fn() -> isize; 4] = [
                        &|| libc::recv(fd, at, 1, 0),
                        &|| libc::recvmsg(fd, (&raw const message).cast_mut(), 0),
                        &|| libc::read(fd, at, 1),
                        &|| libc::sigtimedwait(&none, std::ptr::null_mut(), &time) as isize,
                    ];
                    for call in calls {
                        let was = call() == -1
                            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
                        interrupted.fetch_add(usize::from(was), Relaxed);
                    }
                }
            }
        })
    });
    let mixed: Vec<_> = mixed.collect();
    // Hogs, so that slices end.
    for _ in 0..4 {
        let stop = stop.clone();
        runtime.spawn(move || while !stop.load(Relaxed) {});
    }
    wait_until("they were interrupted often", || common::preemptions(&runtime) > 2000);
    stop.store(true, Relaxed);
    mixed.into_iter().for_each(|g| g.join().unwrap());
    assert_eq!(interrupted.load(Relaxed), 0);
}

#[test]
fn a_goroutine_that_computes_after_a_blocking_call_comes_back_under_a_p() {
    let runtime = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(AtomicUsize::new(0));
    for _ in 0..6 {
        let (stop, progress) = (stop.clone(), progress.clone());
        runtime.spawn(move || {
            std::thread::sleep(Duration::from_millis(5)); // loses the P
            progress.fetch_add(1, Release);
            while !stop.load(Relaxed) {} // computes without it, until the monitor notices
        });
    }
    wait_until("all compute", || progress.load(Acquire) == 6);
    assert_eq!(runtime.run(|| 3), 3);
    stop.store(true, Relaxed);
    runtime.shutdown(Duration::from_secs(20)).unwrap();
}

/// What is announced need not sleep: the P goes on also where the thread computes.
#[test]
fn an_announced_call_that_computes_loses_its_p() {
    let runtime = runtime(1);
    let (began, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let computes = {
        let (began, release) = (began.clone(), release.clone());
        runtime.spawn(move || {
            mungo::blocking(|| {
                began.store(true, Relaxed);
                while !release.load(Relaxed) {}
            });
        })
    };
    wait_until("it is announced", || began.load(Relaxed));
    runtime.run(move || release.store(true, Relaxed));
    computes.join().unwrap();
    let p = &runtime.metrics().per_proc[0];
    assert!(p.retakes > 0, "it is taken for one that computes: {p:?}");
    common::end(runtime);
}

/// No goroutine waits for a P, so that this is the only reason to interrupt it.
#[test]
fn one_that_computes_without_a_p_is_interrupted() {
    let runtime = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let (tx, rx) = std::sync::mpsc::channel();
    let seen = stop.clone();
    let stray = runtime.spawn(move || {
        rx.recv().unwrap();
        while !seen.load(Relaxed) {}
    });
    wait_until("its P is taken", || {
        runtime.run(|| ());
        let p = &runtime.metrics().per_proc[0];
        p.retakes + p.preemptions > 0 // on a busy machine it may seem to compute in libc
    });
    tx.send(()).unwrap();
    wait_until("it is brought back", || {
        let interruptions = runtime.metrics().interruptions;
        interruptions.injected + interruptions.by_thread > 0
    });
    stop.store(true, Relaxed);
    stray.join().unwrap();
    common::end(runtime);
}

#[test]
fn at_the_thread_cap_things_run_later() {
    let runtime = Runtime::builder().procs(2).max_threads(3).build().unwrap();
    let start = Instant::now();
    let handles: Vec<_> =
        (0..12).map(|_| runtime.spawn(|| std::thread::sleep(Duration::from_millis(10)))).collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
    assert!(start.elapsed() >= Duration::from_millis(40), "three threads cannot do it faster");
    let metrics = runtime.metrics();
    assert!(metrics.threads - metrics.idle_threads <= 3, "one more sleeps, as a spare");
    let hogs: Vec<_> = (0..4)
        .map(|_| {
            runtime.spawn(|| {
                let end = Deadline::after(Duration::from_millis(50));
                while !end.passed() {}
            })
        })
        .collect();
    hogs.into_iter().for_each(|h| h.join().unwrap());
}

#[test]
fn idle_threads_leave_after_a_while() {
    let runtime = runtime(1);
    let handles: Vec<_> =
        (0..32).map(|_| runtime.spawn(|| std::thread::sleep(Duration::from_millis(100)))).collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
    wait_until("most threads have left", || runtime.metrics().threads <= 6);
}
