//! The tree behind contexts.
//!
//! A node is the root, a node with a value, or one that can be cancelled. Only the last kind has a state: asking one
//! of the others means asking the nearest of that kind above, its [`source`](Node::source).
//!
//! Locks: a node's state, then the heap of its alarm. Two nodes are never locked at once. The lock is the runtime's
//! own and not a `Mutex`, because a deadline passes on an M's own stack, which must not wait for a goroutine. For
//! the same reason what is left without an owner there is dropped by a goroutine: a value's `drop` is user code.

use super::{Cause, ContextError};
use crate::chan::{Receiver, Sender, bounded, never};
use crate::lock::Lock;
use crate::spawn::Spec;
use crate::sync::OnceLock;
use crate::sys::clock;
use crate::time::alarm::{self, Alarm, Alarmed, Here};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A place in the tree.
pub(super) struct Node {
    parent: Option<Arc<Node>>,
    kind: Kind,
}

enum Kind {
    Root,
    Value(Box<dyn Any + Send + Sync>),
    Source(Source),
}

/// What can be cancelled.
pub(super) struct Source {
    state: Lock<State>,
    /// Made when somebody asks.
    done: OnceLock<Receiver<()>>,
    /// Its own, earlier than any above.
    deadline: Option<Instant>,
    alarm: OnceLock<Arc<Deadline>>,
}

#[derive(Default)]
struct State {
    over: Option<(ContextError, Option<Cause>)>,
    /// Closes `done`; there from its making to the end.
    closer: Option<Sender<()>>,
    /// The sources below, by address. A child leaves when it is cancelled or dropped.
    children: BTreeMap<usize, Weak<Node>>,
}

impl Node {
    pub(super) fn root() -> Arc<Node> {
        Arc::new(Node { parent: None, kind: Kind::Root })
    }

    pub(super) fn with_value<T: Any + Send + Sync>(parent: &Arc<Node>, value: T) -> Arc<Node> {
        Arc::new(Node { parent: Some(parent.clone()), kind: Kind::Value(Box::new(value)) })
    }

    /// A node that can be cancelled, and is cancelled with those above, or at its deadline.
    pub(super) fn child(parent: &Arc<Node>, deadline: Option<Instant>) -> Arc<Node> {
        let source = Source {
            state: Lock::new(State::default()),
            done: OnceLock::new(),
            deadline,
            alarm: OnceLock::new(),
        };
        let node = Arc::new(Node { parent: Some(parent.clone()), kind: Kind::Source(source) });
        if let Some(above) = parent.source().0 {
            let mut state = above.state.lock();
            match state.over.clone() {
                None => {
                    state.children.insert(node.address(), Arc::downgrade(&node));
                }
                Some((err, cause)) => {
                    drop(state);
                    drop(node.clone().cancel(err, cause));
                    return node;
                }
            }
        }
        if let Some(deadline) = deadline {
            node.set_alarm(deadline);
        }
        node
    }

    fn set_alarm(self: &Arc<Node>, deadline: Instant) {
        let Kind::Source(source) = &self.kind else { return };
        let state = source.state.lock();
        if state.over.is_some() {
            return; // cancelled from above meanwhile
        }
        let alarm =
            source.alarm.get_or_init(|| Arc::new(Deadline { node: Arc::downgrade(self), alarm: Alarm::new() }));
        // SAFETY: under the lock of the state, as `cancel`.
        unsafe { alarm::set(alarm, clock::at_ns(deadline)) };
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The node and all above it.
    pub(super) fn chain(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(Some(self), |node| node.parent.as_deref())
    }

    /// What decides whether this node is done.
    pub(super) fn source(&self) -> MaybeSource<'_> {
        MaybeSource(self.chain().find_map(|node| match &node.kind {
            Kind::Source(source) => Some(source),
            _ => None,
        }))
    }

    pub(super) fn value<T: Any>(&self) -> Option<&T> {
        match &self.kind {
            Kind::Value(value) => value.downcast_ref(),
            _ => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Source(source) => source.deadline,
            _ => None,
        }
    }

