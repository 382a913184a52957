//! What the runtime asks of the kernel.
//!
//! Nothing here knows goroutines: these block the OS thread.

pub(crate) mod clock;
pub(crate) mod futex;

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
