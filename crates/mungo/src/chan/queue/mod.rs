//! The queue of waiters on one side of a channel, and how one of them becomes the partner.
//!
//! A [`Node`] lies on the frame of its waiter (or in its [`Select`](super::Select)), so a queue allocates nothing.
//! Everything here happens under the channel's lock, but two things: an [`Operation`]'s claim, which the timer and the
//! other channels of a select go for too, and the look at [`is_linked`](Node::is_linked) by a select on its way out.
//!
//! Invariants:
//! - A node is touched by others only while it is linked, or after they won its operation's claim and before they
//!   wake it. So its owner may leave when it is neither.
//! - The thread that wins a claim unlinks the node, does its part, and wakes, once.
//! - A node whose claim is lost is unlinked by the thread that meets it, or by its owner.
//! - A task's node may leave whenever the channel's lock is free. So its claim is won, its value moved and its waker
//!   taken under one and the same lock, and no other thread keeps a pointer to it.
//!
//! Small enough for a model: see `models.rs`.

#[cfg(all(test, loom))]
mod models;

use crate::protocols::claim::{Claim, TIMED_OUT};
use crate::sched::run::park::Entered;
use crate::sched::run::park::Waiter;
use crate::sys::atomic::AtomicBool;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::Waker;

/// One blocking call: its waiter, and the claim that says how its wait was ended.
pub(crate) struct Operation {
    pub(super) claim: Claim,
    pub(super) kind: Kind,
    pub(super) waiter: Waiter,
}

/// Says which threads go for the claim of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Several queues, or a timer.
    Contested,
    /// One queue, whose lock guards it.
    Exclusive,
    /// As `Exclusive`, by a task, whose future may be dropped while the lock is free.
    Task,
}

/// Says, by a partner, how a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Ending {
    /// The value has changed hands, or will before the wake-up; a place was reserved; a watched channel is ready.
    Done = 0,
    /// The channel is disconnected.
    Closed = 1,
    /// The partner thought better of it: start again.
    Retry = 2,
}

/// Says how a wait ended, and in which case of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ended(usize, Ending),
    TimedOut,
}

/// The first code of a claim that is not `protocols::claim`'s own.
const FIRST_CODE: usize = 4;

fn code(case: usize, ending: Ending) -> usize {
    (case * 4 + ending as usize) + FIRST_CODE
}

impl Outcome {
    fn from_code(code: usize) -> Outcome {
        if code == TIMED_OUT {
            return Outcome::TimedOut;
        }
        let ending = match (code - FIRST_CODE) % 4 {
            0 => Ending::Done,
            1 => Ending::Closed,
            _ => Ending::Retry,
        };
        Outcome::Ended((code - FIRST_CODE) / 4, ending)
    }
}

impl Operation {
    /// Returns how the wait ended. To be asked after the wake-up.
    pub(super) fn outcome(&self) -> Outcome {
        Outcome::from_code(self.claim.winner().expect("woken, so a waker won"))
    }
}

/// A place in a queue: one case of an operation.
pub(crate) struct Node {
    prev: Cell<*const Node>,
    next: Cell<*const Node>,
    /// Whether it is in a queue. Written under the channel's lock.
    linked: AtomicBool,
    op: Cell<*const Operation>,
    case: Cell<usize>,
    /// A receiver's place for the value, a sender's value; null: a sender of a select, which has none yet.
    slot: Cell<*mut ()>,
    /// The receiver that waits for the value of this sender without one. Written by the receiver that won the claim.
    partner: Cell<*const Node>,
    /// Whether it lies in the queue of tasks that were promised a value. Tasks only; under the channel's lock.
    pub(super) engaged: Cell<bool>,
}

impl Node {
    pub(crate) fn new() -> Node {
        Node::armed(null(), 0, null_mut())
    }

    /// Makes a node that is ready for one wait of `op`.
    #[inline]
    pub(super) fn armed(op: *const Operation, case: usize, slot: *mut ()) -> Node {
        Node {
            prev: Cell::new(null()),
            next: Cell::new(null()),
            linked: AtomicBool::new(false),
            op: Cell::new(op),
            case: Cell::new(case),
            slot: Cell::new(slot),
            partner: Cell::new(null()),
            engaged: Cell::new(false),
        }
    }

