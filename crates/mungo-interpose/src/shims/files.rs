//! Calls for files, and others that may take long and have no form that does not wait: announced as blocking.

use crate::counters::{self, Counter};
use crate::shims::next::next;
use crate::shims::plain::plain;
use crate::shims::raw::{EAGAIN, c, sys};
use crate::shims::sockets::all_of;
use crate::shims::wait::{Call, block, option_of, ready};
use mungo::interpose::{Place, place};
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

/// Reads at a place in a file.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pread64(fd: c_int, at: *mut c_void, len: usize, offset: i64) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(pread64(fd: c_int, at: *mut c_void, len: usize, offset: i64) -> isize) };
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
unsafe extern "C-unwind" fn pread(fd: c_int, at: *mut c_void, len: usize, offset: i64) -> isize {
    // SAFETY: by the caller.
    unsafe { pread64(fd, at, len, offset) }
}

/// Sends to a message queue.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mq_send(
    queue: libc::mqd_t,
    at: *const c_char,
    len: usize,
    priority: c_uint,
) -> c_int {
    // SAFETY: by the caller.
    unsafe { mq_timedsend(queue, at, len, priority, std::ptr::null()) }
}

/// Receives from a message queue.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mq_receive(
    queue: libc::mqd_t,
    at: *mut c_char,
    len: usize,
    priority: *mut c_uint,
) -> isize {
    // SAFETY: by the caller.
    unsafe { mq_timedreceive(queue, at, len, priority, std::ptr::null()) }
}

/// Waits until all that was written has left a terminal.
#[unsafe(no_mangle)]
extern "C-unwind" fn tcdrain(fd: c_int) -> c_int {
    // SAFETY: no memory involved.
    c(announced(&counters::tcdrain, || unsafe { sys!(SYS_ioctl, fd, libc::TCSBRK, 1_usize) })) as c_int
}

/// Number of bytes that are sent at a time from a file. TUNED: guess: a socket that can be written to has room for
/// more, but for one with the smallest of buffers.
const PIECE: usize = 16 << 10;

/// Sends from a file. The call has no form that does not wait: to a socket it sends a piece whenever there is room.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile64(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize {
    // SAFETY: by the caller. The kernel moves the place in the file on.
    let kernel = move |len: usize| unsafe { sys!(SYS_sendfile, to, from, at, len) };
    let counter = &counters::sendfile64;
    c(match place() {
        Place::Goroutine(caller) if option_of(to, libc::SO_TYPE).is_some() => {
            let attempt = move |done: usize| match ready(to, libc::POLLOUT) {
                true => block(caller, || kernel(PIECE.min(len - done))),
                false => EAGAIN,
            };
            all_of(Call::write(to, counter), caller, len, attempt, move |done| kernel(len - done))
        }
        _ => announced(counter, || kernel(len)),
    })
}

/// Does as `sendfile64`, which has another name for programs without large files.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize {
    // SAFETY: by the caller.
    unsafe { sendfile64(to, from, at, len) }
}

/// Reads at a place in a file, with flags.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    parts: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_preadv2, fd, parts, n, offset, 0_usize, flags) };
    c(announced(&counters::preadv2, kernel))
}

/// Writes at a place in a file, with flags.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    parts: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_pwritev2, fd, parts, n, offset, 0_usize, flags) };
    c(announced(&counters::pwritev2, kernel))
}

/// # Safety
/// As `preadv64v2`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    parts: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: by the caller.
    unsafe { preadv64v2(fd, parts, n, offset, flags) }
}

/// # Safety
/// As `pwritev64v2`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    parts: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: by the caller.
    unsafe { pwritev64v2(fd, parts, n, offset, flags) }
}

/// Defines functions of the C library's that wait and are no system call alone: announced.
macro_rules! announced_functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) = $counter:ident;)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: by the caller; the C library's function has this type.
            announced(&counters::$counter, || i64::from(unsafe { next!($name($($argument: $type),*)) })) as c_int
        }
    )* };
}

announced_functions! {
    fn getnameinfo(
        address: *const libc::sockaddr, len: libc::socklen_t, host: *mut c_char, host_len: libc::socklen_t,
        service: *mut c_char, service_len: libc::socklen_t, flags: c_int
    ) = getaddrinfo;
    fn system(command: *const c_char) = waitpid;
    fn lockf(fd: c_int, command: c_int, len: i64) = lockf;
    fn lockf64(fd: c_int, command: c_int, len: i64) = lockf;
    fn sigsuspend(mask: *const libc::sigset_t) = sigsuspend;
    fn sigtimedwait(set: *const libc::sigset_t, info: *mut libc::siginfo_t, time: *const libc::timespec) = sigwait;
    fn sigwait(set: *const libc::sigset_t, signal: *mut c_int) = sigwait;
    fn sigwaitinfo(set: *const libc::sigset_t, info: *mut libc::siginfo_t) = sigwait;
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
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            // SAFETY: by the caller; the C library's function has this type.
            unsafe { plain!($name($($argument: $type),*) -> $result) };
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
    fn tee(from: c_int, to: c_int, len: usize, flags: c_uint) -> isize = SYS_tee, tee;
    fn vmsplice(fd: c_int, parts: *const libc::iovec, n: usize, flags: c_uint) -> isize = SYS_vmsplice, vmsplice;
    fn msgrcv(queue: c_int, at: *mut c_void, len: usize, kind: c_long, flags: c_int) -> isize = SYS_msgrcv, msgrcv;
    fn msgsnd(queue: c_int, at: *const c_void, len: usize, flags: c_int) -> c_int = SYS_msgsnd, msgsnd;
    fn semop(set: c_int, operations: *mut libc::sembuf, n: usize) -> c_int = SYS_semop, semop;
    fn semtimedop(set: c_int, operations: *mut libc::sembuf, n: usize, time: *const libc::timespec) -> c_int
        = SYS_semtimedop, semop;
    fn mq_timedsend(
        queue: libc::mqd_t, at: *const c_char, len: usize, priority: c_uint, time: *const libc::timespec
    ) -> c_int = SYS_mq_timedsend, mq_send;
    fn mq_timedreceive(
        queue: libc::mqd_t, at: *mut c_char, len: usize, priority: *mut c_uint, time: *const libc::timespec
    ) -> isize = SYS_mq_timedreceive, mq_receive;
    fn splice(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: c_uint) -> isize
        = SYS_splice, splice;
}
