//! The queue of those who wait on one side of a channel, and how one of them becomes the partner.
//!
//! A [`Node`] lies on the frame of the one who waits (or in its [`Select`](super::Select)), so a queue allocates
//! nothing. Everything here happens under the channel's lock, but two things: an [`Operation`]'s claim, which the timer and
//! the other channels of a select go for too, and the look at [`is_linked`](Node::is_linked) by a select on its way out.
//!
//! Invariants:
//! - A node is touched by others only while it is linked, or after they won its operation's claim and before they
//!   wake it. So its owner may leave when it is neither.
//! - Whoever wins a claim unlinks the node, does its part, and wakes, once.
//! - A node whose claim is lost is unlinked by whoever meets it, or by its owner.
//!
//! Small enough for a model: see the tests.

#[cfg(loom)]
use loom::sync::atomic::AtomicBool;
#[cfg(not(loom))]
use std::sync::atomic::AtomicBool;

#[cfg(not(loom))]
use super::core::Entered;
#[cfg(not(loom))]
use crate::sched::park::Waiter;

use crate::sched::claim::{Claim, TIMED_OUT};
use std::cell::Cell;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// One blocking call: who waits, and who has ended its wait.
pub(crate) struct Operation {
    pub(super) claim: Claim,
    /// One queue's lock guards the claim: no timer, no second channel.
    pub(super) exclusive: bool,
    #[cfg(not(loom))]
    pub(super) waiter: Waiter,
}

/// What a partner says when it ends a wait.
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

/// How a wait ended, and in which case of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ended(usize, Ending),
    TimedOut,
}

/// The codes of a claim below this are `sched::claim`'s own.
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
    /// How the wait ended. To be asked after the wake-up.
    pub(super) fn outcome(&self) -> Outcome {
        Outcome::from_code(self.claim.winner().expect("woken, so somebody won"))
    }
}

/// A place in a queue: one case of an operation.
pub(crate) struct Node {
    prev: Cell<*const Node>,
    next: Cell<*const Node>,
    /// Written under the channel's lock.
    linked: AtomicBool,
    op: Cell<*const Operation>,
    case: Cell<usize>,
    /// A receiver's place for the value, a sender's value; null: a sender of a select, which has none yet.
    slot: Cell<*mut ()>,
    /// The receiver that waits for the value of this sender without one. Written by the receiver that won the claim.
    partner: Cell<*const Node>,
}

impl Node {
    pub(crate) fn new() -> Node {
        Node {
            prev: Cell::new(null()),
            next: Cell::new(null()),
            linked: AtomicBool::new(false),
            op: Cell::new(null()),
            case: Cell::new(0),
            slot: Cell::new(null_mut()),
            partner: Cell::new(null()),
        }
    }

    /// Makes it ready for one wait of `op`. By its owner, while nobody knows it.
    pub(super) fn arm(&self, op: &Operation, case: usize, slot: *mut ()) {
        self.op.set(op);
        self.case.set(case);
        self.slot.set(slot);
        self.partner.set(null());
    }

    pub(super) fn slot(&self) -> *mut () {
        self.slot.get()
    }

    /// By a receiver that won this sender's claim, before it wakes it.
    pub(super) fn set_partner(&self, receiver: &Node) {
        self.partner.set(receiver);
    }

    pub(super) fn partner(&self) -> Option<NonNull<Node>> {
        NonNull::new(self.partner.get().cast_mut())
    }

    /// `false`: nobody else will touch it any more.
    pub(super) fn is_linked(&self) -> bool {
        // ORDERING: Acquire pairs with `unlink`: whoever took it out is done with it.
        self.linked.load(Acquire)
    }

    fn op(&self) -> &Operation {
        // SAFETY: armed; the operation lives on the frame that waits, as long as the node is linked or claimed.
        unsafe { &*self.op.get() }
    }

    /// Goes for the claim. `true`: the caller ends this wait, and must wake it.
    #[inline]
    fn try_claim(&self, ending: Ending) -> bool {
        let op = self.op();
        if op.exclusive {
            op.claim.settle(code(self.case.get(), ending));
            return true;
        }
        op.claim.take(code(self.case.get(), ending))
    }

    /// By the one who won the claim, or whose partner this is: says how it ends.
    pub(super) fn settle(&self, ending: Ending) {
        self.op().claim.settle(code(self.case.get(), ending));
    }

    /// Ends the wait; the node may be gone afterwards.
    ///
    /// # Safety
    /// The caller won the claim, and has not woken it yet.
    #[cfg(not(loom))]
    #[inline]
    pub(super) unsafe fn wake(this: NonNull<Node>, waker: &Entered) {
        // SAFETY: alive until woken.
        let waiter = NonNull::from(unsafe { &this.as_ref().op().waiter });
        // SAFETY: by the caller.
        waker.with_running(|running| unsafe { Waiter::wake_by(running, waiter) });
    }
}

