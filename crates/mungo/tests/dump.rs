//! Dumps: each goroutine with its state, its stack and where it was spawned. Each case is a process of its own.

#[macro_use]
mod common;

use common::{child, wait_until};
use mungo::debug::{self, Dump, DumpOptions, Frame, GoroutineDump, State};
use mungo::sync::{Mutex, WaitGroup};
use mungo::{WaitReason, chan, go};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

children!(
    known_places,
    a_crowd,
    deep_recursion,
    churn,
    quit,
    quit_when_idle,
    quit_after_the_end,
    quit_with_a_handler,
    quit_ignored,
    quit_at_the_end,
);

#[inline(never)]
fn waits_for_a_value(rx: &chan::Receiver<u32>) {
    black_box(rx.recv().ok());
    black_box(());
}

/// Its frame is found by its frame pointer, the RBP that the switch saved: `.ci/run` runs this where all frames are.
#[inline(never)]
fn waits_for_an_aligned_value(rx: &chan::Receiver<u32>) {
    #[repr(align(64))]
    struct Aligned([u8; 64]);
    let mut aligned = Aligned([1; 64]);
    black_box(&mut aligned.0);
    black_box(rx.recv().ok());
    black_box(&mut aligned.0);
}

#[inline(never)]
fn calls_the_aligned_one(rx: &chan::Receiver<u32>) {
    waits_for_an_aligned_value(rx);
    black_box(());
}

#[inline(never)]
fn waits_for_the_mutex(mutex: &Mutex<u32>) {
    black_box(*mutex.lock());
    black_box(());
}

#[inline(never)]
fn sleeps_long() {
    mungo::sleep(Duration::from_secs(3600));
    black_box(());
}

#[inline(never)]
fn selects(a: &chan::Receiver<u32>, b: &chan::Receiver<u32>) {
    chan::select! {
        recv(a) -> _ => {},
        recv(b) -> _ => {},
    }
    black_box(());
}

#[inline(never)]
fn waits_for_the_group(group: &WaitGroup) {
    group.wait();
    black_box(());
}

#[inline(never)]
fn spins(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        black_box(());
    }
}

#[inline(never)]
fn blocks_its_thread() {
    std::thread::sleep(Duration::from_secs(3600));
    black_box(());
}

fn find<'a>(dump: &'a Dump, name: &str) -> Option<&'a GoroutineDump> {
    dump.goroutines().iter().find(|g| g.name.as_deref() == Some(name))
}

fn named(name: &str, f: impl FnOnce() + Send + 'static) {
    mungo::Builder::new().name(name.to_owned()).spawn(f).unwrap();
}

/// Without the feature there are no stacks, and the rest is the same.
const STACKS: bool = cfg!(feature = "backtrace");

fn has_frame(g: &GoroutineDump, function: &str) -> bool {
    !STACKS || g.stack.frames.iter().any(|frame| frame.function.contains(function))
}

/// Why the stacks of blocked threads are not looked at under an emulator.
const EMULATORS_REGISTERS: &str = "stacks of blocked threads: the kernel knows the emulator's registers only";

const WAITING: [(&str, WaitReason, &str); 6] = [
    ("receiver", WaitReason::ChanRecv, "waits_for_a_value"),
    ("aligned", WaitReason::ChanRecv, "calls_the_aligned_one"),
    ("locker", WaitReason::Mutex, "waits_for_the_mutex"),
    ("sleeper", WaitReason::Sleep, "sleeps_long"),
    ("selector", WaitReason::Select, "selects"),
    ("waiter", WaitReason::WaitGroup, "waits_for_the_group"),
];

/// Checks what the dump says of each.
fn check_known(dump: &Dump) {
    for (name, _, function) in WAITING {
        let g = find(dump, name).unwrap();
        assert!(has_frame(g, function), "{g:#?}");
        assert!(g.waited.is_some() && g.spawned_at.file().ends_with("dump.rs"), "{g:#?}");
        let hidden = |f: &Frame| f.function.contains("catch_unwind") || f.function.contains("switch_yield");
        assert!(!g.stack.frames.iter().any(hidden), "{g:#?}");
    }
    let spinner = find(dump, "spinner").unwrap();
    assert!(matches!(spinner.state, State::Running | State::Preempted | State::Runnable), "{spinner:#?}");
    let knows_blocked = !child::is_emulated(EMULATORS_REGISTERS);
    if knows_blocked {
        assert!(has_frame(find(dump, "blocker").unwrap(), "blocks_its_thread"), "{dump}");
    }
    assert!(dump.to_string().contains("7 goroutines [chan receive, "), "equal ones are grouped: {dump}");
    let own = find(dump, "main").unwrap();
    assert_eq!(own.state, State::Syscall, "it waits for the dump: {own:#?}");
    let here = |file: &String| file.ends_with("tests/dump.rs");
    assert!(
        !STACKS || !knows_blocked || own.stack.frames.iter().any(|f| f.file.as_ref().is_some_and(here)),
        "{own:#?}"
    );
}

