//! The queues of the machine, as a policy sees them.

use crate::policies::queue::{Closed, Lane};
use crate::policies::task::{Task, TaskInfo};

/// A queue of the machine: tasks in the order of a key, and in the order of their arrival if the keys are equal.
///
/// A policy uses keys or ends: a task that is pushed to the front or to the back takes the key of its neighbour.
///
/// ```
/// use mungo::policy::sim::Machine;
/// use mungo::policy::{Cause, Fifo};
///
/// let mut machine = Machine::new(1, 1);
/// let (a, b) = (machine.spawn(), machine.spawn());
/// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
/// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
/// let mut proc = machine.proc(0);
/// let mut queue = proc.local();
/// assert_eq!(queue.len(), 2);
/// let first = queue.pop_front().unwrap();
/// queue.push_back(first);
/// let mut order = Vec::new();
/// queue.for_each(|task| order.push(task.id));
/// assert_eq!(order, [b, a]);
/// ```
pub struct RunQueue<'a>(pub(crate) &'a Lane);

impl RunQueue<'_> {
    /// Returns how many tasks wait; other threads may change it at any time.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// assert_eq!((proc.local().len(), proc.global().len()), (2, 0));
    /// ```
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no task waits.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// assert!(!proc.local().is_empty());
    /// assert!(proc.global().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a task behind those with a smaller or the same key.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let mut queue = proc.local();
    /// let (first, second) = (queue.pop_front().unwrap(), queue.pop_front().unwrap());
    /// queue.push(first, 20);
    /// queue.push(second, 10);
    /// assert_eq!(machine.next(&Fifo::new(), 0), Some(b), "the smaller key");
    /// ```
    pub fn push(&mut self, task: Task, key: u64) {
        give_back(self.0.push(task, key));
    }

    /// Adds a task behind all others.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let mut queue = proc.local();
    /// let first = queue.pop_front().unwrap();
    /// queue.push_back(first);
    /// assert_eq!(machine.next(&Fifo::new(), 0), Some(b));
    /// ```
    pub fn push_back(&mut self, task: Task) {
        give_back(self.0.push_back(task));
    }

    /// Adds a task before all others.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let mut queue = proc.local();
    /// let last = queue.pop_back().unwrap();
    /// queue.push_front(last);
    /// assert_eq!(machine.next(&Fifo::new(), 0), Some(b));
    /// ```
    pub fn push_front(&mut self, task: Task) {
        give_back(self.0.push_front(task));
    }

    /// Puts a task next in line, where it inherits the slice of the one that runs. The task that was there goes to the
    /// back; and so does this one if the slice ends first.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let mut queue = proc.local();
    /// let last = queue.pop_back().unwrap();
    /// queue.push_next(last);
    /// assert_eq!(queue.pop_next().map(|task| task.info().id), Some(b));
    /// ```
    pub fn push_next(&mut self, task: Task) {
        give_back(self.0.push_next(task));
    }

    /// Returns whether a task is next in line.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, DefaultPolicy};
    ///
    /// let (policy, mut machine) = (DefaultPolicy::new(), Machine::new(1, 1));
    /// let (old, woken) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, old, 0, Cause::Yielded);
    /// assert!(!machine.proc(0).local().has_next());
    /// machine.queue(&policy, woken, 0, Cause::Woken);
    /// assert!(machine.proc(0).local().has_next());
    /// ```
    pub fn has_next(&self) -> bool {
        self.0.has_next()
    }

    /// Takes the task that is next in line.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let mut queue = proc.local();
    /// assert!(queue.pop_next().is_none(), "both are in the queue, none is next in line");
    /// let first = queue.pop_front().unwrap();
    /// queue.push_next(first);
    /// assert_eq!(queue.pop_next().map(|task| task.info().id), Some(a));
    /// ```
    pub fn pop_next(&mut self) -> Option<Task> {
        self.0.pop_next()
    }

    /// Takes the task that is next in line, or else the first.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let mut queue = proc.local();
    /// assert_eq!(queue.pop_front().map(|task| task.info().id), Some(a));
    /// assert_eq!(queue.pop_front().map(|task| task.info().id), Some(b));
    /// assert!(queue.pop_front().is_none());
    /// ```
    pub fn pop_front(&mut self) -> Option<Task> {
        self.0.pop_front()
    }

    /// Takes the last task.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// assert_eq!(proc.local().pop_back().map(|task| task.info().id), Some(b));
    /// ```
    pub fn pop_back(&mut self) -> Option<Task> {
        self.0.pop_back()
    }

    /// Takes the first task that is `wanted`. Looks at all that are not, with the queue locked.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let wanted = proc.local().pop_where(|task| task.id == b).unwrap();
    /// assert_eq!(wanted.info().id, b);
    /// assert!(proc.local().pop_where(|task| task.id == b).is_none());
    /// ```
    pub fn pop_where(&mut self, wanted: impl FnMut(&TaskInfo) -> bool) -> Option<Task> {
        self.0.pop_where(wanted)
    }

    /// Returns the smallest key.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let mut queue = proc.local();
    /// let (first, second) = (queue.pop_front().unwrap(), queue.pop_front().unwrap());
    /// assert_eq!(queue.first_key(), None);
    /// queue.push(first, 20);
    /// queue.push(second, 10);
    /// assert_eq!(queue.first_key(), Some(10));
    /// ```
    pub fn first_key(&self) -> Option<u64> {
        self.0.first_key()
    }

    /// Shows the tasks that wait, in their order, with the queue locked.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// machine.queue(&Fifo::new(), b, 0, Cause::Spawned);
    /// let mut proc = machine.proc(0);
    /// let mut order = Vec::new();
    /// proc.local().for_each(|task| order.push(task.id));
    /// assert_eq!(order, [a, b]);
    /// ```
    pub fn for_each(&self, f: impl FnMut(&TaskInfo)) {
        self.0.for_each(f);
    }
}

impl std::fmt::Debug for RunQueue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunQueue").field("len", &self.len()).finish()
    }
}

/// Gives a task to the runtime if the queue was closed because the policy is being replaced.
fn give_back(pushed: Result<(), Closed>) {
    if let Err(Closed(task)) = pushed {
        task.give_back();
    }
}
