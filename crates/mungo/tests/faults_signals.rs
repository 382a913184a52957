//! Signals, processes, exits, closed descriptors and clocks: the rows of `docs/faults.md` of these kinds. Each case is
//! a process of its own.

#[macro_use]
mod common;

use common::{Deadline, Rng, child, runtime};
use mungo::{chan, go, yield_now};
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

children!(
    signals_at_random,
    a_handler_on_top,
    a_handler_that_passes_on,
    sigurg_is_ignored,
    broken_pipes,
    deadlock_with_stderr_locked,
    deadlock_with_broken_stderr,
    forks_and_execs,
    exec_on_a_goroutine,
    the_new_program,
    exit_while_goroutines_run,
    exit_on_a_goroutine,
    main_ends_while_goroutines_run,
    panic_in_a_thread_local_destructor,
    nice_values,
    another_user,
    timers,
);

// ---- a load whose results are known ----

thread_local! {
    static MINE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A bit of everything, until `stop`: how many rounds there were. Panics if a result is not what it should be.
fn load(stop: &Arc<AtomicBool>) -> u64 {
    let kinds: [fn(u64); 8] = [computes, allocates, sleeps, talks, locks, reads, spawns, keeps_to_itself];
    let all: Vec<_> = (0..16u64)
        .map(|i| {
            let stop = stop.clone();
            go(move || {
                let mut rounds = 0;
                while !stop.load(Relaxed) || rounds == 0 {
                    kinds[i as usize % kinds.len()](i + rounds);
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    all.into_iter().map(|g| g.join().unwrap()).sum()
}

fn computes(seed: u64) {
    let hash = |n: u64| (0..20_000u64).fold(n, |h, i| (h ^ i).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(hash(seed), hash(std::hint::black_box(seed)));
}

fn allocates(seed: u64) {
    let lists: Vec<Vec<u64>> = (0..200).map(|i| vec![seed; (i * 7919) % 500]).collect();
    assert!(lists.iter().flatten().all(|&n| n == seed));
}

fn sleeps(seed: u64) {
    let (pause, start) = (Duration::from_micros(seed % 700), Instant::now());
    match seed % 2 {
        0 => mungo::sleep(pause),
        _ => std::thread::sleep(pause),
    }
    assert!(start.elapsed() >= pause, "early");
}

fn talks(seed: u64) {
    let (tx, rx) = chan::bounded((seed % 3) as usize);
    let sender = go(move || (0..100).for_each(|i| tx.send(seed + i).unwrap()));
    assert!(rx.iter().eq(seed..seed + 100));
    sender.join().unwrap();
}

fn locks(_: u64) {
    static OURS: mungo::sync::Mutex<(u64, u64)> = mungo::sync::Mutex::new((0, 0));
    static STDS: Mutex<(u64, u64)> = Mutex::new((0, 0));
    for _ in 0..50 {
        let mut ours = OURS.lock();
        ours.0 += 1;
        let mut stds = STDS.lock().unwrap();
        stds.0 += 1;
        stds.1 += 1;
        ours.1 += 1;
        assert_eq!((ours.0, stds.0), (ours.1, stds.1));
    }
}

fn reads(seed: u64) {
    let (mut a, mut b) = mungo::net::UnixStream::pair().unwrap();
    let echo = go(move || {
        let mut bytes = [0; 64];
        b.read_exact(&mut bytes).unwrap();
        b.write_all(&bytes).unwrap();
    });
    let mut bytes = [seed as u8; 64];
    a.write_all(&bytes).unwrap();
    a.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().all(|&b| b == seed as u8));
    echo.join().unwrap();
}

fn spawns(seed: u64) {
    let all: Vec<_> = (0..20).map(|i| go(move || seed ^ i)).collect();
    assert!(all.into_iter().zip(0..).all(|(g, i)| g.join().unwrap() == seed ^ i));
}

fn keeps_to_itself(seed: u64) {
    MINE.with_borrow_mut(|mine| {
        mine.push(seed);
        yield_now();
        assert_eq!(mine.pop(), Some(seed));
        assert!(mine.is_empty());
    });
    DEPTH.set(DEPTH.get() + 1);
}

/// [`load`] on a runtime with short slices, while `meanwhile` runs on this thread.
fn under_load(meanwhile: impl FnOnce()) -> u64 {
    let rt = common::hasty_runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = {
        let stop = stop.clone();
        rt.spawn(move || load(&stop))
    };
    meanwhile();
    stop.store(true, Relaxed);
    let rounds = rounds.join().unwrap();
    common::end(rt);
    rounds
}

// ---- signals at every point ----

const SIGNALS: [libc::c_int; 3] = [libc::SIGURG, libc::SIGPROF, libc::SIGALRM];
static SEEN: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

extern "C" fn count(signal: libc::c_int) {
    if let Some(at) = SIGNALS.iter().position(|s| *s == signal) {
        SEEN[at].fetch_add(1, Relaxed);
    }
}

/// Some handlers run on the alternate stack, some on the goroutine's.
fn handle(signal: libc::c_int, flags: libc::c_int) {
    // SAFETY: a handler that touches atomics only.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = libc::SA_RESTART | flags;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn signals_at_random() {
    handle(libc::SIGURG, 0);
    handle(libc::SIGPROF, libc::SA_ONSTACK);
    handle(libc::SIGALRM, 0);
    let mut rng = Rng::seeded("signals at random");
    let mut sent = [0; 3];
    let me = common::gettid();
    let rounds = under_load(|| {
        let end = Deadline::after(common::stress_time(Duration::from_secs(2)));
        while !end.passed() {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let tids: Vec<i32> = tasks.filter_map(|t| t.file_name().to_str()?.parse().ok()).collect();
            for _ in 0..20 {
                let (to, kind) = (tids[rng.below(tids.len() as u64) as usize], rng.below(3) as usize);
                // SAFETY: a signal to a thread of this process, if it is still there.
                let ok = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), to, SIGNALS[kind]) } == 0;
                sent[kind] += usize::from(ok && to != me);
            }
            std::thread::sleep(Duration::from_micros(rng.below(300)));
        }
    });
    let seen: Vec<_> = SEEN.iter().map(|n| n.load(Relaxed)).collect();
    println!("{rounds} rounds; sent {sent:?}, seen {seen:?}");
    assert!(seen.iter().zip(sent).all(|(&seen, sent)| sent > 0 && seen > 0), "sent {sent:?}, seen {seen:?}");
}

#[test]
fn signals_at_any_point_change_no_result_and_reach_their_handlers() {
    let ended = child::run("signals_at_random");
    assert!(ended.assert_success().stdout.contains("rounds"), "{ended:#?}");
}

// ---- another action for SIGURG, set after the runtime was built ----

/// While two loops share a processor, sets an action for SIGURG on a plain thread, waits until the runtime has put its
/// handler back and interrupts, and runs `then`. Does all that twice.
fn with_another_action(set: fn(), then: fn()) {
    let rt = common::hasty_runtime(1);
    let answered = || {
        let interruptions = rt.metrics().interruptions;
        interruptions.injected + interruptions.by_thread
    };
    let ours = action();
    let stop = Arc::new(AtomicBool::new(false));
    let loops = [(); 2].map(|()| {
        let stop = stop.clone();
        rt.spawn(move || while !stop.load(Relaxed) {})
    });
    for _ in 0..2 {
        set();
        common::wait_until("the handler is back", || action().sa_sigaction == ours.sa_sigaction);
        assert_eq!(action().sa_flags, ours.sa_flags);
        let before = answered();
        common::wait_until("the loops take turns", || answered() > before + 10);
        then();
    }
    stop.store(true, Relaxed);
    loops.into_iter().for_each(|g| g.join().unwrap());
    common::end(rt);
    println!("done");
}

/// What the process does about SIGURG.
fn action() -> libc::sigaction {
    // SAFETY: asks, and changes nothing.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        assert_eq!(libc::sigaction(libc::SIGURG, std::ptr::null(), &mut action), 0);
        action
    }
}

/// Sends this thread a SIGURG, which comes before the call returns. Returns how often `count` was called.
fn counted_of_one() -> usize {
    let before = SEEN[0].load(Relaxed);
    // SAFETY: a signal to this thread, which lets it in.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), common::gettid(), libc::SIGURG) };
    SEEN[0].load(Relaxed) - before
}

fn a_handler_on_top() {
    with_another_action(|| handle(libc::SIGURG, 0), || assert_eq!(counted_of_one(), 1));
}

/// The action that [`count_and_pass_on`] took the place of.
static FOUND: AtomicUsize = AtomicUsize::new(0);
static PASSED_ON: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_and_pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    PASSED_ON.fetch_add(1, Relaxed);
    let found = FOUND.load(Relaxed);
    // SAFETY: a handler of this kind, the runtime's, called with what the kernel passed to this one.
    unsafe {
        std::mem::transmute::<usize, extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)>(
            found,
        )(signal, info, context);
    }
}

