//! A policy of one's own: the shortest jobs first, by the CPU time that a goroutine has used, and an A/B test of it.

use mungo::policy::{self, Next, Policy, Proc, Scheduler, Task, TaskInfo};
use std::io;
use std::time::{Duration, Instant};

/// The goroutine that has used least CPU time goes first: short answers overtake long computations.
struct ShortestFirst {
    slice: Duration,
}

impl Scheduler for ShortestFirst {
    fn name(&self) -> &str {
        "shortest_first"
    }

    /// One queue for all Ps, in the order of CPU time used. A goroutine that waits is favoured by a
    /// thousandth of its waiting, so that none starves.
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _next: bool, _local: bool) {
        let info = task.info();
        proc.global().push(task, info.cpu_ns + info.enqueued_ns / 1000);
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        proc.global().pop_front().map(Next::from)
    }

    fn time_slice(&self, _task: &TaskInfo, _default: Duration) -> Duration {
        self.slice
    }

    /// A short one that comes does not wait for the end of a long one's slice.
    fn should_preempt(&self, running: &TaskInfo, waking: &TaskInfo) -> bool {
        waking.cpu_ns + 1_000_000 < running.cpu_ns
    }

    fn accounts_cpu_time(&self) -> bool {
        true
    }
}

/// Long computations, and short questions among them: how long did the questions take on average?
fn answers_us(policy: Policy) -> io::Result<u128> {
    let runtime = mungo::Runtime::builder().procs(2).scheduler(policy).build()?;
    runtime.run(|| {
        let end = Instant::now() + Duration::from_millis(300);
        let computing: Vec<_> = (0..4).map(|_| mungo::go(move || while Instant::now() < end {})).collect();
        let mut total = Duration::ZERO;
        for _ in 0..50 {
            mungo::sleep(Duration::from_millis(2));
            let asked = Instant::now();
            mungo::go(|| 42).join().unwrap();
            total += asked.elapsed();
        }
        computing.into_iter().for_each(|c| c.join().unwrap());
        Ok(total.as_micros() / 50)
    })
}

fn main() -> io::Result<()> {
    // With a name it can be chosen from outside: MUNGO_SCHEDULER=shortest_first:slice=2ms
    policy::register("shortest_first", |options| {
        let slice = options.duration("slice", Duration::from_millis(5))?;
        Ok(ShortestFirst { slice }.into())
    })?;
    for name in ["default", "fifo", "shortest_first:slice=2ms"] {
        println!("{name}: an answer takes {} µs", answers_us(policy::by_name(name)?)?);
    }

    // And it can be put in force while goroutines run; those that wait move over.
    let original = mungo::get_scheduler();
    mungo::set_scheduler(ShortestFirst { slice: Duration::from_millis(5) });
    assert_eq!(mungo::go(|| mungo::get_scheduler().name().to_owned()).join().unwrap(), "shortest_first");
    println!("{:?}", policy::stats().wait);
    mungo::set_scheduler(original);
    Ok(())
}
