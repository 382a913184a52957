//! Registers filled with patterns, kept through a loop, and compared, on aarch64.

use super::{Round, TURNS};
use std::arch::naked_asm;

/// The rounds that are this processor's.
pub(crate) const ROUNDS: [(&str, Round); 6] = [
    ("general registers and flags", general),
    ("vector registers", vectors),
    ("SVE", sve),
    ("unusual control words", unusual_control_words),
    ("usual control words", usual_control_words),
    ("below the stack pointer", stack),
];

/// The general registers but the platform's own (x18), the stack pointer and a counter, and the flags.
pub(crate) fn general(n: u64) {
    assert_eq!(keep_general(n, TURNS), 0, "a general register or a flag");
}

/// Returns 0 if all is as it was.
#[unsafe(naked)]
extern "C" fn keep_general(seed: u64, turns: u64) -> u64 {
    naked_asm!(
        "stp x19, x20, [sp, #-96]!",
        "stp x21, x22, [sp, #16]",
        "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]",
        "stp x27, x28, [sp, #64]",
        "stp x29, x30, [sp, #80]",
        ".irp n, 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,19,20,21,22,23,24,25,26,27,28,29,30",
        "add x\\n, x0, #\\n",
        ".endr",
        "mov x18, #0xa0000000", // negative and carry
        "msr nzcv, x18",
        "2: sub x1, x1, #1", // leaves the flags alone
        "cbnz x1, 2b",
        "mrs x1, nzcv",
        "eor x1, x1, x18",
        ".irp n, 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,19,20,21,22,23,24,25,26,27,28,29,30",
        "sub x\\n, x\\n, #\\n",
        "eor x\\n, x\\n, x0",
        "orr x1, x1, x\\n",
        ".endr",
        "mov x0, x1",
        "ldp x21, x22, [sp, #16]",
        "ldp x23, x24, [sp, #32]",
        "ldp x25, x26, [sp, #48]",
        "ldp x27, x28, [sp, #64]",
        "ldp x29, x30, [sp, #80]",
        "ldp x19, x20, [sp], #96",
        "ret",
    )
}

/// q0 to q31, and FPSR's cumulative bits.
pub(crate) fn vectors(n: u64) {
    assert_eq!(keep_vectors(n | 1, TURNS), 0, "a vector register, or FPSR");
}

/// Returns 0 if all is as it was.
#[unsafe(naked)]
extern "C" fn keep_vectors(seed: u64, turns: u64) -> u64 {
    naked_asm!(
        "stp d8, d9, [sp, #-64]!",
        "stp d10, d11, [sp, #16]",
        "stp d12, d13, [sp, #32]",
        "stp d14, d15, [sp, #48]",
        "mov x9, #0x9f", // all that operations may leave
        "mrs x10, fpsr",
        "msr fpsr, x9",
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "add x2, x0, #\\n",
        "mvn x3, x2",
        "mov v\\n\\().d[0], x2",
        "mov v\\n\\().d[1], x3",
        ".endr",
        "2: sub x1, x1, #1",
        "cbnz x1, 2b",
        "mrs x4, fpsr",
        "eor x1, x4, x9",
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "add x2, x0, #\\n",
        "mov x3, v\\n\\().d[0]",
        "eor x3, x3, x2",
        "orr x1, x1, x3",
        "mvn x2, x2",
        "mov x3, v\\n\\().d[1]",
        "eor x3, x3, x2",
        "orr x1, x1, x3",
        ".endr",
        "mov x0, x1",
        "msr fpsr, x10",
        "ldp d10, d11, [sp, #16]",
        "ldp d12, d13, [sp, #32]",
        "ldp d14, d15, [sp, #48]",
        "ldp d8, d9, [sp], #64",
        "ret",
    )
}

/// Bytes of z0 to z31, p0 to p15 and FFR with the longest vectors.
const SVE_LEN: usize = 32 * 256 + 17 * 32;

