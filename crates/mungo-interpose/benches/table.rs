//! Measures what blocking code of std costs on goroutines: `cargo bench -p mungo-interpose`.
//!
//! One line each: what, how long, and the largest number of threads. `MUNGO_DEBUG=interpose=0` shows the same without.
//! Words on the command line choose the lines that have all of them.

use mungo::Runtime;
use mungo_interpose as _;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Barrier, Condvar, Mutex, RwLock, mpsc};
use std::time::{Duration, Instant};

static MOST_THREADS: AtomicUsize = AtomicUsize::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn watch() {
    while !OVER.load(Relaxed) {
        MOST_THREADS.fetch_max(threads(), Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `f` on goroutines of a runtime with `procs` Ps, and prints how long it took.
fn case(what: &str, procs: usize, f: impl FnOnce() + Send) {
    if !std::env::args().skip(1).filter(|word| word != "--bench").all(|word| what.contains(&word)) {
        return;
    }
    let runtime = Runtime::builder().procs(procs).build().expect("a runtime");
    MOST_THREADS.store(threads(), Relaxed);
    let took = runtime.run(|| {
        let start = Instant::now();
        f();
        start.elapsed()
    });
    // The threads of this table: the main one and the watcher.
    println!("{what:<44} {took:>10.1?} {:>6} threads", MOST_THREADS.load(Relaxed) - 2);
    _ = runtime.shutdown(Duration::from_secs(5));
}

fn spread(n: usize, f: impl Fn(usize) + Send + Sync) {
    mungo::scope(|s| {
        for i in 0..n {
            let f = &f;
            s.spawn(move || f(i));
        }
    });
}

macro_rules! echoes {
    ($net:path, $connections:expr, $rounds:expr, $idle:expr) => {{
        use $net as net;
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = mungo::go(move || {
            for _ in 0..$connections {
                let mut stream = listener.accept().unwrap().0;
                mungo::go(move || {
                    let mut bytes = [0; 64];
                    while let Ok(n @ 1..) = stream.read(&mut bytes) {
                        stream.write_all(&bytes[..n]).unwrap();
                    }
                });
            }
        });
        // One after the other: a listener of std has room for 128.
        let mut streams: Vec<_> =
            (0..$connections).map(|_| net::TcpStream::connect(address).unwrap()).collect();
        server.join().unwrap();
        std::thread::sleep(Duration::from_millis($idle));
        let start = Instant::now();
        mungo::scope(|s| {
            for stream in &mut streams {
                s.spawn(move || {
                    let mut bytes = [0; 64];
                    for _ in 0..$rounds {
                        stream.write_all(b"hello, goroutine").unwrap();
                        assert!(stream.read(&mut bytes).unwrap() > 0);
                    }
                });
            }
        });
        println!("    {} echoes in {:.1?}", $connections * $rounds, start.elapsed());
    }};
}

fn sync_crowd() {
    const N: usize = 5000;
    let pair = (Mutex::new(0), Condvar::new());
    spread(N, |_| {
        let mut count = pair.0.lock().unwrap();
        *count += 1;
        pair.1.notify_all();
        drop(pair.1.wait_while(count, |count| *count < N).unwrap());
    });
    let shared = RwLock::new(0);
    spread(N, |i| if i % 4 == 0 { *shared.write().unwrap() += 1 } else { _ = *shared.read().unwrap() });
    let barrier = Barrier::new(N);
    spread(N, |_| _ = barrier.wait());
    let (sender, receiver) = mpsc::channel();
    let (receiver, total) = (Mutex::new(receiver), AtomicUsize::new(0));
    mungo::scope(|s| {
        for _ in 0..N {
            s.spawn(|| total.fetch_add(receiver.lock().unwrap().recv().unwrap(), Relaxed));
        }
        (0..N).for_each(|i| sender.send(i).unwrap());
    });
    assert_eq!(total.into_inner(), N * (N - 1) / 2);
}

/// Locks and unlocks by goroutines that yield while they hold the lock, so that the others wait for it.
fn handovers<G>(lock: impl Fn() -> G + Sync) {
    spread(8, |_| {
        for _ in 0..20_000 {
            let held = lock();
            mungo::yield_now();
            drop(held);
        }
    });
}

/// std's algorithm for a lock, word for word, over park and unpark of goroutines that cost nothing else: what remains
/// of a handover is the algorithm's.
#[derive(Default)]
struct Algorithm {
    word: AtomicU32,
    /// Those that wait, and a lock for them that is held for a few ns.
    waiters: mungo::sync::Mutex<VecDeque<mungo::Goroutine>>,
}

struct Held<'a>(&'a Algorithm);

impl Algorithm {
    fn lock(&self) -> Held<'_> {
        if self.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            self.lock_contended();
        }
        Held(self)
    }

    fn spin(&self) -> u32 {
        for _ in 0..100 {
            if self.word.load(Relaxed) != 1 {
                break;
            }
            std::hint::spin_loop();
        }
        self.word.load(Relaxed)
    }

    fn lock_contended(&self) {
        let mut state = self.spin();
        if state == 0 && self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            return;
        }
        loop {
            if state != 2 && self.word.swap(2, Acquire) == 0 {
                return;
            }
            let mut waiters = self.waiters.lock();
            if self.word.load(Relaxed) == 2 {
                waiters.push_back(mungo::current());
                drop(waiters);
                mungo::park();
            }
            state = self.spin();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.word.swap(0, Release) == 2 {
            _ = self.0.waiters.lock().pop_front().map(|first| first.unpark());
        }
    }
}