    /// Makes it ready for one wait of `op`. By its owner, while no other thread knows it.
    pub(super) fn arm(&self, op: &Operation, case: usize, slot: *mut ()) {
        self.op.set(op);
        self.case.set(case);
        self.slot.set(slot);
        self.partner.set(null());
    }

    pub(super) fn slot(&self) -> *mut () {
        self.slot.get()
    }

    /// Sets the partner. By a receiver that won this sender's claim, before it wakes it.
    pub(super) fn set_partner(&self, receiver: &Node) {
        self.partner.set(receiver);
    }

    pub(super) fn partner(&self) -> Option<NonNull<Node>> {
        NonNull::new(self.partner.get().cast_mut())
    }

    /// Returns whether it is in a queue. `false`: no other thread will touch it any more.
    pub(super) fn is_linked(&self) -> bool {
        // ORDERING: Acquire pairs with `unlink`: the thread that took it out is done with it.
        self.linked.load(Acquire)
    }

    fn op(&self) -> &Operation {
        // SAFETY: armed; the operation lives on the frame that waits, as long as the node is linked or claimed.
        unsafe { &*self.op.get() }
    }

    /// Goes for the claim. Returns `true` if the caller ends this wait, and must wake it.
    #[inline]
    fn try_claim(&self, ending: Ending) -> bool {
        let op = self.op();
        if op.kind != Kind::Contested {
            op.claim.settle(code(self.case.get(), ending));
            return true;
        }
        op.claim.take(code(self.case.get(), ending))
    }

    /// Notes how the wait ends. By the thread that won the claim, or whose partner this is.
    pub(super) fn settle(&self, ending: Ending) {
        self.op().claim.settle(code(self.case.get(), ending));
    }

    /// Takes the waker of a task that waits. By the thread that won its claim.
    #[cold]
    fn take_waker(&self) -> Waker {
        match &self.op().waiter {
            Waiter::Task(waker) => waker.take().expect("a task that waits has a waker"),
            _ => unreachable!("its kind says so"),
        }
    }

    /// Ends the wait; the node may be gone afterwards.
    ///
    /// # Safety
    /// The caller won the claim, and has not woken it yet.
    #[inline(always)]
    pub(super) unsafe fn wake(this: NonNull<Node>, waker: &Entered) {
        // SAFETY: alive until woken.
        let waiter = NonNull::from(unsafe { &this.as_ref().op().waiter });
        // SAFETY: by the caller.
        waker.with_running(|running| unsafe { Waiter::wake_by(running, waiter) });
    }
}

/// The waiters of one side, first come first served. Under the channel's lock.
pub(crate) struct Queue {
    head: *const Node,
    tail: *const Node,
}

