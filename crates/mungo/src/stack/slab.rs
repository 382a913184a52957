//! Stack slots: big mappings cut into equal pieces, pooled and reused.
//!
//! A slot is, from the top: a header, the goroutine's thread block (see [`tls`](super::tls)), the
//! stack, a guard page. Slots come in classes of a power of two. The pool is one for the process:
//! runtimes share it, and a slab is never unmapped.
//!
//! **Reserve, then take.** A spawn *reserves* room, which may map a slab and fail with a clear
//! error; a worker *takes* the slot when the goroutine first runs, which cannot fail. So a spawn
//! that was accepted is never lost for want of a stack, and a batch of short goroutines runs on one
//! hot slot after the other instead of a cold one each.
//!
//! Invariant, per class: slots mapped ≥ slots reserved; each [`SlotCache`] has reserved what it may hoard.

mod idle;

pub(crate) use idle::{mark, take_some_apart};

use super::guard::{self, Kind, Mapping};
use super::tls;
use crate::lock::Lock;
use crate::sys::page_size;
use crate::sys::say::say;
use idle::Bare;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bytes of the usual slot, guard page and thread block included.
pub(crate) const DEFAULT_SLOT: usize = 256 << 10;
/// Least bytes of stack of a goroutine that asks for nothing: with up to 58 KiB of thread-locals it gets the usual
/// slot.
const DEFAULT_STACK: usize = 192 << 10;
/// Bytes of the smallest stack that a goroutine may ask for: std's panic machinery needs most of it.
pub(crate) const MIN_STACK: usize = 16 << 10;
const MIN_CLASS: u32 = 15;
const MAX_CLASS: u32 = 34;
/// Most slots that a P keeps. TUNED: guess; enough that a burst of short goroutines stays within its P.
const CACHE_MAX: usize = 64;
/// Number of slots of the first slab of a class, doubled with each slab up to [`SLAB_MAX`].
const SLAB_MIN: usize = 32;
const SLAB_MAX: usize = 1024;
/// Number of new slots that a P gets room for at a time, when there are many already; it marks their guards with one
/// call. TUNED: 200,000 parked goroutines took 0.73 s with room for one, 0.65 s with this.
const FRESH_MAX: usize = 32;
/// Number of mapped slots for which one new slot is made: the measure of "many".
const FRESH_SHARE: usize = 64;
/// Number of different cache lines at which slots start: all at the same place would fight for a few cache sets.
/// TUNED: a yield among 1000 goroutines took 30 ns with 16 of them, and with slots of an odd number of pages; 47
/// without both. With 16, a goroutine that waits in `recv` needs a second page in every other slot: 6,486 bytes each
/// on average, 4,694 with 8 (`contestant parked_memory`). One that waits in `read` has more frames: an idle connection
/// of the echo server took 10,128 bytes with 8, and 9,104 with 4. A yield takes as long with 4 as with 8.
const COLOURS: usize = 4;

/// A class of slots: log2 of their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u32);

impl Class {
    pub(crate) const DEFAULT: Class = Class(DEFAULT_SLOT.trailing_zeros());

    /// Returns the class for goroutines that ask for nothing: the usual one, or a larger one if this program has many
    /// thread-locals.
    pub(crate) fn usual() -> io::Result<Class> {
        Class::for_stack(DEFAULT_STACK)
    }

    /// Returns the class with at least `stack_size` usable bytes.
    pub(crate) fn for_stack(stack_size: usize) -> io::Result<Class> {
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if stack_size < MIN_STACK {
            return refuse(format!("a stack of {stack_size} bytes is too small: ask for at least {MIN_STACK}"));
        }
        let tls = tls::layout().map_or(0, |l| l.below + l.above + l.align);
        let overhead = COLOURS * 64 + size_of::<Header>() + tls + page_size();
        match stack_size.checked_add(overhead).and_then(usize::checked_next_power_of_two) {
            Some(size) if size.trailing_zeros() <= MAX_CLASS => Ok(Class(size.trailing_zeros().max(MIN_CLASS))),
            _ => refuse(format!(
                "a stack of {stack_size} bytes, with {tls} bytes of thread-locals on top, is too large: \
                 the limit is 16 GiB"
            )),
        }
    }

    /// Returns the size in bytes: a power of two and a page (the guard's), an odd number of pages, so that the hot
    /// pages of the slots fall into different sets of the TLB.
    fn slot_size(self) -> usize {
        (1 << self.0) + page_size()
    }

