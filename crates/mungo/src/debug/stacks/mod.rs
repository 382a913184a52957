//! Stacks of goroutines, taken from outside.
//!
//! A stack is copied first and unwound later, from the copy, by the tables that the compiler made for panics: so nobody
//! is held for longer than a copy takes, and what is unwound does not change. At most [`COPIED`] bytes are copied.
//!
//! | the goroutine is    | its registers are              | and it stands still because                          |
//! |---------------------|--------------------------------|------------------------------------------------------|
//! | parked              | where it suspended itself      | it is held (`WakeState::inspect`)                    |
//! | preempted           | where its signal handler noted | it sleeps there; checked after the copy              |
//! | blocked in a call   | in `/proc`, in part            | it sleeps there; checked after the copy              |
//! | running             | in the frame of a signal       | the signal's handler copies the stack                |
//!
//! A blocked thread gets no signal, since some calls would fail with EINTR. Who waits in a run queue may be resumed at
//! any time, so its stack is not looked at.

#[cfg(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux"))]
mod capture;
#[cfg(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux"))]
mod unwind;

#[cfg(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux"))]
pub(crate) use self::{
    capture::{Capture, on_signal},
    unwind::Tracer,
};

#[cfg(not(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux")))]
mod absent;
#[cfg(not(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux")))]
pub(crate) use absent::{Capture, Tracer, on_signal};

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Where a preempted goroutine was interrupted. Written by its thread, before it says that it is in the handler.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    /// How often, so that a reader can tell whether it was the same time before and after.
    count: AtomicU32,
    registers: [AtomicUsize; 3],
}

impl Interrupted {
    /// Signal handler.
    pub(crate) fn note(&self, context: *mut std::ffi::c_void) {
        let Registers { ip, sp, bp } = Registers::of(context);
        self.count.fetch_add(1, Relaxed);
        for (to, from) in self.registers.iter().zip([ip, sp, bp]) {
            to.store(from, Relaxed);
        }
    }

    /// Where, and a number for this time.
    #[cfg_attr(not(all(feature = "backtrace", target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    fn read(&self) -> (u32, Registers) {
        let [ip, sp, bp] = [0, 1, 2].map(|i| self.registers[i].load(Relaxed));
        (self.count.load(Relaxed), Registers { ip, sp, bp })
    }
}

/// What it takes to unwind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    ip: usize,
    sp: usize,
    bp: usize,
}

impl Registers {
    /// Of the code that a signal interrupted.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn of(context: *mut std::ffi::c_void) -> Registers {
        // SAFETY: the kernel passes a `ucontext_t` to the handler.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let get = |register: libc::c_int| registers[register as usize] as usize;
        Registers { ip: get(libc::REG_RIP), sp: get(libc::REG_RSP), bp: get(libc::REG_RBP) }
    }

    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    fn of(_context: *mut std::ffi::c_void) -> Registers {
        Registers::default()
    }
}
