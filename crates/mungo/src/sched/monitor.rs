//! The monitor (Go's sysmon): a thread without a P that keeps the others honest.
//!
//! It starts threads that Ps wait for, keeps a coarse clock, asks a P for its slice when others wait, re-reads
//! the CPU quota, gives back the pages of idle stacks, and finds the deadlock of the whole program.
//! It looks every 20 µs when things happen, up to every 10 ms when they do not, and sleeps when all Ps are idle.

use super::m::M;
use super::p::P;
use super::shared::Shared;
use super::watch::Watch;
use super::{deadlock, task, worker};
use crate::cpus::QuotaWatch;
use crate::debug::schedtrace::SchedTrace;
use crate::debug::sigquit;
use crate::lock::Lock;
use crate::netpoll;
use crate::stack::overflow::AltStack;
use crate::stack::slab;
use crate::sys::{clock, futex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

const SHORTEST_NS: u64 = 20_000;
const LONGEST_NS: u64 = 10_000_000;
/// Rounds without news before the period doubles, as in Go.
const PATIENCE: u32 = 50;
/// Rounds of [`LONGEST_NS`] with all Ps idle before it goes to sleep.
const IDLE_ROUNDS: u32 = 10;
/// The longest period while somebody waits for a P, or for a timer.
const CONCERNED_NS: u64 = 1_000_000;
/// So long it stays concerned after a call, so that it need not be called for each goroutine.
const ALERT_NS: u64 = 20_000_000;
/// Naps of a second before it sleeps for long: as many chores as it takes until all stacks are trimmed.
const NAPS: u32 = 4;
const SECOND_NS: u64 = 1_000_000_000;
/// The M's own stack: the scheduler's, and that of TLS destructors of the thread.
const WORKER_STACK: usize = 256 << 10;

/// Threads of all runtimes of the process; the deadlock detector compares.
pub(super) static RUNTIME_THREADS: AtomicU32 = AtomicU32::new(0);

/// What monitors sleep on: words that outlive their runtimes, for signal handlers. Two runtimes may share one: then
/// both wake up.
static BELLS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
/// Runtimes that were ever made, and monitors that run.
static STARTED: AtomicU32 = AtomicU32::new(0);
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Signal handlers: calls all monitors. `false`: there is none.
pub(crate) fn ring_all() -> bool {
    let used = BELLS.len().min(STARTED.load(Relaxed) as usize);
    BELLS[..used].iter().for_each(ring);
    RUNNING.load(Relaxed) != 0
}

fn ring(bell: &AtomicU32) {
    // ORDERING: Release what the caller wants seen.
    bell.fetch_add(1, Release);
    futex::wake(bell, u32::MAX);
}

/// The runtimes whose monitor runs.
static MONITORED: Lock<Vec<Arc<Shared>>> = Lock::new(Vec::new());

/// A plain thread begins to wait for a goroutine: if nothing moves any more, that makes a deadlock.
pub(super) fn notice_waiting_thread() {
    // ORDERING: SeqCst: the thread was counted before; the monitor says "asleep" and looks for a deadlock after.
    std::sync::atomic::fence(SeqCst);
    for shared in MONITORED.lock().iter() {
        shared.monitor.notice_activity();
    }
}

/// An M that may have watched the network ends: an M of another runtime shall, should somebody wait.
pub(super) fn pass_watch_on() {
    if netpoll::is_unwatched() {
        for shared in MONITORED.lock().iter() {
            shared.wake_one();
        }
    }
}

/// The runtimes that there are.
pub(crate) fn runtimes() -> Vec<Arc<Shared>> {
    MONITORED.lock().clone()
}

/// The part of the monitor that others talk to.
pub(crate) struct Monitor {
    /// Futex; changes with each call. One of [`BELLS`].
    calls: &'static AtomicU32,
    asleep: AtomicU32,
    /// How long it waits until its next look.
    pause_ns: AtomicU64,
    /// A call that was announced is about to block.
    blocking: AtomicBool,
    /// Monotonic time at its last look.
    coarse_ns: AtomicU64,
    /// Threads that could not be started.
    pub(crate) failed_starts: AtomicU64,
}

impl Monitor {
    pub(crate) fn new() -> Monitor {
        Monitor {
            calls: &BELLS[STARTED.fetch_add(1, Relaxed) as usize % BELLS.len()],
            asleep: AtomicU32::new(0),
            pause_ns: AtomicU64::new(0),
            blocking: AtomicBool::new(false),
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
        ring(self.calls);
    }

    /// Nobody has waited for a P for a while, so it will not look within a millisecond.
    #[inline]
    pub(crate) fn is_at_ease(&self) -> bool {
        self.pause_ns.load(Relaxed) > CONCERNED_NS
    }

    /// Somebody waits for a P from now on.
    #[cold]
    pub(crate) fn notice_waiting(&self) {
        self.pause_ns.store(0, Relaxed); // once is enough
        self.call();
    }

    /// A call that was announced is about to block, and somebody waits for the P.
    pub(crate) fn notice_blocking(&self) {
        if self.pause_ns.load(Relaxed) > 2 * SHORTEST_NS {
            self.blocking.store(true, Relaxed); // published with the call
            self.notice_waiting();
        }
    }

    /// The goroutine on `p` was asked to make room at once.
    pub(crate) fn call_for(&self, p: &P) {
        p.urgent.store(true, Relaxed); // published with the call
        self.call();
    }

    /// A goroutine came from elsewhere. If a policy is in force and all Ps are busy, it may want one of them for it.
    pub(crate) fn notice_inbox(&self, shared: &Shared) {
        if shared.policy.is_active() && shared.counts.idle_ps() == 0 {
            self.call();
        }
    }

    /// A P left the idle list.
    #[inline]
    pub(crate) fn notice_activity(&self) {
        // ORDERING: SeqCst: the P was counted out before; the monitor says "asleep" and counts after.
        if self.asleep.load(SeqCst) != 0 {
            self.coarse_ns.store(clock::now_ns(), Relaxed); // it was not kept; never in the handler: see `next_look`
            self.call();
        }
    }
}

/// Starts the monitor and a first worker, so that a machine without room for threads is noticed here.
pub(crate) fn start(shared: &Arc<Shared>, quota: Option<QuotaWatch>) -> io::Result<()> {
    start_worker(shared, None, false)?;
    let for_thread = shared.clone();
    RUNNING.fetch_add(1, Relaxed);
    MONITORED.lock().push(shared.clone());
    let started = start_thread(shared, "mungo-monitor".into(), move || main(&for_thread, quota));
    if started.is_err() {
        end_watch(shared);
        // ORDERING: as in `close`.
        shared.closing.store(true, SeqCst);
        shared.stop_if_done();
    }
    started
}

/// The runtime has no monitor any more.
fn end_watch(shared: &Arc<Shared>) {
    RUNNING.fetch_sub(1, Relaxed);
    MONITORED.lock().retain(|other| !Arc::ptr_eq(other, shared));
}

/// Starts a counted thread.
fn start_thread(shared: &Arc<Shared>, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    shared.threads.fetch_add(1, Relaxed);
    RUNTIME_THREADS.fetch_add(1, Relaxed);
    let counted = shared.clone();
    let body = move || {
        task::adopt_thread(&counted);
        // A panic here is a fault of the runtime. Without its thread the others would wait for ever.
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            eprintln!("mungo: fatal: a thread of the runtime panicked");
            std::process::abort();
        }
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
    let m = shared.make_m();
    m.set_spinning(spinning);
    m.next_p.store(p.map_or(std::ptr::null_mut(), |p| std::ptr::from_ref(p).cast_mut()), Relaxed);
    let held = shared.clone();
    let started = start_thread(shared, format!("mungo-m{}", m.id), move || {
        wake_on_time();
        let alt_stack = AltStack::new();
        worker::main(m);
        drop(alt_stack);
        m.leave_thread();
        held.bury_m(m);
    });
    started.inspect_err(|_| shared.bury_m(m))
}

/// Timers of this thread are not to be late by the usual 50 µs.
fn wake_on_time() {
    // SAFETY: a setting of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// The monitor runs for some microseconds at a time, and is needed most when every CPU computes. A short slice lets it
/// run ahead of a thread that has just begun its own (Linux 6.12; older ones ignore it). A better nice value helps too,
/// and is refused to most users, which does no harm. A program that is not scheduled as usual is left alone.
///
/// TUNED: eight goroutines that compute on two CPUs, one that sleeps for 1 ms: 90th and 99th percentile of its lateness
/// 3.0 and 4.9 ms without, 1.0 and 3.8 with the slice, 0.6 and 3.0 with both; 1.9 and 3.9 if the workers had it too.
fn run_ahead_of_those_that_compute() {
    const SLICE_NS: u64 = 100_000;
    const NICER: i32 = 10;
    // SAFETY: settings of the calling thread; the structure is what the kernel expects.
    unsafe {
        if libc::sched_getscheduler(0) != libc::SCHED_OTHER {
            return;
        }
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        let mut attr: libc::sched_attr = std::mem::zeroed();
        attr.size = size_of::<libc::sched_attr>() as u32;
        attr.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64; // not for the workers that it starts
        attr.sched_runtime = SLICE_NS;
        for nice in [nice - NICER, nice] {
            attr.sched_nice = nice.max(-20);
            if libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) == 0 {
                return;
            }
        }
    }
}

impl Shared {
    fn make_m(&self) -> &'static M {
        // Made before the lock is taken, perhaps in vain: an allocation must not wait with it in hand.
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let fresh = Box::new(M::new(NEXT_ID.fetch_add(1, Relaxed), self));
        let mut synced = self.synced.lock();
        let m = match synced.dead_ms.pop() {
            Some(m) => {
                m.revive();
                m
            }
            None => {
                // SAFETY: freed with the runtime, which each thread that uses it holds.
                let this: &'static M = unsafe { &*std::ptr::from_ref(&*fresh) };
                synced.all_ms.push(fresh);
                this
            }
        };
        synced.ms.push(m);
        m
    }

    fn bury_m(&self, m: &'static M) {
        let mut synced = self.synced.lock();
        synced.ms.retain(|other| !std::ptr::eq(*other, m));
        synced.dead_ms.push(m);
    }
}

/// What the monitor remembers from look to look.
struct State {
    quota: Option<QuotaWatch>,
    watch: Watch,
    next_chores_ns: u64,
    period_ns: u64,
    quiet: u32,
    idle: u32,
    naps: u32,
    deadlock: deadlock::Suspicion,
    /// [`Monitor::calls`] at the last look, and until when it is concerned because it was called.
    calls: u32,
    alert_until_ns: u64,
    /// Where the next search for stacks to trim goes on.
    trim_cursor: usize,
    schedtrace: Option<SchedTrace>,
}

fn main(shared: &Arc<Shared>, quota: Option<QuotaWatch>) {
    wake_on_time();
    run_ahead_of_those_that_compute();
    let mut state = State {
        quota,
        watch: Watch::default(),
        next_chores_ns: clock::now_ns() + SECOND_NS,
        period_ns: SHORTEST_NS,
        quiet: 0,
        idle: 0,
        naps: 0,
        deadlock: deadlock::Suspicion::default(),
        calls: 0,
        alert_until_ns: 0,
        trim_cursor: 0,
        schedtrace: SchedTrace::wanted(),
    };
    loop {
        // ORDERING: Acquire pairs with `call`; read before looking, so that no call is missed.
        let calls = shared.monitor.calls.load(Acquire);
        let now = clock::now_ns();
        shared.monitor.coarse_ns.store(now, Relaxed);
        start_wanted(shared);
        if shared.stopping.load(Relaxed) {
            end_watch(shared);
            crate::time::alarm::rescue(shared);
            return;
        }
        sigquit::serve();
        if std::mem::replace(&mut state.calls, calls) != calls {
            state.alert_until_ns = now + ALERT_NS;
        }
        let news = state.watch.look(shared, now) | shared.monitor.blocking.swap(false, Relaxed);
        if now >= state.next_chores_ns {
            state.next_chores_ns = now + SECOND_NS;
            state.chores(shared, now);
        }
        let mut deadline = state.next_look(shared, now, news);
        if let Some(trace) = &mut state.schedtrace {
            deadline = deadline.min(trace.serve(shared, now));
        }
        shared.monitor.pause_ns.store(deadline.saturating_sub(now), Relaxed);
        futex::wait(shared.monitor.calls, calls, Some(deadline));
        // ORDERING: as in `notice_activity`; nobody depends on the 0.
        shared.monitor.asleep.store(0, SeqCst);
    }
}

impl State {
    /// When to look again.
    fn next_look(&mut self, shared: &Arc<Shared>, now: u64, news: bool) -> u64 {
        self.quiet = if news { 0 } else { self.quiet + 1 };
        self.period_ns = match self.quiet {
            0 => SHORTEST_NS,
            n if n > PATIENCE => (self.period_ns * 2).min(LONGEST_NS),
            _ => self.period_ns,
        };
        (self.idle, self.naps) = if all_idle(shared) { (self.idle + 1, self.naps) } else { (0, 0) };
        if self.idle > 1 && self.deadlock.check(shared) {
            return now + LONGEST_NS;
        }
        if self.idle > IDLE_ROUNDS && self.period_ns == LONGEST_NS && !self.watch.is_concerned(shared) {
            self.fall_asleep(shared);
            self.naps += 1;
            let nap = self.naps <= NAPS || self.trim_cursor != 0;
            return clock::now_ns() + if nap { SECOND_NS } else { 3600 * SECOND_NS };
        }
        if !self.watch.is_concerned(shared) {
            let alert = now < self.alert_until_ns;
            return now + if alert { self.period_ns.min(CONCERNED_NS) } else { self.period_ns };
        }
        // A timer that every P is too busy for is served when it is due.
        let timer = self.watch.next_timer_look_ns(shared).max(now + SHORTEST_NS);
        (now + self.period_ns.min(CONCERNED_NS)).min(timer)
    }

    /// Says that it sleeps, and makes sure that nobody has just become busy without telling.
    fn fall_asleep(&mut self, shared: &Arc<Shared>) {
        // ORDERING: SeqCst: say it, then count: see `notice_activity`.
        shared.monitor.asleep.store(1, SeqCst);
        std::sync::atomic::fence(SeqCst);
        if !all_idle(shared) || self.deadlock.is_new(shared) {
            shared.monitor.call();
        }
    }
}

fn all_idle(shared: &Shared) -> bool {
    shared.counts.idle_ps() >= shared.procs()
}

/// Starts the threads that Ps wait for.
fn start_wanted(shared: &Arc<Shared>) {
    loop {
        let next = shared.synced.lock().wanted.pop();
        let Some((p, spinning)) = next else { return };
        if shared.stopping.load(Relaxed) || start_worker(shared, Some(p), spinning).is_err() {
            // Go on with what there is: the P's goroutines wait in the global queue for the other Ms.
            shared.monitor.failed_starts.fetch_add(1, Relaxed);
            shared.strand(shared.synced.lock(), p, spinning);
            return;
        }
    }
}

impl State {
    /// About once a second.
    fn chores(&mut self, shared: &Arc<Shared>, now: u64) {
        if !shared.procs_by_hand.load(Relaxed)
            && let Some(decision) = self.quota.as_mut().and_then(QuotaWatch::poll)
        {
            _ = shared.set_procs(decision.procs.min(super::shared::MAX_PROCS));
        }
        shared.flush_idle_ps();
        slab::trim();
        shared.policy.free_buried();
        trim_parked(shared, now, &mut self.trim_cursor);
        if shared.counts.idle_ps() != 0 && (shared.any_work() || shared.timers_unwatched()) {
            shared.wake_one(); // a thread could not be started earlier
        }
    }
}

/// Gives back the pages below the stack pointers of goroutines that have been parked for a second. So many at a time
/// that the monitor is not kept from its other work; the rest have their turn at the next chores.
fn trim_parked(shared: &Shared, now: u64, cursor: &mut usize) {
    const AT_A_TIME: usize = 1000;
    let mut left = AT_A_TIME;
    *cursor = shared.for_some_gs(*cursor, |g| {
        if g.trimmed.load(Relaxed) || now.saturating_sub(g.since_ns.load(Relaxed)) < SECOND_NS {
            return true;
        }
        let trimmed = g.state.inspect(|| {
            if let Some(slot) = g.slot() {
                g.trimmed.store(true, Relaxed);
                // SAFETY: it is parked and stays so while it is inspected; below its stack pointer nothing lives.
                unsafe { slot.drop_pages_below(g.stack_low()) };
            }
        });
        left -= usize::from(trimmed.is_some());
        left > 0
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
