//! Profiles: what they count, and that others can read them.
#![cfg(all(feature = "profile", mungo_native))]
#![cfg(not(miri))]

#[macro_use]
mod common;
mod pprof_support;

use mungo::chan::bounded;
use mungo::debug::label;
use mungo::profile::{self, Profile};
use mungo::sync::{Mutex, WaitGroup};
use pprof_support::{Decoded, DecodedSample, decode};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

children!(has_no_timers, has_one_p_that_computes, is_profiled_and_traced);

/// Rates and profiles are the process's: one test at a time.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` on a goroutine while waits are profiled at this rate.
fn profiled<R: Send + 'static>(rate: Duration, f: impl FnOnce() -> R + Send + 'static) -> R {
    profile::set_block_rate(rate).unwrap();
    let result = mungo::go(f).join().unwrap();
    profile::set_block_rate(Duration::ZERO).unwrap();
    result
}

fn decoded(profile: &Profile) -> Decoded {
    let mut file = Vec::new();
    profile.write_to(&mut file).unwrap();
    decode(&file)
}

fn sum<'a>(samples: impl Iterator<Item = &'a DecodedSample>) -> (u64, Duration) {
    samples.fold((0, Duration::ZERO), |(count, time), s| {
        (count + s.values[0], time + Duration::from_nanos(s.values.get(1).copied().unwrap_or(0)))
    })
}

fn is_near(found: f64, wanted: f64, part: f64) -> bool {
    (found / wanted - 1.0).abs() <= part
}

#[inline(never)]
fn waits_for_a_value<T>(rx: &mungo::chan::Receiver<T>) -> T {
    std::hint::black_box(rx.recv().unwrap())
}

/// A seeded run: each wait is as long as its seed says, up to the moment of the send, which the message tells.
#[test]
fn the_block_profile_adds_up_to_what_was_waited() {
    let _one = one_at_a_time();
    let before = profile::block();
    let waited_ns = Arc::new(AtomicU64::new(0));
    let total = waited_ns.clone();
    profiled(Duration::from_micros(10), move || {
        mungo::scope(|scope| {
            for seed in 0..16u64 {
                let total = total.clone();
                scope.spawn(move || {
                    let (tx, rx) = bounded(0);
                    let receiver = mungo::go(move || {
                        for _ in 0..60 {
                            let start = Instant::now();
                            let sent: Instant = waits_for_a_value(&rx);
                            let waited = sent.saturating_duration_since(start);
                            total.fetch_add(waited.as_nanos() as u64, Relaxed);
                        }
                    });
                    for n in 0..60u64 {
                        let ms = (seed * 7 + n * 3) % 9 * 3 + 2;
                        mungo::sleep(Duration::from_millis(ms));
                        tx.send(Instant::now()).unwrap();
                    }
                    receiver.join().unwrap();
                });
            }
        });
    });
    let profile = decoded(&profile::block().since(&before));
    assert_eq!(profile.types[0], ("contentions".into(), "count".into()));
    assert_eq!(profile.types[1], ("delay".into(), "nanoseconds".into()));
    let (count, time) = sum(profile.samples.iter().filter(|s| s.is_in("waits_for_a_value")));
    let wanted = waited_ns.load(Relaxed) as f64 / 1e9;
    assert!(is_near(time.as_secs_f64(), wanted, 0.05), "{time:?} instead of {wanted} s");
    assert!((600..=1100).contains(&count), "{count} of 960 waits");
    assert!(profile.build_ids.iter().any(|id| id.len() >= 16), "{:?}", profile.build_ids);
}

/// Short waits by the hundred thousand: the totals are estimated. The estimate of one round may be far off, if the
/// kernel took the CPU away in a wait that stands for thousands; that of the middle one is not.
#[test]
fn short_waits_are_estimated() {
    const ROUNDS: usize = 5;
    const MESSAGES: u64 = 60_000;
    let _one = one_at_a_time();
    let (mut blocked, mut runnable): (Vec<f64>, Vec<f64>) = (0..ROUNDS)
        .map(|_| {
            let before = (profile::block(), profile::runnable());
            let elapsed = profiled(Duration::from_micros(10), || echoes(MESSAGES)).as_secs_f64();
            let block = decoded(&profile::block().since(&before.0));
            let (count, time) = sum(block.samples.iter().filter(|s| s.is_in("waits_for_a_value")));
            assert!(count < 2 * MESSAGES, "{count}");
            let runnable = profile::runnable().since(&before.1).total_time();
            (time.as_secs_f64() / elapsed, runnable.as_secs_f64() / elapsed)
        })
        .unzip();
    // It waits about half of the time, or nearly all of it on two Ps; both together are in a queue for a part of it.
    for (shares, most) in [(&mut blocked, 1.2), (&mut runnable, 3.0)] {
        shares.sort_by(f64::total_cmp);
        assert!(shares[ROUNDS / 2] <= most, "{shares:?} of the time");
    }
}

