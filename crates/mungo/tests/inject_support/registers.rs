//! Registers filled with patterns, kept through a loop, and compared: by naked functions, lest other code uses them.

use super::{Round, TURNS};
use std::arch::naked_asm;

/// The rounds that are this processor's.
pub(crate) const ROUNDS: [(&str, Round); 7] = [
    ("general registers and flags", general),
    ("red zone", red_zone),
    ("unusual control words", unusual_control_words),
    ("usual control words", usual_control_words),
    ("SSE", sse),
    ("AVX", avx),
    ("AVX-512", avx512),
];

/// Fourteen general registers, carry and direction.
pub(crate) fn general(n: u64) {
    assert_eq!(keep_general(n, TURNS), 0, "a general register or a flag");
}

/// Returns 0 if all is as it was.
#[unsafe(naked)]
extern "C" fn keep_general(seed: u64, turns: u64) -> u64 {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rsi",
        "lea rax, [rdi + 1]",
        "lea rbx, [rdi + 2]",
        "lea rcx, [rdi + 3]",
        "lea rdx, [rdi + 4]",
        "lea rsi, [rdi + 5]",
        "lea rbp, [rdi + 6]",
        "lea r8, [rdi + 8]",
        "lea r9, [rdi + 9]",
        "lea r10, [rdi + 10]",
        "lea r11, [rdi + 11]",
        "lea r12, [rdi + 12]",
        "lea r13, [rdi + 13]",
        "lea r14, [rdi + 14]",
        "lea r15, [rdi + 15]",
        "std",
        "stc",
        "2: dec qword ptr [rsp]", // leaves carry and direction alone
        "jnz 2b",
        "pushfq",
        "cld",
        "sub rax, 1",
        "xor rax, rdi",
        ".macro same register, n",
        "sub \\register, \\n",
        "xor \\register, rdi",
        "or rax, \\register",
        ".endm",
        "same rbx, 2",
        "same rcx, 3",
        "same rdx, 4",
        "same rsi, 5",
        "same rbp, 6",
        "same r8, 8",
        "same r9, 9",
        "same r10, 10",
        "same r11, 11",
        "same r12, 12",
        "same r13, 13",
        "same r14, 14",
        "same r15, 15",
        ".purgem same",
        "pop rdx",
        "and edx, 0x401",
        "xor edx, 0x401",
        "or rax, rdx",
        "pop rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// The 128 bytes below the stack pointer of a leaf function.
pub(crate) fn red_zone(n: u64) {
    assert_eq!(keep_red_zone(n, TURNS), 0, "the red zone");
}

#[unsafe(naked)]
extern "C" fn keep_red_zone(seed: u64, turns: u64) -> u64 {
    naked_asm!(
        ".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        "lea rax, [rdi + \\n]",
        "mov [rsp - 8 * \\n], rax",
        ".endr",
        "2: dec rsi",
        "jnz 2b",
        "xor eax, eax",
        ".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        "mov rdx, [rsp - 8 * \\n]",
        "sub rdx, \\n",
        "xor rdx, rdi",
        "or rax, rdx",
        ".endr",
        "ret",
    )
}

/// Registers and control words of x87 and SSE.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Unusual {
    x87: [f64; 8],
    mxcsr: u32,
    fcw: u32,
}

/// Rounding towards zero, denormals to zero; x87 in single precision, upwards, with a full register stack.
pub(crate) fn unusual_control_words(n: u64) {
    let x = (n % 1000) as f64;
    let set = Unusual { x87: std::array::from_fn(|i| x + i as f64), mxcsr: 0xff80, fcw: 0x087f };
    let mut got = Unusual { x87: [0.0; 8], mxcsr: 0, fcw: 0 };
    let usual = Unusual { x87: [0.0; 8], mxcsr: 0x1f80, fcw: 0x037f };
    keep_unusual(&set, &mut got, TURNS, &usual);
    got.mxcsr &= !0x3f; // exceptions that have occurred
    assert_eq!(got, set, "x87 or a control word");
}

