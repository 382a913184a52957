//! All Gs of the process: allocated in chunks, never freed.

use super::{G, GPtr};
use crate::policies::Node;
use crate::sched::engine::hooks::Goroutines;
use crate::sched::run::lock::Lock;
use crate::sched::shared::Shared;
use std::alloc::{self, Layout};

/// Gs of the first chunk. Each further chunk has as many as there are, up to [`CHUNK_MAX`].
const CHUNK_MIN: usize = 64;
/// The most Gs of a chunk. TUNED: large enough that malloc asks the kernel for each, instead of growing its heap page
/// by page. With their nodes one by one, and chunks of 64, a million goroutines made it do so 60,000 times.
const CHUNK_MAX: usize = 1024;
/// Bytes of a chunk once there are [`MANY`] Gs: a huge page, which is one fault instead of 512.
/// TUNED: `contestant parked_memory n=1000000`: see `HUGE_GS`.
const HUGE: usize = 2 << 20;
/// Gs of such a chunk.
const HUGE_GS: usize = HUGE / (size_of::<G>() + size_of::<Node>());
/// Number of Gs from which chunks are huge pages: a chunk that is hardly used adds at most an eighth.
const MANY: usize = 8 * HUGE_GS;

struct Pool {
    free: Vec<GPtr>,
    chunks: Vec<&'static [G]>,
}
static POOL: Lock<Pool> = Lock::new(Pool { free: Vec::new(), chunks: Vec::new() });

/// Adds idle Gs to `into`: at least one, at most `n`.
#[cold]
pub(crate) fn refill(into: &mut Vec<GPtr>, n: usize) {
    let mut pool = POOL.lock();
    if pool.free.is_empty() {
        let made: usize = pool.chunks.iter().map(|chunk| chunk.len()).sum();
        let chunk = if made < MANY { make(made.clamp(CHUNK_MIN, CHUNK_MAX)) } else { make_huge() };
        chunk.iter().for_each(|g| g.policy.belongs_to(std::ptr::from_ref(g).cast()));
        pool.chunks.push(chunk);
        super::debugger::list(chunk);
        pool.free.extend(chunk.iter().map(GPtr::from));
    }
    let keep = pool.free.len().saturating_sub(n);
    into.extend(pool.free.drain(keep..));
}

/// Makes `n` Gs, and their nodes.
fn make(n: usize) -> &'static [G] {
    let nodes: &'static [Node] = Box::leak((0..n).map(|_| Node::new(Some(&Goroutines))).collect());
    Box::leak(nodes.iter().map(G::new).collect())
}

/// Makes [`HUGE_GS`] Gs, and their nodes, in a huge page, if the system has one.
fn make_huge() -> &'static [G] {
    const { assert!(align_of::<Node>() <= align_of::<G>()) };
    let layout = Layout::from_size_align(HUGE, HUGE).expect("a power of two");
    // SAFETY: the layout is not empty; both arrays lie in it, one behind the other, and are written before they are
    // borrowed, for ever.
    unsafe {
        let gs = alloc::alloc(layout).cast::<G>();
        if gs.is_null() {
            alloc::handle_alloc_error(layout);
        }
        libc::madvise(gs.cast(), HUGE, libc::MADV_HUGEPAGE); // a wish
        let nodes = gs.add(HUGE_GS).cast::<Node>();
        for i in 0..HUGE_GS {
            nodes.add(i).write(Node::new(Some(&Goroutines)));
            gs.add(i).write(G::new(&*nodes.add(i)));
        }
        std::slice::from_raw_parts(gs, HUGE_GS)
    }
}

pub(crate) fn give(g: GPtr) {
    POOL.lock().free.push(g);
}

pub(crate) fn give_many(gs: impl Iterator<Item = GPtr>) {
    POOL.lock().free.extend(gs);
}

/// Returns all Gs, chunk by chunk.
pub(crate) fn chunks() -> Vec<&'static [G]> {
    POOL.lock().chunks.clone()
}

/// Passes each G of a runtime that is not idle to `f`, from the `start`th chunk on, until `f` returns `false`. Returns
/// the chunk to go on from next time; 0: it was the end. Fields may change meanwhile.
pub(crate) fn for_each(shared: *const Shared, start: usize, mut f: impl FnMut(&G) -> bool) -> usize {
    let mut at = start;
    loop {
        let Some(chunk) = POOL.lock().chunks.get(at).copied() else { return 0 };
        for g in chunk {
            if g.state.is_alive() && g.shared.get() == shared && !f(g) {
                return at;
            }
        }
        at += 1;
    }
}

/// Passes each G of a runtime that is not idle to `f` until `f` returns `false`, without waiting for a lock: it may end
/// early. For the monitor.
pub(crate) fn try_for_each(shared: *const Shared, mut f: impl FnMut(&G) -> bool) {
    for at in 0.. {
        let Some(chunk) = POOL.try_lock().and_then(|pool| pool.chunks.get(at).copied()) else { return };
        if !chunk.iter().all(|g| !g.state.is_alive() || g.shared.get() != shared || f(g)) {
            return;
        }
    }
}