/// Those who wait, first come first served. Under the channel's lock.
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

    /// How many wait.
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
        // ORDERING: Release: we are done with it. See `is_linked`.
        node.linked.store(false, Release);
    }

    /// By its owner: takes it out, wherever it is; it may be out already.
    pub(super) fn remove(&mut self, node: &Node) {
        if node.linked.load(Relaxed) {
            self.unlink(node);
        }
    }

    /// Takes out the first whose claim can be won. The caller must wake it.
    #[inline]
    pub(super) fn claim_first(&mut self, ending: Ending) -> Option<NonNull<Node>> {
        loop {
            // SAFETY: linked nodes are alive, and this one stays so if we win; if not, we touch it only until it is
            // unlinked.
            let node = unsafe { self.head.as_ref() }?;
            let won = node.try_claim(ending);
            self.unlink(node);
            if won {
                return Some(node.into());
            }
        }
    }

    /// Takes out all, and adds those whose claim was won to `wakes`.
    pub(super) fn claim_all(&mut self, ending: Ending, wakes: &mut WakeList) {
        while let Some(node) = self.claim_first(ending) {
            wakes.push(node);
        }
    }

    /// Drops those at the front whose wait was ended by somebody else, so that "not empty" means "somebody waits".
    pub(super) fn drop_stale(&mut self) {
        // SAFETY: linked nodes are alive.
        while let Some(node) = unsafe { self.head.as_ref() } {
            if node.op().exclusive || node.op().claim.winner().is_none() {
                return;
            }
            self.unlink(node);
        }
    }
}

/// Nodes whose claim was won, to be woken when the lock is free.
#[must_use]
pub(crate) struct WakeList {
    first: *const Node,
}

