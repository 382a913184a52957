//! The thread pointer and the head of a thread block on x86-64.
//!
//! The FS base is the thread pointer. It points to `struct pthread`, whose first 80 bytes the ABI and glibc's
//! `tcbhead_t` fix; static thread-locals lie below (variant II of the TLS ABI).

use super::Parts;
use std::arch::asm;
use std::ffi::c_int;
use std::ops::Range;

/// The offset of the address of the vector of TLS modules.
pub(super) const DTV: usize = 8;
/// The offset in `struct pthread` behind what [`init_head`] fills, from which on fields are looked for.
pub(super) const FIRST_FIELD: usize = 80;

/// Whether a goroutine's stack begins right below the static thread-locals, so that it can have the room that they do
/// not use.
pub(super) const STACK_BELOW_STATIC_TLS: bool = true;

/// The offsets of the thread pointer itself in the head.
const SELF: [usize; 2] = [0, 16];
/// malloc and stdio take their locks only if this is set.
const MULTIPLE_THREADS: usize = 24;
/// `multiple_threads` up to the CET word: stack guard, pointer guard, feature bits.
const INHERITED: Range<usize> = 24..80;

/// A bit of `AT_HWCAP2`: the kernel lets user code write the FS base (`HWCAP2_FSGSBASE`).
const HWCAP2_FSGSBASE: u64 = 2;

/// Returns where the parts of a block lie, with `extra` bytes for the runtime. `None` if that cannot be.
pub(super) fn parts(static_size: usize, size_of_pthread: usize, extra: usize) -> Option<Parts> {
    let below = static_size.checked_sub(size_of_pthread)?; // it counts both
    let extra_at = size_of_pthread.next_multiple_of(size_of::<usize>());
    Some(Parts {
        below,
        above: extra_at + extra,
        pthread: 0,
        static_tls: -(below as isize)..0,
        extra: extra_at as isize,
    })
}

/// Says why user code may not write the thread pointer, if so.
pub(super) fn may_write_thread_pointer() -> Result<(), &'static str> {
    // SAFETY: no memory involved.
    match unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE {
        0 => Err("this kernel does not let programs write the FS base (fsgsbase), or valgrind runs this"),
        _ => Ok(()),
    }
}

/// Returns the calling thread's FS base.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let tp;
    // SAFETY: the first word of a glibc thread block is its own address. `mov` rather than
    // `rdfsbase`, which would fault on a kernel that does not allow it. Not `pure`: the answer
    // changes when a goroutine is switched.
    unsafe { asm!("mov {}, fs:0", out(reg) tp, options(nostack, preserves_flags, readonly)) };
    tp
}

/// Returns the word `offset` bytes from the FS base.
///
/// # Safety
/// It is part of the block that this thread is on.
#[inline(always)]
pub(crate) unsafe fn word_at(offset: usize) -> usize {
    let word;
    // SAFETY: by the caller. Not `pure`, as above.
    unsafe {
        asm!("mov {}, fs:[{}]", out(reg) word, in(reg) offset, options(nostack, preserves_flags, readonly))
    };
    word
}

/// Moves this OS thread to another thread block.
///
/// # Safety
/// `tp` is a live block that no other thread uses, and [`may_write_thread_pointer`] has said yes.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(tp: usize) {
    // SAFETY: by the caller. No `nomem`: no memory access may move across it.
    unsafe { asm!("wrfsbase {}", in(reg) tp, options(nostack, preserves_flags)) };
}

/// Fills the head of the new block `tp`: what the ABI fixes, and what all threads have in common, from the block `own`.
///
/// # Safety
/// `tp` is a block of the caller's, whose `struct pthread` lies at the offset `_pthread`; `own` is a block.
pub(super) unsafe fn init_head(tp: *mut u8, own: *const u8, _pthread: isize) {
    // SAFETY: by the caller.
    unsafe {
        SELF.into_iter().for_each(|at| tp.add(at).cast::<*mut u8>().write(tp));
        let from = own.add(INHERITED.start);
        from.copy_to_nonoverlapping(tp.add(INHERITED.start), INHERITED.len());
        tp.add(MULTIPLE_THREADS).cast::<c_int>().write(1);
    }
}

/// Returns whether the head of the block `tp` is as it should be.
///
/// # Safety
/// The calling thread is on this block.
pub(super) unsafe fn is_head(tp: *const u8) -> bool {
    // SAFETY: by the caller.
    SELF.into_iter().all(|at| unsafe { tp.add(at).cast::<*const u8>().read() } == tp)
}
