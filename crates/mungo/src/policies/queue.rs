//! The queues behind a [`Proc`](super::Proc): in the order of a key, with a place for the one that goes next.
//!
//! The machine owns them, not the policy: so that tasks can move over when the policy is replaced.

use crate::lock::Lock;
use crate::policies::task::{Node, Task, TaskInfo};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A value of `Node::lane`: in no queue.
const IN_NONE: u32 = 0;
/// A value of `Node::lane`: in the queue that all Ps share.
pub(crate) const GLOBAL: u32 = 1;
/// The value of `Node::lane` for P 0.
pub(crate) const FIRST_LOCAL: u32 = 2;

/// The first sequence number: in the middle, so that there is room in front.
const MIDDLE: u64 = 1 << 63;

type Place = (u64, u64);

/// A queue of tasks, sorted by key, and by arrival among equals.
struct Queue {
    next: Option<Task>,
    sorted: BTreeMap<Place, Task>,
    front: u64,
    back: u64,
    closed: bool,
}

/// A queue under its lock.
#[repr(align(128))]
pub(crate) struct Lane {
    id: u32,
    queue: Lock<Queue>,
    /// Number of tasks. Written under the lock, read by any thread.
    len: AtomicUsize,
}

/// The lane was closed; the task is with the caller.
pub(crate) struct Closed(pub(crate) Task);

impl Lane {
    pub(crate) fn new(id: u32) -> Lane {
        let queue = Queue { next: None, sorted: BTreeMap::new(), front: MIDDLE, back: MIDDLE, closed: false };
        Lane { id, queue: Lock::new(queue), len: AtomicUsize::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    fn change<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        let mut queue = self.queue.lock();
        let result = f(&mut queue);
        self.len.store(queue.sorted.len() + usize::from(queue.next.is_some()), Relaxed);
        result
    }

    /// Adds a task at the place that `place` names.
    fn add(&self, task: Task, place: impl FnOnce(&mut Queue) -> Place) -> Result<(), Closed> {
        self.change(|queue| {
            if queue.closed {
                return Err(Closed(task));
            }
            let place = place(queue);
            self.put(queue, task, place);
            Ok(())
        })
    }

    fn put(&self, queue: &mut Queue, task: Task, place: Place) {
        let node = task.node();
        node.lane.store(self.id, Relaxed);
        node.key.store(place.0, Relaxed);
        node.seq.store(place.1, Relaxed);
        let before = queue.sorted.insert(place, task);
        debug_assert!(before.is_none());
    }

    pub(crate) fn push(&self, task: Task, key: u64) -> Result<(), Closed> {
        self.add(task, |queue| (key, queue.last_number()))
    }

    pub(crate) fn push_back(&self, task: Task) -> Result<(), Closed> {
        self.add(task, Queue::behind)
    }

    pub(crate) fn push_front(&self, task: Task) -> Result<(), Closed> {
        self.add(task, |queue| {
            let key = queue.sorted.first_key_value().map_or(0, |((key, _), _)| *key);
            (key, queue.first_number())
        })
    }

    /// Puts a task next in line; the one that was next goes to the back.
    pub(crate) fn push_next(&self, task: Task) -> Result<(), Closed> {
        self.change(|queue| {
            if queue.closed {
                return Err(Closed(task));
            }
            task.node().lane.store(IN_NONE, Relaxed);
            if let Some(displaced) = queue.next.replace(task) {
                let place = queue.behind();
                self.put(queue, displaced, place);
            }
            Ok(())
        })
    }

    pub(crate) fn has_next(&self) -> bool {
        self.len() != 0 && self.queue.lock().next.is_some()
    }

    pub(crate) fn pop_next(&self) -> Option<Task> {
        match self.len() {
            0 => None,
            _ => self.change(|queue| queue.next.take()),
        }
    }

    /// Moves the task that is next in line to the back: the slice is over that it would have inherited.
    pub(crate) fn demote_next(&self) {
        self.change(|queue| {
            if let Some(next) = queue.next.take() {
                let place = queue.behind();
                self.put(queue, next, place);
            }
        });
    }

    /// Takes the task that is next in line, or else the one with the smallest key.
    pub(crate) fn pop_front(&self) -> Option<Task> {
        self.pop(|queue| queue.next.take().or_else(|| queue.sorted.pop_first().map(|(_, task)| task)))
    }

    pub(crate) fn pop_back(&self) -> Option<Task> {
        self.pop(|queue| queue.sorted.pop_last().map(|(_, task)| task).or_else(|| queue.next.take()))
    }

    /// Takes the first task in order that is `wanted`.
    pub(crate) fn pop_where(&self, mut wanted: impl FnMut(&TaskInfo) -> bool) -> Option<Task> {
        self.pop(|queue| {
            if queue.next.as_ref().is_some_and(|task| wanted(&task.info())) {
                return queue.next.take();
            }
            let place = queue.sorted.iter().find(|(_, task)| wanted(&task.info())).map(|(place, _)| *place)?;
            queue.sorted.remove(&place)
        })
    }

    fn pop(&self, take: impl FnOnce(&mut Queue) -> Option<Task>) -> Option<Task> {
        if self.len() == 0 {
            return None;
        }
        let task = self.change(take)?;
        task.node().lane.store(IN_NONE, Relaxed);
        Some(task)
    }

    pub(crate) fn first_key(&self) -> Option<u64> {
        match self.len() {
            0 => None,
            _ => self.queue.lock().sorted.first_key_value().map(|((key, _), _)| *key),
        }
    }

    /// Returns the node of the first task, whatever becomes of it, if that is a goroutine's.
    pub(crate) fn first(&self) -> Option<NonNull<Node>> {
        if self.len() == 0 {
            return None;
        }
        let queue = self.queue.lock();
        let first = queue.next.as_ref().or_else(|| queue.sorted.values().next())?;
        (!first.is_simulated()).then(|| NonNull::from(first.node()))
    }

    /// Shows the tasks in their order.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&TaskInfo)) {
        let queue = self.queue.lock();
        queue.next.iter().chain(queue.sorted.values()).for_each(|task| f(&task.info()));
    }

