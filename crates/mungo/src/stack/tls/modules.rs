//! The thread-locals of the program and its libraries in a goroutine's block.
//!
//! A block has room for those of all modules that were there at the start, and some for libraries that are loaded
//! later and ask for *static* ones. The C library initialises these in the blocks of all threads when it loads such a
//! library; mungo does so in those of goroutines ([`adopt`]), and puts all of them back at a goroutine's end
//! ([`refresh`]). Others are made on demand, and freed at a goroutine's end.

use super::vector::{self, Template};
use super::{Layout, Word, blocks, layout, surplus};
use crate::sys::{membarrier, modules, page_size};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A module's static thread-locals.
#[derive(Clone, Debug)]
pub(super) struct Module {
    /// Offset from the thread pointer, in bytes.
    offset: isize,
    /// The address of the image in the library. The library may go away: so only to know it again.
    source: usize,
    /// A copy of the image, never freed.
    image: &'static [u8],
    /// Bytes of the whole; those behind the image are zero.
    total_len: usize,
}

/// The modules that start afresh with each goroutine: all but libc's and ld.so's. Replaced as a whole, under the lock
/// of [`adopt_for`], and never freed.
static FRESH: AtomicPtr<Vec<Module>> = AtomicPtr::new(std::ptr::null_mut());

fn fresh() -> &'static [Module] {
    // SAFETY: null, or leaked by `publish`. ORDERING: Acquire pairs with it.
    unsafe { FRESH.load(Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

fn publish(modules: Vec<Module>) {
    // ORDERING: Release what is in it.
    FRESH.store(Box::leak(Box::new(modules)), Release);
}

/// The modules that stay as they are when a goroutine ends: libc's and ld.so's. Never unloaded.
static KEPT: OnceLock<Vec<Module>> = OnceLock::new();

/// The modules that the loader reports.
pub(super) struct Found {
    fresh: Vec<Module>,
    kept: Vec<Module>,
    /// That of libc, if malloc is its own.
    pub(super) libc: Option<Module>,
    /// The lowest offset from the thread pointer at which a module has thread-locals, and the lowest of those that were
    /// loaded to take room.
    pub(super) lowest: isize,
    pub(super) taken_from: isize,
    /// What the vectors of new blocks are made from.
    pub(super) template: Template,
    /// Whether there are modules whose thread-locals are made on demand.
    pub(super) dynamic: bool,
}

/// Looks for the modules, before the first block is made.
pub(super) fn find(layout: &Layout) -> Result<Found, &'static str> {
    let mut found = scan(layout)?;
    membarrier::is_present(); // asks before the first block is made
    publish(std::mem::take(&mut found.fresh));
    KEPT.get_or_init(|| std::mem::take(&mut found.kept));
    Ok(found)
}

/// Gives all goroutines the static thread-locals of new libraries, as a new thread has them, after libraries were
/// loaded or unloaded. No goroutine can have touched these before `dlopen` returns.
pub(crate) fn adopt() {
    if let Ok(layout) = layout() {
        adopt_for(layout);
    }
}

pub(super) fn adopt_for(layout: &Layout) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Without memory nothing is known, and goroutines might see what another library left there.
    let Ok(Found { fresh: now, .. }) = scan(layout) else { std::process::abort() };
    let known = fresh();
    if now.len() == known.len() && now.iter().all(|module| module.is_in(known)) {
        return;
    }
    publish(now);
    membarrier::heavy(); // ORDERING: pairs with `light` in `refresh`
    // A block that is being made is in the list already, or its thread-locals are made after the library was loaded.
    let new: Vec<_> = fresh().iter().filter(|module| !module.is_in(known)).collect();
    // SAFETY: see above; the memory is part of each block.
    blocks::each(|tp| new.iter().for_each(|module| unsafe { module.put(tp) }));
}

