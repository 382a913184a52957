//! Goroutines that an injected call must not suspend are interrupted by thread-switching, or left alone: each reason
//! has a counter.
#![cfg(all(mungo_native, not(miri)))]

#[macro_use]
mod common;

use common::{child, gettid, hasty_runtime, wait_until};
use mungo::{InterruptionMetrics, Runtime};
use std::arch::naked_asm;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

children!(
    shared_thread_locals,
    in_a_handler,
    in_a_handler_that_nests,
    in_a_handler_on_its_stack,
    in_a_c_handler_on_its_stack,
    handlers_go_on,
    no_alternate_stacks
);

/// One P, a goroutine that competes for it, and the case: it computes until the flag is set.
struct Case {
    runtime: Runtime,
    stop: Arc<AtomicBool>,
    /// What the competitor has done.
    others: Arc<AtomicU64>,
}

impl Case {
    fn start(case: impl FnOnce(&AtomicBool) + Send + 'static) -> Case {
        let runtime = hasty_runtime(1);
        let (stop, others) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        runtime.spawn({
            let stop = stop.clone();
            move || case(&stop)
        });
        runtime.spawn({
            let (stop, others) = (stop.clone(), others.clone());
            move || {
                while !stop.load(Relaxed) {
                    others.fetch_add(1, Relaxed);
                }
            }
        });
        Case { runtime, stop, others }
    }

    fn counters(&self) -> InterruptionMetrics {
        self.runtime.metrics().interruptions
    }

    /// Waits until the case was interrupted several times, and the other goroutine ran in between.
    #[track_caller]
    fn wait_for(&self, what: &str, counter: impl Fn(InterruptionMetrics) -> u64) {
        for n in 1..=5 {
            let before = self.others.load(Relaxed);
            wait_until(what, || counter(self.counters()) >= n);
            wait_until("the other goroutine runs", || self.others.load(Relaxed) > before);
        }
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        common::end(self.runtime);
    }
}

fn spin(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        black_box(());
    }
}

/// Calls `f(argument)` on the stack that ends at `top`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn call_on(top: usize, f: extern "C" fn(*const AtomicBool), argument: *const AtomicBool) {
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}

/// Calls `f(argument)` on the stack that ends at `top`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn call_on(top: usize, f: extern "C" fn(*const AtomicBool), argument: *const AtomicBool) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

extern "C" fn spin_at(stop: *const AtomicBool) {
    // SAFETY: the caller's, which outlives the call.
    spin(unsafe { &*stop });
}

#[test]
fn on_a_stack_of_its_own_making() {
    let case = Case::start(|stop| {
        let mut stack = vec![0_u128; 4096];
        call_on(stack.as_mut_ptr_range().end as usize, spin_at, stop);
    });
    case.wait_for("it is interrupted on a foreign stack", |c| c.foreign_stack);
    case.end();
}

/// The lowest address of the stack that the caller is on: the first page below which cannot be read.
fn low_end_of_stack() -> usize {
    const PAGE: usize = 4096;
    const NO_SUCH_ACTION: i32 = -1;
    // Neither the kernel nor an emulator changes anything: the address is looked at first, then the action.
    let is_readable = |address: usize| {
        let no_old: *mut u8 = std::ptr::null_mut();
        // SAFETY: the kernel reads a word of this process, if there is one.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_ACTION, address, no_old, 8) };
        std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
    };
    let mut here = 0_u8;
    let mut page = std::ptr::from_mut(black_box(&mut here)).addr() & !(PAGE - 1);
    while is_readable(page - PAGE) {
        page -= PAGE;
    }
    page
}

/// Descends until fewer than `left` bytes of the stack that begins at `low` are left, and then computes.
#[inline(never)]
fn descend(low: usize, left: usize, stop: &AtomicBool) {
    let mut frame = [0_u8; 128];
    if black_box(&mut frame).as_ptr().addr() - low > left {
        descend(low, left, stop);
    } else {
        spin(stop);
    }
    black_box(&mut frame);
}

