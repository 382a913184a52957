//! Samples on their way to the thread that keeps them: slots, each with a copy of a stack.
//!
//! A slot is claimed by one locked instruction, filled, and marked as full; the keeper empties it. Nothing waits: if no
//! slot is free the sample is lost, and counted. All of this is safe in a signal handler, also in one that interrupts a
//! thread that fills a slot.

use super::Subject;
use super::keeper;
use crate::labels::Labels;
use crate::reason::WaitReason;
use crate::sched::report::stacks::{self, Image, Registers};
use crate::sched::run::g::G;
use std::alloc::{Layout, alloc_zeroed};
use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Number of slots. TUNED: guess; the keeper may be without a CPU for 50 ms at the highest rate of two Ps.
const SLOTS: usize = 512;
/// Words of a stack that are copied, at most: 31 KiB. Pages that no stack is deep enough for are not touched.
const WORDS: usize = 31 << 7;
/// Slots that are tried before a sample is lost.
const TRIES: u32 = 8;
/// Slots that are filled before the keeper is called.
const CALL_EVERY: u32 = 64;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const FULL: u32 = 2;

/// The number of samples that found no slot, since the process began: of CPU time, and of waits.
pub(super) static LOST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// The slots, from the first use on, never freed.
static RING: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
static NEXT: AtomicU32 = AtomicU32::new(0);
static FILLED: AtomicU32 = AtomicU32::new(0);

/// A sample without its stack.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) subject: Subject,
    pub(super) reason: WaitReason,
    /// The number of events, and their time in ns, that it stands for.
    pub(super) count: f64,
    pub(super) ns: f64,
    /// The goroutine; 0: none.
    pub(super) goroutine: u64,
    pub(super) place: Option<&'static Location<'static>>,
    pub(super) labels: Option<Arc<Labels>>,
}

impl Sample {
    /// Makes a sample of a goroutine.
    ///
    /// # Safety
    /// As [`LabelCell::get`](crate::labels::LabelCell::get).
    pub(super) unsafe fn of(g: &G, subject: Subject, reason: WaitReason, count: f64, ns: f64) -> Sample {
        // SAFETY: by the caller.
        let labels = unsafe { g.labels.get() };
        Sample { subject, reason, count, ns, goroutine: g.id.load(Relaxed), place: Some(g.place()), labels }
    }
}

/// A sample, and the registers of the stack in the slot's words.
struct Content {
    sample: Sample,
    registers: Registers,
    low: usize,
    len: usize,
    cut: bool,
    foreign: bool,
}

struct Slot {
    state: AtomicU32,
    /// `Some` while it is full. Of the thread that claimed the slot, or of the keeper while it is full.
    content: UnsafeCell<Option<Content>>,
    words: UnsafeCell<[usize; WORDS]>,
}

/// Makes the slots. Zeros are free slots, whose content is not looked at.
pub(super) fn prepare() -> io::Result<()> {
    if !RING.load(Acquire).is_null() {
        return Ok(());
    }
    let layout = Layout::array::<Slot>(SLOTS).expect("a few megabytes");
    // SAFETY: the layout is not empty.
    let ring = unsafe { alloc_zeroed(layout) }.cast::<Slot>();
    if ring.is_null() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    for at in 0..SLOTS {
        // SAFETY: within the allocation; no other thread knows it yet.
        unsafe { (*ring.add(at)).content.get().write(None) };
    }
    // ORDERING: Release the slots to `slots`. The caller holds the keeper's lock, so no other thread makes some.
    RING.store(ring, Release);
    Ok(())
}

fn slots() -> &'static [Slot] {
    let ring = RING.load(Acquire);
    match ring.is_null() {
        true => &[],
        // SAFETY: `prepare` made that many, and they stay.
        false => unsafe { std::slice::from_raw_parts(ring, SLOTS) },
    }
}

// SAFETY: the cells belong to the thread that moved `state`; see there.
unsafe impl Sync for Slot {}

