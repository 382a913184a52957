//! malloc's cache of a thread (`tcache`), which goroutines share with the thread that they run on.
//!
//! glibc keeps up to seven free chunks of each of 64 sizes per thread, and frees them when the thread ends. A block
//! never ends as a thread does: a cache of its own would hold 74 KiB out of use, for each goroutine that ever ran at
//! the same time as others. So the M writes the address of its thread's cache into a block whenever it moves there.
//! The cache is used by one OS thread only, as before: code within malloc is never moved to another one
//! (`sched/threads/preempt.rs`). glibc finds it by a pointer in its thread-locals, whose place is found out here; what
//! it points to is glibc's business.
//!
//! WHY NOT empty a block's cache at its goroutine's end: that is the slow path of malloc, 450 times. WHY NOT switch it
//! off in blocks: then every malloc of a goroutine takes a lock.

use super::{Word, thread_pointer};
use crate::sys::is_readable;
use std::ffi::c_void;
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The offset of glibc's pointer from the thread pointer, in bytes; 0: not known, each block has a cache of its own.
/// Written once, before the first block is made.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

/// The offset of the word in which a block says which cache it uses (`Words::malloc_cache`); 0: nowhere. TUNED: a look
/// there spares a switch among a thousand goroutines a cold cache line, 4 of 46 ns.
static COPY_OFFSET: AtomicUsize = AtomicUsize::new(0);

pub(super) fn set_offset(offset: usize, copy: usize) {
    OFFSET.store(offset, Relaxed);
    COPY_OFFSET.store(copy, Relaxed);
}

/// Returns the address of the calling thread's cache, made if need be; 0: not known. The thread is on its own block.
pub(crate) fn own_malloc_cache() -> usize {
    let offset = OFFSET.load(Relaxed);
    if offset == 0 {
        return 0;
    }
    give_back(take(SIZES[0])); // a thread gets its cache with its first chunk
    // SAFETY: a word of the block that this thread is on.
    unsafe { super::word_at(offset) }
}

/// Lets the block `tp` use the cache of the calling thread, as [`own_malloc_cache`] named it.
///
/// # Safety
/// The caller is about to move its thread to the block.
#[inline(always)]
pub(crate) unsafe fn share_malloc_cache(tp: usize, cache: usize) {
    let copy = COPY_OFFSET.load(Relaxed);
    // SAFETY: words of each block, the first one among those that a switch touches anyway.
    unsafe {
        if copy != 0 {
            let known = tp.wrapping_add(copy) as *mut Word;
            if known.read() == cache {
                return;
            }
            known.write(cache);
        }
        if cache != 0 {
            (tp.wrapping_add(OFFSET.load(Relaxed)) as *mut Word).write(cache);
        }
    }
}

/// Sizes in bytes of chunks of different lists, both in the cache.
const SIZES: [usize; 2] = [24, 200];
/// Number of words of the cache that are looked at: 80 in glibc 2.26 to 2.41, and 95 since.
const CACHE_WORDS: usize = 96;

/// Looks for the pointer among the thread-locals `part` of libc, those of the calling thread: the one word that leads
/// to where chunks appear when they are freed, and from where they vanish when they are allocated again. `None`: there
/// is no such word, or more than one.
pub(super) fn find(part: Range<usize>) -> Option<isize> {
    let chunks = SIZES.map(take);
    chunks.into_iter().for_each(give_back);
    let leads_to_all = |at: &usize| chunks.iter().all(|&chunk| holds(*at, chunk));
    let words = part.step_by(size_of::<Word>());
    let mut candidates = words.filter(|at| leads_to_all(at));
    let found = candidates.next().filter(|_| candidates.next().is_none());
    let again = SIZES.map(take);
    let is_cache = again == chunks && found.is_some_and(|at| !chunks.iter().any(|&chunk| holds(at, chunk)));
    again.into_iter().for_each(give_back);
    found.filter(|_| is_cache).map(|at| at.wrapping_sub(thread_pointer()) as isize)
}

/// Returns whether the word at `at` points to readable memory that begins with words of which one is `value`.
fn holds(at: usize, value: usize) -> bool {
    // SAFETY: a word of libc's thread-locals, by the caller.
    let to = unsafe { (at as *const Word).read() };
    to.is_multiple_of(size_of::<Word>())
        && (0..CACHE_WORDS).map(|i| to.wrapping_add(i * size_of::<Word>())).any(|word| {
            // SAFETY: readable. No other thread writes what could be the cache of this one.
            is_readable(word) && unsafe { (word as *const Word).read_volatile() } == value
        })
}

fn take(size: usize) -> usize {
    // SAFETY: any size will do. The compiler must not leave it out.
    black_box(unsafe { libc::malloc(size) }) as usize
}

fn give_back(chunk: usize) {
    // SAFETY: from `take`.
    unsafe { libc::free(black_box(chunk) as *mut c_void) }
}
