//! Every policy on a simulated machine: the same rules for all, and what each of them promises.

mod common;

use common::Rng;
use mungo::WaitReason;
use mungo::policy::sim::{Id, Machine};
use mungo::policy::{
    self, Cause, Chaos, Deadline, DefaultPolicy, Event, Fair, Fifo, Lifo, Next, Numa, Policy, Priority,
    PriorityLevels, Proc, Scheduler, WorkStealing,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn all() -> Vec<Policy> {
    let names = policy::names().into_iter();
    names.filter(|n| !n.contains(' ')).map(|n| policy::by_name(&n).expect("a policy")).collect()
}

/// What the suite knows of each goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Queued,
    Running(usize),
    Parked,
    Ended,
}

/// A random life of goroutines on a machine, checked at each step.
fn conformance(policy: &dyn Scheduler, procs: usize, seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let mut machine = Machine::new(procs, seed);
    let mut states: HashMap<Id, State> = HashMap::new();
    let mut running: Vec<Option<Id>> = vec![None; procs];
    let name = policy.name();
    for step in 0..steps {
        let proc = rng.below(procs as u64) as usize;
        machine.advance(Duration::from_micros(rng.below(500)));
        match rng.below(10) {
            0 | 1 if states.len() < 200 => {
                let id = match rng.below(3) {
                    0 => machine.spawn(),
                    1 => machine.spawn_with(Priority::new(rng.next() as u8), 1 + rng.below(9000) as u32),
                    _ => machine.spawn_with_deadline(Duration::from_micros(rng.below(100_000))),
                };
                machine.queue(policy, id, proc, Cause::Spawned);
                states.insert(id, State::Queued);
            }
            2 | 3 => {
                // Whoever is parked longest is woken.
                let parked = states.iter().filter(|(_, s)| **s == State::Parked).map(|(id, _)| *id).min();
                if let Some(id) = parked {
                    machine.queue(policy, id, proc, if step % 2 == 0 { Cause::Woken } else { Cause::Timer });
                    states.insert(id, State::Queued);
                }
            }
            _ => {
                if let Some(id) = running[proc].take() {
                    machine.charge(id, Duration::from_micros(1 + rng.below(3000)));
                    let state = match rng.below(8) {
                        0..3 => {
                            machine.queue(policy, id, proc, Cause::Yielded);
                            State::Queued
                        }
                        3..5 => {
                            machine.queue(policy, id, proc, Cause::Preempted);
                            State::Queued
                        }
                        5..7 => {
                            machine.stop(policy, id, proc, Event::Parked(WaitReason::Sleep));
                            State::Parked
                        }
                        _ => {
                            machine.stop(policy, id, proc, Event::Ended);
                            State::Ended
                        }
                    };
                    states.insert(id, state);
                }
                let queued = states.values().filter(|s| **s == State::Queued).count();
                let next = machine.next(policy, proc);
                assert_eq!(next.is_some(), queued > 0, "{name}: a P is idle while {queued} wait (seed {seed})");
                if let Some(id) = next {
                    let before = states.insert(id, State::Running(proc));
                    assert_eq!(before, Some(State::Queued), "{name}: goroutine {id} (seed {seed})");
                    running[proc] = Some(id);
                }
            }
        }
    }
    // Whoever waits now comes out, once.
    let mut left: HashSet<Id> =
        states.iter().filter(|(_, s)| **s == State::Queued).map(|(id, _)| *id).collect();
    while let Some(id) = machine.next(policy, left.len() % procs) {
        assert!(left.remove(&id), "{name}: goroutine {id} came twice (seed {seed})");
    }
    assert!(left.is_empty(), "{name}: lost {left:?} (seed {seed})");
    assert_eq!(machine.dropped(), [], "{name}");
}

#[test]
fn nothing_is_lost_nothing_runs_twice_and_no_p_is_idle() {
    let mut rng = Rng::seeded("conformance");
    for _ in 0..8 {
        for policy in all() {
            let procs = 1 + rng.below(6) as usize;
            conformance(policy.as_scheduler(), procs, rng.next(), 1500);
        }
    }
}

