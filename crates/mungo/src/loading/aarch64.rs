//! `dlopen` on behalf of its caller, on aarch64.

use super::load;
use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;

/// Loads a library.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    naked_asm!("hint #34", "mov x2, x30", "b {}", sym load) // `bti c`: old assemblers do not know it by name
}

/// The end of a function: `ldp x29, x30, [sp], #frame` and `ret`. A `ret` alone goes where the link register says,
/// which is to itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Return {
    at: usize,
    /// Bytes of stack that it gives back.
    frame: usize,
}

/// Looks for a return.
///
/// # Safety
/// `code` is that of a loaded object, and begins with an instruction.
pub(super) unsafe fn find_return(code: Range<usize>) -> Option<Return> {
    const RET: u32 = 0xd65f_03c0;
    const LDP: u32 = 0xa8c0_7bfd;
    /// The bits of the instruction that say by how many words the stack pointer moves, a number without sign here.
    const WORDS: u32 = 0x3f << 15;
    // SAFETY: by the caller.
    code.step_by(4).skip(1).find_map(|at| unsafe {
        let [ldp, ret] = ((at - 4) as *const [u32; 2]).read();
        let frame = ((ldp & WORDS) >> 15) as usize * 8;
        (ret == RET && ldp & !WORDS == LDP && frame >= 16).then_some(Return { at: at - 4, frame })
    })
}

/// Calls `function(file, mode)` so that it returns to the instructions at `gadget`, which return to here.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn call_as(
    file: *const c_char,
    mode: c_int,
    function: usize,
    gadget: Return,
) -> *mut c_void {
    naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "sub sp, sp, x4",
        "adr x9, 2f",
        "stp x29, x9, [sp]",
        "mov x30, x3",
        "mov x16, x2",
        "br x16",
        "2:",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}
