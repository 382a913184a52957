//! System calls without the C library.
//!
//! The runtime's signal handler repeats calls that the kernel does not restart. It recognises them by the instruction
//! before: on x86-64 the number is loaded there, as in glibc; on aarch64, where the result takes the register of the
//! first argument, that one is copied.

use std::arch::asm;
use std::ffi::c_int;

/// The instruction, with `$number` on its way to RAX, the first six words of `$words`, and what the kernel changes.
#[cfg(target_arch = "x86_64")]
macro_rules! instruction {
    ($words:ident, $template:literal, $($number:tt)*) => {
        asm!(
            $template,
            "syscall",
            $($number)*,
            in("rdi") $words[0],
            in("rsi") $words[1],
            in("rdx") $words[2],
            in("r10") $words[3],
            in("r8") $words[4],
            in("r9") $words[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        )
    };
}

/// Makes the system call `NUMBER` with the first six words. Returns what the kernel returns: errors as negative
/// numbers.
///
/// # Safety
/// As the call.
#[inline(always)]
pub(crate) unsafe fn call<const NUMBER: i64, const N: usize>(a: [usize; N]) -> i64 {
    #[cfg(target_arch = "x86_64")]
    {
        let result;
        // SAFETY: by the caller.
        unsafe { instruction!(a, "mov eax, {number}", number = const NUMBER, out("rax") result) };
        result
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the caller.
    unsafe {
        call_any(NUMBER, [a[0], a[1], a[2], a[3], a[4], a[5]])
    }
}

/// Makes the system call with this number, which is not known beforehand.
///
/// # Safety
/// As the call.
#[inline(always)]
pub(crate) unsafe fn call_any(number: i64, a: [usize; 6]) -> i64 {
    let result;
    // SAFETY: by the caller.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        instruction!(a, "", inlateout("rax") number => result);
    }
    // SAFETY: by the caller.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 3", // both instructions on one page
            "mov x9, x0",
            "svc #0",
            in("x8") number,
            inlateout("x0") a[0] => result,
            in("x1") a[1],
            in("x2") a[2],
            in("x3") a[3],
            in("x4") a[4],
            in("x5") a[5],
            out("x9") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call with up to six arguments of any integer or pointer type: `sys!(SYS_read, fd, at, len)`.
macro_rules! sys {
    ($number:ident $(, $arg:expr)* $(,)?) => {
        $crate::shims::raw::call::<{ libc::$number }, _>([$($crate::shims::raw::Word::word($arg),)* 0, 0, 0, 0, 0, 0])
    };
}
pub(crate) use sys;

/// Returns what is at an address of the program's, which need not be right. `None`: it cannot be read.
pub(crate) fn copy<T: Copy>(at: *const T) -> Option<T> {
    let mut copy = std::mem::MaybeUninit::<T>::uninit();
    // SAFETY: room of our own, for one.
    unsafe { copy_bytes(copy.as_mut_ptr().cast(), at.cast(), size_of::<T>()) }?;
    // SAFETY: written above.
    Some(unsafe { copy.assume_init() })
}

/// Copies words from an address of the program's, which need not be right. `None`: they cannot be read.
pub(crate) fn copy_to(words: &mut [u64], at: *const u64) -> Option<()> {
    // SAFETY: room of our own.
    unsafe { copy_bytes(words.as_mut_ptr().cast(), at.cast(), size_of_val(words)) }
}

/// # Safety
/// There is room at `to`.
unsafe fn copy_bytes(to: *mut u8, at: *const u8, len: usize) -> Option<()> {
    let own = libc::iovec { iov_base: to.cast(), iov_len: len };
    let from = libc::iovec { iov_base: at.cast_mut().cast(), iov_len: len };
    // SAFETY: the kernel reads memory of this process, if it is there, and writes to our own.
    let read = unsafe {
        let process = sys!(SYS_getpid);
        sys!(SYS_process_vm_readv, process, &raw const own, 1_usize, &raw const from, 1_usize, 0_usize)
    };
    match read {
        n if n == len as i64 => Some(()),
        ENOSYS | EPERM if !at.is_null() => {
            // A filter of system calls does not allow it: the program is trusted.
            // SAFETY: by the caller of the shim; as a function of the C library reads it.
            unsafe { to.copy_from_nonoverlapping(at, len) };
            Some(())
        }
        _ => None,
    }
}

/// `poll`. Processors that came late have no such call, nor the next three: their newer forms do it.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn poll(fds: *mut libc::pollfd, n: libc::nfds_t, ms: c_int) -> i64 {
    // SAFETY: by the caller; the time outlives the call.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        return sys!(SYS_poll, fds, n, ms);
        #[cfg(not(target_arch = "x86_64"))]
        {
            let mut time = timespec(i64::from(ms) / 1000, i64::from(ms) % 1000 * 1_000_000);
            let time = if ms < 0 { std::ptr::null_mut() } else { &raw mut time };
            sys!(SYS_ppoll, fds, n, time, 0_usize, size_of::<u64>())
        }
    }
}