#[test]
fn at_the_end_of_its_stack() {
    let case = Case::start(|stop| descend(low_end_of_stack(), 3 << 10, stop));
    case.wait_for("it is interrupted with little stack", |c| c.little_stack);
    case.end();
}

/// With as little stack as there may be: what the injected call does must fit, whichever way it goes.
#[test]
fn near_the_end_of_its_stack() {
    for is_locked in [false, true] {
        // The depth that is reached, and the one that it may go on to.
        let (reached, next) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let depths = || (4 << 10..16 << 10).step_by(256);
        let case = Case::start({
            let (reached, next) = (reached.clone(), next.clone());
            move |_| {
                let _guard = is_locked.then(mungo::lock_os_thread);
                let low = low_end_of_stack();
                for left in depths() {
                    descend_and_wait(low, left, &reached, &next);
                }
            }
        });
        for left in depths() {
            wait_until("it comes to a depth", || reached.load(Relaxed) == left);
            let interruptions = || {
                let counters = case.counters();
                counters.injected + counters.little_stack
            };
            // The two take turns, so one of them at least was its own.
            let before = interruptions();
            wait_until("it was interrupted there", || interruptions() >= before + 2);
            next.store(left, Relaxed);
        }
        let counters = case.counters();
        assert!(counters.injected > 0 && counters.little_stack > 0, "{counters:?}");
        case.end();
    }
}

/// As `descend`, and computes there until it may go on.
#[inline(never)]
fn descend_and_wait(low: usize, left: usize, reached: &AtomicUsize, next: &AtomicUsize) {
    let mut frame = [0_u8; 64];
    if black_box(&mut frame).as_ptr().addr() - low > left {
        descend_and_wait(low, left, reached, next);
    } else {
        reached.store(left, Relaxed);
        while next.load(Relaxed) != left {
            black_box(());
        }
    }
    black_box(&mut frame);
}

/// Blocks or unblocks a signal for the calling thread.
fn block(signal: libc::c_int, how: libc::c_int) {
    // SAFETY: a set of signals, which the call reads.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

/// The handler then runs on the goroutine's own stack, and the kernel keeps vector registers right below the red zone.
#[test]
fn without_an_alternate_stack() {
    let case = Case::start(|stop| {
        let thread = mungo::lock_os_thread();
        // SAFETY: the thread goes without an alternate stack, and gets its own back. Not by the C library's function,
        // which the runtime answers.
        unsafe {
            let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            let mut old: libc::stack_t = std::mem::zeroed();
            let no_old = std::ptr::null_mut::<libc::stack_t>();
            assert_eq!(libc::syscall(libc::SYS_sigaltstack, &raw const none, &raw mut old), 0);
            spin(stop);
            assert_eq!(libc::syscall(libc::SYS_sigaltstack, &raw const old, no_old), 0);
        }
        drop(thread);
    });
    case.wait_for("it is interrupted on its own stack", |c| c.signal_mask);
    case.end();
}

/// Threads get no alternate stack. Goroutines that compute with little stack left make room all the same.
fn no_alternate_stacks() {
    common::forbid(libc::SYS_sigaltstack);
    let case = Case::start(|stop| descend(low_end_of_stack(), 3 << 10, stop));
    for _ in 0..5 {
        let before = case.others.load(Relaxed);
        wait_until("the other goroutine runs", || case.others.load(Relaxed) > before);
    }
    let stop = case.stop.clone();
    let deep =
        mungo::Builder::new().stack_size(16 << 10).spawn(move || descend(low_end_of_stack(), 3 << 10, &stop));
    case.end();
    deep.unwrap().join().unwrap();
    println!("done");
}

#[test]
#[cfg_attr(mungo_asan, ignore = "the sanitizer insists on an alternate stack for each thread")]
fn where_threads_get_no_alternate_stack() {
    if child::is_emulated(common::NO_FILTERS) {
        return;
    }
    assert!(child::run("no_alternate_stacks").assert_success().stdout.contains("done"));
}

#[test]
fn with_a_signal_mask_of_its_own() {
    let case = Case::start(|stop| {
        let thread = mungo::lock_os_thread();
        block(libc::SIGUSR1, libc::SIG_BLOCK);
        spin(stop);
        block(libc::SIGUSR1, libc::SIG_UNBLOCK);
        drop(thread);
    });
    case.wait_for("it is interrupted with an unusual mask", |c| c.signal_mask);
    case.end();
}

/// A program that leaves signals to one thread blocks them before it starts others. Workers take ours all the same.
#[test]
fn a_runtime_that_was_built_with_all_signals_blocked() {
    // SAFETY: sets of signals, which the calls read or write.
    let case = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before), 0);
        let case = Case::start(spin);
        assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()), 0);
        case
    };
    case.wait_for("it is interrupted", |c| c.injected);
    case.end();
}

