//! Waits for several descriptors: poll, ppoll, epoll_wait.
//!
//! `poll` for one descriptor in one direction waits for it as a read or write does. For more there is an epoll instance
//! that lives as long as the call: it is a descriptor that becomes readable when one of those in it is ready. The same
//! holds for the instance of a program that calls `epoll_wait`.

use crate::counters::{self, Counter};
use crate::shims::descriptors::replace;
use crate::shims::futex::after_ns;
use crate::shims::plain::plain;
use crate::shims::raw::{self, EAGAIN, EBADF, c, sys};
use crate::shims::time::{deadline_ns, to_ns};
use crate::shims::wait::{Call, Limit, block};
use mungo::interpose::{Caller, Place, Side, now_ns, place};
use std::ffi::c_int;

const READS: libc::c_short = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP | libc::POLLRDNORM;
const WRITES: libc::c_short = libc::POLLOUT | libc::POLLWRNORM;

/// Waits for descriptors, for some ms; a negative number: for ever.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(target_arch = "aarch64"), unsafe(no_mangle))]
pub(super) unsafe extern "C-unwind" fn poll(fds: *mut libc::pollfd, n: libc::nfds_t, ms: c_int) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(poll(fds: *mut libc::pollfd, n: libc::nfds_t, ms: c_int) -> c_int) };
    // SAFETY: by the caller.
    let kernel = || unsafe { raw::poll(fds, n, ms) };
    let Place::Goroutine(caller) = place() else { return c(kernel()) as c_int };
    // SAFETY: by the caller.
    c(unsafe { poll_until(&counters::poll, caller, fds, n, until_ns(ms), kernel) }) as c_int
}

/// Waits for descriptors. With a mask of signals it is the kernel's: they are exchanged at the same moment.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(target_arch = "aarch64"), unsafe(no_mangle))]
pub(super) unsafe extern "C-unwind" fn ppoll(
    fds: *mut libc::pollfd,
    n: libc::nfds_t,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(ppoll(
            fds: *mut libc::pollfd, n: libc::nfds_t, time: *const libc::timespec, mask: *const
            libc::sigset_t
        ) -> c_int)
    };
    // The kernel writes the time that is left, which the C library hides.
    // SAFETY: by the caller.
    let mut left = unsafe { time.as_ref() }.copied();
    let mut kernel = || {
        let left = left.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        // SAFETY: by the caller.
        unsafe { sys!(SYS_ppoll, fds, n, left, mask, size_of::<u64>()) }
    };
    match place() {
        // SAFETY: by the caller.
        Place::Goroutine(caller) => match unsafe { deadline_ns(time, true) } {
            Some(ns) if mask.is_null() => {
                // SAFETY: by the caller.
                c(unsafe { poll_until(&counters::ppoll, caller, fds, n, ns, kernel) }) as c_int
            }
            _ => {
                counters::ppoll.fall_back();
                c(block(caller, kernel)) as c_int
            }
        },
        _ => c(kernel()) as c_int,
    }
}

/// Returns the time in ns until which a call with a time-out of `ms` may take; 0: now.
fn until_ns(ms: c_int) -> u64 {
    match ms {
        0 => 0,
        1.. => after_ns(ms as u64 * 1_000_000),
        _ => u64::MAX,
    }
}

/// Calls `attempt` until it returns something else than EAGAIN. Returns 0 when the time is over.
fn run(
    call: Call,
    caller: Caller,
    until_ns: u64,
    mut attempt: impl FnMut() -> i64,
    mut kernel: impl FnMut() -> i64,
) -> i64 {
    let call = Call { limit: Limit::Until(until_ns), ..call };
    match call.run(caller, &mut attempt, &mut kernel) {
        // A wait that a close has ended. What the call says to it depends on the call, and on what has the number now.
        EBADF => match attempt() {
            EAGAIN => run(call, caller, until_ns, attempt, kernel),
            result => result,
        },
        EAGAIN => 0,
        result => result,
    }
}

unsafe fn poll_until(
    counter: &'static Counter,
    caller: Caller,
    fds: *mut libc::pollfd,
    n: libc::nfds_t,
    until_ns: u64,
    kernel: impl FnMut() -> i64,
) -> i64 {
    // SAFETY: by the caller.
    let attempt = || match unsafe { raw::poll(fds, n, 0) } {
        0 => EAGAIN,
        result => result,
    };
    until_any(counter, until_ns, attempt, |attempt| {
        let asked = match n {
            0 => &[][..], // wherever it points
            // SAFETY: the kernel has read and written them.
            _ => unsafe { std::slice::from_raw_parts(fds, n as usize) },
        };
        wait_for_all(counter, caller, asked, until_ns, attempt, kernel)
    })
}

/// Calls `attempt`, which returns EAGAIN if no descriptor is ready, and `wait` unless that suffices.
pub(super) fn until_any<A: FnMut() -> i64>(
    counter: &'static Counter,
    until_ns: u64,
    mut attempt: A,
    wait: impl FnOnce(A) -> i64,
) -> i64 {
    match attempt() {
        EAGAIN if until_ns > now_ns() => wait(attempt),
        first => {
            counter.pass();
            if first == EAGAIN { 0 } else { first }
        }
    }
}

