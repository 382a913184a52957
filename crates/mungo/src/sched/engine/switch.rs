//! The policy in force, and how it is replaced while goroutines run.
//!
//! The old policy's queues are closed and emptied into the runtime's global queue; a thread in the middle of a call
//! finds them closed, and its task goes the same way. What the old policy keeps elsewhere is revoked by going over all
//! goroutines: its tasks are void from then on. So nothing is lost and nothing runs twice, whatever it did.

use super::{Engine, hooks};
use crate::policies::default::is_built_in;
use crate::policies::stats::Stats;
use crate::policies::{DefaultPolicy, Policy};
use crate::protocols::runq::RunQueue;
use crate::sched::pick::global::GList;
use crate::sched::run::g::GPtr;
use crate::sched::run::lock::Lock;
use crate::sched::run::p::POLICY;
use crate::sched::shared::Shared;
use crate::sched::start::with_current;
use crate::sched::traced;
use crate::sys::say::say;
use crate::tracer;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release, SeqCst},
};

/// A runtime's policy. On lines of its own: under the default policy they are read by every spawn, and never written.
#[repr(align(128))]
pub(crate) struct PolicySlot {
    /// Whether there is an engine. Written under the lock.
    active: AtomicBool,
    /// Whether ranks are, or were, in use. Never goes back.
    ranks: AtomicBool,
    /// Changes with the policy. Written under the lock.
    pub(crate) epoch: AtomicU32,
    /// Number of goroutines that a policy has.
    pub(crate) queued: AtomicUsize,
    pub(crate) dropped: AtomicU64,
    replaced: AtomicU64,
    current: Lock<Current>,
}

struct Current {
    /// The policy; `None`: the built-in one.
    policy: Option<Policy>,
    engine: Option<Arc<Engine>>,
    /// Engines that may be freed, by a thread that may run user code.
    buried: Vec<Arc<Engine>>,
    last_fault: Option<String>,
}

