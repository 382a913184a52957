//! The waiters of a primitive: a FIFO list of nodes that lie on the waiters' frames.
//!
//! A [`Queue`] stands behind a small lock. A waiter pushes its [`Node`] under that lock, lets go of it and waits. A
//! waker pops it under the lock, which gives it the right to wake it, and wakes after it has let go too, so that the
//! lock is held for a few instructions.
//!
//! A node with a deadline may lie in the queue although its time is over; `pop` passes over it, and its owner takes
//! it out with [`Queue::remove`] before its frame ends.

use crate::protocols::claim::{Claim, TIMED_OUT, WOKEN};
use crate::protocols::wake::Wake;
use crate::reason::WaitReason;
use crate::sched::run::g::GPtr;
use crate::sched::run::park::Waiter;
use std::cell::Cell;
use std::ptr::{NonNull, null};

/// One wait of a goroutine or a plain thread.
pub(crate) struct Node {
    waiter: Waiter,
    claim: Claim,
    /// The number of the object that it waits for: see `reason::Awaited`.
    on: usize,
    /// Deadline in ns of the clock; `u64::MAX`: it waits as long as it takes, and the claim is not needed.
    deadline_ns: u64,
    /// Neighbours, and whether it is in a queue. Under the queue's lock.
    next: Cell<*const Node>,
    prev: Cell<*const Node>,
    queued: Cell<bool>,
    /// A word between the waiter and its waker: what is asked before, what was granted after. Written under the
    /// queue's lock, read by the waiter after it was woken.
    pub(crate) word: Cell<usize>,
}

impl Node {
    /// Makes a node for the caller, which will wait for `object`, until `deadline_ns` at the most.
    pub(crate) fn new<T>(object: &T, deadline_ns: u64) -> Node {
        Node::of(Waiter::current(), std::ptr::from_ref(object).addr(), deadline_ns)
    }

    /// Makes a node of a waiter, which will wait for the object with the number `on`.
    pub(crate) fn of(waiter: Waiter, on: usize, deadline_ns: u64) -> Node {
        Node {
            waiter,
            claim: Claim::new(),
            on,
            deadline_ns,
            next: Cell::new(null()),
            prev: Cell::new(null()),
            queued: Cell::new(false),
            word: Cell::new(0),
        }
    }

    /// Returns the waiter for reuse, after the wait, when the node is in no queue.
    pub(crate) fn into_waiter(self) -> Waiter {
        self.waiter
    }

    /// Waits until it was popped and woken. Returns `false` if the time is over; the node may still be in the queue.
    pub(crate) fn wait(&self, reason: WaitReason) -> bool {
        self.waiter.wait_until(reason.on(self.on), self.deadline_ns, &self.claim)
    }

    /// As [`wait`](Self::wait), of a node with a deadline that [`end`](Self::end) may end too.
    pub(crate) fn wait_or_end(&self, reason: WaitReason) -> bool {
        self.wait(reason) && self.claim.winner() == Some(WOKEN)
    }

    /// Ends the wait as if the time were over, unless a waker was faster.
    ///
    /// # Safety
    /// The node is alive until this returns, and has a deadline.
    pub(crate) unsafe fn end(this: NonNull<Node>) {
        // SAFETY: alive, by the caller; the claim gives the right to wake. No reference to the node is held then.
        unsafe {
            if (*this.as_ptr()).claim.take(TIMED_OUT) {
                Waiter::wake(NonNull::new_unchecked(&raw mut (*this.as_ptr()).waiter));
            }
        }
    }
}

/// The waiters, the first to wake at the head. One word: the `prev` of the head is the tail.
pub(crate) struct Queue {
    head: *const Node,
}

// SAFETY: nodes are reached under the queue's lock, or by the one waker that popped them.
unsafe impl Send for Queue {}

