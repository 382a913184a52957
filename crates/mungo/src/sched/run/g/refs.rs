//! Counts the handles that keep a G: it goes back to a pool with the last one.

use super::{G, GPtr, pool};
use crate::sched::run::current::Running;
use std::ops::Deref;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The most handles to a G, half of what its counter can hold: the other half is for threads that count one more at the
/// same time, before the first of them has noticed.
const MAX_REFS: u32 = u32::MAX / 2;

/// Ends the process, as `Arc` does, because handles were forgotten, not dropped: before the count can come to zero
/// while there are handles.
#[cold]
fn too_many_refs() -> ! {
    std::process::abort()
}

/// A counted handle.
#[derive(Debug)]
pub(crate) struct GRef(GPtr);

impl GRef {
    /// Takes over a count of the caller's.
    pub(crate) unsafe fn from_counted(g: GPtr) -> GRef {
        GRef(g)
    }

    /// Makes a handle to a G that another handle keeps alive right now.
    pub(crate) fn new(g: &G) -> GRef {
        if g.refs.fetch_add(1, Relaxed) >= MAX_REFS {
            too_many_refs();
        }
        GRef(g.into())
    }

    /// Makes a handle to a G that may have none: then returns `None`. While the handle lives, it is the same goroutine.
    pub(crate) fn try_new(g: &G) -> Option<GRef> {
        // ORDERING: Acquire pairs with the Release in `prepare`.
        let before = g.refs.fetch_update(Acquire, Relaxed, |n| (n > 0).then(|| n + 1)).ok()?;
        if before >= MAX_REFS {
            too_many_refs();
        }
        Some(GRef(g.into()))
    }

    pub(crate) fn ptr(&self) -> GPtr {
        self.0
    }
}

impl Deref for GRef {
    type Target = G;
    fn deref(&self) -> &G {
        // SAFETY: Gs are never freed.
        unsafe { self.0.0.as_ref() }
    }
}

impl Clone for GRef {
    fn clone(&self) -> Self {
        GRef::new(self)
    }
}

impl Drop for GRef {
    #[inline]
    fn drop(&mut self) {
        if release(self.0) {
            recycle(self.0);
        }
    }
}

/// Gives an idle G to the caller's P, which will spawn again soon. TUNED: a tenth of spawn and join.
fn recycle(g: GPtr) {
    match Running::enter() {
        // SAFETY: in the runtime, so the P is ours; the core is not in use while a handle is dropped.
        Some(running) => unsafe { running.p().core() }.keep_g(g),
        None => pool::give(g),
    }
}

/// Gives one count back. Returns whether it was the last: then the caller must return the G to a pool.
#[must_use]
#[inline]
pub(crate) fn release(g: GPtr) -> bool {
    // ORDERING: Release our use of the G, Acquire all others' before it is reused.
    if g.refs.fetch_sub(1, AcqRel) != 1 {
        return false;
    }
    if g.name().is_some() {
        g.clear_name();
    }
    if !g.labels.is_empty() {
        g.labels.replace(None);
    }
    g.state.make_idle();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const HOW: &str = "MUNGO_TEST_HANDLES";

    /// Makes one handle more than there may be, in a process of its own, started by the test below, without the time
    /// that it takes to forget all the others.
    #[test]
    fn makes_too_many_handles() {
        let Ok(how) = std::env::var(HOW) else { return };
        let g = crate::Runtime::new().unwrap().run(|| GRef::new(crate::sched::run::current::g().unwrap()));
        g.refs.store(MAX_REFS - 1, Relaxed);
        std::mem::forget(GRef::new(&g));
        let one_more = if how == "clone" { Some(g.clone()) } else { GRef::try_new(&g) };
        std::mem::forget(one_more);
        std::process::exit(0);
    }

    fn ends_by_abort(how: &str) {
        // Where an emulator runs this, it runs the child too: see `tests/common/emulator.rs`.
        let this = std::env::current_exe().unwrap();
        let runner = std::env::var_os("MUNGO_TEST_RUNNER");
        let mut child = Command::new(runner.as_deref().unwrap_or(this.as_os_str()));
        child.args(runner.is_some().then_some(&this));
        child.args(["--exact", "sched::run::g::refs::tests::makes_too_many_handles"]);
        let status = child.env(HOW, how).output().unwrap().status;
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{how}: {status}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "no child processes")]
    fn a_count_that_would_overflow_ends_the_process() {
        ends_by_abort("clone");
        ends_by_abort("look");
    }
}
