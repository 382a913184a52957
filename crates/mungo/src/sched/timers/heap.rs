//! The timers of a P: a 4-ary heap.
//!
//! An entry is a time and what waits for it: a sleeping goroutine, or a [`Node`] that lies on the frame or in the
//! object that started the timer. Any M may run what is due on any heap. A node fires under the heap's lock, so that
//! [`cancel`](Node::cancel) is exact: when it returns, the timer has fired or never will.
//!
//! A node knows its place in the heap, so that it can be taken out. A sleeper does not and cannot: that saves a
//! write to a cold stack for each step of each sift, which is most of the cost with a million of them.
//!
//! Rejected: a timing wheel, which is cheaper to fill and either late or busy when sparse; timers that are left in the
//! heap when they are cancelled (Go's), because a node may be gone then.

use crate::protocols::claim::{Claim, TIMED_OUT};
use crate::sched::run::g::{G, GPtr, TOKEN_EMPTY, TOKEN_PARKED};
use crate::sched::run::lock::{Guard, Lock};
use crate::sched::shared::Shared;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

const ARITY: usize = 4;

/// Says what happens when a node is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// The goroutine goes on unless `unpark` came first.
    UnlessUnparked(GPtr),
    /// It goes on unless a waker took the claim first. The claim lies beside the node and lives as long.
    UnlessClaimed(GPtr, NonNull<Claim>),
    /// A function is called, after the heap's lock is free.
    Call(Call),
}

/// A function and its argument, with one count of ownership, which goes to the function or to the caller of `cancel`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Called by an M on its own stack or by the helper, with the runtime and the heap where it was.
    pub(crate) run: unsafe fn(NonNull<()>, &Shared, &TimerHeap),
    pub(crate) data: NonNull<()>,
}

/// Says what to do for a timer that was due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// A waker came first.
    Nothing,
    Wake(GPtr),
    Call(Call),
}

/// A timer that can be cancelled.
pub(crate) struct Node {
    /// Both are the owner's while it is in no heap.
    when_ns: Cell<u64>,
    action: Cell<Action>,
    /// The heap that holds it; null before and after. Written under that heap's lock.
    heap: AtomicPtr<TimerHeap>,
    /// Its place there. Under that heap's lock.
    index: Cell<usize>,
}

impl Node {
    pub(crate) fn new(when_ns: u64, action: Action) -> Node {
        Node {
            when_ns: Cell::new(when_ns),
            action: Cell::new(action),
            heap: AtomicPtr::new(null_mut()),
            index: Cell::new(0),
        }
    }

    pub(crate) fn when_ns(&self) -> u64 {
        self.when_ns.get()
    }

    /// Sets time and action for another turn, when it is in no heap.
    pub(crate) fn set(&self, when_ns: u64, action: Action) {
        debug_assert!(self.heap.load(Relaxed).is_null());
        self.when_ns.set(when_ns);
        self.action.set(action);
    }

    /// Takes the timer back. Afterwards no other thread knows the node. Returns whether it had not fired.
    pub(crate) fn cancel(&self) -> bool {
        loop {
            // ORDERING: Acquire pairs with the Release of the thread that let go of the node.
            let heap = self.heap.load(Acquire);
            // SAFETY: heaps live as long as the runtime, and so does a goroutine of it; an alarm holds the runtime.
            let Some(heap) = (unsafe { heap.as_ref() }) else { return false };
            let mut entries = heap.entries.lock();
            if std::ptr::eq(self.heap.load(Relaxed), heap) {
                heap.remove_locked(&mut entries, self.index.get());
                heap.publish(&entries);
                return true;
            } // else it moved to another heap, or fired
        }
    }

    /// Fires the node. Under the heap's lock.
    fn fire(&self) -> Due {
        let (g, wake) = match self.action.get() {
            // ORDERING: the claim that `unpark` also goes for.
            Action::UnlessUnparked(g) => {
                (g, g.token.compare_exchange(TOKEN_PARKED, TOKEN_EMPTY, AcqRel, Relaxed).is_ok())
            }
            // SAFETY: it lives as long as the node, which is in a heap.
            Action::UnlessClaimed(g, claim) => (g, unsafe { claim.as_ref() }.take(TIMED_OUT)),
            Action::Call(call) => return Due::Call(call),
        };
        if wake { Due::Wake(g) } else { Due::Nothing }
    }
}

/// A P's timers.
pub(crate) struct TimerHeap {
    /// The first entry's time, in ns; `u64::MAX`: none. Written under the lock.
    next_ns: AtomicU64,
    entries: Lock<Vec<Entry>>,
    /// Whether its runtime has ended, and no M looks here any more. Written under the lock.
    closed: AtomicBool,
}

