//! Preemption of code that never calls the runtime.
//!
//! The monitor asks the P of a goroutine that shall make room, and sends its thread SIGURG. The handler makes the
//! goroutine call [`injected`] where it stands (`stack/inject/`), which suspends it as a call of the runtime would:
//! it lies in a queue, holds no thread, and may go on elsewhere, because its thread-locals are its own.
//! `docs/preemption.md` is the essay about it.
//!
//! Where a call cannot be injected ([`Outcome`] lists the reasons) the thread stays and the P goes: the handler queues
//! the goroutine as one that is bound to its thread, passes the P on to another thread, and sleeps until it is given
//! one again. The kernel saved all registers, so this is as safe as the kernel's own preemption, and costs a thread.
//!
//! The handler runs when the kernel gets round to the thread, which on a busy machine may be hundreds of milliseconds
//! later; and in libc, in the library that `malloc` is in, or in a signal handler of the program, it does nothing. If
//! the P has not moved after 200 µs, the monitor takes it, by the same protocol as from a blocked goroutine, and sends
//! another signal when it sees the thread computing without one.
//!
//! In the handler everything is async-signal-safe: atomics, futexes, and two kinds of lock, the scheduler's and
//! `M::retake`, which this thread cannot hold (it would be in the runtime, and then the handler does nothing). Starting
//! a thread is left to the starter (`threads/starter.rs`). ARCHITECTURE.md has the whole list, invariant 6.
//!
//! Rejected: the monitor takes the P at once. That needs a `membarrier` each time, 4 % of the CPU time of a web server
//! whose requests compute.

use super::{blocking, bound};
use crate::debug_env::AsyncPreempt;
use crate::sched::report::stacks;
use crate::sched::run::current;
use crate::sched::run::g::{G, Switch};
use crate::sched::run::m::M;
use crate::sched::run::p::RETIRE;
use crate::sys::interrupted::{in_system_call, program_counter, repeat_call, signal_mask};
use crate::sys::say::say;
use crate::sys::signal::{Link, is_marked, send_marked};
use crate::sys::{affinity, membarrier, modules};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use std::sync::{Mutex, OnceLock};

/// The signal that interrupts. Go's choice: ignored by default, rarely used by programs, harmless if spurious.
pub(crate) const SIGNAL: c_int = libc::SIGURG;

/// The flags of the handler. Without the first two it would not get what it needs.
const FLAGS: c_int = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;

struct Installed {
    /// The address of the handler, as the kernel knows it.
    handler: usize,
    /// Code of libc, of the loader, and of the library that `malloc` is in. Their locks are held for a moment only, so
    /// the signal waits for the next look.
    system_code: Vec<Range<usize>>,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// The program's handlers, which are called for signals that are not ours. Written before ours is installed and by
/// [`keep_installed`], read by the handler.
static PREVIOUS: AtomicPtr<Link> = AtomicPtr::new(std::ptr::null_mut());

/// Installs the handler; once for the process. A handler that was there is called for signals that are not ours.
pub(crate) fn install() {
    affinity::prepare();
    membarrier::is_present(); // asked here, so that the handler finds the answer
    INSTALLED.get_or_init(|| {
        let installed = Installed { handler: prepare_injection(), system_code: system_code() };
        remember(&current_action());
        put(installed.handler);
        installed
    });
}

/// Puts the handler back if the program has set another action since, says so once, and calls the program's for signals
/// that are not ours. The helper of each runtime asks for it once a second.
///
/// WHY NOT leave the program's in place: goroutines that compute would keep their threads. It is replaced also where it
/// calls ours, which cannot be known.
pub(crate) fn keep_installed() {
    /// Held by the helper that is about to put it back.
    static KEEPER: Mutex<()> = Mutex::new(());
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some(installed) = INSTALLED.get() else { return };
    let is_ours = |action: &libc::sigaction| action.sa_sigaction == installed.handler;
    let is_as_it_was = |action: &libc::sigaction| is_ours(action) && action.sa_flags & FLAGS == FLAGS;
    let found = current_action();
    if is_as_it_was(&found) {
        return;
    }
    let Ok(_keeper) = KEEPER.try_lock() else { return };
    // A signal that comes from here on finds one of both: the program's is noted first. It may have changed meanwhile.
    if !is_ours(&found) {
        remember(&found);
    }
    let replaced = put(installed.handler);
    if !is_ours(&replaced) {
        remember(&replaced);
        if !SAID.swap(true, Relaxed) {
            say!(
                "mungo: the program has set another action for SIGURG, the signal that interrupts goroutines that \
                 compute: the runtime's handler is back, and calls the program's for signals from others. Install \
                 the program's before the first runtime is built, or use another signal."
            );
        }
    }
}

/// Makes the handler the process's. Returns the action that was there.
fn put(handler: usize) -> libc::sigaction {
    // SAFETY: a handler of the three-argument kind, on the alternate stack, all signals blocked meanwhile.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        let mut replaced: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler;
        action.sa_flags = FLAGS;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(SIGNAL, &action, &mut replaced);
        replaced
    }
}

