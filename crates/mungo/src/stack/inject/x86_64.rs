//! The injected call on x86-64: the stub saves what the code could lose on the code's own stack.
//!
//! ```text
//!   interrupted RSP ──► │ red zone: 128 bytes that a leaf function may use below its stack pointer
//!                       │ RIP            written by the handler; `ret 128` pops it and steps over the red zone
//!                       │ RFLAGS         from here on by the stub
//!   RBP of the stub ──► │ RBP
//!                       │ the nine other registers that a call may change
//!                       │ x87, SSE, AVX, AVX-512, AMX: as XSAVE leaves them, aligned to 64 bytes
//! ```
//!
//! The registers that a call preserves are the called function's business. The function finds the flags and the
//! floating-point control words as every function does: direction up, x87 empty, all exceptions masked. Before it
//! suspends the goroutine it loads the thread's own control words ([`Control`]), which are what the next goroutine
//! finds.
//!
//! An unwinder finds the interrupted frame by the stub's unwind table, which marks it as a signal's frame: the address
//! is that of an instruction to be executed, not one behind a call.

use super::{Callee, Refused};
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::arch::{asm, naked_asm};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// The registers of interrupted code that its callers' frames can be found by. They lie on its stack.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Frame {
    bp: usize,
    flags: usize,
    ip: usize,
}

impl Frame {
    /// Returns what it takes to unwind the interrupted code: the instruction, the stack pointer, the frame pointer, and
    /// the link register, which this processor lacks.
    ///
    /// # Safety
    /// `frame` is aligned and can be read; it is worth nothing if it is no frame any more.
    #[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
    pub(crate) unsafe fn registers(frame: *const Frame) -> [usize; 4] {
        // SAFETY: by the caller; volatile, since the owner may go on at any time.
        let (ip, bp) =
            unsafe { ((&raw const (*frame).ip).read_volatile(), (&raw const (*frame).bp).read_volatile()) };
        [ip, frame.addr() + size_of::<Frame>() + RED_ZONE, bp, 0]
    }
}

/// Bytes below the stack pointer that a leaf function may use, by the System V ABI.
const RED_ZONE: usize = 128;
/// Bytes of a stack that the stub takes at most, beside the vector state: red zone, registers, alignment.
const STUB: usize = RED_ZONE + size_of::<Frame>() + 9 * 8 + 64;
/// Bytes of the vector state. 0: this CPU cannot save it.
static STATE_SIZE: AtomicUsize = AtomicUsize::new(0);
/// [`COMPACT`] and [`AVX`], for the stub.
static FEATURES: AtomicU32 = AtomicU32::new(0);
/// A bit: the CPU has XSAVEC, which writes what is in use only.
const COMPACT: u32 = 1;
/// A bit: the upper halves of the vector registers can be in use.
const AVX: u32 = 2;
/// Bytes of the stub's code, which is filled up to that.
const STUB_CODE: usize = 256;
/// The bits of a return address on the stack that are those of the address: all.
pub(super) const ADDRESS_BITS: usize = usize::MAX;
static CALLEE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// The initial value by the ABI: all exceptions masked, round to nearest.
static MXCSR: u32 = 0x1f80;

/// The control words of a thread's floating-point units, which a program may have changed before it started the
/// runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    mxcsr: u32,
    x87: u16,
}

impl Control {
    /// The initial values by the ABI.
    pub(crate) const USUAL: Control = Control { mxcsr: 0x1f80, x87: 0x37f };

    /// Returns those of the calling thread.
    pub(crate) fn of_this_thread() -> Control {
        let mut control = Control::USUAL;
        // SAFETY: writes the two words.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &raw mut control.mxcsr, options(nostack, preserves_flags));
            asm!("fnstcw [{}]", in(reg) &raw mut control.x87, options(nostack, preserves_flags));
        }
        control
    }

    /// Makes them the calling thread's.
    ///
    /// # Safety
    /// They are the usual ones of this thread, and its goroutine's own were saved.
    pub(crate) unsafe fn load(&self) {
        // SAFETY: by the caller; reads the two words.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const self.mxcsr, options(nostack, preserves_flags, readonly));
            asm!("fldcw [{}]", in(reg) &raw const self.x87, options(nostack, preserves_flags, readonly));
        }
    }
}

/// Sets the function that is called, and finds out how large the vector state is. Returns `false` if this CPU cannot
/// save its vector state.
pub(super) fn prepare(callee: Callee) -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const XSAVEC: u32 = 1 << 1;
    CALLEE.store(callee as *mut (), Relaxed);
    if __cpuid_count(1, 0).ecx & OSXSAVE == 0 {
        return false;
    }
    // Standard format, for what the system has switched on; compacted, with alignment.
    let (plain, extended) = (__cpuid_count(0xd, 0), __cpuid_count(0xd, 1));
    // SAFETY: the system has switched XSAVE on.
    let enabled = unsafe { _xgetbv(0) };
    let compact = if extended.eax & XSAVEC != 0 { COMPACT } else { 0 };
    let avx = if enabled & 4 != 0 { AVX } else { 0 };
    FEATURES.store(compact | avx, Relaxed);
    // ORDERING: Release the rest to `inject`, in a signal handler on any thread.
    STATE_SIZE.store((plain.ebx.max(extended.ebx) as usize).next_multiple_of(64), Release);
    true
}

