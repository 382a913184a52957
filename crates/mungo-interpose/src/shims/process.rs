//! Waits for child processes, and for names.

use crate::counters::{self, Counter};
use crate::shims::descriptors::replace;
use crate::shims::futex::after_ns;
use crate::shims::plain::plain;
use crate::shims::raw::{EAGAIN, c, sys};
use crate::shims::wait::{Call, Limit, block, is_nonblocking};
use mungo::interpose::{Caller, Next, Place, place};
use std::ffi::{c_char, c_int};
use std::io::Write;

/// Waits for a child. One that is named is waited for by a descriptor of it, any other by the kernel.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn wait4(
    pid: libc::pid_t,
    status: *mut c_int,
    options: c_int,
    used: *mut libc::rusage,
) -> libc::pid_t {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(wait4(pid: libc::pid_t, status: *mut c_int, options: c_int, used: *mut libc::rusage) -> libc::pid_t)
    };
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
                Some(child) => wait_for(counter, caller, (child.0, Some(pid)), attempt, || with(options)),
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
unsafe extern "C-unwind" fn waitpid(pid: libc::pid_t, status: *mut c_int, options: c_int) -> libc::pid_t {
    // SAFETY: by the caller.
    unsafe { wait4(pid, status, options, std::ptr::null_mut()) }
}

/// Waits for any child.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn wait(status: *mut c_int) -> libc::pid_t {
    // SAFETY: by the caller.
    unsafe { wait4(-1, status, 0, std::ptr::null_mut()) }
}

/// Waits for any child, and asks what it has used.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn wait3(status: *mut c_int, options: c_int, used: *mut libc::rusage) -> libc::pid_t {
    // SAFETY: by the caller.
    unsafe { wait4(-1, status, options, used) }
}

/// Waits for a child, with more to say about it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn waitid(
    kind: libc::idtype_t,
    id: libc::id_t,
    info: *mut libc::siginfo_t,
    options: c_int,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(waitid(kind: libc::idtype_t, id: libc::id_t, info: *mut libc::siginfo_t, options: c_int) -> c_int)
    };
    let with = |options: c_int| {
        // SAFETY: by the caller.
        unsafe { sys!(SYS_waitid, kind, id, info, options, 0_usize) }
    };
    let counter = &counters::waitid;
    let usual = options & !libc::WNOWAIT == libc::WEXITED && !info.is_null();
    c(match place() {
        Place::Goroutine(caller) if options & libc::WNOHANG == 0 => {
            let child = Child::of(id as libc::pid_t).filter(|_| kind == libc::P_PID && usual);
            let is_child = match &child {
                Some(child) => Some((child.0, Some(id as libc::pid_t))),
                None if kind == libc::P_PIDFD && usual && !is_nonblocking(id as c_int) => {
                    Some((id as c_int, None))
                }
                None => None,
            };
            match is_child {
                Some(child) => {
                    // The kernel says whether it is a child at all. If none has ended, it names none.
                    let attempt = || match with(options | libc::WNOHANG) {
                        // SAFETY: the kernel has written there.
                        0 if unsafe { (*info).si_pid() } == 0 => EAGAIN,
                        result => result,
                    };
                    wait_for(counter, caller, child, attempt, || with(options))
                }
                None => fall_back(counter, caller, || with(options)),
            }
        }
        _ => with(options),
    }) as c_int
}

/// Time in ns after which a wait looks for the first time whether the child is traced by now, and the longest time
/// between two looks; each is twice as long after the one before. TUNED: guess: a child that asks to be traced does so
/// first of all, and a look takes 10 µs.
const FIRST_LOOK_NS: u64 = 2_000_000;
const LAST_LOOK_NS: u64 = 1_000_000_000;

/// Waits for a child by a descriptor of it; its number may be unknown. One that this process traces is waited for by
/// the kernel: it reports each stop of it, and the descriptor its end alone.
fn wait_for(
    counter: &'static Counter,
    caller: Caller,
    (fd, pid): (c_int, Option<libc::pid_t>),
    mut attempt: impl FnMut() -> i64,
    mut kernel: impl FnMut() -> i64,
) -> i64 {
    match attempt() {
        EAGAIN => {}
        result => {
            counter.pass();
            return result;
        }
    }
    let mut counted = counter;
    let mut look_ns = FIRST_LOOK_NS;
    loop {
        if is_traced(fd, pid) {
            return fall_back(counter, caller, kernel);
        }
        let call = Call { limit: Limit::Until(after_ns(look_ns)), ..Call::read(fd, counted) };
        match call.run(caller, &mut attempt, &mut kernel) {
            EAGAIN => look_ns = (2 * look_ns).min(LAST_LOOK_NS),
            result => return result,
        }
        counted = &counters::UNCOUNTED; // the call was
    }
}

/// Returns whether a thread of this process traces the process with this descriptor, and this number if it is known.
fn is_traced(fd: c_int, pid: Option<libc::pid_t>) -> bool {
    let pid = pid.map(i64::from).or_else(|| number_in(format_args!("/proc/self/fdinfo/{fd}\0"), b"\nPid:"));
    let tracer = pid.and_then(|pid| number_in(format_args!("/proc/{pid}/status\0"), b"\nTracerPid:"));
    tracer.is_some_and(|tracer| {
        tracer != 0 && number_in(format_args!("/proc/self/task/{tracer}/status\0"), b"\nPid:").is_some()
    })
}

/// Returns the number behind `key` in a short file of the kernel's, whose path ends with a zero. Takes no memory.
fn number_in(path: std::fmt::Arguments<'_>, key: &[u8]) -> Option<i64> {
    let mut name = [0_u8; 64];
    (&mut name[..]).write_fmt(path).ok()?;
    let mut text = [0_u8; 1024];
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path with its end, and room for the bytes.
    let n = unsafe {
        let fd = sys!(SYS_openat, libc::AT_FDCWD, name.as_ptr(), flags, 0_usize);
        if fd < 0 {
            return None;
        }
        let n = sys!(SYS_read, fd, text.as_mut_ptr(), text.len());
        sys!(SYS_close, fd);
        n
    };
    let text = &text[..usize::try_from(n).ok()?];
    let at = text.windows(key.len()).position(|part| part == key)? + key.len();
    let line = text[at..].split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
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

type GetAddrInfo = unsafe extern "C-unwind" fn(
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
unsafe extern "C-unwind" fn getaddrinfo(
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
