//! Priority inheritance: the holder of a lock is as urgent as the most urgent goroutine that waits for it.
//!
//! The owner of a lock is noted by a plain store, also for reports ([`Owner::holder`]). A goroutine that has to wait
//! raises the owner, and the one that the owner waits for in turn, once ranks are in use in the process. The owner's
//! loan ends when it unlocks.
//!
//! All of it is under one lock of the process, taken only by waiters while ranks are in use. Under it, a goroutine
//! that is listed in `Loans::waiting` is inside of that lock's slow path, so the lock exists.

use super::hooks;
use crate::policies::rank::Priority;
use crate::sched::run::current;
use crate::sched::run::g::{G, GPtr};
use crate::sched::run::lock::Lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Number of links up to which a chain of goroutines that wait for each other is followed.
const DEEPEST: usize = 64;

static ON: AtomicBool = AtomicBool::new(false);

/// Notes that ranks are in use: owners of locks borrow from now on.
pub(crate) fn switch_on() {
    ON.store(true, Relaxed);
}

/// Returns whether owners borrow.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed)
}

/// The holder of a lock: the address of its G in the lower bits, and the lowest bits of its id above, because the G is
/// used again when a goroutine ends that has not unlocked. 0: a plain thread, or none. Written by the holder, and stale
/// when the lock is free.
#[derive(Debug)]
pub(crate) struct Owner(AtomicU64);

/// Bits of an address.
const ADDRESS_BITS: u32 = 48;

/// The goroutine that has a lock, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A plain thread has it, or it is free, or on its way from one to the next.
    Unknown,
    /// A goroutine that has ended.
    Ended,
    /// The goroutine with this G.
    G(GPtr),
}

impl Owner {
    pub(crate) const fn new() -> Owner {
        Owner(AtomicU64::new(0))
    }

    /// Notes that the caller has the lock.
    #[inline]
    pub(crate) fn note(&self) {
        let holder = current::g()
            .map_or(0, |g| std::ptr::from_ref(g).addr() as u64 | g.id.load(Relaxed) << ADDRESS_BITS);
        self.0.store(holder, Relaxed);
    }

    /// Notes that the holder is not known: it is about to pass the lock on.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Returns the holder as it is noted now, with the number that stands for it.
    pub(crate) fn holder(&self) -> (Holder, u64) {
        let noted = self.0.load(Relaxed);
        let is_same = |g: &G| (g.id.load(Relaxed) as u16) == (noted >> ADDRESS_BITS) as u16;
        let holder = match g_of(noted) {
            None => Holder::Unknown,
            Some(g) if is_same(&g) && g.state.is_alive() => Holder::G(g),
            Some(_) => Holder::Ended,
        };
        (holder, noted)
    }

    /// Gives back what the caller borrowed by the lock, which it is about to give up.
    #[inline]
    pub(crate) fn forget(&self) {
        if is_on() {
            self.forget_noted();
        }
    }

    fn forget_noted(&self) {
        let g = g_of(self.0.load(Relaxed));
        self.clear();
        if let Some(g) = g
            && g.policy.is_boosted()
        {
            give_back(g, self.address());
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Returns the G of a holder.
fn g_of(noted: u64) -> Option<GPtr> {
    GPtr::new((noted & ((1 << ADDRESS_BITS) - 1)) as usize as *mut G)
}

/// A goroutine that waits for a lock, and what it lent to which one.
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

/// Makes the owner of `lock`, which is held, as urgent as the calling goroutine, which is in its queue.
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

/// Raises the owner of `lock`, and the goroutine that the owner waits for.
fn follow(loans: &mut Loans, mut lock: *const Owner, priority: Priority, raised: &mut Vec<GPtr>) {
    for _ in 0..DEEPEST {
        // SAFETY: a goroutine waits for it, which takes `LOANS` before it leaves.
        let Some(owner) = g_of(unsafe { &*lock }.0.load(Relaxed)) else { return };
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

/// Notes that the calling goroutine does not wait any more. If it holds the lock now, it borrows from the other
/// waiters.
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

/// Ends what `g` was lent for the lock at `lock`, which it gives up.
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

/// Forgets a goroutine that has ended, perhaps without unlocking what it held.
pub(crate) fn forget(g: &G) {
    if g.policy.is_boosted()
        && let Some(loans) = LOANS.lock().as_mut()
    {
        loans.lent.remove(&address(g));
    }
}

fn address(g: &G) -> usize {
    std::ptr::from_ref(g).addr()
}
