//! The tree behind contexts.
//!
//! A node is the root, a node with a value, or one that can be cancelled. Only the last kind has a state: asking one
//! of the others means asking the nearest of that kind above, its [`source`](Node::source).
//!
//! Locks: a node's state, then the heap of its alarm. Two nodes are never locked at once. The lock is the runtime's
//! own and not a `Mutex`, because a deadline passes on an M's own stack, which must not wait for a goroutine. For
//! the same reason what is left without an owner there is dropped by a goroutine: a value's `drop` is user code.

use super::hook::{Function, HookPtr, OnDone, start};
use super::{Cause, ContextError};
use crate::chan::{Receiver, Sender, bounded, never};
use crate::sched::run::lock::Lock;
use crate::sched::run::spawn::Spec;
use crate::sched::timers::alarm::{self, Alarm, Alarmed, Here};
use crate::sys::clock;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
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

/// The state of a node that can be cancelled.
pub(super) struct Source {
    state: Lock<State>,
    /// The channel behind [`Context::done`](super::Context::done); made at the first call.
    done: OnceLock<Receiver<()>>,
    /// The node's own deadline, earlier than any above; `None`: it has none.
    deadline: Option<Instant>,
    alarm: OnceLock<Arc<Deadline>>,
}

#[derive(Default)]
struct State {
    over: Option<(ContextError, Option<Cause>)>,
    /// Closes `done` when dropped; there from the making of `done` to the end.
    closer: Option<Sender<()>>,
    /// The sources below, by address. A child leaves when it is cancelled or dropped.
    children: BTreeMap<usize, Weak<Node>>,
    /// Waits that end with this node, by address; see `hook.rs`.
    hooks: BTreeMap<usize, HookPtr>,
    /// Functions of [`after_func`](super::after_func), by number, and the number of the next one.
    functions: BTreeMap<u64, Function>,
    next_function: u64,
}

impl Node {
    pub(super) fn root() -> Arc<Node> {
        Arc::new(Node { parent: None, kind: Kind::Root })
    }

    pub(super) fn with_value<T: Any + Send + Sync>(parent: &Arc<Node>, value: T) -> Arc<Node> {
        Arc::new(Node { parent: Some(parent.clone()), kind: Kind::Value(Box::new(value)) })
    }

    /// Makes a node that can be cancelled, and is cancelled with those above, or at its deadline.
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

    /// Iterates over the node and all above it.
    pub(super) fn chain(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(Some(self), |node| node.parent.as_deref())
    }

    /// Returns the source that decides whether this node is done.
    pub(super) fn source(&self) -> MaybeSource<'_> {
        MaybeSource(self.chain().find_map(|node| match &node.kind {
            Kind::Source(source) => Some(source),
            _ => None,
        }))
    }

    /// Returns the node of that source, and the source.
    pub(super) fn source_node(self: &Arc<Node>) -> Option<(Weak<Node>, &Source)> {
        let mut node = self;
        loop {
            match &node.kind {
                Kind::Source(source) => return Some((Arc::downgrade(node), source)),
                _ => node = node.parent.as_ref()?,
            }
        }
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

    /// Ends this node and all below. A node that ended before keeps its reason. Returns nodes that have no other owner
    /// any more, to be dropped by the caller, or elsewhere.
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

    /// Takes this node out of the list of the source above.
    fn leave_parent(&self) {
        if let Some(above) = self.parent.as_ref().and_then(|parent| parent.source().0) {
            above.state.lock().children.remove(&self.address());
        }
    }
}

impl Source {
    /// Ends this node; returns those below, which have to follow.
    fn end(&self, err: ContextError, cause: Option<Cause>) -> impl Iterator<Item = Arc<Node>> + use<> {
        let mut state = self.state.lock();
        let mut ended = State::default();
        if state.over.is_none() {
            ended = std::mem::replace(&mut *state, State { over: Some((err, cause)), ..State::default() });
            self.cancel_alarm();
            // Under the lock, so that a wait that takes its hook out knows that no call of it goes on.
            ended.hooks.values().for_each(HookPtr::call);
        }
        drop(state);
        drop(ended.closer); // closes the channel and wakes its waiters
        ended.functions.into_values().for_each(start);
        ended.children.into_values().filter_map(|child| child.upgrade())
    }

    /// Adds a hook; one that comes too late is called at once.
    pub(super) fn add_hook(&self, hook: &dyn OnDone) {
        let mut state = self.state.lock();
        match state.over {
            None => _ = state.hooks.insert(HookPtr::key(hook), HookPtr::new(hook)),
            Some(_) => hook.context_is_done(),
        }
    }

    /// Takes a hook out. When this has returned, no call of it goes on or will come.
    pub(super) fn remove_hook(&self, hook: &dyn OnDone) {
        self.state.lock().hooks.remove(&HookPtr::key(hook));
    }

    /// Adds a function, and returns its number. `None`: it was too late, and the function was started.
    pub(super) fn add_function(&self, function: Function) -> Option<u64> {
        let mut state = self.state.lock();
        if state.over.is_some() {
            drop(state);
            start(function);
            return None;
        }
        let number = state.next_function;
        state.next_function += 1;
        state.functions.insert(number, function);
        Some(number)
    }

    /// Takes a function out. `None`: it was taken out before, or started.
    pub(super) fn take_function(&self, number: u64) -> Option<Function> {
        self.state.lock().functions.remove(&number)
    }

    /// Cancels the alarm. The caller has locked the state, or is the last owner.
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
    pub(super) fn get(&self) -> Option<&'a Source> {
        self.0
    }

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
        if let Some(done) = source.done.get() {
            return done;
        }
        let (tx, rx) = bounded(1);
        // Under the lock, whose holder is not preempted: so no thread waits in the cell for a goroutine.
        let mut state = source.state.lock();
        source.done.get_or_init(|| {
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
        // A chain of nodes without other owners is taken apart link by link, not by recursion.
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
            // No caller waits for them, so it does no harm if there is no memory for a goroutine, or its runtime ends.
            let spec = Spec { name: Some("context".into()), ..Spec::here() };
            // SAFETY: it borrows nothing.
            drop(unsafe { spec.spawn(Some(&here.shared.to_arc()), move || drop(orphans)) });
        }
    }
}
