//! The injected call on aarch64.
//!
//! No instruction restores the program counter without a register to load it from, so the way back is the kernel's: the
//! handler copies the frame in which the kernel saved the interrupted code (all registers, q0 to q31 or the SVE state,
//! FPCR, FPSR, NZCV) to the code's own stack, and the stub ends with `rt_sigreturn` on that copy:
//!
//! ```text
//!   interrupted SP ──► │ up to 15 bytes, for alignment; there is no red zone
//!                      │ records: vector state, and whatever else the kernel saves
//!                      │ ucontext_t: general registers, signal mask, alternate stack
//!     SP of the stub ► │ siginfo_t
//! ```
//!
//! `rt_sigreturn` sets the signal mask and the alternate stack too, which belong to the thread. The code may go on on
//! another one, so the stub puts the present thread's into the copy just before. It is not interrupted in between.
//!
//! Unwinders stop at the stub. Dumps start from the copy.

use super::{Callee, Refused};
use std::arch::{asm, naked_asm};
use std::ffi::c_void;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// The kernel's frame of a signal (`struct rt_sigframe`), up to the records.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct Frame {
    info: [u64; 16],
    flags: u64,
    link: u64,
    stack: [u64; 3],
    /// The signal mask, and room for a larger one.
    mask: [u64; 16],
    _padding: u64,
    fault_address: u64,
    general: [usize; 31],
    sp: usize,
    pc: usize,
    pstate: u64,
    _more_padding: u64,
}

impl Frame {
    /// Returns what it takes to unwind the interrupted code: the instruction, the stack pointer, the frame pointer, and
    /// the link register.
    ///
    /// # Safety
    /// `frame` is aligned and can be read; it is worth nothing if it is no frame any more.
    #[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
    pub(crate) unsafe fn registers(frame: *const Frame) -> [usize; 4] {
        // SAFETY: by the caller; volatile, since the owner may go on at any time.
        unsafe {
            let [.., fp, lr] = (&raw const (*frame).general).read_volatile();
            [(&raw const (*frame).pc).read_volatile(), (&raw const (*frame).sp).read_volatile(), fp, lr]
        }
    }
}

/// The context that handlers get is this part of the frame.
const CONTEXT: usize = offset_of!(Frame, flags);
const _: () = assert!(
    CONTEXT == 128 && offset_of!(Frame, general) - CONTEXT == offset_of!(libc::ucontext_t, uc_mcontext) + 8
);
const _: () = assert!(size_of::<Frame>().is_multiple_of(16));

/// Bytes of records that a frame has room for.
const RECORDS: usize = 4096;
/// Kinds of records (<asm/sigcontext.h>). The fault's cause, SME's pointer, the mode of FP8, and permissions are plain
/// registers.
const FPSIMD: u32 = 0x4650_8001;
const PLAIN: [u32; 5] = [FPSIMD, 0x4553_5201, 0x5450_4902, 0x4650_4d52, 0x504f_4530];
const SVE: u32 = 0x5356_4501;
const ZA: u32 = 0x5436_6345;
const GCS: u32 = 0x4743_5300;
/// Bytes of a record for ZA that holds nothing.
const ZA_UNUSED: u32 = 16;
/// Bits of PSTATE: the kind of the last jump, which an instruction may be picky about.
const BTYPE: u64 = 3 << 10;
/// The bits of a return address on the stack that are those of the address. Code that was compiled with
/// `-mbranch-protection=pac-ret` signs it in others: 48 bits address all that a program has unless it asks for more.
pub(super) const ADDRESS_BITS: usize = (1 << 48) - 1;
/// Bytes of the stub's code, which is filled up to that.
const STUB_CODE: usize = 128;

static CALLEE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// The handler behind [`entry`].
static HANDLER: AtomicUsize = AtomicUsize::new(0);
/// The address that handlers return to. Written by [`first`], always the same value.
static END_OF_HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// The control register of a thread's floating-point unit (FPCR), which a program may have changed before it started
/// the runtime. The stub clears it for the called function, which loads the thread's before it suspends the goroutine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control(u64);

impl Control {
    /// The initial value by the ABI.
    pub(crate) const USUAL: Control = Control(0);

    /// Returns that of the calling thread.
    pub(crate) fn of_this_thread() -> Control {
        let fpcr;
        // SAFETY: reads the register.
        unsafe { asm!("mrs {}, fpcr", out(reg) fpcr, options(nostack, nomem, preserves_flags)) };
        Control(fpcr)
    }

    /// Makes it the calling thread's.
    ///
    /// # Safety
    /// It is the usual one of this thread, and its goroutine's own was saved.
    pub(crate) unsafe fn load(&self) {
        // SAFETY: by the caller.
        unsafe { asm!("msr fpcr, {}", in(reg) self.0, options(nostack, nomem, preserves_flags)) };
    }
}

pub(super) fn prepare(callee: Callee) -> bool {
    CALLEE.store(callee as *mut (), Relaxed);
    true
}

/// Returns the address to install as a handler so that `handler` is called, and may [`inject`](super::inject).
pub(crate) fn entry(handler: usize) -> usize {
    HANDLER.store(handler, Relaxed);
    first as *const () as usize
}

