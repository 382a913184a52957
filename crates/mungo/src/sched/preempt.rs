//! Preemption of code that never calls the runtime: the thread stays, the P goes.
//!
//! The monitor asks the P of a goroutine whose slice is over, and sends SIGURG to the thread. The handler puts the
//! goroutine on the global queue as one that is bound to its thread, passes the P on to another thread, and sleeps
//! until it is given one again. The OS thread never changes under the interrupted code, and the kernel saved all
//! registers: a preempted malloc, vector loop, C function or vDSO call is as safe as under the kernel's own preemption.
//!
//! The handler runs when the kernel gets round to the thread, which on a busy machine may be hundreds of milliseconds
//! later; and in libc it does nothing. If it has not passed the P on after 200 µs, the monitor takes it, by the same
//! protocol as from a blocked goroutine, and sends another signal when it sees the thread computing without one.
//!
//! In the handler everything is async-signal-safe: atomics, the futex, and the scheduler's lock, which this thread
//! cannot hold (it would be in the runtime, and then the handler does nothing). Starting a thread is left to the
//! monitor.
//!
//! Rejected: switching to another stack from the handler, as Go does. It needs a compiler that knows safe points; every
//! Rust runtime that tried corrupts registers or hangs in malloc. Rejected too: the monitor takes the P at once. That
//! needs a `membarrier` each time, 4 % of the CPU time of a web server whose requests compute.

use super::bound;
use super::g::G;
use super::m::M;
use super::p::RETIRE;
use crate::current;
use crate::debug::stacks;
use crate::sys::signal::call_previous;
use crate::sys::{affinity, modules, page_size};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Go's choice: ignored by default, rarely used by programs, harmless if spurious.
pub(crate) const SIGNAL: c_int = libc::SIGURG;

struct Installed {
    previous: libc::sigaction,
    /// Code of libc and of the loader: their locks are held for a moment only, so wait for the next look.
    lock_holders: Vec<Range<usize>>,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// Installs the handler; once for the process. A handler that was there is called for signals that are not ours.
pub(crate) fn install() {
    affinity::prepare();
    INSTALLED.get_or_init(|| {
        // SAFETY: a handler of the three-argument kind, on the alternate stack, all signals blocked meanwhile.
        unsafe {
            let mut previous: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(SIGNAL, std::ptr::null(), &mut previous);
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigfillset(&mut action.sa_mask);
            libc::sigaction(SIGNAL, &action, std::ptr::null_mut());
            Installed { previous, lock_holders: lock_holders() }
        }
    });
}

/// Asks the M's thread to give its goroutine up.
pub(crate) fn interrupt(m: &M) {
    // SAFETY: a signal to a thread of this process; if the thread is gone, the call fails.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), m.tid.load(Relaxed), SIGNAL) };
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    match current::g() {
        Some(g) => on_goroutine(g, context),
        None => chain(signal, info, context),
    }
    // SAFETY: as above; the goroutine is on the same thread.
    unsafe { *libc::__errno_location() = errno };
}

fn on_goroutine(g: &'static G, context: *mut c_void) {
    // SAFETY: the M that runs this goroutine: it was stored before its thread-locals were loaded.
    let m = unsafe { &*g.m.load(Relaxed) };
    stacks::on_signal(m, g, context);
    if m.in_runtime.load(Relaxed) != 0 {
        return; // the flag is seen when it leaves the runtime
    }
    m.enter_runtime();
    if shall_give_way(m) {
        if in_system_call(context) {
            repeat_call(context);
        } else if !holds_a_lock(context) {
            m.interrupted.note(context);
            // ORDERING: Release what was just noted to those who take dumps.
            m.in_handler.store(true, Release);
            bound::give_way(m, g);
            m.in_handler.store(false, Relaxed);
        } else if m.p().is_some() {
            m.declined.store(true, Relaxed); // published with the call
            m.shared().monitor.call();
        }
    }
    m.leave_runtime();
}

/// It has lost its P, or is asked to give it up. Else the signal is from outside, or came too late.
///
/// A P that retires is not for a signal handler: the monitor takes it.
fn shall_give_way(m: &M) -> bool {
    m.p().is_none_or(|p| p.is_asked_on(p.tick.load(Relaxed)) && p.flags.load(Relaxed) & RETIRE == 0)
}

/// It is in libc or in the loader, where it may hold a lock that others need: let it go on a little.
/// The monitor sends another signal.
///
/// WHY NOT end the patience after some signals: the monitor allocates when it starts a thread, and does so with the
/// scheduler's lock. If it waited for the lock of malloc, whose holder waits for a P, nothing would ever move again.
fn holds_a_lock(context: *mut c_void) -> bool {
    let at = program_counter(context);
    INSTALLED.get().is_some_and(|i| i.lock_holders.iter().any(|code| code.contains(&at)))
}

/// Calls the handler that the program had before.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if let Some(installed) = INSTALLED.get() {
        call_previous(&installed.previous, signal, info, context); // if there is none: SIGURG is ignored by default
    }
}