/// It cannot be interrupted at all; the monitor takes its P.
#[test]
fn with_the_signal_itself_blocked() {
    let case = Case::start(|stop| {
        let thread = mungo::lock_os_thread();
        block(libc::SIGURG, libc::SIG_BLOCK);
        spin(stop);
        block(libc::SIGURG, libc::SIG_UNBLOCK);
        drop(thread);
    });
    wait_until("the other goroutine runs", || case.others.load(Relaxed) > 0);
    case.end();
}

static STOP_HANDLER: AtomicBool = AtomicBool::new(false);

/// A goroutine is in a handler of the program, which computes.
fn with_handler(flags: libc::c_int, what: &str, counter: impl Fn(InterruptionMetrics) -> u64) {
    extern "C" fn handler(_: libc::c_int) {
        spin(&STOP_HANDLER);
    }
    with_handler_at(handler as *const () as usize, flags, what, counter);
}

fn with_handler_at(
    handler: usize,
    flags: libc::c_int,
    what: &str,
    counter: impl Fn(InterruptionMetrics) -> u64,
) {
    // SAFETY: a handler that computes, and nothing else.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
    let case = Case::start(|stop| {
        // SAFETY: a signal that has a handler.
        unsafe { libc::raise(libc::SIGUSR2) };
        spin(stop);
    });
    case.wait_for(what, counter);
    STOP_HANDLER.store(true, Relaxed);
    case.end();
}

fn in_a_handler() {
    with_handler(libc::SA_ONSTACK, "it is interrupted in the handler", |c| c.in_handler);
}

fn in_a_handler_that_nests() {
    with_handler(libc::SA_ONSTACK | libc::SA_NODEFER, "it is interrupted in the handler", |c| c.in_handler);
}

/// Its mask is the usual one, and so is the stack. If the goroutine went on elsewhere, the end of the handler would
/// give that thread the alternate stack of this one.
fn in_a_handler_on_its_stack() {
    with_handler(libc::SA_NODEFER, "it is interrupted in the handler", |c| c.in_handler);
}

/// A handler does not wait for a P: it comes to its end while another goroutine has the only one for an hour.
fn handlers_go_on() {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    static HAS_RUN: AtomicBool = AtomicBool::new(false);
    static ENDED: AtomicBool = AtomicBool::new(false);
    extern "C" fn handler(_: libc::c_int) {
        HAS_BEGUN.store(true, Relaxed);
        spin(&STOP_HANDLER);
        ENDED.store(true, Relaxed);
    }
    for flags in [0, libc::SA_ONSTACK] {
        [&STOP_HANDLER, &HAS_BEGUN, &HAS_RUN, &ENDED].iter().for_each(|flag| flag.store(false, Relaxed));
        // SAFETY: a handler that computes, and nothing else.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
        }
        let slice = Duration::from_secs(3600);
        let runtime = Runtime::builder().procs(1).time_slice(slice).build().unwrap();
        // SAFETY: a signal that has a handler.
        let first = runtime.spawn(|| unsafe { libc::raise(libc::SIGUSR2) });
        wait_until("the handler runs", || HAS_BEGUN.load(Relaxed));
        let stop = Arc::new(AtomicBool::new(false));
        let spun = stop.clone();
        let other = runtime.spawn(move || {
            HAS_RUN.store(true, Relaxed);
            spin(&spun);
        });
        wait_until("the other goroutine has the P", || HAS_RUN.load(Relaxed));
        STOP_HANDLER.store(true, Relaxed);
        wait_until("the handler comes to its end", || ENDED.load(Relaxed));
        stop.store(true, Relaxed);
        other.join().unwrap();
        assert_eq!(first.join().unwrap(), 0);
        common::end(runtime);
    }
}

