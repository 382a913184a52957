//! Read and write: pipes, terminals, files, and sockets too.
//!
//! `RWF_NOWAIT` makes a try of a read or write, whatever the descriptor's mode. Where it does not exist (terminals,
//! some file systems), or a filter of system calls refuses it, the kernel is asked whether the descriptor is ready, and
//! a call that may take long is announced.

use crate::counters::{self, Counter};
use crate::shims::plain::plain;
use crate::shims::raw::{EAGAIN, ENOSYS, EOPNOTSUPP, EPERM, c, sys};
use crate::shims::sockets::all_of;
use crate::shims::wait::{Call, block, is_file, ready};
use mungo::interpose::{Caller, Place, place};
use std::cell::Cell;
use std::ffi::{c_int, c_void};

/// Reads.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn read(fd: c_int, at: *mut c_void, len: usize) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(read(fd: c_int, at: *mut c_void, len: usize) -> isize) };
    // SAFETY: by the caller.
    let kernel = move || unsafe { sys!(SYS_read, fd, at, len) };
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
unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const libc::iovec, n: c_int) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(readv(fd: c_int, parts: *const libc::iovec, n: c_int) -> isize) };
    // SAFETY: by the caller.
    let kernel = move || unsafe { sys!(SYS_readv, fd, parts, n) };
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
    kernel: impl Fn() -> i64 + Copy,
) -> i64 {
    let was_tried = Cell::new(false);
    let attempt = || {
        // SAFETY: by the caller. The offset -1 means where the file stands.
        match unsafe { sys!(SYS_preadv2, fd, parts, n, -1_i64, 0_usize, libc::RWF_NOWAIT) } {
            EOPNOTSUPP | ENOSYS | EPERM if ready(fd, libc::POLLIN) || !waits_for_more(fd) => {
                block(caller, kernel)
            }
            EOPNOTSUPP | ENOSYS | EPERM => EAGAIN,
            result => {
                was_tried.set(true);
                result
            }
        }
    };
    let result = Call { may_be_file: true, ..Call::read(fd, counter) }.run(caller, attempt, kernel);
    // SAFETY: by the caller.
    match unsafe { shortfall(result, parts, n) } {
        Some(rest) if was_tried.get() && is_file(fd) => {
            // A file that is not all in memory was read in part, and is not at its end: the rest comes from the disk.
            counter.fall_back();
            // SAFETY: the rest of the room.
            result + block(caller, || unsafe { sys!(SYS_read, fd, rest.iov_base, rest.iov_len) }).max(0)
        }
        _ => result,
    }
}

/// Returns whether a read of a descriptor that is not ready waits until it is. That of a terminal may not: it waits for
/// some time or not at all (VMIN, VTIME), or stops the process, which is in the background.
#[cold]
fn waits_for_more(fd: c_int) -> bool {
    // SAFETY: plain numbers.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: room for the kernel's form, which begins as C's does and is shorter: its characters are fewer.
    if unsafe { sys!(SYS_ioctl, fd, libc::TCGETS, &raw mut modes) } != 0 {
        return true;
    }
    let is_canonical = modes.c_lflag & libc::ICANON != 0;
    let waits = is_canonical || (modes.c_cc[libc::VMIN] == 1 && modes.c_cc[libc::VTIME] == 0);
    let mut group: libc::pid_t = 0;
    // SAFETY: room for the number. The kernel gives it for the terminal of this process alone.
    let in_background = unsafe {
        sys!(SYS_ioctl, fd, libc::TIOCGPGRP, &raw mut group) == 0
            && i64::from(group) != sys!(SYS_getpgid, 0_usize)
    };
    waits && !in_background
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
unsafe extern "C-unwind" fn write(fd: c_int, at: *const c_void, len: usize) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(write(fd: c_int, at: *const c_void, len: usize) -> isize) };
    // SAFETY: by the caller; `done` of the bytes are behind us.
    let kernel = move |done: usize| unsafe { sys!(SYS_write, fd, at.byte_add(done), len - done) };
    let Place::Goroutine(caller) = place() else { return c(kernel(0)) };
    let part = move |done: usize| {
        let part = libc::iovec { iov_base: at.wrapping_byte_add(done).cast_mut(), iov_len: len - done };
        // SAFETY: as above.
        unsafe { try_to_write(caller, fd, &part, 1, move || kernel(done)) }
    };
    let call = Call { may_be_file: true, ..Call::write(fd, &counters::write) };
    c(all_of(call, caller, len, part, kernel))
}

/// Writes several parts, or as much of them as there is room for.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const libc::iovec, n: c_int) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(writev(fd: c_int, parts: *const libc::iovec, n: c_int) -> isize) };
    // SAFETY: by the caller.
    let kernel = move || unsafe { sys!(SYS_writev, fd, parts, n) };
    let Place::Goroutine(caller) = place() else { return c(kernel()) };
    // SAFETY: by the caller.
    let attempt = move || unsafe { try_to_write(caller, fd, parts, n, kernel) };
    let call = Call { may_be_file: true, ..Call::write(fd, &counters::writev) };
    c(call.run(caller, attempt, kernel))
}

#[inline(always)]
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