/// Initialises all static thread-locals of the block `tp`.
///
/// # Safety
/// The block is the caller's, and was never used.
pub(super) unsafe fn fill(tp: *mut u8) {
    // SAFETY: by the caller.
    unsafe {
        KEPT.get().into_iter().flatten().for_each(|module| module.put(tp));
        refresh(tp);
    }
}

/// Puts all thread-locals in the block `tp` back to their initial values.
///
/// # Safety
/// As [`Layout::reset`].
#[inline]
pub(super) unsafe fn refresh(tp: *mut u8) {
    loop {
        let modules = fresh();
        // SAFETY: by the caller.
        modules.iter().for_each(|module| unsafe { module.put(tp) });
        // A library may have gone meanwhile, and another one have come in its place. If that is not seen here, what
        // was just written is visible before `adopt_for` writes to the blocks.
        membarrier::light(); // ORDERING: pairs with `heavy` in `adopt_for`
        if std::ptr::eq(modules, fresh()) {
            return;
        }
    }
}

impl Module {
    /// # Safety
    /// Nothing refers to these thread-locals of the block `tp`.
    #[inline]
    unsafe fn put(&self, tp: *mut u8) {
        // SAFETY: by the caller; the loader gave the module this part of each block.
        unsafe {
            let at = tp.offset(self.offset);
            self.image.as_ptr().copy_to_nonoverlapping(at, self.image.len());
            zero(at.add(self.image.len()), self.total_len - self.image.len());
        }
    }

    /// Returns where it is in the block `tp`.
    pub(super) fn range(&self, tp: usize) -> Range<usize> {
        let start = tp.wrapping_add_signed(self.offset);
        start..start + self.total_len
    }

    /// Returns the numbers of the words that differ from the initial image in the block `tp`.
    ///
    /// # Safety
    /// It is a block, and no thread writes there meanwhile.
    pub(super) unsafe fn changed_words(&self, tp: *const u8) -> impl Iterator<Item = usize> {
        const WORD: usize = size_of::<Word>();
        let (at, image) = (tp.wrapping_offset(self.offset), self.image);
        (0..self.total_len / WORD).filter(move |i| {
            // SAFETY: by the caller; the module lies in each block.
            (i * WORD..(i + 1) * WORD).any(|b| unsafe { at.add(b).read() } != *image.get(b).unwrap_or(&0))
        })
    }

    fn is_in(&self, others: &[Module]) -> bool {
        let key = |m: &Module| (m.offset, m.source, m.total_len);
        others.iter().any(|other| key(other) == key(self) && other.image == self.image)
    }
}

/// Bytes from which zeroed thread-locals are pages that the kernel makes when they are touched. TUNED: guess.
const LARGE: usize = 64 << 10;

/// Clears a part of a slot; the pages of a large one go back to the kernel.
#[inline]
unsafe fn zero(at: *mut u8, len: usize) {
    // SAFETY: by the caller.
    unsafe {
        match len < LARGE {
            true => at.write_bytes(0, len),
            false => zero_large(at, len),
        }
    }
}

#[cold]
unsafe fn zero_large(at: *mut u8, len: usize) {
    let page = page_size();
    let (start, end) = (at as usize, at as usize + len);
    let (first, last) = (start.next_multiple_of(page), end & !(page - 1));
    // SAFETY: by the caller: private anonymous memory that it owns. The kernel refuses to drop locked pages.
    unsafe {
        if libc::madvise(first as *mut c_void, last - first, libc::MADV_DONTNEED) == 0 {
            at.write_bytes(0, first - start);
            (last as *mut u8).write_bytes(0, end - last);
        } else {
            at.write_bytes(0, len);
        }
    }
}

/// A block that no thread uses. glibc makes it as for a new thread, and so says where each module's static
/// thread-locals are; in the vector of a thread that exists it may leave those of later libraries out.
struct Pattern<'a> {
    tp: *mut u8,
    layout: &'a Layout,
    _memory: Vec<u8>,
}

