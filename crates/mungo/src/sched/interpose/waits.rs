//! Sleeps and polls on aarch64. The runtime defines these functions of C itself there (`waiting.rs`), so the shims
//! cannot: it calls them on goroutines.

use libc::{clockid_t, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::ffi::c_int;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

/// The shims. Each is as the function of C with its name.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Waits {
    pub clock_nanosleep: unsafe extern "C-unwind" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int,
    pub poll: unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int,
    pub ppoll: unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
    pub select:
        unsafe extern "C-unwind" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int,
    pub pselect: unsafe extern "C-unwind" fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int,
    pub epoll_wait: unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub epoll_pwait:
        unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int,
}

/// Set once, before `main`; null: this process has no shims.
static WAITS: AtomicPtr<Waits> = AtomicPtr::new(std::ptr::null_mut());

/// Tells, before `main`, which the shims are.
pub fn link_waits(waits: &'static Waits) {
    WAITS.store(std::ptr::from_ref(waits).cast_mut(), Release); // ORDERING: with `waits`
}

/// Returns the shims; `None`: this process has none.
pub(crate) fn waits() -> Option<&'static Waits> {
    // SAFETY: a reference that lives for ever. ORDERING: Acquire what it points to: with `link_waits`.
    unsafe { WAITS.load(Acquire).as_ref() }
}
