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
/// which is to itself. Code that was compiled with `-mbranch-protection=pac-ret` checks, in between or with the return,
/// that the address was signed for the stack pointer that it leaves behind.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Return {
    at: usize,
    /// Bytes of stack that it gives back.
    frame: u32,
    /// Whether it wants a signed address: 1, else 0. `call_as` takes both as one word.
    is_signed: u32,
}

/// Looks for a return.
///
/// # Safety
/// `code` is that of a loaded object, and begins with an instruction.
pub(super) unsafe fn find_return(code: Range<usize>) -> Option<Return> {
    const RET: u32 = 0xd65f_03c0;
    const LDP: u32 = 0xa8c0_7bfd;
    const AUTIASP: u32 = 0xd503_23bf;
    const RETAA: u32 = 0xd65f_0bff;
    /// The bits of the instruction that say by how many words the stack pointer moves, a number without sign here.
    const WORDS: u32 = 0x3f << 15;
    let Range { start, end } = code;
    // SAFETY: by the caller.
    let read = |at: usize| if at < end { unsafe { (at as *const u32).read() } } else { 0 };
    (start..end).step_by(4).find_map(|at| {
        let [ldp, first, second] = [0, 4, 8].map(|offset| read(at + offset));
        let frame = ((ldp & WORDS) >> 15) * 8;
        let is_signed = match (first, second) {
            (RET, _) => false,
            (AUTIASP, RET) | (RETAA, _) => true,
            _ => return None,
        };
        (ldp & !WORDS == LDP && frame >= 16).then_some(Return { at, frame, is_signed: is_signed.into() })
    })
}

/// Calls `function(file, mode)` so that it returns to the instructions at `gadget`, which return to here. `hint #8` is
/// `pacia1716`, which signs x17 for x16, the stack pointer after the gadget; where there are no signatures it is
/// nothing.
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
        "sub sp, sp, w4, uxtw",
        "adr x17, 2f",
        "mov x16, x29",
        "tbz x4, #32, 3f",
        "hint #8",
        "3: stp x29, x17, [sp]",
        "mov x30, x3",
        "mov x16, x2",
        "br x16",
        "2:",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_functions_are_found_signed_or_not() {
        const NOP: u32 = 0xd503_201f;
        const RET: u32 = 0xd65f_03c0;
        const LDP_32: u32 = 0xa8c2_7bfd;
        const AUTIASP: u32 = 0xd503_23bf;
        const RETAA: u32 = 0xd65f_0bff;
        let find = |code: &[u32]| {
            let at = code.as_ptr_range();
            // SAFETY: words that can be read, as code is.
            let found = unsafe { find_return(at.start as usize..at.end as usize) };
            found.map(|Return { at: found, frame, is_signed }| (found - at.start as usize, frame, is_signed))
        };
        assert_eq!(find(&[NOP, RET, LDP_32, RET]), Some((8, 32, 0)));
        assert_eq!(find(&[RET, LDP_32, AUTIASP, RET]), Some((4, 32, 1)));
        assert_eq!(find(&[LDP_32, NOP, LDP_32, RETAA]), Some((8, 32, 1)));
        assert_eq!(find(&[LDP_32, NOP, RET, LDP_32, AUTIASP]), None, "and nothing behind the end is read");
        assert_eq!(find(&[]), None);
    }
}
