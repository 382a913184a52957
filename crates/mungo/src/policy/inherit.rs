//! Priority inheritance: who holds a lock is as urgent as the most urgent who waits for it.
//!
//! A lock that is taken without a wait costs what it always did: its owner is noted by a plain store, and only once
//! ranks are in use in the process. Who has to wait raises the owner, and whoever that one waits for in turn. The
//! owner's loan ends when it unlocks.
//!
//! All of it is under one lock of the process, taken only by those who wait while ranks are in use. Under it, a
//! goroutine whose `waits_for` is set is inside of that lock's slow path, so the lock exists.

use super::hooks;
use super::rank::Priority;
use crate::current;
use crate::lock::Lock;
use crate::sched::g::{G, GPtr};
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

/// Chains of goroutines that wait for each other are followed so far.
const DEEPEST: usize = 64;

static ON: AtomicBool = AtomicBool::new(false);

/// Ranks are in use: owners of locks are noted from now on.
pub(super) fn switch_on() {
    ON.store(true, Relaxed);
}

/// Whether owners are noted.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Who holds a lock, as far as it is known. Written by the holder.
pub(crate) struct Owner(AtomicPtr<G>);

impl Owner {
    pub(crate) const fn new() -> Owner {
        Owner(AtomicPtr::new(null_mut()))
    }

    /// The caller has the lock.
    #[inline]
    pub(crate) fn note(&self) {
        if is_on() {
            let g = current::g().map_or(null_mut(), |g| std::ptr::from_ref(g).cast_mut());
            self.0.store(g, Relaxed);
        }
    }

    /// The caller is about to give the lock up: what it borrowed by it goes back.
    #[inline]
    pub(crate) fn forget(&self) {
        if is_on() {
            self.forget_noted();
        }
    }

    fn forget_noted(&self) {
        let g = self.0.load(Relaxed);
        self.0.store(null_mut(), Relaxed);
        if let Some(g) = GPtr::new(g)
            && g.policy.is_boosted()
        {
            give_back(g, self.address());
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// One who waits for a lock, and what it lent to whom.
struct Waiting {
    lock: *const Owner,
    priority: Priority,
}

// SAFETY: see the module: the lock exists while an entry points to it.
unsafe impl Send for Waiting {}

#[derive(Default)]
struct Loans {
    /// Goroutines that wait for a lock, by the address of their G.
    waiting: HashMap<usize, Waiting>,
    /// What goroutines were lent: for which lock, how much.
    lent: HashMap<usize, Vec<(usize, Priority)>>,
}

static LOANS: Lock<Option<Loans>> = Lock::new(None);

/// The calling goroutine is in the queue of `lock`, which somebody holds: the owner is to be as urgent as it is.
pub(crate) fn lend(lock: &Owner) {
    let Some(me) = current::g() else { return };
    let mut raised = Vec::new();
    {
        let mut loans = LOANS.lock();
        let loans = loans.get_or_insert_default();
        let priority = me.policy.priority();
        loans.waiting.insert(address(me), Waiting { lock, priority });
        follow(loans, lock, priority, &mut raised);
    }
    raised.into_iter().for_each(hooks::raised);
}

/// Raises the owner of `lock`, and whoever that one waits for.
fn follow(loans: &mut Loans, mut lock: *const Owner, priority: Priority, raised: &mut Vec<GPtr>) {
    for _ in 0..DEEPEST {
        // SAFETY: somebody waits for it, who takes `LOANS` before it leaves.
        let Some(owner) = GPtr::new(unsafe { &*lock }.0.load(Relaxed)) else { return };
        if owner.policy.priority() >= priority {
            return;
        }
        loans.lent.entry(address(&owner)).or_default().push((lock.addr(), priority));
        owner.policy.set_boost(priority);
        raised.push(owner);
        let Some(next) = loans.waiting.get_mut(&address(&owner)) else { return };
        next.priority = next.priority.max(priority);
        lock = next.lock;
    }
}

/// The calling goroutine does not wait any more. If it holds the lock now, it borrows from those who still wait.
pub(crate) fn stop_waiting(lock: &Owner, holds: bool) {
    let Some(me) = current::g() else { return };
    let mut loans = LOANS.lock();
    let Some(loans) = loans.as_mut() else { return };
    loans.waiting.remove(&address(me));
    if !holds {
        return;
    }
    lock.note();
    let others = loans.waiting.values().filter(|w| std::ptr::eq(w.lock, lock));
    if let Some(priority) = others.map(|w| w.priority).max()
        && priority > me.policy.priority()
    {
        loans.lent.entry(address(me)).or_default().push((lock.address(), priority));
        me.policy.set_boost(priority);
    }
}

/// The lock at `lock` is given up by `g`: what it was lent for it ends.
#[cold]
fn give_back(g: GPtr, lock: usize) {
    let mut loans = LOANS.lock();
    let Some(loans) = loans.as_mut() else { return };
    let owner = address(&g);
    let mut left = Priority::LOWEST;
    if let Some(lent) = loans.lent.get_mut(&owner) {
        lent.retain(|(at, _)| *at != lock);
        left = lent.iter().map(|(_, priority)| *priority).max().unwrap_or(left);
        if lent.is_empty() {
            loans.lent.remove(&owner);
        }
    }
    g.policy.set_boost(left);
}

/// A goroutine has ended, perhaps without unlocking what it held.
pub(super) fn forget(g: &G) {
    if g.policy.is_boosted()
        && let Some(loans) = LOANS.lock().as_mut()
    {
        loans.lent.remove(&address(g));
    }
}

fn address(g: &G) -> usize {
    std::ptr::from_ref(g).addr()
}
