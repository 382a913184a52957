//! A policy in force: its queues, its counters, and the calls into it.
//!
//! A call into a policy is a call into foreign code: it is made without a lock of the runtime, and a panic ends the
//! policy's term, not the program.

pub(crate) mod hooks;
pub(crate) mod inherit;
pub(crate) mod rank;
pub(crate) mod switch;
pub(crate) mod watchdog;

use self::hooks::{Goroutines, g_of};
use self::watchdog::patience;
use crate::policies::order::{LONGEST_SLICE, PATIENT_REFUSALS, REFUSAL_PAUSE, SHORTEST_SLICE};
use crate::policies::proc::Behind;
use crate::policies::queue::{FIRST_LOCAL, GLOBAL, Lane};
use crate::policies::stats::{Counters, ProcCounters};
use crate::policies::task::{Cause, Home, Node, Task, TaskInfo};
use crate::policies::topology::Topology;
use crate::policies::{Event, Next, Policy, Proc, Scheduler};
use crate::sched::config::MAX_PROCS;
use crate::sched::pick::Found;
use crate::sched::run::g::{G, GPtr};
use crate::sched::run::m::M;
use crate::sched::run::p::P;
use crate::sched::shared::Shared;
use crate::sched::traced;
use crate::sys::clock;
use mungo_trace::Queue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
    fence,
};
use std::time::Duration;

/// A policy in force.
pub(crate) struct Engine {
    pub(crate) policy: Policy,
    /// Tells its marks on goroutines from those of other policies of the process.
    pub(crate) generation: u32,
    pub(crate) global: Lane,
    pub(crate) lanes: Box<[Lane]>,
    pub(crate) counters: Counters,
    /// Number of goroutines that it let run.
    pub(crate) dispatched: AtomicU64,
    /// Number of times that it said "nothing to do" although it had tasks.
    pub(crate) refusals: AtomicU64,
    /// Number of goroutines that became runnable, and the last of them: see `outranked`.
    wakeups: AtomicU64,
    last_wakeup: AtomicPtr<G>,
    /// Whether its term is over: what it still gets is taken back.
    over: AtomicBool,
    accounts: bool,
    rng: AtomicU64,
    /// The memory node of the CPU on which each P last asked.
    nodes: Box<[AtomicU32]>,
    topology: &'static Topology,
}

impl Engine {
    pub(crate) fn new(policy: Policy) -> Engine {
        static GENERATIONS: AtomicU32 = AtomicU32::new(0);
        static TOPOLOGY: OnceLock<Topology> = OnceLock::new();
        let generation = GENERATIONS.fetch_add(1, Relaxed) + 1;
        Engine {
            accounts: policy.as_scheduler().accounts_cpu_time(),
            policy,
            generation,
            global: Lane::new(GLOBAL),
            lanes: (0..MAX_PROCS as u32).map(|p| Lane::new(FIRST_LOCAL + p)).collect(),
            counters: Counters::new(MAX_PROCS),
            dispatched: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
            last_wakeup: AtomicPtr::new(std::ptr::null_mut()),
            over: AtomicBool::new(false),
            rng: AtomicU64::new(clock::now_ns()),
            nodes: (0..MAX_PROCS).map(|_| AtomicU32::new(0)).collect(),
            topology: TOPOLOGY.get_or_init(Topology::of_this_machine),
        }
    }

    fn scheduler(&self) -> &dyn Scheduler {
        self.policy.as_scheduler()
    }

