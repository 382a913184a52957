//! Goroutines that never call the runtime do not keep others from running. Counts and states, no clocks.

mod common;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod inject_support;

use common::{Deadline, preemptions, runtime, wait_until};
use mungo::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

/// Hogs that spin on a flag without a call into the runtime; stopped by the guard.
struct Hogs {
    stop: Arc<AtomicBool>,
    progress: Arc<Vec<Progress>>,
}

/// Alone on its cache line: a hog whose neighbour runs at the same time would get on six times more slowly.
#[derive(Default)]
#[repr(align(128))]
struct Progress(AtomicU64);

impl std::ops::Deref for Progress {
    type Target = AtomicU64;
    fn deref(&self) -> &AtomicU64 {
        &self.0
    }
}

impl Hogs {
    fn start(runtime: &Runtime, n: usize) -> Hogs {
        let stop = Arc::new(AtomicBool::new(false));
        let progress: Arc<Vec<Progress>> = Arc::new((0..n).map(|_| Progress::default()).collect());
        for i in 0..n {
            let (stop, progress) = (stop.clone(), progress.clone());
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    progress[i].fetch_add(1, Relaxed);
                }
            });
        }
        Hogs { stop, progress }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

#[test]
fn a_tight_loop_lets_others_run() {
    let runtime = runtime(1);
    let hogs = Hogs::start(&runtime, 1);
    wait_until("the hog runs", || hogs.progress[0].load(Relaxed) > 0);
    assert_eq!(runtime.run(|| 7), 7);
}

#[test]
fn each_of_many_tight_loops_makes_progress() {
    let runtime = runtime(2);
    let hogs = Hogs::start(&runtime, 8);
    wait_until("all hogs run", || hogs.progress.iter().all(|p| p.load(Relaxed) > 0));
    // And again: none is left behind after its first slice.
    let seen: Vec<u64> = hogs.progress.iter().map(|p| p.load(Relaxed)).collect();
    wait_until("all hogs run again", || hogs.progress.iter().zip(&seen).all(|(p, s)| p.load(Relaxed) > *s));
    drop(hogs);
    runtime.shutdown(Duration::from_secs(20)).unwrap();
}

/// How often a hog gets round its loop in a millisecond that its thread has a CPU for.
fn rounds_per_ms() -> u64 {
    const MEASURED_MS: u64 = 10;
    let used_ms = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: room for a time.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
    };
    let (stop, progress, end_ms) = (AtomicBool::new(false), Progress::default(), used_ms() + MEASURED_MS);
    while !stop.load(Relaxed) {
        if progress.fetch_add(1, Relaxed) % 4096 == 0 {
            stop.store(used_ms() >= end_ms, Relaxed);
        }
    }
    progress.load(Relaxed) / MEASURED_MS
}

/// Slices with a CPU, not preemptions: on a busy machine most slices pass while the kernel runs something else.
#[test]
fn tight_loops_take_turns() {
    const SLICE_MS: u64 = 2;
    let enough = 8 * 20 * SLICE_MS * rounds_per_ms();
    let runtime = Runtime::builder().procs(2).time_slice(Duration::from_millis(SLICE_MS)).build().unwrap();
    let hogs = Hogs::start(&runtime, 8);
    let all = || hogs.progress.iter().map(|p| p.load(Relaxed));
    wait_until("each had some 20 slices", || all().sum::<u64>() > enough);
    let progress: Vec<u64> = all().collect();
    let (least, most) = (progress.iter().min().unwrap(), progress.iter().max().unwrap());
    assert!(least * 4 > *most, "{progress:?}");
}

#[test]
fn a_sleeper_wakes_up_while_all_procs_compute() {
    let runtime = runtime(2);
    let _hogs = Hogs::start(&runtime, 6);
    let sleeps = runtime.run(|| {
        let mut n = 0;
        for _ in 0..100 {
            mungo::sleep(Duration::from_millis(1));
            n += 1;
        }
        n
    });
    assert_eq!(sleeps, 100);
}