impl WakeList {
    #[inline]
    pub(super) const fn new() -> WakeList {
        WakeList { first: null() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    #[inline]
    pub(super) fn push(&mut self, node: NonNull<Node>) {
        // SAFETY: claimed and not woken, so alive, and ours.
        unsafe { node.as_ref() }.next.set(self.first);
        self.first = node.as_ptr();
    }

    /// One of them.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.first.cast_mut())?;
        // SAFETY: as above.
        self.first = unsafe { node.as_ref() }.next.get();
        Some(node)
    }

    /// Takes over what `other` holds.
    pub(super) fn append(&mut self, mut other: WakeList) {
        while let Some(node) = other.pop() {
            self.push(node);
        }
    }

    #[cfg(not(loom))]
    #[inline]
    pub(super) fn wake_all(&mut self, waker: &Entered) {
        while let Some(node) = self.pop() {
            // SAFETY: won by whoever put it here, and popped once.
            unsafe { Node::wake(node, waker) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn operation(exclusive: bool) -> Operation {
        Operation { claim: Claim::new(), exclusive, waiter: Waiter::current() }
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
        let mut wakes = WakeList::new();
        queue.claim_all(Ending::Closed, &mut wakes);
        assert_eq!(wakes.pop(), Some(NonNull::from(&nodes[3])));
        assert_eq!((wakes.pop(), queue.is_empty()), (None, true));
        assert_eq!(ops[3].outcome(), Outcome::Ended(3, Ending::Closed));
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

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// Two channels and a select that waits on both.
    struct Model {
        channels: [Mutex<Queue>; 2],
        nodes: [Node; 2],
        op: Operation,
        /// Stands for the frame of the one who waits: whoever looks at its nodes reads it, and it writes it when it leaves.
        frame: UnsafeCell<()>,
        /// What the winner gives.
        value: UnsafeCell<usize>,
    }

    // SAFETY: the cells of the nodes are used under the channels' locks, or by the rules that the models check.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    impl Model {
        fn waiting() -> Arc<Model> {
            let model = Arc::new(Model {
                channels: [(); 2].map(|()| Mutex::new(Queue::new())),
                nodes: [(); 2].map(|()| Node::new()),
                op: Operation { claim: Claim::new(), exclusive: false },
                frame: UnsafeCell::new(()),
                value: UnsafeCell::new(0),
            });
            for (i, node) in model.nodes.iter().enumerate() {
                node.arm(&model.op, i, null_mut());
                // SAFETY: the model outlives its threads.
                unsafe { model.channels[i].lock().unwrap().push_back(node) };
            }
            model
        }

        /// A partner on channel `i`: `true` if it won and woke the select.
        fn partner(&self, i: usize) -> bool {
            let mut queue = self.channels[i].lock().unwrap();
            let looked = !queue.is_empty();
            if looked {
                self.frame.with(|_| ());
            }
            let won = queue.claim_first(Ending::Done).is_some();
            drop(queue);
            if won {
                // SAFETY: the winner is alone with the waiting one, who reads it after the wake-up.
                self.value.with_mut(|v| unsafe { *v = i + 1 });
            }
            won
        }

        /// The end of a select: out of all queues, and off its frame.
        fn leave(&self) {
            for (channel, node) in self.channels.iter().zip(&self.nodes) {
                if node.is_linked() {
                    channel.lock().unwrap().remove(node);
                }
            }
            self.frame.with_mut(|_| ());
        }
    }

    /// Partners on both channels come at once: one wins, and the select knows which one.
    #[test]
    fn loom_one_partner_wins() {
        loom::model(|| {
            let model = Model::waiting();
            let partners = [0, 1].map(|i| {
                let model = model.clone();
                thread::spawn(move || model.partner(i))
            });
            let wins = partners.map(|p| p.join().unwrap());
            assert!(wins[0] ^ wins[1]);
            let winner = usize::from(wins[1]);
            assert_eq!(model.op.outcome(), Outcome::Ended(winner, Ending::Done));
            // SAFETY: both are done.
            assert_eq!(model.value.with(|v| unsafe { *v }), winner + 1);
        });
    }

    /// The select leaves while a late partner still looks at its node: nobody touches the frame afterwards.
    #[test]
    fn loom_losers_let_go_before_the_frame_ends() {
        loom::model(|| {
            let model = Model::waiting();
            let late = {
                let model = model.clone();
                thread::spawn(move || model.partner(1))
            };
            // The timer.
            let timed_out = model.op.claim.take(TIMED_OUT);
            if timed_out {
                model.leave();
                assert!(!late.join().unwrap());
            } else {
                // Woken by the partner, which is done then.
                assert!(late.join().unwrap());
                model.leave();
            }
            assert_eq!(timed_out, model.op.outcome() == Outcome::TimedOut);
        });
    }

    /// The same with a wake-up that does not join: the winner's value is there once the claim is, and a partner on the
    /// other channel loses.
    #[test]
    fn loom_the_other_channel_loses() {
        loom::model(|| {
            let model = Model::waiting();
            assert!(model.partner(0));
            let other = {
                let model = model.clone();
                thread::spawn(move || model.partner(1))
            };
            assert_eq!(model.op.outcome(), Outcome::Ended(0, Ending::Done));
            model.leave();
            assert!(!other.join().unwrap());
            assert!(model.channels.iter().all(|c| c.lock().unwrap().is_empty()));
        });
    }

    /// Two selects, each on both ends of both channels, with all locks held while they look: one waits, the other one
    /// finds it, and they agree on the channel.
    #[test]
    fn loom_two_selects_meet() {
        struct Two {
            /// Both sides of both channels: senders of 0, of 1, receivers of 0, of 1.
            locked: Mutex<[Queue; 4]>,
            nodes: [[Node; 4]; 2],
            ops: [Operation; 2],
        }
        // SAFETY: the cells are used under the lock.
        unsafe impl Sync for Two {}
        // SAFETY: as above.
        unsafe impl Send for Two {}

        fn select(two: &Two, me: usize) -> Option<usize> {
            let mut queues = two.locked.lock().unwrap();
            for case in 0..4 {
                // A sender looks for a receiver and the other way round.
                if let Some(partner) = queues[(case + 2) % 4].claim_first(Ending::Done) {
                    // SAFETY: won, and alive: the other one waits.
                    assert!(two.nodes[1 - me].iter().any(|n| std::ptr::eq(n, unsafe { partner.as_ref() })));
                    return Some(case);
                }
            }
            for case in 0..4 {
                two.nodes[me][case].arm(&two.ops[me], case, null_mut());
                // SAFETY: the model outlives its threads.
                unsafe { queues[case].push_back(&two.nodes[me][case]) };
            }
            None
        }

        loom::model(|| {
            let two = Arc::new(Two {
                locked: Mutex::new([(); 4].map(|()| Queue::new())),
                nodes: [(); 2].map(|()| [(); 4].map(|()| Node::new())),
                ops: [(); 2].map(|()| Operation { claim: Claim::new(), exclusive: false }),
            });
            let other = {
                let two = two.clone();
                thread::spawn(move || select(&two, 1))
            };
            let chosen = [select(&two, 0), other.join().unwrap()];
            let waiting = chosen.iter().position(Option::is_none).expect("the first one waits");
            let case = chosen[1 - waiting].expect("the second one finds it");
            assert_eq!(two.ops[waiting].outcome(), Outcome::Ended((case + 2) % 4, Ending::Done));
        });
    }
}
