//! The helper: a thread that does what the monitor has seen to be due and what may take time, memory, descriptors, or a
//! lock that a goroutine holds.
//!
//! The monitor must not wait for any of these (see `monitor.rs`); this thread may. Bits in a word ask it: what is asked
//! twice is done once. If it waits for a lock of an interrupted goroutine, that goroutine gets its P as any other does,
//! and if the lock keeps all Ps waiting too, the monitor lets it go on.

use crate::cpus::QuotaWatch;
use crate::policies::order::LATE_TIMER_NS;
use crate::protocols::wake::Wake;
use crate::sched::config::MAX_PROCS;
use crate::sched::engine::hooks;
use crate::sched::engine::watchdog::Watchdog;
use crate::sched::interpose;
use crate::sched::netpoll;
use crate::sched::pick::global::GList;
use crate::sched::pick::{From, Why, enqueue_all};
use crate::sched::report::schedtrace::SchedTrace;
use crate::sched::report::sigquit;
use crate::sched::run::g::G;
use crate::sched::run::p::RETIRE;
use crate::sched::shared::Shared;
use crate::sched::threads::preempt;
use crate::sched::threads::starter::wake_on_time;
use crate::sched::timers::heap::Due;
use crate::sched::traced;
use crate::stack::slab;
use crate::sys::{clock, futex};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Asks for what is done about once a second.
pub(crate) const CHORES: u32 = 1;
/// SIGQUIT came.
pub(crate) const DUMP: u32 = 1 << 1;
/// A timer is late that the monitor cannot run.
pub(crate) const TIMERS: u32 = 1 << 2;
/// Descriptors have become ready, and every P is busy.
pub(crate) const NETWORK: u32 = 1 << 3;
/// A policy decides, every P is busy, and there may be news for it.
pub(crate) const JOB_POLICY: u32 = 1 << 4;
/// A P goes out of service.
pub(crate) const JOB_RETIRE: u32 = 1 << 5;
/// The cap of threads was reached.
pub(crate) const CAP: u32 = 1 << 6;
/// Goroutines wait for futexes that were woken inside the runtime: see `sched/interpose/futex.rs`.
pub(crate) const FUTEXES: u32 = 1 << 7;
/// The helper has nothing to do, but perhaps the runtime stops.
const LOOK_UP: u32 = 1 << 31;

const SECOND_NS: u64 = 1_000_000_000;

/// The part of the helper that other threads use.
pub(crate) struct Helper {
    /// Futex: the work that is asked for, one bit each.
    asked: AtomicU32,
    /// Whether there are stacks that have to be trimmed. Written by the helper.
    trims: AtomicBool,
}

impl Helper {
    pub(crate) fn new() -> Helper {
        Helper { asked: AtomicU32::new(0), trims: AtomicBool::new(false) }
    }

    /// Asks for `what`. Never waits; safe in a signal handler.
    pub(crate) fn ask(&self, what: u32) {
        // ORDERING: Release what the caller wants seen. WHY NOT look first whether it was asked already: the helper
        // might have taken the word since, and not see what the caller did.
        if self.asked.fetch_or(what | LOOK_UP, Release) == 0 {
            futex::wake(&self.asked, 1);
        }
    }

    /// Returns whether chores remain although nothing runs.
    pub(crate) fn has_chores(&self) -> bool {
        self.trims.load(Relaxed)
    }
}

/// The helper's memory.
struct State {
    quota: Option<QuotaWatch>,
    watchdog: Watchdog,
    schedtrace: Option<SchedTrace>,
    /// The chunk of Gs from which the next search for stacks to trim goes on.
    trim_cursor: usize,
}

/// Runs the helper's thread.
pub(crate) fn main(shared: &Arc<Shared>, quota: Option<QuotaWatch>) {
    wake_on_time();
    shared.monitor.run_ahead();
    let schedtrace = SchedTrace::wanted();
    let mut state = State { quota, watchdog: Watchdog::default(), schedtrace, trim_cursor: 0 };
    loop {
        // ORDERING: Acquire pairs with `ask`.
        let asked = shared.helper.asked.swap(0, Acquire);
        if asked & FUTEXES != 0 {
            interpose::futex::serve_marked();
        }
        if shared.is_stopping() {
            // ORDERING: SeqCst: with `futex::ask_own_helper`, which marks and then looks whether the runtime stops.
            fence(SeqCst);
            interpose::futex::serve_marked();
            return;
        }
        let now = clock::now_ns();
        state.serve(shared, asked, now);
        let deadline = state.schedtrace.as_mut().map(|trace| trace.serve(shared, now));
        futex::wait(&shared.helper.asked, 0, deadline);
    }
}

impl State {
    fn serve(&mut self, shared: &Arc<Shared>, asked: u32, now: u64) {
        if asked & DUMP != 0 {
            sigquit::serve();
        }
        if asked & JOB_RETIRE != 0 {
            loop {
                let Some(p) = shared.synced.lock().retiring.pop() else { break };
                shared.retire(p);
            }
        }
        if asked & TIMERS != 0 {
            serve_late_timers(shared, now);
        }
        if asked & NETWORK != 0 {
            serve_network(shared);
        }
        if asked & JOB_POLICY != 0 {
            hooks::serve_inbox(shared);
            self.watchdog.look(shared, now);
        }
        if asked & CAP != 0 {
            shared.report_cap();
        }
        if asked & CHORES != 0 {
            self.chores(shared, now);
        }
    }

