//! Stacks of goroutines, taken from outside.
//!
//! A stack is copied first and unwound later, from the copy, by the tables that the compiler made for panics: so a
//! goroutine is held only while it is copied, and what is unwound does not change. At most [`COPIED`] bytes are
//! copied.
//!
//! | the goroutine is    | its registers are              | and it stands still because                          |
//! |---------------------|--------------------------------|------------------------------------------------------|
//! | parked              | where it suspended itself      | it is held (`G::hold`)                               |
//! | preempted           | where its signal handler noted | it sleeps there; checked after the copy              |
//! | blocked in a call   | in `/proc`, in part            | it sleeps there; checked after the copy              |
//! | running             | in the frame of a signal       | the signal's handler copies the stack                |
//!
//! A blocked thread gets no signal, since some calls would fail with EINTR. A goroutine in a run queue may be resumed
//! at any time, so its stack is not looked at.

#[cfg(all(feature = "backtrace", mungo_native))]
mod capture;
#[cfg(all(feature = "backtrace", mungo_native))]
mod names;
#[cfg(mungo_stacks)]
mod rules;
#[cfg(all(feature = "backtrace", mungo_native))]
mod tables;
#[cfg(all(feature = "backtrace", mungo_native))]
mod unwind;
#[cfg(mungo_stacks)]
mod walk;

#[cfg(all(feature = "backtrace", mungo_native))]
pub(crate) use self::{
    capture::{Capture, on_signal},
    unwind::Tracer,
};
/// What profiles need.
#[cfg(all(feature = "profile", mungo_native))]
pub(crate) use self::{
    capture::{copy, interrupted, suspended},
    names::{forget_symbols, name, of_program},
    unwind::{Trace, Unwinder},
};

/// What traces need.
#[cfg(mungo_stacks)]
pub(crate) use self::walk::{know_code, of_caller, of_interrupted, of_suspended};

#[cfg(not(mungo_stacks))]
mod no_walk;
#[cfg(not(mungo_stacks))]
pub(crate) use no_walk::{know_code, of_interrupted, of_suspended};

#[cfg(not(all(feature = "backtrace", mungo_native)))]
mod absent;
#[cfg(not(all(feature = "backtrace", mungo_native)))]
pub(crate) use absent::{Capture, Tracer, on_signal};

use std::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// The registers of a preempted goroutine. Written by its thread, before it says that it is in the handler.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    /// Number of interruptions, so that a reader can tell whether it was the same one before and after.
    count: AtomicU32,
    registers: [AtomicUsize; 4],
}

impl Interrupted {
    /// Notes the registers. By the signal handler.
    pub(crate) fn note(&self, context: *mut std::ffi::c_void) {
        let registers = Registers::of(context).to_words();
        self.count.fetch_add(1, Relaxed);
        // ORDERING: Release the count before the registers: a reader that has seen one of these, and then passes its
        // own fence, finds the new count.
        fence(Release);
        for (to, from) in self.registers.iter().zip(registers) {
            to.store(from, Relaxed);
        }
    }

    /// Returns the registers, and a number for this interruption. If the number is still the same after an Acquire
    /// fence, the registers belong together.
    #[cfg_attr(not(all(feature = "backtrace", mungo_native)), allow(dead_code))]
    fn read(&self) -> (u32, Registers) {
        // ORDERING: Acquire: the registers are read after it, and are those of this interruption or of a later one.
        let number = self.count.load(Acquire);
        let words = self.registers.each_ref().map(|register| register.load(Relaxed));
        (number, Registers::from_words(words))
    }

    /// Returns the number of the last interruption.
    #[cfg_attr(not(all(feature = "backtrace", mungo_native)), allow(dead_code))]
    fn number(&self) -> u32 {
        self.count.load(Relaxed)
    }
}

/// The registers that it takes to unwind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    pub(crate) ip: usize,
    pub(crate) sp: usize,
    /// The frame pointer.
    pub(crate) bp: usize,
    /// The return address of a function without a frame, where there is a register for it, else 0.
    pub(crate) lr: usize,
}

/// A copy of a part of a stack, with the registers to unwind it.
#[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image<'a> {
    pub(crate) registers: Registers,
    /// The address of the first word.
    pub(crate) low: usize,
    pub(crate) words: &'a [usize],
    /// Whether the stack goes on above the copy.
    pub(crate) cut: bool,
    /// Whether it is not the goroutine's own stack.
    pub(crate) foreign: bool,
}

#[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
impl Image<'_> {
    /// Returns the copy of the word at this address.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address).ok()?.checked_sub(self.low)?;
        if offset % size_of::<usize>() != 0 {
            return None;
        }
        self.words.get(offset / size_of::<usize>()).map(|word| *word as u64)
    }
}

impl Registers {
    fn to_words(self) -> [usize; 4] {
        [self.ip, self.sp, self.bp, self.lr]
    }

    #[cfg_attr(not(feature = "backtrace"), allow(dead_code))]
    fn from_words([ip, sp, bp, lr]: [usize; 4]) -> Registers {
        Registers { ip, sp, bp, lr }
    }

    /// Returns the registers of the code that a signal interrupted.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(crate) fn of(context: *mut std::ffi::c_void) -> Registers {
        // SAFETY: the kernel passes a `ucontext_t` to the handler.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let get = |register: libc::c_int| registers[register as usize] as usize;
        Registers { ip: get(libc::REG_RIP), sp: get(libc::REG_RSP), bp: get(libc::REG_RBP), lr: 0 }
    }

    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    pub(crate) fn of(context: *mut std::ffi::c_void) -> Registers {
        // SAFETY: the kernel passes a `ucontext_t` to the handler.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        let [.., bp, lr] = registers.regs.map(|register| register as usize);
        Registers { ip: registers.pc as usize, sp: registers.sp as usize, bp, lr }
    }

    /// Returns the registers of the caller, as long as it has not returned.
    #[cfg(any(mungo_stacks, all(feature = "profile", target_arch = "x86_64", target_os = "linux")))]
    #[inline(always)]
    pub(crate) fn here() -> Registers {
        let (ip, sp, bp);
        // SAFETY: reads three registers.
        unsafe {
            std::arch::asm!(
                "lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
                ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp, options(nomem, nostack, preserves_flags)
            );
        }
        Registers { ip, sp, bp, lr: 0 }
    }

    #[cfg(all(feature = "profile", target_arch = "aarch64", target_os = "linux"))]
    #[inline(always)]
    pub(crate) fn here() -> Registers {
        let (ip, sp, bp, lr);
        // SAFETY: reads four registers.
        unsafe {
            std::arch::asm!(
                "adr {ip}, .", "mov {sp}, sp", "mov {bp}, x29", "mov {lr}, x30",
                ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp, lr = out(reg) lr,
                options(nomem, nostack, preserves_flags)
            );
        }
        Registers { ip, sp, bp, lr }
    }

    #[cfg(not(mungo_native))]
    pub(crate) fn of(_context: *mut std::ffi::c_void) -> Registers {
        Registers::default()
    }
}