    /// Ends this node and all below. What was over before keeps its reason. Returns nodes that nobody else holds any
    /// more, to be dropped by the caller, or elsewhere.
    pub(super) fn cancel(self: Arc<Node>, err: ContextError, cause: Option<Cause>) -> Vec<Node> {
        self.leave_parent();
        let mut orphans = Vec::new();
        let mut to_do = vec![self];
        while let Some(node) = to_do.pop() {
            if let Kind::Source(source) = &node.kind {
                to_do.extend(source.end(err, cause.clone()));
            }
            orphans.extend(Arc::into_inner(node));
        }
        orphans
    }

    /// Those above need not know this one any more.
    fn leave_parent(&self) {
        if let Some(above) = self.parent.as_ref().and_then(|parent| parent.source().0) {
            above.state.lock().children.remove(&self.address());
        }
    }
}

impl Source {
    /// Ends this one; returns those below, which have to follow.
    fn end(&self, err: ContextError, cause: Option<Cause>) -> impl Iterator<Item = Arc<Node>> + use<> {
        let mut state = self.state.lock();
        let mut ended = State::default();
        if state.over.is_none() {
            ended = std::mem::replace(&mut *state, State { over: Some((err, cause)), ..State::default() });
            self.cancel_alarm();
        }
        drop(state);
        drop(ended.closer); // closes the channel and wakes who waits
        ended.children.into_values().filter_map(|child| child.upgrade())
    }

    /// With the state locked, or by the last owner.
    fn cancel_alarm(&self) {
        if let Some(alarm) = self.alarm.get() {
            // SAFETY: as said.
            unsafe { alarm::cancel(&**alarm) };
        }
    }
}

/// The nearest node that can be cancelled, if there is one.
pub(super) struct MaybeSource<'a>(Option<&'a Source>);

impl<'a> MaybeSource<'a> {
    pub(super) fn err(&self) -> Option<ContextError> {
        Some(self.0?.state.lock().over.as_ref()?.0)
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        let (err, cause) = self.0?.state.lock().over.clone()?;
        Some(cause.unwrap_or_else(|| Arc::new(err)))
    }

    pub(super) fn done(&self) -> &'a Receiver<()> {
        static NEVER: Receiver<()> = never();
        let Some(source) = self.0 else { return &NEVER };
        source.done.get_or_init(|| {
            let (tx, rx) = bounded(1);
            let mut state = source.state.lock();
            if state.over.is_none() {
                state.closer = Some(tx);
            } // else it is closed at once
            rx
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Kind::Source(source) = &self.kind {
            source.cancel_alarm();
            self.leave_parent();
        }
        // A chain of nodes that nobody else holds is taken apart link by link, not by recursion.
        let mut above = self.parent.take();
        while let Some(parent) = above {
            above = Arc::into_inner(parent).and_then(|mut parent| {
                let next = parent.detach();
                drop(parent);
                next
            });
        }
    }
}

impl Node {
    /// Takes the parent away, after doing what needs it.
    fn detach(&mut self) -> Option<Arc<Node>> {
        if let Kind::Source(_) = &self.kind {
            self.leave_parent();
        }
        self.parent.take()
    }
}

/// The alarm of a node's deadline. WHY NOT in the node: the heap would keep it alive.
struct Deadline {
    node: Weak<Node>,
    alarm: Alarm,
}

impl Alarmed for Deadline {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn ring(self: Arc<Deadline>, here: Here<'_>) {
        let Some(node) = self.node.upgrade() else { return };
        let orphans = node.cancel(ContextError::DeadlineExceeded, None);
        if !orphans.is_empty() {
            // Nobody waits for them, so it does no harm if there is no memory for a goroutine, or its runtime ends.
            let spec = Spec { name: Some("context".into()), ..Spec::here() };
            // SAFETY: it borrows nothing.
            drop(unsafe { spec.spawn(Some(&here.shared.to_arc()), move || drop(orphans)) });
        }
    }
}
