//! Tasks: goroutines as a policy holds them.
//!
//! A [`Task`] is linear: it cannot be copied, and its holder decides where the goroutine waits. It is not the only way
//! to the goroutine, though: each time that one is handed to a policy it gets a new number ([`Node::lend`]), and the
//! runtime may take it back by that number when the policy is replaced. A `Task` whose number has passed is void. So
//! neither a policy that forgets a task nor one that keeps it elsewhere can lose a goroutine.

use crate::policies::rank::{NORMAL_WEIGHT, Priority, Rank};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::Duration;

/// The reason why a task is queued.
///
/// ```
/// use mungo::policy::sim::Machine;
///
/// use mungo::policy::{Cause, Fifo};
///
/// let mut machine = Machine::new(1, 1);
/// let a = machine.spawn();
/// machine.queue(&Fifo::new(), a, 0, Cause::Network);
/// assert_eq!(machine.info(a).cause, Cause::Network);
/// assert_eq!(machine.next(&Fifo::new(), 0), Some(a));
/// machine.queue(&Fifo::new(), a, 0, Cause::Preempted);
/// assert_eq!(machine.info(a).cause, Cause::Preempted);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Cause {
    /// It is new.
    Spawned,
    /// Another goroutine woke it: by a channel, a lock, a join.
    Woken,
    /// Its time came: a sleep or a timer ended.
    Timer,
    /// Its descriptor became ready.
    Network,
    /// A plain thread woke it, or a goroutine of another runtime.
    Outside,
    /// It blocked its thread, and lost its processor meanwhile.
    Unblocked,
    /// It yielded.
    Yielded,
    /// Its slice was over, or a more urgent goroutine came.
    Preempted,
    /// It was queued already, and its rank or the policy changed.
    Moved,
}

impl Cause {
    /// All of them, in the order of their numbers, which traces have too (`sched/traced.rs`).
    pub(crate) const ALL: [Cause; 9] = [
        Cause::Spawned,
        Cause::Woken,
        Cause::Timer,
        Cause::Network,
        Cause::Outside,
        Cause::Unblocked,
        Cause::Yielded,
        Cause::Preempted,
        Cause::Moved,
    ];

    /// Returns whether it was not runnable before.
    ///
    /// ```
    /// use mungo::policy::Cause;
    /// assert!(Cause::Network.is_wakeup());
    /// assert!(!Cause::Preempted.is_wakeup());
    /// ```
    pub fn is_wakeup(self) -> bool {
        !matches!(self, Cause::Yielded | Cause::Preempted | Cause::Moved)
    }
}

/// The facts that a policy may know of a goroutine: a snapshot.
///
/// ```
/// use mungo::policy::sim::Machine;
///
/// use mungo::policy::{Cause, Fifo, Priority};
/// use std::time::Duration;
///
/// let mut machine = Machine::new(2, 1);
/// let a = machine.spawn_with(Priority::HIGH, 2048);
/// machine.queue(&Fifo::new(), a, 1, Cause::Spawned);
/// machine.advance(Duration::from_millis(3));
/// assert_eq!(machine.next(&Fifo::new(), 1), Some(a));
/// machine.charge(a, Duration::from_millis(2));
///
/// let info = machine.info(a);
/// assert_eq!((info.priority, info.weight, info.cause), (Priority::HIGH, 2048, Cause::Spawned));
/// assert_eq!(info.dispatched_ns - info.enqueued_ns, 3_000_000, "it waited 3 ms");
/// assert_eq!((info.cpu_ns, info.vruntime_ns), (2_000_000, 1_000_000));
/// assert_eq!(info.last_proc, Some(1));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The goroutine's id.
    pub id: u64,
    /// Its priority, with what it inherits from goroutines that wait for a lock of it.
    pub priority: Priority,
    /// Its share, in proportion to others'; 1024 is usual.
    pub weight: u32,
    /// Time by which it shall be done, in ns of the machine's clock; `u64::MAX`: it has no deadline.
    pub deadline_ns: u64,
    /// Period in ns in each of which it does [`budget_ns`](Self::budget_ns) of work; 0: it declared none.
    pub period_ns: u64,
    /// Work in ns in each [`period_ns`](Self::period_ns).
    pub budget_ns: u64,
    /// CPU time that it has used, in ns, if the policy [asks for it](super::Scheduler::accounts_cpu_time), else 0.
    pub cpu_ns: u64,
    /// CPU time divided by weight, in ns: a goroutine of the usual weight ages as the clock does.
    pub vruntime_ns: u64,
    /// Time when it was last queued, in ns.
    pub enqueued_ns: u64,
    /// Time when it last began to run, in ns.
    pub dispatched_ns: u64,
    /// The P where it ran last.
    pub last_proc: Option<usize>,
    /// The reason why it was last queued.
    pub cause: Cause,
    /// Two words of the policy's own: see [`Task::set_words`].
    pub words: [u64; 2],
}