/// Returns the time that so many messages took to another goroutine and back.
fn echoes(messages: u64) -> Duration {
    let (tx, rx) = bounded::<u64>(0);
    let (back_tx, back) = bounded::<u64>(0);
    let echo = mungo::go(move || rx.iter().for_each(|n| back_tx.send(n).unwrap()));
    let start = Instant::now();
    for n in 0..messages {
        tx.send(n).unwrap();
        assert_eq!(waits_for_a_value(&back), n);
    }
    drop(tx);
    echo.join().unwrap();
    start.elapsed()
}

#[test]
fn waits_that_are_not_over_count() {
    let _one = one_at_a_time();
    let before = profile::block();
    profile::set_block_rate(Duration::from_micros(10)).unwrap();
    let (tx, rx) = bounded::<u64>(0);
    let waiter = mungo::go(move || waits_for_a_value(&rx));
    let find =
        |profile: &Profile| sum(decoded(profile).samples.iter().filter(|s| s.is_in("waits_for_a_value")));
    let start = Instant::now();
    let time = loop {
        let (count, time) = find(&profile::block().since(&before));
        assert!(count <= 1 && time <= start.elapsed() + Duration::from_millis(50), "{count} {time:?}");
        assert!(start.elapsed() < Duration::from_secs(60), "it never showed");
        if time > Duration::from_millis(50) {
            break time;
        }
    };
    tx.send(1).unwrap();
    waiter.join().unwrap();
    let (count, later) = find(&profile::block().since(&before));
    profile::set_block_rate(Duration::ZERO).unwrap();
    assert!(count == 1 && later >= time.mul_f64(0.8), "{count} {later:?}");
}

#[inline(never)]
fn holds_the_lock(lock: &Mutex<Duration>) {
    let start = Instant::now();
    let mut waited = lock.lock();
    *waited += start.elapsed();
    mungo::sleep(Duration::from_millis(30));
}

#[test]
fn contention_is_charged_to_the_unlocker() {
    let _one = one_at_a_time();
    let before = profile::mutex();
    let waited = profiled(Duration::from_micros(10), || {
        let lock = Arc::new(Mutex::new(Duration::ZERO));
        let all: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                mungo::go(move || holds_the_lock(&lock))
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
        *lock.lock()
    });
    let profile = decoded(&profile::mutex().since(&before));
    let (count, time) = sum(profile.samples.iter().filter(|s| s.is_in("holds_the_lock")));
    // Three waits, of about 30, 60 and 90 ms: all are long enough to be counted.
    let is_right = is_near(time.as_secs_f64(), waited.as_secs_f64(), 0.2);
    assert!(count == 3 && is_right, "{count}, {time:?} instead of {waited:?}: {profile:#?}");
}

#[test]
fn sleeps_the_network_and_the_queue_are_apart() {
    use std::io::{Read, Write};
    let _one = one_at_a_time();
    let before = [profile::sleep(), profile::network(), profile::runnable(), profile::block()];
    profiled(Duration::from_micros(1), || {
        let listener = mungo::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = mungo::go(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
        });
        let mut client = mungo::net::TcpStream::connect(address).unwrap();
        mungo::sleep(Duration::from_millis(40));
        client.write_all(&[1]).unwrap();
        server.join().unwrap();
        (0..1000).for_each(|_| mungo::yield_now());
    });
    let [sleep, network, runnable, block] = before;
    let sleep = profile::sleep().since(&sleep);
    assert!(sleep.total_count() > 0, "{}", sleep.to_text());
    let network = profile::network().since(&network);
    assert!(network.total_count() > 0, "{}", network.to_text());
    assert!(network.samples().iter().all(|s| s.state.unwrap().to_string().starts_with("net ")));
    let runnable = profile::runnable().since(&runnable);
    assert!(runnable.total_count() > 0);
    let text = profile::block().since(&block).to_text();
    assert!(!text.contains("[sleep]") && !text.contains("[net "), "{text}");
    for profile in [sleep, network, runnable] {
        assert_eq!(decoded(&profile).types[0].0, "waits");
    }
}

