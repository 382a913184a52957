//! Policies: the trait [`Scheduler`], what it sees, the policies that come with the runtime, and a machine on paper.
//!
//! Nothing here knows the runtime: it sees tasks and a [`Proc`]. The scheduler calls it from `sched/engine/`. The
//! public face of both is `policy.rs`.

mod chaos;
mod deadline;
pub(crate) mod default;
mod fair;
mod fifo;
mod handle;
mod lifo;
mod numa;
pub(crate) mod order;
mod priority;
pub(crate) mod proc;
pub(crate) mod queue;
pub(crate) mod rank;
pub(crate) mod registry;
mod run_queue;
pub mod sim;
pub(crate) mod stats;
pub(crate) mod task;
pub(crate) mod topology;
mod work_stealing;

pub use chaos::Chaos;
pub use deadline::Deadline;
pub use default::DefaultPolicy;
pub use fair::Fair;
pub use fifo::Fifo;
pub use handle::Policy;
pub use lifo::Lifo;
pub use numa::Numa;
pub use priority::PriorityLevels;
pub use proc::Proc;
pub use rank::{NORMAL_WEIGHT, Priority};
pub use registry::{Options, by_name, names, register};
pub use run_queue::RunQueue;
pub use stats::{ProcStats, Stats};
pub use task::{Cause, Task, TaskInfo};
pub use topology::Topology;
pub use work_stealing::WorkStealing;

pub(crate) use rank::Rank;
pub(crate) use registry::from_environment;
pub(crate) use task::Node;

use crate::policies::order::{FRESH_NS, GLOBAL_EVERY, STEAL_ROUNDS};
use crate::reason::WaitReason;
use std::any::Any;
use std::time::Duration;

/// A task to run.
///
/// ```
/// use mungo::policy::sim::Machine;
/// use mungo::policy::{Cause, DefaultPolicy, Scheduler};
///
/// let (policy, mut machine) = (DefaultPolicy::new(), Machine::new(1, 1));
/// let woken = machine.spawn();
/// machine.queue(&policy, woken, 0, Cause::Woken);
/// let next = policy.next_task(&mut machine.proc(0)).unwrap();
/// assert_eq!(next.task.info().id, woken);
/// assert!(next.inherit_time, "it shares the slice of its waker");
/// ```
#[derive(Debug)]
pub struct Next {
    /// The task.
    pub task: Task,
    /// Whether it goes on with the slice of the task that ran before, instead of getting its own.
    pub inherit_time: bool,
    /// Whether there is more to do: then another P is woken, if one is idle.
    pub wake_another: bool,
}

impl From<Task> for Next {
    /// Makes a `Next` with its own slice.
    fn from(task: Task) -> Next {
        Next { task, inherit_time: false, wake_another: false }
    }
}

/// Something that happened to a goroutine that was not in a queue.
///
/// ```
/// use mungo::policy::sim::Machine;
/// use mungo::WaitReason;
/// use mungo::policy::{Event, Proc, Scheduler, TaskInfo};
///
/// /// Counts in a goroutine's first word how often it slept.
/// struct Sleeps;
///
/// impl Scheduler for Sleeps {
///     fn event(&self, event: Event, task: &mut TaskInfo, _proc: &mut Proc<'_>) {
///         task.words[0] += u64::from(event == Event::Parked(WaitReason::Sleep));
///     }
/// }
///
/// let mut machine = Machine::new(1, 1);
/// let a = machine.spawn();
/// machine.stop(&Sleeps, a, 0, Event::Parked(WaitReason::Sleep));
/// machine.stop(&Sleeps, a, 0, Event::Parked(WaitReason::ChanRecv));
/// machine.stop(&Sleeps, a, 0, Event::Ended);
/// assert_eq!(machine.info(a).words, [1, 0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It waits, for this reason.
    Parked(WaitReason),
    /// It is over.
    Ended,
}

