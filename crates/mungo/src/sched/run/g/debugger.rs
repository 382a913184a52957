//! What a debugger has to know of Gs, under a name that it finds: `gdb/mungo.py` of the crate reads it, also in a core
//! file, and without the compiler's descriptions of types.

use super::G;
use crate::reason::WaitReason;
use crate::sched::run::m::M;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Relaxed, Release},
};

/// Raised when the meaning of a field changes. The script names the version that it knows.
const VERSION: usize = 1;

/// The layout, in bytes from the beginning of a G or an M, and where to begin.
#[repr(C)]
pub(super) struct Layout {
    version: usize,
    /// The chunk that was made last.
    chunks: AtomicPtr<Chunk>,
    size_of_g: usize,
    state: usize,
    m: usize,
    slot: usize,
    /// The coroutine, whose first word is the stack pointer; `usize::MAX` where it is another one's.
    coro: usize,
    reason: usize,
    id: usize,
    name: usize,
    interrupted_at: usize,
    announced: usize,
    g_of_m: usize,
    tid_of_m: usize,
    /// The words for reasons to wait, by number.
    reasons: [Word; WaitReason::ALL.len()],
    number_of_reasons: usize,
}

#[repr(C)]
struct Word {
    text: *const u8,
    len: usize,
}

/// Some Gs, which lie one after the other. Never freed.
#[repr(C)]
struct Chunk {
    gs: *const G,
    len: usize,
    next: *mut Chunk,
}

// SAFETY: it is written here alone, and read by a debugger, while the process stands still.
unsafe impl Sync for Layout {}

/// Whether a suspended coroutine begins with its stack pointer: see `stack/coro/x86_64.rs`.
const HAS_STACK_POINTER: bool =
    cfg!(all(target_arch = "x86_64", target_os = "linux", not(mungo_corosensei), not(miri)));

#[used]
#[unsafe(no_mangle)]
static mungo_layout_of_goroutines: Layout = Layout {
    version: VERSION,
    chunks: AtomicPtr::new(null_mut()),
    size_of_g: size_of::<G>(),
    state: offset_of!(G, state),
    m: offset_of!(G, m),
    slot: offset_of!(G, slot),
    coro: if HAS_STACK_POINTER { offset_of!(G, coro) } else { usize::MAX },
    reason: offset_of!(G, reason),
    id: offset_of!(G, id),
    name: offset_of!(G, name),
    interrupted_at: offset_of!(G, interrupted_at),
    announced: offset_of!(G, announced),
    g_of_m: offset_of!(M, g),
    tid_of_m: offset_of!(M, tid),
    reasons: words(),
    number_of_reasons: WaitReason::ALL.len(),
};

const fn words() -> [Word; WaitReason::ALL.len()] {
    let mut words = [const { Word { text: std::ptr::null(), len: 0 } }; WaitReason::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        let text = WaitReason::ALL[at].as_str();
        words[at] = Word { text: text.as_ptr(), len: text.len() };
        at += 1;
    }
    words
}

/// Adds a chunk. The caller holds the pool's lock.
pub(super) fn list(gs: &'static [G]) {
    let chunks = &mungo_layout_of_goroutines.chunks;
    let next = chunks.load(Relaxed);
    let chunk = Box::leak(Box::new(Chunk { gs: gs.as_ptr(), len: gs.len(), next }));
    chunks.store(chunk, Release); // ORDERING: a debugger that stops the process here finds the chunk written
}
