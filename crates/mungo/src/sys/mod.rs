//! What the runtime asks of the kernel.
//!
//! Nothing here knows goroutines: these block the OS thread.

pub(crate) mod affinity;
pub(crate) mod clock;
pub(crate) mod futex;
pub(crate) mod modules;
pub(crate) mod signal;
pub(crate) mod task;

/// Asks for the cache line at this address; it need not exist.
#[inline(always)]
pub(crate) fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, without effect on what the program means.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The CPU that the thread is on, or was a moment ago.
pub(crate) fn this_cpu() -> u32 {
    // SAFETY: no memory involved; safe in a signal handler.
    unsafe { libc::sched_getcpu() as u32 }
}

/// The page size; asked once.
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
