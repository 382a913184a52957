//! Copies of stacks, with the registers to unwind them.

use super::{Image, Registers};
use crate::sched::run::g::G;
use crate::sched::run::m::M;
use crate::sched::threads::preempt;
use crate::stack::coro;
use crate::stack::inject::Frame;
use crate::sys::{clock, futex, task};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Bytes of a stack that are copied, at most.
pub(crate) const COPIED: usize = 64 << 10;
const WORDS: usize = COPIED / size_of::<usize>();
/// Time in ns for which a running goroutine is waited for. Its thread may have to wait for a CPU first.
const PATIENCE_NS: u64 = 500_000_000;

/// A copy of a part of a stack.
pub(crate) struct Capture {
    pub(crate) registers: Registers,
    /// The address of the first word.
    low: usize,
    words: Vec<usize>,
    /// Whether the stack goes on above the copy.
    pub(crate) cut: bool,
    /// Whether it is not the goroutine's own stack.
    pub(crate) foreign: bool,
    /// The reason why there is no copy.
    pub(crate) missing: Option<&'static str>,
    pub(crate) wanted: bool,
}

impl Capture {
    pub(crate) fn new(wanted: bool) -> Capture {
        let words = Vec::with_capacity(WORDS);
        let registers = Registers::default();
        Capture { registers, low: 0, words, cut: false, foreign: false, missing: None, wanted }
    }

    pub(crate) fn nothing(&mut self, why: &'static str) {
        self.words.clear();
        self.missing = Some(why);
    }

