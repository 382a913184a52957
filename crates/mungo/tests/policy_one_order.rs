//! One rule, three schedulers: the same script runs in the same order on the built-in path of the runtime, under the
//! bodies of the trait, and on the simulated machine.

mod common;

use common::{end, wait_until};
use mungo::policy::sim::{Id, Machine};
use mungo::policy::{Cause, Event, Scheduler, TaskInfo};
use mungo::{Goroutine, Runtime, WaitReason, go};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A step of a goroutine, which is known by its place in the script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Yield,
    Spawn(usize),
    Park,
    /// A goroutine that was not spawned yet, or is over, is passed over.
    Unpark(usize),
}

/// The steps of each goroutine; the first one is there from the start.
type Script = Vec<Vec<Step>>;

/// Goroutines that spawn each other, park, and wake each other at random.
fn script(seed: u64) -> Script {
    let mut state = seed;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize) % n
    };
    let total = 8 + random(24);
    let mut spawned = 1;
    let mut script = Vec::new();
    for at in 0..total {
        let mut steps = Vec::new();
        for step in 0..5 + random(8) {
            let kind = random(10);
            // The first one spawns some at once, so that there is something to choose from.
            steps.push(if (at == 0 && step < 4 || kind < 3) && spawned < total {
                spawned += 1;
                Step::Spawn(spawned - 1)
            } else {
                match kind {
                    0..=4 => Step::Yield,
                    5 | 6 => Step::Park,
                    _ => Step::Unpark(random(total)),
                }
            });
        }
        script.push(steps);
    }
    script
}

/// The trait's own bodies. It interrupts nobody for a goroutine that is woken: that depends on clocks.
struct Bodies;

impl Scheduler for Bodies {
    fn should_preempt(&self, _running: &TaskInfo, _waking: &TaskInfo) -> bool {
        false
    }
}

/// A goroutine on paper.
struct Task {
    id: Id,
    done: usize,
    token: bool,
    parked: bool,
}

/// A script that is played on paper.
struct Paper {
    machine: Machine,
    /// By place; those that were spawned and are not over.
    tasks: HashMap<usize, Task>,
}

impl Paper {
    fn spawn(&mut self, place: usize) {
        let id = self.machine.spawn();
        self.tasks.insert(place, Task { id, done: 0, token: false, parked: false });
        self.machine.queue(&Bodies, id, 0, Cause::Spawned);
    }

    fn unpark(&mut self, place: usize) {
        let Some(task) = self.tasks.get_mut(&place) else { return };
        // Those that come before it runs again are one token.
        if !std::mem::replace(&mut task.token, true) && task.parked {
            self.machine.queue(&Bodies, task.id, 0, Cause::Woken);
        }
    }

    /// Runs a goroutine until it switches.
    fn run(&mut self, place: usize, script: &Script) {
        let task = self.tasks.get_mut(&place).expect("it was spawned");
        if std::mem::take(&mut task.parked) {
            task.token = false;
        }
        loop {
            let task = self.tasks.get_mut(&place).expect("it was spawned");
            let (id, step) = (task.id, script[place].get(task.done).copied());
            task.done += 1;
            match step {
                Some(Step::Spawn(child)) => self.spawn(child),
                Some(Step::Unpark(other)) => self.unpark(other),
                Some(Step::Park) if std::mem::take(&mut task.token) => {}
                Some(Step::Park) => {
                    task.parked = true;
                    return self.machine.stop(&Bodies, id, 0, Event::Parked(WaitReason::Park));
                }
                Some(Step::Yield) => return self.machine.queue(&Bodies, id, 0, Cause::Yielded),
                None => {
                    self.tasks.remove(&place);
                    return self.machine.stop(&Bodies, id, 0, Event::Ended);
                }
            }
        }
    }
}

/// The order on paper: the place of the goroutine that runs after each switch.
fn on_paper(script: &Script) -> Vec<usize> {
    let mut paper = Paper { machine: Machine::new(1, 1), tasks: HashMap::new() };
    let mut order = Vec::new();
    paper.spawn(0);
    while let Some(id) = paper.machine.next(&Bodies, 0) {
        let (&place, _) = paper.tasks.iter().find(|(_, task)| task.id == id).expect("it was spawned");
        order.push(place);
        paper.run(place, script);
    }
    order
}