#[test]
fn goroutines_are_counted_by_stack_and_inherit_labels() {
    let _one = one_at_a_time();
    let (tx, rx) = bounded::<u64>(0);
    let ready = Arc::new(WaitGroup::new());
    let parent = mungo::go({
        let ready = ready.clone();
        move || {
            let _outer = label("request", "17");
            let _inner = label("tenant", "a");
            let children: Vec<_> = (0..50)
                .map(|_| {
                    let (rx, ready) = (rx.clone(), ready.clone());
                    mungo::go(move || {
                        drop(ready);
                        rx.recv()
                    })
                })
                .collect();
            drop((rx, ready));
            children.into_iter().for_each(|child| assert!(child.join().unwrap().is_err()));
        }
    });
    let waiting = || {
        let profile = decoded(&profile::goroutine());
        assert_eq!(profile.types, [("goroutine".to_owned(), "count".to_owned())]);
        let labelled = |s: &&DecodedSample| {
            let get = |key: &str| s.labels.get(key).map(String::as_str);
            get("request") == Some("17") && get("tenant") == Some("a") && get("state") == Some("chan receive")
        };
        let place = |s: &DecodedSample| s.labels["spawned_at"].contains("profile.rs:");
        assert!(profile.samples.iter().filter(labelled).all(|s| place(s) && s.frames[0].2 > 0));
        sum(profile.samples.iter().filter(labelled)).0
    };
    let start = Instant::now();
    while waiting() != 50 {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", profile::goroutine().to_text());
    }
    drop((tx, ready));
    parent.join().unwrap();
    // The label ended with its goroutine.
    assert!(!profile::goroutine().to_text().contains("request=17"));
}

/// Goroutines that set equal labels themselves, each for itself.
#[test]
fn goroutines_with_equal_labels_of_their_own_are_one_sample() {
    let _one = one_at_a_time();
    let (tx, rx) = bounded::<u64>(0);
    let all: Vec<_> = (0..60)
        .map(|n| {
            let rx = rx.clone();
            mungo::go(move || {
                let _label = label("customer", ["a", "b", "c"][n % 3]);
                rx.recv()
            })
        })
        .collect();
    let (mut counts, of_b) = (Vec::new(), |s: &&profile::Sample| &*s.labels[0].1 == "b");
    common::wait_until("all wait", || {
        let profile = profile::goroutine();
        let is_one =
            |s: &&profile::Sample| s.labels.iter().any(|(key, _)| &**key == "customer") && s.state.is_some();
        let mine: Vec<_> = profile.samples().iter().filter(is_one).filter(|s| s.count != 0).collect();
        assert!(mine.iter().copied().filter(of_b).count() <= 60);
        counts = mine.iter().map(|sample| sample.count).collect();
        counts.iter().sum::<u64>() == 60 && mine.len() <= 3
    });
    assert_eq!(counts, [20, 20, 20]);
    drop(tx);
    all.into_iter().for_each(|g| assert!(g.join().unwrap().is_err()));
}

/// Adds up what a trace says of the waits of goroutines: blocked, asleep, in a queue, for the network, and for locks,
/// in s. Those for locks are blocked too.
fn waits_in(trace: &mungo_trace::Trace) -> [f64; 5] {
    use mungo_trace::{Kind, Stop};
    let mut stopped = std::collections::HashMap::new();
    let mut sums = [0u64; 5];
    for event in &trace.events {
        match event.kind {
            Kind::Stop { g, why: Stop::Parked { reason, .. } } => {
                stopped.insert((event.runtime, g), (event.time_ns, trace.string(reason)));
            }
            Kind::Ready { g, .. } => {
                let Some((since, reason)) = stopped.remove(&(event.runtime, g)) else { continue };
                let waited_ns = event.time_ns - since;
                match reason {
                    "sleep" => sums[1] += waited_ns,
                    _ if reason.starts_with("net ") => sums[3] += waited_ns,
                    "mutex" | "rwlock read" | "rwlock write" => {
                        sums[0] += waited_ns;
                        sums[4] += waited_ns;
                    }
                    _ => sums[0] += waited_ns,
                }
            }
            Kind::Start { waited_ns, .. } => sums[2] += waited_ns,
            _ => {}
        }
    }
    sums.map(|ns| ns as f64 / 1e9)
}

