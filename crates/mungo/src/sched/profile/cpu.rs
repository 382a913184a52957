//! The CPU profile: a signal to each thread that computes, whose handler copies the stack.
//!
//! The handler is async-signal-safe: it claims a slot of the ring, copies, and counts. A goroutine's stack is copied up
//! to the end of its slot, whatever it is on otherwise (its thread's, or one of the program's own) by the kernel, which
//! stops where nothing is mapped. The copy is unwound elsewhere: see `docs/profiles.md` why not here.
//!
//! The handler stays installed for ever: a signal that is still on its way when a profile ends would kill the process.

use super::keeper;
use super::raw::Raw;
use super::ring::{self, Sample};
use super::store::Store;
use super::sums::Sums;
use super::timers::Timers;
use super::{Subject, raw};
use crate::reason::WaitReason;
use crate::sched::report::stacks::Registers;
use crate::sched::run::current;
use crate::sched::run::g::G;
use crate::sys::clock;
use crate::sys::interrupted::{in_system_call, repeat_call};
use crate::sys::signal::{call_previous, overruns};
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// CPU time in ns between two samples of a thread; 0: no profile. Written under the keeper's lock.
static PERIOD_NS: AtomicU64 = AtomicU64::new(0);
/// What SIGPROF did before; its handler is ours from then on.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A CPU profile in the making. It lies with the keeper.
pub(super) struct Session {
    timers: Timers,
    since_ns: u64,
    lost_before: u64,
}

impl Session {
    /// Sees to it that threads that are new are profiled too.
    pub(super) fn watch_threads(&mut self) {
        self.timers.watch_threads();
    }
}

/// Starts a CPU profile, with this many samples per second of CPU time.
pub(crate) fn start(hz: u32) -> io::Result<()> {
    if !(1..=10_000).contains(&hz) {
        let why = format!("hz is {hz}: it must be from 1 to 10000");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    install()?;
    keeper::change(|kept| {
        if kept.cpu.is_some() {
            let why = "a CPU profile is being taken already: stop that one first";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let period_ns = 1_000_000_000 / u64::from(hz);
        kept.store.get_or_insert_with(Store::new).cpu = Sums::default();
        PERIOD_NS.store(period_ns, Relaxed);
        let mut timers = Timers::new(period_ns);
        timers.watch_threads();
        let lost_before = ring::LOST[0].load(Relaxed);
        kept.cpu = Some(Session { timers, since_ns: clock::now_ns(), lost_before });
        Ok(())
    })?
}

/// Ends the CPU profile and returns it. On a plain thread.
pub(crate) fn stop() -> io::Result<Raw> {
    let mut kept = keeper::lock()?;
    let period_ns = PERIOD_NS.swap(0, Relaxed);
    let Some(Session { timers, since_ns, lost_before }) = kept.cpu.take() else { return Ok(Raw::default()) };
    let refused = timers.refused();
    drop(timers);
    let store = kept.store.get_or_insert_with(Store::new);
    store.collect();
    let sums = std::mem::take(&mut store.cpu);
    let samples = sums.iter().map(|sum| raw::sample_of(store, sum)).collect();
    Ok(Raw {
        samples,
        lost: ring::LOST[0].load(Relaxed) - lost_before,
        threads_missed: refused,
        duration_ns: clock::now_ns() - since_ns,
        period_ns,
    })
}

/// Ends the profile in the child of a fork, which has inherited no timers. Async-signal-safe.
pub(super) fn forget_period() {
    PERIOD_NS.store(0, Relaxed);
}

/// Installs the handler, unless SIGPROF has another one.
fn install() -> io::Result<()> {
    static INSTALLING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = INSTALLING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: structures that the kernel writes or reads; the handler is of the three-argument kind, on the alternate
    // stack, all signals blocked meanwhile.
    unsafe {
        let mut present: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(libc::SIGPROF, std::ptr::null(), &mut present);
        let ours = handle as *const () as usize;
        if present.sa_sigaction == ours {
            return Ok(());
        }
        if !matches!(present.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            let why = "SIGPROF has a handler: another profiler is in use, which has to be stopped first";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        _ = PREVIOUS.set(present);
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = ours;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    match overruns(info) {
        Some(overruns) => {
            if in_system_call(context) {
                repeat_call(context);
            }
            take(overruns, context);
        }
        None => _ = PREVIOUS.get().map(|previous| call_previous(previous, signal, info, context)),
    }
    // SAFETY: as above; all signals are blocked, so it is the same thread, and the same goroutine.
    unsafe { *libc::__errno_location() = errno };
}

/// Takes a sample of the interrupted code. Async-signal-safe.
fn take(overruns: u32, context: *mut c_void) {
    let period_ns = PERIOD_NS.load(Relaxed);
    if period_ns == 0 {
        return; // it came too late
    }
    let Some(slot) = ring::claim(Subject::Cpu) else { return };
    let registers = Registers::of(context);
    let (g, own) = interrupted(registers.sp);
    let count = 1.0 + f64::from(overruns);
    let ns = count * period_ns as f64;
    let sample = match g {
        // SAFETY: it runs on this thread, which is in this handler.
        Some(g) => unsafe { Sample::of(g, Subject::Cpu, WaitReason::None, count, ns) },
        None => Sample {
            subject: Subject::Cpu,
            reason: WaitReason::None,
            count,
            ns,
            goroutine: 0,
            place: None,
            labels: None,
        },
    };
    // SAFETY: a goroutine's stack, which is mapped, or nothing.
    unsafe { slot.fill(sample, registers, own) };
}

/// Returns the goroutine that was interrupted with this stack pointer, if one was, and its stack if it was on it.
fn interrupted(sp: usize) -> (Option<&'static G>, Range<usize>) {
    let Some(g) = current::g() else { return (None, 0..0) };
    let stack = g.slot().map_or(0..0, |slot| slot.stack());
    if stack.contains(&sp) {
        return (Some(g), stack);
    }
    // A worker between two goroutines is on the thread-locals of one, and on its own stack.
    // SAFETY: the M that runs this goroutine, or ran it last; Ms live as long as the runtime.
    let runs = unsafe { g.m.load(Relaxed).as_ref() }.is_some_and(|m| std::ptr::eq(m.g.load(Relaxed), g));
    (runs.then_some(g), 0..0)
}
