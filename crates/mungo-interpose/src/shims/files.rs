//! Calls for files, and others that may take long and have no form that does not wait: announced as blocking.

use crate::counters::{self, Counter};
use crate::shims::raw::{c, sys};
use crate::shims::wait::block;
use mungo::interpose::{Place, place};
use std::ffi::{c_int, c_uint, c_void};

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

/// Defines functions that make a system call, announced, under one name or two: C has another for large files.
macro_rules! announced_calls {
    ($(fn $($name:ident)|+ ($($argument:ident: $type:ty),*) -> $result:ty = $number:ident, $counter:ident;)*) => {
        $(announced_calls! { @named [$($name)+] ($($argument: $type),*) $result, $number $counter })*
    };
    (@named [$($name:ident)+] $arguments:tt $result:ty, $number:ident $counter:ident) => {
        $(announced_calls! { @one $name $arguments $result, $number $counter })+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*) $result:ty, $number:ident $counter:ident) => {
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: by the caller.
            c(announced(&counters::$counter, || unsafe { sys!($number, $($argument),*) })) as $result
        }
    };
}

announced_calls! {
    fn preadv64 | preadv(fd: c_int, parts: *const libc::iovec, n: c_int, offset: i64) -> isize = SYS_preadv, preadv;
    fn pwrite64 | pwrite(fd: c_int, at: *const c_void, len: usize, offset: i64) -> isize = SYS_pwrite64, pwrite64;
    fn pwritev64 | pwritev(fd: c_int, parts: *const libc::iovec, n: c_int, offset: i64) -> isize = SYS_pwritev, pwritev;
    fn fsync(fd: c_int) -> c_int = SYS_fsync, fsync;
    fn fdatasync(fd: c_int) -> c_int = SYS_fdatasync, fdatasync;
    fn flock(fd: c_int, operation: c_int) -> c_int = SYS_flock, flock;
    fn sendfile64 | sendfile(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize = SYS_sendfile, sendfile64;
    fn splice(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: c_uint) -> isize
        = SYS_splice, splice;
}
