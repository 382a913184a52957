//! The system refuses: threads, memory. Each case is a process of its own.

#[macro_use]
mod common;

use common::{child, runtime, wait_until};
use mungo::{Builder, Runtime, go, park, yield_now};
use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

children!(no_threads_at_all, few_threads, many_bound_goroutines, little_memory);

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

/// The first one looks at the layout of threads, the second is a worker, the third the monitor.
#[test]
fn build_says_that_no_thread_could_be_started() {
    for from in 1..=3 {
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
    for from in [4, 5, 6] {
        let Some(ended) = without_threads("few_threads", from) else { return };
        assert!(ended.assert_success().stdout.contains("done"), "{ended:#?}");
    }
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
