//! What happens when a stack overflows: a message that names the goroutine, and an abort, as std does for threads.
//!
//! The fault hits the slot's guard page; the handler runs on the thread's alternate stack and allocates nothing. Any
//! other fault goes to the handler that was there before (std's, which knows the threads' own guard pages).

use super::guard::Mapping;
use crate::current;
use crate::sys::signal::call_previous;
use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Once, OnceLock};

/// Room for the message and for the largest register frames.
const ALT_STACK: usize = 64 << 10;

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler for SIGSEGV and SIGBUS; once for the process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a handler of the three-argument kind on the alternate stack; the old one is kept.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut old: libc::sigaction = MaybeUninit::zeroed().assume_init();
            if libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut old) == 0 {
                PREVIOUS.get_or_init(|| old);
                libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
            }
        }
    });
}

/// Gives the calling worker thread an alternate stack, for the rest of its life.
pub(crate) struct AltStack {
    previous: libc::stack_t,
    _mapping: Mapping,
}

impl AltStack {
    pub(crate) fn new() -> std::io::Result<AltStack> {
        // SAFETY: asks only.
        let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        let size = ALT_STACK.max(2 * least);
        let mapping = Mapping::new(size)?;
        let stack = libc::stack_t { ss_sp: mapping.base.cast(), ss_flags: 0, ss_size: size };
        // SAFETY: the mapping outlives its use: `drop` puts the old one back first.
        unsafe {
            let mut previous = MaybeUninit::zeroed().assume_init();
            libc::sigaltstack(&stack, &mut previous);
            Ok(AltStack { previous, _mapping: mapping })
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
    if let Some(g) = current::g()
        && g.slot().is_some_and(|slot| slot.guard().contains(&address))
    {
        let mut text = Text { bytes: [0; 512], len: 0 };
        let id = g.id.load(Relaxed);
        _ = writeln!(
            text,
            "\nmungo: goroutine {id} '{}' has overflowed its stack",
            g.name().unwrap_or("<unnamed>")
        );
        _ = writeln!(text, "mungo: it was spawned at {}; see Builder::stack_size", g.place());
        // SAFETY: plain system calls.
        unsafe {
            libc::write(2, text.bytes.as_ptr().cast(), text.len);
            libc::abort();
        }
    }
    chain(signal, info, context);
}

/// Passes the fault on to whoever handled it before us.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if PREVIOUS.get().is_some_and(|previous| call_previous(previous, signal, info, context)) {
        return;
    }
    // SAFETY: the default action, when the faulting instruction runs again.
    unsafe {
        let mut default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &default, std::ptr::null_mut());
    }
}

/// A message that needs no allocation; cut off if it is too long.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let n = s.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}
