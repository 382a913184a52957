//! The thread pointer and the head of a thread block on aarch64.
//!
//! TPIDR_EL0 is the thread pointer, which user code may always write. It points to a head of two words, the first of
//! which is glibc's vector of TLS modules; static thread-locals lie above (variant I of the TLS ABI), `struct pthread`
//! right below.

use super::Parts;
use std::arch::asm;
use std::ffi::c_int;

/// The offset of the address of the vector of TLS modules.
pub(super) const DTV: usize = 0;
/// The offset in `struct pthread` behind what [`init_head`] fills, from which on fields are looked for.
pub(super) const FIRST_FIELD: usize = 8;

/// Whether a goroutine's stack begins right below the static thread-locals: they lie above, and what they do not use is
/// never touched.
pub(super) const STACK_BELOW_STATIC_TLS: bool = false;

/// Bytes of the head.
const HEAD: usize = 16;
/// The offset in `struct pthread` of a flag: stdio takes its locks only if it is set.
const MULTIPLE_THREADS: usize = 0;

/// Returns where the parts of a block lie, with `extra` bytes for the runtime. `None` if that cannot be.
pub(super) fn parts(static_size: usize, size_of_pthread: usize, extra: usize) -> Option<Parts> {
    // The size that glibc tells counts the head, and not `struct pthread`.
    let above = static_size.checked_sub(HEAD).map(|_| static_size)?;
    let below = (size_of_pthread + extra).next_multiple_of(size_of::<usize>());
    Some(Parts {
        below,
        above,
        pthread: -(size_of_pthread as isize),
        static_tls: HEAD as isize..above as isize,
        extra: -(below as isize),
    })
}

/// Says why user code may not write the thread pointer: on this processor it always may.
pub(super) fn may_write_thread_pointer() -> Result<(), &'static str> {
    Ok(())
}

/// Returns the calling thread's TPIDR_EL0.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let tp;
    // SAFETY: reads a register. Neither `pure` nor `nomem`: the answer changes when a goroutine is switched.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) tp, options(nostack, preserves_flags, readonly)) };
    tp
}

/// Returns the word `offset` bytes from the thread pointer.
///
/// # Safety
/// It is part of the block that this thread is on. Where an interrupted goroutine may go on on another thread, the
/// block goes with it.
#[inline(always)]
pub(crate) unsafe fn word_at(offset: usize) -> usize {
    // SAFETY: by the caller. Volatile: not to be kept over a switch.
    unsafe { (thread_pointer().wrapping_add(offset) as *const usize).read_volatile() }
}

/// Moves this OS thread to another thread block.
///
/// # Safety
/// `tp` is a live block that no other thread uses.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(tp: usize) {
    // SAFETY: by the caller. No `nomem`: no memory access may move across it.
    unsafe { asm!("msr tpidr_el0, {}", in(reg) tp, options(nostack, preserves_flags)) };
}

/// Fills the head of the new block `tp`: glibc has written the vector of modules, and the guards of stacks and pointers
/// are global here.
///
/// # Safety
/// `tp` is a block of the caller's, whose `struct pthread` lies at the offset `pthread`; `own` is a block.
pub(super) unsafe fn init_head(tp: *mut u8, own: *const u8, pthread: isize) {
    // SAFETY: by the caller. There is more than one thread: one has looked at the layout.
    unsafe {
        let flag = own.offset(pthread).add(MULTIPLE_THREADS).cast::<c_int>().read();
        tp.offset(pthread).add(MULTIPLE_THREADS).cast::<c_int>().write(flag);
    }
}

/// Returns whether the head of the block `tp` is as it should be: there is a vector.
///
/// # Safety
/// The calling thread is on this block.
pub(super) unsafe fn is_head(tp: *const u8) -> bool {
    // SAFETY: by the caller.
    let vector = unsafe { tp.add(DTV).cast::<usize>().read() };
    vector != 0 && vector.is_multiple_of(size_of::<usize>())
}
