//! Goroutines interrupted by injected calls: nothing of theirs changes, wherever they go on. Nor by thread-switching.
#![cfg(all(mungo_native, not(miri)))]

#[macro_use]
mod common;
mod inject_support;

use common::{child, gettid, hasty_runtime, wait_until};
use inject_support::{TURNS, compute, rounds};
use mungo::Runtime;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

children!(
    lines_on_stdout,
    many_that_compute,
    by_thread,
    all_rounds_by_thread,
    at_the_start_of_a_mapping,
    at_the_end_of_a_mapping,
    denormals_are_zero,
);

fn injected(runtime: &Runtime) -> u64 {
    runtime.metrics().interruptions.injected
}

/// Interruptions that suspended a goroutine, by whatever way.
fn interrupted(runtime: &Runtime) -> u64 {
    injected(runtime) + runtime.metrics().interruptions.by_thread
}

/// Two goroutines for each kind of round, until they were interrupted `wanted` times together, however long that takes
/// on a busy machine: it goes on while interruptions come.
fn check_all(wanted: u64) {
    let runtime = hasty_runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let failed = Arc::new(AtomicUsize::new(0));
    let goroutines: Vec<_> = rounds()
        .chain(rounds())
        .enumerate()
        .map(|(at, (name, round))| {
            let (stop, failed) = (stop.clone(), failed.clone());
            let task = move || {
                let checked = std::panic::catch_unwind(|| {
                    let mut n = at as u64;
                    while !stop.load(Relaxed) {
                        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        round(n);
                    }
                });
                if checked.is_err() {
                    failed.fetch_add(1, Relaxed);
                }
                checked.is_ok()
            };
            (name, runtime.spawn(task))
        })
        .collect();
    let (mut seen, mut since) = (0, Instant::now());
    while seen < wanted && failed.load(Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
        let now = interrupted(&runtime);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < common::PATIENCE, "no interruption comes after the first {now}");
    }
    stop.store(true, Relaxed);
    for (name, goroutine) in goroutines {
        assert!(goroutine.join().unwrap(), "{name} changed");
    }
    common::end(runtime);
}

#[test]
fn nothing_changes_in_20_000_injected_calls() {
    check_all(20_000);
}

#[test]
#[ignore = "takes minutes"]
fn nothing_changes_in_a_million_injected_calls() {
    check_all(1_000_000);
}

/// Ten times as many as CI has time for; `ci/stress.sh` runs it in each round.
#[test]
#[ignore = "takes a minute: ci/stress.sh"]
fn stress_nothing_changes_in_200_000_injected_calls() {
    check_all(200_000);
}

fn all_rounds_by_thread() {
    check_all(5_000);
    println!("done");
}

/// The same rounds, with goroutines that keep their threads.
#[test]
fn nothing_changes_in_5_000_switches_of_threads() {
    let mut command = child::command("all_rounds_by_thread");
    command.env("MUNGO_DEBUG", "asyncpreempt=thread");
    assert!(child::finish(command).assert_success().stdout.contains("done"));
}

#[test]
fn the_call_is_injected_unless_something_else_is_asked_for() {
    let runtime = hasty_runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let stop = stop.clone();
        runtime.spawn(move || while !stop.load(Relaxed) {});
    }
    wait_until("100 calls are injected", || injected(&runtime) > 100);
    stop.store(true, Relaxed);
    let all = runtime.metrics().interruptions;
    assert_eq!((all.signal_mask, all.foreign_stack, all.shared_thread_locals), (0, 0, 0), "{all:?}");
    common::end(runtime);
}

fn by_thread() {
    let runtime = hasty_runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let stop = stop.clone();
        runtime.spawn(move || while !stop.load(Relaxed) {});
    }
    wait_until("threads are switched", || runtime.metrics().interruptions.by_thread > 100);
    assert_eq!(injected(&runtime), 0);
    stop.store(true, Relaxed);
    common::end(runtime);
}

#[test]
fn thread_switching_can_be_asked_for() {
    let mut command = child::command("by_thread");
    command.env("MUNGO_DEBUG", "asyncpreempt=thread");
    child::finish(command).assert_success();
}

