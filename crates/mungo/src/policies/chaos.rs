//! A seeded troublemaker.
//!
//! Good at: shaking out races in programs under test. The order of goroutines, where they queue, which P steals from
//! which, how long they run and which one is displaced are drawn from a generator with a seed; now and then a decision
//! takes longer. Whatever happens is something that could happen under another policy on an unlucky day.
//!
//! Bad at: everything else. With several Ps the threads of the system add chance of their own, so the same seed gives
//! the same draws, not the same run; with one P, or in the simulation, it gives the same run.

use super::{Next, Options, Policy, Proc, Scheduler, Task, TaskInfo};
use crate::policies::order::SHORTEST_SLICE;
use crate::policies::sim::{STEP, mix};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Number of decisions of which one is delayed.
const DELAY_ONE_IN: u64 = 64;
/// Number of tasks from the front that it looks at, lest a long queue costs the square of its length.
const FARTHEST: u64 = 32;

/// Random decisions from a seed. [When to choose it](crate::policy#choosing-one).
///
/// ```
/// let runtime = mungo::Runtime::builder().scheduler(mungo::policy::Chaos::new(42)).build()?;
/// assert_eq!(runtime.run(|| mungo::go(|| 1).join().unwrap()), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Chaos {
    state: AtomicU64,
    seed: u64,
    delay_ns: u64,
}

impl Chaos {
    /// Makes a policy from a seed. The same seed gives the same draws.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Chaos};
    ///
    /// let order = |seed| {
    ///     let (policy, mut machine) = (Chaos::new(seed), Machine::new(1, 1));
    ///     for _ in 0..20 {
    ///         let id = machine.spawn();
    ///         machine.queue(&policy, id, 0, Cause::Spawned);
    ///     }
    ///     std::iter::from_fn(|| machine.next(&policy, 0)).collect::<Vec<_>>()
    /// };
    /// assert_eq!(order(42), order(42));
    /// assert_ne!(order(42), order(43));
    /// ```
    pub fn new(seed: u64) -> Chaos {
        Chaos { state: AtomicU64::new(seed), seed, delay_ns: 20_000 }
    }

    /// Returns the seed that it was made with, for a message that lets others repeat the run.
    ///
    /// ```
    /// assert_eq!(mungo::policy::Chaos::new(42).seed(), 42);
    /// ```
    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn with_options(options: &mut Options) -> Result<Policy, String> {
        let by_clock = crate::sys::clock::now_ns() % 1_000_000_007;
        let seed = options.number("seed", by_clock, 0..=u64::MAX)?;
        let delay = options.duration("delay", Duration::from_micros(20))?;
        Ok(Chaos { delay_ns: delay.as_nanos() as u64, ..Chaos::new(seed) }.into())
    }

    fn draw(&self, below: u64) -> u64 {
        mix(self.state.fetch_add(STEP, Relaxed)) % below.max(1)
    }

    /// Lets time pass, as when the system takes the CPU away for a moment.
    fn dawdle(&self, proc: &Proc<'_>) {
        if self.draw(DELAY_ONE_IN) == 0 {
            let end = proc.now_ns() + self.draw(self.delay_ns);
            // A simulated clock stands still: then there is nothing to wait for.
            for _ in 0..2000 {
                if proc.now_ns() >= end {
                    break;
                }
                std::hint::spin_loop();
            }
        }
    }

    /// Takes any of the first tasks of one queue, or the last.
    fn any_of(&self, proc: &mut Proc<'_>, queue: Option<usize>) -> Option<Task> {
        let mut queue = match queue {
            Some(id) => proc.of(id),
            None => proc.global(),
        };
        if self.draw(4) == 0 {
            return queue.pop_back();
        }
        let mut skip = self.draw((queue.len() as u64).min(FARTHEST));
        let wanted = queue.pop_where(|_| {
            let this = skip == 0;
            skip = skip.saturating_sub(1);
            this
        });
        wanted.or_else(|| queue.pop_front())
    }
}

impl Scheduler for Chaos {
    fn name(&self) -> &str {
        "chaos"
    }

    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
        self.dawdle(proc);
        let procs = proc.procs() as u64;
        match self.draw(4) {
            0 => proc.global().push_back(task),
            1 => proc.of(self.draw(procs) as usize).push_back(task),
            2 => proc.local().push_front(task),
            _ => proc.local().push_back(task),
        }
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        self.dawdle(proc);
        // All queues, from a random one on; the last number is the global one. Ps that are about to go may still have
        // tasks: the runtime empties their queues.
        let n = proc.procs();
        let start = self.draw(n as u64 + 1) as usize;
        (0..=n)
            .map(|i| (start + i) % (n + 1))
            .find_map(|at| self.any_of(proc, (at < n).then_some(at)))
            .map(|task| Next { task, inherit_time: self.draw(8) == 0, wake_another: self.draw(4) == 0 })
    }

    fn time_slice(&self, _task: &TaskInfo, default: Duration) -> Duration {
        let range = default.saturating_sub(SHORTEST_SLICE).as_nanos() as u64;
        SHORTEST_SLICE + Duration::from_nanos(self.draw(range + 1))
    }

    fn should_preempt(&self, _running: &TaskInfo, _waking: &TaskInfo) -> bool {
        self.draw(8) == 0
    }
}
