//! Read and write: pipes, terminals, files, and sockets too.
//!
//! `RWF_NOWAIT` makes a try of a read or write, whatever the descriptor's mode. Where it does not exist (terminals,
//! some file systems), or a filter of system calls refuses it, the kernel is asked whether the descriptor is ready, and
//! a call that may take long is announced.

use crate::counters::{self, Counter};
use crate::shims::raw::{EAGAIN, ENOSYS, EOPNOTSUPP, EPERM, c, sys};
use crate::shims::sockets::all_of;
use crate::shims::wait::{Call, block, is_file, ready};
use mungo::interpose::{Caller, Place, place};
use std::ffi::{c_int, c_void};

/// Reads.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn read(fd: c_int, at: *mut c_void, len: usize) -> isize {
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_read, fd, at, len) };
    let Place::Goroutine(caller) = place() else { return c(kernel()) };
    let part = libc::iovec { iov_base: at, iov_len: len };
    // SAFETY: by the caller.
    c(unsafe { read_parts(&counters::read, caller, fd, &part, 1, kernel) })
}

/// Reads into several places.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, parts: *const libc::iovec, n: c_int) -> isize {
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_readv, fd, parts, n) };
    let Place::Goroutine(caller) = place() else { return c(kernel()) };
    // SAFETY: by the caller.
    c(unsafe { read_parts(&counters::readv, caller, fd, parts, n, kernel) })
}

#[inline(always)]
unsafe fn read_parts(
    counter: &'static Counter,
    caller: Caller,
    fd: c_int,
    parts: *const libc::iovec,
    n: c_int,
    kernel: impl Fn() -> i64,
) -> i64 {
    let attempt = || {
        // SAFETY: by the caller. The offset -1 means where the file stands.
        match unsafe { sys!(SYS_preadv2, fd, parts, n, -1_i64, 0_usize, libc::RWF_NOWAIT) } {
            EOPNOTSUPP | ENOSYS | EPERM if ready(fd, libc::POLLIN) => block(caller, &kernel),
            EOPNOTSUPP | ENOSYS | EPERM => EAGAIN,
            result => result,
        }
    };
    let result = Call { may_be_file: true, ..Call::read(fd, counter) }.run(caller, attempt, &kernel);
    // SAFETY: by the caller.
    match unsafe { shortfall(result, parts, n) } {
        Some(rest) if is_file(fd) => {
            // A file that is not all in memory was read in part, and is not at its end: the rest comes from the disk.
            counter.fall_back();
            // SAFETY: the rest of the room.
            result + block(caller, || unsafe { sys!(SYS_read, fd, rest.iov_base, rest.iov_len) }).max(0)
        }
        _ => result,
    }
}

/// Returns the room that a read of one part left; `None`: none, or nothing was read.
unsafe fn shortfall(result: i64, parts: *const libc::iovec, n: c_int) -> Option<libc::iovec> {
    if n != 1 || result <= 0 {
        return None;
    }
    // SAFETY: by the caller; the kernel has read it.
    let part = unsafe { parts.read() };
    let done = result as usize;
    (done < part.iov_len)
        .then(|| libc::iovec { iov_base: part.iov_base.wrapping_byte_add(done), iov_len: part.iov_len - done })
}

/// Writes all, as a descriptor that blocks does.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, at: *const c_void, len: usize) -> isize {
    // SAFETY: by the caller; `done` of the bytes are behind us.
    let kernel = |done: usize| unsafe { sys!(SYS_write, fd, at.byte_add(done), len - done) };
    let Place::Goroutine(caller) = place() else { return c(kernel(0)) };
    let part = |done: usize| {
        let part = libc::iovec { iov_base: at.wrapping_byte_add(done).cast_mut(), iov_len: len - done };
        // SAFETY: as above.
        unsafe { try_to_write(caller, fd, &part, 1, || kernel(done)) }
    };
    let call = Call { may_be_file: true, ..Call::write(fd, &counters::write) };
    c(all_of(call, caller, len, part, kernel))
}

/// Writes several parts, or as much of them as there is room for.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, parts: *const libc::iovec, n: c_int) -> isize {
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_writev, fd, parts, n) };
    let Place::Goroutine(caller) = place() else { return c(kernel()) };
    // SAFETY: by the caller.
    let attempt = || unsafe { try_to_write(caller, fd, parts, n, kernel) };
    let call = Call { may_be_file: true, ..Call::write(fd, &counters::writev) };
    c(call.run(caller, attempt, kernel))
}