/// Starts goroutines that send and receive over the network, with pauses between.
fn talk(seed: u64, all: &mut Vec<mungo::JoinHandle<()>>) {
    use std::io::{Read, Write};
    let listener = mungo::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    all.push(mungo::go(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.read(&mut [0]).unwrap() != 0 {}
    }));
    all.push(mungo::go(move || {
        mungo::sleep(Duration::from_millis(20));
        let mut stream = mungo::net::TcpStream::connect(address).unwrap();
        for n in 0..15u64 {
            mungo::sleep(Duration::from_millis((seed * 3 + n * 5) % 7 * 4 + 25));
            stream.write_all(&[1]).unwrap();
        }
    }));
}

/// Starts goroutines that all want a lock, and keep it for a while.
fn contend(seed: u64, all: &mut Vec<mungo::JoinHandle<()>>) {
    let lock = Arc::new(Mutex::new(()));
    for g in 0..3u64 {
        let lock = lock.clone();
        all.push(mungo::go(move || {
            for n in 0..12u64 {
                let _held = lock.lock();
                mungo::sleep(Duration::from_millis((seed + g * 3 + n * 5) % 7 * 2 + 11));
            }
        }));
    }
}

/// One seeded run, as profiles estimate it and as a trace of it adds up: blocked, asleep, in a queue, for the network,
/// for locks.
fn is_profiled_and_traced() {
    let file = common::TempFile::new("profiled.trace");
    let runtime = common::runtime(1);
    profile::set_block_rate(Duration::from_micros(1)).unwrap();
    let tracing = mungo::trace::start(&file.0).unwrap();
    runtime.run(|| {
        let mut all = Vec::new();
        for seed in 0..8u64 {
            let (tx, rx) = bounded::<u64>(0);
            all.push(mungo::go(move || rx.iter().for_each(drop)));
            all.push(mungo::go(move || {
                for n in 0..40u64 {
                    mungo::sleep(Duration::from_millis((seed * 5 + n * 3) % 7 * 2 + 11));
                    tx.send(n).unwrap();
                }
            }));
            if seed < 4 {
                talk(seed, &mut all);
                contend(seed, &mut all);
            }
            // Those that compute make the others wait for the P.
            all.push(mungo::go(move || (0..20).for_each(|_| _ = burns_for(Duration::from_millis(3)))));
        }
        all.into_iter().for_each(|g| g.join().unwrap());
    });
    tracing.stop().unwrap();
    let profiles =
        [profile::block(), profile::sleep(), profile::runnable(), profile::network(), profile::mutex()];
    let wanted = waits_in(&mungo_trace::Trace::open(&file.0).unwrap());
    assert!(wanted.iter().all(|seconds| *seconds > 0.5), "the run has too little of something: {wanted:?}");
    for (profile, wanted) in profiles.iter().zip(wanted) {
        let (what, found) = (profile.kind().as_str(), profile.total_time());
        let found = found.as_secs_f64();
        assert!(is_near(found, wanted, 0.05), "{what}: {found} s instead of {wanted} s");
    }
}

/// Without interruptions: the wait of a goroutine whose P the monitor took away is in no profile.
#[test]
fn profiles_say_what_a_trace_of_the_same_run_says() {
    let mut command = common::child::command("is_profiled_and_traced");
    command.env("MUNGO_DEBUG", "asyncpreempt=0");
    common::child::finish(command).assert_success();
}

/// Computes, and lets others in.
fn burns_for(long: Duration) -> u64 {
    let n = burns_the_cpu(Instant::now() + long);
    mungo::yield_now();
    n
}

#[inline(never)]
fn keeps_the_lock(lock: &Mutex<()>, until: &mungo::chan::Receiver<()>) {
    let _held = lock.lock();
    _ = until.recv();
}