/// `count` was there before the runtime, and hears of each signal once as before.
fn a_handler_that_passes_on() {
    handle(libc::SIGURG, 0);
    let set = || {
        FOUND.store(action().sa_sigaction, Relaxed);
        // SAFETY: a handler that does what a handler may.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = count_and_pass_on as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()), 0);
        }
    };
    with_another_action(set, || {
        let before = PASSED_ON.load(Relaxed);
        assert_eq!((counted_of_one(), PASSED_ON.load(Relaxed) - before), (1, 1));
    });
}

fn sigurg_is_ignored() {
    let ignore = || {
        // SAFETY: no handler.
        assert_ne!(unsafe { libc::signal(libc::SIGURG, libc::SIG_IGN) }, libc::SIG_ERR);
    };
    with_another_action(ignore, || assert_eq!(counted_of_one(), 0));
}

#[test]
fn another_action_for_sigurg_is_replaced_and_said() {
    const LINE: &str = "mungo: the program has set another action for SIGURG";
    for name in ["a_handler_on_top", "a_handler_that_passes_on", "sigurg_is_ignored"] {
        let ended = child::run(name);
        assert!(ended.assert_success().stdout.contains("done"), "{ended:#?}");
        let said: Vec<_> = ended.stderr.lines().filter(|line| line.contains(LINE)).collect();
        assert_eq!(said.len(), 1, "{ended:#?}");
        assert!(said[0].contains("before the first runtime"), "what to do is not in the line: {ended:#?}");
    }
}

