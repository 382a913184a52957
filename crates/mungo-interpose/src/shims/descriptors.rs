//! What changes a descriptor's number or mode: close, dup2, dup3, fcntl, ioctl.

use crate::counters;
use crate::shims::files::announced;
use crate::shims::raw::{self, c, sys};
use mungo::interpose::{Slot, is_on, may_lock, note_change, place};
use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The process for which slots are kept.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Notes the process, before `main`.
pub(crate) fn note_process() {
    // SAFETY: no memory involved.
    PROCESS.store(unsafe { sys!(SYS_getpid) } as i32, Relaxed);
}

/// Closes a descriptor. Goroutines that wait for it get EBADF.
#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    // SAFETY: by the caller: the descriptor is its own.
    c(replace(fd, || unsafe { sys!(SYS_close, fd) })) as c_int
}

/// Makes `to` a copy of `from`. Goroutines that wait for `to` get EBADF.
#[unsafe(no_mangle)]
extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: as above.
    let dup = || unsafe { raw::dup2(from, to) };
    c(if from != to && is_open(from) { replace(to, dup) } else { dup() }) as c_int
}

/// Makes `to` a copy of `from`. Goroutines that wait for `to` get EBADF.
#[unsafe(no_mangle)]
extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: as above.
    let dup = || unsafe { sys!(SYS_dup3, from, to, flags) };
    let will_do = from != to && flags & !libc::O_CLOEXEC == 0 && is_open(from);
    c(if will_do { replace(to, dup) } else { dup() }) as c_int
}

/// Returns whether there is such a descriptor: a copy of none must not end waits for the one that stays.
fn is_open(fd: c_int) -> bool {
    // SAFETY: asks only.
    unsafe { sys!(SYS_fcntl, fd, libc::F_GETFD) >= 0 }
}

/// Changes how a descriptor blocks, by `change`. What is known of any is forgotten: the change is one of the open file,
/// which may have other numbers. After the change: a goroutine may have asked in between.
#[inline(always)]
pub(crate) fn changing(change: impl FnOnce() -> i64) -> i64 {
    let result = change();
    note_change();
    result
}

/// Gives a number back by `change`, and ends waits for it.
#[inline(always)]
pub(crate) fn replace(fd: c_int, change: impl FnOnce() -> i64) -> i64 {
    match Slot::find(fd) {
        Some(slot) if slot.is_registered() => replace_registered(slot, fd, change),
        Some(slot) => {
            slot.forget();
            change()
        }
        None => change(),
    }
}

#[cold]
fn replace_registered(slot: &'static Slot, fd: c_int, change: impl FnOnce() -> i64) -> i64 {
    // A child that shares our memory (vfork) has descriptors of its own. So has a forked one, which has our poller too.
    // SAFETY: no memory involved.
    let is_ours = unsafe { sys!(SYS_getpid) } as i32 == PROCESS.load(Relaxed) && is_on();
    if is_ours && may_lock(place()) {
        return slot.close(fd, change);
    }
    if is_ours {
        // Waits go on, as those of threads do when a descriptor is closed.
        slot.disown();
    }
    change()
}

/// Changes a descriptor's mode, locks a part of a file, and more. C declares it with a variable number of arguments.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    if command == libc::F_GETOWN {
        return owner(fd);
    }
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_fcntl, fd, command, argument) };
    let result = match command {
        libc::F_SETFL => changing(kernel),
        libc::F_SETLKW | libc::F_OFD_SETLKW => announced(&counters::fcntl, kernel),
        _ => kernel(),
    };
    c(result) as c_int
}

/// Does as `fcntl`; the name for programs with large files.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: by the caller.
    unsafe { fcntl(fd, command, argument) }
}

/// Returns the owner of a descriptor, which may be a group: then the plain command's answer looks like an error.
fn owner(fd: c_int) -> c_int {
    const F_GETOWN_EX: c_int = 16;
    const GROUP: c_int = 2;
    let mut owner = [0 as c_int; 2];
    // SAFETY: room for the two numbers.
    match unsafe { sys!(SYS_fcntl, fd, F_GETOWN_EX, owner.as_mut_ptr()) } {
        0 if owner[0] == GROUP => -owner[1],
        0 => owner[1],
        error => c(error) as c_int,
    }
}

/// Controls a device, or the mode of a descriptor. C declares it with a variable number of arguments.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: by the caller.
    let control = || unsafe { sys!(SYS_ioctl, fd, request, argument) };
    c(if request == libc::FIONBIO { changing(control) } else { control() }) as c_int
}