/// Returns what the process does about the signal.
fn current_action() -> libc::sigaction {
    // SAFETY: asks, and changes nothing.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(SIGNAL, std::ptr::null(), &mut action);
        action
    }
}

/// Notes an action of the program. What was noted before takes no new memory. One caller at a time.
fn remember(action: &libc::sigaction) {
    let last = previous();
    let known = last.and_then(|last| last.find(action));
    let link = known.unwrap_or_else(|| Link::leak(*action, last));
    // ORDERING: Release its contents to `previous`, in the handler.
    PREVIOUS.store(std::ptr::from_ref(link).cast_mut(), Release);
}

fn previous() -> Option<&'static Link> {
    // SAFETY: null, or leaked by `remember`. ORDERING: Acquire its contents, which `remember` has released.
    unsafe { PREVIOUS.load(Acquire).as_ref() }
}

/// The outcome of a signal that asked a goroutine to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The goroutine was suspended by an injected call.
    Injected,
    /// Thread-switching: [`usual_way`] or `MUNGO_DEBUG=asyncpreempt=thread`, or a CPU that cannot save its vector
    /// state.
    ByThread,
    /// Thread-switching: the goroutine ran on a stack that is not its own.
    ForeignStack,
    /// Thread-switching: too little of its stack was left.
    LittleStack,
    /// Thread-switching: its thread's signal mask was not the usual one.
    SignalMask,
    /// Thread-switching: it shares its thread's thread-locals.
    SharedThreadLocals,
    /// Thread-switching: a shadow stack is in force.
    ShadowStack,
    /// Nothing: it was in libc, in the loader or in another library's `malloc`. The monitor takes the P if it stays
    /// there.
    InLibc,
    /// Nothing: it was in a signal handler of the program. The monitor takes the P if it stays there.
    InHandler,
    /// Nothing: it was in a system call, which goes on.
    InSystemCall,
}

/// The number of times that each [`Outcome`] came about. Written by signal handlers, read by `Metrics`.
#[derive(Debug, Default)]
pub(crate) struct Outcomes([AtomicU64; Outcome::InSystemCall as usize + 1]);

impl Outcomes {
    fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Relaxed)
    }
}

/// Asks the M's thread to give its goroutine up.
pub(crate) fn interrupt(m: &M) {
    send_marked(m.tid.load(Relaxed), SIGNAL);
}

