//! The scheduler's interface: which goroutine runs next is up to a policy, and policies can be replaced.
//!
//! A policy is a [`Scheduler`]. Each of its methods has a body, which does what the default policy does: so the
//! smallest policy is an empty `impl`, and a useful one changes one method. It sees tasks and a [`Proc`], never the
//! runtime itself, and is safe Rust.
//!
//! ```
//! use mungo::policy::{Next, Proc, Scheduler};
//!
//! /// The newest first.
//! struct Newest;
//!
//! impl Scheduler for Newest {
//!     fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
//!         proc.local().pop_back().map(Next::from)
//!     }
//! }
//!
//! let runtime = mungo::Runtime::builder().scheduler(Newest).build()?;
//! assert_eq!(runtime.run(|| mungo::go(|| 42).join().unwrap()), 42);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Choosing one
//!
//! By code ([`RuntimeBuilder::scheduler`](crate::RuntimeBuilder::scheduler), [`set_scheduler`], also while goroutines
//! run), or by the environment: `MUNGO_SCHEDULER=priority:age=5ms`. The names are those of [`names`]; programs add
//! their own with [`register`].
//!
//! | name            | good at                                        | bad at                                   |
//! |-----------------|------------------------------------------------|------------------------------------------|
//! | `default`       | throughput, no call through this interface      | knows no priorities                      |
//! | `fifo`          | order: first come, first served on each P       | goroutines that talk to each other       |
//! | `lifo`          | warm caches, deep recursion                     | fairness                                 |
//! | `work_stealing` | fork and join                                   | what comes from outside                  |
//! | `priority`      | urgent work among much other                    | many Ps: one queue                       |
//! | `deadline`      | periodic work with budgets                      | overload without budgets; many Ps        |
//! | `fair`          | CPU time by weight                              | many Ps: one queue                       |
//! | `numa`          | machines with several memory nodes              | nothing on others: it is the default     |
//! | `chaos`         | shaking out races in tests                      | everything else                          |
//!
//! # Rules for policies
//!
//! * A policy runs inside the runtime: it must not block, sleep, spawn, or use channels and locks of this crate.
//!   Atomics are fine, and a `std` mutex that is held for a moment.
//! * It is called from several threads at the same time.
//! * If tasks wait, [`next_task`](Scheduler::next_task) returns one of them: a policy may not let a P be idle.
//! * A task that it drops is queued again, and counted ([`Stats::dropped_tasks`]).
//! * If it panics, or leaves a goroutine waiting for longer than the
//!   [watchdog](crate::RuntimeBuilder::policy_watchdog) allows although others were served, the default policy
//!   replaces it, with a message on stderr. No goroutine is lost.

mod chaos;
mod deadline;
mod default;
mod engine;
mod fair;
mod fifo;
pub(crate) mod hooks;
pub(crate) mod inherit;
mod lifo;
mod numa;
mod priority;
mod proc;
mod queue;
mod rank;
mod registry;
pub mod sim;
mod stats;
mod switch;
mod task;
mod topology;
mod watchdog;
mod work_stealing;

pub use chaos::Chaos;
pub use deadline::Deadline;
pub use default::DefaultPolicy;
pub use fair::Fair;
pub use fifo::Fifo;
pub use lifo::Lifo;
pub use numa::Numa;
pub use priority::PriorityLevels;
pub use proc::{Proc, RunQueue};
pub use rank::{NORMAL_WEIGHT, Priority};
pub use registry::{Options, by_name, names, register};
pub use stats::{ProcStats, Stats};
pub use switch::{Policy, get_scheduler, set_scheduler, stats};
pub(crate) use switch::{install, stats_of};
pub use task::{Cause, Task, TaskInfo};
pub use topology::Topology;
pub use work_stealing::WorkStealing;

pub(crate) use engine::Engine;
pub(crate) use rank::Rank;
pub use rank::{priority as current_priority, set_priority as set_current_priority};
pub(crate) use registry::from_environment;
pub(crate) use switch::Slot;
pub(crate) use task::Node;
pub(crate) use watchdog::Watchdog;

use crate::WaitReason;
use std::time::Duration;

/// The global queue comes first at every so many ticks. Go's number.
const GLOBAL_EVERY: u32 = 61;
/// Rounds over all Ps before a thief gives up.
const STEAL_ROUNDS: usize = 4;
/// A goroutine that has run for so long makes room for one that a timer woke, if every P is busy.
const TIMER_PREEMPTS_NS: u64 = 200_000;

