//! What the tests of thread-locals and of allocators share.
#![allow(dead_code)] // each test file uses a part

#[allow(clippy::duplicate_mod)] // some of these have `common` too
#[path = "../common/emulator.rs"]
pub(crate) mod emulator;

use std::cell::Cell;
use std::hint::black_box;
use std::panic::PanicHookInfo;
use std::process::Output;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

/// For files whose tests are about own thread-locals: ends the process with a message, before the harness starts, where
/// goroutines have none.
#[macro_export]
macro_rules! own_thread_locals_only {
    () => {
        #[used]
        // SAFETY: the C library calls these functions, of this type, before `main`.
        #[unsafe(link_section = ".init_array")]
        static SKIP: extern "C" fn() = $crate::tls_support::skip_without_own_thread_locals;
    };
}

pub(crate) extern "C" fn skip_without_own_thread_locals() {
    const HWCAP2_FSGSBASE: u64 = 2;
    let forced = std::env::var("MUNGO_DEBUG").is_ok_and(|debug| debug.contains("owntls=0"));
    // SAFETY: no memory involved.
    let impossible = unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE == 0;
    // A child of a test has the variable from that test.
    if (forced || impossible) && std::env::var_os(CHILD).is_none() {
        println!(
            "skipped: goroutines have no thread-locals of their own here (MUNGO_DEBUG=owntls=0, or no fsgsbase)"
        );
        std::process::exit(0);
    }
}

/// Switches to another OS thread that [`migrate`] and [`yield_and_count`] saw.
pub(crate) static MIGRATIONS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn runtime(procs: usize) -> mungo::Runtime {
    mungo::Runtime::builder().procs(procs).build().expect("a runtime")
}

/// Waits until everything has ended, so that a test leaves nothing behind.
pub(crate) fn finish(runtime: mungo::Runtime) {
    runtime.shutdown(Duration::from_secs(60)).expect("all goroutines have ended");
}

/// The OS thread. By the system call: what glibc knows is the goroutine's.
pub(crate) fn os_thread() -> i64 {
    // SAFETY: asks the kernel.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// Moves the calling goroutine to another OS thread. The runtime needs two Ps that are not blocked.
///
/// It leaves a goroutine behind that keeps its thread busy for a while, so that another one comes and steals it. One
/// at a time: while all Ps are kept busy nobody steals.
pub(crate) fn migrate() {
    static TURN: AtomicBool = AtomicBool::new(false);
    let from = os_thread();
    while os_thread() == from {
        if TURN.swap(true, Acquire) {
            mungo::sleep(Duration::from_micros(50));
            continue;
        }
        let gone = Arc::new(AtomicBool::new(false));
        let seen = gone.clone();
        drop(mungo::go(move || {
            let start = Instant::now();
            while !seen.load(Relaxed) && start.elapsed() < Duration::from_millis(2) {
                std::thread::yield_now();
            }
        }));
        mungo::yield_now();
        gone.store(true, Relaxed);
        TURN.store(false, Release);
    }
    MIGRATIONS.fetch_add(1, Relaxed);
}

/// Yields, and says whether the goroutine came back on another OS thread.
pub(crate) fn yield_and_count() -> bool {
    let from = os_thread();
    mungo::yield_now();
    let moved = os_thread() != from;
    MIGRATIONS.fetch_add(u64::from(moved), Relaxed);
    moved
}

/// Plain threads that wake goroutines. What is woken from outside goes to the global queue, and on to any P.
pub(crate) struct Ferry {
    waiting: Arc<Mutex<Vec<mungo::Goroutine>>>,
    done: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// To [`cross`](Boat::cross) with.
#[derive(Clone)]
pub(crate) struct Boat(Arc<Mutex<Vec<mungo::Goroutine>>>);

impl Ferry {
    pub(crate) fn new(threads: usize) -> Ferry {
        let waiting = Arc::new(Mutex::new(Vec::<mungo::Goroutine>::new()));
        let done = Arc::new(AtomicBool::new(false));
        let threads = (0..threads).map(|_| {
            let (waiting, done) = (waiting.clone(), done.clone());
            std::thread::spawn(move || {
                while !done.load(Acquire) {
                    let batch = std::mem::take(&mut *waiting.lock().expect("nobody panics"));
                    batch.iter().for_each(mungo::Goroutine::unpark);
                    std::thread::yield_now();
                }
            })
        });
        Ferry { threads: threads.collect(), waiting, done }
    }

    pub(crate) fn boat(&self) -> Boat {
        Boat(self.waiting.clone())
    }
}

impl Drop for Ferry {
    fn drop(&mut self) {
        self.done.store(true, Release);
        self.threads.drain(..).for_each(|thread| thread.join().expect("a ferry sinks"));
    }
}

impl Boat {
    /// Parks until the ferry wakes the goroutine, perhaps on another OS thread.
    pub(crate) fn cross(&self) {
        let from = os_thread();
        self.0.lock().expect("nobody panics").push(mungo::current());
        mungo::park();
        MIGRATIONS.fetch_add(u64::from(os_thread() != from), Relaxed);
    }
}

/// Panics whose message starts with this are part of a test.
pub(crate) const EXPECTED: &str = "expected: ";

/// Keeps expected panics off the screen.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if !info.payload_as_str().is_some_and(|text| text.starts_with(EXPECTED)) {
                loud(info);
            }
        }));
    });
}