/// Notes where the handler returns to, which only its first instruction knows, and goes on to it.
#[unsafe(naked)]
unsafe extern "C" fn first() {
    naked_asm!(
        "hint #34",
        "adrp x16, {end}",
        "str x30, [x16, :lo12:{end}]",
        "adrp x16, {handler}",
        "ldr x16, [x16, :lo12:{handler}]",
        "br x16",
        end = sym END_OF_HANDLERS,
        handler = sym HANDLER,
    )
}

/// Returns the frame of the kernel that a context is part of.
fn frame_of(context: *const c_void) -> *mut Frame {
    context.cast_mut().wrapping_byte_sub(CONTEXT).cast()
}

/// Returns the interrupted code's stack pointer.
pub(super) fn stack_pointer(context: *const c_void) -> usize {
    // SAFETY: the kernel's frame.
    unsafe { (*frame_of(context)).sp }
}

/// Returns the register that holds the return address of a function without a frame.
pub(super) fn link_register(context: *const c_void) -> Option<usize> {
    // SAFETY: the kernel's frame.
    Some(unsafe { (*frame_of(context)).general[30] })
}

/// Returns the bytes of stack that the stub takes, or why there can be none.
///
/// # Safety
/// In a signal handler, with its context.
pub(super) unsafe fn needed(context: *const c_void) -> Result<usize, Refused> {
    // SAFETY: by the caller.
    Ok(unsafe { used(context)? } + 16)
}

/// Returns the bytes of the frame that are in use: up to the record that ends the list. Frames with records that are
/// unknown, or that lie elsewhere (large vectors), are not copied; nor is code in SME's streaming mode interrupted.
unsafe fn used(context: *const c_void) -> Result<usize, Refused> {
    let records = frame_of(context).wrapping_add(1).cast::<u8>();
    let mut at = 0;
    while at + 16 <= RECORDS {
        // SAFETY: by the caller; within the kernel's frame.
        let [kind, size, head, _] = unsafe { records.add(at).cast::<[u32; 4]>().read() };
        match kind {
            0 => return Ok(size_of::<Frame>() + at + 16),
            GCS => return Err(Refused::ShadowStack),
            SVE if head >> 16 == 0 => {}
            ZA if size == ZA_UNUSED => {}
            _ if PLAIN.contains(&kind) => {}
            _ => return Err(Refused::Impossible),
        }
        at += (size as usize).max(16);
    }
    Err(Refused::Impossible)
}

/// Returns the address that every signal handler returns to.
///
/// # Safety
/// In a signal handler that [`entry`] has named.
pub(super) unsafe fn end_of_handlers(_context: *const c_void) -> usize {
    END_OF_HANDLERS.load(Relaxed)
}

/// Copies the kernel's frame to the interrupted stack, and makes the code go on in the stub.
///
/// # Safety
/// In a signal handler, with its context; as much stack as [`needed`] says can be written.
pub(super) unsafe fn write_call(context: *mut c_void) {
    let frame = frame_of(context);
    // SAFETY: by the caller, which asked `needed` before; below the stack pointer nothing is in use.
    unsafe {
        let Ok(len) = used(context) else { return };
        let copy = ((*frame).sp - len) & !15;
        frame.cast::<u8>().copy_to_nonoverlapping(copy as *mut u8, len);
        (*frame).sp = copy;
        (*frame).pc = stub as *const () as usize;
        (*frame).pstate &= !BTYPE;
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
    unsafe { asm!("ldr {}, [{}]", out(reg) word, in(reg) at, options(nostack, readonly, preserves_flags)) };
    word
}

/// Returns the addresses of the stub's instructions. From the moment that it asks for the thread's mask it must not be
/// moved to another thread.
pub(crate) fn stub_code() -> Range<usize> {
    let start = stub as *const () as usize;
    start..start + STUB_CODE
}

/// Calls, asks for what is the thread's, and goes back: see the picture above. No code calls it; the handler makes it
/// look so.
#[unsafe(naked)]
unsafe extern "C" fn stub() {
    naked_asm!(
        "5:",
        ".cfi_startproc",
        ".cfi_undefined x30",
        "msr fpcr, xzr",
        "mov x0, sp",
        "adrp x1, {callee}",
        "ldr x1, [x1, :lo12:{callee}]",
        "blr x1",
        "mov x0, xzr",
        "add x1, sp, #{stack}",
        "mov x8, #{sigaltstack}",
        "svc #0",
        "mov x0, xzr",
        "mov x1, xzr",
        "add x2, sp, #{mask}",
        "mov x3, #8",
        "mov x8, #{rt_sigprocmask}",
        "svc #0",
        "mov x8, #{rt_sigreturn}",
        "svc #0",
        "brk #1",
        ".cfi_endproc",
        ".fill ({length} - (. - 5b)) / 4, 4, 0xd4200020",
        callee = sym CALLEE,
        stack = const offset_of!(Frame, stack),
        mask = const offset_of!(Frame, mask),
        sigaltstack = const libc::SYS_sigaltstack,
        rt_sigprocmask = const libc::SYS_rt_sigprocmask,
        rt_sigreturn = const libc::SYS_rt_sigreturn,
        length = const STUB_CODE,
    )
}
