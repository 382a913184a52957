//! The switch on aarch64.
//!
//! A stack that is not running, from its stack pointer up:
//!
//! ```text
//!   begun before            new
//!   where to go on          `begin`
//!   X29                     the entry
//!   X19                     its argument
//!   nothing                 nothing
//!   the frame of `suspend`  nothing, up to the base
//! ```
//!
//! All other registers are the compiler's business: it knows that the switch destroys them, the vector registers too.
//! Only these two it keeps for itself. FPCR is the same for all, as everywhere else.
//!
//! Both ways go by an indirect jump, for the reason that `x86_64.rs` has: a `blr` there and a `ret` back would put the
//! CPU's stack of return addresses out of step. What it jumps to begins with `hint #36`, which is `bti j`: in a program
//! whose code is marked for branch target identification the jump would else be a fault.

use std::arch::{asm, naked_asm};
use std::sync::atomic::AtomicUsize;

/// The number of words on a new stack: where to go on, the entry, its argument, and one
/// more, for the alignment.
pub(super) const FIRST: usize = 4;
/// The index of the saved frame pointer, X29, in words: see the picture above.
#[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
pub(crate) const SAVED_BP: usize = 1;
/// The number of words that the switch leaves on the stack.
#[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
pub(crate) const SAVED: usize = 4;

/// Leaves this stack, notes in `from` where it ends, and goes on where `to` says, with a `word` for the code that goes
/// on there. Returns the word of the code that comes back.
///
/// # Safety
/// `to` is as this function or [`Coro::new`](super::Coro::new) left it, and is not gone to twice.
#[inline(always)]
pub(super) unsafe fn switch(from: &AtomicUsize, to: &AtomicUsize, mut word: usize) -> usize {
    // SAFETY: by the caller. What the compiler keeps is saved or declared lost.
    unsafe {
        asm!(
            "adr x8, 2f",
            "ldr x9, [x1]",
            "stp x8, x29, [sp, #-32]!",
            "str x19, [sp, #16]",
            "ldr x10, [x9]",
            "mov x8, sp",
            "str x8, [x0]",
            "mov sp, x9",
            "br x10",
            "2: hint #36",
            "ldr x19, [sp, #16]",
            "ldr x29, [sp, #8]",
            "add sp, sp, #32",
            inlateout("x0") from => _,
            inlateout("x1") to => _,
            inlateout("x2") word,
            lateout("x20") _, lateout("x21") _, lateout("x22") _, lateout("x23") _, lateout("x24") _,
            lateout("x25") _, lateout("x26") _, lateout("x27") _, lateout("x28") _,
            clobber_abi("C"),
        );
    }
    word
}

/// The first frame of each coroutine: calls the entry. Unwinders stop here: there is no caller.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn begin() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        "hint #36",
        "ldp x8, x0, [sp, #8]",
        "add sp, sp, #32",
        "mov x29, xzr",
        "mov x30, xzr",
        "blr x8",
        "brk #1",
        ".cfi_endproc",
    )
}
