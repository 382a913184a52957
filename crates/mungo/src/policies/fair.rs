//! CPU time by weight, as EEVDF divides it: earliest eligible virtual deadline first.
//!
//! Good at: giving each goroutine its share. One of weight 2048 gets twice the CPU time of one of 1024, measured by
//! the CPU clock and not in turns, so that a goroutine that blocks often or is preempted early loses nothing. One that
//! has waited is served soon: its lag of up to one slice is remembered over a sleep.
//!
//! Bad at: many Ps, since they share one queue; and each switch reads the CPU clock twice.
//!
//! Each goroutine has a virtual run time, which passes more slowly the more weight it has. The weighted average over
//! the goroutines that run or are runnable is the virtual time of the whole. A goroutine behind it (lag) is owed time
//! and eligible; of the eligible the one goes first whose next slice would be over first.

use super::{Cause, Event, NORMAL_WEIGHT, Next, Options, Policy, Proc, Scheduler, Task, TaskInfo};
use crate::lock::Lock;
use std::time::Duration;

/// CPU time by weight. [When to choose it](crate::policy#choosing-one).
///
/// ```
/// let runtime = mungo::Runtime::builder().scheduler(mungo::policy::Fair::new()).build()?;
/// let heavy = mungo::Builder::new().weight(4096).spawn_on(&runtime, || 42)?;
/// assert_eq!(heavy.join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Fair {
    slice_ns: u64,
    load: Lock<Load>,
}

/// The goroutines that run or are runnable: the sum of their weights, and of weight times virtual run time.
#[derive(Debug, Default)]
struct Load {
    weight: u64,
    weighted: u128,
    /// The virtual time in ns when a goroutine was last there.
    last_ns: u64,
}

impl Load {
    /// Returns the weighted average of virtual run times, in ns.
    fn now_ns(&self) -> u64 {
        match self.weight {
            0 => self.last_ns,
            weight => (self.weighted / u128::from(weight)) as u64,
        }
    }

    fn add(&mut self, weight: u64, vruntime_ns: u64) {
        self.weight += weight;
        self.weighted += u128::from(weight) * u128::from(vruntime_ns);
    }

    fn remove(&mut self, weight: u64, vruntime_ns: u64) {
        self.last_ns = self.now_ns();
        self.weight = self.weight.saturating_sub(weight);
        self.weighted = self.weighted.saturating_sub(u128::from(weight) * u128::from(vruntime_ns));
    }
}

impl Fair {
    /// Makes a policy with slices of 3 ms.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Fair, Priority};
    /// use std::time::Duration;
    ///
    /// let (policy, mut machine) = (Fair::new(), Machine::new(1, 1));
    /// let (usual, heavy) = (machine.spawn(), machine.spawn_with(Priority::NORMAL, 2048));
    /// machine.queue(&policy, usual, 0, Cause::Spawned);
    /// machine.queue(&policy, heavy, 0, Cause::Spawned);
    /// for _ in 0..30 {
    ///     let id = machine.next(&policy, 0).unwrap();
    ///     machine.charge(id, Duration::from_millis(3));
    ///     machine.queue(&policy, id, 0, Cause::Preempted);
    /// }
    /// let (usual, heavy) = (machine.info(usual).cpu_ns, machine.info(heavy).cpu_ns);
    /// assert!(heavy.abs_diff(2 * usual) <= 6_000_000, "twice the weight, twice the CPU time: {heavy} and {usual} ns");
    /// ```
    pub fn new() -> Fair {
        Fair::with_slice(Duration::from_millis(3))
    }

    /// Makes a policy with slices of that length: shorter ones make it more even, longer ones faster.
    ///
    /// ```
    /// use mungo::policy::Fair;
    /// use std::time::Duration;
    ///
    /// let policy = Fair::with_slice(Duration::from_millis(1));
    /// let runtime = mungo::Runtime::builder().procs(1).scheduler(policy).build()?;
    /// assert_eq!(runtime.run(|| mungo::get_scheduler().name().to_owned()), "fair");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_slice(slice: Duration) -> Fair {
        Fair { slice_ns: (slice.as_nanos() as u64).clamp(100_000, 1 << 40), load: Lock::new(Load::default()) }
    }

    pub(crate) fn with_options(options: &mut Options) -> Result<Policy, String> {
        Ok(Fair::with_slice(options.duration("slice", Duration::from_millis(3))?).into())
    }

    fn virtual_slice_ns(&self, weight: u32) -> u64 {
        self.slice_ns * u64::from(NORMAL_WEIGHT) / u64::from(weight.max(1))
    }
}

impl Default for Fair {
    fn default() -> Self {
        Fair::new()
    }
}

impl Scheduler for Fair {
    fn name(&self) -> &str {
        "fair"
    }

    fn queue_task(&self, mut task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
        let info = task.info();
        let slice_ns = self.virtual_slice_ns(info.weight);
        let weight = u64::from(info.weight);
        let mut load = self.load.lock();
        let [counted, counted_at_ns] = info.words;
        let vruntime_ns = match counted {
            // It comes in. A new one is owed nothing; a sleeper is owed at most a slice, and what it owes fades.
            0 if info.cause == Cause::Spawned || info.vruntime_ns == 0 => load.now_ns(),
            0 => info.vruntime_ns.max(load.now_ns().saturating_sub(slice_ns)),
            _ => {
                load.remove(counted, counted_at_ns);
                info.vruntime_ns
            }
        };
        load.add(weight, vruntime_ns);
        drop(load);
        task.set_vruntime_ns(vruntime_ns);
        task.set_words([weight, vruntime_ns]);
        proc.global().push(task, vruntime_ns.saturating_add(slice_ns));
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        let now_ns = self.load.lock().now_ns();
        let eligible = proc.global().pop_where(|task| task.vruntime_ns <= now_ns);
        // If all goroutines that are owed something run already, the next in line goes.
        eligible.or_else(|| proc.global().pop_front()).map(Next::from)
    }

    fn time_slice(&self, _task: &TaskInfo, _default: Duration) -> Duration {
        Duration::from_nanos(self.slice_ns)
    }

    /// Returns whether `waking` is owed a good part of a slice more than `running`.
    fn should_preempt(&self, running: &TaskInfo, waking: &TaskInfo) -> bool {
        let ran_ns = waking.enqueued_ns.saturating_sub(running.dispatched_ns);
        let margin_ns = self.virtual_slice_ns(running.weight) / 2;
        let ran_ns = ran_ns * u64::from(NORMAL_WEIGHT) / u64::from(running.weight.max(1));
        waking.vruntime_ns.saturating_add(margin_ns) < running.vruntime_ns.saturating_add(ran_ns)
    }

    fn event(&self, _event: Event, task: &mut TaskInfo, _proc: &mut Proc<'_>) {
        let [weight, vruntime_ns] = std::mem::take(&mut task.words);
        if weight != 0 {
            self.load.lock().remove(weight, vruntime_ns);
        }
    }

    fn accounts_cpu_time(&self) -> bool {
        true
    }
}
