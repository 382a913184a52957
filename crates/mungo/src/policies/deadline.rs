//! Earliest deadline first, with an admission test.
//!
//! Good at: periodic work. A goroutine that declares a period and a budget is admitted only if the sum of all shares
//! leaves room (95 % of the Ps), and then meets its deadlines on one P; on several, a job may be late by at most the
//! longest budget, as with any global EDF. A goroutine that uses more than it declared is put off by a period, so it
//! cannot harm others. A goroutine that becomes runnable displaces one with a later deadline at once.
//!
//! Bad at: overload by goroutines with deadlines but no budgets: they are not tested. A goroutine whose deadline has
//! passed is background work from then on. Background work has a deadline too, a second after it was queued, so that
//! no goroutine starves. All Ps share one queue, and each switch reads the CPU clock twice.
//!
//! A job of a periodic goroutine begins when it is woken after it waited for the next one: a sleep, a receive, a
//! `select`. A wait for a lock, or for goroutines of its own, is part of a job.

use super::{Event, Next, Options, Policy, Proc, Scheduler, Task, TaskInfo};
use crate::reason::WaitReason;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// One whole P, in the unit of shares: millionths of a P.
const WHOLE: u64 = 1_000_000;
/// A value of `words[0]`: the goroutine waits for its next job.
const BETWEEN_JOBS: u64 = u64::MAX;

/// Earliest deadline first. [When to choose it](crate::policy#choosing-one).
///
/// ```
/// use std::time::Duration;
///
/// let policy = mungo::policy::Deadline::new();
/// let runtime = mungo::Runtime::builder().scheduler(policy).build()?;
/// let soon = mungo::Builder::new().deadline(Duration::from_millis(20)).spawn_on(&runtime, || 42)?;
/// assert_eq!(soon.join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Deadline {
    /// The share of each P that may be promised, in millionths.
    bound: u64,
    background_ns: u64,
    /// The sum of all promised shares, in millionths of a P. The second of `words` is each goroutine's part of it.
    promised: AtomicU64,
}

impl Deadline {
    /// Makes a policy that promises at most 95 % of the Ps.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Deadline};
    /// use std::time::Duration;
    ///
    /// let (policy, mut machine) = (Deadline::new(), Machine::new(1, 1));
    /// let background = machine.spawn();
    /// let periodic = machine.spawn_periodic(&policy, Duration::from_millis(10), Duration::from_millis(2))?;
    /// machine.queue(&policy, background, 0, Cause::Spawned);
    /// machine.queue(&policy, periodic, 0, Cause::Spawned);
    /// assert_eq!(machine.next(&policy, 0), Some(periodic));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Deadline {
        Deadline { bound: WHOLE * 95 / 100, background_ns: 1_000_000_000, promised: AtomicU64::new(0) }
    }

    pub(crate) fn with_options(options: &mut Options) -> Result<Policy, String> {
        let percent = options.number("bound", 95, 1..=100)?;
        let background = options.duration("background", Duration::from_secs(1))?;
        let background_ns = background.as_nanos() as u64;
        Ok(Deadline { bound: WHOLE * percent / 100, background_ns, ..Deadline::new() }.into())
    }

    /// Returns when it shall be done, in ns: `background_ns` after it was queued if it has no deadline or is late
    /// already, else then or at its deadline, whichever is first.
    fn due_ns(&self, task: &TaskInfo) -> u64 {
        let background_ns = task.enqueued_ns.saturating_add(self.background_ns);
        let late = task.period_ns == 0 && task.deadline_ns < task.enqueued_ns;
        if late { background_ns } else { task.deadline_ns.min(background_ns) }
    }
}

fn share(task: &TaskInfo) -> u64 {
    (u128::from(task.budget_ns) * u128::from(WHOLE)).div_ceil(u128::from(task.period_ns.max(1))) as u64
}

fn percent(share: u64) -> u64 {
    share.div_ceil(WHOLE / 100)
}

/// Returns whether a goroutine that waits for this waits for its next job.
fn ends_job(reason: WaitReason) -> bool {
    use WaitReason::{ChanRecv, Condvar, Park, Select, Sleep};
    matches!(reason, ChanRecv | Condvar | Park | Select | Sleep)
}

impl Default for Deadline {
    fn default() -> Self {
        Deadline::new()
    }
}

impl Scheduler for Deadline {
    fn name(&self) -> &str {
        "deadline"
    }

    fn queue_task(&self, mut task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
        let info = task.info();
        if info.period_ns != 0 {
            let [mut begun_at_cpu_ns, mut promised] = info.words;
            let fresh = promised == 0;
            if fresh {
                promised = share(&info);
                if info.cause != super::Cause::Spawned {
                    // It was admitted by another policy, or by none.
                    self.promised.fetch_add(promised, Relaxed);
                }
            }
            if fresh || begun_at_cpu_ns == BETWEEN_JOBS {
                task.set_deadline_ns(info.enqueued_ns.saturating_add(info.period_ns));
                begun_at_cpu_ns = info.cpu_ns;
            } else if info.cpu_ns.saturating_sub(begun_at_cpu_ns) >= info.budget_ns {
                // It used its budget up: the rest of the job belongs to the next period.
                task.set_deadline_ns(info.deadline_ns.saturating_add(info.period_ns));
                begun_at_cpu_ns = info.cpu_ns;
            }
            task.set_words([begun_at_cpu_ns, promised]);
        }
        let due_ns = self.due_ns(&task.info());
        proc.global().push(task, due_ns);
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        proc.global().pop_front().map(Next::from)
    }

    /// Returns the slice, which is not longer than the budget.
    fn time_slice(&self, task: &TaskInfo, default: Duration) -> Duration {
        if task.period_ns == 0 {
            return default;
        }
        let used_ns = task.cpu_ns.saturating_sub(task.words[0]);
        default.min(Duration::from_nanos(task.budget_ns.saturating_sub(used_ns)))
    }

    fn should_preempt(&self, running: &TaskInfo, waking: &TaskInfo) -> bool {
        self.due_ns(waking) < self.due_ns(running)
    }

    fn admit(&self, task: &TaskInfo, procs: usize) -> Result<(), String> {
        let (wanted, room) = (share(task), self.bound * procs as u64);
        let admitted = self
            .promised
            .try_update(Relaxed, Relaxed, |promised| (promised + wanted <= room).then_some(promised + wanted));
        match admitted {
            Ok(_) => Ok(()),
            Err(promised) => Err(format!(
                "a budget of {:?} in each {:?} is {} % of a CPU, and {} % of {} % are promised already: \
                 ask for less, or for a longer period",
                Duration::from_nanos(task.budget_ns),
                Duration::from_nanos(task.period_ns),
                percent(wanted),
                percent(promised),
                percent(room),
            )),
        }
    }

    fn event(&self, event: Event, task: &mut TaskInfo, proc: &mut Proc<'_>) {
        let done = match event {
            Event::Ended => true,
            Event::Parked(reason) => task.period_ns != 0 && ends_job(reason),
        };
        if done && task.deadline_ns != u64::MAX && proc.now_ns() > task.deadline_ns {
            proc.note_deadline_miss();
        }
        if task.period_ns == 0 || !done {
            return;
        }
        task.words[0] = BETWEEN_JOBS;
        if event == Event::Ended {
            self.promised.fetch_sub(std::mem::take(&mut task.words[1]), Relaxed);
        }
    }

    fn accounts_cpu_time(&self) -> bool {
        true
    }
}