    fn pool(self) -> &'static Lock<Pool> {
        static POOLS: [Lock<Pool>; (MAX_CLASS - MIN_CLASS + 1) as usize] =
            [const { Lock::new(Pool::EMPTY) }; (MAX_CLASS - MIN_CLASS + 1) as usize];
        &POOLS[(self.0 - MIN_CLASS) as usize]
    }

    /// Makes sure that `n` more slots can be taken.
    pub(crate) fn reserve(self, n: usize) -> io::Result<()> {
        let mut pool = self.pool().lock();
        while pool.reserved + n > pool.mapped {
            pool.map_slab(self)?;
        }
        pool.reserved += n;
        Ok(())
    }

    pub(crate) fn unreserve(self, n: usize) {
        self.pool().lock().reserved -= n;
    }

    /// Takes a slot that was reserved.
    pub(crate) fn take(self) -> Slot {
        let mut pool = self.pool().lock();
        if let Some(slot) = pool.pop(1).next() {
            return slot;
        }
        if let Some(bare) = pool.bare.pop() {
            drop(pool);
            return bare.build(self);
        }
        let mut fresh = pool.carve(self, 1);
        drop(pool);
        self.guard(&fresh);
        self.build_first(&mut fresh)
    }

    /// Marks the guards of slots that are to be built.
    fn guard(self, fresh: &Range<usize>) {
        if guard::kind() == Kind::Protected {
            return; // since the slab was mapped
        }
        let pages = fresh.clone().step_by(self.slot_size()).map(|at| at as *mut u8);
        // SAFETY: the bottoms of slots that are not in use yet.
        unsafe { guard::install_all(pages) }.unwrap_or_else(|e| fatal("a stack's guard page", &e));
    }

    /// Builds the first slot of a range that was carved and guarded, and takes it off.
    fn build_first(self, fresh: &mut Range<usize>) -> Slot {
        let at = fresh.start;
        fresh.start += self.slot_size();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // SAFETY: by `carve` the range is the caller's alone.
        unsafe { Slot::build(at as *mut u8, self, NEXT.fetch_add(1, Relaxed)) }
    }

    /// Returns a slot; the reservation stays.
    pub(crate) fn give(self, slot: Slot) {
        self.pool().lock().free.push_back(slot);
    }
}

/// Lies at the top of a slot, below its colour.
#[repr(C, align(64))]
struct Header {
    class: Class,
    /// Bytes left unused above, so that the hot lines of the slots fall into different cache sets.
    colour: usize,
    /// Its number, no other slot's; its block's thread id and its colour come from it.
    index: u32,
}

/// A stack, owned. Dropping one leaks it: it goes back by [`Class::give`] or [`SlotCache::give`].
#[derive(Debug)]
pub(crate) struct Slot(NonNull<Header>);

// SAFETY: a slot is memory with one owner.
unsafe impl Send for Slot {}

impl Slot {
    /// Makes the slot that begins at `at`, all but its guard.
    ///
    /// # Safety
    /// The range `at..at + slot_size` was carved from a slab for this slot alone, and is zero from the stack's highest
    /// address on. `index` is no other slot's.
    unsafe fn build(at: *mut u8, class: Class, index: u32) -> Slot {
        // SAFETY: by the caller.
        unsafe {
            let colour = index as usize % COLOURS * 64;
            let header = at.add(class.slot_size() - colour - size_of::<Header>()).cast::<Header>();
            header.write(Header { class, colour, index });
            let slot = Slot(NonNull::new_unchecked(header));
            if let Ok(layout) = tls::layout()
                && let Err(e) = layout.create(slot.thread_block(layout), tls::FIRST_TID + index, slot.stack())
            {
                fatal("a goroutine's thread-locals", &e);
            }
            slot
        }
    }

    /// Returns it as a word, to be made a slot again by [`from_raw`](Self::from_raw).
    pub(crate) fn into_raw(self) -> *mut () {
        self.0.as_ptr().cast()
    }

