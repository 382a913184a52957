//! Policies that misbehave: the program still finishes, and somebody says why.

mod common;

use common::end;
use mungo::policy::sim::Machine;
use mungo::policy::{Cause, Next, Proc, Scheduler, Task, TaskInfo};
use mungo::{Runtime, go, yield_now};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

fn runtime(policy: impl Scheduler) -> Runtime {
    Runtime::builder()
        .procs(2)
        .scheduler(policy)
        .policy_watchdog(Duration::from_millis(100))
        .build()
        .expect("a runtime")
}

/// Work of all kinds, counted.
fn work(rt: &Runtime) {
    let done = rt.run(|| {
        let handles: Vec<_> = (0..200u64)
            .map(|i| {
                go(move || {
                    match i % 4 {
                        0 => yield_now(),
                        1 => mungo::sleep(Duration::from_millis(1)),
                        2 => _ = go(|| 1).join().unwrap(),
                        _ => {}
                    }
                    1
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).sum::<u64>()
    });
    assert_eq!(done, 200);
}

/// Loses every third task.
struct Drops(AtomicU64);

impl Scheduler for Drops {
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _: bool, _: bool) {
        match self.0.fetch_add(1, Relaxed) % 3 {
            0 => drop(task),
            _ => proc.local().push_back(task),
        }
    }
}

#[test]
fn dropped_tasks_come_back_and_are_counted() {
    let rt = runtime(Drops(AtomicU64::new(0)));
    work(&rt);
    let stats = rt.policy_stats();
    assert!(stats.dropped_tasks > 10, "{stats:?}");
    assert_eq!(stats.replaced, 0);
    end(rt);
}

/// Panics at the `n`th decision, with what it has in hand.
struct Panics {
    decisions: AtomicU64,
    at: u64,
}

impl Scheduler for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        let task = proc.local().pop_front().or_else(|| proc.take_global_share())?;
        assert_ne!(self.decisions.fetch_add(1, Relaxed), self.at, "now");
        Some(task.into())
    }
}

#[test]
fn a_policy_that_panics_is_replaced() {
    for at in [0, 1, 50] {
        let rt = runtime(Panics { decisions: AtomicU64::new(0), at });
        work(&rt);
        let stats = rt.policy_stats();
        assert_eq!((stats.policy.as_str(), stats.replaced), ("default", 1), "{stats:?}");
        let fault = stats.last_fault.expect("a reason");
        assert!(fault.contains("panics: it panicked") && fault.contains("now"), "{fault}");
        work(&rt);
        end(rt);
    }
}

/// Panics where it is asked about a goroutine, not for one.
struct PanicsElsewhere;

impl Scheduler for PanicsElsewhere {
    fn time_slice(&self, _: &TaskInfo, _: Duration) -> Duration {
        panic!("no idea")
    }

    fn event(&self, _: mungo::policy::Event, _: &mut TaskInfo, _: &mut Proc<'_>) {
        panic!("no idea")
    }

    fn should_preempt(&self, _: &TaskInfo, _: &TaskInfo) -> bool {
        panic!("no idea")
    }
}

#[test]
fn a_panic_in_any_method_is_survived() {
    let rt = runtime(PanicsElsewhere);
    work(&rt);
    assert_eq!(rt.policy_stats().replaced, 1);
    end(rt);
}

/// Has nothing to do from the `n`th decision on.
struct Refuses {
    decisions: AtomicU64,
    from: u64,
}

impl Scheduler for Refuses {
    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        if self.decisions.fetch_add(1, Relaxed) >= self.from {
            return None;
        }
        self.get_from_local_queue(proc).or_else(|| self.get_from_global_queue(proc).map(Next::from))
    }
}

#[test]
fn a_policy_that_returns_nothing_is_replaced() {
    for from in [0, 100] {
        let rt = runtime(Refuses { decisions: AtomicU64::new(0), from });
        work(&rt);
        let stats = rt.policy_stats();
        assert_eq!(stats.replaced, 1, "{stats:?}");
        assert!(stats.last_fault.unwrap().contains("let Ps be idle"));
        end(rt);
    }
}

/// Puts tasks into a drawer of its own, or throws them away for good.
struct Hoards {
    drawer: Mutex<Vec<Task>>,
    forget: bool,
}

impl Scheduler for Hoards {
    fn queue_task(&self, task: Task, _: &mut Proc<'_>, _: bool, _: bool) {
        match self.forget {
            true => std::mem::forget(task),
            false => self.drawer.lock().unwrap().push(task),
        }
    }
}

#[test]
fn hoarded_and_forgotten_tasks_are_revoked() {
    for forget in [false, true] {
        let rt = runtime(Hoards { drawer: Mutex::default(), forget });
        work(&rt);
        let stats = rt.policy_stats();
        assert_eq!((stats.replaced, stats.queued), (1, 0), "{stats:?}");
        end(rt);
    }
}

/// A drawer is no fault as long as tasks come out of it again.
struct OwnQueue(Mutex<std::collections::VecDeque<Task>>);

impl Scheduler for OwnQueue {
    fn queue_task(&self, task: Task, _: &mut Proc<'_>, _: bool, _: bool) {
        self.0.lock().unwrap().push_back(task);
    }

