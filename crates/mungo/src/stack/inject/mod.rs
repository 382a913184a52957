//! A call injected into interrupted code, on Linux.
//!
//! A signal handler changes the interrupted context so that the code, once the handler has returned, calls a stub where
//! it stands. What the code could lose is saved on the code's own stack; the stub calls a function, and goes back. The
//! stub, and how it goes back, is a file a processor.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;

#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use arch::PRETEND_SHADOW_STACK;
pub(crate) use arch::{Control, Frame, entry, stub_code};

use std::ffi::c_void;
use std::ops::Range;

/// The function that the interrupted code is made to call, with where its registers are. It runs on the interrupted
/// stack, must not unwind, and returns to go on.
pub(crate) type Callee = extern "C" fn(&Frame);

/// Bytes that must be left for the called function and for whatever interrupts it.
const ROOM: usize = 4096;
/// Bytes of the stack that are searched for a signal handler's frame. TUNED: guess; some 0.3 µs.
const SEARCHED: usize = 16 << 10;

/// Says why no call can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The stack pointer is not on the stack that was named.
    ForeignStack,
    /// Too little of that stack is left.
    LittleStack,
    /// A signal handler runs on that stack. Its end restores the thread's signal mask and alternate stack.
    InHandler,
    /// Returns are checked against a second stack, on which the injected call would be missing.
    ShadowStack,
    /// The vector state, or another part of it, cannot be saved.
    Impossible,
}

/// Sets the function that is called. Returns `false` if this CPU cannot save its vector state.
pub(crate) fn prepare(callee: Callee) -> bool {
    arch::prepare(callee)
}

/// Changes `context` so that the interrupted code calls the stub.
///
/// # Safety
/// In a signal handler that was installed as [`entry`] says, with the context that the kernel passed to it. `stack` is
/// the stack of the interrupted code if its stack pointer lies in it; it can be written.
pub(crate) unsafe fn inject(context: *mut c_void, stack: Range<usize>) -> Result<(), Refused> {
    let sp = arch::stack_pointer(context);
    // SAFETY: by the caller.
    let needed = unsafe { arch::needed(context)? };
    if !stack.contains(&sp) {
        return Err(Refused::ForeignStack);
    }
    if sp - stack.start < needed + ROOM {
        return Err(Refused::LittleStack);
    }
    // Without an alternate stack this very handler is on the stack, and the kernel has saved vector registers right
    // where the call would be written.
    let here = stack.contains(&context.addr());
    // SAFETY: in the handler; the words from the stack pointer on are the interrupted code's.
    if here || unsafe { is_in_handler(context, sp..stack.end) } {
        return Err(Refused::InHandler);
    }
    // SAFETY: by the caller, and there is room.
    unsafe { arch::write_call(context) };
    Ok(())
}

/// Returns whether the interrupted code is a signal handler's: it runs on the thread's alternate stack, or on `stack`
/// below the frame of a handler.
///
/// # Safety
/// As [`inject`].
pub(crate) unsafe fn was_in_handler(context: *const c_void, stack: Range<usize>) -> bool {
    let sp = arch::stack_pointer(context);
    // SAFETY: the kernel's context, with the alternate stack of the thread; none has no bytes.
    let alternate = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_stack };
    let from = alternate.ss_sp.addr();
    (from..from.saturating_add(alternate.ss_size)).contains(&sp)
        // SAFETY: by the caller; the words from the stack pointer on are the interrupted code's.
        || stack.contains(&sp) && unsafe { is_in_handler(context, sp..stack.end) }
}

/// Returns whether a signal handler is among the callers of the interrupted code, on its stack. Most are known by
/// their signal mask, or by the alternate stack; not so with `SA_NODEFER` and without `SA_ONSTACK`.
///
/// The kernel makes all handlers return to the same function, which ends them: it is looked for, by the bits that the
/// code of the handler leaves as they are.
///
/// # Safety
/// `context` is the kernel's, and `stack` can be read.
unsafe fn is_in_handler(context: *const c_void, stack: Range<usize>) -> bool {
    // SAFETY: by the caller.
    let end_of_handler = unsafe { arch::end_of_handlers(context) };
    let is_end = |word: usize| (word ^ end_of_handler) & arch::ADDRESS_BITS == 0;
    let words = stack.start.next_multiple_of(size_of::<usize>())..stack.end.min(stack.start + SEARCHED);
    // SAFETY: as above.
    words.step_by(size_of::<usize>()).any(|at| is_end(unsafe { arch::load(at) }))
        || arch::link_register(context).is_some_and(is_end)
}
