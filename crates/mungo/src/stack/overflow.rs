//! The report of a stack overflow: a message that names the goroutine, and an abort, as std does for threads.
//!
//! The fault hits the slot's guard page; the handler runs on the thread's alternate stack and allocates nothing. Any
//! other fault goes to the handler that was there before (std's, which knows the threads' own guard pages).

use super::guard::{self, Mapping};
use crate::sys::page_size;
use crate::sys::signal::{call_previous, note_unusual};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Once, OnceLock};

/// Bytes of an alternate stack, with room for handlers of the program. Virtual machines such as wasmtime ask for this
/// much, and install their own alternate stack where they find less.
const ALT_STACK: usize = 256 << 10;

/// Signals of a fault: a guard page gives SIGSEGV, and on some kernels SIGBUS; std handles both.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Ends the process with a report, if the address of a fault is in the guard page of the calling goroutine.
static REPORT: OnceLock<fn(usize)> = OnceLock::new();

static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];

/// Installs the handler for SIGSEGV and SIGBUS; once for the process. `report` is called with the address of each
/// fault, in the handler, and does not return if it was an overflow.
pub(crate) fn install(report: fn(usize)) {
    REPORT.get_or_init(|| report);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a handler of the three-argument kind on the alternate stack; the old one is kept.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
                let mut old: libc::sigaction = MaybeUninit::zeroed().assume_init();
                if libc::sigaction(signal, std::ptr::null(), &mut old) == 0 {
                    previous.get_or_init(|| old);
                    libc::sigaction(signal, &action, std::ptr::null_mut());
                }
            }
        }
    });
}

/// Gives the calling worker thread an alternate stack, for the rest of its life. Goroutines cannot change it: see
/// `tls::symbols`.
pub(crate) struct AltStack {
    previous: libc::stack_t,
    _mapping: Mapping,
}

impl AltStack {
    pub(crate) fn new() -> std::io::Result<AltStack> {
        AltStack::make().inspect_err(|_| note_unusual()) // handlers run on goroutines' stacks then
    }

    fn make() -> std::io::Result<AltStack> {
        // SAFETY: asks only.
        let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        let size = ALT_STACK.max(2 * least);
        let mapping = Mapping::new(page_size() + size)?;
        // SAFETY: the mapping outlives its use: `drop` puts the old one back first. Its first page holds nothing; a
        // stack without a guard is better than none.
        unsafe {
            _ = guard::install_all(std::iter::once(mapping.base));
            let base = mapping.base.add(page_size());
            let stack = libc::stack_t { ss_sp: base.cast(), ss_flags: 0, ss_size: size };
            let mut previous = MaybeUninit::zeroed().assume_init();
            match libc::sigaltstack(&stack, &mut previous) {
                0 => Ok(AltStack { previous, _mapping: mapping }),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        // SAFETY: what was there before, std's or nothing.
        unsafe { libc::sigaltstack(&self.previous, std::ptr::null_mut()) };
    }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid info.
    let address = unsafe { (*info).si_addr() } as usize;
    if let Some(report) = REPORT.get() {
        report(address);
    }
    chain(signal, info, context);
}

/// Passes the fault on to the handler that was there before.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = SIGNALS.iter().position(|s| *s == signal).and_then(|at| PREVIOUS[at].get());
    if previous.is_some_and(|previous| call_previous(previous, signal, info, context)) {
        return;
    }
    // SAFETY: the default action, when the faulting instruction runs again.
    unsafe {
        let mut default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &default, std::ptr::null_mut());
    }
}