/// The interrupted instruction.
fn program_counter(context: *mut c_void) -> usize {
    // SAFETY: the kernel passes a `ucontext_t`.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    return context.uc_mcontext.pc as usize;
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
    {
        _ = context;
        0
    }
}

/// The signal hit a blocked system call: the kernel will restart it (the program counter is at the instruction), or it
/// returns EINTR (just after it).
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn in_system_call(context: *mut c_void) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let at = program_counter(context) as *const [u8; 2];
    // SAFETY: code that was about to run, or has just run, can be read; the kernel's context is valid.
    unsafe {
        let result = (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RAX as usize];
        at.read() == SYSCALL || (result == -i64::from(libc::EINTR) && at.sub(1).read() == SYSCALL)
    }
}

/// The monitor saw a thread that did not sleep, but it had just begun a call that is never restarted after a signal, or
/// had not yet returned from one. It makes the call once more instead of returning EINTR: glibc loads the call's number
/// just before, and the kernel has kept the arguments. (It returns 0 from a sleep that is over, and has brought the
/// time-outs of `select` and `ppoll` up to date; only `poll` may wait for twice as long.)
///
/// Rejected: a closer look at the thread before the signal (how often it slept, by `/proc`). It costs the mixed web
/// server a tenth of its requests, and a call that begins at the very moment is interrupted all the same.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn repeat_call(context: *mut c_void) {
    /// `mov eax, number`, and the prefix that would make it `mov r8d, number`.
    const LOAD: u8 = 0xb8;
    const PREFIX: u8 = 0x41;
    /// Of this instruction and `syscall`.
    const LENGTH: usize = 7;
    const CALLS: [i64; 8] = [
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_select,
        libc::SYS_pselect6,
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
    ];
    // SAFETY: the kernel's context is valid. Code that has just run can be read, and so can what lies on the same page.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let after = registers[libc::REG_RIP as usize] as usize;
        let interrupted = registers[libc::REG_RAX as usize] == -i64::from(libc::EINTR);
        if !interrupted || after % page_size() <= LENGTH {
            return;
        }
        let [prefix, load, number @ ..] = *((after - LENGTH - 1) as *const [u8; 6]);
        let number = i64::from(u32::from_le_bytes(number));
        if load == LOAD && prefix != PREFIX && CALLS.contains(&number) {
            registers[libc::REG_RIP as usize] -= LENGTH as i64;
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn repeat_call(_context: *mut c_void) {}

/// aarch64: `svc #0`, the result in x0.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
fn in_system_call(context: *mut c_void) -> bool {
    const SVC: u32 = 0xd400_0001;
    let at = program_counter(context) as *const u32;
    // SAFETY: as on x86-64.
    unsafe {
        let result = (*context.cast::<libc::ucontext_t>()).uc_mcontext.regs[0] as i64;
        at.read() == SVC || (result == -i64::from(libc::EINTR) && at.sub(1).read() == SVC)
    }
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
fn in_system_call(_context: *mut c_void) -> bool {
    false
}

/// The code ranges of libc and of the dynamic loader.
fn lock_holders() -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    modules::each(|module, headers| {
        // SAFETY: a C string of the loader's.
        let name = unsafe { std::ffi::CStr::from_ptr(module.dlpi_name) }.to_string_lossy();
        let file = name.rsplit('/').next().unwrap_or_default();
        if file.starts_with("libc.so") || file.starts_with("ld-") {
            for h in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0) {
                let start = (module.dlpi_addr + h.p_vaddr) as usize;
                ranges.push(start..start + h.p_memsz as usize);
            }
        }
    });
    ranges
}