/// Lets the signal in on the calling worker thread, whose maker may have blocked all signals. Keeps it out of a thread
/// without an alternate stack: a small goroutine's stack has no room for the handler, and the monitor takes the Ps of
/// goroutines that compute there.
pub(super) fn admit(has_alternate_stack: bool) {
    let how = if has_alternate_stack { libc::SIG_UNBLOCK } else { libc::SIG_BLOCK };
    // SAFETY: a set of signals, which is made and then read.
    unsafe {
        let mut set = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        if !has_alternate_stack {
            libc::sigaddset(&mut set, libc::SIGPROF); // of CPU profiles
        }
        libc::pthread_sigmask(how, &set, std::ptr::null_mut());
    }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    let is_passed_on = !is_marked(info) && chain(signal, info, context);
    // This is done also for a signal from another sender: ours, if it was pending too, is lost in it.
    if let Some(g) = current::g()
        && !is_passed_on
    {
        on_goroutine(g, context);
    }
    // SAFETY: as above; the goroutine is on the same thread.
    unsafe { *libc::__errno_location() = errno };
}

fn on_goroutine(g: &'static G, context: *mut c_void) {
    // SAFETY: the M that runs this goroutine: it was stored before its thread-locals were loaded.
    let m = unsafe { &*g.m.load(Relaxed) };
    stacks::on_signal(m, g, context);
    if g.is_in_runtime() {
        return; // the flag is seen when it leaves the runtime
    }
    g.enter_runtime();
    let in_call = in_system_call(context);
    if in_call {
        // The call is repeated whether or not the signal is of use, or was meant for the goroutine that ran here
        // before.
        repeat_call(context);
    }
    if shall_give_way(m) {
        let outcome = if in_call { Outcome::InSystemCall } else { give_way(m, g, context) };
        m.shared().interruptions.count(outcome);
        if outcome == Outcome::Injected {
            return; // in the runtime until `injected` leaves it
        }
    }
    g.leave_runtime();
}

/// Returns whether the goroutine has lost its P, or is asked to give it up. Else the signal is from outside, or came
/// too late.
///
/// A P that retires is not for a signal handler: the monitor takes it.
fn shall_give_way(m: &M) -> bool {
    m.p().is_none_or(|p| p.is_asked_on(p.tick.load(Relaxed)) && p.flags.load(Relaxed) & RETIRE == 0)
}

/// Lets other goroutines have the P, by one of the ways.
fn give_way(m: &M, g: &G, context: *mut c_void) -> Outcome {
    if is_in_system_code(context) {
        m.declined.store(true, Relaxed);
        return Outcome::InLibc;
    }
    let outcome = try_to_inject(m, g, context);
    if outcome == Outcome::Injected {
        return outcome;
    }
    // WHY NOT thread-switching: the handler would wait for a P, behind goroutines that may compute for long, with its
    // signals blocked and whatever it interrupted undone. It goes on without a P instead.
    if is_in_handler(g, context) && membarrier::is_present() {
        m.declined.store(true, Relaxed);
        return Outcome::InHandler;
    }
    m.interrupted.note(context);
    // ORDERING: Release what was just noted to threads that take dumps.
    m.in_handler.store(true, Release);
    bound::give_way(m, g);
    m.in_handler.store(false, Relaxed);
    // ORDERING: Release the end before what the goroutine writes from now on: see `Capture::preempted`.
    fence(Release);
    outcome
}

/// Returns whether the signal interrupted another handler, one of the program's.
#[cfg(mungo_native)]
fn is_in_handler(g: &G, context: *mut c_void) -> bool {
    let stack = g.slot().map_or(0..0, |slot| slot.guard().end..slot.base());
    // SAFETY: in the handler, with its context; the slot is the goroutine's, which runs here.
    unsafe { crate::stack::inject::was_in_handler(context, stack) }
}

#[cfg(not(mungo_native))]
fn is_in_handler(_g: &G, _context: *mut c_void) -> bool {
    false
}

