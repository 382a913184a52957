//! The monitor (Go's sysmon): a thread without a P that keeps the Ms honest.
//!
//! It keeps a coarse clock, takes the P of a goroutine that blocks, asks a P for its slice when others wait, and finds
//! the deadlock of the whole program. It looks every 20 µs when things happen, up to every 10 ms when they do not, and
//! sleeps when all Ps are idle.
//!
//! Invariant: it needs neither memory, nor descriptors, nor `/proc`, nor a lock that a goroutine may hold. An
//! interrupted goroutine may hold the allocator's lock, or that of stderr, and waits for a P: a monitor that waited for
//! such a lock would wait for itself. So its buffers are made at the start; of the locks it takes those under which
//! nothing is allocated (`Shared::synced`, `M::retake`), and of all others `try_lock`; threads are started by the
//! *starter* (`starter.rs`), and all else that allocates, opens, prints or calls functions of the program is done by
//! the *helper* (`helper.rs`). The check for a deadlock is the exception, and safe: it opens `/proc` only when no
//! goroutine runs, is queued or was interrupted, and only the monitor interrupts.

use super::watch::Watch;
use crate::cpus::QuotaWatch;
use crate::policies::order::{ALERT_NS, CONCERNED_NS, IDLE_ROUNDS, LONGEST_NS, NAPS, PATIENCE, SHORTEST_NS};
use crate::sched::netpoll;
use crate::sched::report::sigquit;
use crate::sched::run::lock::Lock;
use crate::sched::run::p::P;
use crate::sched::shared::Shared;
use crate::sched::start::default_runtime;
use crate::sched::sysmon::{deadlock, helper};
use crate::sched::threads::cap::Stall;
use crate::sched::threads::starter::{self, stack_size, start_worker, wake_on_time};
use crate::sys::say::say;
use crate::sys::{Line, clock, futex, thread};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

const SECOND_NS: u64 = 1_000_000_000;

/// Threads of all runtimes of the process, for the deadlock detector.
pub(crate) static RUNTIME_THREADS: AtomicU32 = AtomicU32::new(0);

/// Words that monitors sleep on, and that outlive their runtimes, for signal handlers. Two runtimes may share one: then
/// both wake up.
static BELLS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
/// Number of runtimes that were ever made, and of monitors that run.
static STARTED: AtomicU32 = AtomicU32::new(0);
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Calls all monitors, from a signal handler. Returns `false` if there is none.
pub(crate) fn ring_all() -> bool {
    let used = BELLS.len().min(STARTED.load(Relaxed) as usize);
    BELLS[..used].iter().for_each(ring);
    RUNNING.load(SeqCst) != 0 // ORDERING: see `end_watch`
}

fn ring(bell: &AtomicU32) {
    // ORDERING: Release what the caller wants seen.
    bell.fetch_add(1, Release);
    futex::wake(bell, u32::MAX);
}

/// The runtimes whose monitor runs.
static MONITORED: Lock<Vec<Arc<Shared>>> = Lock::new(Vec::new());

/// Calls the sleeping monitors, as a plain thread begins to wait for a goroutine: if nothing moves any more, that makes
/// a deadlock.
pub(crate) fn notice_waiting_thread() {
    // ORDERING: SeqCst: the thread was counted before; the monitor says "asleep" and looks for a deadlock after.
    std::sync::atomic::fence(SeqCst);
    for shared in MONITORED.lock().iter() {
        shared.monitor.notice_activity();
    }
}

/// Passes the watch of the network on from an M that ends to an M of another runtime, if a goroutine waits. If there is
/// no other runtime, tasks of executors may wait still, and the default runtime serves them.
pub(crate) fn pass_watch_on(from: &Shared) {
    if !from.monitor.has_run() || !netpoll::is_unwatched() {
        return;
    }
    let others: Vec<_> = runtimes().into_iter().filter(|shared| !shared.is_stopping()).collect();
    // A runtime that stops from here on passes the watch on in its turn.
    others.iter().for_each(|shared| shared.wake_one());
    if others.is_empty() {
        match default_runtime() {
            Ok(shared) => shared.wake_one(),
            Err(e) => say!("mungo: tasks that wait for the network are stuck: no runtime can be started: {e}"),
        }
    }
}

