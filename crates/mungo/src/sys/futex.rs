//! Futex: wait on a 32-bit word, wake who waits.

use std::sync::atomic::AtomicU32;

/// Sleeps while `word == expected`, until woken or until `deadline_ns` of the monotonic clock.
/// May return for no reason; returns `false` only after the deadline passed.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline_ns: Option<u64>) -> bool {
    let ts = deadline_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let timeout = ts.as_ref().map_or(std::ptr::null(), |ts| ts as *const libc::timespec);
    // SAFETY: the word and the time-out outlive the call. FUTEX_WAIT_BITSET takes an absolute time.
    let r = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            expected,
            timeout,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    // SAFETY: reads this thread's errno.
    !(r < 0 && unsafe { *libc::__errno_location() } == libc::ETIMEDOUT)
}

/// Wakes at most `n` threads that wait on `word`.
pub(crate) fn wake(word: &AtomicU32, n: u32) {
    // SAFETY: the kernel only uses the address as a key; it may even be gone.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n);
    }
}
