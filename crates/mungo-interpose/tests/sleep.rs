//! Sleeps of std and of C park goroutines.

#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::runtime;
use mungo_interpose::counts;
use std::time::{Duration, Instant};

/// Many sleep at once, and all of them for as long as they asked for.
#[test]
fn ten_thousand_sleep_at_once() {
    const SLEEPERS: u32 = 10_000;
    const PS: u64 = 2;
    let nap = Duration::from_millis(100);
    let runtime = runtime(PS as usize);
    runtime.run(|| {
        mungo::scope(|s| {
            for _ in 0..SLEEPERS {
                s.spawn(|| {
                    let start = Instant::now();
                    std::thread::sleep(nap);
                    assert!(start.elapsed() >= nap);
                });
            }
        });
    });
    let sleeps = counts().find(|c| c.function == "clock_nanosleep").unwrap();
    assert!(sleeps.parked >= u64::from(SLEEPERS), "{sleeps:?}");
    let metrics = runtime.metrics();
    assert!(metrics.interposed.parked >= u64::from(SLEEPERS));
    assert!(metrics.threads <= PS + 8, "{}", metrics.threads);
}

#[test]
fn the_functions_of_c_sleep_and_complain_as_in_c() {
    runtime(1).run(|| {
        let us = |us: i64| libc::timespec { tv_sec: 0, tv_nsec: us * 1000 };
        let start = Instant::now();
        // SAFETY: times that outlive the calls.
        unsafe {
            assert_eq!(libc::nanosleep(&us(1000), std::ptr::null_mut()), 0);
            assert_eq!(libc::usleep(1000), 0);
            assert_eq!(libc::sleep(0), 0);
            assert_eq!(libc::sched_yield(), 0);
            assert_eq!(libc::poll(std::ptr::null_mut(), 0, 2), 0);
            assert_eq!(libc::ppoll(std::ptr::null_mut(), 0, &us(2000), std::ptr::null()), 0);
            assert!(start.elapsed() >= Duration::from_millis(6));
            // A moment that has passed.
            let past = us(1);
            let (clock, absolute) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
            assert_eq!(libc::clock_nanosleep(clock, absolute, &past, std::ptr::null_mut()), 0);
            let wrong = us(1_000_000);
            assert_eq!(libc::clock_nanosleep(clock, 0, &wrong, std::ptr::null_mut()), libc::EINVAL);
            assert_eq!(libc::nanosleep(&wrong, std::ptr::null_mut()), -1);
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
            let negative = libc::timespec { tv_sec: -1, tv_nsec: 0 };
            assert_eq!(libc::nanosleep(&negative, std::ptr::null_mut()), -1);
            // A clock that only the kernel knows.
            let wall = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            assert_eq!(libc::clock_nanosleep(libc::CLOCK_REALTIME, absolute, &wall, std::ptr::null_mut()), 0);
            assert_eq!(libc::clock_nanosleep(1234, 0, &past, std::ptr::null_mut()), libc::EINVAL);
        }
    });
}

#[test]
fn threads_sleep_as_before() {
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(3));
    std::thread::yield_now();
    assert!(start.elapsed() >= Duration::from_millis(3));
}