/// Returns the runtimes whose monitor runs.
pub(crate) fn runtimes() -> Vec<Arc<Shared>> {
    MONITORED.lock().clone()
}

/// Returns whether `holds` is true for each runtime but `shared`.
pub(crate) fn all_others(shared: &Shared, holds: impl Fn(&Shared) -> bool) -> bool {
    MONITORED.lock().iter().all(|other| std::ptr::eq(&**other, shared) || holds(other))
}

/// The part of the monitor that other threads use.
pub(crate) struct Monitor {
    /// Futex; changes with each call. One of [`BELLS`].
    calls: &'static AtomicU32,
    asleep: AtomicU32,
    /// Time in ns that it waits until its next look.
    pause_ns: AtomicU64,
    /// Whether an announced call is about to block.
    blocking: AtomicBool,
    /// Whether it wants to hear of the next fresh goroutine, because at its last look all Ps computed and none waited.
    listens: AtomicBool,
    /// Monotonic time in ns at its last look, or at the last timed switch of a P, some thousand times a second.
    coarse_ns: Line<AtomicU64>,
    /// The nice value of the thread that built the runtime.
    nice: Nice,
    /// Whether its thread was started.
    has_run: AtomicBool,
}

impl Monitor {
    pub(crate) fn new() -> Monitor {
        Monitor {
            calls: &BELLS[STARTED.fetch_add(1, Relaxed) as usize % BELLS.len()],
            asleep: AtomicU32::new(0),
            pause_ns: AtomicU64::new(0),
            blocking: AtomicBool::new(false),
            listens: AtomicBool::new(false),
            coarse_ns: Line(AtomicU64::new(clock::now_ns())),
            nice: Nice::of_this_thread(),
            has_run: AtomicBool::new(false),
        }
    }

    /// Raises the calling thread, the monitor or its helper: see [`run_ahead_of_those_that_compute`].
    pub(crate) fn run_ahead(&self) {
        run_ahead_of_those_that_compute(self.nice);
    }

    /// Returns whether the runtime ever came to life.
    pub(crate) fn has_run(&self) -> bool {
        self.has_run.load(Relaxed)
    }

    /// Returns the monotonic time in ns, some milliseconds old at the most while goroutines run.
    #[inline]
    pub(crate) fn coarse_ns(&self) -> u64 {
        self.coarse_ns.load(Relaxed)
    }

    /// Returns the same, also while no goroutine runs and it is not kept.
    #[inline]
    #[cfg_attr(not(all(feature = "profile", mungo_native)), allow(dead_code))]
    pub(crate) fn recent_ns(&self) -> u64 {
        match self.asleep.load(Relaxed) {
            0 => self.coarse_ns(),
            _ => clock::now_ns(),
        }
    }

    /// Brings [`coarse_ns`](Self::coarse_ns) up to date, by a thread that has just read the clock.
    pub(crate) fn note_time(&self, now_ns: u64) {
        self.coarse_ns.store(now_ns, Relaxed);
    }

    /// Calls the monitor to look at once.
    pub(crate) fn call(&self) {
        ring(self.calls);
    }

    /// Returns whether it will not look within a millisecond, because no goroutine has waited for a P for a while.
    #[inline]
    pub(crate) fn is_at_ease(&self) -> bool {
        self.pause_ns.load(Relaxed) > CONCERNED_NS
    }

    /// Tells it that a goroutine waits for a P from now on.
    #[cold]
    pub(crate) fn notice_waiting(&self) {
        self.pause_ns.store(0, Relaxed); // once is enough
        self.call();
    }

    /// Tells it that an announced call is about to block while a goroutine waits for the P.
    pub(crate) fn notice_blocking(&self) {
        if self.pause_ns.load(Relaxed) > 2 * SHORTEST_NS {
            self.blocking.store(true, Relaxed); // published with the call
            self.notice_waiting();
        }
    }