// ---- stdout and stderr ----

/// As std's start-up does, which has not run in a child.
fn ignore_sigpipe() {
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Everything of ours that says something and lets the process live.
fn say_much() {
    let rt = runtime(2);
    let detached: Vec<_> = (0..10).map(|_| rt.spawn(|| panic!("of the test")).goroutine()).collect();
    assert_eq!(rt.run(|| go(|| 42).join().unwrap()), 42);
    common::wait_until("all have panicked", || rt.metrics().goroutines == 0);
    drop(detached);
    common::end(rt);
}

fn broken_pipes() {
    ignore_sigpipe();
    say_much();
    under_load(|| std::thread::sleep(Duration::from_millis(100)));
    std::process::exit(7);
}

/// The child with pipes for stdout and stderr that nobody reads.
fn with_broken_pipes(name: &str) -> std::process::ExitStatus {
    let mut command = child::command(name);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("MUNGO_DEBUG", "schedtrace=10,nonsense=1");
    let mut child = command.spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > common::PATIENCE {
            child.kill().unwrap();
            panic!("it hung: {:?}", child.wait());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn broken_pipes_for_messages_do_no_harm() {
    assert_eq!(with_broken_pipes("broken_pipes").code(), Some(7));
}

/// In a child that std's start-up has prepared: it opens `/dev/null` in the place of what is closed, lest the next file
/// or socket be taken for stderr.
#[test]
fn closed_stdout_and_stderr_do_no_harm() {
    const NAME: &str = "closed_stdout_and_stderr_do_no_harm";
    if child::is_test_child(NAME) {
        say_much();
        under_load(|| std::thread::sleep(Duration::from_millis(100)));
        std::process::exit(7);
    }
    let mut command = child::command(&format!("test {NAME}"));
    command.args(["--exact", NAME, "--nocapture"]).env("MUNGO_DEBUG", "schedtrace=10");
    // SAFETY: a system call that is allowed after a fork.
    unsafe {
        command.pre_exec(|| {
            libc::close(1);
            libc::close(2);
            Ok(())
        })
    };
    child::finish(command).assert_code(7);
}

fn deadlock_with_stderr_locked() {
    let stuck = go(|| {
        let _locked = std::io::stderr().lock();
        mungo::park();
    });
    stuck.join().unwrap();
}

#[test]
fn a_parked_goroutine_that_holds_stderr_does_not_stop_the_report() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    child::run("deadlock_with_stderr_locked").assert_code(2).assert_says("all goroutines are asleep");
}

fn deadlock_with_broken_stderr() {
    ignore_sigpipe();
    go(mungo::park).join().unwrap();
}

#[test]
fn a_deadlock_ends_the_process_though_the_report_has_no_reader() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    assert_eq!(with_broken_pipes("deadlock_with_broken_stderr").code(), Some(2));
}

// ---- processes ----

fn the_new_program() {
    let sum: u64 = runtime(2).run(|| (0..100u64).map(|i| go(move || i)).map(|g| g.join().unwrap()).sum());
    println!("sum {sum}");
    std::process::exit(5);
}

/// Forks on a goroutine and leaves at once, as a program does that is about to run another one.
fn fork_and_leave(code: i32) {
    // SAFETY: between the fork and the end there is nothing.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::_exit(code);
        }
        let mut status = 0;
        while libc::waitpid(pid, &mut status, 0) != pid {}
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == code, "{status:#x}");
    }
}

