//! The switch on x86-64.
//!
//! A stack that is not running, from its stack pointer up:
//!
//! ```text
//!   begun before            new
//!   where to go on          `begin`
//!   RBP                     the entry
//!   RBX                     its argument
//!   the frame of `suspend`  nothing, up to the base
//! ```
//!
//! All other registers are the compiler's business: it knows that the switch destroys them. The control words of the
//! floating-point units are the same for all, as everywhere else.
//!
//! Both ways go by an indirect jump, never by `call` and `ret`. The CPU predicts the `ret`s by a stack of the recent
//! `call`s, which knows nothing of stack switches: after a `call` from one stack to the other, the next return of the
//! goroutine is predicted to go to the worker, and all after it are out of step. With jumps that stack stays as the
//! goroutine left it that suspended last, and most often the next one returns through the same functions. TUNED: an
//! unbuffered ping-pong takes 131 ns with jumps, 153 with calls. The jump reads its target just below the new stack
//! pointer, where signals leave 128 bytes alone: a `pop` before it costs 3 ns.

use std::arch::{asm, naked_asm};
use std::sync::atomic::AtomicUsize;

/// The number of words on a new stack: where to go on, the entry, its argument, and two more, which keep the
/// stack aligned when the first three are gone.
pub(super) const FIRST: usize = 5;
/// The index of the saved RBP, in words: see the picture above.
#[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
pub(crate) const SAVED_BP: usize = 1;
/// The number of words that the switch leaves on the stack.
#[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
pub(crate) const SAVED: usize = 3;

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
            "push rbx",
            "push rbp",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov rax, [rdx]",
            "mov [rdi], rsp",
            "lea rsp, [rax + 8]",
            "jmp [rax]",
            "2:",
            "pop rbp",
            "pop rbx",
            inlateout("rdi") from => _,
            inlateout("rdx") to => _,
            inlateout("rsi") word,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("C"),
        );
    }
    word
}

/// The first frame of each coroutine: calls the entry, with a stack that is aligned as the ABI wants it. Unwinders stop
/// here: there is no caller.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn begin() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "pop rax",
        "pop rdi",
        "xor ebp, ebp",
        "call rax",
        "ud2",
        ".cfi_endproc",
    )
}