impl PolicySlot {
    pub(crate) fn new() -> PolicySlot {
        PolicySlot {
            active: AtomicBool::new(false),
            ranks: AtomicBool::new(false),
            epoch: AtomicU32::new(0),
            queued: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            current: Lock::new(Current { policy: None, engine: None, buried: Vec::new(), last_fault: None }),
        }
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    #[inline]
    pub(crate) fn uses_ranks(&self) -> bool {
        self.ranks.load(Relaxed)
    }

    pub(crate) fn note_ranks(&self) {
        if !self.uses_ranks() {
            self.ranks.store(true, Relaxed);
            super::inherit::switch_on();
        }
    }

    /// Returns whether policies have goroutines to run.
    pub(crate) fn has_work(&self) -> bool {
        // ORDERING: SeqCst: the looker's half of the idle protocol; see `Engine::submit`.
        self.queued.load(SeqCst) != 0
    }

    /// Returns the engine, and the epoch since which it is in force.
    pub(crate) fn current(&self) -> (u32, Option<Arc<Engine>>) {
        let current = self.current.lock();
        (self.epoch.load(Relaxed), current.engine.clone())
    }

    /// As [`current`](Self::current), for the monitor, which must not wait, nor drop an engine.
    pub(crate) fn try_current(&self, f: impl FnOnce(&Engine)) {
        if let Some(current) = self.current.try_lock()
            && let Some(engine) = &current.engine
        {
            f(engine);
        }
    }

    /// Keeps an engine for the helper to free: its last user may be a worker, which must not run user code.
    pub(crate) fn bury(&self, engine: Arc<Engine>) {
        self.current.lock().buried.push(engine);
    }

    /// Frees engines that no thread uses. By the helper.
    pub(crate) fn free_buried(&self) {
        if self.uses_ranks() {
            let buried = std::mem::take(&mut self.current.lock().buried);
            drop(buried);
        }
    }

    /// Returns the policy in force.
    pub(crate) fn policy(&self) -> Policy {
        self.current.lock().policy.clone().unwrap_or_else(|| DefaultPolicy::new().into())
    }
}

/// The policy that was in force. To be dropped outside of the runtime: it may be user code.
pub(crate) struct Removed {
    _policy: Option<Policy>,
    engine: Option<Arc<Engine>>,
    buried: Vec<Arc<Engine>>,
}

/// Puts a policy in force. Returns what must be dropped outside of the runtime.
#[must_use = "drop it outside of the runtime"]
pub(crate) fn install(shared: &Shared, policy: Policy) -> Option<Removed> {
    let engine = (!is_built_in(policy.as_scheduler())).then(|| Arc::new(Engine::new(policy.clone())));
    exchange(shared, Some(policy), engine, None)
}

/// Exchanges the policy. With a `fault`: only if this is still the engine, and because of that.
fn exchange(
    shared: &Shared,
    policy: Option<Policy>,
    engine: Option<Arc<Engine>>,
    fault: Option<(&Engine, &str)>,
) -> Option<Removed> {
    let slot = &shared.policy;
    slot.note_ranks();
    let name = policy.as_ref().map_or("default", Policy::name).to_owned(); // user code: not under the lock
    let active = engine.is_some();
    let mut current = slot.current.lock();
    if let Some((faulty, what)) = fault {
        if !current.engine.as_ref().is_some_and(|engine| std::ptr::eq(&raw const **engine, faulty)) {
            return None;
        }
        slot.replaced.fetch_add(1, Relaxed);
        current.last_fault = Some(format!("{}: {what}", faulty.policy.name()));
    }
    traced::policy_changed(shared, &name);
    let removed = Removed {
        _policy: std::mem::replace(&mut current.policy, policy),
        engine: std::mem::replace(&mut current.engine, engine),
        buried: std::mem::take(&mut current.buried),
    };
    slot.active.store(active, Relaxed);
    // ORDERING: Release: pairs with `engine_of`; the rest is under the lock.
    slot.epoch.fetch_add(1, Release);
    shared.flag_policy(active);
    drop(current);
    if let Some(old) = &removed.engine {
        old.evacuate(shared);
    }
    if active {
        empty_rings(shared);
    }
    for _ in 0..shared.procs() {
        shared.wake_one();
    }
    Some(removed)
}

impl Engine {
    /// Gives everything that the policy has back to the runtime.
    fn evacuate(&self, shared: &Shared) {
        self.end_term();
        self.lanes.iter().chain([&self.global]).for_each(|lane| lane.close());
        self.empty_queues();
        if !shared.policy.has_work() {
            return;
        }
        // In its own containers, or held by a thread in the middle of a call.
        shared.for_each_g(|g| {
            if g.policy.revoke(self.generation) {
                hooks::return_to_runtime(g.into());
            }
        });
    }
}

/// Moves goroutines that the built-in policy queued at Ps to the global queue.
fn empty_rings(shared: &Shared) {
    let mut moved = GList::new();
    let hold = RunQueue::new();
    for p in shared.all_ps() {
        while let Some(g) = p.runq.steal_into(&hold, true) {
            let rest = std::iter::from_fn(|| hold.pop().map(|(g, _)| g));
            for g in std::iter::once(g).chain(rest) {
                moved.push(GPtr::new(g).expect("queues hold no null"));
            }
        }
    }
    shared.push_global(moved);
}

impl Shared {
    /// Tells all Ps whether a policy decides for them.
    fn flag_policy(&self, active: bool) {
        let _synced = self.synced.lock(); // against new Ps
        for p in self.all_ps() {
            match active {
                true => p.flags.fetch_or(POLICY, Relaxed),
                false => p.flags.fetch_and(!POLICY, Relaxed),
            };
        }
    }
}

/// Puts the default policy in force, because this one did something that it must not do.
#[cold]
pub(crate) fn replace_faulty(shared: &Shared, engine: &Engine, what: &str) {
    let Some(removed) = exchange(shared, None, None, Some((engine, what))) else { return };
    let name = engine.policy.name();
    shared.policy.current.lock().buried.extend(removed.engine.into_iter().chain(removed.buried));
    tracer::policy_replaced();
    say!("mungo: the scheduling policy '{name}' is replaced by the default one: {what}");
}

/// Changes the policy of this runtime, also while goroutines run: those that wait move over.
///
/// "This runtime" is the calling goroutine's, on a plain thread the default one.
///
/// ```
/// use mungo::policy::{self, Fifo};
///
/// let original = mungo::get_scheduler();
/// mungo::set_scheduler(Fifo::new());
/// assert_eq!(mungo::get_scheduler().name(), "fifo");
/// mungo::set_scheduler(policy::by_name("priority:age=5ms")?);
/// mungo::set_scheduler(original);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_scheduler(policy: impl Into<Policy>) {
    let policy = policy.into();
    let old = with_current(|shared| install(shared, policy));
    drop(old); // user code's destructors, outside of the runtime
}

/// Returns the policy of this runtime.
///
/// ```
/// assert_eq!(mungo::get_scheduler().name(), "default");
/// ```
pub fn get_scheduler() -> Policy {
    with_current(|shared| shared.policy.policy())
}

/// Returns what the policy of this runtime did so far. See also
/// [`Runtime::policy_stats`](crate::Runtime::policy_stats).
///
/// ```
/// assert_eq!(mungo::policy::stats().policy, "default");
/// ```
pub fn stats() -> Stats {
    with_current(stats_of)
}

pub(crate) fn stats_of(shared: &Shared) -> Stats {
    let slot = &shared.policy;
    let (policy, engine, last_fault) = {
        let current = slot.current.lock();
        (current.policy.clone(), current.engine.clone(), current.last_fault.clone())
    };
    let mut stats = Stats {
        policy: policy.as_ref().map_or("default", Policy::name).to_owned(),
        queued: slot.queued.load(Relaxed) as u64,
        dropped_tasks: slot.dropped.load(Relaxed),
        replaced: slot.replaced.load(Relaxed),
        last_fault,
        ..Stats::default()
    };
    if let Some(engine) = engine {
        stats.global_queue = engine.global.len() as u64;
        stats.wait.add(&engine.counters.wait);
        let procs = shared.all_ps().count();
        let rows = engine.counters.procs.iter().zip(&engine.lanes).take(procs);
        stats.per_proc = rows.map(|(counters, lane)| counters.read(lane.len())).collect();
    }
    stats
}