const CHILD: &str = "MUNGO_TEST_CHILD";

/// Runs the test `name` again, alone in a process of its own. `None`: this is that process.
pub(crate) fn in_child(name: &str, env: &[(&str, &str)]) -> Option<Output> {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return None;
    }
    let output = emulator::this()
        .args(["--exact", name, "--nocapture", "--include-ignored", "--test-threads=1"])
        .env(CHILD, name)
        .envs(env.iter().copied())
        .output()
        .expect("the test can be run again");
    assert!(
        output.status.success(),
        "{name} in a child: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Some(output)
}

/// Resident memory of this process.
pub(crate) fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux kernel");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

/// Spawns and joins `count` goroutines, some at a time.
pub(crate) fn spawn_cycles(count: usize, body: fn(usize)) {
    const AT_ONCE: usize = 100;
    let mut handles = Vec::with_capacity(AT_ONCE);
    for from in (0..count).step_by(AT_ONCE) {
        handles.extend((from..from + AT_ONCE).map(|i| mungo::go(move || body(i))));
        handles.drain(..).for_each(|h| h.join().expect("it does not panic"));
    }
}

/// A million goroutines come and go; what the process occupies stays. To be called in a child process.
pub(crate) fn assert_flat(procs: usize, body: fn(usize)) {
    // The first ones fill caches: malloc's arenas, slots, Gs.
    const SLACK_KIB: u64 = 6 << 10;
    let rt = runtime(procs);
    rt.run(|| spawn_cycles(200_000, body));
    let before = rss_kib();
    rt.run(|| spawn_cycles(1_000_000, body));
    let after = rss_kib();
    println!("resident: {before} KiB after 200,000 goroutines, {after} KiB after a million more");
    assert!(after <= before + SLACK_KIB, "grew from {before} to {after} KiB");
    finish(rt);
}

/// A value that fills its memory with a pattern, and can tell whether it is still there.
pub(crate) struct Pattern(Vec<u64>);