fn forks_and_execs() {
    let rounds = under_load(|| {
        let rt = runtime(2);
        let all: Vec<_> = (0..4)
            .map(|i| {
                rt.spawn(move || {
                    for round in 0..5 {
                        fork_and_leave(10 * i + round);
                        let output = child::command("the_new_program").output().unwrap();
                        assert_eq!(output.status.code(), Some(5), "{output:?}");
                        assert_eq!(output.stdout, b"sum 4950\n");
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
        common::end(rt);
    });
    println!("done after {rounds} rounds");
}

#[test]
#[cfg_attr(
    mungo_asan,
    ignore = "the sanitizer's allocator has a lock for goroutines that it does not release in a forked child"
)]
fn programs_started_under_load_run_and_so_does_the_load() {
    let ended = child::run("forks_and_execs");
    assert!(ended.assert_success().stdout.contains("done"), "{ended:#?}");
}

fn exec_on_a_goroutine() {
    under_load(|| {
        go(|| panic!("{}", child::command("the_new_program").exec())).join().unwrap();
    });
}

#[test]
fn a_goroutine_may_replace_the_program() {
    let ended = child::run("exec_on_a_goroutine");
    assert_eq!(ended.assert_code(5).stdout, "sum 4950\n");
}

// ---- the end ----

fn exit_while_goroutines_run() {
    under_load(|| {
        std::thread::sleep(Duration::from_millis(20));
        std::process::exit(6);
    });
}

fn exit_on_a_goroutine() {
    under_load(|| {
        go(|| {
            mungo::sleep(Duration::from_millis(20));
            std::process::exit(6);
        })
        .join()
        .unwrap()
    });
}

/// Leaves a load behind when it returns.
fn main_ends_while_goroutines_run() {
    let rt = common::hasty_runtime(2);
    rt.spawn(|| load(&Arc::new(AtomicBool::new(false))));
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn an_exit_ends_the_process_whatever_goroutines_do() {
    for _ in 0..5 {
        child::run("exit_while_goroutines_run").assert_code(6).assert_does_not_say("panicked");
        child::run("exit_on_a_goroutine").assert_code(6).assert_does_not_say("panicked");
        child::run("main_ends_while_goroutines_run").assert_success().assert_does_not_say("panicked");
    }
}

fn panic_in_a_thread_local_destructor() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in the destructor");
        }
    }
    thread_local!(static PANICS: Panics = const { Panics });
    go(|| PANICS.with(|_| ())).join().unwrap();
    std::process::exit(0);
}

/// As on a thread: std ends the process.
#[test]
fn a_panic_in_a_thread_local_destructor_aborts() {
    let ended = child::run("panic_in_a_thread_local_destructor");
    ended.assert_signal(libc::SIGABRT).assert_says("in the destructor").assert_says("panicked on drop");
}

// ---- nice ----

/// Field 19 of a line of `stat`: the third word after the name is the parent, and so on.
fn nice_of(task: &std::path::Path) -> Option<(String, i32)> {
    let name = std::fs::read_to_string(task.join("comm")).ok()?.trim().to_owned();
    let stat = std::fs::read_to_string(task.join("stat")).ok()?;
    let nice = stat.rsplit(')').next()?.split_whitespace().nth(16)?.parse().ok()?;
    Some((name, nice))
}

fn nice_values() {
    // SAFETY: a setting of this process, which has one thread.
    let nice = unsafe {
        let wanted = std::env::var("NICE").unwrap().parse().unwrap();
        libc::setpriority(libc::PRIO_PROCESS, 0, wanted);
        libc::getpriority(libc::PRIO_PROCESS, 0)
    };
    let rt = runtime(2);
    // The starter starts a thread for each.
    let blocked = (0..20).map(|_| rt.spawn(|| std::thread::sleep(Duration::from_millis(200))));
    let blocked: Vec<_> = blocked.collect();
    common::wait_until("there are many threads", || common::threads() > 15);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let ahead = ["mungo-monitor", "mungo-helper"];
    let workers: Vec<_> =
        tasks.filter_map(|t| nice_of(&t.path())).filter(|t| !ahead.contains(&&*t.0)).collect();
    assert!(workers.len() > 10, "{workers:?}");
    assert!(workers.iter().all(|t| t.1 == nice), "the process has {nice}: {workers:?}");
    blocked.into_iter().for_each(|g| g.join().unwrap());
}

#[test]
fn workers_have_the_nice_value_of_the_process() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    for nice in [0, 5, 19, -3] {
        let mut command = child::command("nice_values");
        command.env("NICE", nice.to_string());
        child::finish(command).assert_success();
    }
}