    /// Makes it a slot again; `None` for null.
    ///
    /// # Safety
    /// `raw` is null or from [`into_raw`](Self::into_raw), and the caller does not give one slot back twice.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: *mut ()) -> Option<Slot> {
        NonNull::new(raw.cast()).map(Slot)
    }

    fn header(&self) -> &Header {
        // SAFETY: the slot's owner holds it; `build` wrote it.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn class(&self) -> Class {
        self.header().class
    }

    /// Returns the thread pointer of the goroutine on this slot; 0 with shared thread-locals.
    #[inline]
    pub(crate) fn thread_pointer(&self) -> usize {
        tls::layout().map_or(0, |layout| self.thread_block(layout) as usize)
    }

    /// Returns the thread block's address. Computed rather than kept in the header, which is a cold line when a
    /// goroutine starts or ends; so is `base`.
    #[inline]
    fn thread_block(&self, layout: &tls::Layout) -> *mut u8 {
        ((self.0.as_ptr() as usize - layout.above) & !(layout.align - 1)) as *mut u8
    }

    /// Returns the stack's highest address.
    #[inline]
    pub(crate) fn base(&self) -> usize {
        match tls::layout() {
            Ok(layout) => (self.thread_block(layout) as usize - layout.below) & !63,
            Err(_) => self.0.as_ptr() as usize,
        }
    }

    /// Returns the lowest address of the slot, where the guard page is.
    #[inline]
    pub(crate) fn limit(&self) -> usize {
        self.0.as_ptr() as usize + size_of::<Header>() + self.header().colour - self.class().slot_size()
    }

    /// Returns the address behind its highest one, the header's.
    pub(crate) fn end(&self) -> usize {
        self.limit() + self.class().slot_size()
    }

    pub(crate) fn guard(&self) -> Range<usize> {
        self.limit()..self.limit() + page_size()
    }

    /// Returns the addresses that the goroutine may use.
    pub(crate) fn stack(&self) -> Range<usize> {
        self.guard().end..self.base()
    }

    /// Takes back what the sanitizer has noted about the frames of an ended goroutine. The outermost ones never return,
    /// so that their borders would be found inside the frames of the next goroutine. Covers the upper 32 KiB, whose
    /// notes are one page that those frames have touched: all notes of a million stacks would not fit into memory.
    #[cfg(mungo_asan)]
    pub(crate) fn unpoison(&self) {
        unsafe extern "C" {
            fn __asan_unpoison_memory_region(at: *const libc::c_void, size: usize);
        }
        let stack = self.stack();
        let size = stack.len().min(32 << 10);
        // SAFETY: the stack is mapped, and no goroutine runs on it.
        unsafe { __asan_unpoison_memory_region((stack.end - size) as *const libc::c_void, size) };
    }

    /// Runs the destructors of the goroutine's thread-locals.
    ///
    /// # Safety
    /// Called by the goroutine on this slot, at its end.
    #[inline]
    pub(crate) unsafe fn run_tls_destructors(&self) {
        if let Ok(layout) = tls::layout() {
            // SAFETY: by the caller.
            unsafe { layout.run_destructors(self.thread_block(layout)) }
        }
    }

    /// Makes the thread block as good as new.
    ///
    /// # Safety
    /// The goroutine is at its end, its destructors have run, and there is no reference to its thread-locals.
    #[inline]
    pub(crate) unsafe fn reset_tls(&self) {
        if let Ok(layout) = tls::layout() {
            // SAFETY: by the caller.
            unsafe { layout.reset(self.thread_block(layout)) }
        }
    }

    /// Ends the thread block, as a thread's at its end. Returns `false` if it cannot be done, and the block is as it
    /// was.
    ///
    /// # Safety
    /// The slot has no goroutine; [`reset_tls`](Self::reset_tls) was called after the last one. If it was done, the
    /// block is not used again.
    unsafe fn end_tls(&self) -> bool {
        match tls::layout() {
            // SAFETY: by the caller.
            Ok(layout) => unsafe { layout.destroy(self.thread_block(layout)) },
            Err(_) => true,
        }
    }
}

/// The slots of one class.
struct Pool {
    /// Free slots, the most recently used at the back.
    free: VecDeque<Slot>,
    /// Number of slots at the front of `free` that cannot be taken apart before they are used again. Part of the next
    /// three numbers.
    stuck: usize,
    /// Number of slots at the front of `free` that were idle for long, and are to be taken apart.
    due: usize,
    /// Number of slots at the front of `free` that have had their pages dropped.
    trimmed: usize,
    /// The least length of `free` since the last mark: as many at its front lay idle all the time.
    low_water: usize,
    /// Slots that were taken apart.
    bare: Vec<Bare>,
    /// Pieces of slabs that were never used: next slot, end.
    uncarved: Vec<Range<usize>>,
    mapped: usize,
    reserved: usize,
}

impl Pool {
    const EMPTY: Pool = Pool {
        free: VecDeque::new(),
        stuck: 0,
        due: 0,
        trimmed: 0,
        low_water: 0,
        bare: Vec::new(),
        uncarved: Vec::new(),
        mapped: 0,
        reserved: 0,
    };