#[cfg(mungo_native)]
fn try_to_inject(m: &M, g: &G, context: *mut c_void) -> Outcome {
    use crate::stack::inject::{Refused, inject};
    if m.shared().config.async_preempt != AsyncPreempt::Inject {
        return Outcome::ByThread;
    }
    if g.shares_tls() {
        return Outcome::SharedThreadLocals;
    }
    if signal_mask(context) != m.signal_mask.load(Relaxed) {
        return Outcome::SignalMask;
    }
    let Some(slot) = g.slot() else { return Outcome::ByThread };
    // SAFETY: in the handler, with its context; the slot is the goroutine's, which runs here.
    match unsafe { inject(context, slot.guard().end..slot.base()) } {
        Ok(()) => Outcome::Injected,
        Err(Refused::ForeignStack) => Outcome::ForeignStack,
        Err(Refused::LittleStack) => Outcome::LittleStack,
        Err(Refused::InHandler) => Outcome::SignalMask,
        Err(Refused::ShadowStack) => Outcome::ShadowStack,
        Err(Refused::Impossible) => Outcome::ByThread,
    }
}

#[cfg(not(mungo_native))]
fn try_to_inject(m: &M, g: &G, context: *mut c_void) -> Outcome {
    _ = (m.signal_mask.load(Relaxed), signal_mask(context), g, AsyncPreempt::Inject);
    Outcome::ByThread
}

/// Prepares injected calls. Returns the handler to install.
#[cfg(mungo_native)]
fn prepare_injection() -> usize {
    crate::stack::inject::prepare(injected);
    crate::stack::inject::entry(handle as *const () as usize)
}

#[cfg(mungo_native)]
fn is_in_stub(at: usize) -> bool {
    crate::stack::inject::stub_code().contains(&at)
}

#[cfg(not(mungo_native))]
fn is_in_stub(_at: usize) -> bool {
    false
}

#[cfg(not(mungo_native))]
fn prepare_injection() -> usize {
    handle as *const () as usize
}

/// Suspends the interrupted goroutine, on its own stack. It has been in the runtime since the handler.
#[cfg(mungo_native)]
extern "C" fn injected(frame: &crate::stack::inject::Frame) {
    // SAFETY: this goroutine's errno, which the interrupted code may be about to read. The address stays the same
    // wherever it goes on.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let g = current::g().expect("a goroutine was interrupted");
    g.note_interruption(std::ptr::from_ref(frame).addr());
    // The goroutine goes straight back to its own code, so it needs no P: the monitor may let it go on without one,
    // should it hold a lock that a worker inside the runtime waits for.
    g.needs_no_p.store(true, Relaxed);
    // SAFETY: the M that runs this goroutine.
    let m = unsafe { &*g.m.load(Relaxed) };
    // SAFETY: its own; the stub has saved the goroutine's.
    unsafe { m.control.get().load() };
    let p = m.p();
    match p {
        // SAFETY: we are this goroutine, and in the runtime.
        Some(_) => unsafe { g.suspend(Switch::Preempted) },
        None => blocking::reacquire(g, Switch::Preempted),
    }
    g.needs_no_p.store(false, Relaxed);
    g.end_interruption();
    g.leave_runtime();
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Returns whether it is in libc, in the loader or in the library of `malloc`, where it may hold a lock that other
/// goroutines need: let it go on a little. The monitor sends another signal.
fn is_in_system_code(context: *mut c_void) -> bool {
    let at = program_counter(context);
    // The stub counts too: it is about to go on, and would keep its thread.
    is_in_stub(at) || INSTALLED.get().is_some_and(|i| i.system_code.iter().any(|code| code.contains(&at)))
}

/// Calls the program's handler; if there is none, that is all: SIGURG is ignored by default. Returns whether the signal
/// comes from such a handler, which was called with it and passes it on to the one that it found.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    previous().is_some_and(|last| last.call(signal, info, context))
}

