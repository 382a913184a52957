//! Stacks: very many, deep ones, given back, reused, overflowed.

#[macro_use]
mod common;

use common::{child, end, runtime, status_bytes, wait_until};
use mungo::{Builder, Runtime, go, park, yield_now};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

children!(
    a_million,
    pooled_stacks_shrink,
    pooled_stacks_with_libc_data_shrink,
    parked_stacks_shrink,
    stacks_are_reused,
    goroutine_overflows
);

const MIB: usize = 1 << 20;

/// Uses about `bytes` of stack, calls `f` at the bottom, and comes back.
fn deep(bytes: usize, f: &mut dyn FnMut()) {
    #[inline(never)]
    fn down(until: usize, f: &mut dyn FnMut()) {
        let frame = black_box([0xA5u8; 1024]);
        if (&raw const frame as usize) > until {
            down(until, f)
        } else {
            f()
        }
        assert!(frame.iter().all(|b| *b == 0xA5), "a frame was lost");
    }
    let here = 0u8;
    down(&raw const here as usize - bytes, f);
}

fn a_million() {
    const EACH: usize = 9 << 10;
    let wanted = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    let available = common::meminfo_bytes("MemAvailable");
    let n = wanted.min(available / 10 * 8 / EACH);
    if n < wanted {
        println!("{n} goroutines instead of {wanted}: only {} MiB of memory are available", available / MIB);
    }
    let rt = runtime(2);
    let parked = Arc::new(AtomicUsize::new(0));
    let sum = rt.run(|| {
        let all: Vec<_> = (0..n)
            .map(|i| {
                let parked = parked.clone();
                go(move || {
                    parked.fetch_add(1, Relaxed);
                    park();
                    i
                })
            })
            .collect();
        // Fresh memory may come slowly: be patient as long as there is progress.
        for part in 1..=10 {
            wait_until("the next tenth is parked", || parked.load(Relaxed) >= n / 10 * part);
        }
        wait_until("all are parked", || parked.load(Relaxed) == n);
        assert_eq!(mungo::num_goroutines(), n + 1);
        all.iter().for_each(|h| h.goroutine().unpark());
        all.into_iter().map(|h| h.join().unwrap()).sum::<usize>()
    });
    assert_eq!(sum, n * (n - 1) / 2);
    end(rt);
}

#[test]
fn very_many_goroutines_are_alive_at_once() {
    if child::is_emulated("guard pages take mappings of their own, and there are 65530") {
        return;
    }
    print!("{}", child::run("a_million").assert_success().stdout);
}

#[test]
fn most_of_the_stack_can_be_used() {
    // 256 KiB less the guard page, thread-locals and the first frames.
    go(|| deep(220 << 10, &mut || ())).join().unwrap();
    let big = Builder::new().stack_size(8 * MIB).spawn(|| deep(8 * MIB - (64 << 10), &mut yield_now)).unwrap();
    big.join().unwrap();
    let rt = Runtime::builder().procs(1).stack_size(MIB).build().unwrap();
    rt.run(|| deep(MIB - (64 << 10), &mut yield_now));
    rt.run(|| go(|| deep(MIB - (64 << 10), &mut yield_now)).join().unwrap());
    let small = Builder::new().stack_size(16 << 10).spawn(|| deep(8 << 10, &mut yield_now)).unwrap();
    small.join().unwrap();
    end(rt);
}

/// `n` goroutines that used most of their stack are alive at once, and then go on.
fn use_stacks_of(n: usize, after: impl Fn() + Clone + Send + 'static) -> Vec<mungo::JoinHandle<()>> {
    let ready = Arc::new(AtomicUsize::new(0));
    let all: Vec<_> = (0..n)
        .map(|_| {
            let (ready, after) = (ready.clone(), after.clone());
            go(move || {
                deep(200 << 10, &mut || {
                    ready.fetch_add(1, SeqCst);
                    park();
                });
                after();
            })
        })
        .collect();
    wait_until("all are deep", || ready.load(SeqCst) == n);
    all.iter().for_each(|h| h.goroutine().unpark());
    all
}

/// Of a process that once used 300 stacks of 200 KiB, in bytes. The sanitizer has some 20 MiB of its own.
const SHRUNK: usize = if cfg!(mungo_asan) { 45 * MIB } else { 25 * MIB };

fn pooled_stacks_shrink() {
    shrink_after(|| ());
}

fn pooled_stacks_with_libc_data_shrink() {
    shrink_after(|| {
        // SAFETY: a name. glibc keeps the error for the thread that may ask for it, and so the thread block stays.
        assert!(unsafe { libc::dlopen(c"no such library".as_ptr(), libc::RTLD_NOW) }.is_null());
    });
}

fn shrink_after(last: fn()) {
    let n = 300;
    use_stacks_of(n, last).into_iter().for_each(|h| h.join().unwrap());
    // No goroutine runs from here on: the monitor and idle workers give them back.
    wait_until("the pool gave its pages back", || status_bytes("VmRSS") < SHRUNK);
}

#[test]
fn pages_of_pooled_stacks_are_given_back() {
    if child::is_emulated("the emulator's own memory is counted") {
        return;
    }
    child::run("pooled_stacks_shrink").assert_success();
}

#[test]
#[cfg_attr(
    mungo_asan,
    ignore = "a goroutine may be interrupted in the sanitizer's malloc with the loader's lock, which new threads need"
)]
fn pages_of_pooled_stacks_are_given_back_though_their_thread_blocks_stay() {
    if child::is_emulated("the emulator's own memory is counted") {
        return;
    }
    child::run("pooled_stacks_with_libc_data_shrink").assert_success();
}