/// z0 to z31, p0 to p15 and FFR, where the processor has them.
pub(crate) fn sve(n: u64) {
    // SAFETY: reads a word that the kernel gave the process.
    if unsafe { libc::getauxval(libc::AT_HWCAP) } & libc::HWCAP_SVE == 0 {
        return vectors(n);
    }
    let (mut before, mut after) = ([0_u8; SVE_LEN], [1_u8; SVE_LEN]);
    after.fill(0);
    keep_sve(n, TURNS, &mut before, &mut after);
    assert!(before.iter().any(|byte| *byte != 0));
    assert!(before == after, "a vector, a predicate, or FFR");
}

/// Fills the registers, leaves them in `before`, and what they are later in `after`.
#[unsafe(naked)]
extern "C" fn keep_sve(seed: u64, turns: u64, before: &mut [u8; SVE_LEN], after: &mut [u8; SVE_LEN]) {
    naked_asm!(
        ".arch_extension sve",
        "stp d8, d9, [sp, #-64]!",
        "stp d10, d11, [sp, #16]",
        "stp d12, d13, [sp, #32]",
        "stp d14, d15, [sp, #48]",
        ".macro at_predicates base", // x5: behind the vectors
        "addvl x5, \\base, #31",
        "addvl x5, x5, #1",
        ".endm",
        "at_predicates x2",
        "and x4, x0, #7",
        "whilelo p0.b, xzr, x4",
        "setffr",
        "wrffr p0.b",
        "str p0, [x5, #16, mul vl]",
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "add x4, x0, #\\n",
        "and x4, x4, #15",
        "whilelo p\\n\\().b, xzr, x4",
        "str p\\n, [x5, #\\n, mul vl]",
        ".endr",
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "add x4, x0, #\\n",
        "index z\\n\\().d, x4, #1",
        "str z\\n, [x2, #\\n, mul vl]",
        ".endr",
        "2: sub x1, x1, #1",
        "cbnz x1, 2b",
        "at_predicates x3",
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "str p\\n, [x5, #\\n, mul vl]",
        ".endr",
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "str z\\n, [x3, #\\n, mul vl]",
        ".endr",
        "rdffr p0.b",
        "str p0, [x5, #16, mul vl]",
        ".purgem at_predicates",
        "ldp d10, d11, [sp, #16]",
        "ldp d12, d13, [sp, #32]",
        "ldp d14, d15, [sp, #48]",
        "ldp d8, d9, [sp], #64",
        "ret",
        ".arch_extension nosve",
    )
}

/// FPCR: rounding towards zero, flushing to zero, and back.
pub(crate) fn unusual_control_words(_: u64) {
    assert_eq!(keep_control(TURNS, 0x1c0_0000), 0, "FPCR");
}

/// FPCR as a goroutine finds it, whatever others make of theirs.
pub(crate) fn usual_control_words(_: u64) {
    let fpcr: u64;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack, preserves_flags)) };
    assert_eq!(fpcr, 0, "another goroutine's FPCR");
    assert_eq!(keep_control(TURNS, 0), 0, "FPCR");
}

#[unsafe(naked)]
extern "C" fn keep_control(turns: u64, fpcr: u64) -> u64 {
    naked_asm!(
        "mrs x9, fpcr",
        "mov x10, x1",
        "msr fpcr, x10",
        "2: sub x0, x0, #1",
        "cbnz x0, 2b",
        "mrs x0, fpcr",
        "eor x0, x0, x10",
        "msr fpcr, x9",
        "ret",
    )
}

/// A leaf function's frame, down to its last byte.
pub(crate) fn stack(n: u64) {
    assert_eq!(keep_stack(n, TURNS), 0, "the stack");
}

#[unsafe(naked)]
extern "C" fn keep_stack(seed: u64, turns: u64) -> u64 {
    naked_asm!(
        "sub sp, sp, #16",
        "mvn x2, x0",
        "stp x0, x2, [sp]",
        "2: sub x1, x1, #1",
        "cbnz x1, 2b",
        "ldp x3, x4, [sp]",
        "eor x3, x3, x0",
        "eor x4, x4, x2",
        "orr x0, x3, x4",
        "add sp, sp, #16",
        "ret",
    )
}