    /// Takes the `most` slots that were last used.
    fn pop(&mut self, most: usize) -> impl Iterator<Item = Slot> {
        let left = self.free.len().saturating_sub(most);
        self.stuck = self.stuck.min(left);
        self.due = self.due.min(left);
        self.trimmed = self.trimmed.min(left);
        self.low_water = self.low_water.min(left);
        self.free.drain(left..)
    }

    /// Returns room for slots that were never used: for one, and for up to `most` when there are many already.
    fn carve(&mut self, class: Class, most: usize) -> Range<usize> {
        let n = (self.mapped / FRESH_SHARE).clamp(1, most);
        let rest = self.uncarved.last_mut().expect("reserved before taken");
        let fresh = rest.start..rest.end.min(rest.start + n * class.slot_size());
        rest.start = fresh.end;
        if rest.start == rest.end {
            self.uncarved.pop();
        }
        fresh
    }

    fn map_slab(&mut self, class: Class) -> io::Result<()> {
        let size = class.slot_size();
        // Huge stacks come one by one; the others by the dozen.
        let most = if class.0 > Class::DEFAULT.0 { (DEFAULT_SLOT * SLAB_MIN / size).max(1) } else { SLAB_MAX };
        let mut slots = self.mapped.clamp(SLAB_MIN.min(most), most);
        let guards = guard::kind_now();
        if guards == Kind::Protected {
            slots = slots.min(SLAB_MIN);
        }
        let explain = |e: io::Error| {
            io::Error::new(
                e.kind(),
                format!(
                    "no memory for more goroutine stacks of {size} bytes ({} are mapped): {e}; \
                     use smaller stacks or fewer goroutines{}",
                    self.mapped,
                    match guards {
                        Kind::Marked => "",
                        Kind::Protected =>
                            ", or raise vm.max_map_count (this kernel, or locked memory, needs two mappings a stack)",
                    }
                ),
            )
        };
        let mapping = loop {
            match Mapping::new(slots * size) {
                Ok(mapping) => break mapping,
                // Close to a limit: few are better than none. But something must be left for others, such as malloc.
                Err(_) if slots > SLAB_MIN => slots = (slots / 2).max(SLAB_MIN),
                Err(e) => return Err(explain(e)),
            }
        };
        // SAFETY: advice about a fresh mapping; guard pages at the bottom of slots that are not in use yet.
        unsafe {
            libc::madvise(mapping.base.cast(), slots * size, libc::MADV_NOHUGEPAGE);
            if guards == Kind::Protected {
                guard::protect_all((0..slots).map(|i| mapping.base.add(i * size))).map_err(explain)?;
            }
        }
        let base = mapping.keep() as usize;
        SLABS.lock().push(base..base + slots * size);
        self.uncarved.push(base..base + slots * size);
        self.mapped += slots;
        // Room for all, so that giving slots back never allocates.
        self.free.reserve(self.mapped - self.free.len());
        self.bare.reserve(self.mapped - self.bare.len());
        Ok(())
    }
}

/// All slabs of the process; they are never unmapped. Its lock is taken after a pool's.
static SLABS: Lock<Vec<Range<usize>>> = Lock::new(Vec::new());

pub(crate) fn slabs() -> Vec<Range<usize>> {
    SLABS.lock().clone()
}

/// A P's own slots, a few, and its reservations; no lock on the fast path.
#[derive(Debug)]
pub(crate) struct SlotCache {
    class: Class,
    free: Vec<Slot>,
    /// Room for slots that were never used, with their guards.
    fresh: Range<usize>,
    /// Number of slots to come that malloc has room for.
    roomy: usize,
    /// Number of slots that may be spawned on without asking the pool.
    credits: usize,
}

impl SlotCache {
    /// Most slots that it keeps from other Ps.
    const HOARD: usize = CACHE_MAX + FRESH_MAX;

    pub(crate) fn new(class: Class) -> io::Result<Self> {
        class.reserve(Self::HOARD)?;
        Ok(SlotCache { class, free: Vec::with_capacity(CACHE_MAX), fresh: 0..0, roomy: 0, credits: 0 })
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Reserves one slot of this class.
    #[inline]
    pub(crate) fn reserve(&mut self) -> io::Result<()> {
        if self.credits == 0 {
            self.reserve_slow()?;
        }
        self.credits -= 1;
        Ok(())
    }

    #[cold]
    fn reserve_slow(&mut self) -> io::Result<()> {
        let want = if self.class.reserve(CACHE_MAX).is_ok() { CACHE_MAX } else { 1 };
        if want == 1 {
            self.class.reserve(1)?;
        }
        self.credits += want;
        Ok(())
    }

    /// Gives a reservation back.
    #[inline]
    pub(crate) fn unreserve(&mut self) {
        self.credits += 1;
        if self.credits > 2 * CACHE_MAX {
            self.class.unreserve(CACHE_MAX);
            self.credits -= CACHE_MAX;
        }
    }

    /// Takes a slot, the most recently used first. It was reserved before.
    #[inline]
    pub(crate) fn take(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| self.take_slow())
    }

