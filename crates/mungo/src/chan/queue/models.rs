//! Models of the claim: what `loom` tries in every order.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Two channels and a select that waits on both.
struct Model {
    channels: [Mutex<Queue>; 2],
    nodes: [Node; 2],
    op: Operation,
    /// Stands for the frame of the waiter: threads that look at its nodes read it, and the waiter writes it at its
    /// end.
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
            op: Operation { claim: Claim::new(), kind: Kind::Contested, waiter: Waiter::current() },
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

    /// Runs a partner on channel `i`. Returns whether it won and woke the select.
    fn partner(&self, i: usize) -> bool {
        let mut queue = self.channels[i].lock().unwrap();
        let looked = !queue.is_empty();
        if looked {
            self.frame.with(|_| ());
        }
        let won = queue.claim_first(Ending::Done).is_some();
        drop(queue);
        if won {
            // SAFETY: the winner is alone with the waiter, which reads it after the wake-up.
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

/// The select leaves while a late partner still looks at its node: no thread touches the frame afterwards.
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
            ops: [(); 2].map(|()| Operation {
                claim: Claim::new(),
                kind: Kind::Contested,
                waiter: Waiter::current(),
            }),
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
