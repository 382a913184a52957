//! Sleeps and polls on aarch64, which no interruption by the runtime ends with EINTR.
//!
//! The kernel restarts no sleep and no poll after a signal handler has run, whatever the handler asks for. The
//! runtime's handler makes such a call again (`sys::interrupted::repeat_call`). On x86-64 it can do so wherever glibc
//! makes the call; on aarch64 the kernel writes the result over the first argument, which is then lost. So these
//! functions are defined here by their C names, as those in `stack::tls::symbols`: a goroutine's calls go by an
//! instruction that the handler knows, with a copy of the first argument in another register. On a plain thread they
//! are the C library's, and cancellation points (which unwind: hence `C-unwind`). Where `mungo-interpose` is linked a
//! goroutine's calls are its own: two crates cannot define the same name.
//!
//! What the C library calls itself, a resolver's poll for instance, does not come here, nor does a system call that
//! code makes itself.
//!
//! Rejected: to find out from the instructions before the call where the first argument came from. They differ with
//! each version and compiler, and a wrong guess is a wrong call.

use crate::sched::interpose::waits;
use crate::sched::run::current;
use crate::sys::interrupted::repeatable_call;
use crate::sys::next::Next;
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::ffi::{c_int, c_long, c_uint};
use std::ptr::{from_mut, null_mut};

/// Bytes of the kernel's set of signals.
const MASK_LEN: usize = 8;

/// Calls another function of this name, if there is one: the C library's on a plain thread, that of `mungo-interpose`
/// on a goroutine.
macro_rules! by_others {
    ($function:ident, $name:literal, fn($($argument:ident: $type:ty),* $(,)?) -> $result:ty) => {
        static NEXT: Next = Next::new($name);
        type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
        let function = match current::g() {
            // SAFETY: the C library's function, which has this type; no function is null.
            None => unsafe { std::mem::transmute::<usize, Option<Function>>(NEXT.get()) },
            Some(_) => waits().map(|waits| waits.$function),
        };
        if let Some(function) = function {
            // SAFETY: the arguments are the caller's.
            return unsafe { function($($argument),*) };
        }
    };
}

/// Makes the call. Returns its result, or the error as a negative number.
///
/// # Safety
/// As the system call with this number.
unsafe fn call(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: by the caller.
    unsafe { repeatable_call(a, b, c, d, e, f, number as usize) }
}

/// Returns a call's result as a C function does.
fn result(result: isize) -> c_int {
    match result {
        ..0 => {
            // SAFETY: this goroutine's errno.
            unsafe { *libc::__errno_location() = -result as c_int };
            -1
        }
        _ => result as c_int,
    }
}

/// Sleeps for some time, or until a time.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    by_others!(
        clock_nanosleep,
        c"clock_nanosleep",
        fn(clock: libc::clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int
    );
    if clock == libc::CLOCK_THREAD_CPUTIME_ID {
        return libc::EINVAL; // as there: it would never end
    }
    // SAFETY: by the caller. The kernel brings the time up to date if it is interrupted: a repeated call goes on with
    // what is left.
    unsafe {
        let Some(mut copy) = time.as_ref().copied() else { return libc::EFAULT };
        let at = from_mut(&mut copy) as usize;
        let error = -call(libc::SYS_clock_nanosleep, [clock as usize, flags as usize, at, at, 0, 0]) as c_int;
        if error == libc::EINTR && flags & libc::TIMER_ABSTIME == 0 && !left.is_null() {
            left.write(copy);
        }
        error
    }
}

/// Sleeps for some time.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: by the caller.
    result(-unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) } as isize)
}

/// Sleeps for some µs.
#[unsafe(no_mangle)]
extern "C-unwind" fn usleep(us: c_uint) -> c_int {
    let time = timespec { tv_sec: (us / 1_000_000).into(), tv_nsec: (us % 1_000_000 * 1000).into() };
    // SAFETY: a time of ours.
    unsafe { nanosleep(&time, null_mut()) }
}

/// Sleeps for some seconds. Returns how many are left, if another signal has ended it.
#[unsafe(no_mangle)]
extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    let mut time = timespec { tv_sec: seconds.into(), tv_nsec: 0 };
    // SAFETY: a time of ours.
    match unsafe { nanosleep(&time, &mut time) } {
        0 => 0,
        _ => time.tv_sec as c_uint,
    }
}