/// The facts that policies know of a goroutine: one for each G, and used only if ranks or policies are.
///
/// Written by the owner of the goroutine, the rank also by others; all of it may be read by any thread at any time.
pub(crate) struct Node {
    /// Its goroutine, of which this layer knows no more; null in a simulation. Written before any other thread can see
    /// it.
    g: AtomicPtr<()>,
    /// The runtime or machine that takes it back from a policy; `None`: each task names it, in a simulation.
    home: Option<&'static dyn Home>,
    id: AtomicU64,
    /// Odd: a policy has it, by this number. Even: none has. It never comes around, so that an old task stays void.
    number: AtomicU64,
    /// The generation of the policy whose `words` and `vruntime_ns` these are; 0: none has seen it.
    generation: AtomicU32,
    base: AtomicU8,
    /// The priority that it inherits from goroutines that wait for its locks.
    boost: AtomicU8,
    cause: AtomicU8,
    /// The queue of its task: 0 none, 1 the global one, else that of P `lane - 2`. Under the queue's lock.
    pub(crate) lane: AtomicU32,
    /// Its place there. Under the queue's lock.
    pub(crate) key: AtomicU64,
    pub(crate) seq: AtomicU64,
    last_proc: AtomicU32,
    weight: AtomicU32,
    deadline_ns: AtomicU64,
    period_ns: AtomicU64,
    budget_ns: AtomicU64,
    cpu_ns: AtomicU64,
    vruntime_ns: AtomicU64,
    enqueued_ns: AtomicU64,
    dispatched_ns: AtomicU64,
    /// Number of goroutines that the policy will have started when this one counts as passed over.
    pub(crate) patience: AtomicU64,
    words: [AtomicU64; 2],
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

const NOWHERE: u32 = u32::MAX;

impl Node {
    pub(crate) const fn new(home: Option<&'static dyn Home>) -> Node {
        Node {
            home,
            g: AtomicPtr::new(std::ptr::null_mut()),
            id: AtomicU64::new(0),
            number: AtomicU64::new(0),
            generation: AtomicU32::new(0),
            base: AtomicU8::new(Priority::NORMAL.level()),
            boost: AtomicU8::new(0),
            cause: AtomicU8::new(Cause::Spawned as u8),
            lane: AtomicU32::new(0),
            key: AtomicU64::new(0),
            seq: AtomicU64::new(0),
            last_proc: AtomicU32::new(NOWHERE),
            weight: AtomicU32::new(NORMAL_WEIGHT),
            deadline_ns: AtomicU64::new(u64::MAX),
            period_ns: AtomicU64::new(0),
            budget_ns: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            vruntime_ns: AtomicU64::new(0),
            enqueued_ns: AtomicU64::new(0),
            dispatched_ns: AtomicU64::new(0),
            patience: AtomicU64::new(0),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    pub(crate) fn belongs_to(&self, g: *const ()) {
        self.g.store(g.cast_mut(), Relaxed);
    }

    /// Returns the goroutine; null in a simulation.
    pub(crate) fn g(&self) -> *mut () {
        self.g.load(Relaxed)
    }

    /// Sets the rank of a goroutine that begins, by its owner; what is not said comes from its parent.
    pub(crate) fn begin(&self, id: u64, rank: &Rank, parent: Option<&Node>, now_ns: u64) {
        self.id.store(id, Relaxed);
        self.generation.store(0, Relaxed);
        self.boost.store(0, Relaxed);
        self.cause.store(Cause::Spawned as u8, Relaxed);
        self.last_proc.store(NOWHERE, Relaxed);
        self.cpu_ns.store(0, Relaxed);
        self.dispatched_ns.store(0, Relaxed);
        let inherited = parent.map_or(Priority::NORMAL.level(), |p| p.base.load(Relaxed));
        self.base.store(rank.priority.map_or(inherited, Priority::level), Relaxed);
        let inherited = parent.map_or(NORMAL_WEIGHT, |p| p.weight.load(Relaxed));
        self.weight.store(rank.weight.unwrap_or(inherited), Relaxed);
        // The work of a child is part of its parent's job; a reservation is not shared.
        let inherited = parent.map_or(u64::MAX, |p| p.deadline_ns.load(Relaxed));
        let own = rank.deadline_after_ns.map(|after_ns| now_ns.saturating_add(after_ns));
        let otherwise = if rank.period_budget.is_none() { inherited } else { u64::MAX };
        self.deadline_ns.store(own.unwrap_or(otherwise), Relaxed);
        let (period, budget) = rank.period_budget.unwrap_or_default();
        self.period_ns.store(nanos(period), Relaxed);
        self.budget_ns.store(nanos(budget), Relaxed);
    }

    /// Clears what another policy left, by the owner: the goroutine is under this policy for the first time.
    pub(crate) fn enter_generation(&self, id: u64, generation: u32) {
        if self.generation.load(Relaxed) != generation {
            self.id.store(id, Relaxed);
            self.generation.store(generation, Relaxed);
            self.vruntime_ns.store(0, Relaxed);
            self.set_words([0; 2]);
        }
    }

    pub(crate) fn is_new(&self) -> bool {
        self.generation.load(Relaxed) == 0
    }

    pub(crate) fn is_of(&self, generation: u32) -> bool {
        self.generation.load(Relaxed) == generation
    }

    /// Hands the goroutine to a policy, by its owner.
    pub(crate) fn lend(&self, home: Option<Arc<dyn Home>>) -> Task {
        let number = self.number.load(Relaxed).wrapping_add(1);
        debug_assert!(number % 2 == 1, "it is lent already");
        // ORDERING: Release the goroutine to the thread that revokes it; else it is published with the task.
        self.number.store(number, Release);
        Task { node: NonNull::from(self), number, home }
    }

    /// Returns whether a policy has it.
    pub(crate) fn is_lent(&self) -> bool {
        self.number.load(Relaxed) % 2 == 1
    }

    /// Takes the goroutine back, if it is lent by that number. Returns whether it is the caller's now.
    fn take_back(&self, number: u64) -> bool {
        // ORDERING: AcqRel: what its holder did is the taker's, and the reverse.
        number % 2 == 1 && self.number.compare_exchange(number, number.wrapping_add(1), AcqRel, Acquire).is_ok()
    }

    /// Takes the goroutine from its holder. Returns `true` if a policy of that generation had it; now the caller has.
    pub(crate) fn revoke(&self, generation: u32) -> bool {
        // ORDERING: as `take_back`.
        self.is_of(generation) && self.take_back(self.number.load(Acquire))
    }

    pub(crate) fn priority(&self) -> Priority {
        Priority::new(self.base.load(Relaxed).max(self.boost.load(Relaxed)))
    }

    /// Sets the goroutine's own priority. Returns what it was, inherited or not.
    pub(crate) fn set_base_priority(&self, priority: Priority) -> Priority {
        let before = self.priority();
        self.base.store(priority.level(), Relaxed);
        before
    }

    /// Sets what it inherits; the lowest: nothing. Under the lock of `inherit`.
    pub(crate) fn set_boost(&self, boost: Priority) {
        self.boost.store(boost.level(), Relaxed);
    }

    pub(crate) fn is_boosted(&self) -> bool {
        self.boost.load(Relaxed) != 0
    }

    /// Sets why it will be queued next.
    pub(crate) fn set_cause(&self, cause: Cause) {
        self.cause.store(cause as u8, Relaxed);
    }

    pub(crate) fn cause(&self) -> Cause {
        Cause::ALL[usize::from(self.cause.load(Relaxed)) % Cause::ALL.len()]
    }

    pub(crate) fn note_enqueued(&self, now_ns: u64, patience: u64) {
        self.enqueued_ns.store(now_ns, Relaxed);
        self.patience.store(patience, Relaxed);
    }

    pub(crate) fn enqueued_ns(&self) -> u64 {
        self.enqueued_ns.load(Relaxed)
    }

    pub(crate) fn note_dispatched(&self, now_ns: u64, proc: u32) {
        self.dispatched_ns.store(now_ns, Relaxed);
        self.last_proc.store(proc, Relaxed);
    }

    /// Adds `cpu_ns` to the CPU time that it has used.
    pub(crate) fn charge(&self, cpu_ns: u64) {
        self.cpu_ns.fetch_add(cpu_ns, Relaxed);
        let weight = u128::from(self.weight.load(Relaxed).max(1));
        let aged = u128::from(cpu_ns) * u128::from(NORMAL_WEIGHT) / weight;
        self.vruntime_ns.fetch_add(aged as u64, Relaxed);
    }

    pub(crate) fn set_words(&self, words: [u64; 2]) {
        self.words[0].store(words[0], Relaxed);
        self.words[1].store(words[1], Relaxed);
    }

    pub(crate) fn info(&self) -> TaskInfo {
        let last_proc = self.last_proc.load(Relaxed);
        TaskInfo {
            id: self.id.load(Relaxed),
            priority: self.priority(),
            weight: self.weight.load(Relaxed),
            deadline_ns: self.deadline_ns.load(Relaxed),
            period_ns: self.period_ns.load(Relaxed),
            budget_ns: self.budget_ns.load(Relaxed),
            cpu_ns: self.cpu_ns.load(Relaxed),
            vruntime_ns: self.vruntime_ns.load(Relaxed),
            enqueued_ns: self.enqueued_ns.load(Relaxed),
            dispatched_ns: self.dispatched_ns.load(Relaxed),
            last_proc: (last_proc != NOWHERE).then_some(last_proc as usize),
            cause: self.cause(),
            words: [self.words[0].load(Relaxed), self.words[1].load(Relaxed)],
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.info().fmt(f)
    }
}

/// The place where a task goes that a policy does not keep.
pub(crate) trait Home: Send + Sync {
    /// Takes it back. `fault`: the policy dropped it; else its queue was closed.
    fn came_back(&self, node: &Node, fault: bool);
}

/// A runnable goroutine that a policy holds, to queue it or to return it to be run.
///
/// There is one at a time for each goroutine. A task that is dropped goes back to the runtime, which queues it anew
/// and counts a fault.
///
/// ```
/// use mungo::policy::sim::Machine;
///
/// use mungo::policy::{Cause, Fifo};
///
/// let mut machine = Machine::new(1, 1);
/// let a = machine.spawn();
/// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
/// let task = machine.proc(0).local().pop_front().unwrap();
/// assert_eq!(task.info().id, a);
/// machine.proc(0).local().push_back(task);
///
/// drop(machine.proc(0).local().pop_front());
/// assert_eq!(machine.dropped(), [a], "a fault");
/// ```
#[must_use = "queue it, or return it to be run: a task that is dropped counts as a fault"]
pub struct Task {
    node: NonNull<Node>,
    number: u64,
    /// The owner of the node; `None`: a goroutine's, whose node is never freed.
    home: Option<Arc<dyn Home>>,
}

// SAFETY: a node is made of atomics, and lives: see `home`.
unsafe impl Send for Task {}
// SAFETY: as above.
unsafe impl Sync for Task {}

impl Task {
    pub(crate) fn node(&self) -> &Node {
        // SAFETY: see `home`.
        unsafe { self.node.as_ref() }
    }

    /// Ends the loan. `None`: it was ended before, the task is void.
    pub(crate) fn accept(self) -> Option<NonNull<Node>> {
        let mut this = std::mem::ManuallyDrop::new(self);
        let accepted = this.node().take_back(this.number).then_some(this.node);
        drop(this.home.take()); // last: the node may lie in it
        accepted
    }

    /// Returns whether it is a simulation's, and so no goroutine.
    pub(crate) fn is_simulated(&self) -> bool {
        self.home.is_some()
    }

    /// Gives it back without a fault: the queue that it belongs to was closed.
    pub(crate) fn give_back(self) {
        let mut this = std::mem::ManuallyDrop::new(self);
        if this.node().take_back(this.number) {
            this.go_home(false);
        }
        drop(this.home.take());
    }

    fn go_home(&self, fault: bool) {
        let home = self.home.as_deref().or(self.node().home);
        home.expect("a goroutine's node has a home").came_back(self.node(), fault);
    }

    /// Returns what there is to know about it.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// let task = machine.proc(0).local().pop_front().unwrap();
    /// assert_eq!((task.info().id, task.info().cause), (a, Cause::Spawned));
    /// # machine.proc(0).local().push_back(task);
    /// ```
    pub fn info(&self) -> TaskInfo {
        self.node().info()
    }

    /// Returns its priority, with what it inherits.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo, Priority};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn_with(Priority::HIGH, 1024);
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// let task = machine.proc(0).local().pop_front().unwrap();
    /// assert_eq!(task.priority(), Priority::HIGH);
    /// # machine.proc(0).local().push_back(task);
    /// ```
    pub fn priority(&self) -> Priority {
        self.node().priority()
    }

    /// Sets when it shall be done from now on, in ns of the machine's clock.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// let mut task = machine.proc(0).local().pop_front().unwrap();
    /// assert_eq!(task.info().deadline_ns, u64::MAX, "it has none");
    /// task.set_deadline_ns(5_000_000);
    /// machine.proc(0).local().push(task, 5_000_000);
    /// assert_eq!(machine.info(a).deadline_ns, 5_000_000);
    /// ```
    pub fn set_deadline_ns(&mut self, deadline_ns: u64) {
        self.node().deadline_ns.store(deadline_ns, Relaxed);
    }

    /// Sets its virtual run time from now on, in ns.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// let mut task = machine.proc(0).local().pop_front().unwrap();
    /// task.set_vruntime_ns(7_000);
    /// machine.proc(0).local().push(task, 7_000);
    /// assert_eq!(machine.info(a).vruntime_ns, 7_000);
    /// ```
    pub fn set_vruntime_ns(&mut self, vruntime_ns: u64) {
        self.node().vruntime_ns.store(vruntime_ns, Relaxed);
    }

    /// Sets two words that the runtime keeps with the goroutine for the policy, and shows in [`TaskInfo::words`]. They
    /// are 0 when a policy sees the goroutine for the first time.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fifo};
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Fifo::new(), a, 0, Cause::Spawned);
    /// let mut task = machine.proc(0).local().pop_front().unwrap();
    /// assert_eq!(task.info().words, [0, 0]);
    /// task.set_words([1, 2]);
    /// machine.proc(0).local().push_back(task);
    /// assert_eq!(machine.info(a).words, [1, 2]);
    /// ```
    pub fn set_words(&mut self, words: [u64; 2]) {
        self.node().set_words(words);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.node().take_back(self.number) {
            self.go_home(true);
        }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Task").field(&self.info().id).finish()
    }
}