/// A script that runs.
struct Stage {
    script: Script,
    /// Places, in the order of their turns. Not under a lock: one that waits for it would lose its P.
    order: Vec<AtomicUsize>,
    turns: AtomicUsize,
    actors: Mutex<HashMap<usize, Goroutine>>,
    ended: AtomicUsize,
}

impl Stage {
    fn note(&self, place: usize) {
        let turn = self.turns.load(Relaxed);
        if let Some(entry) = self.order.get(turn) {
            entry.store(place, Relaxed);
        }
        self.turns.store(turn + 1, Relaxed); // by one at a time
    }

    fn run(self: &Arc<Stage>, place: usize) {
        self.note(place);
        for step in &self.script[place] {
            match *step {
                Step::Yield => {
                    mungo::yield_now();
                    self.note(place);
                }
                Step::Spawn(child) => {
                    let stage = self.clone();
                    let handle = go(move || stage.run(child));
                    self.actors.lock().unwrap().insert(child, handle.goroutine());
                }
                Step::Park => self.park(place),
                Step::Unpark(other) => {
                    let actor = self.actors.lock().unwrap().get(&other).cloned();
                    actor.inspect(Goroutine::unpark);
                }
            }
        }
        self.actors.lock().unwrap().remove(&place);
        self.ended.fetch_add(1, Relaxed);
    }

    /// Notes a turn only if it waited: a token that was there is not a switch.
    fn park(&self, place: usize) {
        let before = self.turns.load(Relaxed);
        mungo::park();
        if self.turns.load(Relaxed) != before {
            self.note(place);
        }
    }
}

/// Returns how often a goroutine lost its P: it was interrupted, or its thread slept for the kernel's own reasons.
fn lost_ps(runtime: &Runtime) -> u64 {
    runtime.metrics().per_proc.iter().map(|p| p.preemptions + p.retakes).sum()
}

/// The order in a runtime with one P. `None`: a goroutine lost the P, which is not on paper.
fn in_a_runtime(runtime: &Runtime, script: &Script, turns: usize) -> Option<Vec<usize>> {
    let stage = Arc::new(Stage {
        script: script.clone(),
        order: (0..turns).map(|_| AtomicUsize::new(usize::MAX)).collect(),
        turns: AtomicUsize::new(0),
        actors: Mutex::default(),
        ended: AtomicUsize::new(0),
    });
    let before = (lost_ps(runtime), runtime.metrics().spawned);
    let first = runtime.spawn({
        let stage = stage.clone();
        move || {
            stage.actors.lock().unwrap().insert(0, mungo::current());
            stage.run(0);
        }
    });
    let is_quiet = || runtime.metrics().idle_procs == 1 && stage.turns.load(Relaxed) > 0;
    wait_until("all that can run have run", || is_quiet() && is_quiet());
    let was_interrupted = lost_ps(runtime) != before.0;
    let complete = stage.turns.load(Relaxed) == turns;
    let order = stage.order.iter().map(|place| place.load(Relaxed)).collect();
    wait_until("the rest has ended", || {
        let actors: Vec<_> = stage.actors.lock().unwrap().values().cloned().collect();
        actors.iter().for_each(Goroutine::unpark);
        stage.ended.load(Relaxed) as u64 == runtime.metrics().spawned - before.1
    });
    first.join().unwrap();
    assert!(was_interrupted || complete, "{order:?}");
    (!was_interrupted).then_some(order)
}

#[test]
fn the_same_script_runs_in_the_same_order() {
    let builder = || Runtime::builder().procs(1).time_slice(Duration::from_secs(3600));
    let runtimes =
        [("built in", builder().build().unwrap()), ("by trait", builder().scheduler(Bodies).build().unwrap())];
    let mut compared = 0;
    for seed in 1..=100 {
        let script = script(seed);
        let on_paper = on_paper(&script);
        for (name, runtime) in &runtimes {
            if let Some(order) = in_a_runtime(runtime, &script, on_paper.len()) {
                assert_eq!(order, on_paper, "{name}, seed {seed}: {script:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "{compared} of 200 were not interrupted");
    runtimes.into_iter().for_each(|(_, runtime)| end(runtime));
}
