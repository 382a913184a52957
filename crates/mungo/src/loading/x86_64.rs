//! `dlopen` on behalf of its caller, on x86-64.

use super::load;
use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;

/// Loads a library.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    naked_asm!("mov rdx, [rsp]", "jmp {}", sym load)
}

/// The address of a `ret` instruction.
pub(super) type Return = usize;

/// Looks for a return.
///
/// # Safety
/// `code` is that of a loaded object, and begins with an instruction.
pub(super) unsafe fn find_return(mut code: Range<usize>) -> Option<Return> {
    const RET: u8 = 0xc3;
    // SAFETY: by the caller.
    code.find(|at| unsafe { (*at as *const u8).read() } == RET)
}

/// Calls `function(file, mode)` so that it returns to the `ret` at `gadget`, which returns to here.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn call_as(
    file: *const c_char,
    mode: c_int,
    function: usize,
    gadget: Return,
) -> *mut c_void {
    naked_asm!("lea rax, [rip + 2f]", "push rax", "push rcx", "jmp rdx", "2:", "ret")
}