/// The user ids of a thread, as the kernel says: real, effective, saved, file system.
fn uids_of(task: &std::path::Path) -> Option<String> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:")).map(str::to_owned)
}

fn another_user() {
    const NOBODY_ELSE: libc::uid_t = 54_323;
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root may become another user");
        return;
    }
    let rt = runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let load = rt.spawn(move || load(&seen));
    let blocked: Vec<_> =
        (0..20).map(|_| rt.spawn(|| std::thread::sleep(Duration::from_millis(200)))).collect();
    common::wait_until("there are many threads", || common::threads() > 15);
    // SAFETY: numbers. The C library has each of its threads make the call.
    let changed = rt.spawn(|| unsafe { libc::setresuid(NOBODY_ELSE, NOBODY_ELSE, NOBODY_ELSE) });
    assert_eq!(changed.join().unwrap(), 0);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let uids: Vec<_> = tasks.filter_map(|t| uids_of(&t.path())).collect();
    assert!(uids.len() > 10, "{uids:?}");
    let expected = format!("\t{NOBODY_ELSE}").repeat(4);
    assert!(uids.iter().all(|u| *u == expected), "{uids:?}");
    blocked.into_iter().for_each(|g| g.join().unwrap());
    stop.store(true, Relaxed);
    assert!(load.join().unwrap() > 0);
    common::end(rt);
    println!("done");
}

#[test]
fn a_goroutine_changes_the_user_of_all_threads() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    child::run("another_user").assert_done_or_skipped();
}

// ---- clocks ----

/// Sleeps, time-outs, tickers and deadlines, against the monotonic clock.
fn timers() {
    let ms = Duration::from_millis;
    runtime(2).run(move || {
        let all: Vec<_> = (1..20)
            .map(|i| {
                go(move || {
                    let start = Instant::now();
                    mungo::sleep(ms(i));
                    assert!(start.elapsed() >= ms(i));
                    let (_tx, rx) = chan::bounded::<()>(0);
                    assert!(rx.recv_timeout(ms(i)).is_err());
                    assert!(start.elapsed() >= ms(2 * i));
                    assert_eq!(chan::tick(ms(i)).iter().take(3).count(), 3);
                    assert!(start.elapsed() >= ms(5 * i));
                    assert!(start.elapsed() < common::PATIENCE);
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    });
    println!("on time");
}

/// A monotonic clock that is eleven days ahead, as on a machine that has run for long, or behind, as in a container
/// that was moved.
#[test]
fn another_monotonic_clock_makes_no_difference() {
    for offset in ["1000000", "-5"] {
        let plain = child::command("timers");
        let mut command = Command::new("unshare");
        command.args(["--fork", "--time", "--monotonic", offset, "--boottime", offset]);
        if !command.arg("true").output().is_ok_and(|o| o.status.success()) {
            eprintln!("skipped: no time namespace can be made here");
            return;
        }
        let mut command = Command::new("unshare");
        command.args(["--fork", "--time", "--monotonic", offset, "--boottime", offset]);
        command.arg(plain.get_program()).args(plain.get_args());
        command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let ended = child::finish(command);
        assert!(ended.assert_success().stdout.contains("on time"), "{ended:#?}");
    }
}

/// Steps of the wall clock cannot matter to what never asks for it.
#[test]
fn no_code_asks_for_the_wall_clock() {
    fn check(folder: &std::path::Path, files: &mut usize) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                check(&path, files);
            } else if path.extension().is_some_and(|e| e == "rs") {
                *files += 1;
                if ["tracer/sink.rs", "profile/model.rs", "profile/pprof.rs"]
                    .iter()
                    .any(|end| path.ends_with(end))
                {
                    continue; // these write it at the head of a trace or a profile, for readers
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for word in ["SystemTime", "CLOCK_REALTIME", "gettimeofday", "UNIX_EPOCH", "libc::time("] {
                    assert!(!text.contains(word), "{word} in {}", path.display());
                }
            }
        }
    }
    let mut files = 0;
    check(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files > 100);
}