/// A policy: decides which goroutine runs next. See the [module](crate::policy) for the rules.
///
/// The first six methods are those of Go's proposed interface. Each body is what the default policy does, but for
/// [three things](crate::policy#what-the-bodies-leave-out).
///
/// ```
/// use mungo::policy::sim::Machine;
/// use mungo::policy::{Cause, Proc, Scheduler, Task};
///
/// /// Goroutines whose timer went off go before all others of their P.
/// struct TimersFirst;
///
/// impl Scheduler for TimersFirst {
///     fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
///         match task.info().cause {
///             Cause::Timer => proc.local().push_front(task),
///             _ => proc.local().push_back(task),
///         }
///     }
/// }
///
/// let mut machine = Machine::new(1, 1);
/// let (a, b) = (machine.spawn(), machine.spawn());
/// machine.queue(&TimersFirst, a, 0, Cause::Woken);
/// machine.queue(&TimersFirst, b, 0, Cause::Timer);
/// assert_eq!(machine.next(&TimersFirst, 0), Some(b));
/// assert_eq!(machine.next(&TimersFirst, 0), Some(a));
/// ```
pub trait Scheduler: Any + Send + Sync {
    /// Returns the policy's name, for messages and statistics.
    ///
    /// ```
    /// use mungo::policy::{Policy, Scheduler};
    ///
    /// struct Mine;
    ///
    /// impl Scheduler for Mine {
    ///     fn name(&self) -> &str {
    ///         "mine"
    ///     }
    /// }
    ///
    /// assert_eq!(Policy::from(Mine).name(), "mine");
    /// ```
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Returns the next task for this P; `None` if there is none anywhere.
    ///
    /// A task of another runtime, or of another machine, is not run: it goes home, and counts as dropped there.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Next, Proc, Scheduler, Task};
    ///
    /// /// One queue for all Ps, in the order of arrival.
    /// struct OneQueue;
    ///
    /// impl Scheduler for OneQueue {
    ///     fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
    ///         proc.global().push_back(task);
    ///     }
    ///
    ///     fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
    ///         proc.global().pop_front().map(Next::from)
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(2, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&OneQueue, a, 0, Cause::Spawned);
    /// machine.queue(&OneQueue, b, 0, Cause::Woken);
    /// assert_eq!(machine.next(&OneQueue, 1), Some(a));
    /// assert_eq!(machine.next(&OneQueue, 0), Some(b));
    /// assert_eq!(machine.next(&OneQueue, 0), None);
    /// ```
    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        if self.check_global_queue(proc)
            && let Some(task) = self.get_from_global_queue(proc)
        {
            return Some(task.into());
        }
        self.get_from_local_queue(proc)
            .or_else(|| self.get_from_global_queue(proc).map(Next::from))
            .or_else(|| self.steal_work(proc))
    }

    /// Puts a runnable task into a queue. `next`: the goroutine that runs on this P woke it, and it might run right
    /// after; `local`: it may wait at this P, else it was preempted or comes from elsewhere, and belongs to all.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Proc, Scheduler, Task};
    ///
    /// /// Urgent goroutines first, among those of a P.
    /// struct UrgentFirst;
    ///
    /// impl Scheduler for UrgentFirst {
    ///     fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
    ///         let key = u64::from(u8::MAX - task.priority().level());
    ///         proc.local().push(task, key);
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let usual = machine.spawn();
    /// let urgent = machine.spawn_with(mungo::policy::Priority::HIGH, 1024);
    /// machine.queue(&UrgentFirst, usual, 0, Cause::Spawned);
    /// machine.queue(&UrgentFirst, urgent, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&UrgentFirst, 0), Some(urgent));
    /// ```
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, next: bool, local: bool) {
        match (local, next) {
            (false, _) => proc.global().push_back(task),
            (true, true) => proc.local().push_next(task),
            (true, false) => proc.local().push_back(task),
        }
    }

    /// Takes work from other Ps, in the order of [`victim`](Self::victim).
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Next, Proc, Scheduler};
    ///
    /// /// Goroutines stay where they were queued.
    /// struct Loner;
    ///
    /// impl Scheduler for Loner {
    ///     fn steal_work(&self, _proc: &mut Proc<'_>) -> Option<Next> {
    ///         None
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(2, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Loner, a, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&Loner, 1), None);
    /// assert_eq!(machine.next(&Loner, 0), Some(a));
    /// ```
    fn steal_work(&self, proc: &mut Proc<'_>) -> Option<Next> {
        let start = proc.random();
        for attempt in 0.. {
            let victim = self.victim(proc, start, attempt)?;
            if let Some(task) = proc.steal_half(victim) {
                return Some(task.into());
            }
        }
        None
    }

    /// Takes a task from this P's own queue.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Next, Proc, Scheduler};
    ///
    /// /// The newest first.
    /// struct Newest;
    ///
    /// impl Scheduler for Newest {
    ///     fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
    ///         proc.local().pop_back().map(Next::from)
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (a, b) = (machine.spawn(), machine.spawn());
    /// machine.queue(&Newest, a, 0, Cause::Yielded);
    /// machine.queue(&Newest, b, 0, Cause::Yielded);
    /// assert_eq!(machine.next(&Newest, 0), Some(b));
    /// ```
    fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
        if let Some(task) = proc.local().pop_next() {
            return Some(Next { task, inherit_time: true, wake_another: false });
        }
        proc.local().pop_front().map(Next::from)
    }

    /// Takes a task from the global queue; others may move to the own queue along with it.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Proc, Scheduler, Task};
    ///
    /// /// Takes one at a time, and leaves the others for other Ps.
    /// struct OneAtATime;
    ///
    /// impl Scheduler for OneAtATime {
    ///     fn get_from_global_queue(&self, proc: &mut Proc<'_>) -> Option<Task> {
    ///         proc.global().pop_front()
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let first = machine.spawn();
    /// machine.queue(&OneAtATime, first, 0, Cause::Outside);
    /// for _ in 0..2 {
    ///     let other = machine.spawn();
    ///     machine.queue(&OneAtATime, other, 0, Cause::Outside);
    /// }
    /// assert_eq!(machine.next(&OneAtATime, 0), Some(first));
    /// assert_eq!(machine.proc(0).global().len(), 2);
    /// ```
    fn get_from_global_queue(&self, proc: &mut Proc<'_>) -> Option<Task> {
        proc.take_global_share()
    }

    /// Returns whether the global queue comes before the own one this time.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Proc, Scheduler};
    ///
    /// /// The queue of all comes first, always.
    /// struct GlobalFirst;
    ///
    /// impl Scheduler for GlobalFirst {
    ///     fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
    ///         !proc.global_is_empty()
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let (own, outside) = (machine.spawn(), machine.spawn());
    /// machine.queue(&GlobalFirst, own, 0, Cause::Yielded);
    /// machine.queue(&GlobalFirst, outside, 0, Cause::Outside);
    /// assert_eq!(machine.next(&GlobalFirst, 0), Some(outside));
    /// ```
    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, GLOBAL_EVERY)
    }

    /// Returns the P to steal from at the `attempt`th try, from 0 on; `None`: give up. `start` is a random number, the
    /// same for all tries of one thief.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Proc, Scheduler};
    ///
    /// /// Steals from the next P only.
    /// struct Neighbour;
    ///
    /// impl Scheduler for Neighbour {
    ///     fn victim(&self, proc: &Proc<'_>, _start: u64, attempt: usize) -> Option<usize> {
    ///         (attempt == 0).then(|| (proc.id() + 1) % proc.procs())
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(3, 1);
    /// let a = machine.spawn();
    /// machine.queue(&Neighbour, a, 1, Cause::Spawned);
    /// assert_eq!(machine.next(&Neighbour, 2), None, "its neighbour is P 0");
    /// assert_eq!(machine.next(&Neighbour, 0), Some(a));
    /// ```
    fn victim(&self, proc: &Proc<'_>, start: u64, attempt: usize) -> Option<usize> {
        let n = proc.procs();
        (attempt < STEAL_ROUNDS * n).then(|| (start % n as u64) as usize + attempt).map(|at| at % n)
    }

    /// Returns how long the task may run while others wait. The monitor looks about every millisecond.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Priority, Scheduler, TaskInfo};
    /// use std::time::Duration;
    ///
    /// /// Background work gets half a slice.
    /// struct Halves;
    ///
    /// impl Scheduler for Halves {
    ///     fn time_slice(&self, task: &TaskInfo, default: Duration) -> Duration {
    ///         if task.priority < Priority::NORMAL { default / 2 } else { default }
    ///     }
    /// }
    ///
    /// let mut machine = Machine::new(1, 1);
    /// let background = machine.spawn_with(Priority::LOW, 1024);
    /// let slice = Halves.time_slice(&machine.info(background), Duration::from_millis(10));
    /// assert_eq!(slice, Duration::from_millis(5));
    /// ```
    fn time_slice(&self, task: &TaskInfo, default: Duration) -> Duration {
        _ = task;
        default
    }

    /// Returns whether a task that has just become runnable shall displace one that runs. Asked if no P is idle; if it
    /// is `true` for several, it is also asked which of those to displace.
    ///
    /// Unless a policy says otherwise, a task that was spawned or woken does, if the other has computed for 200 µs.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, DefaultPolicy, Scheduler};
    /// use std::time::Duration;
    ///
    /// let (policy, mut machine) = (DefaultPolicy::new(), Machine::new(1, 1));
    /// let (long, short) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, long, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&policy, 0), Some(long));
    /// machine.advance(Duration::from_millis(1));
    /// machine.queue(&policy, short, 0, Cause::Network);
    /// assert!(policy.should_preempt(&machine.info(long), &machine.info(short)));
    /// ```
    fn should_preempt(&self, running: &TaskInfo, waking: &TaskInfo) -> bool {
        waking.cause.is_wakeup() && waking.enqueued_ns.saturating_sub(running.dispatched_ns) > FRESH_NS
    }

    /// Returns `Ok` if a goroutine with a period and a budget may be started. `id` is 0: it has none yet.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Scheduler, TaskInfo};
    /// use std::time::Duration;
    ///
    /// /// No goroutine may have more than half of a CPU.
    /// struct AtMostHalf;
    ///
    /// impl Scheduler for AtMostHalf {
    ///     fn admit(&self, task: &TaskInfo, _procs: usize) -> Result<(), String> {
    ///         match task.budget_ns <= task.period_ns / 2 {
    ///             true => Ok(()),
    ///             false => Err("ask for at most half of a CPU".to_owned()),
    ///         }
    ///     }
    /// }
    ///
    /// let ms = Duration::from_millis;
    /// let mut machine = Machine::new(1, 1);
    /// assert!(machine.spawn_periodic(&AtMostHalf, ms(10), ms(5)).is_ok());
    /// let error = machine.spawn_periodic(&AtMostHalf, ms(10), ms(6)).unwrap_err();
    /// assert_eq!(error.to_string(), "ask for at most half of a CPU");
    /// ```
    ///
    /// # Errors
    /// Says why not; [`Builder::spawn`](crate::Builder::spawn) returns it.
    fn admit(&self, task: &TaskInfo, procs: usize) -> Result<(), String> {
        _ = (task, procs);
        Ok(())
    }

    /// Called when a goroutine stopped running and is not queued. What is written to `task.words` is kept.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Event, Proc, Scheduler, TaskInfo};
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// /// Counts the goroutines that have ended.
    /// #[derive(Default)]
    /// struct Counts(AtomicU64);
    ///
    /// impl Scheduler for Counts {
    ///     fn event(&self, event: Event, _task: &mut TaskInfo, _proc: &mut Proc<'_>) {
    ///         self.0.fetch_add(u64::from(event == Event::Ended), Relaxed);
    ///     }
    /// }
    ///
    /// let (policy, mut machine) = (Counts::default(), Machine::new(1, 1));
    /// let a = machine.spawn();
    /// machine.stop(&policy, a, 0, Event::Ended);
    /// assert_eq!(policy.0.load(Relaxed), 1);
    /// ```
    fn event(&self, event: Event, task: &mut TaskInfo, proc: &mut Proc<'_>) {
        _ = (event, task, proc);
    }

    /// Returns whether the runtime shall read the CPU clock at each switch, for [`TaskInfo::cpu_ns`] and
    /// [`TaskInfo::vruntime_ns`]. Asked once.
    ///
    /// ```
    /// use mungo::policy::{Fair, Fifo, Scheduler};
    ///
    /// assert!(Fair::new().accounts_cpu_time(), "shares of CPU time need it");
    /// assert!(!Fifo::new().accounts_cpu_time());
    /// ```
    fn accounts_cpu_time(&self) -> bool {
        false
    }
}

/// Returns whether it is the global queue's turn, at each `n`th tick, and it is not empty. A task that is next in line
/// inherits the slice, so it goes before it; the tick stays the same meanwhile.
fn every(proc: &mut Proc<'_>, n: u32) -> bool {
    let turn = proc.tick().is_multiple_of(n) && !proc.global_is_empty() && !proc.local().has_next();
    if turn {
        proc.note_global_check();
    }
    turn
}