    /// Tells it that a fresh goroutine waits for whichever P is free first: it interrupts one that computes, if all do.
    ///
    /// TUNED: `contestant from_outside`: half of them ran 0.53 ms after the send and 99 of 100 within 1.03 ms, when the
    /// monitor's next regular look came; with this 0.03 and 0.056 ms (medians of three runs each, in turns).
    #[inline]
    pub(crate) fn notice_fresh(&self) {
        // Nothing is published by it: the monitor finds the goroutine in the global queue, by the call.
        if self.listens.load(Relaxed) && self.listens.swap(false, Relaxed) {
            self.call();
        }
    }

    /// Calls it because the goroutine on `p` was asked to make room at once.
    pub(crate) fn call_for(&self, p: &P) {
        p.wanted_now.store(true, Relaxed); // published with the call
        self.call();
    }

    /// Asks the helper to serve a goroutine that came from elsewhere, if a policy is in force and all Ps are busy: the
    /// policy may want one of them for it.
    pub(crate) fn notice_inbox(&self, shared: &Shared) {
        if shared.policy.is_active() && shared.counts.idle_ps() == 0 {
            shared.helper.ask(helper::JOB_POLICY);
        }
    }

    /// Tells it that a P left the idle list.
    #[inline]
    pub(crate) fn notice_activity(&self) {
        // ORDERING: SeqCst: the P was counted out before; the monitor says "asleep" and counts after.
        if self.asleep.load(SeqCst) != 0 {
            self.coarse_ns.store(clock::now_ns(), Relaxed); // it was not kept; never in the handler: see `next_look`
            self.call();
        }
    }
}

/// Starts the runtime's own threads and a first worker, so that a machine without room for threads is noticed here.
pub(crate) fn start(shared: &Arc<Shared>, quota: Option<QuotaWatch>) -> io::Result<()> {
    RUNNING.fetch_add(1, Relaxed);
    MONITORED.lock().push(shared.clone());
    let started = start_worker(shared, None)
        .and_then(|()| start_thread(shared, "mungo-starter", starter::main))
        .and_then(|()| start_thread(shared, "mungo-helper", |shared| helper::main(shared, quota)))
        .and_then(|()| start_thread(shared, "mungo-monitor", main));
    shared.monitor.has_run.store(started.is_ok(), Relaxed);
    if started.is_err() {
        end_watch(shared);
        shared.close();
    }
    started
}

/// Takes the runtime, which has no monitor any more, out of the list.
fn end_watch(shared: &Arc<Shared>) {
    // ORDERING: SeqCst: against the handler of SIGQUIT, which says what it wants and then asks whether a monitor runs.
    RUNNING.fetch_sub(1, SeqCst);
    MONITORED.lock().retain(|other| !Arc::ptr_eq(other, shared));
}

/// Starts a counted thread, when the runtime starts.
fn start_thread(
    shared: &Arc<Shared>,
    name: &str,
    body: impl FnOnce(&Arc<Shared>) + Send + 'static,
) -> io::Result<()> {
    shared.count_thread();
    let held = shared.clone();
    let body = move || starter::guard(&held, || body(&held));
    let builder = std::thread::Builder::new().name(name.into()).stack_size(stack_size());
    let started = thread::own(|| builder.spawn(body));
    started.map(drop).inspect_err(|_| shared.uncount_thread())
}

/// The nice value of a thread, from -20 (goes first) to 19.
#[derive(Clone, Copy, Debug)]
struct Nice(i32);

impl Nice {
    fn of_this_thread() -> Nice {
        // SAFETY: no memory involved. It does not fail for the calling thread.
        Nice(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) })
    }

    /// Gives it to the calling thread, which was started by the monitor and has the value that the kernel passed on:
    /// zero if the monitor's is below zero, else the monitor's.
    fn adopt(self) {
        if Nice::of_this_thread().0 != self.0 {
            // SAFETY: a setting of the calling thread. If it is refused, as a better one may be, nothing changes.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.0) };
        }
    }
}