#[test]
fn a_signal_handler_does_not_wait_for_a_p() {
    child::run("handlers_go_on").assert_success();
}

#[test]
fn in_a_signal_handler() {
    child::run("in_a_handler").assert_success();
    child::run("in_a_handler_that_nests").assert_success();
    child::run("in_a_handler_on_its_stack").assert_success();
}

/// A handler that calls a function, so that the address to which it returns lies on the stack.
const HANDLER: &str = "
volatile unsigned char *stop;
__attribute__((noinline)) void spins(void) { while (!*stop) ; }
void handler(int number) { spins(); *stop; }
";
const LIBRARY: &str = "MUNGO_TEST_LIBRARY";
/// Lets C code check where its functions return to.
#[cfg(target_arch = "aarch64")]
const CHECKED_RETURNS: &str = "-mbranch-protection=pac-ret+leaf";
#[cfg(target_arch = "x86_64")]
const CHECKED_RETURNS: &str = "-fcf-protection=full";

fn in_a_c_handler_on_its_stack() {
    let path = std::ffi::CString::new(std::env::var(LIBRARY).unwrap()).unwrap();
    // SAFETY: a library without constructors, and its variable and function of these types.
    let handler = unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        libc::dlsym(library, c"stop".as_ptr()).cast::<*const AtomicBool>().write(&STOP_HANDLER);
        libc::dlsym(library, c"handler".as_ptr()) as usize
    };
    let what = "it is interrupted in the handler";
    with_handler_at(handler, libc::SA_NODEFER, what, |c| c.in_handler);
}

/// On aarch64 the handler signs the address to which it returns, where the processor can do that.
#[test]
fn in_a_signal_handler_with_checked_returns() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [source, library] =
        ["c", "so"].map(|ext| folder.join(format!("preempt_refused_{}.{ext}", std::process::id())));
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(&source, HANDLER).unwrap();
    let mut cc = child::cc();
    cc.args(["-O1", "-fno-optimize-sibling-calls", CHECKED_RETURNS, "-shared", "-fPIC", "-o"]);
    let built = cc.arg(&library).arg(&source).status();
    _ = std::fs::remove_file(source);
    match built {
        Ok(status) => assert!(status.success(), "cc: {status}"),
        Err(_) => return eprintln!("skipped: no C compiler"),
    }
    let mut command = child::command("in_a_c_handler_on_its_stack");
    command.env(LIBRARY, &library);
    let ended = child::finish(command);
    _ = std::fs::remove_file(library);
    ended.assert_success();
}

fn shared_thread_locals() {
    let case = Case::start(spin);
    case.wait_for("it is interrupted with its thread's thread-locals", |c| c.shared_thread_locals);
    assert_eq!(case.counters().injected, 0);
    case.end();
}

#[test]
fn with_the_thread_locals_of_its_thread() {
    let mut command = child::command("shared_thread_locals");
    command.env("MUNGO_DEBUG", "owntls=0");
    child::finish(command).assert_success();
}

#[test]
fn in_libc() {
    let case = Case::start(|stop| {
        let (text, needle) = (vec![b'a'; 1 << 20], [b'b']);
        while !stop.load(Relaxed) {
            // SAFETY: two buffers and their lengths.
            let found =
                unsafe { libc::memmem(text.as_ptr().cast(), text.len(), needle.as_ptr().cast(), needle.len()) };
            assert!(found.is_null());
        }
    });
    case.wait_for("a signal finds it in libc", |c| c.in_libc);
    case.end();
}