/// Returns the address to install as a handler so that `handler` is called, and may [`inject`](super::inject).
pub(crate) fn entry(handler: usize) -> usize {
    handler
}

/// Returns the interrupted code's stack pointer.
pub(super) fn stack_pointer(context: *const c_void) -> usize {
    // SAFETY: the kernel's context.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RSP as usize] as usize }
}

/// Returns the register that holds the return address of a function without a frame: none does.
pub(super) fn link_register(_context: *const c_void) -> Option<usize> {
    None
}

/// Returns the bytes of stack that the stub takes, or why there can be none.
///
/// # Safety
/// In a signal handler, with its context.
pub(super) unsafe fn needed(_context: *const c_void) -> Result<usize, Refused> {
    // ORDERING: Acquire pairs with `prepare`.
    match STATE_SIZE.load(Acquire) {
        0 => Err(Refused::Impossible),
        _ if has_shadow_stack() => Err(Refused::ShadowStack),
        size => Ok(STUB + size),
    }
}

/// Returns the address that every signal handler returns to: a function of libc's that ends it. The kernel writes it
/// right below the context.
///
/// # Safety
/// In a signal handler, with its context.
pub(super) unsafe fn end_of_handlers(context: *const c_void) -> usize {
    // SAFETY: by the caller.
    unsafe { context.cast::<usize>().sub(1).read() }
}

/// Writes the call.
///
/// # Safety
/// In a signal handler, with its context; as much stack as [`needed`] says can be written.
pub(super) unsafe fn write_call(context: *mut c_void) {
    let below = stack_pointer(context) - RED_ZONE - size_of::<usize>();
    // SAFETY: by the caller; below the red zone nothing of the interrupted code is in use.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        (below as *mut usize).write_unaligned(registers[libc::REG_RIP as usize] as usize);
        registers[libc::REG_RSP as usize] = below as i64;
        registers[libc::REG_RIP as usize] = stub as *const () as i64;
    }
}

/// Reads a word of other code's memory, whatever that is: a variable, padding, or the zone that AddressSanitizer puts
/// between variables and lets no instrumented read touch.
///
/// # Safety
/// `at` is aligned and can be read.
pub(super) unsafe fn load(at: usize) -> usize {
    let word;
    // SAFETY: by the caller.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) at, options(nostack, readonly, preserves_flags)) };
    word
}

/// Makes a test's threads count as having a shadow stack, which few machines have.
#[cfg(test)]
pub(crate) static PRETEND_SHADOW_STACK: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

/// Returns whether this thread's returns are checked against a shadow stack.
fn has_shadow_stack() -> bool {
    #[cfg(test)]
    if PRETEND_SHADOW_STACK.load(std::sync::atomic::Ordering::Relaxed) {
        return true;
    }
    let mut pointer = 0_usize;
    // SAFETY: RDSSPQ, which does nothing where there is no shadow stack. Spelled in bytes for old assemblers.
    unsafe {
        asm!(".byte 0xf3, 0x48, 0x0f, 0x1e, 0xc8", inout("rax") pointer, options(nomem, nostack));
    }
    pointer != 0
}

/// Returns the addresses of the stub's instructions. While it saves or restores, the stack is its own.
pub(crate) fn stub_code() -> Range<usize> {
    let start = stub as *const () as usize;
    start..start + STUB_CODE
}

/// Saves, calls and restores: see the picture above. No code calls it; the handler makes it look so.
#[unsafe(naked)]
unsafe extern "C" fn stub() {
    naked_asm!(
        "5:",
        ".cfi_startproc",
        ".cfi_signal_frame",
        // The frame ends where the interrupted stack pointer was; 136 bytes below that lies RIP.
        ".cfi_def_cfa rsp, 136",
        ".cfi_offset rip, -136",
        "pushfq",
        ".cfi_adjust_cfa_offset 8",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -152",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "cld",
        "sub rsp, [rip + {state_size}]",
        "and rsp, -64",
        // XRSTOR wants the header of the state to be zero where XSAVE does not write it.
        "xor eax, eax",
        "mov [rsp + 512], rax",
        "mov [rsp + 520], rax",
        "mov [rsp + 528], rax",
        "mov [rsp + 536], rax",
        "mov [rsp + 544], rax",
        "mov [rsp + 552], rax",
        "mov [rsp + 560], rax",
        "mov [rsp + 568], rax",
        "mov eax, -1",
        "mov edx, -1",
        "mov ecx, [rip + {features}]",
        "test ecx, {compact}",
        "jz 2f",
        "xsavec64 [rsp]",
        "jmp 3f",
        "2: xsave64 [rsp]",
        "3: fninit",
        "ldmxcsr [rip + {mxcsr}]",
        "test ecx, {avx}",
        "jz 4f",
        "vzeroupper",
        "4: mov rdi, rbp",
        "call [rip + {callee}]",
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rsp]",
        "lea rsp, [rbp - 72]",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "pop rbp",
        ".cfi_def_cfa rsp, 144",
        ".cfi_same_value rbp",
        "popfq",
        ".cfi_adjust_cfa_offset -8",
        "ret {red_zone}",
        ".cfi_endproc",
        ".fill {length} - (. - 5b), 1, 0xcc",
        state_size = sym STATE_SIZE,
        features = sym FEATURES,
        mxcsr = sym MXCSR,
        callee = sym CALLEE,
        compact = const COMPACT,
        avx = const AVX,
        red_zone = const RED_ZONE,
        length = const STUB_CODE,
    )
}