/// A lock that is never given back is what one looks for.
#[test]
fn a_wait_for_a_lock_that_is_not_over_is_charged_to_the_holder() {
    let _one = one_at_a_time();
    let before = profile::mutex();
    profile::set_block_rate(Duration::from_micros(10)).unwrap();
    let lock = Arc::new(Mutex::new(()));
    let (done, until) = bounded::<()>(0);
    let holder = mungo::go({
        let lock = lock.clone();
        move || keeps_the_lock(&lock, &until)
    });
    common::wait_until("it is locked", || lock.try_lock().is_none());
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            mungo::go(move || drop(lock.lock()))
        })
        .collect();
    let mut found = (0, Duration::ZERO);
    common::wait_until("the holder is charged", || {
        let profile = decoded(&profile::mutex().since(&before));
        found = sum(profile.samples.iter().filter(|s| s.is_in("keeps_the_lock")));
        found.0 == 3
    });
    assert!(found.1 >= Duration::from_millis(30), "{found:?}");
    drop(done);
    holder.join().unwrap();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    profile::set_block_rate(Duration::ZERO).unwrap();
}

/// One P that computes and is not interrupted, and goroutines that cannot run because of it.
fn has_one_p_that_computes() {
    profile::set_block_rate(Duration::from_micros(1)).unwrap();
    let runtime = common::runtime(1);
    let ended = Arc::new(AtomicBool::new(false));
    let busy = runtime.spawn({
        let ended = ended.clone();
        move || {
            let _waiting: Vec<_> = (0..3).map(|_| mungo::go(|| ())).collect();
            while !ended.load(Relaxed) {}
        }
    });
    let mut found = Duration::ZERO;
    common::wait_until("the wait shows", || {
        let profile = profile::runnable();
        let here =
            |s: &&profile::Sample| s.spawned_at.is_some_and(|place| place.file().ends_with("profile.rs"));
        found = profile.samples().iter().filter(here).map(|sample| sample.time).sum();
        found >= Duration::from_millis(30)
    });
    ended.store(true, Relaxed);
    busy.join().unwrap();
}

#[test]
fn a_wait_for_a_p_that_is_not_over_counts() {
    let mut command = common::child::command("has_one_p_that_computes");
    command.env("MUNGO_DEBUG", "asyncpreempt=0");
    common::child::finish(command).assert_success();
}

/// No timers are left for this user.
fn has_no_timers() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads the limits.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &none) }, 0);
    let profile = profile::cpu(Duration::from_millis(500), 100).unwrap();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    let text = profile.to_text();
    let missed = text.split_once('(').and_then(|(_, rest)| rest.split_once(" threads could not be sampled"));
    let missed: usize = missed.expect("a remark").0.parse().unwrap();
    assert!((1..=threads + 4).contains(&missed), "{missed} of {threads}: {text}");
}

/// They were counted fifty times a second.
#[test]
fn threads_without_a_timer_are_counted_once() {
    common::child::run("has_no_timers").assert_success();
}

#[inline(never)]
fn burns_the_cpu(until: Instant) -> u64 {
    let mut n = 1u64;
    while Instant::now() < until {
        for _ in 0..1000 {
            n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(7));
        }
    }
    n
}

/// A thousand samples a second while goroutines compute, are interrupted, and are spawned without end.
#[test]
fn the_cpu_profile_survives_preemption_and_spawns() {
    let _one = one_at_a_time();
    const LENGTH: Duration = Duration::from_secs(4);
    let profiler = profile::start_cpu(1000).unwrap();
    let until = Instant::now() + LENGTH;
    let spawned = Arc::new(AtomicU64::new(0));
    mungo::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let _label = label("work", "burning");
                burns_the_cpu(until)
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < until {
                    let all: Vec<_> = (0..1000).map(|n| mungo::go(move || n + 1)).collect();
                    spawned.fetch_add(all.len() as u64, Relaxed);
                    assert!(all.into_iter().map(|g| g.join().unwrap()).sum::<u64>() == 500_500);
                }
            });
        }
    });
    let profile = profiler.stop().unwrap();
    assert!(spawned.load(Relaxed) > 1000);
    let lost = profile.lost();
    let profile = decoded(&profile);
    let burning: Vec<_> = profile.samples.iter().filter(|s| s.is_in("burns_the_cpu")).collect();
    let (count, time) = sum(burning.iter().copied());
    assert!(time > LENGTH / 20 && count > 100, "{count} {time:?}, {lost} lost");
    let marked = burning.iter().filter(|s| s.labels.get("work").is_some_and(|value| value == "burning"));
    assert_eq!(marked.count(), burning.len());
    let has_place =
        |s: &&DecodedSample| s.labels.contains_key("goroutine") && s.labels.contains_key("spawned_at");
    assert!(burning.iter().all(has_place));
    assert!(lost <= count, "{lost} lost of {count}");
}

