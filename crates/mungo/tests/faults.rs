//! The system refuses: threads, memory. Each case is a process of its own.

#[macro_use]
mod common;

use common::{child, runtime, wait_until};
use mungo::{Builder, Runtime, go, park, yield_now};
use std::io::ErrorKind;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

children!(
    no_threads_at_all,
    few_threads,
    many_bound_goroutines,
    little_memory,
    at_the_limit_of_processes,
    stopped
);

/// The child `name` under `strace`, with every `clone3` from the `from`th on refused.
fn without_threads(name: &str, from: usize) -> Option<child::Ended> {
    let strace = Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).output();
    if !strace.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: strace is not there, or may not trace");
        return None;
    }
    let mut plain = child::command(name);
    let mut command = Command::new("strace");
    command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?)))).arg("-f").arg("-qq");
    command.args(["-o", "/dev/null", "-e", "trace=clone3"]);
    command.arg("-e").arg(format!("inject=clone3:error=EAGAIN:when={from}+"));
    command.arg(plain.get_program());
    plain.arg("unused");
    Some(child::finish(command))
}

fn no_threads_at_all() {
    let e = Runtime::builder().procs(2).build().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
    assert!(Builder::new().spawn(|| ()).is_err());
    println!("refused: {e}");
    wait_until("the worker that was started has left", || common::threads() == 1);
}

/// The first one looks at the layout of threads; then come a worker, the starter, the helper and the monitor.
#[test]
fn build_says_that_no_thread_could_be_started() {
    if child::is_emulated("limits of threads are those of the emulator") {
        return;
    }
    for from in 1..=5 {
        let Some(ended) = without_threads("no_threads_at_all", from) else { return };
        assert!(ended.assert_success().stdout.contains("refused: "), "{ended:#?}");
    }
}

fn few_threads() {
    let rt = runtime(4);
    let sum: u64 = rt.run(|| {
        let all: Vec<_> = (0..2000u64)
            .map(|i| {
                go(move || {
                    if i % 3 == 0 {
                        mungo::sleep(Duration::from_micros(i));
                    }
                    yield_now();
                    i
                })
            })
            .collect();
        all.into_iter().map(|h| h.join().unwrap()).sum()
    });
    assert_eq!(sum, 1999 * 1000);
    for i in 0..100 {
        assert_eq!(rt.spawn(move || i).join().unwrap(), i);
    }
    common::end(rt);
    println!("done");
}

#[test]
fn work_goes_on_with_the_threads_that_there_are() {
    if child::is_emulated("limits of threads are those of the emulator") {
        return;
    }
    for from in [6, 7, 8] {
        let Some(ended) = without_threads("few_threads", from) else { return };
        assert!(ended.assert_success().stdout.contains("done"), "{ended:#?}");
    }
}

/// A user of its own, which the limit applies to and whose processes are this one alone; or the present one.
fn limit_processes(n: u64) {
    const NOBODY_ELSE: u32 = 54_321;
    // SAFETY: settings of this process, which has one thread.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgid(NOBODY_ELSE), 0);
            assert_eq!(libc::setuid(NOBODY_ELSE), 0);
        }
        let limit = libc::rlimit { rlim_cur: n, rlim_max: n };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &limit), 0);
    }
}

/// More goroutines block their threads than there may be threads, and others compute.
fn at_the_limit_of_processes() {
    limit_processes(10); // the main thread, three of the runtime, and six for goroutines
    let rt = match Runtime::builder().procs(2).build() {
        Ok(rt) => rt,
        Err(e) => return println!("skipped: this user has many processes, and the refusal is clear: {e}"),
    };
    let mut all: Vec<_> = (0..40u64)
        .map(|i| {
            rt.spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                i
            })
        })
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let stop = stop.clone();
        all.push(rt.spawn(move || {
            while !stop.load(Relaxed) {}
            0
        }));
    }
    assert_eq!(rt.spawn(|| 7).join().unwrap(), 7, "behind those that compute");
    assert!(common::threads() <= 10);
    stop.store(true, Relaxed);
    assert_eq!(all.into_iter().map(|h| h.join().unwrap()).sum::<u64>(), 39 * 20);
    common::end(rt);
    println!("done");
}

#[test]
fn the_limit_of_processes_is_not_the_end() {
    if child::is_emulated("limits of threads are those of the emulator") {
        return;
    }
    child::run("at_the_limit_of_processes").assert_done_or_skipped();
}