/// `epoll_wait`.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn epoll_wait(epoll: c_int, events: *mut libc::epoll_event, n: c_int, ms: c_int) -> i64 {
    // SAFETY: by the caller.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        return sys!(SYS_epoll_wait, epoll, events, n, ms);
        #[cfg(not(target_arch = "x86_64"))]
        sys!(SYS_epoll_pwait, epoll, events, n, ms, 0_usize, size_of::<u64>())
    }
}

/// `dup2`.
///
/// # Safety
/// `to` is the caller's.
pub(crate) unsafe fn dup2(from: c_int, to: c_int) -> i64 {
    // SAFETY: by the caller.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        return sys!(SYS_dup2, from, to);
        #[cfg(not(target_arch = "x86_64"))]
        match from == to {
            true => match sys!(SYS_fcntl, from, libc::F_GETFD) {
                error if error < 0 => error,
                _ => i64::from(to),
            },
            false => sys!(SYS_dup3, from, to, 0_usize),
        }
    }
}

/// `select`. The rest of the time is written back.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn select(n: c_int, sets: [*mut libc::fd_set; 3], time: *mut libc::timeval) -> i64 {
    let [reads, writes, others] = sets;
    // SAFETY: by the caller.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        return sys!(SYS_select, n, reads, writes, others, time);
        #[cfg(not(target_arch = "x86_64"))]
        {
            let Some(time) = time.as_mut() else {
                return sys!(SYS_pselect6, n, reads, writes, others, 0_usize, 0_usize);
            };
            if time.tv_usec < 0 {
                return -i64::from(libc::EINVAL);
            }
            let mut left =
                timespec(time.tv_sec.saturating_add(time.tv_usec / 1_000_000), time.tv_usec % 1_000_000 * 1000);
            let result = sys!(SYS_pselect6, n, reads, writes, others, &raw mut left, 0_usize);
            (time.tv_sec, time.tv_usec) = (left.tv_sec, left.tv_nsec / 1000);
            result
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn timespec(tv_sec: i64, tv_nsec: i64) -> libc::timespec {
    libc::timespec { tv_sec, tv_nsec }
}

/// A value that fits a register, extended as C does.
pub(crate) trait Word {
    fn word(self) -> usize;
}

macro_rules! words {
    ($($int:ty),*) => { $(impl Word for $int { #[inline(always)] fn word(self) -> usize { self as usize } })* };
}
words!(i32, u32, i64, u64, isize, usize, i16);

impl<T> Word for *const T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Word for *mut T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// Errors of the kernel as it returns them.
pub(crate) const EAGAIN: i64 = -(libc::EAGAIN as i64);
pub(crate) const EINVAL: i64 = -(libc::EINVAL as i64);
pub(crate) const EBADF: i64 = -(libc::EBADF as i64);
pub(crate) const ENOSYS: i64 = -(libc::ENOSYS as i64);
pub(crate) const EPERM: i64 = -(libc::EPERM as i64);
pub(crate) const EINTR: i64 = -(libc::EINTR as i64);
pub(crate) const EINPROGRESS: i64 = -(libc::EINPROGRESS as i64);
pub(crate) const EOPNOTSUPP: i64 = -(libc::EOPNOTSUPP as i64);

/// Returns a result of the kernel as C functions do: -1, and the error in `errno`.
#[inline(always)]
pub(crate) fn c(result: i64) -> isize {
    if (-4095..0).contains(&result) {
        // SAFETY: the caller's own, whose address does not change.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result as isize
}