fn known_places() {
    let runtime = common::runtime(2);
    runtime.run(|| {
        let (_tx, rx) = chan::bounded(0);
        let (_tx2, rx2) = chan::bounded(0);
        let mutex = Arc::new(Mutex::new(1));
        let group = Arc::new(WaitGroup::new());
        group.add(1);
        let stop = Arc::new(AtomicBool::new(false));
        let _held = mutex.lock();
        let equal: Vec<_> = (0..7).map(|_| rx.clone()).collect();
        named("receiver", {
            let rx = rx.clone();
            move || waits_for_a_value(&rx)
        });
        named("aligned", {
            let rx = rx.clone();
            move || calls_the_aligned_one(&rx)
        });
        named("locker", {
            let mutex = mutex.clone();
            move || waits_for_the_mutex(&mutex)
        });
        named("sleeper", sleeps_long);
        named("selector", {
            let rx = rx.clone();
            move || selects(&rx, &rx2)
        });
        named("waiter", {
            let group = group.clone();
            move || waits_for_the_group(&group)
        });
        named("spinner", {
            let stop = stop.clone();
            move || spins(&stop)
        });
        named("blocker", blocks_its_thread);
        for rx in equal {
            go(move || waits_for_a_value(&rx));
        }
        let all_there = |dump: &Dump| {
            let count = |r| dump.goroutines().iter().filter(|g| g.state == State::Waiting(r)).count();
            WAITING.iter().all(|(name, r, _)| find(dump, name).is_some_and(|g| g.state == State::Waiting(*r)))
                && count(WaitReason::ChanRecv) == 9
                && find(dump, "spinner").is_some_and(|g| has_frame(g, "spins"))
                && find(dump, "blocker").is_some_and(|g| g.state == State::Syscall)
        };
        wait_until("all are in their places", || all_there(&debug::dump()));
        let dump = debug::dump();
        eprintln!("{dump}");
        check_known(&dump);
        stop.store(true, Relaxed);
        std::process::exit(0);
    });
}

#[test]
fn parked_running_and_blocked_goroutines_show_where_they_are() {
    child::is_emulated(EMULATORS_REGISTERS); // for the count: all the rest is tested
    child::run("known_places").assert_success();
}

/// Ten thousand in two places, and then more than are looked at.
fn a_crowd() {
    common::runtime(2).run(|| {
        let (_tx, rx) = chan::bounded(0);
        for _ in 0..9_000 {
            let rx = rx.clone();
            go(move || waits_for_a_value(&rx));
        }
        (0..999).for_each(|_| drop(go(sleeps_long)));
        let waiting = |dump: &Dump| dump.goroutines().iter().filter(|g| g.waited.is_some()).count();
        wait_until("all wait", || waiting(&DumpOptions::new().stacks(false).dump()) == 9_999);
        let dump = debug::dump();
        let text = dump.to_string();
        assert_eq!((dump.alive(), dump.goroutines().len()), (10_000, 10_000));
        assert!(text.len() < 10_000, "{} bytes", text.len());
        let place = if STACKS { "waits_for_a_value" } else { "without its feature `backtrace`" };
        assert!(text.contains("9000 goroutines [chan receive, ") && text.contains(place), "{text}");
        assert!(text.contains("999 goroutines [sleep, ") && text.contains(", and 989 more"), "{text}");
        assert!(!text.contains("were not looked at"), "{text}");

        let text = DumpOptions::new().goroutines(100).groups(1).frames(2).dump().to_string();
        assert!(text.contains("9900 more goroutines were not looked at (limit: 100 goroutines)"), "{text}");
        assert!(!STACKS || text.contains("more frames are not shown"), "{text}");
        std::process::exit(0);
    });
}

#[test]
fn equal_goroutines_are_grouped_and_the_text_is_bounded() {
    child::run("a_crowd").assert_success();
}

#[inline(never)]
fn descends(depth: usize, rx: &chan::Receiver<u32>) {
    match depth {
        0 => waits_for_a_value(rx),
        _ => descends(depth - 1, rx),
    }
    black_box(depth);
}