impl Queue {
    pub(crate) const fn new() -> Queue {
        Queue { head: null() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// # Safety
    /// The node is in no queue, and stays where it is until it was woken or removed.
    pub(crate) unsafe fn push_back(&mut self, node: &Node) {
        self.link(node);
        node.next.set(null());
        // SAFETY: nodes in the queue are alive, and the caller holds the queue.
        match unsafe { self.head.as_ref() } {
            None => self.head = node,
            // SAFETY: as above.
            Some(head) => unsafe { (*head.prev.replace(node)).next.set(node) },
        }
    }

    /// Puts a waiter back that was woken and got nothing: its turn has not passed.
    ///
    /// # Safety
    /// As [`push_back`](Self::push_back).
    pub(crate) unsafe fn push_front(&mut self, node: &Node) {
        self.link(node);
        node.next.set(self.head);
        // SAFETY: nodes in the queue are alive, and the caller holds the queue.
        if let Some(head) = unsafe { self.head.as_ref() } {
            head.prev.set(node);
        }
        self.head = node;
    }

    /// Sets the neighbours of a new node, at either end: behind the tail, or behind itself if the queue is empty.
    fn link(&mut self, node: &Node) {
        debug_assert!(!node.queued.get());
        // SAFETY: as in `push_back`.
        node.prev.set(unsafe { self.head.as_ref() }.map_or(std::ptr::from_ref(node), |head| head.prev.get()));
        node.queued.set(true);
    }

    /// Takes the node out if it is still in.
    pub(crate) fn remove(&mut self, node: &Node) {
        if !node.queued.replace(false) {
            return;
        }
        let (prev, next) = (node.prev.get(), node.next.get());
        // SAFETY: its neighbours are in the queue, so alive, and the caller holds the queue.
        unsafe {
            match std::ptr::eq(self.head, node) {
                true => self.head = next,
                false => (*prev).next.set(next),
            }
            // The head holds the pointer to the tail.
            if let Some(keeper) = next.as_ref().or(self.head.as_ref()) {
                keeper.prev.set(prev);
            }
        }
    }

    /// Takes the first waiter out whose time is not over. The caller must wake it.
    pub(crate) fn pop(&mut self) -> Option<Popped> {
        self.pop_if(|_| true)
    }

    /// As [`pop`](Self::pop), if `want` accepts the first waiter's word.
    pub(crate) fn pop_if(&mut self, want: impl Fn(usize) -> bool) -> Option<Popped> {
        loop {
            // SAFETY: a node in the queue is alive; one that timed out waits for the queue's lock before it leaves.
            let node = unsafe { self.head.as_ref() }.filter(|node| want(node.word.get()))?;
            self.remove(node);
            if node.deadline_ns == u64::MAX || node.claim.take(WOKEN) {
                return Some(Popped(node.into()));
            }
        }
    }

    /// Takes the most urgent waiter out, of equals the first. Looks at all of them.
    pub(crate) fn pop_urgent(&mut self) -> Option<Popped> {
        loop {
            let mut best: Option<&Node> = None;
            let mut at = self.head;
            // SAFETY: nodes in the queue are alive, and the caller holds the queue.
            while let Some(node) = unsafe { at.as_ref() } {
                if best.is_none_or(|best| node.waiter.urgency() > best.waiter.urgency()) {
                    best = Some(node);
                }
                at = node.next.get();
            }
            let best = best?;
            self.remove(best);
            if best.deadline_ns == u64::MAX || best.claim.take(WOKEN) {
                return Some(Popped(best.into()));
            }
        }
    }

    /// Takes all waiters out.
    pub(crate) fn pop_all(&mut self) -> PoppedList {
        self.pop_many(usize::MAX)
    }

    /// Takes the first waiters out, at most `n`.
    pub(crate) fn pop_many(&mut self, n: usize) -> PoppedList {
        let mut list = PoppedList::new();
        while list.len < n
            && let Some(first) = self.pop()
        {
            list.push(first);
        }
        list
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_empty() { "Queue(empty)" } else { "Queue(..)" })
    }
}

/// A waiter that the caller, and no other thread, must wake.
#[must_use = "it sleeps for ever unless it is woken"]
pub(crate) struct Popped(NonNull<Node>);

impl Popped {
    pub(crate) fn word(&self) -> usize {
        // SAFETY: not woken yet, so alive.
        unsafe { self.0.as_ref() }.word.get()
    }

    /// Sets what the waiter finds in its `word`.
    pub(crate) fn grant(&self, word: usize) {
        // SAFETY: not woken yet, so alive.
        unsafe { self.0.as_ref() }.word.set(word);
    }

