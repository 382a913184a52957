//! The names that C compilers call instead of the usual ones where they know how large a buffer is (`_FORTIFY_SOURCE`).

use crate::shims::files::pread64;
use crate::shims::poll::{poll, ppoll};
use crate::shims::read_write::read;
use crate::shims::sockets::{recv, recvfrom};
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    /// Says that a buffer would overflow, and ends the process.
    fn __chk_fail() -> !;
}

/// Ends the process unless `wanted` bytes have room.
fn check(wanted: usize, room: usize) {
    if wanted > room {
        // SAFETY: does not come back.
        unsafe { __chk_fail() };
    }
}

/// # Safety
/// As `read`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(fd: c_int, at: *mut c_void, len: usize, room: usize) -> isize {
    check(len, room);
    // SAFETY: by the caller.
    unsafe { read(fd, at, len) }
}

/// # Safety
/// As `pread`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __pread_chk(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    offset: i64,
    room: usize,
) -> isize {
    check(len, room);
    // SAFETY: by the caller.
    unsafe { pread64(fd, at, len, offset) }
}

/// # Safety
/// As `pread64`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __pread64_chk(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    offset: i64,
    room: usize,
) -> isize {
    check(len, room);
    // SAFETY: by the caller.
    unsafe { pread64(fd, at, len, offset) }
}

/// # Safety
/// As `recv`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    room: usize,
    flags: c_int,
) -> isize {
    check(len, room);
    // SAFETY: by the caller.
    unsafe { recv(fd, at, len, flags) }
}

/// # Safety
/// As `recvfrom`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    room: usize,
    flags: c_int,
    from: *mut libc::sockaddr,
    from_len: *mut libc::socklen_t,
) -> isize {
    check(len, room);
    // SAFETY: by the caller.
    unsafe { recvfrom(fd, at, len, flags, from, from_len) }
}

/// # Safety
/// As `poll`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut libc::pollfd,
    n: libc::nfds_t,
    ms: c_int,
    room: usize,
) -> c_int {
    check(n as usize, room / size_of::<libc::pollfd>());
    // SAFETY: by the caller.
    unsafe { poll(fds, n, ms) }
}

/// # Safety
/// As `ppoll`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut libc::pollfd,
    n: libc::nfds_t,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
    room: usize,
) -> c_int {
    check(n as usize, room / size_of::<libc::pollfd>());
    // SAFETY: by the caller.
    unsafe { ppoll(fds, n, time, mask) }
}
