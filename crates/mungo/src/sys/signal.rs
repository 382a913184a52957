//! Signal handlers that stand in front of others.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether [`note_unusual`] was called.
static UNUSUAL: AtomicBool = AtomicBool::new(false);

/// Notes, for the rest of the process, that a handler may run on the stack of the code that it interrupts, or that code
/// may change which signals its thread blocks. To be called before either happens.
pub fn note_unusual() {
    UNUSUAL.store(true, Relaxed);
}

/// Returns whether that was noted.
#[inline]
pub(crate) fn are_unusual() -> bool {
    UNUSUAL.load(Relaxed)
}

/// Calls the handler that was there before ours, the way it asked for. Returns `false` if there was none.
pub(crate) fn call_previous(
    previous: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    // SAFETY: a handler that the process had installed, called with what the kernel passed to ours.
    unsafe {
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => return false,
            f if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                std::mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(f)(
                    signal, info, context,
                );
            }
            f => std::mem::transmute::<usize, extern "C" fn(c_int)>(f)(signal),
        }
    }
    true
}

/// A handler that is called after one of ours, and those that it may call in its turn. Never freed: a handler may be
/// reading it.
pub(crate) struct Link {
    action: libc::sigaction,
    /// The handlers that were there before it. It replaced one of ours, which may be what it passes signals on to.
    earlier: Option<&'static Link>,
}

impl Link {
    pub(crate) fn leak(action: libc::sigaction, earlier: Option<&'static Link>) -> &'static Link {
        Box::leak(Box::new(Link { action, earlier }))
    }

    /// Returns this one and the earlier ones.
    fn chain(&'static self) -> impl Iterator<Item = &'static Link> {
        std::iter::successors(Some(self), |link| link.earlier)
    }

    /// Returns the one in the chain that has this action.
    pub(crate) fn find(&'static self, action: &libc::sigaction) -> Option<&'static Link> {
        let is_same = |link: &&Link| {
            link.action.sa_sigaction == action.sa_sigaction && link.action.sa_flags == action.sa_flags
        };
        self.chain().find(is_same)
    }

    /// Calls the handler. If that passes the signal on to ours, this is called again: then it calls the earlier one,
    /// and returns `true`.
    pub(crate) fn call(&'static self, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
        // SAFETY: the kernel's info is as long as this for each signal.
        let passed_to = unsafe { &raw mut (*info.cast::<Queued>()).passed_to };
        // SAFETY: as above.
        let before = unsafe { passed_to.read() };
        // WHY NOT follow the pointer: an old kernel leaves in that word what was on the stack.
        let calling = self.chain().find(|link| std::ptr::eq(*link, before));
        let next = calling.map_or(Some(self), |link| link.earlier);
        if let Some(next) = next {
            // SAFETY: as above. It is undone, because on an old kernel the next signal finds the word as it is left.
            unsafe { passed_to.write(next) };
            call_previous(&next.action, signal, info, context);
            // SAFETY: as above.
            unsafe { passed_to.write(before) };
        }
        calling.is_some()
    }
}

/// A handler of the three-argument kind.
pub(crate) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The kernel's own form of an action, on 64-bit machines: for the signals that the C library keeps for itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

impl KernelAction {
    /// Returns what the process does about the signal.
    pub(crate) fn get(signal: c_int) -> Option<KernelAction> {
        let mut action = KernelAction::default();
        let size = size_of_val(&action.mask);
        // SAFETY: writes the structure.
        let failed = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, std::ptr::null::<c_void>(), &raw mut action, size)
        };
        (failed == 0).then_some(action)
    }

    /// Returns whether there is a handler of the three-argument kind.
    pub(crate) fn has_handler(&self) -> bool {
        !matches!(self.handler, libc::SIG_DFL | libc::SIG_IGN) && self.flags & libc::SA_SIGINFO as u64 != 0
    }

    /// Returns the same action with another handler, while which the signals of `mask` are blocked.
    pub(crate) fn with(self, handler: Handler, mask: u64) -> KernelAction {
        KernelAction { handler: handler as usize, mask, ..self }
    }

    /// Makes it the process's.
    ///
    /// # Safety
    /// The handler can stand in for the one that was there.
    pub(crate) unsafe fn set(&self, signal: c_int) {
        let size = size_of_val(&self.mask);
        // SAFETY: reads the structure.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                std::ptr::from_ref(self),
                std::ptr::null::<c_void>(),
                size,
            );
        }
    }

    /// Calls the handler, in a handler.
    pub(crate) fn call(&self, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        if self.has_handler() {
            // SAFETY: a handler of that kind, called with what the kernel passed to ours.
            unsafe { std::mem::transmute::<usize, Handler>(self.handler)(signal, info, context) };
        }
    }
}

