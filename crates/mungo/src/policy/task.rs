//! Tasks: what a policy has in hand of a goroutine.
//!
//! A [`Task`] is linear: it cannot be copied, and whoever has it decides where the goroutine waits. It is not the only
//! way to the goroutine, though: each time that one is handed to a policy it gets a new number ([`Node::lend`]), and
//! the runtime may take it back by that number when the policy is replaced. A `Task` whose number has passed is void.
//! So neither a policy that forgets a task nor one that keeps it in a drawer can lose a goroutine.

use super::rank::{NORMAL_WEIGHT, Priority, Rank};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::Duration;

/// Why a task is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Cause {
    /// It is new.
    Spawned,
    /// Somebody woke it: a channel, a lock, a join.
    Woken,
    /// Its time came: a sleep or a timer ended.
    Timer,
    /// It yielded.
    Yielded,
    /// Its slice was over, or somebody more urgent came.
    Preempted,
    /// It was queued already, and its rank or the policy changed.
    Moved,
}

impl Cause {
    const ALL: [Cause; 6] =
        [Cause::Spawned, Cause::Woken, Cause::Timer, Cause::Yielded, Cause::Preempted, Cause::Moved];

    /// It was not runnable before.
    pub fn is_wakeup(self) -> bool {
        matches!(self, Cause::Spawned | Cause::Woken | Cause::Timer)
    }
}

/// What a policy may know of a goroutine: a snapshot.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The goroutine's id.
    pub id: u64,
    /// Its priority, with what it inherits from those who wait for a lock of it.
    pub priority: Priority,
    /// Its share, in proportion to others'; 1024 is usual.
    pub weight: u32,
    /// By when it shall be done, on the machine's clock; `u64::MAX`: never mind.
    pub deadline_ns: u64,
    /// It does [`budget_ns`](Self::budget_ns) of work in each such period; 0: it said nothing of that kind.
    pub period_ns: u64,
    /// See [`period_ns`](Self::period_ns).
    pub budget_ns: u64,
    /// CPU time that it has used, if the policy [asks for it](super::Scheduler::accounts_cpu_time), else 0.
    pub cpu_ns: u64,
    /// CPU time divided by weight: a goroutine of the usual weight ages as the clock does.
    pub vruntime_ns: u64,
    /// When it was last queued.
    pub enqueued_ns: u64,
    /// When it last began to run.
    pub dispatched_ns: u64,
    /// Where it ran last.
    pub last_proc: Option<usize>,
    /// Why it was last queued.
    pub cause: Cause,
    /// Two words of the policy's own: see [`Task::set_words`].
    pub words: [u64; 2],
}

