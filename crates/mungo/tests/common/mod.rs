//! What the integration tests share: waiting for a state, child processes, seeds, a look at `/proc`.
#![allow(dead_code)] // each test binary uses its own part
#![allow(unused_macros)]

pub(crate) mod child;
pub(crate) mod emulator;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// A file that is removed with this.
#[derive(Debug)]
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new(name: &str) -> TempFile {
        TempFile(std::env::temp_dir().join(format!("mungo-test-{}-{name}", std::process::id())))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// After so long a state that has not come will not come. Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `state` holds; panics with `what` and a dump after [`PATIENCE`]. For goroutines and plain threads.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut state: impl FnMut() -> bool) {
    let start = Instant::now();
    while !state() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}; {}", mungo::debug::dump());
        mungo::sleep(Duration::from_micros(200));
    }
}

/// Waits until the goroutine of this name waits for something.
#[track_caller]
pub(crate) fn wait_until_parked(name: &str) {
    let options = mungo::debug::DumpOptions::new().stacks(false);
    wait_until("it is parked", || {
        let all = options.dump();
        let mut found = all.goroutines().iter().filter(|g| g.name.as_deref() == Some(name));
        found.any(|g| matches!(g.state, mungo::debug::State::Waiting(_)))
    });
}

/// A goroutine with a name, for [`wait_until_parked`].
pub(crate) fn go_named<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> mungo::JoinHandle<T> {
    mungo::Builder::new().name(name.to_owned()).spawn(f).expect("a goroutine")
}

/// A moment to come, for loops that must not call the runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(d: Duration) -> Deadline {
        Deadline(Instant::now() + d)
    }

    pub(crate) fn passed(self) -> bool {
        Instant::now() >= self.0
    }
}

pub(crate) fn runtime(procs: usize) -> mungo::Runtime {
    mungo::Runtime::builder().procs(procs).build().expect("a runtime")
}

/// With the shortest slice that there is.
pub(crate) fn hasty_runtime(procs: usize) -> mungo::Runtime {
    let slice = Duration::from_micros(100);
    mungo::Runtime::builder().procs(procs).time_slice(slice).build().expect("a runtime")
}

/// Ends a runtime, and fails if it does not end.
#[track_caller]
pub(crate) fn end(runtime: mungo::Runtime) {
    if let Err(e) = runtime.shutdown(PATIENCE) {
        panic!("the runtime did not end: {e}");
    }
}

/// Counts drops.
#[derive(Debug, Default)]
pub(crate) struct Drops(AtomicUsize);

/// One that is counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<'a>(&'a Drops);

impl Drops {
    pub(crate) fn leaked() -> &'static Drops {
        Box::leak(Box::default())
    }

    pub(crate) fn one(&self) -> Counted<'_> {
        Counted(self)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, SeqCst);
    }
}

/// A waker that counts.
#[derive(Debug, Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

pub(crate) fn counting() -> (Arc<Wakes>, Waker) {
    let wakes = Arc::<Wakes>::default();
    (wakes.clone(), wakes.into())
}

/// Why [`forbid`] cannot be used under an emulator.
pub(crate) const NO_FILTERS: &str = "filters of system calls are not emulated";

/// Makes a system call fail with ENOSYS from here on, in all threads, as the filter of a container may.
pub(crate) fn forbid(call: libc::c_long) {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the number of the call
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a program that outlives the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        let set = libc::syscall(libc::SYS_seccomp, mode, threads, &raw const program);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

/// How often goroutines lost their P because a slice was over.
pub(crate) fn preemptions(runtime: &mungo::Runtime) -> u64 {
    runtime.metrics().per_proc.iter().map(|p| p.preemptions).sum()
}

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// From `MUNGO_STRESS_SEED` or the clock; the seed is printed, so that a failure can be repeated.
    pub(crate) fn seeded(what: &str) -> Rng {
        let seed = match std::env::var("MUNGO_STRESS_SEED") {
            Ok(text) => text.trim().parse().expect("MUNGO_STRESS_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64),
        };
        eprintln!("{what}: MUNGO_STRESS_SEED={seed}");
        Rng::new(seed)
    }

    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// How long a stress test goes on: `MUNGO_STRESS_SECONDS`, else what it wants in CI.
pub(crate) fn stress_time(otherwise: Duration) -> Duration {
    match std::env::var("MUNGO_STRESS_SECONDS") {
        Ok(text) => Duration::from_secs_f64(text.trim().parse().expect("MUNGO_STRESS_SECONDS is a number")),
        Err(_) => otherwise,
    }
}

pub(crate) fn gettid() -> i32 {
    // SAFETY: no memory involved.
    unsafe { libc::gettid() }
}

/// The threads of this process.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc").count()
}

pub(crate) fn thread_exists(tid: i32) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()
}

pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// Mappings of this process.
pub(crate) fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("/proc").lines().count()
}

/// A line of `/proc/self/status`, in bytes: `VmRSS`, `VmSize`.
pub(crate) fn status_bytes(key: &str) -> usize {
    kilobytes("/proc/self/status", key)
}

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo_bytes(key: &str) -> usize {
    kilobytes("/proc/meminfo", key)
}

fn kilobytes(file: &str, key: &str) -> usize {
    let text = std::fs::read_to_string(file).expect("/proc");
    let line = text.lines().find(|line| line.split(':').next() == Some(key)).expect("a line with the key");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number") * 1024
}