/// N goroutines that always want to run, on one P: how many others run at most between two turns of each?
fn longest_wait(policy: &dyn Scheduler, n: usize) -> usize {
    let mut machine = Machine::new(1, 1);
    let ids: Vec<Id> = (0..n).map(|_| machine.spawn()).collect();
    ids.iter().for_each(|id| machine.queue(policy, *id, 0, Cause::Spawned));
    let mut last: HashMap<Id, usize> = ids.iter().map(|id| (*id, 0)).collect();
    let mut longest = 0;
    for turn in 1..200 * n {
        let id = machine.next(policy, 0).expect("somebody");
        longest = longest.max(turn - last.insert(id, turn).expect("known"));
        machine.advance(MS);
        machine.charge(id, MS);
        let cause = if turn % 3 == 0 { Cause::Preempted } else { Cause::Yielded };
        machine.queue(policy, id, 0, cause);
    }
    last.values().map(|turn| 200 * n - turn).fold(longest, usize::max)
}

#[test]
fn waiting_is_bounded_where_it_is_promised() {
    let bounded: [Policy; 7] = [
        DefaultPolicy::new().into(),
        WorkStealing::new().into(),
        Numa::new().into(),
        Fifo::new().into(),
        Fair::new().into(),
        PriorityLevels::new().into(),
        Deadline::new().into(),
    ];
    for policy in bounded {
        for n in [2, 10, 50] {
            // Twice round, and once for each turn that the global queue has to wait for.
            let longest = longest_wait(policy.as_scheduler(), n);
            assert!(longest <= 4 * n + 130, "{}: {longest} of {n}", policy.name());
        }
    }
}

#[test]
fn the_global_queue_has_its_turn() {
    let expected: [(Policy, u32); 6] = [
        (DefaultPolicy::new().into(), 61),
        (PriorityLevels::new().into(), 31),
        (Fifo::new().into(), 127),
        (WorkStealing::new().into(), 101),
        (Lifo::new().into(), 61),
        (Numa::new().into(), 61),
    ];
    for (policy, every) in expected {
        let scheduler = policy.as_scheduler();
        let mut machine = Machine::new(2, 1);
        let turns = |machine: &mut Machine| {
            (1..=10 * every)
                .filter(|tick| {
                    machine.set_tick(0, *tick);
                    scheduler.check_global_queue(&mut machine.proc(0))
                })
                .collect::<Vec<u32>>()
        };
        assert_eq!(turns(&mut machine), [], "{}: it is empty", policy.name());
        let id = machine.spawn();
        machine.queue(scheduler, id, 0, Cause::Preempted);
        let expected: Vec<u32> = (1..=10).map(|i| i * every).collect();
        assert_eq!(turns(&mut machine), expected, "{}", policy.name());
        assert_eq!(machine.stats(0).global_checks, 10);
    }
}

/// The order in which one P runs those that were queued there.
fn order(policy: &dyn Scheduler, cause: Cause, n: usize) -> Vec<Id> {
    let mut machine = Machine::new(1, 1);
    let ids: Vec<Id> = (0..n).map(|_| machine.spawn()).collect();
    ids.iter().for_each(|id| machine.queue(policy, *id, 0, cause));
    std::iter::from_fn(|| machine.next(policy, 0)).collect()
}

#[test]
fn orders() {
    assert_eq!(order(&Fifo::new(), Cause::Woken, 4), [1, 2, 3, 4]);
    assert_eq!(order(&Lifo::new(), Cause::Woken, 4), [4, 3, 2, 1]);
    assert_eq!(order(&Lifo::new(), Cause::Yielded, 4), [1, 2, 3, 4]);
    assert_eq!(order(&DefaultPolicy::measured(), Cause::Woken, 4), [4, 1, 2, 3], "the last woken is next");
    assert_eq!(order(&DefaultPolicy::measured(), Cause::Yielded, 4), [1, 2, 3, 4]);
    let chaos = |seed| order(&Chaos::new(seed), Cause::Woken, 30);
    assert_eq!(chaos(5), chaos(5), "the same seed, the same order");
    assert_ne!(chaos(5), chaos(6));
}