// SAFETY: used under the channel's lock only; the nodes' cells too.
unsafe impl Send for Queue {}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue { head: null(), tail: null() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Returns how many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let mut n = 0;
        let mut at = self.head;
        // SAFETY: linked nodes are alive.
        while let Some(node) = unsafe { at.as_ref() } {
            n += 1;
            at = node.next.get();
        }
        n
    }

    /// # Safety
    /// The node is armed and not linked, and stays in place until it is neither linked nor claimed and unwoken.
    pub(super) unsafe fn push_back(&mut self, node: &Node) {
        node.prev.set(self.tail);
        node.next.set(null());
        node.linked.store(true, Relaxed);
        // SAFETY: linked nodes are alive.
        match unsafe { self.tail.as_ref() } {
            Some(last) => last.next.set(node),
            None => self.head = node,
        }
        self.tail = node;
    }

    #[inline]
    fn unlink(&mut self, node: &Node) {
        let (prev, next) = (node.prev.get(), node.next.get());
        // SAFETY: neighbours are linked, so alive.
        unsafe {
            match prev.as_ref() {
                Some(prev) => prev.next.set(next),
                None => self.head = next,
            }
            match next.as_ref() {
                Some(next) => next.prev.set(prev),
                None => self.tail = prev,
            }
        }
        // ORDERING: Release: this thread is done with it. See `is_linked`.
        node.linked.store(false, Release);
    }

    /// Takes the node out, by its owner, wherever it is; it may be out already.
    pub(super) fn remove(&mut self, node: &Node) {
        if node.linked.load(Relaxed) {
            self.unlink(node);
        }
    }

    /// Takes out the first waiter whose claim can be won. The caller must wake it.
    #[inline]
    pub(super) fn claim_first(&mut self, ending: Ending) -> Option<NonNull<Node>> {
        loop {
            // SAFETY: linked nodes are alive, and this one stays so if the claim is won; if not, it is touched only
            // until it is unlinked.
            let node = unsafe { self.head.as_ref() }?;
            let won = node.try_claim(ending);
            self.unlink(node);
            if won {
                return Some(node.into());
            }
        }
    }

    /// As [`claim_first`](Self::claim_first), but a task is not claimed: it is `Err`, and still in the queue.
    pub(super) fn claim_first_but_task(
        &mut self,
        ending: Ending,
    ) -> Option<Result<NonNull<Node>, NonNull<Node>>> {
        loop {
            // SAFETY: as in `claim_first`.
            let node = unsafe { self.head.as_ref() }?;
            if node.op().kind == Kind::Task {
                return Some(Err(node.into()));
            }
            let won = node.try_claim(ending);
            self.unlink(node);
            if won {
                return Some(Ok(node.into()));
            }
        }
    }

    /// Takes out all waiters, and adds those whose claim was won to `wakes`.
    pub(super) fn claim_all(&mut self, ending: Ending, mut wakes: WakeList) -> WakeList {
        while let Some(node) = self.claim_first(ending) {
            wakes.push(node);
        }
        wakes
    }

    /// Drops nodes at the front whose wait has ended already, so that "not empty" means "there is a waiter".
    pub(super) fn drop_stale(&mut self) {
        // SAFETY: linked nodes are alive.
        while let Some(node) = unsafe { self.head.as_ref() } {
            if node.op().kind != Kind::Contested || node.op().claim.winner().is_none() {
                return;
            }
            self.unlink(node);
        }
    }
}

/// Nodes whose claim was won, to be woken when the lock is free. Of tasks only the wakers: by then their nodes may be
/// gone. One word, because it lies on the fast path: the first node, or, with the lowest bit set, the first waker.
/// Passed by value: a value whose address is known cannot stay in a register.
#[must_use]
pub(crate) struct WakeList {
    first: *const Node,
}

/// The waker of a task, in a box, and the next in the list.
struct TaskLink {
    waker: Waker,
    next: *const Node,
}

/// The lowest bit of an address in a [`WakeList`]: it is a [`TaskLink`]'s.
const TASK: usize = 1;