/// Waits for files.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(files: *mut pollfd, n: nfds_t, ms: c_int) -> c_int {
    by_others!(poll, c"poll", fn(files: *mut pollfd, n: nfds_t, ms: c_int) -> c_int);
    let mut time = timespec { tv_sec: (ms / 1000).into(), tv_nsec: (ms % 1000 * 1_000_000).into() };
    let time = if ms < 0 { 0 } else { from_mut(&mut time) as usize };
    // SAFETY: by the caller. The kernel brings the time up to date.
    result(unsafe { call(libc::SYS_ppoll, [files as usize, n as usize, time, 0, MASK_LEN, 0]) })
}

/// Waits for files, with another signal mask.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    files: *mut pollfd,
    n: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    by_others!(
        ppoll,
        c"ppoll",
        fn(files: *mut pollfd, n: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int
    );
    // SAFETY: by the caller. The kernel brings the copy of the time up to date.
    unsafe {
        let mut copy = time.as_ref().copied();
        let time = copy.as_mut().map_or(0, |copy| from_mut(copy) as usize);
        result(call(libc::SYS_ppoll, [files as usize, n as usize, time, mask as usize, MASK_LEN, 0]))
    }
}

/// Waits for files in sets.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    n: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    errors: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    by_others!(
        pselect,
        c"pselect",
        fn(
            n: c_int,
            reads: *mut fd_set,
            writes: *mut fd_set,
            errors: *mut fd_set,
            time: *const timespec,
            mask: *const sigset_t,
        ) -> c_int
    );
    // SAFETY: by the caller. The kernel brings the copy of the time up to date.
    unsafe {
        let mut copy = time.as_ref().copied();
        let time = copy.as_mut().map_or(0, |copy| from_mut(copy) as usize);
        let mask = [mask as usize, MASK_LEN];
        let sets = [reads, writes, errors].map(|set| set as usize);
        let [reads, writes, errors] = sets;
        result(call(libc::SYS_pselect6, [n as usize, reads, writes, errors, time, mask.as_ptr() as usize]))
    }
}

/// Waits for files in sets, and leaves the time that is left.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    n: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    errors: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    by_others!(
        select,
        c"select",
        fn(n: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, time: *mut timeval) -> c_int
    );
    // SAFETY: by the caller. The kernel brings the copy of the time up to date.
    unsafe {
        let given = time.as_ref().copied();
        if given.is_some_and(|given| given.tv_sec < 0 || given.tv_usec < 0) {
            return result(-(libc::EINVAL as isize));
        }
        let mut copy = given.map(|given| timespec {
            tv_sec: given.tv_sec.saturating_add(given.tv_usec / 1_000_000),
            tv_nsec: given.tv_usec % 1_000_000 * 1000,
        });
        let at = copy.as_mut().map_or(0, |copy| from_mut(copy) as usize);
        let [reads, writes, errors] = [reads, writes, errors].map(|set| set as usize);
        let end = call(libc::SYS_pselect6, [n as usize, reads, writes, errors, at, 0]);
        if let Some(left) = copy {
            time.write(timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 });
        }
        result(end)
    }
}

/// Waits for events.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(epoll: c_int, events: *mut epoll_event, n: c_int, ms: c_int) -> c_int {
    by_others!(
        epoll_wait,
        c"epoll_wait",
        fn(epoll: c_int, events: *mut epoll_event, n: c_int, ms: c_int) -> c_int
    );
    let arguments = [epoll as usize, events as usize, n as usize, ms as usize, 0, MASK_LEN];
    // SAFETY: by the caller.
    result(unsafe { call(libc::SYS_epoll_pwait, arguments) })
}

/// Waits for events, with another signal mask.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    n: c_int,
    ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    by_others!(
        epoll_pwait,
        c"epoll_pwait",
        fn(epoll: c_int, events: *mut epoll_event, n: c_int, ms: c_int, mask: *const sigset_t) -> c_int
    );
    let arguments = [epoll as usize, events as usize, n as usize, ms as usize, mask as usize, MASK_LEN];
    // SAFETY: by the caller.
    result(unsafe { call(libc::SYS_epoll_pwait, arguments) })
}