/// Lets the calling thread, the monitor or its helper, run ahead of threads that compute. The monitor runs for some
/// microseconds at a time, and is needed most when every CPU computes. A short slice lets it run ahead of a thread that
/// has just begun its own (Linux 6.12; older ones ignore it). A better nice value helps too, and is refused to most
/// users, which does no harm. A program that is not scheduled as usual is left alone. `Nice::adopt` undoes it for the
/// threads that it starts.
///
/// TUNED: eight goroutines that compute on two CPUs, one that sleeps for 1 ms: 90th and 99th percentile of its lateness
/// 3.0 and 4.9 ms without, 1.0 and 3.8 with the slice, 0.6 and 3.0 with both; 1.9 and 3.9 if the workers had it too.
fn run_ahead_of_those_that_compute(usual: Nice) {
    const SLICE_NS: u64 = 100_000;
    const NICER: i32 = 10;
    // SAFETY: settings of the calling thread; the structure is what the kernel expects.
    unsafe {
        if libc::sched_getscheduler(0) != libc::SCHED_OTHER {
            return;
        }
        let mut attr: libc::sched_attr = std::mem::zeroed();
        attr.size = size_of::<libc::sched_attr>() as u32;
        attr.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64; // the slice is not for threads that it starts
        attr.sched_runtime = SLICE_NS;
        for nice in [usual.0 - NICER, usual.0] {
            attr.sched_nice = nice.max(-20);
            if libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) == 0 {
                return;
            }
        }
    }
}

/// The monitor's memory from look to look.
struct State {
    watch: Watch,
    stall: Stall,
    next_chores_ns: u64,
    period_ns: u64,
    quiet: u32,
    idle: u32,
    naps: u32,
    deadlock: deadlock::Suspicion,
    /// [`Monitor::calls`] at the last look, and until when it is concerned because it was called.
    calls: u32,
    alert_until_ns: u64,
}

fn main(shared: &Arc<Shared>) {
    wake_on_time();
    run_ahead_of_those_that_compute(shared.monitor.nice);
    let mut state = State {
        watch: Watch::new(),
        stall: Stall::default(),
        next_chores_ns: clock::now_ns() + SECOND_NS,
        period_ns: SHORTEST_NS,
        quiet: 0,
        idle: 0,
        naps: 0,
        deadlock: deadlock::Suspicion::default(),
        calls: 0,
        alert_until_ns: 0,
    };
    loop {
        // ORDERING: Acquire pairs with `call`; read before looking, so that no call is missed.
        let calls = shared.monitor.calls.load(Acquire);
        let now = clock::now_ns();
        shared.monitor.coarse_ns.store(now, Relaxed);
        if shared.is_stopping() {
            end_watch(shared);
            sigquit::serve(); // what came since the last look
            shared.monitor.nice.adopt(); // this may start the default runtime
            crate::sched::timers::alarm::rescue(shared);
            return;
        }
        if sigquit::is_wanted() {
            shared.helper.ask(helper::DUMP);
        }
        if std::mem::replace(&mut state.calls, calls) != calls {
            state.alert_until_ns = now + ALERT_NS;
        }
        let news = state.watch.look(shared, now) | shared.monitor.blocking.swap(false, Relaxed);
        if now >= state.next_chores_ns {
            state.next_chores_ns = now + SECOND_NS;
            shared.helper.ask(helper::CHORES);
        }
        let listens = !shared.has_fresh() && state.watch.all_compute(shared);
        // A goroutine that comes in between is seen a millisecond later.
        shared.monitor.listens.store(listens, Relaxed);
        shared.serve_held(&mut state.stall, now);
        let deadline = state.next_look(shared, now, news);
        shared.monitor.pause_ns.store(deadline.saturating_sub(now), Relaxed);
        futex::wait(shared.monitor.calls, calls, Some(deadline));
        // ORDERING: as in `notice_activity`; no thread depends on the 0.
        shared.monitor.asleep.store(0, SeqCst);
    }
}

impl State {
    /// Returns the time in ns of the next look.
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
            let nap = self.naps <= NAPS || shared.helper.has_chores();
            return clock::now_ns() + if nap { SECOND_NS } else { 3600 * SECOND_NS };
        }
        if !self.watch.is_concerned(shared) {
            let alert = now < self.alert_until_ns;
            return now + if alert { self.period_ns.min(CONCERNED_NS) } else { self.period_ns };
        }
        let wanted = self.watch.next_look_ns(shared, now).max(now + SHORTEST_NS);
        (now + self.period_ns.min(CONCERNED_NS)).min(wanted)
    }

    /// Says that it sleeps, and makes sure that no P has just become busy without telling.
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
