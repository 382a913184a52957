//! The monitor (Go's sysmon): a thread without a P that keeps the others honest.
//!
//! It starts threads that Ps wait for, keeps a coarse clock, asks a P for its slice when others wait, re-reads
//! the CPU quota, gives back the pages of idle stacks, and finds the deadlock of the whole program.
//! It looks every 20 µs when things happen, up to every 10 ms when they do not, and sleeps when all Ps are idle.

use super::m::M;
use super::p::{P, PREEMPT};
use super::shared::Shared;
use super::{deadlock, worker};
use crate::cpus::QuotaWatch;
use crate::stack::overflow::AltStack;
use crate::stack::slab;
use crate::sys::{clock, futex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

const SHORTEST_NS: u64 = 20_000;
const LONGEST_NS: u64 = 10_000_000;
/// Rounds without news before the period doubles, as in Go.
const PATIENCE: u32 = 50;
/// Rounds of [`LONGEST_NS`] with all Ps idle before it goes to sleep.
const IDLE_ROUNDS: u32 = 10;
const SECOND_NS: u64 = 1_000_000_000;
/// The M's own stack: the scheduler's, and that of TLS destructors of the thread.
const WORKER_STACK: usize = 256 << 10;

/// Threads of all runtimes of the process; the deadlock detector compares.
pub(super) static RUNTIME_THREADS: AtomicU32 = AtomicU32::new(0);

/// The part of the monitor that others talk to.
pub(crate) struct Monitor {
    /// Futex; changes with each call.
    calls: AtomicU32,
    asleep: AtomicU32,
    /// Monotonic time at its last look.
    coarse_ns: AtomicU64,
    /// Threads that could not be started.
    pub(crate) failed_starts: AtomicU64,
}

impl Monitor {
    pub(crate) fn new() -> Monitor {
        Monitor {
            calls: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            coarse_ns: AtomicU64::new(clock::now_ns()),
            failed_starts: AtomicU64::new(0),
        }
    }

    /// The time, some milliseconds old at the most while goroutines run.
    #[inline]
    pub(crate) fn coarse_ns(&self) -> u64 {
        self.coarse_ns.load(Relaxed)
    }

    /// There is something to do at once.
    pub(crate) fn call(&self) {
        // ORDERING: Release what the caller wants seen.
        self.calls.fetch_add(1, Release);
        futex::wake(&self.calls, 1);
    }

    /// A P left the idle list.
    #[inline]
    pub(crate) fn notice_activity(&self) {
        // ORDERING: SeqCst: the P was counted out before; the monitor says "asleep" and counts after.
        if self.asleep.load(SeqCst) != 0 {
            self.call();
        }
    }
}

/// Starts the monitor and a first worker, so that a machine without room for threads is noticed here.
pub(crate) fn start(shared: &Arc<Shared>, quota: Option<QuotaWatch>) -> io::Result<()> {
    start_worker(shared, None, false)?;
    let for_thread = shared.clone();
    let started = start_thread(shared, "mungo-monitor".into(), move || main(&for_thread, quota));
    if started.is_err() {
        // ORDERING: as in `close`.
        shared.closing.store(true, SeqCst);
        shared.stop_if_done();
    }
    started
}

/// Starts a counted thread.
fn start_thread(shared: &Arc<Shared>, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    shared.threads.fetch_add(1, Relaxed);
    RUNTIME_THREADS.fetch_add(1, Relaxed);
    let counted = shared.clone();
    let body = move || {
        body();
        uncount(&counted);
    };
    let started = std::thread::Builder::new().name(name).stack_size(WORKER_STACK).spawn(body);
    started.map(drop).inspect_err(|_| uncount(shared))
}

fn uncount(shared: &Shared) {
    RUNTIME_THREADS.fetch_sub(1, Relaxed);
    // ORDERING: Release to `Runtime::shutdown`, which waits for zero.
    shared.threads.fetch_sub(1, Release);
    futex::wake(&shared.threads, u32::MAX);
}

/// Starts a worker thread, with a P or to sleep until it gets one.
fn start_worker(shared: &Arc<Shared>, p: Option<&'static P>, spinning: bool) -> io::Result<()> {
    let mut synced = shared.synced.lock();
    let id = synced.next_m_id;
    synced.next_m_id += 1;
    drop(synced);
    let m = Arc::new(M::new(id, shared.clone()));
    m.set_spinning(spinning);
    m.next_p.store(p.map_or(std::ptr::null_mut(), |p| std::ptr::from_ref(p).cast_mut()), Relaxed);
    shared.synced.lock().ms.push(m.clone());
    let for_thread = m.clone();
    let started = start_thread(shared, format!("mungo-m{id}"), move || {
        let alt_stack = AltStack::new();
        worker::main(for_thread);
        drop(alt_stack);
    });
    if started.is_err() {
        shared.synced.lock().ms.retain(|other| !Arc::ptr_eq(other, &m));
    }
    started
}

/// What the monitor remembers from look to look.
struct Watch {
    quota: Option<QuotaWatch>,
    /// Per P: the tick last seen, and since when.
    ticks: Vec<(u32, u64)>,
    next_chores_ns: u64,
    quiet: u32,
    idle: u32,
    deadlock: deadlock::Suspicion,
}

fn main(shared: &Arc<Shared>, quota: Option<QuotaWatch>) {
    let now = clock::now_ns();
    let mut watch = Watch {
        quota,
        ticks: Vec::new(),
        next_chores_ns: now + SECOND_NS,
        quiet: 0,
        idle: 0,
        deadlock: deadlock::Suspicion::default(),
    };
    let mut period = SHORTEST_NS;
    loop {
        // ORDERING: Acquire pairs with `call`; read before looking, so that no call is missed.
        let calls = shared.monitor.calls.load(Acquire);
        let now = clock::now_ns();
        shared.monitor.coarse_ns.store(now, Relaxed);
        let mut news = start_wanted(shared);
        if shared.stopping.load(Relaxed) {
            return;
        }
        news |= watch.check_slices(shared, now);
        if now >= watch.next_chores_ns {
            watch.next_chores_ns = now + SECOND_NS;
            watch.chores(shared, now);
        }
        watch.quiet = if news { 0 } else { watch.quiet + 1 };
        period = match watch.quiet {
            0 => SHORTEST_NS,
            n if n > PATIENCE => (period * 2).min(LONGEST_NS),
            _ => period,
        };
        watch.idle = if all_idle(shared) { watch.idle + 1 } else { 0 };
        let deadline = if watch.idle > 1 && watch.deadlock.check(shared) {
            now + LONGEST_NS
        } else if watch.idle > IDLE_ROUNDS && period == LONGEST_NS {
            fall_asleep(shared, &mut watch);
            clock::now_ns() + 3600 * SECOND_NS
        } else {
            now + period
        };
        futex::wait(&shared.monitor.calls, calls, Some(deadline));
        // ORDERING: as in `notice_activity`; nobody depends on the 0.
        shared.monitor.asleep.store(0, SeqCst);
    }
}

fn all_idle(shared: &Shared) -> bool {
    shared.counts.idle_ps() >= shared.procs()
}

/// Says that it sleeps, and makes sure that nobody has just become busy without telling.
fn fall_asleep(shared: &Arc<Shared>, watch: &mut Watch) {
    watch.chores(shared, clock::now_ns());
    // ORDERING: SeqCst: say it, then count: see `notice_activity`.
    shared.monitor.asleep.store(1, SeqCst);
    std::sync::atomic::fence(SeqCst);
    if !all_idle(shared) {
        shared.monitor.call();
    }
}

/// Starts the threads that Ps wait for.
fn start_wanted(shared: &Arc<Shared>) -> bool {
    let mut any = false;
    loop {
        let next = shared.synced.lock().wanted.pop();
        let Some((p, spinning)) = next else { return any };
        any = true;
        if shared.stopping.load(Relaxed) || start_worker(shared, Some(p), spinning).is_err() {
            // Go on with what there is: the P's goroutines wait in the global queue for the other Ms.
            shared.monitor.failed_starts.fetch_add(1, Relaxed);
            let mut synced = shared.synced.lock();
            shared.strand_locked(&mut synced, p);
            drop(synced);
            if spinning {
                _ = shared.counts.stop_spinning();
            }
            return any;
        }
    }
}

impl Watch {
    /// Asks a P for its slice if it is over and somebody waits.
    fn check_slices(&mut self, shared: &Shared, now: u64) -> bool {
        let mut news = false;
        self.ticks.resize(shared.all_ps().count(), (0, now));
        for (p, seen) in shared.all_ps().zip(&mut self.ticks) {
            let tick = p.tick.load(Relaxed);
            if tick != seen.0 {
                *seen = (tick, now);
            } else if now - seen.1 >= shared.config.time_slice_ns
                && (!p.runq.is_empty() || shared.global_len() != 0)
            {
                p.flags.fetch_or(PREEMPT, Relaxed);
                seen.1 = now;
                news = true;
            }
        }
        news
    }

    /// About once a second.
    fn chores(&mut self, shared: &Arc<Shared>, now: u64) {
        if !shared.procs_by_hand.load(Relaxed)
            && let Some(decision) = self.quota.as_mut().and_then(QuotaWatch::poll)
        {
            _ = shared.set_procs(decision.procs.min(super::shared::MAX_PROCS));
        }
        shared.flush_idle_ps();
        slab::trim();
        trim_parked(shared, now);
        if shared.counts.idle_ps() != 0 && shared.any_work() {
            shared.wake_one(); // a thread could not be started earlier
        }
    }
}

/// Gives back the pages below the stack pointers of goroutines that have been parked for a second.
fn trim_parked(shared: &Shared, now: u64) {
    shared.for_each_g(|g| {
        if g.trimmed.load(Relaxed) || now.saturating_sub(g.since_ns.load(Relaxed)) < SECOND_NS {
            return;
        }
        g.state.inspect(|| {
            if let Some(slot) = g.slot() {
                g.trimmed.store(true, Relaxed);
                // SAFETY: it is parked and stays so while it is inspected; below the saved pointer nothing lives.
                unsafe { slot.drop_pages_below(g.saved_sp.get()) };
            }
        });
    });
}

impl Shared {
    /// Idle Ps hand their free stacks to the pool, where they are trimmed.
    fn flush_idle_ps(&self) {
        let synced = self.synced.lock();
        for p in &synced.idle_ps {
            // SAFETY: an idle P belongs to the lock.
            unsafe { p.core() }.flush();
        }
    }
}
