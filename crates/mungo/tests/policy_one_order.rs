//! One rule, three schedulers: the same script runs in the same order on the built-in path of the runtime, under the
//! bodies of the trait, and on the simulated machine.

mod common;

use common::{end, wait_until};
use mungo::policy::sim::{Id, Machine};
use mungo::policy::{Cause, Event, Scheduler, TaskInfo};
use mungo::{Goroutine, Runtime, WaitReason, go};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A step of a goroutine, which is known by its place in the script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Yield,
    Spawn(usize),
    Park,
    /// A goroutine that was not spawned yet, or is over, is passed over.
    Unpark(usize),
    /// As `Unpark`, by a plain thread.
    UnparkOutside(usize),
    /// A sleep that is over when the P next looks at its timers.
    Nap,
}

/// The steps of each goroutine; the first one is there from the start.
type Script = Vec<Vec<Step>>;

/// Goroutines that spawn each other, park, sleep, and wake each other at random, also through a plain thread.
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
            let kind = random(14);
            // The first one spawns some at once, so that there is something to choose from.
            steps.push(if (at == 0 && step < 4 || kind < 3) && spawned < total {
                spawned += 1;
                Step::Spawn(spawned - 1)
            } else {
                match kind {
                    0..=4 => Step::Yield,
                    5 | 6 => Step::Park,
                    7..=9 => Step::Unpark(random(total)),
                    10 | 11 => Step::UnparkOutside(random(total)),
                    _ => Step::Nap,
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
    fn spawn(&mut self, place: usize, cause: Cause) {
        let id = self.machine.spawn();
        self.tasks.insert(place, Task { id, done: 0, token: false, parked: false });
        self.machine.queue(&Bodies, id, 0, cause);
    }

    fn unpark(&mut self, place: usize, cause: Cause) {
        let Some(task) = self.tasks.get_mut(&place) else { return };
        // Those that come before it runs again are one token.
        if !std::mem::replace(&mut task.token, true) && task.parked {
            self.machine.queue(&Bodies, task.id, 0, cause);
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
                Some(Step::Spawn(child)) => self.spawn(child, Cause::Spawned),
                Some(Step::Unpark(other)) => self.unpark(other, Cause::Woken),
                Some(Step::UnparkOutside(other)) => self.unpark(other, Cause::Outside),
                Some(Step::Nap) => {
                    self.machine.stop(&Bodies, id, 0, Event::Parked(WaitReason::Sleep));
                    return self.machine.queue(&Bodies, id, 0, Cause::Timer);
                }
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

/// The order on paper: the place of the goroutine that runs after each switch. The P begins with `tick`.
fn on_paper(script: &Script, tick: u32) -> Vec<usize> {
    let mut paper = Paper { machine: Machine::new(1, 1), tasks: HashMap::new() };
    let mut order = Vec::new();
    paper.machine.set_tick(0, tick);
    paper.spawn(0, Cause::Outside);
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
    /// The thread that runs it, and whether it was another one later, or lost its CPU: then timers are late, and others
    /// serve them.
    thread: Mutex<Option<(i32, i64)>>,
    was_disturbed: AtomicBool,
    actors: Mutex<HashMap<usize, Goroutine>>,
    ended: AtomicUsize,
    errand: Errand,
}

/// What a plain thread is asked to do. The goroutine that asks computes until it is done: if it waited, others would
/// run.
#[derive(Default)]
struct Errand {
    goroutine: Mutex<Option<Goroutine>>,
    asked: AtomicBool,
}

impl Errand {
    /// Wakes a goroutine for one that asks.
    fn serve(&self) {
        // ORDERING: Acquire: pairs with the Release in `unpark`, so that the goroutine is there.
        if self.asked.load(Acquire) {
            self.goroutine.lock().unwrap().take().expect("it was asked").unpark();
            // ORDERING: Release: pairs with the Acquire in `unpark`: the goroutine is queued by then.
            self.asked.store(false, Release);
        }
    }

    fn unpark(&self, goroutine: Goroutine) {
        *self.goroutine.lock().unwrap() = Some(goroutine);
        self.asked.store(true, Release);
        while self.asked.load(Acquire) {
            std::hint::spin_loop();
        }
    }
}

impl Stage {
    fn note(&self, place: usize) {
        let thread = this_thread();
        if *self.thread.lock().unwrap().get_or_insert(thread) != thread {
            self.was_disturbed.store(true, Relaxed);
        }
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
                Step::UnparkOutside(other) => {
                    let actor = self.actors.lock().unwrap().get(&other).cloned();
                    actor.into_iter().for_each(|actor| self.errand.unpark(actor));
                }
                Step::Nap => {
                    mungo::sleep(Duration::from_nanos(1));
                    self.note(place);
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

/// Returns the id of the thread that calls, and how often it gave up or lost its CPU.
fn this_thread() -> (i32, i64) {
    // SAFETY: the kernel fills all of it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage
    };
    // SAFETY: no memory is involved.
    (unsafe { libc::gettid() }, usage.ru_nvcsw + usage.ru_nivcsw)
}

/// Returns how often a goroutine lost its P: it was interrupted, or its thread slept for the kernel's own reasons.
fn lost_ps(runtime: &Runtime) -> u64 {
    runtime.metrics().per_proc.iter().map(|p| p.preemptions + p.retakes).sum()
}

/// The order in a runtime with one P, as far as there is room for `turns` of them. `None`: a goroutine lost the P or
/// the CPU, which is not on paper.
fn in_a_runtime(runtime: &Runtime, script: &Script, turns: usize) -> Option<Vec<usize>> {
    let stage = Arc::new(Stage {
        script: script.clone(),
        order: (0..turns).map(|_| AtomicUsize::new(usize::MAX)).collect(),
        turns: AtomicUsize::new(0),
        thread: Mutex::default(),
        was_disturbed: AtomicBool::new(false),
        actors: Mutex::default(),
        ended: AtomicUsize::new(0),
        errand: Errand::default(),
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
    let since = Instant::now();
    // It computes, as the goroutine that asks does: a thread that has to wake up first would take too long.
    while !(is_quiet() && is_quiet()) {
        stage.errand.serve();
        assert!(since.elapsed() < Duration::from_secs(60), "the script does not end: {script:?}");
    }
    let was_disturbed = stage.was_disturbed.load(Relaxed) || lost_ps(runtime) != before.0;
    let turns = stage.turns.load(Relaxed);
    let order = stage.order.iter().take(turns).map(|place| place.load(Relaxed)).collect();
    wait_until("the rest has ended", || {
        stage.errand.serve();
        let actors: Vec<_> = stage.actors.lock().unwrap().values().cloned().collect();
        actors.iter().for_each(Goroutine::unpark);
        stage.ended.load(Relaxed) as u64 == runtime.metrics().spawned - before.1
    });
    first.join().unwrap();
    (!was_disturbed).then_some(order)
}

#[test]
fn the_same_script_runs_in_the_same_order() {
    let builder = || Runtime::builder().procs(1).time_slice(Duration::from_secs(3600));
    let mut compared = 0;
    let mut seeds = 1..=1000;
    while compared < 50 {
        let seed = seeds.next().unwrap_or_else(|| panic!("only {compared} of 2000 runs were not disturbed"));
        let script = script(seed);
        // At each 61st tick the global queue comes first. A P has a tick more for each M that had it and found nothing,
        // so that the script begins at any of them.
        let on_paper: Vec<_> = (0..61).map(|tick| on_paper(&script, tick)).collect();
        let room = on_paper.iter().map(Vec::len).max().unwrap_or(0) + 1;
        let built_in = builder().build().unwrap();
        let by_trait = builder().scheduler(Bodies).build().unwrap();
        for (name, runtime) in [("built in", built_in), ("by trait", by_trait)] {
            if let Some(order) = in_a_runtime(&runtime, &script, room) {
                assert!(
                    on_paper.contains(&order),
                    "{name}, seed {seed}: {order:?}\n{:?}\n{script:?}",
                    on_paper[0]
                );
                compared += 1;
            }
            end(runtime);
        }
    }
}
