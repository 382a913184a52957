//! The handler: a bit and an eventfd.

use super::number::{LAST, Signal};
use crate::sched::report::sigquit;
use crate::sys::signal::{call_previous, die_of};
use crate::tracer;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

/// The signals that came and were not passed on yet.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// The signals that have a listener. Written under the lock of the listeners.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// The eventfd's number; -1: there is none yet.
static BELL: AtomicI32 = AtomicI32::new(-1);
/// The handlers that were there before, by number. Never freed: a handler may be reading one.
static PREVIOUS: [AtomicPtr<libc::sigaction>; LAST + 1] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; LAST + 1];

/// Makes the eventfd. To be called once.
pub(super) fn make_bell() -> io::Result<OwnedFd> {
    // SAFETY: no memory involved.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and without another owner.
    let bell = unsafe { OwnedFd::from_raw_fd(fd) };
    BELL.store(bell.as_raw_fd(), Release); // ORDERING: pairs with the handler's Acquire; the owner never closes it
    Ok(bell)
}

/// Takes the signals that came.
pub(super) fn take_pending() -> u64 {
    // ORDERING: AcqRel: before the handler's write to the eventfd it set the bit; after its read we take it.
    PENDING.swap(0, AcqRel)
}

/// Installs the handler for a signal, if it is not there, and lets it catch the signal. Under the lock of the
/// listeners.
pub(super) fn listen(signal: Signal) {
    if WANTED.load(Acquire) & signal.bit() != 0 {
        return;
    }
    // SAFETY: a handler of the three-argument kind, on the alternate stack; the old one is kept first, so that the
    // handler finds it.
    unsafe {
        let before = current_action(signal);
        let is_ours = before.sa_sigaction == handle as *const () as usize;
        if !is_ours {
            remember(signal, before);
        }
        WANTED.fetch_or(signal.bit(), AcqRel); // ORDERING: pairs with the handler's Acquire
        if !is_ours {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(signal.as_raw(), &action, std::ptr::null_mut());
        }
    }
}

/// Gives a signal its former effect back. Under the lock of the listeners. A handler that was installed on top of ours
/// stays; ours passes on what that one passes to it.
pub(super) fn stop_listening(signal: Signal) {
    WANTED.fetch_and(!signal.bit(), AcqRel); // ORDERING: as in `listen`
    // SAFETY: the old handler, as it was.
    unsafe {
        if current_action(signal).sa_sigaction == handle as *const () as usize
            && let Some(previous) = previous(signal.as_raw())
        {
            libc::sigaction(signal.as_raw(), previous, std::ptr::null_mut());
        }
    }
}

/// Lets a signal that came, and that has no listener any more, have its former effect. A handler of others was
/// called at once, so this is the default effect or none.
pub(super) fn let_pass(signal: Signal) {
    let was_skipped = |action: &libc::sigaction| {
        action.sa_sigaction == libc::SIG_DFL || sigquit::is_own(action) || tracer::is_own_handler(action)
    };
    if previous(signal.as_raw()).is_none_or(was_skipped) {
        super::raise(signal);
    }
}

fn current_action(signal: Signal) -> libc::sigaction {
    // SAFETY: asks, and changes nothing.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(signal.as_raw(), std::ptr::null(), &mut action);
        action
    }
}

/// Notes the handler that was there before; the same as last time takes no new memory.
fn remember(signal: Signal, action: libc::sigaction) {
    let is_same =
        |old: &libc::sigaction| old.sa_sigaction == action.sa_sigaction && old.sa_flags == action.sa_flags;
    if !previous(signal.as_raw()).is_some_and(is_same) {
        // ORDERING: Release the contents to the handler.
        PREVIOUS[signal.as_raw() as usize].store(Box::leak(Box::new(action)), Release);
    }
}

fn previous(signal: c_int) -> Option<&'static libc::sigaction> {
    // SAFETY: null, or leaked by `remember`. ORDERING: Acquire its contents.
    unsafe { PREVIOUS.get(signal as usize)?.load(Acquire).as_ref() }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the place of the interrupted code's error number, which stays as it was.
    let errno = unsafe { *libc::__errno_location() };
    let former = previous(signal);
    // ORDERING: Acquire: pairs with `listen`.
    let bit = Signal::from_raw(signal).map_or(0, Signal::bit);
    let is_wanted = WANTED.load(Acquire) & bit != 0;
    if is_wanted {
        // ORDERING: Release the bit before the write; pairs with `take_pending`.
        PENDING.fetch_or(bit, AcqRel);
        let one = 1u64;
        // SAFETY: eight bytes to read from; the eventfd is open for ever. If it is full, it is readable.
        // WHY NOT `write`: another library may stand in for it, with more than a handler may do.
        unsafe { libc::syscall(libc::SYS_write, BELL.load(Acquire), &raw const one, size_of::<u64>()) };
    }
    // The dump of SIGQUIT is not written while it has a listener; everything else is called as before.
    let called = match former {
        Some(action) if is_wanted && (sigquit::is_own(action) || tracer::is_own_handler(action)) => true,
        Some(action) if tracer::is_own_handler(action) => {
            tracer::die_of(signal);
            true
        }
        Some(action) => call_previous(action, signal, info, context),
        None => false,
    };
    if !is_wanted && !called && former.is_none_or(|action| action.sa_sigaction == libc::SIG_DFL) {
        die_of(signal);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