impl Pattern {
    pub(crate) fn new(words: usize, seed: u64) -> Pattern {
        Pattern((0..words as u64).map(|i| seed ^ i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect())
    }

    pub(crate) fn check(&self) {
        let Some(seed) = self.0.first().copied() else { return };
        for (i, word) in self.0.iter().enumerate() {
            assert_eq!(*word, seed ^ (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15), "memory was overwritten");
        }
    }
}

/// A few goroutines allocate without a call to the runtime, and lose their Ps in the middle of it. Returns how often.
pub(crate) fn preempted_storm() -> u64 {
    thread_local! {
        static MINE: Cell<u64> = const { Cell::new(0) };
    }
    let slice = Duration::from_micros(100);
    let rt = mungo::Runtime::builder().procs(2).time_slice(slice).build().expect("a runtime");
    rt.run(|| {
        let all: Vec<_> = (1..=6u64)
            .map(|id| {
                mungo::go(move || {
                    let end = Instant::now() + Duration::from_millis(300);
                    let mut kept: Vec<Pattern> = Vec::new();
                    MINE.set(id);
                    while Instant::now() < end {
                        for i in 0..50 {
                            kept.push(Pattern::new(i, id));
                            MINE.set(MINE.get() + 6);
                        }
                        kept.drain(..).for_each(|pattern| pattern.check());
                        assert_eq!(MINE.get() % 6, id % 6, "its own thread-local");
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().expect("its memory is as it left it"));
    });
    let preemptions = rt.metrics().per_proc.iter().map(|p| p.preemptions).sum();
    finish(rt);
    preemptions
}

/// Many goroutines allocate, check, hand over and free memory while they migrate. Returns the migrations seen.
pub(crate) fn malloc_storm(procs: usize, goroutines: u64, rounds: u64) -> u64 {
    let rt = runtime(procs);
    let ferry = Ferry::new(2);
    let before = MIGRATIONS.load(Relaxed);
    // Memory is freed by others than those who made it.
    let exchange: Arc<Vec<Mutex<Vec<Pattern>>>> = Arc::new((0..64).map(|_| Mutex::default()).collect());
    rt.run(|| {
        let all: Vec<_> = (0..goroutines)
            .map(|id| {
                let (exchange, boat) = (exchange.clone(), ferry.boat());
                mungo::go(move || {
                    let mut rng = id.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
                    let mut mine: Vec<Pattern> = Vec::new();
                    for _ in 0..rounds {
                        rng ^= rng << 13;
                        rng ^= rng >> 7;
                        rng ^= rng << 17;
                        // Mostly small, now and then some pages.
                        let words = if rng % 64 == 0 { 2000 } else { 1 + rng as usize % 60 };
                        mine.push(Pattern::new(words, rng));
                        mine.last_mut().expect("just pushed").0.reserve(words);
                        boat.cross();
                        mine.iter().for_each(Pattern::check);
                        if mine.len() > 4 {
                            let given = mine.swap_remove(rng as usize % 4);
                            let mut shelf = exchange[rng as usize % 64].lock().expect("nobody panics");
                            shelf.push(given);
                            if shelf.len() > 8 {
                                black_box(shelf.swap_remove(rng as usize % 8)).check();
                            }
                        }
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().expect("its memory is as it left it"));
    });
    exchange.iter().for_each(|shelf| shelf.lock().expect("nobody panics").iter().for_each(Pattern::check));
    finish(rt);
    MIGRATIONS.load(Relaxed) - before
}

/// Yields while it is dropped, again and again.
pub(crate) struct YieldsInDrop(pub(crate) usize);

impl Drop for YieldsInDrop {
    fn drop(&mut self) {
        for _ in 0..self.0 {
            assert!(std::thread::panicking(), "dropped by a panic");
            mungo::yield_now();
        }
    }
}

/// Goroutines that panic and yield in `Drop` leave the others alone, in either mode.
pub(crate) fn panics_stay_private(procs: usize) {
    quiet_panics();
    let rt = runtime(procs);
    let mutexes: Arc<Vec<Mutex<u64>>> = Arc::new((0..8).map(Mutex::new).collect());
    rt.run(|| {
        let all: Vec<_> = (0..200usize)
            .map(|i| {
                let mutexes = mutexes.clone();
                mungo::go(move || {
                    if i % 4 == 0 {
                        let yields = YieldsInDrop(20);
                        let _held = &yields;
                        panic!("{EXPECTED}{i}");
                    }
                    for round in 0..50 {
                        assert!(!std::thread::panicking(), "somebody else's panic");
                        *mutexes[(i + round) % 8].lock().expect("no panic with the lock held") += 1;
                        mungo::yield_now();
                    }
                })
            })
            .collect();
        for (i, handle) in all.into_iter().enumerate() {
            match handle.join() {
                Ok(()) => assert_ne!(i % 4, 0, "{i} panics"),
                Err(payload) => {
                    let text = payload.downcast_ref::<String>().expect("a formatted message");
                    assert_eq!(*text, format!("{EXPECTED}{i}"));
                }
            }
        }
    });
    assert!(mutexes.iter().all(|mutex| !mutex.is_poisoned()));
    finish(rt);
}