#[derive(Clone, Copy)]
struct Entry {
    when_ns: u64,
    /// The address of a G, or that of a node and [`NODE`].
    who: usize,
}

const NODE: usize = 1;

enum Who<'a> {
    Sleeper(GPtr),
    Node(&'a Node),
}

impl Entry {
    #[inline]
    fn who(&self) -> Who<'_> {
        // SAFETY: Gs are never freed; a node in a heap is alive, and the caller holds the heap's lock.
        unsafe {
            match self.who & NODE {
                0 => Who::Sleeper(GPtr::new(self.who as *mut G).expect("an entry has its sleeper")),
                _ => Who::Node(&*((self.who & !NODE) as *const Node)),
            }
        }
    }
}

impl Entry {
    /// Fires the entry. Under the heap's lock.
    #[inline]
    fn fire(&self) -> Due {
        match self.who() {
            Who::Sleeper(g) => {
                g.prefetch();
                Due::Wake(g)
            }
            Who::Node(node) => node.fire(),
        }
    }
}

impl TimerHeap {
    pub(crate) fn new() -> TimerHeap {
        TimerHeap {
            next_ns: AtomicU64::new(u64::MAX),
            entries: Lock::new(Vec::new()),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns how many timers there are; takes the lock.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Returns when the first timer is due, in ns; `u64::MAX`: there is none.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        // ORDERING: SeqCst: see `timers::announce`.
        self.next_ns.load(SeqCst)
    }

    /// Adds a timer. Returns whether it is the first now; `None`: it was not added, the runtime has ended.
    ///
    /// # Safety
    /// The node stays where it is until it fired or was cancelled.
    pub(crate) unsafe fn add(&self, node: &Node) -> Option<bool> {
        let mut entries = self.entries.lock();
        if self.closed.load(Relaxed) {
            return None;
        }
        // ORDERING: Release the node to `cancel`.
        node.heap.store(std::ptr::from_ref(self).cast_mut(), Release);
        let who = std::ptr::from_ref(node) as usize | NODE;
        Some(self.insert_locked(&mut entries, Entry { when_ns: node.when_ns(), who }))
    }

    /// Adds the wake-up of a goroutine that nothing else will wake. Returns whether it is the first now.
    pub(crate) fn add_sleeper(&self, when_ns: u64, g: GPtr) -> bool {
        self.insert_locked(&mut self.entries.lock(), Entry { when_ns, who: g.as_ptr() as usize })
    }

    fn insert_locked(&self, entries: &mut Vec<Entry>, entry: Entry) -> bool {
        entries.push(entry);
        let last = entries.len() - 1;
        let first = sift_up(entries, last) == 0;
        if first {
            self.publish(entries);
        }
        first
    }

    /// Takes what is due, at most as many as `out` holds; returns how many left the heap.
    pub(crate) fn take_due(&self, now_ns: u64, out: &mut [Due]) -> usize {
        let mut entries = self.entries.lock();
        let mut n = 0;
        while let Some(first) = entries.first()
            && first.when_ns <= now_ns
            && n < out.len()
        {
            out[n] = first.fire();
            self.remove_locked(&mut entries, 0);
            n += 1;
        }
        prefetch_next(&entries, now_ns);
        self.publish(&entries);
        n
    }

    /// Takes an entry out. The caller publishes the first time.
    fn remove_locked(&self, entries: &mut Vec<Entry>, at: usize) {
        let entry = entries.swap_remove(at);
        if at < entries.len() {
            let at = sift_down(entries, at);
            sift_up(entries, at);
        }
        if let Who::Node(node) = entry.who() {
            // ORDERING: Release: this thread touches it no more.
            node.heap.store(null_mut(), Release);
        }
    }

    /// Moves all timers to another heap, because this P goes away. Lock order: the dying P's heap first.
    pub(crate) fn move_to(&self, other: &TimerHeap) {
        if std::ptr::eq(self, other) || self.next_ns() == u64::MAX {
            return;
        }
        let mut from = self.entries.lock();
        other.adopt_from(&mut from);
        self.publish(&from);
    }

    /// Ends the heap with its runtime: it takes no more timers. Returns those that are left, for
    /// [`adopt`](Self::adopt); until then `cancel` waits for them.
    pub(crate) fn close(&self) -> Closed<'_> {
        let entries = self.entries.lock();
        self.closed.store(true, Relaxed);
        Closed { heap: self, entries }
    }

    /// Takes over the timers of a heap of another runtime.
    pub(crate) fn adopt(&self, mut closed: Closed<'_>) {
        self.adopt_from(&mut closed.entries);
        closed.heap.publish(&closed.entries);
    }