impl Pattern<'_> {
    fn new(layout: &Layout) -> Result<Pattern<'_>, &'static str> {
        let below = layout.below.max(layout.static_tls.start.unsigned_abs());
        let memory = vec![0u8; below + layout.above + 2 * layout.align];
        let tp = (memory.as_ptr() as usize + below).next_multiple_of(layout.align) as *mut u8;
        // SAFETY: room for a block, as in `Layout::create`.
        match unsafe { (layout.allocate_tls)(tp.cast()) }.is_null() {
            true => Err("no memory to look at a thread's layout"),
            false => Ok(Pattern { tp, layout, _memory: memory }),
        }
    }
}

impl Drop for Pattern<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the memory itself is this value's.
        unsafe { (self.layout.deallocate_tls)(self.tp.cast(), false) };
    }
}

/// Asks the loader for the modules with static TLS that start afresh with each goroutine. Looks no symbol up: the lock
/// for that is held while constructors run, and one of them may wait for the lock of [`adopt_for`].
fn scan(layout: &Layout) -> Result<Found, &'static str> {
    let pattern = Pattern::new(layout)?;
    let (malloc, call_tls_dtors) = (layout.malloc, layout.call_tls_dtors as usize);
    let keepers = [call_tls_dtors, layout.allocate_tls as usize, malloc];
    let (mut fresh, mut kept, mut libc, mut dynamic) = (Vec::new(), Vec::new(), None, false);
    let (mut lowest, mut taken_from) = (0, 0);
    modules::each(|info, headers| {
        let Some(tls) = headers.iter().find(|h| h.p_type == libc::PT_TLS) else { return };
        // SAFETY: glibc made the pattern.
        let at = unsafe { vector::address(pattern.tp, info.dlpi_tls_modid) };
        let offset = at.map(|at| at.wrapping_sub(pattern.tp as usize) as isize);
        let Some(offset) = offset.filter(|offset| layout.static_tls.contains(offset)) else {
            dynamic = true;
            return;
        };
        if surplus::is_ours(info.dlpi_addr as usize) {
            taken_from = taken_from.min(offset);
            return; // no code refers to it
        }
        lowest = lowest.min(offset);
        let source = (info.dlpi_addr + tls.p_vaddr) as usize;
        // SAFETY: a segment of a module, which is loaded while it is shown.
        let image = unsafe { std::slice::from_raw_parts(source as *const u8, tls.p_filesz as usize) };
        let image = match known_image(offset, source, image) {
            Some(known) => known,
            None => Box::leak(image.to_vec().into_boxed_slice()),
        };
        let module = Module { offset, source, image, total_len: tls.p_memsz as usize };
        let holds = |at: usize| {
            headers.iter().any(|h| {
                h.p_type == libc::PT_LOAD && (at as u64).wrapping_sub(info.dlpi_addr + h.p_vaddr) < h.p_memsz
            })
        };
        // The executable itself is never kept, even if its malloc is its own.
        let main = info.dlpi_name.is_null()
            // SAFETY: a C string of the loader's.
            || unsafe { *info.dlpi_name } == 0;
        match !main && keepers.iter().any(|&at| holds(at)) {
            true => {
                if holds(malloc) && holds(call_tls_dtors) {
                    libc = Some(module.clone());
                }
                kept.push(module);
            }
            false => fresh.push(module),
        }
    });
    // SAFETY: glibc made the pattern.
    let template = unsafe { Template::new(pattern.tp) };
    match kept.is_empty() {
        true => Err("libc's own thread-locals were not found"),
        false => Ok(Found { fresh, kept, libc, lowest, taken_from, template, dynamic }),
    }
}

/// Returns the copy of this image that there is already.
fn known_image(offset: isize, source: usize, image: &[u8]) -> Option<&'static [u8]> {
    let mut all = fresh().iter().chain(KEPT.get().into_iter().flatten());
    let known = all.find(|m| m.offset == offset && m.source == source && m.image == image);
    known.map(|module| module.image)
}
