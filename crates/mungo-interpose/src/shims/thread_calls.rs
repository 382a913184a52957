//! What C asks of other threads, where these may be goroutines. Signals, cancellation, CPUs and classes belong to the
//! kernel's threads and are not to be had: `ENOTSUP`. On plain threads each is the C library's function.

use crate::shims::next::next;
use crate::shims::threads::{announced, is_goroutine, is_own, join, raise, table, wait_for_end};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The bytes that the kernel has for a name, its end included.
const NAME_ROOM: usize = 16;

/// Defines a function whose first argument is a thread: for a goroutine by what stands here, else the C library's.
macro_rules! of_threads {
    ($($(#[$doc:meta])* fn $name:ident($thread:ident $(, $value:ident: $type:ty)* $(,)?) $goroutine:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($thread: libc::pthread_t $(, $value: $type)*) -> c_int {
            if is_goroutine($thread) {
                return $goroutine;
            }
            // SAFETY: by the caller; the C library's function has this type.
            unsafe { next!($name($thread: libc::pthread_t $(, $value: $type)*)) }
        }
    )* };
}

of_threads! {
    /// Joins a thread that has ended.
    fn pthread_tryjoin_np(thread, value: *mut *mut c_void) {
        // SAFETY: by the caller.
        unsafe { join_by(thread, value, 0, std::ptr::null()) }
    }

    /// Names a thread: a goroutine once.
    fn pthread_setname_np(thread, name: *const c_char) {
        // SAFETY: by the caller.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        if name.len() >= NAME_ROOM {
            return libc::ERANGE;
        }
        if is_own(thread) {
            mungo::current().name_late(&name);
        } else if let Some(found) = table(thread).get(&thread) {
            found.handle.goroutine().name_late(&name);
        } else {
            return libc::ESRCH;
        }
        0
    }

    /// Asks for a thread's name.
    fn pthread_getname_np(thread, to: *mut c_char, room: usize) {
        let goroutine = match is_own(thread) {
            true => Some(mungo::current()),
            false => table(thread).get(&thread).map(|found| found.handle.goroutine()),
        };
        let Some(goroutine) = goroutine else { return libc::ESRCH };
        let name = goroutine.name().unwrap_or_default();
        if name.len() >= room {
            return libc::ERANGE;
        }
        // SAFETY: by the caller; there is room for the name and its end.
        unsafe {
            to.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
            to.add(name.len()).write(0);
        }
        0
    }

    /// Sends a thread a signal: a goroutine only to itself.
    fn pthread_kill(thread, signal: c_int) {
        match signal {
            _ if is_own(thread) => raise(signal),
            0 if table(thread).contains_key(&thread) => 0,
            0 => libc::ESRCH,
            _ => libc::ENOTSUP,
        }
    }

    /// Sends a thread a signal with a value.
    fn pthread_sigqueue(thread, signal: c_int, value: libc::sigval) {
        _ = (signal, value);
        libc::ENOTSUP
    }

    /// Asks a thread to end.
    fn pthread_cancel(thread) { libc::ENOTSUP }

    /// Sets the CPUs that a thread may use.
    fn pthread_setaffinity_np(thread, size: usize, cpus: *const libc::cpu_set_t) {
        _ = (size, cpus);
        libc::ENOTSUP
    }

    /// Sets the scheduling class and priority: for a goroutine the usual one is fine.
    fn pthread_setschedparam(thread, class: c_int, parameters: *const libc::sched_param) {
        // SAFETY: by the caller.
        match class == libc::SCHED_OTHER && unsafe { (*parameters).sched_priority } == 0 {
            true => 0,
            false => libc::ENOTSUP,
        }
    }

    /// Asks for the scheduling class and priority.
    fn pthread_getschedparam(thread, class: *mut c_int, parameters: *mut libc::sched_param) {
        // SAFETY: by the caller.
        unsafe {
            class.write(libc::SCHED_OTHER);
            (*parameters).sched_priority = 0;
        }
        0
    }

    /// Sets the priority.
    fn pthread_setschedprio(thread, priority: c_int) {
        if priority == 0 { 0 } else { libc::ENOTSUP }
    }

    /// Asks for the clock of a thread's CPU time, which a goroutine does not have.
    fn pthread_getcpuclockid(thread, clock: *mut libc::clockid_t) {
        _ = clock;
        libc::ENOENT
    }
}

/// Joins a goroutine by a point in time: see [`wait_for_end`].
unsafe fn join_by(
    thread: libc::pthread_t,
    value: *mut *mut c_void,
    op: c_int,
    time: *const libc::timespec,
) -> c_int {
    if is_own(thread) {
        return libc::EDEADLK;
    }
    // SAFETY: by the caller.
    unsafe {
        match wait_for_end(thread, op, time) {
            0 => join(thread, value),
            error => error,
        }
    }
}

/// Returns the futex operation that waits until a time of this clock; `None`: no such clock.
fn wait_by(clock: libc::clockid_t) -> Option<c_int> {
    let op = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    match clock {
        libc::CLOCK_MONOTONIC => Some(op),
        libc::CLOCK_REALTIME => Some(op | libc::FUTEX_CLOCK_REALTIME),
        _ => None,
    }
}

/// Joins a thread, if it ends by a time of the given clock. Without a time it waits for ever.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_clockjoin_np(
    thread: libc::pthread_t,
    value: *mut *mut c_void,
    clock: libc::clockid_t,
    time: *const libc::timespec,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        match wait_by(clock) {
            _ if !is_goroutine(thread) => announced(|| {
                next!(pthread_clockjoin_np(
                    thread: libc::pthread_t, value: *mut *mut c_void, clock: libc::clockid_t,
                    time: *const libc::timespec
                ))
            }),
            None => libc::EINVAL,
            Some(_) if time.is_null() => join(thread, value),
            Some(op) => join_by(thread, value, op, time),
        }
    }
}

/// Joins a thread, if it ends by a time of the real clock.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_timedjoin_np(
    thread: libc::pthread_t,
    value: *mut *mut c_void,
    time: *const libc::timespec,
) -> c_int {
    // SAFETY: by the caller.
    unsafe { pthread_clockjoin_np(thread, value, libc::CLOCK_REALTIME, time) }
}
