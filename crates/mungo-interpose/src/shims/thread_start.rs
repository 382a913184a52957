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

/// `__pthread_unwind_buf_t` of <pthread.h>: registers, whether a signal mask was saved, four words of glibc's own.
#[repr(C, align(16))]
struct Point([u64; 13]);

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
    let mut point = Point([0; 13]);
    let mut value = std::ptr::null_mut();
    // SAFETY: by the caller; the point and the value outlive the call.
    let exited = unsafe { call_with_point(start, argument, &mut point, &mut value) };
    (exited == 0).then_some(value)
}

/// Calls `start` with a point set, and stores its value. Returns 0, or 1 if `pthread_exit` led back here.
///
/// The second return of `__sigsetjmp` finds RBX, RBP, RSP and R12 to R15 as they were at the first.
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