/// Goroutines that compute, sleep, talk and block, until a number of rounds is done by each.
fn stopped() {
    const ROUNDS: u64 = 60;
    let rt = runtime(2);
    let done: u64 = rt.run(|| {
        let (tx, rx) = mungo::chan::bounded(0);
        let all: Vec<_> = (0..12u64)
            .map(|i| {
                let tx = tx.clone();
                go(move || {
                    for round in 0..ROUNDS {
                        let (start, pause) = (Instant::now(), Duration::from_millis(1 + i));
                        match i % 3 {
                            0 => mungo::sleep(pause),
                            1 => std::thread::sleep(pause),
                            _ => while start.elapsed() < pause {},
                        }
                        assert!(start.elapsed() >= pause, "early");
                        tx.send(round).unwrap();
                    }
                })
            })
            .collect();
        drop(tx);
        let sum = rx.iter().map(|_| 1).sum();
        all.into_iter().for_each(|h| h.join().unwrap());
        sum
    });
    assert_eq!(done, 12 * ROUNDS);
    common::end(rt);
    println!("done");
}

/// The whole process stands still for a while, again and again, in the middle of whatever it does.
#[test]
fn a_stopped_process_goes_on_where_it_was() {
    let stopper = |child: &std::process::Child| {
        let pid = child.id() as libc::pid_t;
        for i in 0..12 {
            std::thread::sleep(Duration::from_millis(10 + i));
            // SAFETY: signals to the child, which was not waited for.
            unsafe { libc::kill(pid, libc::SIGSTOP) };
            std::thread::sleep(Duration::from_millis(25));
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGCONT) };
        }
    };
    let ended = child::finish_while(child::command("stopped"), stopper);
    ended.assert_success().assert_does_not_say("asleep");
    assert!(ended.stdout.contains("done"), "{ended:#?}");
}

/// Each bound goroutine needs a thread, and there are fewer. All threads are bound at times.
fn many_bound_goroutines() {
    let rt = Runtime::builder().procs(2).max_threads(6).build().unwrap();
    let all: Vec<_> = (0..40)
        .map(|i| {
            rt.spawn(move || {
                let guard = mungo::lock_os_thread();
                (0..3).for_each(|_| yield_now());
                drop(guard);
                i
            })
        })
        .collect();
    let sum: u64 = all.into_iter().map(|h| h.join().unwrap()).sum();
    assert_eq!(sum, 39 * 20);
    common::end(rt);
}

/// A P for which there is no thread goes to the thread of a bound goroutine that waits.
#[test]
fn the_cap_of_threads_is_not_the_end() {
    child::run("many_bound_goroutines").assert_success();
}

fn limit_memory(bytes: usize) {
    let now = common::status_bytes("VmSize");
    let limit = libc::rlimit { rlim_cur: (now + bytes) as _, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: reads the struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

fn little_memory() {
    let rt = runtime(2);
    rt.run(|| ()); // the threads are there, and their arenas
    rt.run(|| (0..100).map(|_| go(yield_now)).for_each(|h| h.join().unwrap()));
    limit_memory(200 << 20);
    for round in 0..3 {
        let accepted: Vec<_> = rt.run(|| {
            let mut all = Vec::new();
            loop {
                match Builder::new().spawn(|| {
                    park();
                    1
                }) {
                    Ok(h) => all.push(h),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
                        let text = e.to_string();
                        assert!(text.contains("use smaller stacks or fewer goroutines"), "{text}");
                        break all;
                    }
                }
            }
        });
        println!("round {round}: {} accepted", accepted.len());
        assert!(accepted.len() > 100);
        assert!(Builder::new().spawn_on(&rt, || ()).is_err(), "from outside, too");
        accepted.iter().for_each(|h| h.goroutine().unpark());
        let n = accepted.len();
        assert_eq!(accepted.into_iter().map(|h| h.join().unwrap()).sum::<usize>(), n);
        wait_until("all ended", || rt.metrics().goroutines == 0);
        // There is room again.
        rt.run(|| (0..50).map(|_| go(yield_now)).for_each(|h| h.join().unwrap()));
        rt.spawn(|| ()).join().unwrap();
    }
    common::end(rt);
}

#[test]
fn a_spawn_without_memory_is_an_error_and_loses_nothing() {
    child::run("little_memory").assert_success();
}