#[test]
fn spawning_works_while_all_procs_compute() {
    let runtime = runtime(2);
    let _hogs = Hogs::start(&runtime, 4);
    let sum: u64 = runtime.run(|| (0..100u64).map(|i| mungo::go(move || i).join().unwrap()).sum());
    assert_eq!(sum, 4950);
}

#[test]
fn preemption_happened_and_was_counted() {
    let runtime = runtime(1);
    let hogs = Hogs::start(&runtime, 2);
    wait_until("both run", || hogs.progress.iter().all(|p| p.load(Relaxed) > 0));
    assert!(preemptions(&runtime) > 0);
}

#[test]
fn a_goroutine_preempted_with_a_std_mutex_does_not_hang_the_program() {
    let runtime = runtime(1);
    let lock = Arc::new(std::sync::Mutex::new(0u64));
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..4 {
        let (lock, done) = (lock.clone(), done.clone());
        runtime.spawn(move || {
            for _ in 0..20 {
                let mut n = lock.lock().unwrap();
                // Longer than a slice now and then: it is preempted while it holds the lock.
                let end = Deadline::after(Duration::from_millis(4));
                while !end.passed() {
                    *n = n.wrapping_add(1);
                }
            }
            done.fetch_add(1, Release);
        });
    }
    wait_until("all are done", || done.load(Acquire) == 4);
}

#[test]
fn preempted_malloc_does_not_deadlock() {
    let runtime = runtime(2);
    let done = Arc::new(AtomicUsize::new(0));
    for seed in 0..8u64 {
        let done = done.clone();
        runtime.spawn(move || {
            let end = Deadline::after(Duration::from_millis(400));
            let mut kept: Vec<Vec<u8>> = Vec::new();
            let mut x = seed + 1;
            while !end.passed() {
                for _ in 0..200 {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    kept.push(vec![x as u8; (x >> 33) as usize % 3000]);
                }
                assert!(kept.iter().all(|v| v.windows(2).all(|w| w[0] == w[1])));
                kept.clear();
            }
            done.fetch_add(1, Release);
        });
    }
    wait_until("all are done", || done.load(Acquire) == 8);
}

#[test]
fn preempted_formatting_and_loading_do_not_deadlock() {
    let runtime = runtime(2);
    let done = Arc::new(AtomicUsize::new(0));
    for i in 0..6 {
        let done = done.clone();
        runtime.spawn(move || {
            let end = Deadline::after(Duration::from_millis(300));
            while !end.passed() {
                if i % 2 == 0 {
                    // stdout's lock, captured by the harness or not.
                    let mut out = std::io::stdout().lock();
                    std::io::Write::write_all(&mut out, b"").unwrap();
                } else {
                    // The loader's lock.
                    // SAFETY: looks a symbol up.
                    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"qsort".as_ptr()) };
                    assert!(!at.is_null());
                }
            }
            done.fetch_add(1, Release);
        });
    }
    wait_until("all are done", || done.load(Acquire) == 6);
}

/// A checked loop per register class: a wrong value after a preemption is a lost register.
#[cfg(target_arch = "x86_64")]
mod registers {
    use super::*;