/// Returns the code ranges of libc, of the dynamic loader, and of the library that `malloc` is in, if that is neither
/// the program nor the runtime's: `pthread_create` calls it. Not of the vDSO: it holds no lock, and the kernel may move
/// a thread to another CPU in the middle of it, too.
fn system_code() -> Vec<Range<usize>> {
    let malloc = modules::malloc();
    let mut ranges = Vec::new();
    let mut is_program = true; // the first module is
    modules::each(|module, headers| {
        // SAFETY: a C string of the loader's.
        let name = unsafe { std::ffi::CStr::from_ptr(module.dlpi_name) }.to_string_lossy();
        let file = name.rsplit('/').next().unwrap_or_default();
        let has = |at: usize| modules::code_of(module, headers).any(|code| code.contains(&at));
        let is_mallocs = !is_program && has(malloc) && !has(system_code as *const () as usize);
        if is_mallocs || ["libc.so", "libpthread.so", "ld-"].iter().any(|part| file.starts_with(part)) {
            ranges.extend(modules::code_of(module, headers));
        }
        is_program = false;
    });
    ranges
}

/// Returns how goroutines are interrupted where `MUNGO_DEBUG` does not say it: by thread-switching if the program
/// brings `malloc`, because goroutines are interrupted in it, and `pthread_create` calls it.
///
/// If threads sleep for a lock of that `malloc`, and the goroutine that holds the lock lay in a queue, it would perhaps
/// need a thread that cannot be started before it has gone on. One that sleeps on its own thread can always be let go
/// on (`Watch::let_go_on`).
///
/// WHY NOT threads in reserve for those that lie in queues: each needs one, so there are as many threads in the end.
pub(crate) fn usual_way() -> AsyncPreempt {
    // A sanitizer's `malloc` is in the program too; the tests are about the injected call with it as well.
    let is_sanitized = cfg!(any(mungo_asan, mungo_tsan));
    // Without `membarrier` thread-switching by request is switching the signals off: see `Watch::evict`.
    match modules::program_brings_malloc() && membarrier::is_present() && !is_sanitized {
        true => AsyncPreempt::Thread,
        false => AsyncPreempt::Inject,
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use crate::stack::inject::PRETEND_SHADOW_STACK;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    /// Runs `f` beside two goroutines that compute on one P, and are interrupted by thread-switching.
    fn with_threads_that_are_switched(f: impl FnOnce(&crate::Runtime)) {
        let slice = Duration::from_micros(100);
        let runtime = crate::Runtime::builder().procs(1).time_slice(slice).build().expect("a runtime");
        let stop = Arc::new(AtomicBool::new(false));
        PRETEND_SHADOW_STACK.store(true, Relaxed);
        let both: Vec<_> = (0..2)
            .map(|_| {
                let stop = stop.clone();
                runtime.spawn(move || while !stop.load(Relaxed) {})
            })
            .collect();
        f(&runtime);
        PRETEND_SHADOW_STACK.store(false, Relaxed);
        stop.store(true, Relaxed);
        both.into_iter().for_each(|g| g.join().expect("no panic"));
    }

    #[test]
    fn with_a_shadow_stack_threads_are_switched() {
        with_threads_that_are_switched(|runtime| {
            while runtime.metrics().interruptions.shadow_stack < 5 {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }

    /// The monitor lets a goroutine go on from the handler, as if the starter waited for a lock. If it computes on, it
    /// is interrupted again, though no goroutine waits for the P.
    #[test]
    fn goroutines_that_were_let_go_on_are_interrupted_again() {
        with_threads_that_are_switched(|runtime| {
            let shared = runtime.shared();
            let runs_without_p = |m: &M| m.stray.load(Relaxed) && !m.asleep.load(Relaxed);
            let wait_until = |what: &str, there_is_one: bool| {
                let end = Instant::now() + Duration::from_secs(30);
                while shared.ms.live().any(runs_without_p) != there_is_one {
                    assert!(Instant::now() < end, "{what}");
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            for _ in 0..3 {
                shared.starter.busy_since_ns.store(1, Relaxed);
                wait_until("none is let go on", true);
                shared.starter.busy_since_ns.store(0, Relaxed);
                wait_until("it computes on beside the P", false);
            }
        });
    }
}