#[test]
fn thieves_take_half_and_the_default_looks_at_the_global_queue_first() {
    let policy = DefaultPolicy::measured();
    let mut machine = Machine::new(2, 1);
    let ids: Vec<Id> = (0..9).map(|_| machine.spawn()).collect();
    ids[..8].iter().for_each(|id| machine.queue(&policy, *id, 0, Cause::Yielded));
    machine.queue(&policy, ids[8], 0, Cause::Preempted);
    assert_eq!(machine.next(&policy, 1), Some(ids[8]), "from the global queue");
    assert_eq!(machine.next(&policy, 1), Some(ids[0]), "stolen");
    let stats = machine.stats(1);
    assert_eq!((stats.steals_won, stats.queue, stats.global_takes), (1, 3, 1), "{stats:?}");
    // A policy that prefers stealing does it the other way round.
    let policy = WorkStealing::new();
    let mut machine = Machine::new(2, 1);
    let (a, b) = (machine.spawn(), machine.spawn());
    machine.queue(&policy, a, 0, Cause::Preempted);
    machine.queue(&policy, b, 0, Cause::Yielded);
    assert_eq!(machine.next(&policy, 1), Some(b));
}

#[test]
fn lifo_thieves_take_the_oldest() {
    let policy = Lifo::new();
    let mut machine = Machine::new(2, 1);
    let ids: Vec<Id> = (0..3).map(|_| machine.spawn()).collect();
    ids.iter().for_each(|id| machine.queue(&policy, *id, 0, Cause::Woken));
    assert_eq!(machine.next(&policy, 1), Some(ids[0]));
    assert_eq!(machine.next(&policy, 0), Some(ids[2]));
}

#[test]
fn priorities_and_ageing() {
    let policy = PriorityLevels::with_age(MS);
    let mut machine = Machine::new(1, 1);
    let low = machine.spawn_with(Priority::new(100), 1024);
    let high = machine.spawn_with(Priority::new(110), 1024);
    machine.queue(&policy, low, 0, Cause::Spawned);
    machine.advance(9 * MS);
    machine.queue(&policy, high, 0, Cause::Spawned);
    assert_eq!(machine.next(&policy, 0), Some(high), "ten levels are more than 9 ms");
    machine.advance(2 * MS);
    machine.queue(&policy, high, 0, Cause::Yielded);
    assert_eq!(machine.next(&policy, 0), Some(low), "eleven are not");
    let (running, waking) = (machine.info(low), machine.info(high));
    assert!(policy.should_preempt(&running, &waking) && !policy.should_preempt(&waking, &running));
}

#[test]
fn fair_shares_follow_the_weights() {
    let policy = Fair::new();
    let mut machine = Machine::new(2, 1);
    let weights = [512u32, 1024, 1024, 2048, 4096];
    let ids: Vec<Id> = weights.iter().map(|w| machine.spawn_with(Priority::NORMAL, *w)).collect();
    ids.iter().for_each(|id| machine.queue(&policy, *id, 0, Cause::Spawned));
    let mut rng = Rng::new(3);
    let mut turns = 0;
    while turns < 20_000 {
        let on: Vec<(usize, Id)> = (0..2).filter_map(|p| Some((p, machine.next(&policy, p)?))).collect();
        machine.advance(3 * MS);
        for (proc, id) in on {
            // A task that blocks early uses less of its slice.
            let part = 1 + rng.below(4) as u32;
            machine.charge(id, 3 * MS / part);
            if rng.below(20) == 0 {
                machine.stop(&policy, id, proc, Event::Parked(WaitReason::Mutex));
                machine.queue(&policy, id, proc, Cause::Woken);
            } else {
                machine.queue(&policy, id, proc, Cause::Preempted);
            }
            turns += 1;
        }
    }
    let used: Vec<f64> = ids.iter().map(|id| machine.info(*id).cpu_ns as f64).collect();
    let total: f64 = used.iter().sum();
    let weight: f64 = weights.iter().map(|w| f64::from(*w)).sum();
    for (ns, w) in used.iter().zip(weights) {
        let share = ns / total / (f64::from(w) / weight);
        assert!((0.97..1.03).contains(&share), "weight {w}: {share:.3} of what is due");
    }
}