/// Waits until `attempt` returns something else than EAGAIN, which it does when one of the descriptors is ready.
/// Returns 0 when the time is over.
pub(super) fn wait_for_all(
    counter: &'static Counter,
    caller: Caller,
    asked: &[libc::pollfd],
    until_ns: u64,
    attempt: impl FnMut() -> i64,
    kernel: impl FnMut() -> i64,
) -> i64 {
    if asked.is_empty() && caller.may_suspend() {
        counter.park();
        caller.sleep_until(until_ns);
        return 0;
    }
    if let [one] = asked
        && one.fd >= 0
        && let Some(side) = side_of(one.events)
    {
        let call = Call { side, ..Call::read(one.fd, counter) };
        return run(call, caller, until_ns, attempt, kernel);
    }
    match Together::new(asked) {
        Some(all) => run(Call::read(all.0, counter), caller, until_ns, attempt, kernel),
        None => {
            counter.fall_back();
            block(caller, kernel)
        }
    }
}

/// Returns the direction, if it is one.
fn side_of(events: libc::c_short) -> Option<Side> {
    match events {
        _ if events & !READS == 0 => Some(Side::Read),
        _ if events & !WRITES == 0 => Some(Side::Write),
        _ => None,
    }
}

/// An epoll instance for the descriptors of one call.
struct Together(c_int);

impl Together {
    /// Makes one; `None`: the system refuses it, or one of the descriptors.
    fn new(asked: &[libc::pollfd]) -> Option<Together> {
        // SAFETY: no memory involved.
        let epoll = unsafe { sys!(SYS_epoll_create1, libc::EPOLL_CLOEXEC) };
        let all = Together(c_int::try_from(epoll).ok().filter(|fd| *fd >= 0)?);
        for (i, one) in asked.iter().enumerate().filter(|(_, one)| one.fd >= 0) {
            if asked[..i].iter().any(|before| before.fd == one.fd) {
                continue;
            }
            let events =
                asked[i..].iter().filter(|same| same.fd == one.fd).fold(0, |sum, same| sum | same.events);
            // The bits of poll and epoll are the same.
            let mut event = libc::epoll_event { events: events as u16 as u32, u64: 0 };
            // SAFETY: `event` outlives the call.
            let added = unsafe { sys!(SYS_epoll_ctl, all.0, libc::EPOLL_CTL_ADD, one.fd, &raw mut event) };
            if added < 0 {
                return None;
            }
        }
        Some(all)
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // SAFETY: its own.
        replace(self.0, || unsafe { sys!(SYS_close, self.0) });
    }
}

/// Waits for the events of an epoll instance, for some ms; a negative number: for ever.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(target_arch = "aarch64"), unsafe(no_mangle))]
pub(super) unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    ms: c_int,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(epoll_wait(epoll: c_int, events: *mut libc::epoll_event, n: c_int, ms: c_int) -> c_int) };
    // SAFETY: by the caller.
    let kernel = |ms: c_int| unsafe { raw::epoll_wait(epoll, events, n, ms) };
    let Place::Goroutine(caller) = place() else { return c(kernel(ms)) as c_int };
    let counter = &counters::epoll_wait;
    let until_ns = until_ns(ms);
    let attempt = || match kernel(0) {
        0 if ms != 0 => EAGAIN,
        result => result,
    };
    c(run(Call::read(epoll, counter), caller, until_ns, attempt, || kernel(ms))) as c_int
}

/// Waits for the events of an epoll instance, for a time in ns. With a mask of signals it is the kernel's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(epoll_pwait2(
            epoll: c_int, events: *mut libc::epoll_event, n: c_int, time: *const libc::timespec,
            mask: *const libc::sigset_t
        ) -> c_int)
    };
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_epoll_pwait2, epoll, events, n, time, mask, size_of::<u64>()) };
    let counter = &counters::epoll_wait;
    // An address that cannot be read is the kernel's to refuse, and so is no time at all.
    let until_ns = match time.is_null() {
        true => Some(u64::MAX),
        false => raw::copy(time).and_then(to_ns).map(after_ns),
    };
    c(match (place(), until_ns) {
        (Place::Goroutine(caller), Some(until_ns)) if mask.is_null() => {
            // SAFETY: by the caller.
            let attempt = || match unsafe { raw::epoll_wait(epoll, events, n, 0) } {
                0 => EAGAIN,
                result => result,
            };
            run(Call::read(epoll, counter), caller, until_ns, attempt, kernel)
        }
        (Place::Goroutine(caller), _) => {
            counter.fall_back();
            block(caller, kernel)
        }
        _ => kernel(),
    }) as c_int
}

/// Waits for the events of an epoll instance. With a mask of signals it is the kernel's.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(target_arch = "aarch64"), unsafe(no_mangle))]
pub(super) unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    ms: c_int,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(epoll_pwait(
            epoll: c_int, events: *mut libc::epoll_event, n: c_int, ms: c_int, mask: *const
            libc::sigset_t
        ) -> c_int)
    };
    if mask.is_null() {
        // SAFETY: by the caller.
        return unsafe { epoll_wait(epoll, events, n, ms) };
    }
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_epoll_pwait, epoll, events, n, ms, mask, size_of::<u64>()) };
    c(crate::shims::files::announced(&counters::epoll_wait, kernel)) as c_int
}
