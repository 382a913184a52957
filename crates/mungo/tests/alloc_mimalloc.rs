//! mimalloc as the global allocator, with one heap per OS thread: `OnThread<MiMalloc>`.
#![cfg(not(miri))]

mod tls_support;

use mimalloc::MiMalloc;
use mungo::alloc::OnThread;

#[global_allocator]
static GLOBAL: OnThread<MiMalloc> = OnThread::new(MiMalloc);

include!("tls_support/allocator_tests.rs");

/// A long CPU profile, at `MUNGO_STRESS_HZ` samples a second for `MUNGO_STRESS_SECONDS`, of goroutines that allocate,
/// are interrupted, and are spawned without end.
#[test]
#[ignore = "takes ten minutes; run it with --ignored --nocapture, alone"]
#[cfg(all(feature = "profile", mungo_native))]
fn a_long_cpu_profile() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    let number = |name: &str, default: u32| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let (hz, seconds) = (number("MUNGO_STRESS_HZ", 100), number("MUNGO_STRESS_SECONDS", 600));
    let runtime =
        mungo::Runtime::builder().procs(2).time_slice(std::time::Duration::from_millis(1)).build().unwrap();
    let (done, spawned) = (AtomicBool::new(false), AtomicU64::new(0));
    let (profile, used) = runtime.run(|| {
        mungo::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        let text: Vec<String> = (0..100).map(|n| n.to_string()).collect();
                        assert_eq!(text.concat().len(), 190);
                    }
                });
            }
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let all: Vec<_> = (0..1000).map(|n| mungo::go(move || vec![n; 10])).collect();
                    let sum: u64 = all.into_iter().map(|g| g.join().unwrap()[9]).sum();
                    assert_eq!(sum, 499_500);
                    spawned.fetch_add(1000, Relaxed);
                }
            });
            let before = cpu_seconds();
            let profiler = mungo::profile::start_cpu(hz).unwrap();
            mungo::sleep(std::time::Duration::from_secs(seconds.into()));
            let profile = profiler.stop().unwrap();
            let used = cpu_seconds() - before;
            done.store(true, Relaxed);
            (profile, used)
        })
    });
    let (seen, count, lost) = (profile.total_time().as_secs_f64(), profile.total_count(), profile.lost());
    let (threads, spawned) = (runtime.metrics().threads, spawned.into_inner());
    println!(
        "{hz} Hz: {seen:.1} of {used:.1} CPU s in {count} samples, {lost} lost; {spawned} spawned, {threads} threads"
    );
    let complete = seen + lost as f64 / f64::from(hz);
    assert!((0.9..1.1).contains(&(complete / used)), "{complete} s of {used} s");
}

/// Returns the CPU time of the process, in seconds.
#[cfg(all(feature = "profile", mungo_native))]
fn cpu_seconds() -> f64 {
    // SAFETY: all zero is a value of the struct, which the kernel fills.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut used), 0);
        used
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}