    fn check(make: impl Fn(u64) -> Box<dyn FnOnce(Deadline) -> u64 + Send> + Send) {
        let runtime = runtime(1);
        let rounds: Vec<u64> = runtime.run(move || {
            let end = Deadline::after(Duration::from_millis(300));
            let tasks: Vec<_> = (1..=3)
                .map(|i| {
                    let task = make(i);
                    mungo::go(move || task(end))
                })
                .collect();
            tasks.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(rounds.iter().all(|&r| r > 0));
    }

    #[test]
    fn general_purpose_registers_and_flags() {
        check(|i| {
            Box::new(move |end| {
                let expect = mix(i);
                let mut rounds = 0u64;
                while rounds == 0 || !end.passed() {
                    assert_eq!(mix(std::hint::black_box(i)), expect);
                    rounds += 1;
                }
                rounds
            })
        });
    }

    /// Sums, rotations and carries that all depend on each other.
    #[inline(never)]
    fn mix(i: u64) -> (u64, u64, u64) {
        let (mut a, mut b, mut carry) = (i, !i, 0u64);
        for k in 0..100_000u64 {
            let (sum, overflow) = a.overflowing_add(k.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            a = sum;
            carry += u64::from(overflow);
            b = b.rotate_left(7) ^ a;
        }
        (a, b, carry)
    }

    #[test]
    fn x87_and_sse() {
        check(|i| {
            Box::new(move |end| {
                let mut rounds = 0u64;
                while rounds == 0 || !end.passed() {
                    let x = f64::from(i as u32);
                    let mut sse = [x, x + 1.0];
                    for _ in 0..100_000 {
                        sse = [sse[0] * 1.000_000_1 + 1.0, sse[1] * 1.000_000_1 + 1.0];
                    }
                    let mut again = [x, x + 1.0];
                    for _ in 0..100_000 {
                        again = [again[0] * 1.000_000_1 + 1.0, again[1] * 1.000_000_1 + 1.0];
                    }
                    assert_eq!(sse.map(f64::to_bits), again.map(f64::to_bits));
                    let mut out = 0f64;
                    // SAFETY: pushes a value, adds ones in x87 registers for a while, pops it.
                    unsafe {
                        std::arch::asm!(
                            "fld qword ptr [{x}]", "2:", "fld1", "faddp", "dec {n}", "jnz 2b", "fstp qword ptr [{out}]",
                            x = in(reg) &x, out = in(reg) &mut out, n = inout(reg) 200_000u64 => _,
                            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                        );
                    }
                    assert_eq!(out, x + 200_000.0);
                    rounds += 1;
                }
                rounds
            })
        });
    }

    #[test]
    fn avx_and_avx512() {
        if !is_x86_feature_detected!("avx2") {
            eprintln!("skipped: no AVX2");
            return;
        }
        check(|i| {
            Box::new(move |end| {
                let mut rounds = 0u64;
                while rounds == 0 || !end.passed() {
                    // SAFETY: detected above, and below.
                    let ok =
                        unsafe { avx2(i) } && (!is_x86_feature_detected!("avx512f") || unsafe { avx512(i) });
                    assert!(ok, "a vector register changed under a preempted goroutine");
                    rounds += 1;
                }
                rounds
            })
        });
    }

    /// All sixteen YMM registers hold the same pattern through a long loop.
    #[target_feature(enable = "avx2")]
    unsafe fn avx2(i: u64) -> bool {
        let pattern = [i, !i, i << 32, i.wrapping_mul(3)];
        let mut out = [0u64; 4];
        // SAFETY: loads a pattern into each register, waits, and folds them with AND and OR.
        unsafe {
            std::arch::asm!(
                "vmovdqu ymm0, [{p}]", "vmovdqa ymm1, ymm0", "vmovdqa ymm2, ymm0", "vmovdqa ymm3, ymm0",
                "vmovdqa ymm4, ymm0", "vmovdqa ymm5, ymm0", "vmovdqa ymm6, ymm0", "vmovdqa ymm7, ymm0",
                "vmovdqa ymm8, ymm0", "vmovdqa ymm9, ymm0", "vmovdqa ymm10, ymm0", "vmovdqa ymm11, ymm0",
                "vmovdqa ymm12, ymm0", "vmovdqa ymm13, ymm0", "vmovdqa ymm14, ymm0", "vmovdqa ymm15, ymm0",
                "2:", "dec {n}", "jnz 2b",
                "vpand ymm0, ymm0, ymm1", "vpand ymm0, ymm0, ymm2", "vpand ymm0, ymm0, ymm3", "vpand ymm0, ymm0, ymm4",
                "vpand ymm0, ymm0, ymm5", "vpand ymm0, ymm0, ymm6", "vpand ymm0, ymm0, ymm7", "vpand ymm0, ymm0, ymm8",
                "vpand ymm0, ymm0, ymm9", "vpand ymm0, ymm0, ymm10", "vpand ymm0, ymm0, ymm11",
                "vpand ymm0, ymm0, ymm12", "vpand ymm0, ymm0, ymm13", "vpand ymm0, ymm0, ymm14",
                "vpor ymm0, ymm0, ymm15",
                "vmovdqu [{o}], ymm0", "vzeroupper",
                p = in(reg) pattern.as_ptr(), o = in(reg) out.as_mut_ptr(), n = inout(reg) 300_000u64 => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            );
        }
        out == pattern
    }

    /// The upper halves, the upper sixteen registers and a mask register.
    #[target_feature(enable = "avx512f")]
    unsafe fn avx512(i: u64) -> bool {
        let pattern = [i, !i, i << 8, i << 16, i << 24, i << 40, i << 48, i ^ 0xffff];
        let mut out = [0u64; 8];
        let mut mask = 0u32;
        // SAFETY: as above.
        unsafe {
            std::arch::asm!(
                "vmovdqu64 zmm0, [{p}]", "vmovdqa64 zmm16, zmm0", "vmovdqa64 zmm31, zmm0",
                "mov {m:e}, 0xa5a5", "kmovw k3, {m:e}",
                "2:", "dec {n}", "jnz 2b",
                "vpandq zmm0, zmm0, zmm16", "vporq zmm0, zmm0, zmm31", "vmovdqu64 [{o}], zmm0",
                "kmovw {m:e}, k3", "vzeroupper",
                p = in(reg) pattern.as_ptr(), o = in(reg) out.as_mut_ptr(), n = inout(reg) 300_000u64 => _,
                m = out(reg) mask,
                out("zmm0") _, out("zmm16") _, out("zmm31") _, out("k3") _,
            );
        }
        out == pattern && mask == 0xa5a5
    }
}

/// The same on aarch64, by rounds that check all registers of a class.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
#[test]
fn registers_of_each_class() {
    let runtime = runtime(1);
    let before = preemptions(&runtime);
    let stop = Arc::new(AtomicBool::new(false));
    let rounds: Vec<_> = inject_support::registers::ROUNDS
        .into_iter()
        .map(|(_, round)| {
            let stop = stop.clone();
            runtime.spawn(move || {
                let mut n = 0;
                while !stop.load(Relaxed) {
                    round(n);
                    n += 1;
                }
                n
            })
        })
        .collect();
    wait_until("they were interrupted often", || preemptions(&runtime) > before + 200);
    stop.store(true, Relaxed);
    rounds.into_iter().for_each(|g| assert!(g.join().unwrap() > 0));
}

/// Threads that go on in each other's place are called to one CPU for a moment: see `sys/affinity.rs`.
#[test]
fn no_thread_stays_limited_to_one_cpu() {
    let allowed = |tid: libc::pid_t| {
        // SAFETY: a set is plain bits, and the kernel fills it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(tid, size_of_val(&set), &mut set) == 0).then_some(libc::CPU_COUNT(&set))
        }
    };
    let limited = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let tids = tasks.map(|t| t.unwrap().file_name().into_string().unwrap().parse().unwrap());
        tids.filter_map(allowed).filter(|n| Some(*n) != allowed(0)).count()
    };
    let runtime = runtime(2);
    let hogs = Hogs::start(&runtime, 8);
    wait_until("they take turns", || preemptions(&runtime) > 100);
    drop(hogs);
    wait_until("all have ended", || runtime.metrics().goroutines == 0);
    // Other tests run in this process, whose threads may be limited just now.
    wait_until("no thread is limited", || limited() == 0);
}

/// All of these tests once more, with thread-switching.
#[test]
fn all_of_this_holds_with_thread_switching() {
    const DEBUG: &str = "MUNGO_DEBUG";
    const ONLY_BY_THREAD: &str = "asyncpreempt=thread";
    if std::env::var(DEBUG).is_ok_and(|debug| debug == ONLY_BY_THREAD) {
        return; // this is the child
    }
    let mut command = common::child::this();
    command.args(["--test-threads", "2"]).env(DEBUG, ONLY_BY_THREAD);
    common::child::finish(command).assert_success();
}