/// A slot that is the caller's to fill.
pub(super) struct Claimed(&'static Slot);

/// Claims a slot. `None`: there is none, and the sample is counted as lost.
pub(super) fn claim(subject: Subject) -> Option<Claimed> {
    let slots = slots();
    for _ in 0..TRIES {
        let slot = slots.get(NEXT.fetch_add(1, Relaxed) as usize % SLOTS)?;
        // ORDERING: Acquire pairs with the keeper's Release: it is done with the cells.
        if slot.state.compare_exchange(FREE, CLAIMED, Acquire, Relaxed).is_ok() {
            return Some(Claimed(slot));
        }
    }
    LOST[usize::from(subject != Subject::Cpu)].fetch_add(1, Relaxed);
    None
}

impl Claimed {
    /// Fills the slot with the stack from `registers.sp` up: `own`, which is mapped, or another one.
    ///
    /// # Safety
    /// `own` is mapped and readable.
    pub(super) unsafe fn fill(self, sample: Sample, registers: Registers, own: Range<usize>) {
        // SAFETY: claimed.
        let words = unsafe { &mut *self.0.words.get() };
        // SAFETY: by the caller.
        let (len, foreign) = unsafe { stacks::copy(registers.sp, own.clone(), words) };
        let low = registers.sp & !(size_of::<usize>() - 1);
        let cut = !foreign && low + len * size_of::<usize>() < own.end;
        self.publish(Content { sample, registers, low, len, cut, foreign });
    }

    /// Fills the slot with the stack of a goroutine that is suspended, and that the caller owns.
    pub(super) fn fill_suspended(self, sample: Sample, g: &G) {
        let (Some(slot), true) = (g.slot(), g.started()) else { return self.fill_bare(sample) };
        let own = slot.stack();
        if let Some((at, _)) = g.interruption()
            && let Some(registers) = stacks::interrupted(g, at)
        {
            // SAFETY: slots are never unmapped.
            return unsafe { self.fill(sample, registers, own) };
        }
        let Some(sp) = g.suspended_sp() else { return self.fill_bare(sample) };
        // SAFETY: claimed.
        let words = unsafe { &mut *self.0.words.get() };
        // SAFETY: slots are never unmapped.
        let (len, foreign) = unsafe { stacks::copy(sp, own.clone(), words) };
        let Some(registers) = stacks::suspended(sp, &words[..len]) else { return self.fill_bare(sample) };
        let cut = !foreign && sp + len * size_of::<usize>() < own.end;
        self.publish(Content { sample, registers, low: sp, len, cut, foreign });
    }

    /// Fills the slot without a stack.
    fn fill_bare(self, sample: Sample) {
        let registers = Registers::default();
        self.publish(Content { sample, registers, low: 0, len: 0, cut: false, foreign: false });
    }

    fn publish(self, content: Content) {
        // SAFETY: claimed; the slot's content is `None`, so nothing is dropped.
        unsafe { self.0.content.get().write(Some(content)) };
        // ORDERING: Release what was written to the keeper.
        self.0.state.store(FULL, Release);
        if FILLED.fetch_add(1, Relaxed) % CALL_EVERY == CALL_EVERY - 1 {
            keeper::call();
        }
    }
}

/// Passes all samples to `f`, and frees their slots. By one thread at a time: the holder of the keeper's lock.
pub(super) fn drain(mut f: impl FnMut(Sample, Option<&Image<'_>>)) {
    for slot in slots() {
        // ORDERING: Acquire pairs with `publish`.
        if slot.state.load(Acquire) != FULL {
            continue;
        }
        // SAFETY: full, so the cells are the keeper's.
        let (content, words) = unsafe { (&mut *slot.content.get(), &mut *slot.words.get()) };
        if let Some(Content { sample, registers, low, len, cut, foreign }) = content.take() {
            let words = &mut words[..len];
            let image = Image { registers, low, words, cut, foreign };
            f(sample, (registers.ip != 0).then_some(&image));
            words.fill(0); // copies of addresses that `debug::leaked` looks for
        }
        // ORDERING: Release the cells to the next claim.
        slot.state.store(FREE, Release);
    }
}