fn ready_reads() {
    let (mut a, mut b) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut byte = [0];
    for _ in 0..500_000 {
        a.write_all(&byte).unwrap();
        b.read_exact(&mut byte).unwrap();
    }
}

/// Makes the system call `recvfrom`. A function, as in the C library: a return after a system call is mispredicted.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn bare_recv(fd: i32, at: &mut u8, flags: i32) -> i64 {
    let result: i64;
    // SAFETY: room for a byte.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_recvfrom => result,
            in("rdi") fd,
            in("rsi") std::ptr::from_mut(at),
            in("rdx") 1,
            in("r10") flags,
            in("r8") 0,
            in("r9") 0,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Prints what the shim of `recv` adds to a system call that need not wait: the least of a thousand rounds each, in
/// turns.
#[cfg(target_arch = "x86_64")]
fn added(what: &str) {
    use std::os::fd::AsRawFd;
    const CALLS: u32 = 1_000;
    let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
    far.write_all(&[1]).unwrap();
    let (fd, mut byte) = (near.as_raw_fd(), 0_u8);
    let time = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| f());
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let (mut bare, mut shim) = (f64::MAX, f64::MAX);
    for _ in 0..1_000 {
        bare = bare.min(time(&mut || assert_eq!(bare_recv(fd, &mut byte, libc::MSG_PEEK), 1)));
        shim = shim.min(time(&mut || {
            // SAFETY: room for a byte.
            let got = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
            assert_eq!(got, 1);
        }));
    }
    println!("    a ready recv on a {what}: bare {bare:.1} ns, by the shim {:+.1} ns", shim - bare);
}

#[cfg(not(target_arch = "x86_64"))]
fn added(_what: &str) {}

fn main() {
    let watcher = std::thread::spawn(watch);
    let nap = Duration::from_millis(100);
    case("10,000 sleeps of 100 ms, 2 Ps", 2, || spread(10_000, |_| std::thread::sleep(nap)));
    case("5,000 in Condvar, RwLock, Barrier, mpsc, 1 P", 1, sync_crowd);
    for _ in 0..3 {
        case("2,000 connections of std::net, 2 Ps", 2, || echoes!(std::net, 2000, 60, 0));
        case("2,000 connections of mungo::net, 2 Ps", 2, || echoes!(mungo::net, 2000, 60, 0));
    }
    case("8,000 connections of std::net, idle for 0.5 s", 2, || echoes!(std::net, 8000, 1, 500));
    for procs in [1, 2] {
        let (std, own) = (Arc::new(Mutex::new(())), Arc::new(mungo::sync::Mutex::new(())));
        for _ in 0..3 {
            case(&format!("160,000 handovers of std's Mutex, {procs} P"), procs, || {
                handovers(|| std.lock().unwrap())
            });
            case(&format!("160,000 handovers of mungo's Mutex, {procs} P"), procs, || handovers(|| own.lock()));
            let algorithm = Algorithm::default();
            case(&format!("160,000 handovers of std's algorithm, {procs} P"), procs, || {
                handovers(|| algorithm.lock())
            });
        }
    }
    for _ in 0..3 {
        case("a ready recv, bare and by the shim, goroutine", 2, || added("goroutine"));
        case("a ready recv, bare and by the shim, thread", 2, || {
            mungo::blocking(|| std::thread::scope(|s| _ = s.spawn(|| added("thread"))))
        });
    }
    for _ in 0..3 {
        case("500,000 ready sends and receives, goroutine", 2, ready_reads);
        case("500,000 ready sends and receives, thread", 2, || {
            mungo::blocking(|| std::thread::scope(|s| _ = s.spawn(ready_reads)))
        });
    }
    OVER.store(true, Relaxed);
    watcher.join().expect("the watcher");
}