#[test]
fn goroutines_move_between_threads_and_keep_their_thread_locals() {
    thread_local!(static OWN: AtomicU64 = const { AtomicU64::new(0) });
    let runtime = hasty_runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let moves = Arc::new(AtomicU64::new(0));
    let goroutines: Vec<_> = (1..=6_u64)
        .map(|n| {
            let (stop, moves) = (stop.clone(), moves.clone());
            runtime.spawn(move || {
                OWN.with(|own| {
                    let mut thread = gettid();
                    own.store(n, Relaxed);
                    while !stop.load(Relaxed) {
                        black_box(compute(n, TURNS));
                        assert!(OWN.with(|again| std::ptr::eq(own, again)));
                        assert_eq!(own.load(Relaxed), n);
                        let now = gettid();
                        moves.fetch_add(u64::from(now != thread), Relaxed);
                        thread = now;
                    }
                });
            })
        })
        .collect();
    wait_until("they have moved 100 times", || moves.load(Relaxed) > 100);
    stop.store(true, Relaxed);
    goroutines.into_iter().for_each(|g| g.join().unwrap());
    common::end(runtime);
}

/// Its lines are checked by the test below.
fn lines_on_stdout() {
    let runtime = hasty_runtime(2);
    let next = Arc::new(AtomicU64::new(0));
    let goroutines: Vec<_> = (0..6_u64)
        .map(|n| {
            let next = next.clone();
            runtime.spawn(move || {
                for i in 0..500_u64 {
                    black_box(compute(n, TURNS / 8));
                    let line = format!("{n} {i} {:.3} {:?}", i as f64 / 3.0, vec![n; 40]);
                    println!("{line}");
                    next.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    goroutines.into_iter().for_each(|g| g.join().unwrap());
    eprintln!("{} interrupted", interrupted(&runtime));
    assert!(interrupted(&runtime) > 0);
}

#[test]
fn interrupted_printing_leaves_whole_lines_in_order() {
    for way in ["inject", "thread"] {
        let mut command = child::command("lines_on_stdout");
        command.env("MUNGO_DEBUG", format!("asyncpreempt={way}"));
        check_lines(&child::finish(command));
    }
}

#[track_caller]
fn check_lines(ended: &child::Ended) {
    ended.assert_success();
    let mut next = [0_u64; 6];
    for line in ended.stdout.lines() {
        let n: usize = line.split(' ').next().unwrap().parse().unwrap();
        let i = next[n];
        assert_eq!(line, format!("{n} {i} {:.3} {:?}", i as f64 / 3.0, vec![n; 40]));
        next[n] += 1;
    }
    assert_eq!(next, [500; 6]);
}

/// 2,000 goroutines of some 4 ms each, in slices of 1 ms, need no thread while they wait.
fn many_that_compute() {
    const PROCS: usize = 2;
    let runtime = Runtime::builder().procs(PROCS).time_slice(Duration::from_millis(1)).build().unwrap();
    let four_ms = {
        let best = (0..20).map(|n| {
            let start = Instant::now();
            black_box(compute(n, 100_000));
            start.elapsed().as_nanos()
        });
        (100_000 * 4_000_000 / best.min().unwrap()) as u64
    };
    let done = Arc::new(AtomicUsize::new(0));
    for n in 0..2_000 {
        let done = done.clone();
        runtime.spawn(move || {
            black_box(compute(n, four_ms));
            done.fetch_add(1, Relaxed);
        });
    }
    let mut most = 0;
    while done.load(Relaxed) < 2_000 {
        most = most.max(runtime.metrics().threads);
        std::thread::sleep(Duration::from_millis(1));
    }
    let interruptions = runtime.metrics().interruptions;
    eprintln!("{most} threads at most, {interruptions:?}");
    assert!(interruptions.injected > 1_000, "{interruptions:?}");
    // Under an emulator a signal takes longer than the monitor waits for it, and then the P goes on another thread.
    let spare = if child::is_slow() { 32 } else { 8 };
    assert!(most <= PROCS as u64 + spare, "{most} threads");
}

#[test]
fn goroutines_that_compute_need_few_threads() {
    let ended = child::run("many_that_compute");
    ended.assert_success();
    eprintln!("{}", ended.stderr);
}

/// The control words of the floating-point units, with bits that a program may set: results that are too small, and
/// those arguments too, count as zero; x87 rounds to 53 bits.
#[cfg(target_arch = "x86_64")]
mod control {
    pub(super) const UNUSUAL: [u32; 2] = [0x9fc0, 0x27f];

    pub(super) fn get() -> [u32; 2] {
        let (mut mxcsr, mut x87) = (0_u32, 0_u16);
        // SAFETY: writes the two words.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack));
            std::arch::asm!("fnstcw [{}]", in(reg) &raw mut x87, options(nostack));
        }
        [mxcsr & !0x3f, x87.into()] // without what has happened since
    }

    pub(super) fn set([mxcsr, x87]: [u32; 2]) {
        // SAFETY: reads the two words; this thread computes nothing that these bits change.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr, options(nostack));
            std::arch::asm!("fldcw [{}]", in(reg) &raw const x87, options(nostack));
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod control {
    pub(super) const UNUSUAL: u64 = 1 << 24;

    pub(super) fn get() -> u64 {
        let fpcr;
        // SAFETY: reads the register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nostack)) };
        fpcr
    }

    pub(super) fn set(fpcr: u64) {
        // SAFETY: this thread computes nothing that this bit changes.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) fpcr, options(nostack)) };
    }
}

/// What the program sets before it starts the runtime is in force on all goroutines, whichever was interrupted before.
fn denormals_are_zero() {
    control::set(control::UNUSUAL);
    let runtime = hasty_runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let stop = stop.clone();
        runtime.spawn(move || while !stop.load(Relaxed) {});
    }
    while injected(&runtime) < 1_000 {
        assert_eq!(runtime.spawn(control::get).join().unwrap(), control::UNUSUAL);
    }
    stop.store(true, Relaxed);
    common::end(runtime);
}

#[test]
fn control_words_of_the_program_outlive_interruptions() {
    child::run("denormals_are_zero").assert_success();
}

/// The interrupted instruction is the first that can be read, and the result register has the value of a system call
/// that was interrupted.
#[cfg(target_arch = "x86_64")]
fn at_the_start_of_a_mapping() {
    const PAGE: usize = 4096;
    // `dec edi; jnz` to itself; `ret`
    const CODE: [u8; 5] = [0xff, 0xcf, 0x75, 0xfc, 0xc3];
    // SAFETY: two fresh pages: the first cannot be read, the second gets a function that counts down.
    let function = unsafe {
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), 2 * PAGE, read_write, private, -1, 0);
        assert!(page != libc::MAP_FAILED);
        let function = page.byte_add(PAGE);
        function.cast::<[u8; CODE.len()]>().write(CODE);
        assert_eq!(libc::mprotect(function, PAGE, libc::PROT_READ | libc::PROT_EXEC), 0);
        assert_eq!(libc::mprotect(page, PAGE, libc::PROT_NONE), 0);
        function.addr()
    };
    let runtime = hasty_runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let stop = stop.clone();
        runtime.spawn(move || {
            while !stop.load(Relaxed) {
                // SAFETY: it returns after 10,000 turns; a call below the red zone of this function.
                unsafe {
                    std::arch::asm!("call {function}", function = in(reg) function, inout("edi") 10_000 => _,
                        inout("rax") -i64::from(libc::EINTR) => _, clobber_abi("C"));
                }
            }
        });
    }
    wait_until("it is interrupted there", || injected(&runtime) > 500);
    stop.store(true, Relaxed);
    common::end(runtime);
}

#[cfg(not(target_arch = "x86_64"))]
fn at_the_start_of_a_mapping() {}

#[test]
fn the_first_instruction_of_a_mapping_can_be_interrupted() {
    child::run("at_the_start_of_a_mapping").assert_success();
}

/// The interrupted instruction is the last that can be read.
fn at_the_end_of_a_mapping() {
    const PAGE: usize = 4096;
    #[cfg(target_arch = "x86_64")]
    const RET: u8 = 0xc3;
    #[cfg(target_arch = "aarch64")]
    const RET: u32 = 0xd65f_03c0;
    // SAFETY: two fresh pages: the first gets a function that returns at once, the second cannot be read.
    let function: extern "C" fn() = unsafe {
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), 2 * PAGE, read_write, private, -1, 0);
        assert!(page != libc::MAP_FAILED);
        let last = page.byte_add(PAGE - size_of_val(&RET)).cast::<[_; 1]>();
        last.write([RET]);
        assert_eq!(libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC), 0);
        assert_eq!(libc::mprotect(page.add(PAGE), PAGE, libc::PROT_NONE), 0);
        std::mem::transmute(last)
    };
    let runtime = hasty_runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let stop = stop.clone();
        runtime.spawn(move || {
            while !stop.load(Relaxed) {
                function();
            }
        });
    }
    wait_until("it is interrupted there", || injected(&runtime) > 2_000);
    stop.store(true, Relaxed);
    common::end(runtime);
}

#[test]
fn the_last_instruction_of_a_mapping_can_be_interrupted() {
    child::run("at_the_end_of_a_mapping").assert_success();
}