/// More stack than is copied.
fn deep_recursion() {
    common::runtime(1).run(|| {
        let (_tx, rx) = chan::bounded(0);
        let deep = mungo::Builder::new().name("deep".to_owned()).stack_size(8 << 20);
        drop(deep.spawn(move || descends(20_000, &rx)).unwrap());
        let ready = |dump: &Dump| find(dump, "deep").is_some_and(|g| g.waited.is_some());
        wait_until("it waits", || ready(&debug::dump()));
        let dump = debug::dump();
        let deep = find(&dump, "deep").unwrap();
        assert_eq!(deep.stack.frames.len(), 64);
        assert!(has_frame(deep, "descends") && deep.stack.note.is_some(), "{deep:#?}");
        std::process::exit(0);
    });
}

#[test]
#[cfg(feature = "backtrace")]
fn a_deep_stack_is_cut() {
    child::run("deep_recursion").assert_success();
}

/// Dumps while goroutines come and go, park, run, block and are preempted.
fn churn() {
    let runtime = common::hasty_runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let (tx, rx) = chan::bounded::<u32>(1);
    for i in 0..4 {
        let (stop, tx, rx) = (stop.clone(), tx.clone(), rx.clone());
        runtime.spawn(move || {
            while !stop.load(Relaxed) {
                let children: Vec<_> = (0..20)
                    .map(|n| {
                        let (tx, rx) = (tx.clone(), rx.clone());
                        let child = mungo::Builder::new().name(format!("child {i} {n}"));
                        let child = child.spawn(move || match n % 4 {
                            0 => tx.send(n).unwrap(),
                            1 => drop(rx.recv()),
                            2 => mungo::sleep(Duration::from_micros(50)),
                            _ => std::thread::sleep(Duration::from_micros(50)),
                        });
                        child.unwrap()
                    })
                    .collect();
                children.into_iter().for_each(|c| c.join().unwrap());
            }
        });
    }
    for _ in 0..2 {
        let stop = stop.clone();
        runtime.spawn(move || spins(&stop));
    }
    let deadline = common::Deadline::after(common::stress_time(Duration::from_secs(2)));
    let mut with_stack = 0;
    while !deadline.passed() {
        let dump = debug::dump();
        assert!(dump.goroutines().iter().all(|g| g.id > 0 && g.spawned_at.file().ends_with("dump.rs")));
        with_stack +=
            dump.goroutines().iter().filter(|g| has_frame(g, "churn") || has_frame(g, "spins")).count();
        black_box(debug::dump().to_string());
    }
    assert!(with_stack > 0);
    stop.store(true, Relaxed);
    common::end(runtime);
}

#[test]
fn dumps_race_with_goroutines_that_come_and_go() {
    child::run("churn").assert_success();
}

// ---- SIGQUIT ----

fn send_quit() {
    // SAFETY: a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) };
}

/// Keeps what is written to stderr, so that a process can see its own dump.
struct StderrInMemory {
    file: std::fs::File,
    stderr: std::os::fd::OwnedFd,
}

impl StderrInMemory {
    fn new() -> StderrInMemory {
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: fresh descriptors, owned from here on; 2 is stderr.
        unsafe {
            let stderr = std::os::fd::OwnedFd::from_raw_fd(libc::dup(2));
            let file = std::fs::File::from_raw_fd(libc::memfd_create(c"stderr".as_ptr(), 0));
            libc::dup2(file.as_raw_fd(), 2);
            StderrInMemory { file, stderr }
        }
    }

    fn text(&self) -> String {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; self.file.metadata().unwrap().len() as usize];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Then prints it to the real stderr.
    fn show_when_it_ends_with_a_dump(self) {
        wait_until("the dump is there", || self.text().ends_with("\n\n"));
        let text = self.text();
        drop(self);
        eprintln!("{text}");
    }
}

impl Drop for StderrInMemory {
    fn drop(&mut self) {
        use std::os::fd::AsRawFd;
        // SAFETY: descriptors of this process.
        unsafe { libc::dup2(self.stderr.as_raw_fd(), 2) };
    }
}

fn quit() {
    let runtime = common::runtime(2);
    runtime.spawn(sleeps_long);
    runtime.spawn(|| spins(&AtomicBool::new(false)));
    runtime.run(|| {
        wait_until("it sleeps", || debug::dump().to_string().contains(" [sleep, "));
        let stderr = StderrInMemory::new();
        println!("before");
        if std::env::var("MUNGO_DEBUG").is_ok_and(|v| v == "sigquit=continue") {
            send_quit();
            stderr.show_when_it_ends_with_a_dump();
            println!("after");
            std::process::exit(7);
        }
        drop(stderr);
        send_quit();
        mungo::sleep(Duration::from_secs(3600)); // it does not get so old
    });
}