unsafe fn try_to_write(
    caller: Caller,
    fd: c_int,
    parts: *const libc::iovec,
    n: c_int,
    kernel: impl Fn() -> i64,
) -> i64 {
    // SAFETY: by the caller.
    match unsafe { sys!(SYS_pwritev2, fd, parts, n, -1_i64, 0_usize, libc::RWF_NOWAIT) } {
        EOPNOTSUPP | ENOSYS | EPERM if ready(fd, libc::POLLOUT) => block(caller, kernel),
        EOPNOTSUPP | ENOSYS | EPERM => EAGAIN,
        result => result,
    }
}

/// Reads at a place in a file.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pread64(fd: c_int, at: *mut c_void, len: usize, offset: i64) -> isize {
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_pread64, fd, at, len, offset) };
    let Place::Goroutine(caller) = place() else { return c(kernel()) };
    let part = libc::iovec { iov_base: at, iov_len: len };
    // A place before the start is for the kernel to refuse: here it would mean where the file stands.
    if offset >= 0 {
        // SAFETY: by the caller.
        let cached =
            unsafe { sys!(SYS_preadv2, fd, &raw const part, 1_usize, offset, 0_usize, libc::RWF_NOWAIT) };
        if cached == len as i64 {
            counters::pread64.pass();
            return cached as isize;
        }
    }
    counters::pread64.fall_back();
    c(block(caller, kernel))
}

/// Does as `pread64`, which has another name for programs without large files.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pread(fd: c_int, at: *mut c_void, len: usize, offset: i64) -> isize {
    // SAFETY: by the caller.
    unsafe { pread64(fd, at, len, offset) }
}

/// Reads at a place in a file, into several places in memory.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn preadv64(fd: c_int, parts: *const libc::iovec, n: c_int, offset: i64) -> isize {
    // SAFETY: by the caller.
    c(announced(&counters::preadv, || unsafe { sys!(SYS_preadv, fd, parts, n, offset) }))
}

/// Does as `preadv64`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn preadv(fd: c_int, parts: *const libc::iovec, n: c_int, offset: i64) -> isize {
    // SAFETY: by the caller.
    unsafe { preadv64(fd, parts, n, offset) }
}

/// Makes a call that works on a file, and may take long.
#[inline(always)]
pub(crate) fn announced(counter: &'static Counter, kernel: impl FnOnce() -> i64) -> i64 {
    match place() {
        Place::Goroutine(caller) => {
            counter.fall_back();
            block(caller, kernel)
        }
        _ => kernel(),
    }
}

/// Writes at a place in a file.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: c_int, at: *const c_void, len: usize, offset: i64) -> isize {
    // SAFETY: by the caller.
    c(announced(&counters::pwrite64, || unsafe { sys!(SYS_pwrite64, fd, at, len, offset) }))
}

/// Does as `pwrite64`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: c_int, at: *const c_void, len: usize, offset: i64) -> isize {
    // SAFETY: by the caller.
    unsafe { pwrite64(fd, at, len, offset) }
}

/// Writes several parts at a place in a file.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64(fd: c_int, parts: *const libc::iovec, n: c_int, offset: i64) -> isize {
    // SAFETY: by the caller.
    c(announced(&counters::pwritev, || unsafe { sys!(SYS_pwritev, fd, parts, n, offset) }))
}

/// Does as `pwritev64`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev(fd: c_int, parts: *const libc::iovec, n: c_int, offset: i64) -> isize {
    // SAFETY: by the caller.
    unsafe { pwritev64(fd, parts, n, offset) }
}

/// Waits until a file is on the disk.
#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: no memory involved.
    c(announced(&counters::fsync, || unsafe { sys!(SYS_fsync, fd) })) as c_int
}

/// Waits until a file's data are on the disk.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: no memory involved.
    c(announced(&counters::fdatasync, || unsafe { sys!(SYS_fdatasync, fd) })) as c_int
}

/// Locks a file.
#[unsafe(no_mangle)]
extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    // SAFETY: no memory involved.
    c(announced(&counters::flock, || unsafe { sys!(SYS_flock, fd, operation) })) as c_int
}

/// Moves data between a pipe and another descriptor.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    len: usize,
    flags: libc::c_uint,
) -> isize {
    // SAFETY: by the caller.
    c(announced(&counters::splice, || unsafe { sys!(SYS_splice, from, from_at, to, to_at, len, flags) }))
}

/// Sends a file.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize {
    // SAFETY: by the caller.
    c(announced(&counters::sendfile64, || unsafe { sys!(SYS_sendfile, to, from, at, len) }))
}

/// Does as `sendfile64`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize {
    // SAFETY: by the caller.
    unsafe { sendfile64(to, from, at, len) }
}