#[unsafe(naked)]
extern "C" fn keep_unusual(set: &Unusual, got: &mut Unusual, turns: u64, usual: &Unusual) {
    naked_asm!(
        "fldcw [rdi + 68]",
        "ldmxcsr [rdi + 64]",
        ".irp n,7,6,5,4,3,2,1,0",
        "fld qword ptr [rdi + 8 * \\n]",
        ".endr",
        "2: dec rdx",
        "jnz 2b",
        "stmxcsr [rsi + 64]",
        "fnstcw [rsi + 68]",
        ".irp n,0,1,2,3,4,5,6,7",
        "fstp qword ptr [rsi + 8 * \\n]",
        ".endr",
        "fldcw [rcx + 68]",
        "ldmxcsr [rcx + 64]",
        "ret",
    )
}

/// Control words as every program has them: those of another goroutine do not get here.
pub(crate) fn usual_control_words(n: u64) {
    let look = || {
        let (mut mxcsr, mut fcw) = (0_u32, 0_u16);
        // SAFETY: writes the two words.
        unsafe { std::arch::asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &mut mxcsr, in(reg) &mut fcw) };
        (mxcsr & !0x3f, fcw)
    };
    assert_eq!(look(), (0x1f80, 0x037f), "control words at the start");
    std::hint::black_box(super::compute(n, TURNS / 4));
    assert_eq!(look(), (0x1f80, 0x037f), "control words after a loop");
}

/// The sixteen XMM registers.
pub(crate) fn sse(n: u64) {
    let pattern: [u128; 16] = std::array::from_fn(|i| (u128::from(n) << 64) | (i as u128 + 1));
    let mut got = [0_u128; 16];
    keep_xmm(&pattern, &mut got, TURNS);
    assert_eq!(got, pattern, "XMM registers");
}

#[unsafe(naked)]
extern "C" fn keep_xmm(set: &[u128; 16], got: &mut [u128; 16], turns: u64) {
    naked_asm!(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movdqu xmm\\n, [rdi + 16 * \\n]",
        ".endr",
        "2: dec rdx",
        "jnz 2b",
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movdqu [rsi + 16 * \\n], xmm\\n",
        ".endr",
        "ret",
    )
}

/// The sixteen YMM registers, if the CPU has them.
pub(crate) fn avx(n: u64) {
    if !is_x86_feature_detected!("avx") {
        return;
    }
    let pattern: [[u64; 4]; 16] = std::array::from_fn(|i| [n, !n, i as u64, !(i as u64)]);
    let mut got = [[0_u64; 4]; 16];
    keep_ymm(&pattern, &mut got, TURNS);
    assert_eq!(got, pattern, "YMM registers");
}

#[unsafe(naked)]
extern "C" fn keep_ymm(set: &[[u64; 4]; 16], got: &mut [[u64; 4]; 16], turns: u64) {
    naked_asm!(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vmovdqu ymm\\n, [rdi + 32 * \\n]",
        ".endr",
        "2: dec rdx",
        "jnz 2b",
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vmovdqu [rsi + 32 * \\n], ymm\\n",
        ".endr",
        "vzeroupper",
        "ret",
    )
}

/// The 32 ZMM registers and seven masks, if the CPU has them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wide {
    vectors: [[u64; 8]; 32],
    masks: [u16; 8],
}

pub(crate) fn avx512(n: u64) {
    if !is_x86_feature_detected!("avx512f") {
        return;
    }
    let mut set = Wide {
        vectors: std::array::from_fn(|i| std::array::from_fn(|k| n.rotate_left(k as u32) ^ (i as u64) << 32)),
        masks: std::array::from_fn(|i| (n as u16).rotate_left(i as u32) | 1),
    };
    set.masks[0] = 0; // not one that can be set apart
    let mut got = Wide { vectors: [[0; 8]; 32], masks: [0; 8] };
    keep_zmm(&set, &mut got, TURNS);
    assert_eq!(got, set, "ZMM registers or masks");
}

#[unsafe(naked)]
extern "C" fn keep_zmm(set: &Wide, got: &mut Wide, turns: u64) {
    naked_asm!(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovdqu64 zmm\\n, [rdi + 64 * \\n]",
        ".endr",
        ".irp n,1,2,3,4,5,6,7",
        "kmovw k\\n, [rdi + 2048 + 2 * \\n]",
        ".endr",
        "2: dec rdx",
        "jnz 2b",
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovdqu64 [rsi + 64 * \\n], zmm\\n",
        ".endr",
        ".irp n,1,2,3,4,5,6,7",
        "kmovw [rsi + 2048 + 2 * \\n], k\\n",
        ".endr",
        "vzeroupper",
        "ret",
    )
}
