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

use super::super::Slot;
use std::arch::{asm, naked_asm};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A coroutine. Its owner resumes it; it suspends itself.
#[repr(C)]
pub(crate) struct Coro {
    /// Its stack pointer while it is suspended. Written by the switch; atomic for threads that look at it meanwhile.
    sp: AtomicUsize,
    /// Its worker's stack pointer, while it runs. The switch's alone.
    worker_sp: AtomicUsize,
}

impl Coro {
    /// Prepares a coroutine on `slot` that will run `entry(arg)`, which does not return.
    ///
    /// # Safety
    /// The slot is free and stays with the coroutine until it has suspended for the last time.
    #[inline]
    pub(crate) unsafe fn new(slot: &Slot, arg: usize, entry: extern "C" fn(usize)) -> Coro {
        let top = slot.base() & !15;
        // Two more, to keep the stack aligned when the first three are gone.
        let words = [begin as *const () as usize, entry as usize, arg, 0, 0];
        let sp = top - size_of_val(&words);
        // SAFETY: the top of a free stack.
        unsafe { (sp as *mut [usize; 5]).write(words) };
        Coro { sp: AtomicUsize::new(sp), worker_sp: AtomicUsize::new(0) }
    }

    /// Runs it until it suspends; returns its word.
    ///
    /// # Safety
    /// One worker at a time; the thread pointer is the goroutine's; not after it suspended for the last time.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) -> usize {
        // SAFETY: by the caller; `sp` is as `new` or `suspend` left it.
        unsafe { switch(&self.worker_sp, &self.sp, 0) }
    }

    /// Switches to the worker, which gets `word`; returns when some worker resumes it.
    ///
    /// # Safety
    /// Called on the coroutine's own stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, word: usize) {
        // SAFETY: by the caller; `worker_sp` is as `resume` left it.
        unsafe { switch(&self.sp, &self.worker_sp, word) };
    }

    /// Returns where its stack ends while it is suspended: nothing below is in use.
    #[inline]
    pub(crate) fn low(&self) -> usize {
        self.sp.load(Relaxed)
    }

    /// Returns the stack pointer of a suspended coroutine. From there up lie [`SAVED`] words: where to go on, and at
    /// [`SAVED_BP`] the RBP.
    #[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
    pub(crate) fn suspended_sp(&self) -> Option<usize> {
        Some(self.low())
    }
}

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
/// `to` is as this function or [`Coro::new`] left it, and is not gone to twice.
#[inline(always)]
unsafe fn switch(from: &AtomicUsize, to: &AtomicUsize, mut word: usize) -> usize {
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
unsafe extern "C" fn begin() {
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
