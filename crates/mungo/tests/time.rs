//! Sleeping, timers, tickers and time-outs.

#[macro_use]
mod common;
mod sync_util;

use common::{PATIENCE, child, wait_until};
use mungo::chan::{RecvTimeoutError, TryRecvError, bounded, select};
use mungo::sync::WaitGroup;
use mungo::time::{Elapsed, Ticker, Timer, sleep_until, timeout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sync_util::{KINDS, Kind, Rng, on_two_procs, run, scaled, seed};

children!(a_timer_comes_to_a_runtime_that_sleeps, a_thread_sets_a_timer_of_a_runtime_that_sleeps);

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn nobody_wakes_early() {
    for kind in [Kind::Goroutines, Kind::Threads] {
        run(kind, 8, |i| {
            for k in 0..10 {
                let d = Duration::from_micros((i * 331 + k * 97) as u64 % 3000);
                let start = Instant::now();
                mungo::sleep(d);
                assert!(start.elapsed() >= d);
                let deadline = Instant::now() + d;
                sleep_until(deadline);
                assert!(Instant::now() >= deadline);
            }
            sleep_until(Instant::now() - MS);
        });
    }
}

/// The number of the specification; a tenth of it without optimisation.
#[test]
fn a_million_sleepers() {
    on_two_procs(|| {
        let n = scaled(1_000_000);
        let wg = Arc::new(WaitGroup::new());
        let woken = Arc::new(AtomicUsize::new(0));
        wg.add(n);
        let mut rng = Rng::new(7);
        for _ in 0..n {
            let d = Duration::from_micros(rng.below(300_000));
            let (wg, woken) = (wg.clone(), woken.clone());
            mungo::go(move || {
                let start = Instant::now();
                mungo::sleep(d);
                assert!(start.elapsed() >= d);
                woken.fetch_add(1, Relaxed);
                wg.done();
            });
        }
        wg.wait();
        assert_eq!(woken.load(Relaxed), n);
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    on_two_procs(|| {
        let (tx, rx) = bounded(0);
        for i in [3u64, 1, 4, 0, 2] {
            let tx = tx.clone();
            mungo::go(move || {
                mungo::sleep(Duration::from_millis(40 * i));
                tx.send(i).unwrap();
            });
        }
        drop(tx);
        let order: Vec<u64> = rx.iter().collect();
        // On a machine that stands still for 40 ms two may come at once, in any order: but each comes.
        assert_eq!(order.len(), 5);
        assert_eq!(order[0], 0);
    });
}

#[test]
fn a_timer_goes_off_once() {
    for kind in KINDS {
        run(kind, 4, |_| {
            let start = Instant::now();
            let timer = Timer::new(3 * MS);
            assert_eq!(timer.c().try_recv(), Err(TryRecvError::Empty));
            let when = timer.c().recv().unwrap();
            assert!(when >= start + 3 * MS && start.elapsed() >= 3 * MS);
            assert_eq!(timer.c().recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
            assert!(!timer.stop());
        });
    }
}

#[test]
fn stop_and_reset_are_exact() {
    on_two_procs(|| {
        let timer = Timer::new(HOUR);
        assert!(timer.stop() && !timer.stop());
        assert!(!timer.reset(MS));
        let at = Instant::now() + 5 * MS;
        sleep_until(at);
        // It went off, and nobody took the value: as if it were active.
        let start = Instant::now();
        assert!(timer.reset(2 * MS));
        let when = timer.c().recv().unwrap();
        assert!(when >= start + 2 * MS && start.elapsed() >= 2 * MS, "the value of before is gone");
        assert!(!timer.reset(MS));
        sleep_until(Instant::now() + 5 * MS);
        assert!(timer.stop());
        assert_eq!(timer.c().try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn a_timer_that_is_put_off_wakes_who_waits_at_the_new_time() {
    on_two_procs(|| {
        let timer = Arc::new(Timer::new(HOUR));
        let waiting = {
            let timer = timer.clone();
            mungo::go(move || timer.c().recv())
        };
        let start = Instant::now();
        timer.reset(3 * MS);
        let when = waiting.join().unwrap().unwrap();
        assert!(when >= start + 3 * MS);
    });
}

#[test]
fn times_of_the_past_and_beyond_the_end() {
    assert!(Timer::at(Instant::now() - MS).c().recv().is_ok());
    assert!(Timer::new(Duration::ZERO).c().recv().is_ok());
    let never = Timer::new(Duration::MAX);
    assert_eq!(never.c().recv_timeout(MS), Err(RecvTimeoutError::Timeout));
    assert!(!never.stop());
}

#[test]
fn dropping_a_timer_disconnects() {
    let timer = Timer::new(HOUR);
    let rx = timer.c().clone();
    let waiting = mungo::go(move || rx.recv());
    drop(timer);
    assert!(waiting.join().unwrap().is_err());
}

#[test]
fn a_ticker_beats_in_step_and_drops_what_nobody_takes() {
    on_two_procs(|| {
        let start = Instant::now();
        let ticker = Ticker::new(2 * MS);
        for i in 1..=5 {
            let when = ticker.c().recv().unwrap();
            assert!(when >= start + 2 * i * MS);
        }
        sleep_until(Instant::now() + 11 * MS); // five more, of which one is kept
        while ticker.c().is_empty() {
            mungo::yield_now();
        }
        ticker.stop();
        assert_eq!(ticker.c().recv_timeout(5 * MS), Err(RecvTimeoutError::Timeout));
        ticker.reset(MS);
        assert!(ticker.c().recv().is_ok());
    });
}

#[test]
#[should_panic(expected = "must not be zero")]
fn a_ticker_has_a_period() {
    _ = Ticker::new(Duration::ZERO);
}

#[test]
fn timers_work_in_select() {
    on_two_procs(|| {
        let (tx, rx) = bounded::<u32>(1);
        let timer = Timer::new(3 * MS);
        let first = select! {
            recv(rx) -> v => v.ok(),
            recv(timer.c()) -> _ => None,
        };
        assert_eq!(first, None);
        timer.reset(HOUR);
        tx.send(7).unwrap();
        let second = select! {
            recv(rx) -> v => v.ok(),
            recv(timer.c()) -> _ => None,
        };
        assert_eq!(second, Some(7));
    });
}

/// A runtime ends while a timer that was made there is set: it goes off all the same.
#[test]
fn timers_outlive_their_runtime() {
    let runtime = mungo::Runtime::builder().procs(1).build().unwrap();
    let start = Instant::now();
    let (timer, ticker) = runtime.run(|| (Timer::new(30 * MS), Ticker::new(10 * MS)));
    runtime.shutdown(Duration::from_secs(60)).unwrap();
    assert!(timer.c().recv().unwrap() >= start + 30 * MS);
    ticker.c().recv().unwrap();
    ticker.c().recv().unwrap();
    assert!(!timer.reset(MS));
    timer.c().recv().unwrap();
}

/// How often the monitor has slept, of the one runtime that there is.
fn naps_of_the_monitor() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let read = |file: std::path::PathBuf| std::fs::read_to_string(file).unwrap_or_default();
    let monitor = tasks.into_iter().find(|task| read(task.join("comm")) == "mungo-monitor\n").unwrap();
    let status = read(monitor.join("status"));
    status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap().to_owned()
}

/// The default runtime is so quiet that even its monitor sleeps for long: somebody has to tell it.
fn until_the_default_runtime_sleeps() {
    // glibc keeps the error for the thread that may ask for it. So the goroutine's thread block cannot be taken apart,
    // which keeps no thread busy.
    // SAFETY: a name.
    let leaves_an_error = || unsafe { libc::dlopen(c"no such library".as_ptr(), libc::RTLD_NOW) }.is_null();
    assert!(mungo::go(leaves_an_error).join().unwrap());
    let mut seen = (naps_of_the_monitor(), Instant::now());
    wait_until("the monitor sleeps for longer than its naps of a second", || {
        let naps = naps_of_the_monitor();
        if naps != seen.0 {
            seen = (naps, Instant::now());
        }
        seen.1.elapsed() > 2500 * MS
    });
}

fn a_timer_comes_to_a_runtime_that_sleeps() {
    until_the_default_runtime_sleeps();
    let runtime = mungo::Runtime::builder().procs(1).build().unwrap();
    let timer = runtime.run(|| Timer::new(100 * MS));
    runtime.shutdown(PATIENCE).unwrap();
    timer.c().recv_timeout(PATIENCE).unwrap();
}

fn a_thread_sets_a_timer_of_a_runtime_that_sleeps() {
    until_the_default_runtime_sleeps();
    Timer::new(100 * MS).c().recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_runtime_that_sleeps_is_told_of_timers() {
    std::thread::scope(|s| {
        for name in ["a_timer_comes_to_a_runtime_that_sleeps", "a_thread_sets_a_timer_of_a_runtime_that_sleeps"]
        {
            s.spawn(move || _ = child::run(name).assert_success());
        }
    });
}

#[test]
fn timeout_returns_results_panics_and_elapsed() {
    for kind in KINDS {
        run(kind, 3, |_| {
            assert_eq!(timeout(HOUR, || 42), Ok(42));
            let start = Instant::now();
            assert!(timeout(2 * MS, mungo::park).is_err());
            assert!(start.elapsed() >= 2 * MS);
            let panicked = std::panic::catch_unwind(|| timeout(HOUR, || panic!("expected")));
            assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"expected"));
        });
    }
}

#[test]
fn a_late_result_is_dropped() {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(dropped.clone());
    let (go_on, wait) = bounded::<()>(0);
    let late: Result<Flag, Elapsed> = timeout(MS, move || {
        wait.recv().unwrap();
        flag
    });
    assert!(late.is_err());
    assert!(!dropped.load(Relaxed));
    go_on.send(()).unwrap();
    while !dropped.load(Relaxed) {
        std::thread::yield_now();
    }
}

/// The same at the moment when it goes off, and wants to be set again there.
#[test]
fn stress_tickers_outlive_their_runtimes() {
    let mut rng = Rng::new(seed());
    for _ in 0..scaled(200) {
        let runtime = mungo::Runtime::builder().procs(1).build().unwrap();
        let period = Duration::from_micros(1 + rng.below(200));
        let ticker = runtime.run(move || Ticker::new(period));
        drop(runtime);
        ticker.c().iter().take(5).for_each(drop);
    }
}

/// Resets and stops at the moment when it goes off: never a value of before, never two for one.
#[test]
fn stress_timer_resets() {
    let seed = seed();
    on_two_procs(move || {
        let workers: Vec<_> = (0..4)
            .map(|i| {
                mungo::go(move || {
                    let mut rng = Rng::new(seed ^ i);
                    let timer = Timer::new(HOUR);
                    for _ in 0..scaled(2_000) {
                        let d = Duration::from_nanos(rng.below(30_000));
                        let start = Instant::now();
                        timer.reset(d);
                        match rng.below(3) {
                            0 => {
                                let when = timer.c().recv().unwrap();
                                assert!(when >= start + d, "a value of before");
                            }
                            1 => {
                                mungo::sleep(Duration::from_nanos(rng.below(30_000)));
                                let active = timer.stop();
                                assert!(active, "nobody took the value");
                                assert_eq!(timer.c().try_recv(), Err(TryRecvError::Empty));
                            }
                            _ => {}
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// Timers are started on one P and stopped on another, while Ps come and go.
#[test]
fn stress_timers_over_changing_procs() {
    let seed = seed();
    let runtime = mungo::Runtime::builder().procs(4).build().unwrap();
    runtime.run(move || {
        let stop = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..8)
            .map(|i| {
                let stop = stop.clone();
                mungo::go(move || {
                    let mut rng = Rng::new(seed.wrapping_mul(31) ^ i);
                    while !stop.load(Relaxed) {
                        let d = Duration::from_nanos(rng.below(200_000));
                        let (start, timer) = (Instant::now(), Timer::new(d));
                        match rng.below(3) {
                            0 => assert!(timer.c().recv().unwrap() >= start + d),
                            1 => mungo::sleep(d),
                            _ => drop(timer),
                        }
                    }
                })
            })
            .collect();
        let mut rng = Rng::new(seed);
        for _ in 0..scaled(200) {
            mungo::set_procs(1 + rng.below(4) as usize);
            mungo::sleep(Duration::from_micros(rng.below(1000)));
        }
        stop.store(true, Relaxed);
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}
