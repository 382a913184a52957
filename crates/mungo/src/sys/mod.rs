//! What the runtime asks of the kernel.
//!
//! Nothing here knows goroutines: these block the OS thread.

pub(crate) mod affinity;
pub(crate) mod atomic;
#[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
pub(crate) mod capture;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
#[path = "no_capture.rs"]
pub(crate) mod capture;
pub(crate) mod clock;
pub(crate) mod futex;
pub(crate) mod interrupted;
pub(crate) mod membarrier;
pub(crate) mod modules;
pub(crate) mod next;
pub(crate) mod say;
pub(crate) mod secure;
pub(crate) mod signal;
pub(crate) mod spelling;
pub(crate) mod spin;
pub(crate) mod task;
pub(crate) mod thread;

/// A value on cache lines of its own: writes to its neighbours do not take it away from threads that read it. Two
/// lines, because processors fetch pairs.
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Asks for the cache line at this address, which need not exist.
#[inline(always)]
pub(crate) fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, without effect on what the program means.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; an address without memory does no harm.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Returns the CPU that the thread is on, or was a moment ago.
pub(crate) fn this_cpu() -> u32 {
    // SAFETY: no memory involved; safe in a signal handler.
    unsafe { libc::sched_getcpu() as u32 }
}

/// Returns the page size in bytes; the kernel is asked once.
pub(crate) fn page_size() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Relaxed) {
        0 => {
            // SAFETY: no memory involved.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            SIZE.store(size, Relaxed);
            size
        }
        size => size,
    }
}

/// Returns whether the word at this address is readable. Asks the kernel, which reads a signal set there, and then
/// refuses the action.
pub(crate) fn is_readable(word: usize) -> bool {
    const NO_SUCH_ACTION: i32 = -1;
    let no_old: *mut std::ffi::c_void = std::ptr::null_mut();
    // SAFETY: the kernel changes nothing: the action does not exist.
    unsafe {
        // Null means "no set", and is no error.
        libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_ACTION, word, no_old, size_of::<usize>()) == -1
            && *libc::__errno_location() == libc::EINVAL
    }
}
