//! The first frame of a thread that is a goroutine: where `pthread_exit` ends.
//!
//! glibc's `pthread_exit` unwinds the stack up to the innermost point that `pthread_cleanup_push` has set, runs what
//! was registered there, and so on, until it comes to one that the thread's own first frame has set. This frame sets
//! such a point, as `pthread_cleanup_push` does in C: it notes registers by `__sigsetjmp`, and registers the note. C's
//! macro cannot be used from Rust, whose compiler does not know functions that return twice.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

/// A function that a thread begins with.
pub(crate) type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// Number of words that glibc notes registers in: its `__jmp_buf`.
const REGISTERS: usize = if cfg!(target_arch = "x86_64") { 8 } else { 22 };

/// `__pthread_unwind_buf_t` of <pthread.h>: registers, whether a signal mask was saved, four words of glibc's own.
#[repr(C, align(16))]
struct Point([u64; REGISTERS + 5]);

unsafe extern "C" {
    fn __sigsetjmp(point: *mut c_void, with_mask: c_int) -> c_int;
    fn __pthread_register_cancel(point: *mut c_void);
    fn __pthread_unregister_cancel(point: *mut c_void);
}

/// Calls `start`. Returns what it returns; `None`: it ended by `pthread_exit`.
///
/// # Safety
/// The function may be called with this argument.
pub(crate) unsafe fn call(start: Start, argument: *mut c_void) -> Option<*mut c_void> {
    let mut point = Point([0; REGISTERS + 5]);
    let mut value = std::ptr::null_mut();
    // SAFETY: by the caller; the point and the value outlive the call.
    let exited = unsafe { call_with_point(start, argument, &mut point, &mut value) };
    (exited == 0).then_some(value)
}

/// Calls `start` with a point set, and stores its value. Returns 0, or 1 if `pthread_exit` led back here.
///
/// The second return of `__sigsetjmp` finds RBX, RBP, RSP and R12 to R15 as they were at the first.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_with_point(
    start: Start,
    argument: *mut c_void,
    point: &mut Point,
    value: &mut *mut c_void,
) -> u64 {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -24",
        "push r12",
        ".cfi_offset r12, -32",
        "push r13",
        ".cfi_offset r13, -40",
        "push r14",
        ".cfi_offset r14, -48",
        "mov rbx, rdi",
        "mov r12, rsi",
        "mov r13, rdx",
        "mov r14, rcx",
        "mov rdi, r13",
        "xor esi, esi", // without the signal mask
        "call qword ptr [rip + {set}@GOTPCREL]",
        "test eax, eax",
        "jne 2f",
        "mov rdi, r13",
        "call qword ptr [rip + {register}@GOTPCREL]",
        "mov rdi, r12",
        "call rbx",
        "mov [r14], rax",
        "mov rdi, r13",
        "call qword ptr [rip + {unregister}@GOTPCREL]",
        "xor eax, eax",
        "jmp 3f",
        "2:",
        "mov eax, 1",
        "3:",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        set = sym __sigsetjmp,
        register = sym __pthread_register_cancel,
        unregister = sym __pthread_unregister_cancel,
    )
}

/// Does the same. The second return finds the stack pointer and x19 to x30 as they were at the first.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_with_point(
    start: Start,
    argument: *mut c_void,
    point: &mut Point,
    value: &mut *mut c_void,
) -> u64 {
    naked_asm!(
        ".cfi_startproc",
        "hint #34", // bti c
        "stp x29, x30, [sp, #-48]!",
        ".cfi_def_cfa_offset 48",
        ".cfi_offset x29, -48",
        ".cfi_offset x30, -40",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset x19, -32",
        ".cfi_offset x20, -24",
        "stp x21, x22, [sp, #32]",
        ".cfi_offset x21, -16",
        ".cfi_offset x22, -8",
        "mov x29, sp",
        "mov x19, x0",
        "mov x20, x1",
        "mov x21, x2",
        "mov x22, x3",
        "mov x0, x21",
        "mov w1, wzr", // without the signal mask
        "bl {set}",
        "hint #36", // bti j: the second return is a jump
        "cbnz w0, 2f",
        "mov x0, x21",
        "bl {register}",
        "mov x0, x20",
        "blr x19",
        "str x0, [x22]",
        "mov x0, x21",
        "bl {unregister}",
        "mov x0, xzr",
        "b 3f",
        "2:",
        "mov x0, #1",
        "3:",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x19",
        ".cfi_restore x20",
        ".cfi_restore x21",
        ".cfi_restore x22",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        set = sym __sigsetjmp,
        register = sym __pthread_register_cancel,
        unregister = sym __pthread_unregister_cancel,
    )
}