const DUMPED: &str = "SIGQUIT: mungo: 3 goroutines";

#[test]
fn sigquit_prints_a_dump_and_ends_the_process() {
    let ended = child::run("quit");
    ended.assert_signal(libc::SIGQUIT).assert_says(DUMPED).assert_says(" [sleep, ");
    if STACKS {
        ended.assert_says("sleeps_long").assert_says("spins");
    }
    assert!(!ended.status.success() && !ended.stdout.contains("after"), "{ended:#?}");
}

#[test]
fn sigquit_may_leave_the_process_alive() {
    let mut command = child::command("quit");
    command.env("MUNGO_DEBUG", "sigquit=continue");
    let ended = child::finish(command);
    ended.assert_code(7).assert_says(DUMPED).assert_says(" [sleep, ");
}

#[test]
fn sigquit_may_be_left_alone() {
    let mut command = child::command("quit");
    command.env("MUNGO_DEBUG", "sigquit=off");
    child::finish(command).assert_signal(libc::SIGQUIT).assert_does_not_say("goroutines");
}

/// The monitor sleeps for an hour; several runtimes.
fn quit_when_idle() {
    let (one, two) = (common::runtime(1), common::runtime(2));
    one.spawn(sleeps_long);
    two.spawn(mungo::park);
    wait_until("both wait", || debug::dump().goroutines().iter().filter(|g| g.waited.is_some()).count() == 2);
    std::thread::sleep(Duration::from_millis(300));
    send_quit();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn sigquit_reaches_idle_runtimes() {
    let ended = child::run("quit_when_idle");
    ended.assert_signal(libc::SIGQUIT).assert_says("SIGQUIT: mungo: 2 goroutines of 2 runtimes");
    assert_eq!(ended.stderr.matches("SIGQUIT").count(), 1, "{ended:#?}");
}

fn quit_after_the_end() {
    let runtime = common::runtime(2);
    runtime.run(|| {});
    common::end(runtime);
    send_quit();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn sigquit_without_a_runtime_is_what_it_was() {
    child::run("quit_after_the_end").assert_signal(libc::SIGQUIT).assert_does_not_say("goroutine");
}

/// The signal comes while the only runtime ends: some time, in µs, after that began.
fn quit_at_the_end() {
    let runtime = common::runtime(1);
    let after: u64 = std::env::var("AFTER_US").unwrap().parse().unwrap();
    let sender = std::thread::spawn(move || {
        let until = std::time::Instant::now() + Duration::from_micros(after);
        while std::time::Instant::now() < until {}
        send_quit();
    });
    common::end(runtime);
    sender.join().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn sigquit_is_not_lost_with_a_runtime_that_ends() {
    for after in (0..40).map(|i| i * 5) {
        let mut command = child::command("quit_at_the_end");
        command.env("AFTER_US", after.to_string());
        child::finish(command).assert_signal(libc::SIGQUIT);
    }
}

static CALLED: AtomicBool = AtomicBool::new(false);

fn quit_with_a_handler() {
    extern "C" fn handler(_: libc::c_int) {
        CALLED.store(true, Relaxed);
    }
    // SAFETY: the handler does what a handler may.
    unsafe { libc::signal(libc::SIGQUIT, handler as *const () as usize) };
    let runtime = common::runtime(1);
    runtime.run(|| {
        let stderr = StderrInMemory::new();
        send_quit();
        wait_until("the program's handler is called", || CALLED.load(Relaxed));
        stderr.show_when_it_ends_with_a_dump();
    });
}

#[test]
fn a_handler_of_the_program_is_called_and_decides() {
    child::run("quit_with_a_handler").assert_success().assert_says("SIGQUIT: mungo: 1 goroutine\n");
}

fn quit_ignored() {
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGQUIT, libc::SIG_IGN) };
    let runtime = common::runtime(1);
    runtime.run(|| {
        let stderr = StderrInMemory::new();
        send_quit();
        stderr.show_when_it_ends_with_a_dump();
    });
    common::end(runtime);
    send_quit();
    println!("alive without a runtime");
}

/// What a script starts in the background has inherited that.
#[test]
fn where_sigquit_was_ignored_the_process_goes_on_after_a_dump() {
    let ended = child::run("quit_ignored");
    ended.assert_success().assert_says("SIGQUIT: mungo: 1 goroutine\n");
    assert!(ended.stdout.contains("alive"), "{ended:#?}");
}