#[test]
fn one_cpu_profile_at_a_time_and_at_a_possible_rate() {
    let _one = one_at_a_time();
    for hz in [0, 10_001] {
        let error = profile::start_cpu(hz).unwrap_err();
        assert!(error.to_string().contains("from 1 to 10000"), "{error}");
    }
    let first = profile::start_cpu(10).unwrap();
    let error = profile::start_cpu(10).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    drop(first);
    assert_eq!(profile::start_cpu(10).unwrap().stop().unwrap().lost(), 0);
}

#[test]
fn a_child_of_a_fork_goes_on_without_profiles() {
    let _one = one_at_a_time();
    let profiler = profile::start_cpu(1000).unwrap();
    profile::set_block_rate(Duration::from_micros(10)).unwrap();
    // SAFETY: the child calls what is said to work there, and leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused =
            profile::set_block_rate(Duration::from_micros(10)).is_err() && profile::start_cpu(10).is_err();
        let empty = profile::block().total_count() == 0 && profile::block_rate().is_zero();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if refused && empty { 42 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 42, "{status:#x}");
    profile::set_block_rate(Duration::ZERO).unwrap();
    profiler.stop().unwrap();
}

#[inline(never)]
fn waits_for_a_client(listener: &mungo::net::TcpListener) {
    std::hint::black_box(listener.accept().unwrap());
}

#[inline(never)]
fn yields_often() {
    let until = Instant::now() + Duration::from_millis(50);
    while Instant::now() < until {
        mungo::yield_now();
    }
}

/// All profiles of a busy moment, read by Go's own tool, if there is one: `MUNGO_TEST_GO`, or `go` in the path.
#[test]
fn go_tool_pprof_opens_them() {
    let _one = one_at_a_time();
    let go = std::env::var("MUNGO_TEST_GO").unwrap_or_else(|_| "go".to_owned());
    if !Command::new(&go).arg("version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no `{go}`: set MUNGO_TEST_GO to the path of one");
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let profiles = profiled(Duration::from_micros(1), move || {
        let (tx, rx) = bounded(0);
        let waiting = mungo::go(move || waits_for_a_value(&rx));
        let lock = Arc::new(Mutex::new(Duration::ZERO));
        let held: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                mungo::go(move || holds_the_lock(&lock))
            })
            .collect();
        let burning = mungo::go(|| burns_the_cpu(Instant::now() + Duration::from_millis(400)));
        let listener = mungo::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = mungo::go(move || waits_for_a_client(&listener));
        mungo::go(yields_often).join().unwrap();
        let cpu = profile::cpu(Duration::from_millis(300), 100).unwrap();
        drop(mungo::net::TcpStream::connect(address).unwrap());
        accepting.join().unwrap();
        let goroutines = profile::goroutine();
        tx.send(1).unwrap();
        held.into_iter().for_each(|g| g.join().unwrap());
        _ = (waiting.join().unwrap(), burning.join().unwrap(), stop.load(Relaxed));
        [
            (goroutines, "waits_for_a_value"),
            (cpu, "burns_the_cpu"),
            (profile::block(), "waits_for_a_value"),
            (profile::mutex(), "holds_the_lock"),
            (profile::sleep(), "holds_the_lock"),
            (profile::network(), "waits_for_a_client"),
            (profile::runnable(), "yields_often"),
        ]
    });
    for (profile, wanted) in &profiles {
        let name = format!("mungo-{}-{}.pb.gz", std::process::id(), profile.kind().as_str());
        let file = std::env::temp_dir().join(name);
        profile.write_to(std::fs::File::create(&file).unwrap()).unwrap();
        let output = Command::new(&go).args(["tool", "pprof", "-top", "-cum"]).arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success() && text.contains(*wanted),
            "{}: {text}{errors}",
            profile.kind().as_str()
        );
    }
}