/// A task to run.
#[derive(Debug)]
pub struct Next {
    /// Which.
    pub task: Task,
    /// It goes on with the slice of the one that ran before, instead of getting its own.
    pub inherit_time: bool,
    /// There is more to do: wake another P, if one is idle.
    pub wake_another: bool,
}

impl From<Task> for Next {
    /// With its own slice.
    fn from(task: Task) -> Next {
        Next { task, inherit_time: false, wake_another: false }
    }
}

/// What happened to a goroutine that was not in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It waits, for that.
    Parked(WaitReason),
    /// It is over.
    Ended,
}

/// A policy: decides which goroutine runs next. See the [module](self) for the rules.
///
/// The first six methods are those of Go's proposed interface; each body is what the default policy does.
pub trait Scheduler: Send + Sync + 'static {
    /// For messages and statistics.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// The next task for this P; `None` if there is none anywhere.
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

    /// Puts a runnable task somewhere. `next`: it was woken by who runs on this P, and might run right after; `local`:
    /// it may wait at this P, else it was preempted or comes from elsewhere, and belongs to all.
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, next: bool, local: bool) {
        match (local, next) {
            (false, _) => proc.global().push_back(task),
            (true, true) => proc.local().push_next(task),
            (true, false) => proc.local().push_back(task),
        }
    }

    /// Takes work from other Ps, in the order of [`victim`](Self::victim).
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

    /// A task of this P's own queue.
    fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
        if let Some(task) = proc.local().pop_next() {
            return Some(Next { task, inherit_time: true, wake_another: false });
        }
        proc.local().pop_front().map(Next::from)
    }

    /// A task of the global queue; others may move to the own queue along with it.
    fn get_from_global_queue(&self, proc: &mut Proc<'_>) -> Option<Task> {
        proc.take_global_share()
    }

    /// Whether the global queue comes before the own one this time.
    fn check_global_queue(&self, proc: &mut Proc<'_>) -> bool {
        every(proc, GLOBAL_EVERY)
    }

    /// From whom to steal at the `attempt`th try, from 0 on; `None`: give up. `start` is a random number, the same for
    /// all tries of one thief.
    fn victim(&self, proc: &Proc<'_>, start: u64, attempt: usize) -> Option<usize> {
        let n = proc.procs();
        (attempt < STEAL_ROUNDS * n).then(|| (start % n as u64) as usize + attempt).map(|at| at % n)
    }

    /// How long the task may run while others wait. The monitor looks about every millisecond.
    fn time_slice(&self, task: &TaskInfo, default: Duration) -> Duration {
        _ = task;
        default
    }

    /// Whether a task that has just become runnable shall displace one that runs. Asked if no P is idle; if it is
    /// `true` for several, it is also asked which of those to displace.
    ///
    /// Unless a policy says otherwise, one that a timer woke does, if the other has run for a while.
    fn should_preempt(&self, running: &TaskInfo, waking: &TaskInfo) -> bool {
        waking.cause == Cause::Timer
            && waking.enqueued_ns.saturating_sub(running.dispatched_ns) > TIMER_PREEMPTS_NS
    }

    /// Whether a goroutine with a period and a budget may be started. `id` is 0: it has none yet.
    ///
    /// # Errors
    /// Why not; [`Builder::spawn`](crate::Builder::spawn) returns it.
    fn admit(&self, task: &TaskInfo, procs: usize) -> Result<(), String> {
        _ = (task, procs);
        Ok(())
    }

    /// A goroutine stopped running and is not queued. What is written to `task.words` is kept.
    fn event(&self, event: Event, task: &mut TaskInfo, proc: &mut Proc<'_>) {
        _ = (event, task, proc);
    }

    /// Whether the runtime shall read the CPU clock at each switch, for [`TaskInfo::cpu_ns`] and
    /// [`TaskInfo::vruntime_ns`]. Asked once.
    fn accounts_cpu_time(&self) -> bool {
        false
    }

    /// Not for others: the runtime has this policy built in.
    #[doc(hidden)]
    fn is_built_in(&self) -> bool {
        false
    }
}

/// Whether it is the global queue's turn, at each `n`th tick, and there is something.
fn every(proc: &mut Proc<'_>, n: u32) -> bool {
    let turn = proc.tick().is_multiple_of(n) && !proc.global_is_empty();
    if turn {
        proc.note_global_check();
    }
    turn
}