    /// Returns what was copied.
    pub(crate) fn image(&self) -> Image<'_> {
        let Capture { registers, low, ref words, cut, foreign, .. } = *self;
        Image { registers, low, words, cut, foreign }
    }

    /// Captures a goroutine that is held.
    pub(crate) fn parked(&mut self, g: &G) {
        if !self.wanted {
            return;
        }
        let Some(sp) = g.suspended_sp() else { return self.nothing("its registers were not found") };
        self.copy_from(Registers { sp, ..Registers::default() }, g);
        if self.missing.is_none()
            && let Some(registers) = suspended(sp, &self.words)
        {
            self.registers = registers;
        }
    }

    /// Captures a goroutine that sleeps in the preemption handler of its thread. Returns `false` if it does not.
    pub(crate) fn preempted(&mut self, m: &M, g: &G) -> bool {
        // ORDERING: Acquire pairs with the handler's Release: the registers are there.
        if !m.in_handler.load(Acquire) {
            return false;
        }
        if !self.wanted {
            return true;
        }
        let (time, registers) = m.interrupted.read();
        self.copy_from(registers, g);
        // ORDERING: Acquire what was copied before the second look. It pairs with the handler's fence at its end: if
        // the copy has a word that the goroutine wrote after that, the handler's end is seen here.
        fence(Acquire);
        let same = m.in_handler.load(Relaxed) && m.interrupted.number() == time;
        if !same || !is_on(m, g) {
            self.nothing("it went on while its stack was copied");
        }
        true
    }

    /// Captures a goroutine that an injected call has suspended, in whichever queue it lies. Returns whether one has.
    pub(crate) fn injected(&mut self, g: &G) -> bool {
        let Some(before) = g.interruption() else { return false };
        if !self.wanted {
            return true;
        }
        match interrupted(g, before.0) {
            Some(registers) => self.copy_from(registers, g),
            None => self.nothing("it is not on its own stack"),
        }
        // ORDERING: Acquire pairs with `end_interruption`: a copy of a goroutine that ran meanwhile has another number,
        // or none.
        fence(Acquire);
        if g.interruption() != Some(before) {
            self.nothing("it went on while its stack was copied");
        }
        true
    }

    /// Captures a goroutine whose thread sleeps, in a system call most probably.
    pub(crate) fn blocked(&mut self, m: &M, g: &G) {
        let tid = m.tid.load(Relaxed);
        let Some(found) = task::sleeping(tid) else {
            return self.nothing("its thread sleeps in the kernel, which does not say where");
        };
        if self.wanted {
            // The frame pointer is not known. Frames that need it are found by other means: see `Unwinder::return_of`.
            self.copy_from(Registers { ip: found.instruction, sp: found.stack_pointer, bp: 0, lr: 0 }, g);
            if task::sleeping(tid).is_none_or(|again| again != found) || !is_on(m, g) {
                self.nothing("it went on while its stack was copied");
            }
        }
    }

    /// Captures a goroutine that runs: its thread copies the stack itself.
    pub(crate) fn running(&mut self, m: &M, g: &G) {
        if !self.wanted {
            return;
        }
        if crate::debug_env::get().async_preempt == Some(crate::debug_env::AsyncPreempt::Off) {
            return self.nothing("it runs, and MUNGO_DEBUG=asyncpreempt=0 forbids to interrupt it");
        }
        // One request at a time: there is one tracer.
        REQUEST.target.store(std::ptr::from_ref(m).cast_mut(), Relaxed);
        // ORDERING: Release the target to the handler.
        REQUEST.state.store(REQUESTED, Release);
        preempt::interrupt(m);
        let end = clock::now_ns() + PATIENCE_NS;
        while REQUEST.state.load(Relaxed) == REQUESTED && clock::now_ns() < end && is_on(m, g) {
            futex::wait(&REQUEST.state, REQUESTED, Some(clock::now_ns() + 1_000_000));
        }
        if REQUEST.state.compare_exchange(REQUESTED, IDLE, Relaxed, Relaxed).is_ok() {
            return self.nothing("it runs, and did not answer in time");
        }
        // ORDERING: Acquire what the handler wrote. It does not wait for anything.
        while REQUEST.state.load(Acquire) != DONE {
            std::hint::spin_loop();
        }
        let registers = REQUEST.registers.each_ref().map(|register| register.load(Relaxed));
        self.registers = Registers::from_words(registers);
        self.low = self.registers.sp;
        self.cut = REQUEST.cut.load(Relaxed) != 0;
        self.foreign = REQUEST.foreign.load(Relaxed) != 0;
        self.missing = None;
        self.words.clear();
        // SAFETY: the handler is done with them, and no other thread makes requests.
        let words = unsafe { &mut (&mut *REQUEST.words.get())[..REQUEST.len.load(Relaxed)] };
        self.words.extend_from_slice(words);
        words.fill(0); // as in `drop`
        REQUEST.state.store(IDLE, Relaxed);
        if !std::ptr::eq(REQUEST.g.load(Relaxed), g) {
            self.nothing("it went on before its stack was copied");
        } else if self.words.is_empty() {
            self.nothing("it is about to switch");
        }
    }

    /// Copies the stack from `registers.sp` up: that of `g`, or another one that it is on.
    fn copy_from(&mut self, registers: Registers, g: &G) {
        let Some(slot) = g.slot() else { return self.nothing("it has no stack") };
        let (part, foreign) = part(registers.sp, slot.stack(), COPIED);
        self.registers = registers;
        self.low = part.start;
        self.cut = part.end < slot.base();
        self.foreign = foreign;
        self.missing = None;
        self.words.clear();
        if foreign || POISONED {
            self.words.resize(WORDS, 0);
            let n = read_foreign(part, &mut self.words);
            self.words.truncate(n);
            if n <= coro::SAVED_BP {
                self.nothing("it is on another stack, which cannot be read");
            }
            return;
        }
        // SAFETY: within the slot of a goroutine, which is never unmapped. If its thread runs after all, the copy is
        // worth nothing, which the caller notices; hence volatile.
        self.words
            .extend(part.step_by(size_of::<usize>()).map(|at| unsafe { (at as *const usize).read_volatile() }));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Copies of addresses that `debug::leaked` looks for.
        self.words.clear();
        self.words.resize(WORDS, 0);
        std::hint::black_box(&self.words); // although it is never read again
    }
}

/// Returns the registers of a goroutine that suspended itself with this stack pointer, from a copy of its stack: the
/// switch left, from there up, where to go on, some registers, and the frame of `suspend`.
pub(crate) fn suspended(sp: usize, words: &[usize]) -> Option<Registers> {
    let (ip, bp) = (*words.first()?, *words.get(coro::SAVED_BP)?);
    Some(Registers { ip, sp: sp + coro::SAVED * size_of::<usize>(), bp, lr: 0 })
}

/// Returns the registers of a goroutine that an injected call has suspended, from the frame `at` this address. `None`:
/// the frame is not on its stack.
pub(crate) fn interrupted(g: &G, at: usize) -> Option<Registers> {
    let stack = g.slot().map(|slot| slot.guard().end..slot.base())?;
    if !stack.contains(&at) || !stack.contains(&(at + size_of::<Frame>())) {
        return None;
    }
    // SAFETY: within the slot of a goroutine, which is never unmapped.
    Some(Registers::from_words(unsafe { Frame::registers(at as *const Frame) }))
}