#[test]
fn a_sleeper_is_owed_a_slice_at_most() {
    let policy = Fair::new();
    let mut machine = Machine::new(1, 1);
    let (worker, sleeper) = (machine.spawn(), machine.spawn());
    machine.queue(&policy, worker, 0, Cause::Spawned);
    machine.queue(&policy, sleeper, 0, Cause::Spawned);
    for _ in 0..2 {
        let id = machine.next(&policy, 0).unwrap();
        machine.charge(id, MS);
        match id == sleeper {
            true => machine.stop(&policy, id, 0, Event::Parked(WaitReason::Sleep)),
            false => machine.queue(&policy, id, 0, Cause::Yielded),
        }
    }
    for _ in 0..1000 {
        let id = machine.next(&policy, 0).unwrap();
        machine.charge(id, 3 * MS);
        machine.queue(&policy, id, 0, Cause::Preempted);
    }
    machine.queue(&policy, sleeper, 0, Cause::Timer);
    let lag = machine.info(worker).vruntime_ns - machine.info(sleeper).vruntime_ns;
    assert_eq!(Duration::from_nanos(lag), 3 * MS);
    assert_eq!(machine.next(&policy, 0), Some(sleeper));
}

#[test]
fn deadlines_budgets_and_misses() {
    let policy = Deadline::new();
    let mut machine = Machine::new(1, 1);
    let background = machine.spawn();
    let late = machine.spawn_with_deadline(20 * MS);
    let soon = machine.spawn_with_deadline(5 * MS);
    let periodic = machine.spawn_periodic(&policy, 10 * MS, 4 * MS).unwrap();
    for id in [background, late, periodic, soon] {
        machine.queue(&policy, id, 0, Cause::Spawned);
    }
    let order: Vec<Id> = std::iter::from_fn(|| machine.next(&policy, 0)).collect();
    assert_eq!(order, [soon, periodic, late, background]);
    // The slice is what is left of the budget; a task that uses more is put off by a period.
    let slice = |machine: &Machine| policy.time_slice(&machine.info(periodic), 10 * MS);
    assert_eq!(slice(&machine), 4 * MS);
    machine.charge(periodic, MS);
    assert_eq!(slice(&machine), 3 * MS);
    let deadline = machine.info(periodic).deadline_ns;
    machine.charge(periodic, 3 * MS);
    machine.queue(&policy, periodic, 0, Cause::Preempted);
    assert_eq!(machine.info(periodic).deadline_ns, deadline + 10_000_000);
    // A job that ends in time is no miss, one that ends late is; and then begins the next one.
    assert_eq!(machine.next(&policy, 0), Some(periodic));
    machine.stop(&policy, periodic, 0, Event::Parked(WaitReason::Sleep));
    assert_eq!(machine.stats(0).deadline_misses, 0);
    machine.advance(50 * MS);
    machine.queue(&policy, periodic, 0, Cause::Timer);
    assert_eq!(machine.info(periodic).deadline_ns, machine.proc(0).now_ns() + 10_000_000);
    assert_eq!(machine.next(&policy, 0), Some(periodic));
    machine.advance(11 * MS);
    machine.stop(&policy, periodic, 0, Event::Parked(WaitReason::Sleep));
    assert_eq!(machine.stats(0).deadline_misses, 1);
    machine.stop(&policy, late, 0, Event::Ended);
    assert_eq!(machine.stats(0).deadline_misses, 2);
}

#[test]
fn what_is_promised_is_bounded_and_given_back() {
    let policy = Deadline::new();
    let mut machine = Machine::new(2, 1);
    let mut admitted: Vec<Id> =
        std::iter::from_fn(|| machine.spawn_periodic(&policy, 10 * MS, MS).ok()).collect();
    assert_eq!(admitted.len(), 19, "19 tenths of 2 Ps");
    let last = admitted.pop().unwrap();
    machine.queue(&policy, last, 0, Cause::Spawned);
    assert_eq!(machine.next(&policy, 0), Some(last));
    machine.stop(&policy, last, 0, Event::Ended);
    assert!(machine.spawn_periodic(&policy, 10 * MS, MS).is_ok());
    assert!(machine.spawn_periodic(&policy, 10 * MS, MS).is_err());
}

/// An empty `impl` is a policy.
struct Smallest;
impl Scheduler for Smallest {}

/// One that drops what it gets.
struct Careless;
impl Scheduler for Careless {
    fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
        drop(proc.local().pop_front());
        None
    }
}

#[test]
fn the_smallest_policy_conforms_and_a_careless_one_is_found_out() {
    conformance(&Smallest, 3, 11, 3000);
    assert!(Smallest.name().ends_with("Smallest"));
    let mut machine = Machine::new(1, 1);
    let id = machine.spawn();
    machine.queue(&Careless, id, 0, Cause::Yielded);
    assert_eq!(machine.next(&Careless, 0), None);
    assert_eq!(machine.dropped(), [id]);
}