    fn adopt_from(&self, from: &mut Vec<Entry>) {
        let mut entries = self.entries.lock();
        for entry in from.drain(..) {
            if let Who::Node(node) = entry.who() {
                // ORDERING: as in `add`; both locks are held.
                node.heap.store(std::ptr::from_ref(self).cast_mut(), Release);
            }
            self.insert_locked(&mut entries, entry);
        }
    }

    fn publish(&self, entries: &[Entry]) {
        let first = entries.first().map_or(u64::MAX, |e| e.when_ns);
        if self.next_ns.load(Relaxed) != first {
            // ORDERING: SeqCst: see `timers::announce`.
            self.next_ns.store(first, SeqCst);
        }
    }
}

/// The timers of a runtime that ended, locked.
pub(crate) struct Closed<'a> {
    heap: &'a TimerHeap,
    entries: Guard<'a, Vec<Entry>>,
}

impl Closed<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Prefetches what the next wake-up will touch, since sleepers that are due soon lie in cold memory: the stack of the
/// first, and the Gs among which the next one is.
#[inline]
fn prefetch_next(entries: &[Entry], now_ns: u64) {
    const SOON_NS: u64 = 20_000;
    let Some(first) = entries.first().filter(|first| first.when_ns < now_ns + SOON_NS) else { return };
    if let Who::Sleeper(g) = first.who() {
        // SAFETY: it has run: it went to sleep.
        unsafe { g.prefetch_stack() };
    }
    for next in entries[1..].iter().take(ARITY) {
        if let Who::Sleeper(g) = next.who() {
            g.prefetch();
        }
    }
}

#[inline]
fn place(entries: &mut [Entry], at: usize, entry: Entry) {
    entries[at] = entry;
    if let Who::Node(node) = entry.who() {
        node.index.set(at);
    }
}

/// Moves the entry towards the root; returns where it ends up.
fn sift_up(entries: &mut [Entry], mut at: usize) -> usize {
    let entry = entries[at];
    while at > 0 {
        let parent = (at - 1) / ARITY;
        if entries[parent].when_ns <= entry.when_ns {
            break;
        }
        place(entries, at, entries[parent]);
        at = parent;
    }
    place(entries, at, entry);
    at
}

/// Moves the entry away from the root; returns where it ends up.
fn sift_down(entries: &mut [Entry], mut at: usize) -> usize {
    let entry = entries[at];
    loop {
        let children = at * ARITY + 1..(at * ARITY + 1 + ARITY).min(entries.len());
        let Some(least) = children.min_by_key(|&c| entries[c].when_ns) else { break };
        if entries[least].when_ns >= entry.when_ns {
            break;
        }
        place(entries, at, entries[least]);
        at = least;
    }
    place(entries, at, entry);
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::run::g::pool;

    #[test]
    fn due_timers_come_in_order_and_cancelled_ones_do_not() {
        let heap = TimerHeap::new();
        let mut gs = Vec::new();
        pool::refill(&mut gs, 1);
        let node = |when| Node::new(when, Action::UnlessUnparked(gs[0]));
        let nodes: Vec<Node> = (0..200).map(|i| node((i * 7919) % 1000)).collect();
        for n in &nodes {
            // SAFETY: `nodes` outlives the heap's use.
            unsafe { heap.add(n) };
        }
        assert!(nodes.iter().step_by(3).all(Node::cancel));
        assert!(!nodes[0].cancel()); // twice does no harm
        let mut left: Vec<u64> =
            nodes.iter().enumerate().filter(|(i, _)| i % 3 != 0).map(|(_, n)| n.when_ns()).collect();
        left.sort();
        let mut fired = Vec::new();
        while heap.next_ns() != u64::MAX {
            let next = heap.next_ns();
            let mut out = [Due::Nothing; 1];
            assert_eq!(heap.take_due(next, &mut out), 1);
            fired.push(next);
        }
        assert_eq!(fired, left);
        gs.into_iter().for_each(pool::give);
    }

    #[test]
    fn moved_timers_can_be_cancelled_at_their_new_place() {
        let (a, b) = (TimerHeap::new(), TimerHeap::new());
        let mut gs = Vec::new();
        pool::refill(&mut gs, 1);
        let nodes = [3, 1, 2].map(|when| Node::new(when, Action::UnlessUnparked(gs[0])));
        // SAFETY: as above.
        nodes.iter().for_each(|n| _ = unsafe { a.add(n) });
        a.move_to(&b);
        assert_eq!((a.next_ns(), b.next_ns()), (u64::MAX, 1));
        assert!(nodes[1].cancel());
        assert_eq!(b.next_ns(), 2);
        assert_eq!(b.take_due(9, &mut [Due::Nothing; 8]), 2);
        gs.into_iter().for_each(pool::give);
    }
}