    /// Wakes the waiter. To be called when the queue's lock is free again.
    pub(crate) fn wake(self) {
        // SAFETY: popping it gave the right; the node may be gone afterwards. No reference to it is held.
        unsafe { Waiter::wake(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).waiter)) };
    }
}

/// Several waiters that the caller must wake, in their order.
#[must_use = "they sleep for ever unless they are woken"]
pub(crate) struct PoppedList {
    head: *const Node,
    tail: *const Node,
    len: usize,
}

impl PoppedList {
    pub(crate) fn new() -> PoppedList {
        PoppedList { head: null(), tail: null(), len: 0 }
    }

    pub(crate) fn push(&mut self, last: Popped) {
        let last = last.0.as_ptr().cast_const();
        // SAFETY: both are popped and not woken yet.
        unsafe {
            (*last).next.set(null());
            match self.tail.as_ref() {
                Some(tail) => tail.next.set(last),
                None => self.head = last,
            }
        }
        self.tail = last;
        self.len += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// As [`wake`](Self::wake), but goroutines that were parked go to the caller, which owns them now.
    pub(crate) fn ready_into(self, mut each: impl FnMut(GPtr)) {
        let mut at = self.head;
        while let Some(node) = NonNull::new(at.cast_mut()) {
            // SAFETY: popped and not woken yet; read before it is.
            at = unsafe { node.as_ref() }.next.get();
            // SAFETY: as above.
            match unsafe { &node.as_ref().waiter } {
                &Waiter::G(g) => {
                    if g.notify() == Wake::Enqueue {
                        each(g);
                    }
                }
                _ => Popped(node).wake(),
            }
        }
    }

    /// Wakes them; returns how many there were.
    pub(crate) fn wake(self) -> usize {
        let mut at = self.head;
        while let Some(node) = NonNull::new(at.cast_mut()) {
            // SAFETY: popped and not woken yet; read before it is.
            at = unsafe { node.as_ref() }.next.get();
            Popped(node).wake();
        }
        self.len
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(queue: &mut Queue) -> Vec<usize> {
        std::iter::from_fn(|| queue.pop()).map(|popped| popped.word()).collect()
    }

    #[test]
    fn first_in_first_out_and_any_may_leave() {
        let mut queue = Queue::new();
        let nodes: Vec<Node> = (0..5).map(|_| Node::new(&0usize, u64::MAX)).collect();
        for (i, node) in nodes.iter().enumerate() {
            node.word.set(i);
            // SAFETY: the nodes outlive the queue's use.
            unsafe { queue.push_back(node) };
        }
        for gone in [0, 2, 4, 4] {
            queue.remove(&nodes[gone]);
        }
        assert!(queue.pop_if(|word| word != 1).is_none());
        // SAFETY: as above; it has left.
        unsafe { queue.push_front(&nodes[4]) };
        assert_eq!(words(&mut queue), [4, 1, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn who_timed_out_is_passed_over() {
        let mut queue = Queue::new();
        let nodes = [7, 7, u64::MAX].map(|deadline_ns| Node::new(&0usize, deadline_ns));
        for (i, node) in nodes.iter().enumerate() {
            node.word.set(i);
            // SAFETY: as above.
            unsafe { queue.push_back(node) };
        }
        assert!(nodes[0].claim.take(crate::protocols::claim::TIMED_OUT));
        assert_eq!(words(&mut queue), [1, 2]);
        queue.remove(&nodes[0]); // as its owner does
        assert!(queue.is_empty());
    }

    #[test]
    fn equals_are_served_in_their_order() {
        let mut queue = Queue::new();
        let nodes = [u64::MAX; 3].map(|deadline_ns| Node::new(&0usize, deadline_ns));
        for (i, node) in nodes.iter().enumerate() {
            node.word.set(i);
            // SAFETY: as above.
            unsafe { queue.push_back(node) };
        }
        let served: Vec<usize> =
            std::iter::from_fn(|| queue.pop_urgent()).map(|popped| popped.word()).collect();
        assert_eq!(served, [0, 1, 2]);
    }
}
