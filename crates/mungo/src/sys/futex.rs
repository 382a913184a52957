//! Futex: waits on a 32-bit word, and wakes its waiters. Touches no thread-local, `errno` included.

use std::sync::atomic::AtomicU32;

/// Sleeps while `word == expected`, until woken or until `deadline_ns` of the monotonic clock.
/// May return for no reason; returns `false` only after the deadline passed.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline_ns: Option<u64>) -> bool {
    let ts = deadline_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _, // musl calls its type deprecated
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let timeout = ts.as_ref().map_or(std::ptr::null(), |ts| ts as *const libc::timespec);
    // SAFETY: the word and the time-out outlive the call. FUTEX_WAIT_BITSET takes an absolute time.
    let r =
        unsafe { futex(word, libc::FUTEX_WAIT_BITSET, expected, timeout, libc::FUTEX_BITSET_MATCH_ANY as u32) };
    r != -i64::from(libc::ETIMEDOUT)
}

/// Wakes at most `n` threads that wait on `word`.
pub(crate) fn wake(word: &AtomicU32, n: u32) {
    // SAFETY: the kernel only uses the address as a key; it may even be gone.
    unsafe { futex(word, libc::FUTEX_WAKE, n, std::ptr::null(), 0) };
}

/// Makes the system call; returns what the kernel returns, errors as negative numbers.
///
/// WHY NOT `libc::syscall`: it writes `errno`, which is that of the goroutine whose thread-locals happen to be loaded.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn futex(word: &AtomicU32, op: i32, n: u32, timeout: *const libc::timespec, bits: u32) -> i64 {
    let result;
    // SAFETY: by the caller; the kernel changes rax, rcx and r11.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_futex => result,
            in("rdi") word.as_ptr(),
            in("rsi") (op | libc::FUTEX_PRIVATE_FLAG) as i64,
            in("rdx") u64::from(n),
            in("r10") timeout,
            in("r8") 0u64,
            in("r9") u64::from(bits),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Does the same on aarch64.
#[cfg(all(target_os = "linux", target_arch = "aarch64", not(miri)))]
#[inline]
unsafe fn futex(word: &AtomicU32, op: i32, n: u32, timeout: *const libc::timespec, bits: u32) -> i64 {
    let result;
    // SAFETY: by the caller; the kernel changes x0.
    unsafe {
        std::arch::asm!(
            "svc #0",
            in("x8") libc::SYS_futex,
            inlateout("x0") word.as_ptr() => result,
            in("x1") (op | libc::FUTEX_PRIVATE_FLAG) as i64,
            in("x2") u64::from(n),
            in("x3") timeout,
            in("x4") 0u64,
            in("x5") u64::from(bits),
            options(nostack),
        );
    }
    result
}

/// Makes the call through the C library, and leaves the caller's `errno` as it was.
#[cfg(not(all(mungo_native, not(miri))))]
unsafe fn futex(word: &AtomicU32, op: i32, n: u32, timeout: *const libc::timespec, bits: u32) -> i64 {
    // SAFETY: by the caller; `errno` is this thread's.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let op = op | libc::FUTEX_PRIVATE_FLAG;
        let r = libc::syscall(libc::SYS_futex, word.as_ptr(), op, n, timeout, std::ptr::null::<u32>(), bits);
        if r >= 0 {
            return r as i64;
        }
        -i64::from(std::mem::replace(&mut *errno, before))
    }
}
