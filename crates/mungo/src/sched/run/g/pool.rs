//! All Gs of the process: allocated in chunks, never freed.

use super::{G, GPtr};
use crate::policies::Node;
use crate::sched::engine::hooks::Goroutines;
use crate::sched::run::lock::Lock;
use crate::sched::shared::Shared;

/// Gs of the first chunk. Each further chunk has as many as there are, up to [`CHUNK_MAX`].
const CHUNK_MIN: usize = 64;
/// The most Gs of a chunk. TUNED: large enough that malloc asks the kernel for each, instead of growing its heap page
/// by page. With their nodes one by one, and chunks of 64, a million goroutines made it do so 60,000 times.
const CHUNK_MAX: usize = 1024;

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
        let n = made.clamp(CHUNK_MIN, CHUNK_MAX);
        let nodes: &'static [Node] = Box::leak((0..n).map(|_| Node::new(Some(&Goroutines))).collect());
        let chunk: &'static [G] = Box::leak(nodes.iter().map(G::new).collect());
        chunk.iter().for_each(|g| g.policy.belongs_to(std::ptr::from_ref(g).cast()));
        pool.chunks.push(chunk);
        super::debugger::list(chunk);
        pool.free.extend(chunk.iter().map(GPtr::from));
    }
    let keep = pool.free.len().saturating_sub(n);
    into.extend(pool.free.drain(keep..));
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