    #[cold]
    fn take_slow(&mut self) -> Slot {
        if self.fresh.is_empty() {
            let mut pool = self.class.pool().lock();
            self.free.extend(pool.pop(CACHE_MAX / 2));
            if let Some(slot) = self.free.pop() {
                return slot;
            }
            if let Some(bare) = pool.bare.pop() {
                drop(pool);
                return bare.build(self.class);
            }
            self.fresh = pool.carve(self.class, FRESH_MAX);
            drop(pool);
            self.class.guard(&self.fresh);
            tls::make_room(self.fresh.len() / self.class.slot_size(), &mut self.roomy);
        }
        self.class.build_first(&mut self.fresh)
    }

    #[inline]
    pub(crate) fn give(&mut self, slot: Slot) {
        if self.free.len() == CACHE_MAX {
            let mut pool = self.class.pool().lock();
            // The oldest half goes: the newest is the warmest.
            pool.free.extend(self.free.drain(..CACHE_MAX / 2));
        }
        self.free.push(slot);
    }

    /// Returns whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty() && self.fresh.is_empty() && self.credits == 0
    }

    /// Hands everything back to the pool, where idle stacks are trimmed.
    pub(crate) fn flush(&mut self) {
        let mut pool = self.class.pool().lock();
        pool.free.extend(self.free.drain(..));
        if !self.fresh.is_empty() {
            pool.uncarved.push(std::mem::take(&mut self.fresh));
        }
        pool.reserved -= std::mem::take(&mut self.credits);
    }
}

impl Drop for SlotCache {
    fn drop(&mut self) {
        self.flush();
        self.class.unreserve(Self::HOARD);
    }
}

/// Ends the process: the kernel refused a page to a goroutine that was accepted, as with any allocation.
#[cold]
fn fatal(what: &str, e: &io::Error) -> ! {
    say!("mungo: out of memory for {what}: {e}");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_grow_with_their_number() {
        // A class of its own: the runtimes of other tests give parts of slabs back to the pool of theirs.
        let class = Class::for_stack(100 << 10).unwrap();
        class.reserve(3000).unwrap();
        let slabs = class.pool().lock().uncarved.len();
        class.unreserve(3000);
        if guard::kind() == Kind::Marked {
            assert!(slabs <= 10, "{slabs} slabs for 3000 stacks");
        }
    }

    #[test]
    fn stacks_that_are_made_together_have_a_guard_each() {
        let class = Class::for_stack(40 << 10).unwrap();
        let mut cache = SlotCache::new(class).unwrap();
        (0..1000).for_each(|_| cache.reserve().unwrap());
        let slots: Vec<Slot> = (0..1000).map(|_| cache.take()).collect();
        assert!(!cache.fresh.is_empty(), "one at a time");
        for slot in &slots {
            let readable = |at: usize| crate::sys::is_readable(at & !(size_of::<usize>() - 1));
            assert!(!readable(slot.guard().start) && !readable(slot.guard().end - 1));
            assert!(readable(slot.guard().end) && readable(slot.base() - 1));
        }
        for slot in slots {
            cache.give(slot);
            cache.unreserve();
        }
        drop(cache);
        let pool = class.pool().lock();
        assert_eq!((pool.reserved, pool.free.len()), (0, 1000));
        let never_used: usize = pool.uncarved.iter().map(|part| part.len() / class.slot_size()).sum();
        assert_eq!(1000 + never_used, pool.mapped, "each slot can be taken again");
    }

    #[test]
    fn who_takes_slots_moves_the_marks_of_trimming() {
        let class = Class::for_stack(7 << 20).unwrap();
        class.reserve(4).unwrap();
        let slots: Vec<Slot> = (0..4).map(|_| class.take()).collect();
        slots.into_iter().for_each(|slot| class.give(slot));
        let mut pool = class.pool().lock();
        (pool.trimmed, pool.low_water) = (4, 4);
        let taken: Vec<Slot> = pool.pop(3).collect();
        assert_eq!((taken.len(), pool.free.len(), pool.trimmed, pool.low_water), (3, 1, 1, 1));
        drop(pool);
        taken.into_iter().for_each(|slot| class.give(slot));
        class.unreserve(4);
    }
}