fn parked_stacks_shrink() {
    let n = 300;
    let all = use_stacks_of(n, park);
    wait_until("parked stacks gave their pages back", || status_bytes("VmRSS") < SHRUNK);
    all.iter().for_each(|h| h.goroutine().unpark());
    all.into_iter().for_each(|h| h.join().unwrap());
}

#[test]
fn pages_of_parked_goroutines_are_given_back() {
    if child::is_emulated("the emulator's own memory is counted") {
        return;
    }
    child::run("parked_stacks_shrink").assert_success();
}

/// What lies above the saved stack pointer stays, wherever in a page that is.
#[test]
fn trimmed_goroutines_go_on_where_they_were() {
    #[inline(never)]
    fn step(n: usize, f: &mut dyn FnMut()) {
        let frame = black_box([n as u8; 24]);
        if n == 0 {
            f()
        } else {
            step(n - 1, f)
        }
        assert!(frame.iter().all(|b| *b == n as u8));
    }
    let rt = runtime(2);
    let parked = Arc::new(AtomicUsize::new(0));
    let all: Vec<_> = (0..600)
        .map(|n| {
            let parked = parked.clone();
            rt.spawn(move || {
                let mut stop = || {
                    parked.fetch_add(1, SeqCst);
                    park();
                };
                deep(100 << 10, &mut || ()); // something to give back
                step(n, &mut stop);
                step(n, &mut stop);
            })
        })
        .collect();
    for round in 1..=2 {
        wait_until("all are parked", || parked.load(SeqCst) == 600 * round);
        std::thread::sleep(std::time::Duration::from_millis(2300)); // a monitor's second, and another
        all.iter().for_each(|h| h.goroutine().unpark());
    }
    all.into_iter().for_each(|h| h.join().unwrap());
    end(rt);
}

/// Of a large frame that is live in parts only. With link-time optimisation the switch is part of it, and whatever it
/// has on the stack may lie among the dead ones: `.ci/run` runs this test so.
#[test]
fn a_large_frame_survives_a_long_sleep() {
    #[inline(never)]
    fn sleeper(long: Duration) -> bool {
        let mut live = [0u64; 2048];
        live.iter_mut().zip(1..).for_each(|(word, i)| *word = black_box(i));
        black_box(&mut live);
        black_box(&mut live[7]);
        {
            let (mut a, mut b, mut c, mut d) = ([1u64; 8192], [2u64; 8192], [3u64; 8192], [4u64; 8192]);
            black_box((&mut a, &mut b, &mut c, &mut d));
        }
        mungo::time::sleep_until(Instant::now() + long);
        black_box(&mut live);
        live.iter().zip(1..).all(|(word, i)| *word == i)
    }
    let long = Duration::from_millis(black_box(2500)); // the monitor trims a stack that has slept for a second
    let sleeper = mungo::Builder::new().stack_size(8 * MIB).spawn(move || sleeper(long)).unwrap();
    assert!(sleeper.join().unwrap());
}

fn stacks_are_reused() {
    let round = || {
        let all: Vec<_> = (0..500).map(|_| go(|| deep(16 << 10, &mut yield_now))).collect();
        all.into_iter().for_each(|h| h.join().unwrap());
    };
    (0..20).for_each(|_| round());
    let (mapped, resident) = (status_bytes("VmSize"), status_bytes("VmRSS"));
    (0..200).for_each(|_| round());
    // malloc may make an arena for a thread (64 MiB of address space), or a thread may start.
    let (mapped_now, resident_now) = (status_bytes("VmSize"), status_bytes("VmRSS"));
    assert!(mapped_now <= mapped + 200 * MIB, "{} MiB more", (mapped_now - mapped) / MIB);
    assert!(resident_now <= resident + 20 * MIB, "{} MiB more", (resident_now - resident) / MIB);
}

#[test]
fn ended_goroutines_leave_their_stacks_to_others() {
    child::run("stacks_are_reused").assert_success();
}

fn goroutine_overflows() {
    let overflows = || {
        println!("{}", mungo::current().id()); // it, not its spawner, which may come too late
        deep(10 * MIB, &mut || ());
    };
    _ = Builder::new().name("deep one".to_owned()).spawn(overflows).unwrap().join();
}

#[test]
fn an_overflow_says_whose_it_was_and_aborts() {
    let ended = child::run("goroutine_overflows");
    let id = ended.stdout.trim();
    ended
        .assert_signal(libc::SIGABRT)
        .assert_says(&format!("goroutine {id} 'deep one' has overflowed its stack"))
        .assert_says("spawned at crates/mungo/tests/stacks.rs:");
}

/// The handler passes on what is not its own.
#[test]
fn an_overflow_of_a_plain_thread_is_reported_by_std() {
    let name = "an_overflow_of_a_plain_thread_is_reported_by_std";
    if child::is_test_child(name) {
        go(|| ()).join().unwrap();
        let plain = std::thread::Builder::new().name("plain".into());
        _ = plain.stack_size(64 << 10).spawn(|| deep(10 * MIB, &mut || ())).unwrap().join();
        return;
    }
    let ended = child::run_test(name);
    ended.assert_signal(libc::SIGABRT).assert_says("'plain'").assert_says("has overflowed its stack");
    ended.assert_does_not_say("mungo: goroutine");
}