/// Copies the stack from `sp` up, as much as there is room for: `own`, or another one that it is on. Returns the number
/// of words, and whether it is another one. Async-signal-safe.
///
/// # Safety
/// `own` is mapped.
pub(crate) unsafe fn copy(sp: usize, own: Range<usize>, to: &mut [usize]) -> (usize, bool) {
    let (part, foreign) = part(sp, own, size_of_val(to));
    if foreign || POISONED {
        return (read_foreign(part, to), foreign);
    }
    let words = part.len() / size_of::<usize>();
    for (to, at) in to.iter_mut().zip(part.step_by(size_of::<usize>())) {
        // SAFETY: by the caller. If a thread runs on it after all, the copy is worth nothing; hence volatile.
        *to = unsafe { (at as *const usize).read_volatile() };
    }
    (words, false)
}

/// Returns which part of a stack is copied, and whether that is not `own`. The bounds of another stack are not known.
fn part(sp: usize, own: Range<usize>, most: usize) -> (Range<usize>, bool) {
    let low = sp & !(size_of::<usize>() - 1);
    let most = low.saturating_add(most);
    match own.contains(&low) {
        true => (low..own.end.min(most), false),
        false => (low..most, true),
    }
}

/// Whether AddressSanitizer keeps this code, but not the kernel, from what lies between other functions' variables.
const POISONED: bool = cfg!(mungo_asan);

/// Copies memory that may end anywhere, or be gone: the kernel copies what there is. Returns the number of words.
/// Async-signal-safe.
fn read_foreign(part: Range<usize>, to: &mut [usize]) -> usize {
    let into = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: size_of_val(to).min(part.len()) };
    let from = libc::iovec { iov_base: part.start as *mut c_void, iov_len: into.iov_len };
    // SAFETY: writes to `to` alone.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &into, 1, &from, 1, 0) };
    n.max(0) as usize / size_of::<usize>()
}

fn is_on(m: &M, g: &G) -> bool {
    std::ptr::eq(m.g.load(Relaxed), g)
}

const IDLE: u32 = 0;
const REQUESTED: u32 = 1;
const TAKEN: u32 = 2;
const DONE: u32 = 3;

/// The question to a running thread, and its answer.
struct Request {
    state: AtomicU32,
    target: AtomicPtr<M>,
    g: AtomicPtr<G>,
    registers: [AtomicUsize; 4],
    cut: AtomicU32,
    foreign: AtomicU32,
    len: AtomicUsize,
    words: UnsafeCell<[usize; WORDS]>,
}

// SAFETY: `words` belong to the handler from TAKEN to DONE, to the thread that asked otherwise.
unsafe impl Sync for Request {}

static REQUEST: Request = Request {
    state: AtomicU32::new(IDLE),
    target: AtomicPtr::new(null_mut()),
    g: AtomicPtr::new(null_mut()),
    registers: [const { AtomicUsize::new(0) }; 4],
    cut: AtomicU32::new(0),
    foreign: AtomicU32::new(0),
    len: AtomicUsize::new(0),
    words: UnsafeCell::new([0; WORDS]),
};

/// Answers a request, if there is one, when the preemption signal hit a thread with a goroutine. Async-signal-safe.
#[inline]
pub(crate) fn on_signal(m: &M, g: &G, context: *mut c_void) {
    // ORDERING: Acquire the target.
    if REQUEST.state.load(Acquire) == REQUESTED && std::ptr::eq(REQUEST.target.load(Relaxed), m) {
        answer(g, context);
    }
}

#[cold]
fn answer(g: &G, context: *mut c_void) {
    // ORDERING: Acquire: the words are this handler's.
    if REQUEST.state.compare_exchange(REQUESTED, TAKEN, Acquire, Relaxed).is_err() {
        return;
    }
    let registers = Registers::of(context);
    let mut len = 0;
    if let Some(slot) = g.slot() {
        // SAFETY: the words are this handler's. On its own stack this thread's goroutine is above the pointer.
        let (copied, foreign) = unsafe { copy(registers.sp, slot.stack(), &mut *REQUEST.words.get()) };
        len = copied;
        REQUEST.cut.store(u32::from(!foreign && registers.sp.saturating_add(COPIED) < slot.base()), Relaxed);
        REQUEST.foreign.store(u32::from(foreign), Relaxed);
    }
    for (to, from) in REQUEST.registers.iter().zip(registers.to_words()) {
        to.store(from, Relaxed);
    }
    REQUEST.len.store(len, Relaxed);
    REQUEST.g.store(std::ptr::from_ref(g).cast_mut(), Relaxed);
    // ORDERING: Release the answer.
    REQUEST.state.store(DONE, Release);
    futex::wake(&REQUEST.state, 1);
}
