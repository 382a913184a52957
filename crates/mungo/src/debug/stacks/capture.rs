//! Copies of stacks, with the registers to unwind them.

use super::Registers;
use crate::sched::g::G;
use crate::sched::m::M;
use crate::sched::preempt;
use crate::stack::coro;
use crate::sys::{clock, futex, task};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// So much of a stack is copied, in bytes.
pub(crate) const COPIED: usize = 64 << 10;
const WORDS: usize = COPIED / size_of::<usize>();
/// So long a running goroutine is waited for. Its thread may have to wait for a CPU first.
const PATIENCE_NS: u64 = 500_000_000;

/// A copy of a part of a stack.
pub(crate) struct Capture {
    pub(super) registers: Registers,
    /// The address of the first word.
    low: usize,
    words: Vec<usize>,
    /// The stack goes on above the copy.
    pub(super) cut: bool,
    /// Why there is no copy.
    pub(super) missing: Option<&'static str>,
    pub(super) wanted: bool,
}

impl Capture {
    pub(super) fn new(wanted: bool) -> Capture {
        let words = Vec::with_capacity(WORDS);
        Capture { registers: Registers::default(), low: 0, words, cut: false, missing: None, wanted }
    }

    pub(crate) fn nothing(&mut self, why: &'static str) {
        self.words.clear();
        self.missing = Some(why);
    }

    /// The copy of the word at this address.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address).ok()?.checked_sub(self.low)?;
        if offset % size_of::<usize>() != 0 {
            return None;
        }
        self.words.get(offset / size_of::<usize>()).map(|word| *word as u64)
    }

    /// A goroutine that is held.
    pub(crate) fn parked(&mut self, g: &G) {
        if !self.wanted {
            return;
        }
        // The switch left, from there up: where to go on, two registers, and the frame of `suspend`.
        match (g.suspended_sp(), g.slot().map(|slot| slot.base())) {
            (Some(sp), Some(base)) if sp + 24 <= base => {
                self.copy(sp, base);
                let (ip, bp) = (self.words[0], self.words[coro::SAVED_BP]);
                self.registers = Registers { ip, sp: sp + 24, bp };
            }
            _ => self.nothing("its registers were not found"),
        }
    }

    /// A goroutine that sleeps in the preemption handler of its thread. `false`: it does not.
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
        let same = m.in_handler.load(Acquire) && m.interrupted.read().0 == time; // ORDERING: above
        if !same || !is_on(m, g) {
            self.nothing("it went on while its stack was copied");
        }
        true
    }

    /// A goroutine whose thread sleeps, in a system call most probably.
    pub(crate) fn blocked(&mut self, m: &M, g: &G) {
        let tid = m.tid.load(Relaxed);
        let Some(found) = task::sleeping(tid) else {
            return self.nothing("its thread sleeps in the kernel, which does not say where");
        };
        if self.wanted {
            // RBP is not known. Frames that need it are found by other means: see `Tracer::return_of`.
            self.copy_from(Registers { ip: found.instruction, sp: found.stack_pointer, bp: 0 }, g);
            if task::sleeping(tid).is_none_or(|again| again != found) || !is_on(m, g) {
                self.nothing("it went on while its stack was copied");
            }
        }
    }

    /// A goroutine that runs: its thread copies the stack itself.
    pub(crate) fn running(&mut self, m: &M, g: &G) {
        if !self.wanted {
            return;
        }
        if !crate::debug_env::get().async_preempt {
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
        let [ip, sp, bp] = [0, 1, 2].map(|i| REQUEST.registers[i].load(Relaxed));
        self.registers = Registers { ip, sp, bp };
        self.low = sp;
        self.cut = REQUEST.cut.load(Relaxed) != 0;
        self.missing = None;
        self.words.clear();
        // SAFETY: the handler is done with them, and nobody else makes requests.
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

    /// From `registers.sp` up, if that is on the stack of `g`.
    fn copy_from(&mut self, registers: Registers, g: &G) {
        match g.slot().map(|slot| slot.guard().end..slot.base()) {
            Some(stack) if stack.contains(&registers.sp) => {
                self.copy(registers.sp, stack.end);
                self.registers = registers;
            }
            _ => self.nothing("it is not on its own stack"),
        }
    }

    fn copy(&mut self, sp: usize, base: usize) {
        let part = part(sp, base);
        self.low = part.start;
        self.cut = part.end < base;
        self.missing = None;
        self.words.clear();
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

/// What is copied of a stack.
fn part(sp: usize, base: usize) -> Range<usize> {
    let low = sp & !(size_of::<usize>() - 1);
    low..base.min(low + COPIED)
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
    registers: [AtomicUsize; 3],
    cut: AtomicU32,
    len: AtomicUsize,
    words: UnsafeCell<[usize; WORDS]>,
}

// SAFETY: `words` belong to the handler from TAKEN to DONE, to the one who asked otherwise.
unsafe impl Sync for Request {}

static REQUEST: Request = Request {
    state: AtomicU32::new(IDLE),
    target: AtomicPtr::new(null_mut()),
    g: AtomicPtr::new(null_mut()),
    registers: [const { AtomicUsize::new(0) }; 3],
    cut: AtomicU32::new(0),
    len: AtomicUsize::new(0),
    words: UnsafeCell::new([0; WORDS]),
};

/// The preemption signal hit a thread with a goroutine: answers, if it was asked. Async-signal-safe.
#[inline]
pub(crate) fn on_signal(m: &M, g: &G, context: *mut c_void) {
    // ORDERING: Acquire the target.
    if REQUEST.state.load(Acquire) == REQUESTED && std::ptr::eq(REQUEST.target.load(Relaxed), m) {
        answer(g, context);
    }
}

#[cold]
fn answer(g: &G, context: *mut c_void) {
    // ORDERING: Acquire: the words are ours.
    if REQUEST.state.compare_exchange(REQUESTED, TAKEN, Acquire, Relaxed).is_err() {
        return;
    }
    let registers = Registers::of(context);
    let mut len = 0;
    if let Some(slot) = g.slot()
        && (slot.guard().end..slot.base()).contains(&registers.sp)
    {
        let part = part(registers.sp, slot.base());
        len = part.len() / size_of::<usize>();
        // SAFETY: this thread's goroutine is on its stack, above the pointer; the words are ours.
        unsafe {
            let words = REQUEST.words.get().cast::<usize>();
            std::ptr::copy_nonoverlapping(part.start as *const usize, words, len);
        }
        REQUEST.cut.store(u32::from(part.end < slot.base()), Relaxed);
    }
    for (to, from) in REQUEST.registers.iter().zip([registers.ip, registers.sp, registers.bp]) {
        to.store(from, Relaxed);
    }
    REQUEST.len.store(len, Relaxed);
    REQUEST.g.store(std::ptr::from_ref(g).cast_mut(), Relaxed);
    // ORDERING: Release the answer.
    REQUEST.state.store(DONE, Release);
    futex::wake(&REQUEST.state, 1);
}