/// What policies know of a goroutine: part of each G, off the lines that a switch touches, and used only if ranks or
/// policies are.
///
/// Written by whoever owns the goroutine, the rank also by others; all of it may be read by anybody at any time.
pub(crate) struct Node {
    id: AtomicU64,
    /// Odd: in the hands of a policy, by this number. Even: not.
    number: AtomicU32,
    /// Whose policy's `words` and `vruntime_ns` these are; 0: none has seen it.
    generation: AtomicU32,
    base: AtomicU8,
    /// What it inherits from those who wait for its locks.
    boost: AtomicU8,
    cause: AtomicU8,
    /// Where its task lies: 0 nowhere, 1 in the global queue, else in that of P `lane - 2`. Under the queue's lock.
    pub(super) lane: AtomicU32,
    /// Its place there. Under the queue's lock.
    pub(super) key: AtomicU64,
    pub(super) seq: AtomicU64,
    last_proc: AtomicU32,
    weight: AtomicU32,
    deadline_ns: AtomicU64,
    period_ns: AtomicU64,
    budget_ns: AtomicU64,
    cpu_ns: AtomicU64,
    vruntime_ns: AtomicU64,
    enqueued_ns: AtomicU64,
    dispatched_ns: AtomicU64,
    /// How many goroutines the policy had started when this one was queued.
    pub(super) seen_dispatches: AtomicU64,
    words: [AtomicU64; 2],
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

const NOWHERE: u32 = u32::MAX;

impl Node {
    pub(crate) const fn new() -> Node {
        Node {
            id: AtomicU64::new(0),
            number: AtomicU32::new(0),
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
            seen_dispatches: AtomicU64::new(0),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// Owner: a goroutine with this rank begins; what is not said comes from its parent.
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
        // What a child does is part of its parent's job; a reservation is not shared.
        let inherited = parent.map_or(u64::MAX, |p| p.deadline_ns.load(Relaxed));
        let own = rank.deadline_after_ns.map(|after_ns| now_ns.saturating_add(after_ns));
        let otherwise = if rank.period_budget.is_none() { inherited } else { u64::MAX };
        self.deadline_ns.store(own.unwrap_or(otherwise), Relaxed);
        let (period, budget) = rank.period_budget.unwrap_or_default();
        self.period_ns.store(nanos(period), Relaxed);
        self.budget_ns.store(nanos(budget), Relaxed);
    }

    /// Owner: the goroutine is under this policy for the first time: nothing is left of another one.
    pub(super) fn enter_generation(&self, id: u64, generation: u32) {
        if self.generation.load(Relaxed) != generation {
            self.id.store(id, Relaxed);
            self.generation.store(generation, Relaxed);
            self.vruntime_ns.store(0, Relaxed);
            self.set_words([0; 2]);
        }
    }

    pub(super) fn is_new(&self) -> bool {
        self.generation.load(Relaxed) == 0
    }

    pub(super) fn is_of(&self, generation: u32) -> bool {
        self.generation.load(Relaxed) == generation
    }

    /// Owner: hands the goroutine to a policy.
    pub(super) fn lend(&self, home: Option<Arc<dyn Home>>) -> Task {
        let number = self.number.load(Relaxed).wrapping_add(1);
        debug_assert!(number % 2 == 1, "it is lent already");
        // ORDERING: Release the goroutine to who revokes it; else it is published with the task.
        self.number.store(number, Release);
        Task { node: NonNull::from(self), number, home }
    }

    /// Whether a policy has it.
    pub(super) fn is_lent(&self) -> bool {
        self.number.load(Relaxed) % 2 == 1
    }

    /// Takes the goroutine back, if it is lent by that number. `true`: it is the caller's.
    fn take_back(&self, number: u32) -> bool {
        // ORDERING: AcqRel: what its holder did is the taker's, and the reverse.
        number % 2 == 1 && self.number.compare_exchange(number, number.wrapping_add(1), AcqRel, Acquire).is_ok()
    }

    /// Takes the goroutine from whoever has it. `true`: a policy of that generation had it, now the caller.
    pub(super) fn revoke(&self, generation: u32) -> bool {
        // ORDERING: as `take_back`.
        self.is_of(generation) && self.take_back(self.number.load(Acquire))
    }

    pub(crate) fn priority(&self) -> Priority {
        Priority::new(self.base.load(Relaxed).max(self.boost.load(Relaxed)))
    }

    /// Returns what it was, inherited or not.
    pub(super) fn set_base_priority(&self, priority: Priority) -> Priority {
        let before = self.priority();
        self.base.store(priority.level(), Relaxed);
        before
    }

    /// What it inherits; the lowest: nothing. Under the lock of `inherit`.
    pub(super) fn set_boost(&self, boost: Priority) {
        self.boost.store(boost.level(), Relaxed);
    }

    pub(super) fn is_boosted(&self) -> bool {
        self.boost.load(Relaxed) != 0
    }

    /// Why it will be queued next.
    pub(crate) fn set_cause(&self, cause: Cause) {
        self.cause.store(cause as u8, Relaxed);
    }

    pub(super) fn cause(&self) -> Cause {
        Cause::ALL[usize::from(self.cause.load(Relaxed)) % Cause::ALL.len()]
    }

    pub(super) fn note_enqueued(&self, now_ns: u64, dispatches: u64) {
        self.enqueued_ns.store(now_ns, Relaxed);
        self.seen_dispatches.store(dispatches, Relaxed);
    }

    pub(super) fn enqueued_ns(&self) -> u64 {
        self.enqueued_ns.load(Relaxed)
    }

    pub(super) fn note_dispatched(&self, now_ns: u64, proc: u32) {
        self.dispatched_ns.store(now_ns, Relaxed);
        self.last_proc.store(proc, Relaxed);
    }

    /// It used so much CPU time.
    pub(super) fn charge(&self, cpu_ns: u64) {
        self.cpu_ns.fetch_add(cpu_ns, Relaxed);
        let weight = u128::from(self.weight.load(Relaxed).max(1));
        let aged = u128::from(cpu_ns) * u128::from(NORMAL_WEIGHT) / weight;
        self.vruntime_ns.fetch_add(aged as u64, Relaxed);
    }

    pub(super) fn set_words(&self, words: [u64; 2]) {
        self.words[0].store(words[0], Relaxed);
        self.words[1].store(words[1], Relaxed);
    }

    pub(super) fn info(&self) -> TaskInfo {
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

/// Where a task goes that a policy dropped.
pub(crate) trait Home: Send + Sync {
    fn came_back(&self, node: &Node);
}

/// A runnable goroutine in the hands of a policy, which queues it or returns it to be run.
///
/// There is one at a time for each goroutine. One that is dropped goes back to the runtime, which queues it anew and
/// counts a fault.
#[must_use = "queue it, or return it to be run: a task that is dropped counts as a fault"]
pub struct Task {
    node: NonNull<Node>,
    number: u32,
    /// `None`: a goroutine's, whose node is never freed. Else whoever owns the node.
    home: Option<Arc<dyn Home>>,
}

// SAFETY: a node is made of atomics, and lives: see `home`.
unsafe impl Send for Task {}
// SAFETY: as above.
unsafe impl Sync for Task {}

impl Task {
    pub(super) fn node(&self) -> &Node {
        // SAFETY: see `home`.
        unsafe { self.node.as_ref() }
    }

    /// Ends the loan. `None`: it was ended before, the task is void.
    pub(super) fn accept(self) -> Option<NonNull<Node>> {
        let mut this = std::mem::ManuallyDrop::new(self);
        drop(this.home.take());
        this.node().take_back(this.number).then_some(this.node)
    }

    /// What there is to know about it.
    pub fn info(&self) -> TaskInfo {
        self.node().info()
    }

    /// Its priority, with what it inherits.
    pub fn priority(&self) -> Priority {
        self.node().priority()
    }

    /// When it shall be done from now on, on the machine's clock.
    pub fn set_deadline_ns(&mut self, deadline_ns: u64) {
        self.node().deadline_ns.store(deadline_ns, Relaxed);
    }

    /// Its virtual run time from now on.
    pub fn set_vruntime_ns(&mut self, vruntime_ns: u64) {
        self.node().vruntime_ns.store(vruntime_ns, Relaxed);
    }

    /// Two words that the runtime keeps with the goroutine for the policy, and shows in [`TaskInfo::words`]. They are 0
    /// when a policy sees the goroutine for the first time.
    pub fn set_words(&mut self, words: [u64; 2]) {
        self.node().set_words(words);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.node().take_back(self.number) {
            match &self.home {
                Some(home) => home.came_back(self.node()),
                None => super::hooks::came_back(self.node),
            }
        }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Task").field(&self.info().id).finish()
    }
}
