//! One allocation fails, the first, the second, and so on until the case needs no more: each time the outcome is an
//! error value, or the end of the process with std's words. It never hangs, and never goes on with half of something.
//! Each case is a process of its own, and so is each allocation that fails.

#[macro_use]
mod common;

use common::child;
use mungo::{Builder, Runtime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

children!(build, spawn, channel, timer, net, dump);

/// Which allocation fails, counted by all threads from the moment when the case begins.
const FAILS: &str = "MUNGO_TEST_FAILS";

/// The system's allocator, which fails once.
struct Failing {
    /// Allocations until the one that fails; 0: none does.
    left: AtomicU64,
}

#[global_allocator]
static ALLOCATOR: Failing = Failing { left: AtomicU64::new(0) };

// SAFETY: the system's allocator; to fail is allowed.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let take = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(SeqCst, SeqCst, take) == Ok(1) {
            return std::ptr::null_mut();
        }
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

/// In the child: the case, with the allocation that fails. Says whether it came to that.
fn fail_in(case: impl FnOnce()) {
    let n = std::env::var(FAILS).unwrap().parse().unwrap();
    ALLOCATOR.left.store(n, SeqCst);
    case();
    let failed = ALLOCATOR.left.swap(0, SeqCst) == 0;
    println!("{}", if failed { "survived" } else { "enough" });
}

fn runtime() -> Runtime {
    let rt = common::runtime(2);
    rt.run(|| (0..10).map(|_| mungo::go(mungo::yield_now)).for_each(|h| h.join().unwrap()));
    rt
}

fn build() {
    fail_in(|| match Runtime::builder().procs(2).build() {
        Ok(rt) => {
            assert_eq!(rt.run(|| 7), 7);
            common::end(rt);
        }
        Err(e) => eprintln!("{e}"),
    });
}

fn spawn() {
    let rt = runtime();
    fail_in(|| {
        rt.run(|| {
            let all: Vec<_> = (0..100u64)
                .filter_map(|i| {
                    let name = format!("goroutine {i}");
                    Builder::new().name(name).spawn(move || (0..i).collect::<Vec<_>>().len()).ok()
                })
                .collect();
            all.into_iter().for_each(|h| assert!(h.join().unwrap() < 100));
        });
    });
    common::end(rt);
}

fn channel() {
    let rt = runtime();
    fail_in(|| {
        rt.run(|| {
            let (tx, rx) = mungo::chan::unbounded::<u64>();
            let (done, all_done) = mungo::chan::bounded::<u64>(1);
            let Ok(summer) = Builder::new().spawn(move || done.send(rx.iter().sum()).unwrap()) else { return };
            (0..200).for_each(|i| tx.send(i).unwrap());
            drop(tx);
            assert_eq!(all_done.recv(), Ok(199 * 100));
            summer.join().unwrap();
        });
    });
    common::end(rt);
}

fn timer() {
    let rt = runtime();
    fail_in(|| {
        rt.run(|| {
            let sleepers: Vec<_> = (0..40)
                .filter_map(|i| Builder::new().spawn(move || mungo::sleep(Duration::from_micros(i))).ok())
                .collect();
            let after: Vec<_> = (0..20).map(|i| mungo::chan::after(Duration::from_micros(10 * i))).collect();
            let tick = mungo::chan::tick(Duration::from_micros(100));
            (0..3).for_each(|_| _ = tick.recv().unwrap());
            after.into_iter().for_each(|timer| _ = timer.recv().unwrap());
            sleepers.into_iter().for_each(|h| h.join().unwrap());
        });
    });
    common::end(rt);
}

fn net() {
    let rt = runtime();
    fail_in(|| {
        let echoed: std::io::Result<()> = rt.run(|| {
            let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
            let to = listener.local_addr()?;
            let client = Builder::new().spawn(move || {
                let mut stream = mungo::net::TcpStream::connect(to)?;
                stream.write_all(b"hello")?;
                let mut answer = [0; 5];
                stream.read_exact(&mut answer)?;
                assert_eq!(&answer, b"hello");
                Ok(())
            })?;
            let (mut stream, _) = listener.accept()?;
            let mut question = [0; 5];
            stream.read_exact(&mut question)?;
            stream.write_all(&question)?;
            client.join().unwrap()
        });
        if let Err(e) = echoed {
            assert_eq!(e.kind(), std::io::ErrorKind::OutOfMemory, "{e}");
        }
    });
    common::end(rt);
}

fn dump() {
    let rt = runtime();
    let parked: Vec<_> = (0..5).map(|_| rt.spawn(mungo::park)).collect();
    common::wait_until("all are parked", || rt.metrics().per_proc.iter().map(|p| p.parks).sum::<u64>() >= 5);
    fail_in(|| assert!(mungo::debug::dump().to_string().contains("goroutine")));
    parked.iter().for_each(|h| h.goroutine().unpark());
    parked.into_iter().for_each(|h| h.join().unwrap());
    common::end(rt);
}

/// Runs the case until it has all the memory it needs.
fn all_of(case: &str) {
    let mut n = 1;
    loop {
        let mut command = child::command(case);
        command.env(FAILS, n.to_string());
        let ended = child::finish(command);
        match ended.status.signal() {
            Some(libc::SIGABRT) => _ = ended.assert_says("memory allocation of "),
            Some(signal) => panic!("{case}, allocation {n}: signal {signal}: {ended:#?}"),
            None if ended.assert_success().stdout.contains("enough") => return,
            None => assert!(ended.stdout.contains("survived"), "{ended:#?}"),
        }
        n += 1;
    }
}

#[test]
fn a_runtime_starts_or_says_why_not() {
    all_of("build");
}

#[test]
fn a_goroutine_is_spawned_or_the_spawn_says_why_not() {
    all_of("spawn");
}

#[test]
fn channels_lose_nothing() {
    all_of("channel");
}

#[test]
fn timers_go_off_or_the_process_ends() {
    all_of("timer");
}

#[test]
fn sockets_work_or_say_why_not() {
    all_of("net");
}

#[test]
fn a_dump_is_whole_or_there_is_none() {
    all_of("dump");
}