/// The monitor sends no signal to a thread that sleeps in the kernel. One that comes from elsewhere, or too late, finds
/// the call and lets it go on.
#[test]
fn in_a_system_call() {
    let mut ends = [-1; 2];
    // SAFETY: the kernel fills the two places.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let [read, write] = ends;
    let tid = Arc::new(AtomicU64::new(0));
    let case = Case::start({
        let tid = tid.clone();
        move |_| {
            let _guard = mungo::lock_os_thread(); // it could be interrupted between the next two calls
            let mut byte = 0_u8;
            tid.store(gettid() as u64, Relaxed);
            // SAFETY: one byte to a place of one byte.
            let n = unsafe { libc::read(read, (&raw mut byte).cast(), 1) };
            assert_eq!((n, byte), (1, 7), "the call went on");
        }
    });
    wait_until("it reads", || tid.load(Relaxed) != 0);
    case.wait_for("calls are hit", |interruptions| {
        // SAFETY: a signal to a thread of this process, which has a handler for it.
        unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), tid.load(Relaxed) as libc::pid_t, libc::SIGURG)
        };
        interruptions.in_system_call
    });
    // SAFETY: one byte from a place of one byte.
    assert_eq!(unsafe { libc::write(write, [7_u8].as_ptr().cast(), 1) }, 1);
    case.end();
}

#[test]
fn blocked_calls_never_return_early() {
    let runtime = hasty_runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(move || spin(&stop))
        })
        .collect();
    let blocked: Vec<_> = (0..4)
        .map(|n| {
            runtime.spawn(move || {
                let time = libc::timespec { tv_sec: 0, tv_nsec: 300_000 };
                let mut pipe = [0; 2];
                // SAFETY: two file descriptors are written.
                assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
                for i in 0..150_u8 {
                    let mut byte = !i;
                    // SAFETY: valid arguments.
                    let result = unsafe {
                        match n {
                            0 => libc::nanosleep(&time, std::ptr::null_mut()),
                            1 => libc::poll(std::ptr::null_mut(), 0, 1),
                            2 => libc::ppoll(std::ptr::null_mut(), 0, &time, std::ptr::null()),
                            _ => {
                                assert_eq!(libc::write(pipe[1], (&raw const i).cast(), 1), 1);
                                libc::read(pipe[0], (&raw mut byte).cast(), 1) as i32 - 1
                            }
                        }
                    };
                    assert_eq!(result, 0, "kind {n}: {}", std::io::Error::last_os_error());
                    assert!(n != 3 || byte == i);
                    (0..20_000).for_each(|k| _ = black_box(k));
                }
                // SAFETY: open files of ours.
                pipe.iter().for_each(|file| assert_eq!(unsafe { libc::close(*file) }, 0));
            })
        })
        .collect();
    blocked.into_iter().for_each(|g| g.join().unwrap());
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|g| g.join().unwrap());
    common::end(runtime);
}

#[test]
fn one_that_is_locked_to_its_thread_is_interrupted_and_stays() {
    let runtime = hasty_runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let turns: Arc<[AtomicU64; 3]> = Arc::default();
    let goroutines: Vec<_> = (0..3)
        .map(|n| {
            let (stop, turns) = (stop.clone(), turns.clone());
            runtime.spawn(move || {
                let _guard = mungo::lock_os_thread();
                let thread = gettid();
                while !stop.load(Relaxed) {
                    (0..20_000).for_each(|k| _ = black_box(k));
                    assert_eq!(gettid(), thread);
                    turns[n].fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    wait_until("it is interrupted", || runtime.metrics().interruptions.injected > 50);
    let seen: Vec<u64> = turns.iter().map(|t| t.load(Relaxed)).collect();
    wait_until("all go on", || turns.iter().zip(&seen).all(|(now, before)| now.load(Relaxed) > *before));
    stop.store(true, Relaxed);
    goroutines.into_iter().for_each(|g| g.join().unwrap());
    common::end(runtime);
}