    /// Shows at most `n` tasks, going on behind `cursor`, which is moved; behind the last one it starts again. (Not
    /// when there is none left: those that take turns always put another one behind it.)
    pub(crate) fn for_some(&self, cursor: &mut Place, n: usize, mut f: impl FnMut(&Task)) {
        let queue = self.queue.lock();
        let mut rest = queue.sorted.range((Bound::Excluded(*cursor), Bound::Unbounded));
        let mut last = (0, 0);
        for (place, task) in rest.by_ref().take(n) {
            f(task);
            last = *place;
        }
        *cursor = if rest.next().is_some() { last } else { (0, 0) };
    }

    /// Takes out the task of that node, if it lies here.
    pub(crate) fn remove(&self, node: &Node) -> Option<Task> {
        self.pop(|queue| {
            if node.lane.load(Relaxed) != self.id {
                return None;
            }
            let place = (node.key.load(Relaxed), node.seq.load(Relaxed));
            if !queue.sorted.get(&place).is_some_and(|task| std::ptr::eq(task.node(), node)) {
                return None;
            }
            queue.sorted.remove(&place)
        })
    }

    /// Closes the queue: nothing goes in any more.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
    }
}

impl Queue {
    fn last_number(&mut self) -> u64 {
        self.back += 1;
        self.back
    }

    fn first_number(&mut self) -> u64 {
        self.front -= 1;
        self.front
    }

    /// Returns the place behind all others.
    fn behind(&mut self) -> Place {
        let key = self.sorted.last_key_value().map_or(0, |((key, _), _)| *key);
        (key, self.last_number())
    }
}