    /// Does what is due about once a second.
    fn chores(&mut self, shared: &Arc<Shared>, now: u64) {
        if !shared.procs_by_hand.load(Relaxed)
            && let Some(decision) = self.quota.as_mut().and_then(QuotaWatch::poll)
        {
            _ = shared.set_procs(decision.procs.min(MAX_PROCS));
        }
        preempt::keep_installed();
        flush_idle_ps(shared);
        if slab::mark() && shared.counts.idle_ps() != 0 {
            shared.wake_one(); // to take idle stacks apart
        }
        shared.policy.free_buried();
        trim_parked(shared, now, &mut self.trim_cursor);
        shared.helper.trims.store(self.trim_cursor != 0, Relaxed);
        shared.starter.call(); // should a spare thread have been refused
        if shared.counts.idle_ps() != 0 && (shared.any_work() || shared.timers_unwatched()) {
            shared.wake_one(); // a thread could not be started earlier
        }
    }
}

/// Runs the timers that are due while every P is busy: those that call functions, or all of them if a policy decides.
fn serve_late_timers(shared: &Shared, now: u64) {
    let mut woken = GList::new();
    for p in shared.all_ps() {
        if shared.counts.idle_ps() != 0 || p.timers.next_ns().saturating_add(LATE_TIMER_NS) > now {
            continue;
        }
        let mut due = [Due::Nothing; 32];
        let n = p.timers.take_due(now, &mut due);
        for due in due.into_iter().take(n) {
            match due {
                Due::Nothing => {}
                // SAFETY: taken from the heap, so its count of ownership is ours to pass on.
                Due::Call(call) => unsafe { (call.run)(call.data, shared, &p.timers) },
                Due::Wake(g) => {
                    if G::notify(&g) == Wake::Enqueue && !hooks::queue_due(shared, shared.p(0), g) {
                        woken.push(g);
                    }
                }
            }
        }
    }
    if woken.len() != 0 {
        enqueue_all(shared, woken, Why::Timer, From::Elsewhere);
        shared.wake_one();
        shared.monitor.call();
    }
}

/// Queues the goroutines whose descriptors are ready while every P computes, and calls the monitor, which makes room.
fn serve_network(shared: &Shared) {
    let woken = netpoll::take();
    traced::polled(shared, None, woken.len());
    let woken = netpoll::send_home(woken, shared);
    if woken.len() == 0 {
        return;
    }
    enqueue_all(shared, woken, Why::Network, From::Elsewhere);
    shared.wake_one();
    hooks::serve_inbox(shared);
    shared.monitor.call();
}

/// Hands the free stacks of idle Ps to the pool, where they are trimmed. Each P is out of the list meanwhile, because
/// the pool's lock and memory are not to be waited for under the scheduler's lock.
fn flush_idle_ps(shared: &Shared) {
    for p in shared.all_ps() {
        let mut synced = shared.synced.lock();
        let Some(at) = synced.idle_ps.iter().position(|idle| idle.id == p.id) else { continue };
        // SAFETY: an idle P belongs to the lock.
        if unsafe { p.core() }.is_flushed() {
            continue;
        }
        let p = synced.idle_ps.swap_remove(at);
        shared.counts.p_left_idle();
        drop(synced);
        // SAFETY: it is in no list, so it is ours.
        unsafe { p.core() }.flush();
        let mut synced = shared.synced.lock();
        if p.flags.load(Relaxed) & RETIRE != 0 {
            drop(synced);
            shared.retire(p);
            continue;
        }
        shared.put_idle_locked(&mut synced, p);
        drop(synced);
        // Threads that submitted work meanwhile did not see that this P is idle.
        if shared.any_work() || shared.timers_unwatched() || netpoll::is_unwatched() {
            shared.wake_one();
        }
    }
}

/// Gives back the pages below the stack pointers of goroutines that have been parked for a second, of at most
/// `AT_A_TIME` goroutines, so that the helper is not kept from its other work; the rest have their turn at the next
/// chores.
fn trim_parked(shared: &Shared, now: u64, cursor: &mut usize) {
    const AT_A_TIME: usize = 1000;
    let mut left = AT_A_TIME;
    *cursor = shared.for_some_gs(*cursor, |g| {
        if g.trimmed.load(Relaxed) || now.saturating_sub(g.since_ns.load(Relaxed)) < SECOND_NS {
            return true;
        }
        let trimmed = g.try_hold(|| {
            if let Some(slot) = g.slot() {
                g.trimmed.store(true, Relaxed);
                // SAFETY: it is parked and stays so while it is inspected. If its stack pointer is on the slot, nothing
                // lives below.
                unsafe { slot.drop_pages_below(g.stack_low()) };
            }
        });
        left -= usize::from(trimmed.is_some());
        left > 0
    });
}
