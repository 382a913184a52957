//! What `mungo-interpose` needs of the runtime: where a call comes from, and waits that code may enter that knows
//! nothing of goroutines. Not for others: it may change with every release.
//!
//! A shim, a C function of that crate, first asks for its [`Place`]. On a goroutine it may wait here; on a plain
//! thread, and inside the runtime, it makes the system call and nothing else.
//!
//! Rules for what is called from a shim:
//! 1. Nothing is allocated or locked before the caller is known to be a goroutine outside of the runtime. Signal
//!    handlers that interrupt the runtime, and allocators that it calls, are [`Place::Inside`].
//! 2. A goroutine suspends only where [`Caller::may_suspend`] holds.
//! 3. A wake-up never looks at the memory that it names, and suspends the caller only after it is done, where it may.
//! 4. In a forked child everything is [`Place::Thread`].

mod descriptor;
mod forked;
pub(crate) mod futex;
mod threads;
#[cfg(all(mungo_own_tls, target_arch = "aarch64"))]
mod waits;

pub use crate::sys::signal::note_unusual as note_unusual_signals;
pub(crate) use descriptor::note_net;
pub use descriptor::{Refusal, Side, Slot, Wait, changes, may_lock, note_change};
pub(crate) use forked::note_decision;
pub use forked::{is_on, note_fork};
pub use futex::{FutexWait, InKernel, futex_wait, futex_wake, wake_goroutines};
pub use threads::{may_be_goroutine, set_thread_names, thread_block};
#[cfg(all(mungo_own_tls, target_arch = "aarch64"))]
pub(crate) use waits::waits;
#[cfg(all(mungo_own_tls, target_arch = "aarch64"))]
pub use waits::{Waits, link_waits};

use crate::sched::run::current::{self, Running};
use crate::sched::run::g::G;
use crate::sched::threads::bound;
use crate::sched::timers;
use crate::sys::clock;
use crate::sys::interrupted::own_signal_mask;
use crate::sys::signal;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

/// Where a call comes from.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A plain thread, a forked child, or a goroutine that must be treated as one: [`is_on`] says no.
    Thread,
    /// The runtime, a signal handler that interrupted it, or an allocator that it calls. There is a goroutine, which
    /// must not wait.
    Inside(Caller),
    /// A goroutine in its own code.
    Goroutine(Caller),
}

/// A goroutine that calls.
#[derive(Clone, Copy)]
pub struct Caller(&'static G);

/// Returns where the call comes from. Takes 1 to 2 ns on a plain thread, no lock and no memory.
#[inline(always)]
pub fn place() -> Place {
    match current::g() {
        Some(g) if is_on() => match g.runtime_depth() {
            0 => Place::Goroutine(Caller(g)),
            _ => Place::Inside(Caller(g)),
        },
        _ => Place::Thread,
    }
}

impl Caller {
    /// Returns whether the goroutine may suspend where it stands: not in a signal handler, which belongs to its
    /// thread. Where it stands tells, unless a handler of this process runs on the stack of what it interrupts, or
    /// signals were blocked: then it asks the kernel which are, some 0.1 µs.
    ///
    /// It does not recognise a handler that was installed with `SA_NODEFER` and without `SA_ONSTACK`.
    pub fn may_suspend(self) -> bool {
        if self.is_on_signal_stack() {
            return false;
        }
        if !signal::are_unusual() {
            return true;
        }
        let mask = own_signal_mask();
        self.inside(|g| {
            // SAFETY: the M that runs this goroutine, which stays there meanwhile.
            unsafe { &*g.m.load(Relaxed) }.signal_mask.load(Relaxed) == mask
        })
    }

    /// Undoes one [`lock_os_thread`](crate::lock_os_thread) whose guard was forgotten.
    pub fn unlock_thread(self) {
        if let Some(running) = Running::enter() {
            bound::unlock(running.g());
        }
    }

    /// Returns whether a signal handler runs on its thread's alternate stack. Asks the kernel only if the stack is not
    /// the goroutine's own: it may be one that the program made.
    pub fn is_on_signal_stack(self) -> bool {
        let here = 0_u8;
        let at = (&raw const here).addr();
        if self.0.slot().is_some_and(|slot| slot.stack().contains(&at)) {
            return false;
        }
        let mut stack = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: `stack` outlives the call.
        let asked = unsafe { libc::syscall(libc::SYS_sigaltstack, 0_usize, &raw mut stack) };
        asked != 0 || stack.ss_flags & libc::SS_ONSTACK != 0
    }

    /// Calls `f` inside the runtime, with or without a P. Never suspends.
    fn inside<T>(self, f: impl FnOnce(&'static G) -> T) -> T {
        self.0.enter_runtime();
        let result = f(self.0);
        self.0.leave_runtime();
        result
    }

    /// Puts the goroutine to sleep until `deadline_ns` of the monotonic clock.
    pub fn sleep_until(self, deadline_ns: u64) {
        if deadline_ns > now_ns()
            && let Some(running) = Running::enter()
        {
            timers::sleep_entered(running, deadline_ns.min(u64::MAX - 1));
        }
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Caller({})", self.0.id.load(Relaxed))
    }
}

/// Returns the time of the monotonic clock in ns.
pub fn now_ns() -> u64 {
    clock::now_ns()
}

/// What the shims did in this process: calls of goroutines that were done at once, that parked, that blocked a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Done at once.
    pub passed: u64,
    /// Parked the goroutine at least once.
    pub parked: u64,
    /// Left to the kernel, which may have blocked the thread.
    pub fell_back: u64,
}

/// What a process with shims says about them.
#[derive(Debug)]
pub struct Linked {
    /// Returns the totals for [`Metrics`](crate::Metrics).
    pub totals: fn() -> Totals,
    /// Returns the functions whose calls were left to the kernel, and how many calls.
    pub left: fn() -> Vec<(&'static str, u64)>,
}

/// Set once, before `main`; null: this process has no shims.
static LINKED: AtomicPtr<Linked> = AtomicPtr::new(std::ptr::null_mut());

/// Tells, before `main`, that there are shims.
pub fn link(linked: &'static Linked) {
    LINKED.store(std::ptr::from_ref(linked).cast_mut(), Release); // ORDERING: with `linked`
}

/// Returns what the shims say; `None`: this process has none.
fn linked() -> Option<&'static Linked> {
    // SAFETY: a reference that lives for ever. ORDERING: Acquire what it points to: with `link`.
    unsafe { LINKED.load(Acquire).as_ref() }
}

/// Returns whether this process has shims.
pub(crate) fn is_linked() -> bool {
    linked().is_some()
}

/// Returns what the shims did so far; zeros if there are none.
pub(crate) fn totals() -> Totals {
    linked().map_or_else(Totals::default, |linked| (linked.totals)())
}

/// Returns the functions whose calls were left to the kernel, and how many calls.
pub(crate) fn left_to_kernel() -> Vec<(&'static str, u64)> {
    linked().map_or_else(Vec::new, |linked| (linked.left)())
}