    /// Calls the policy. `None`: it panicked, and is replaced.
    fn call<R>(
        &self,
        shared: &Shared,
        proc: u32,
        f: impl FnOnce(&dyn Scheduler, &mut Proc<'_>) -> R,
    ) -> Option<R> {
        let machine = Real { engine: self, shared };
        let mut proc = Proc::new(&machine, proc as usize);
        match catch_unwind(AssertUnwindSafe(|| f(self.scheduler(), &mut proc))) {
            Ok(result) => Some(result),
            Err(payload) => {
                let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
                // Its drop is user code too, and this happens once.
                std::mem::forget(payload);
                let first = text.as_deref().and_then(|text| text.lines().next()).unwrap_or("no message");
                super::engine::switch::replace_faulty(shared, self, &format!("it panicked: {first}"));
                None
            }
        }
    }

    /// Hands a goroutine that the caller owns to the policy, on behalf of P `proc`.
    pub(crate) fn submit(&self, shared: &Shared, proc: u32, g: GPtr, cause: Cause, next: bool, local: bool) {
        let node = g.policy;
        let cause = if node.is_new() { Cause::Spawned } else { cause };
        node.enter_generation(g.id.load(Relaxed), self.generation);
        node.set_cause(cause);
        // ORDERING: SeqCst: the submitter's half of the idle protocol; the caller looks for sleepers after.
        let queued = shared.policy.queued.fetch_add(1, SeqCst);
        node.note_enqueued(clock::now_ns(), patience(self.dispatched.load(Relaxed), queued));
        let task = node.lend(None);
        self.call(shared, proc, |policy, proc| policy.queue_task(task, proc, next, local));
        self.take_back_if_over(g);
        if cause.is_wakeup() {
            self.last_wakeup.store(g.as_ptr(), Relaxed);
            // ORDERING: SeqCst: it is in a queue; this says so, then looks at what runs. Against `next`.
            self.wakeups.fetch_add(1, SeqCst);
            self.preempt_for(shared, proc, g);
        }
    }

    /// Ends its term. From here on, a thread that hands it a goroutine sees that and takes it back, or `evacuate` sees
    /// the goroutine.
    pub(crate) fn end_term(&self) {
        self.over.store(true, Relaxed);
        // ORDERING: SeqCst: this says it, then looks at all goroutines; against `take_back_if_over`.
        fence(SeqCst);
    }

    fn take_back_if_over(&self, g: GPtr) {
        // ORDERING: SeqCst: the goroutine was marked as lent before this looks; against `end_term`.
        fence(SeqCst);
        if self.over.load(Relaxed) && g.policy.revoke(self.generation) {
            super::engine::hooks::return_to_runtime(g);
        }
    }

    /// Queues a task anew whose rank has changed.
    pub(crate) fn requeue(&self, shared: &Shared, task: Task) {
        let g = g_of(NonNull::from(task.node()));
        g.policy.set_cause(Cause::Moved);
        self.call(shared, 0, |policy, proc| policy.queue_task(task, proc, false, false));
        self.take_back_if_over(g);
        self.preempt_for(shared, u32::MAX, g);
        shared.wake_one();
    }

    /// Asks the policy, when every P is busy, whether it wants one of them for `g`, which it has just got.
    ///
    /// The goroutine may run by now, or be over: what is read of it is at worst another one's.
    pub(crate) fn preempt_for(&self, shared: &Shared, asker: u32, g: GPtr) {
        if shared.counts.idle_ps() != 0 {
            return;
        }
        let waking = g.policy.info();
        let mut victim: Option<(&P, u32, TaskInfo)> = None;
        for p in shared.all_ps().take(shared.procs() as usize) {
            let tick = p.tick.load(Relaxed);
            let Some(running) = running_on(p) else { continue };
            let wants = self.call(shared, p.id, |policy, _| {
                policy.should_preempt(&running, &waking)
                    && victim.as_ref().is_none_or(|(_, _, best)| policy.should_preempt(&running, best))
            });
            match wants {
                Some(true) => victim = Some((p, tick, running)),
                Some(false) => {}
                None => return,
            }
        }
        let Some((p, tick, _)) = victim else { return };
        if p.is_asked_on(tick) {
            return; // it was asked before on this tick; it will look at all of them
        }
        self.counters.procs[p.id as usize].preemptions.add(1);
        p.ask_to_yield_for(tick, g.id.load(Relaxed));
        if p.id != asker || !in_runtime_on(p) {
            shared.monitor.call_for(p);
        }
    }

    /// Returns the next goroutine for P `p`, which `m` owns.
    pub(crate) fn next(&self, m: &M, p: &P) -> Option<Found> {
        let shared: &Shared = m.shared();
        if self.topology.nodes() > 1 {
            self.note_node(p);
        }
        loop {
            // ORDERING: SeqCst: see `outranked`.
            let wakeups = self.wakeups.load(SeqCst);
            let Some(Next { task, inherit_time, wake_another }) =
                self.call(shared, p.id, |policy, proc| policy.next_task(proc))?
            else {
                self.note_refusal(shared, p);
                return None;
            };
            if task.is_simulated() {
                continue; // dropped here
            }
            let Some(node) = task.accept() else { continue };
            let g = g_of(node);
            if !std::ptr::eq(g.shared.get(), shared) {
                // A policy with one queue for several runtimes. It would be counted as ended here, as alive there.
                Goroutines.came_back(g.policy, true);
                continue;
            }
            shared.policy.queued.fetch_sub(1, Relaxed);
            self.dispatched.fetch_add(1, Relaxed);
            self.start(shared, m, p, g, inherit_time);
            p.upcoming.store(g.as_ptr(), Relaxed);
            // ORDERING: SeqCst: this says what will run, then looks at what came meanwhile. Against `submit`.
            fence(SeqCst);
            if self.wakeups.load(Relaxed) != wakeups && self.outranked(shared, p, g) {
                let tick = p.tick.load(Relaxed).wrapping_add(u32::from(!inherit_time));
                p.ask_to_yield(tick, 0);
                shared.monitor.call_for(p);
            }
            if wake_another {
                shared.wake_one();
            }
            traced::found(p, &g, Queue::Policy);
            return Some((g, inherit_time));
        }
    }

    /// Returns whether the last woken goroutine would displace `g`. It may have become runnable between the policy's
    /// choice of `g` and its publication, and have seen neither this P idle nor `g` running.
    #[cold]
    fn outranked(&self, shared: &Shared, p: &P, g: GPtr) -> bool {
        let Some(last) = GPtr::new(self.last_wakeup.load(Relaxed)) else { return false };
        last != g
            && last.policy.is_lent()
            && self
                .call(shared, p.id, |policy, _| policy.should_preempt(&g.policy.info(), &last.policy.info()))
                .unwrap_or(false)
    }

    /// Asks, when every P is busy, about the first goroutine of each queue: it may have become more urgent than one
    /// that runs, or have come unseen.
    pub(crate) fn preempt_for_heads(&self, shared: &Shared) {
        let procs = shared.procs() as usize;
        for lane in std::iter::once(&self.global).chain(self.lanes.iter().take(procs)) {
            if let Some(node) = lane.first() {
                self.preempt_for(shared, u32::MAX, g_of(node));
            }
        }
    }

    fn start(&self, shared: &Shared, m: &M, p: &P, g: GPtr, inherit_time: bool) {
        let now = clock::now_ns();
        let node = g.policy;
        let counters = &self.counters;
        counters.wait.record(now.saturating_sub(node.enqueued_ns()), 1);
        counters.procs[p.id as usize].switches.add(1);
        node.note_dispatched(now, p.id);
        // SAFETY: the caller owns the P.
        unsafe { p.core() }.refused = 0;
        if self.accounts {
            m.cpu_mark_ns.store(clock::own_cpu_ns(), Relaxed);
        }
        if !inherit_time {
            let default = Duration::from_nanos(shared.config.time_slice_ns);
            let slice = self.call(shared, p.id, |policy, _| policy.time_slice(&node.info(), default));
            let slice = slice.unwrap_or(default).clamp(SHORTEST_SLICE, LONGEST_SLICE);
            p.slice_ns.store(slice.as_nanos() as u64, Relaxed);
        }
    }

    /// Counts a refusal. The task may be on its way into a queue. If it lasts, asking all the time makes no sense.
    fn note_refusal(&self, shared: &Shared, p: &P) {
        if shared.policy.queued.load(Relaxed) == 0 {
            return;
        }
        self.refusals.fetch_add(1, Relaxed);
        // Perhaps the task was given to a P that has just gone.
        for lane in self.lanes.iter().skip(shared.procs() as usize) {
            while let Some(task) = lane.pop_front() {
                task.give_back();
            }
        }
        // SAFETY: the caller owns the P.
        let refused = unsafe { &mut p.core().refused };
        *refused += 1;
        if *refused > PATIENT_REFUSALS {
            std::thread::sleep(REFUSAL_PAUSE);
        }
    }

    fn note_node(&self, p: &P) {
        // SAFETY: no memory involved.
        let cpu = unsafe { libc::sched_getcpu() };
        let node = self.topology.node_of_cpu(usize::try_from(cpu).unwrap_or(0));
        self.nodes[p.id as usize].store(node as u32, Relaxed);
    }

    /// Charges what the goroutine that `m` ran used, when it stopped.
    pub(crate) fn charge(&self, m: &M, g: &Node, cpu_ns: impl FnOnce() -> Option<u64>) {
        if self.accounts
            && let Some(now) = cpu_ns()
        {
            let mark = m.cpu_mark_ns.swap(now, Relaxed);
            g.charge(now.saturating_sub(mark));
        }
    }

    /// As [`charge`](Self::charge), for a goroutine whose thread sleeps with it.
    pub(crate) fn charge_at_home(&self, home: &M, g: GPtr) {
        self.charge(home, g.policy, || crate::sched::sysmon::watch::thread_cpu_ns(home));
    }

    pub(crate) fn tell(&self, shared: &Shared, p: &P, g: GPtr, event: Event) {
        g.policy.enter_generation(g.id.load(Relaxed), self.generation);
        let mut info = g.policy.info();
        self.call(shared, p.id, |policy, proc| policy.event(event, &mut info, proc));
        g.policy.set_words(info.words);
    }

    /// Asks whether a goroutine with a budget may start. `Err`: why not.
    pub(crate) fn admit(&self, shared: &Shared, info: &TaskInfo) -> Result<(), String> {
        let procs = shared.procs() as usize;
        self.call(shared, 0, |policy, _| policy.admit(info, procs)).unwrap_or(Ok(()))
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Returns what the goroutine on a P is like; it may be gone when this returns.
fn running_on(p: &P) -> Option<TaskInfo> {
    // SAFETY: Ms live as long as the runtime.
    let m = unsafe { p.m.load(Acquire).as_ref() }?;
    let g = GPtr::new(m.g.load(Relaxed)).or_else(|| GPtr::new(p.upcoming.load(Relaxed)))?;
    Some(g.policy.info())
}

fn in_runtime_on(p: &P) -> bool {
    // SAFETY: as above.
    unsafe { p.m.load(Acquire).as_ref() }.is_some_and(|m| !m.is_outside())
}

/// The runtime as policies see it.
struct Real<'a> {
    engine: &'a Engine,
    shared: &'a Shared,
}

impl Behind for Real<'_> {
    fn procs(&self) -> usize {
        self.shared.procs() as usize
    }

    fn global(&self) -> &Lane {
        &self.engine.global
    }

    fn lane(&self, proc: usize) -> &Lane {
        &self.engine.lanes[proc]
    }

    fn tick(&self, proc: usize) -> u32 {
        self.shared.p(proc as u32).tick.load(Relaxed)
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn random(&self) -> u64 {
        crate::policies::sim::mix(self.engine.rng.fetch_add(crate::policies::sim::STEP, Relaxed))
    }

    fn running(&self, proc: usize) -> Option<TaskInfo> {
        (proc < self.procs()).then(|| running_on(self.shared.p(proc as u32)))?
    }

    fn topology(&self) -> &Topology {
        self.engine.topology
    }

    fn node_of(&self, proc: usize) -> usize {
        self.engine.nodes[proc].load(Relaxed) as usize
    }

    fn time_slice(&self) -> Duration {
        Duration::from_nanos(self.shared.config.time_slice_ns)
    }

    fn counters(&self, proc: usize) -> &ProcCounters {
        &self.engine.counters.procs[proc]
    }
}
