//! Waits for child processes, and for names.

use crate::counters::{self, Counter};
use crate::shims::descriptors::replace;
use crate::shims::raw::{EAGAIN, c, sys};
use crate::shims::wait::{Call, Limit, block, is_nonblocking};
use mungo::interpose::{Caller, Next, Place, place};
use std::ffi::{c_char, c_int};

/// Waits for a child. One that is named is waited for by a descriptor of it, any other by the kernel.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn wait4(
    pid: libc::pid_t,
    status: *mut c_int,
    options: c_int,
    used: *mut libc::rusage,
) -> libc::pid_t {
    let with = |options: c_int| {
        // SAFETY: by the caller.
        unsafe { sys!(SYS_wait4, pid, status, options, used) }
    };
    let counter = &counters::waitpid;
    c(match place() {
        Place::Goroutine(caller) if options & libc::WNOHANG == 0 => {
            let attempt = || match with(options | libc::WNOHANG) {
                0 => EAGAIN,
                result => result,
            };
            // Stops and continuations are not seen by the descriptor.
            match Child::of(pid).filter(|_| options == 0) {
                Some(child) => wait_for(counter, caller, child.0, attempt, || with(options)),
                None => fall_back(counter, caller, || with(options)),
            }
        }
        _ => with(options),
    }) as libc::pid_t
}

/// Does as `wait4`, and does not ask what the child has used.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn waitpid(pid: libc::pid_t, status: *mut c_int, options: c_int) -> libc::pid_t {
    // SAFETY: by the caller.
    unsafe { wait4(pid, status, options, std::ptr::null_mut()) }
}

/// Waits for any child.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn wait(status: *mut c_int) -> libc::pid_t {
    // SAFETY: by the caller.
    unsafe { wait4(-1, status, 0, std::ptr::null_mut()) }
}

/// Waits for any child, and asks what it has used.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn wait3(status: *mut c_int, options: c_int, used: *mut libc::rusage) -> libc::pid_t {
    // SAFETY: by the caller.
    unsafe { wait4(-1, status, options, used) }
}

/// Waits for a child, with more to say about it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn waitid(
    kind: libc::idtype_t,
    id: libc::id_t,
    info: *mut libc::siginfo_t,
    options: c_int,
) -> c_int {
    let with = |options: c_int| {
        // SAFETY: by the caller.
        unsafe { sys!(SYS_waitid, kind, id, info, options, 0_usize) }
    };
    let counter = &counters::waitid;
    let usual = options & !libc::WNOWAIT == libc::WEXITED && !info.is_null();
    c(match place() {
        Place::Goroutine(caller) if options & libc::WNOHANG == 0 => {
            let child = Child::of(id as libc::pid_t).filter(|_| kind == libc::P_PID && usual);
            let fd = match &child {
                Some(child) => Some(child.0),
                None => Some(id as c_int).filter(|fd| kind == libc::P_PIDFD && usual && !is_nonblocking(*fd)),
            };
            match fd {
                Some(fd) => {
                    // The kernel says whether it is a child at all. If none has ended, it names none.
                    let attempt = || match with(options | libc::WNOHANG) {
                        // SAFETY: the kernel has written there.
                        0 if unsafe { (*info).si_pid() } == 0 => EAGAIN,
                        result => result,
                    };
                    wait_for(counter, caller, fd, attempt, || with(options))
                }
                None => fall_back(counter, caller, || with(options)),
            }
        }
        _ => with(options),
    }) as c_int
}

fn wait_for(
    counter: &'static Counter,
    caller: Caller,
    fd: c_int,
    attempt: impl FnMut() -> i64,
    kernel: impl FnMut() -> i64,
) -> i64 {
    let call = Call { limit: Limit::Until(u64::MAX), ..Call::read(fd, counter) };
    call.run(caller, attempt, kernel)
}

fn fall_back(counter: &'static Counter, caller: Caller, kernel: impl FnOnce() -> i64) -> i64 {
    counter.fall_back();
    block(caller, kernel)
}

/// A descriptor of a child, which becomes readable at its end.
struct Child(c_int);

impl Child {
    fn of(pid: libc::pid_t) -> Option<Child> {
        // SAFETY: no memory involved.
        let fd = if pid > 0 { unsafe { sys!(SYS_pidfd_open, pid, 0_usize) } } else { -1 };
        c_int::try_from(fd).ok().filter(|fd| *fd >= 0).map(Child)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: its own.
        replace(self.0, || unsafe { sys!(SYS_close, self.0) });
    }
}

type GetAddrInfo = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const libc::addrinfo,
    *mut *mut libc::addrinfo,
) -> c_int;

/// Looks a name up, which may take seconds: announced. The C library's own function does it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
) -> c_int {
    static NEXT: Next = Next::new(c"getaddrinfo");
    let next = NEXT.get();
    if next == 0 {
        return libc::EAI_SYSTEM;
    }
    // SAFETY: the C library's function has this type; the rest by the caller.
    let call = || unsafe { std::mem::transmute::<usize, GetAddrInfo>(next)(name, service, hints, found) };
    match place() {
        Place::Goroutine(caller) => {
            counters::getaddrinfo.fall_back();
            block(caller, call)
        }
        _ => call(),
    }
}