/// The address that a signal of [`send_marked`] carries. No other signal does, because no other code knows the address.
static MARK: u8 = 0;

/// The beginning of the kernel's `siginfo_t` of a queued signal, on 64-bit machines.
#[repr(C)]
struct Queued {
    signo: c_int,
    errno: c_int,
    code: c_int,
    _padding: c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: *const u8,
    _rest: [u64; 11],
    /// Beyond what the kernel writes for any signal: the handler that ours has called with it.
    passed_to: *const Link,
}

/// Sends a signal to a thread of this process, which [`is_marked`] will know as ours. If the kernel refuses the mark,
/// the signal goes without. If the thread is gone, nothing happens.
pub(crate) fn send_marked(tid: libc::pid_t, signal: c_int) {
    const { assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>()) };
    // SAFETY: no memory involved but the structure, which is what the kernel expects.
    unsafe {
        let (pid, uid) = (libc::getpid(), libc::getuid());
        let code = libc::SI_QUEUE;
        let info = Queued {
            signo: signal,
            errno: 0,
            code,
            _padding: 0,
            pid,
            uid,
            value: &raw const MARK,
            _rest: [0; 11],
            passed_to: std::ptr::null(),
        };
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, &raw const info) != 0 {
            libc::syscall(libc::SYS_tgkill, pid, tid, signal);
        }
    }
}

/// Returns, in a handler, whether the signal is one of [`send_marked`]. A signal from another sender that came while
/// ours was pending is lost in it, as the kernel does with two of any kind; one of ours may be lost in another
/// sender's.
pub(crate) fn is_marked(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel passes a valid info, and one of this code has a value.
    unsafe {
        (*info).si_code == libc::SI_QUEUE && std::ptr::eq((*info).si_value().sival_ptr.cast(), &raw const MARK)
    }
}

/// Returns the value that a timer's signals carry so that [`overruns`] knows them.
#[cfg_attr(not(all(feature = "profile", mungo_native)), allow(dead_code))]
pub(crate) fn mark() -> libc::sigval {
    libc::sigval { sival_ptr: (&raw const MARK).cast_mut().cast() }
}

/// Returns, in a handler, how many more times the timer had gone off when it sent the signal. `None`: it is not from a
/// timer with our [`mark`].
#[cfg_attr(not(all(feature = "profile", mungo_native)), allow(dead_code))]
pub(crate) fn overruns(info: *const libc::siginfo_t) -> Option<u32> {
    // SAFETY: the kernel passes a valid info. A timer's has the number of overruns where a queued one's has the user.
    unsafe {
        let Queued { code, uid, value, .. } = *info.cast::<Queued>();
        (code == libc::SI_TIMER && std::ptr::eq(value, &raw const MARK)).then_some(uid)
    }
}

/// Takes the signal's default action: in a handler as soon as it returns, else at once.
pub(crate) fn die_of(signal: c_int) {
    // SAFETY: sets the default action, lets the signal in on this thread, and sends it.
    unsafe {
        let mut default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &default, std::ptr::null_mut());
        let mut mask: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigaddset(&mut mask, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &mask, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
}