impl WakeList {
    #[inline]
    pub(super) const fn new() -> WakeList {
        WakeList { first: null() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds a node, under the lock under which its claim was won.
    #[inline]
    pub(super) fn push(&mut self, node: NonNull<Node>) {
        // SAFETY: claimed and not woken, so alive, and the caller's.
        let this = unsafe { node.as_ref() };
        if this.op().kind == Kind::Task {
            self.first = WakeList::with_task(this.take_waker(), self.first);
            return;
        }
        this.next.set(self.first);
        self.first = node.as_ptr();
    }

    /// Returns the list with one more task in front of `next`.
    #[cold]
    fn with_task(waker: Waker, next: *const Node) -> *const Node {
        let link = Box::into_raw(Box::new(TaskLink { waker, next }));
        link.cast::<Node>().cast_const().map_addr(|at| at | TASK)
    }

    /// Takes the first one, if it is a goroutine or a thread.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<NonNull<Node>> {
        if self.first.addr() & TASK != 0 {
            return None;
        }
        let node = NonNull::new(self.first.cast_mut())?;
        // SAFETY: as above.
        self.first = unsafe { node.as_ref() }.next.get();
        Some(node)
    }

    /// Takes the first one, if it is a task.
    #[cold]
    fn pop_task(&mut self) -> Option<Waker> {
        if self.first.addr() & TASK == 0 {
            return None;
        }
        // SAFETY: `with_task` made it, and it is taken out once.
        let link =
            *unsafe { Box::from_raw(self.first.map_addr(|at| at & !TASK).cast_mut().cast::<TaskLink>()) };
        self.first = link.next;
        Some(link.waker)
    }

    /// Takes over what `other` holds.
    pub(super) fn append(&mut self, mut other: WakeList) {
        while !other.is_empty() {
            while let Some(node) = other.pop() {
                self.push(node);
            }
            while let Some(waker) = other.pop_task() {
                self.first = WakeList::with_task(waker, self.first);
            }
        }
    }

    #[inline(never)]
    pub(super) fn wake_all(mut self, waker: ManuallyDrop<Entered>) {
        while let Some(node) = self.pop() {
            // SAFETY: won by the thread that put it here, and popped once.
            unsafe { Node::wake(node, &waker) };
        }
        if !self.is_empty() {
            self.wake_rest(&waker);
        }
    }

    /// Wakes the rest of the list, whose first one is a task.
    #[cold]
    fn wake_rest(mut self, waker: &Entered) {
        let mut tasks = Vec::new();
        while !self.is_empty() {
            tasks.extend(self.pop_task());
            while let Some(node) = self.pop() {
                // SAFETY: as in `wake_all`.
                unsafe { Node::wake(node, waker) };
            }
        }
        waker.wake_tasks(tasks);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn operation(exclusive: bool) -> Operation {
        let kind = if exclusive { Kind::Exclusive } else { Kind::Contested };
        Operation { claim: Claim::new(), kind, waiter: Waiter::current() }
    }

    #[test]
    fn codes_come_back() {
        for case in [0, 1, 2, 1000] {
            for ending in [Ending::Done, Ending::Closed, Ending::Retry] {
                assert_eq!(Outcome::from_code(code(case, ending)), Outcome::Ended(case, ending));
            }
        }
        assert_eq!(Outcome::from_code(TIMED_OUT), Outcome::TimedOut);
    }

    #[test]
    fn first_come_first_served_and_stale_ones_are_skipped() {
        let ops: Vec<_> = (0..4).map(|i| operation(i == 3)).collect();
        let nodes: Vec<_> = (0..4).map(|_| Node::new()).collect();
        let mut queue = Queue::new();
        for (i, node) in nodes.iter().enumerate() {
            node.arm(&ops[i], i, null_mut());
            // SAFETY: `nodes` outlives the queue's use.
            unsafe { queue.push_back(node) };
        }
        assert_eq!(queue.len(), 4);
        assert!(ops[0].claim.take(TIMED_OUT) && ops[1].claim.take(TIMED_OUT));
        queue.drop_stale();
        assert_eq!(queue.len(), 2);
        assert!(!nodes[0].is_linked() && !nodes[1].is_linked() && nodes[2].is_linked());
        queue.remove(&nodes[0]); // out already
        assert_eq!(queue.claim_first(Ending::Done), Some(NonNull::from(&nodes[2])));
        assert_eq!(ops[2].outcome(), Outcome::Ended(2, Ending::Done));
        let mut wakes = queue.claim_all(Ending::Closed, WakeList::new());
        assert_eq!(wakes.pop(), Some(NonNull::from(&nodes[3])));
        assert_eq!((wakes.pop(), queue.is_empty()), (None, true));
        assert_eq!(ops[3].outcome(), Outcome::Ended(3, Ending::Closed));
    }

    #[test]
    fn a_list_takes_over_the_nodes_and_the_tasks_of_another() {
        let op = operation(true);
        let node = Node::armed(&op, 0, null_mut());
        let list = || {
            let mut list = WakeList::new();
            list.first = WakeList::with_task(Waker::noop().clone(), list.first);
            list
        };
        let (mut all, mut others) = (list(), list());
        others.push(NonNull::from(&node));
        others.first = WakeList::with_task(Waker::noop().clone(), others.first);
        all.append(others);
        let (mut nodes, mut tasks) = (0, 0);
        while !all.is_empty() {
            nodes += usize::from(all.pop().is_some());
            tasks += usize::from(all.pop_task().is_some());
        }
        assert_eq!((nodes, tasks), (1, 3));
    }

    #[test]
    fn a_node_leaves_from_the_middle() {
        let op = operation(true);
        let nodes: Vec<_> = (0..3).map(|_| Node::new()).collect();
        let mut queue = Queue::new();
        for (i, node) in nodes.iter().enumerate() {
            node.arm(&op, i, null_mut());
            // SAFETY: as above.
            unsafe { queue.push_back(node) };
        }
        queue.remove(&nodes[1]);
        assert_eq!(queue.claim_first(Ending::Done), Some(NonNull::from(&nodes[0])));
        queue.remove(&nodes[2]);
        assert!(queue.is_empty() && queue.claim_first(Ending::Done).is_none());
    }
}