    fn next_task(&self, _: &mut Proc<'_>) -> Option<Next> {
        self.0.lock().unwrap().pop_front().map(Next::from)
    }
}

#[test]
fn a_policy_may_have_a_queue_of_its_own() {
    let rt = runtime(OwnQueue(Mutex::default()));
    work(&rt);
    let stats = rt.policy_stats();
    assert_eq!((stats.replaced, stats.dropped_tasks, stats.queued), (0, 0, 0), "{stats:?}");
    // And may be replaced while it has something.
    let spinner = rt.spawn(|| (0..10_000).for_each(|_| yield_now()));
    let others: Vec<_> = (0..100).map(|_| rt.spawn(yield_now)).collect();
    rt.set_scheduler(mungo::policy::Fifo::new());
    others.into_iter().for_each(|h| h.join().unwrap());
    spinner.join().unwrap();
    end(rt);
}

/// The tasks of all runtimes in one drawer.
#[test]
fn a_task_of_another_runtime_goes_home() {
    let policy: std::sync::Arc<dyn Scheduler> = std::sync::Arc::new(OwnQueue(Mutex::default()));
    let runtimes = [(); 2].map(|()| Runtime::builder().procs(2).scheduler(policy.clone()).build().unwrap());
    let dropped = || runtimes.iter().map(|rt| rt.policy_stats().dropped_tasks).sum::<u64>();
    while dropped() == 0 {
        std::thread::scope(|s| runtimes.iter().for_each(|rt| _ = s.spawn(|| work(rt))));
    }
    runtimes.into_iter().for_each(end);
}

/// Puts tasks of a simulation before the goroutines.
struct Mixes(Mutex<Vec<Task>>);

impl Scheduler for Mixes {
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _: bool, _: bool) {
        proc.global().push_front(task);
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        let mut simulated = self.0.lock().unwrap();
        if let Some(task) = simulated.pop() {
            proc.global().push_front(task);
            return simulated.pop().map(Next::from);
        }
        proc.global().pop_front().map(Next::from)
    }
}

#[test]
fn a_task_of_a_simulation_is_no_goroutine() {
    for is_gone in [false, true] {
        let collects = Hoards { drawer: Mutex::default(), forget: false };
        let mut machine = Machine::new(1, 1);
        for _ in 0..20 {
            let id = machine.spawn();
            machine.queue(&collects, id, 0, Cause::Spawned);
        }
        let machine = (!is_gone).then_some(machine);
        let rt = runtime(Mixes(collects.drawer));
        work(&rt);
        assert_eq!(rt.policy_stats().replaced, 0, "{:?}", rt.policy_stats().last_fault);
        assert!(machine.is_none_or(|machine| machine.dropped().len() == 20));
        end(rt);
    }
}

#[test]
fn a_goroutine_is_no_task_of_a_simulation() {
    let policy = std::sync::Arc::new(OwnQueue(Mutex::default()));
    let rt =
        Runtime::builder().procs(1).scheduler(policy.clone() as std::sync::Arc<dyn Scheduler>).build().unwrap();
    let mut machine = Machine::new(1, 1);
    let spinner = rt.spawn(|| {
        while mungo::policy::stats().dropped_tasks == 0 {
            yield_now();
        }
    });
    while !spinner.is_finished() {
        assert_eq!(machine.next(&*policy, 0), None);
    }
    spinner.join().unwrap();
    end(rt);
}

/// Never runs goroutines with an odd id.
struct Discriminates;

impl Scheduler for Discriminates {
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, _: bool, _: bool) {
        proc.global().push_back(task);
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        proc.global().pop_where(|task| task.id % 2 == 0).map(Next::from)
    }
}

#[test]
fn a_goroutine_that_is_passed_over_is_rescued() {
    let rt = Runtime::builder()
        .procs(1)
        .scheduler(Discriminates)
        .policy_watchdog(Duration::from_millis(50))
        .build()
        .unwrap();
    // Half of them keep the P busy until the others had their turn.
    let left = std::sync::Arc::new(AtomicU64::new(4));
    let handles: Vec<_> = (0..8)
        .map(|_| {
            let left = left.clone();
            rt.spawn(move || {
                if mungo::current().id().as_u64() % 2 == 1 {
                    left.fetch_sub(1, Relaxed);
                }
                while left.load(Relaxed) > 0 {
                    yield_now();
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
    let stats = rt.policy_stats();
    assert_eq!(stats.replaced, 1);
    assert!(stats.last_fault.unwrap().contains("has waited for"));
    end(rt);
}

/// Waiting for long in a long queue is not a fault.
#[test]
fn a_long_queue_is_not_a_fault() {
    let rt = Runtime::builder()
        .procs(1)
        .scheduler(mungo::policy::Fifo::new())
        .policy_watchdog(Duration::from_millis(20))
        .build()
        .unwrap();
    let stop = std::time::Instant::now() + Duration::from_millis(600);
    let handles: Vec<_> = (0..2000)
        .map(|_| {
            rt.spawn(move || {
                while std::time::Instant::now() < stop {
                    (0..1000).for_each(|i| _ = std::hint::black_box(i));
                    yield_now();
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
    assert_eq!(rt.policy_stats().replaced, 0, "{:?}", rt.policy_stats().last_fault);
    end(rt);
}
