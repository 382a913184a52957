//! The state that all Ms of a runtime share.
//!
//! Lock order: `Shared::synced` is taken last and held for a few instructions; nothing is woken, started, allocated or
//! freed under it, because the monitor takes it (see `monitor.rs`). Timer heaps and channels are taken before it, never
//! after.

use super::config::{Config, MAX_PROCS};
use super::pick::global::GList;
use super::run::g::pool;
use super::sysmon::helper::Helper;
use super::sysmon::monitor::Monitor;
use super::threads::cap::Held;
use super::threads::preempt::Outcomes;
use super::threads::starter::Starter;
use crate::protocols::closing::Closing;
use crate::protocols::idle::IdleCounts;
use crate::sched::engine::hooks;
use crate::sched::engine::switch::PolicySlot;
use crate::sched::run::lock::{Guard, Lock};
use crate::sched::run::p::{Counter, P, POLICY, RETIRE};
use crate::sched::threads::mlist::{List, Registry};
use crate::sys::Line;
use crate::sys::capture::Capture;
use crate::tracer;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

/// Everything that the workers, the monitor and the handles of one runtime share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Its number in traces.
    pub(crate) number: u16,
    /// All Ps ever made, by id; filled from the front, freed with this.
    ps: Box<[AtomicPtr<P>]>,
    /// `procs()`: Ps with a smaller id may run.
    procs: AtomicU32,
    /// Read by each wake-up, written by each M that becomes idle or stops to be.
    pub(crate) counts: Line<IdleCounts>,
    /// Number of goroutines in the global queues; written under the lock.
    pub(super) global_len: Line<AtomicUsize>,
    /// How many of these compute: read at each switch, written when it changes, under the lock.
    pub(super) computing_len: Line<AtomicUsize>,
    pub(crate) synced: Line<Lock<Synced>>,
    /// All Ms.
    pub(crate) ms: Registry,
    pub(crate) monitor: Monitor,
    pub(crate) starter: Starter,
    pub(crate) helper: Helper,
    pub(crate) policy: PolicySlot,
    pub(crate) next_id: AtomicU64,
    /// Number of spawns by plain threads, and one for each [`hold`](Self::hold).
    pub(crate) external_spawned: AtomicU64,
    /// Time in ns until which the M that keeps the time sleeps; `u64::MAX`: no M does.
    pub(crate) sleep_until_ns: AtomicU64,
    /// Time in ns at which an M that kept the time last got up for a timer.
    pub(crate) last_timer_ns: AtomicU64,
    /// Time in ns at which the monitor last found that an M which had got up for timers did not come back soon. Written
    /// by the monitor.
    pub(crate) wary_since_ns: AtomicU64,
    /// Whether `set_procs` was called: then the quota does not change the number of Ps.
    pub(crate) procs_by_hand: AtomicBool,
    closing: Closing,
    /// Wakers that are not ours and came while the workers left; for the threads to call as their last act.
    pub(super) late_wakers: Lock<Vec<Waker>>,
    /// Number of threads (workers and the monitor) that have not ended.
    pub(crate) threads: AtomicU32,
    /// Number of threads that sleep because the goroutine that is locked to them waits.
    pub(crate) waiting_locked: AtomicU32,
    /// The first panic of a goroutine that no handle was left to: the goroutine, and its message.
    pub(crate) detached_panic: OnceLock<String>,
    /// The buffer that goroutines print to, if they are a test's; set before the first one.
    pub(crate) output_capture: OnceLock<Capture>,
    /// What became of the signals that asked goroutines to make room.
    pub(crate) interruptions: Outcomes,
    /// Number of goroutines that are held back because of the cap of threads; written under the lock.
    pub(crate) held_len: AtomicUsize,
    /// Whether the cap was reached not long ago: then an M that begins a goroutine asks. Written by threads that find
    /// it so, cleared by the monitor.
    pub(super) near_cap: AtomicBool,
    /// Whether it was said on stderr that the cap was reached.
    pub(super) cap_reported: AtomicBool,
}

/// The part that the lock guards.
pub(crate) struct Synced {
    /// Goroutines that were spawned or woken by a thread without a P, and those that do not fit into a P's ring.
    pub(crate) global: GList,
    /// Goroutines that were interrupted while they computed.
    pub(crate) computing: GList,
    pub(crate) idle_ps: Vec<&'static P>,
    /// Sleeping Ms; the last one in is the first one out.
    pub(crate) idle_ms: List,
    /// Number of Ms that have a thread.
    pub(crate) live_ms: usize,
    pub(crate) dead_ms: List,
    /// Ps that wait for a thread to be started, and whether it shall spin. A P is in it once at the most.
    pub(crate) wanted: Vec<(&'static P, bool)>,
    /// Ps that the helper takes out of service. A P is in it once at the most.
    pub(crate) retiring: Vec<&'static P>,
    /// Goroutines that have not begun and are held back, for want of threads.
    pub(super) held: Held,
    /// Number of goroutines that may begin beyond the cap.
    pub(super) permits: usize,
}

impl Shared {
    pub(crate) fn new(config: Config) -> io::Result<Arc<Shared>> {
        let shared = Arc::new(Shared {
            number: tracer::new_runtime(),
            ps: (0..MAX_PROCS).map(|_| AtomicPtr::new(null_mut())).collect(),
            procs: AtomicU32::new(0),
            counts: Line(IdleCounts::new()),
            global_len: Line(AtomicUsize::new(0)),
            computing_len: Line(AtomicUsize::new(0)),
            synced: Line(Lock::new(Synced {
                global: GList::new(),
                computing: GList::new(),
                idle_ps: Vec::with_capacity(MAX_PROCS),
                idle_ms: List::new(),
                live_ms: 0,
                dead_ms: List::new(),
                wanted: Vec::with_capacity(MAX_PROCS),
                retiring: Vec::with_capacity(MAX_PROCS),
                held: Held::new(),
                permits: 0,
            })),
            ms: Registry::new(),
            monitor: Monitor::new(),
            starter: Starter::new(),
            helper: Helper::new(),
            policy: PolicySlot::new(),
            next_id: AtomicU64::new(1),
            external_spawned: AtomicU64::new(0),
            sleep_until_ns: AtomicU64::new(u64::MAX),
            last_timer_ns: AtomicU64::new(0),
            wary_since_ns: AtomicU64::new(0),
            procs_by_hand: AtomicBool::new(false),
            closing: Closing::new(),
            late_wakers: Lock::new(Vec::new()),
            threads: AtomicU32::new(0),
            waiting_locked: AtomicU32::new(0),
            detached_panic: OnceLock::new(),
            output_capture: OnceLock::new(),
            interruptions: Outcomes::default(),
            held_len: AtomicUsize::new(0),
            near_cap: AtomicBool::new(false),
            cap_reported: AtomicBool::new(false),
            config,
        });
        shared.set_procs(shared.config.procs)?;
        Ok(shared)
    }

    /// Returns a count of ownership of its own.
    pub(crate) fn to_arc(&self) -> Arc<Shared> {
        // SAFETY: `new` is the only way to make one, and puts it into an `Arc`.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    // ---- Ps ----

    pub(crate) fn procs(&self) -> u32 {
        self.procs.load(Relaxed)
    }

    /// Returns how many goroutines can compute at the same time: the number of Ps, or of CPUs if these are fewer.
    pub(crate) fn at_once(&self) -> usize {
        (self.procs() as usize).min(self.config.decision.cpus).max(1)
    }

    /// Returns all Ps that were ever made, dead ones too.
    pub(crate) fn all_ps(&self) -> impl Iterator<Item = &P> {
        // SAFETY: a P is freed with `self`. ORDERING: Acquire the P's content.
        self.ps.iter().map_while(|p| unsafe { p.load(Acquire).as_ref() })
    }

    pub(crate) fn p(&self, id: u32) -> &P {
        // SAFETY: as above; ids below `procs` exist.
        unsafe { &*self.ps[id as usize].load(Acquire) }
    }

    /// Changes the number of Ps. Those to go leave at their next scheduling point.
    pub(crate) fn set_procs(&self, n: usize) -> io::Result<usize> {
        if n == 0 || n > MAX_PROCS {
            let why = format!("{n} procs: the number must be from 1 to {MAX_PROCS}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let made = self.all_ps().count();
        let mut fresh: Vec<Option<Box<P>>> = (made..n)
            .map(|id| P::new(id as u32, self.config.stack_class).map(|p| Some(Box::new(p))))
            .collect::<Result<_, _>>()?;
        let mut gone = Vec::with_capacity(MAX_PROCS); // not to grow under the lock
        let mut synced = self.synced.lock();
        let old = self.procs.swap(n as u32, Relaxed) as usize;
        self.counts.set_spare((n - self.at_once()) as u32);
        for (place, fresh) in self.ps[made..].iter().zip(&mut fresh) {
            if place.load(Relaxed).is_null()
                && let Some(p) = fresh.take()
            {
                if self.policy.is_active() {
                    p.flags.store(POLICY, Relaxed);
                }
                // ORDERING: Release the P's content to `all_ps`.
                place.store(Box::into_raw(p), Release);
            } // else another thread grew at the same time; this one is dropped, when the lock is free
        }
        // From here on `old..n` come to life, or `n..old` die.
        for p in self.all_ps().skip(old).take(n.saturating_sub(old)) {
            // A P that was asked to retire and has not yet just stays; a dead one goes to the idle list.
            if p.flags.fetch_and(!RETIRE, Relaxed) & RETIRE == 0 {
                // SAFETY: Ps live as long as `self`; the list is part of it.
                synced.idle_ps.push(unsafe { &*std::ptr::from_ref(p) });
                self.counts.p_became_idle();
            }
        }
        for p in self.all_ps().skip(n) {
            match synced.idle_ps.iter().position(|q| q.id == p.id) {
                Some(at) => {
                    gone.push(synced.idle_ps.swap_remove(at));
                    self.counts.p_left_idle();
                    // The P is ours now; a thread that wants it back meanwhile takes the flag away.
                    p.flags.fetch_or(RETIRE, Relaxed);
                }
                None if (p.id as usize) < old => _ = p.flags.fetch_or(RETIRE, Relaxed),
                None => {}
            }
        }
        drop(synced);
        gone.into_iter().for_each(|p| self.retire(p));
        for _ in old..n {
            self.wake_one();
        }
        Ok(old)
    }

    pub(crate) fn set_procs_by_hand(&self, n: usize) -> io::Result<usize> {
        let old = self.set_procs(n)?;
        self.procs_by_hand.store(true, Relaxed);
        Ok(old)
    }

    /// Takes a P out of service that was asked to retire: its owner calls this and has no P afterwards.
    pub(crate) fn retire(&self, p: &'static P) {
        // SAFETY: the caller owns the P until the lock below.
        unsafe { p.core() }.flush();
        let moved = p.empty_runq();
        hooks::abandon_lane(self, p);
        let mut synced = self.synced.lock();
        self.push_global_locked(&mut synced, moved);
        if p.flags.fetch_and(!RETIRE, Relaxed) & RETIRE != 0 {
            drop(synced);
            p.timers.move_to(&self.p(0).timers);
        } else {
            // The P was called back meanwhile.
            self.put_idle_locked(&mut synced, p);
            drop(synced);
        }
        self.wake_one();
    }

    pub(crate) fn put_idle_locked(&self, synced: &mut Synced, p: &'static P) {
        synced.idle_ps.push(p);
        self.counts.p_became_idle();
    }

    /// Returns an idle P for the caller.
    pub(crate) fn take_idle_p(&self) -> Option<&'static P> {
        if self.counts.idle_ps() == 0 {
            return None;
        }
        let mut synced = self.synced.lock();
        let p = self.take_idle_p_locked(&mut synced);
        drop(synced);
        p
    }

    pub(crate) fn take_idle_p_locked(&self, synced: &mut Synced) -> Option<&'static P> {
        let p = synced.idle_ps.pop()?;
        self.counts.p_left_idle();
        self.monitor.notice_activity();
        Some(p)
    }

    // ---- work ----

    /// Returns whether every M sleeps, in the list of idle ones or with its parked goroutine.
    pub(crate) fn all_ms_sleep(&self) -> bool {
        self.ms.live().all(|m| m.asleep.load(Relaxed))
    }

    /// Returns whether any queue holds a goroutine: the look after going idle.
    pub(crate) fn any_work(&self) -> bool {
        self.global_len() != 0 || self.policy.has_work() || self.all_ps().any(|p| !p.runq.is_empty())
    }

    /// Returns the time in ns of the earliest timer of all Ps; `u64::MAX`: there is none.
    pub(crate) fn next_timer_ns(&self) -> u64 {
        self.all_ps().map(|p| p.timers.next_ns()).min().unwrap_or(u64::MAX)
    }

    /// Returns whether there are timers and no M sleeps for them.
    pub(crate) fn timers_unwatched(&self) -> bool {
        // ORDERING: SeqCst: see `timers::announce`.
        self.sleep_until_ns.load(SeqCst) == u64::MAX && self.next_timer_ns() != u64::MAX
    }

    /// Returns when a sleeping M gets up for a timer that is due at `when_ns`: not before the slack is over since the
    /// last time.
    pub(crate) fn gets_up_ns(&self, when_ns: u64) -> u64 {
        when_ns.max(self.last_timer_ns.load(Relaxed).saturating_add(self.config.timer_slack_ns))
    }

    // ---- counting ----

    /// Returns the number of living goroutines. Zero is exact: see the order of the sums.
    pub(crate) fn live(&self) -> u64 {
        let (spawned, finished) = self.spawned_and_finished();
        spawned - finished
    }

    /// Returns the numbers of goroutines that were spawned, and of those that have ended.
    pub(crate) fn spawned_and_finished(&self) -> (u64, u64) {
        // ORDERING: finished first, spawned after (Acquire in `Counter::get`): what was spawned meanwhile is counted,
        // what finished meanwhile is not, so the difference is never too small.
        let finished = self.sum(|p| &p.counters.finished);
        let spawned = self.sum(|p| &p.counters.spawned) + self.external_spawned.load(Acquire);
        (spawned.max(finished), finished)
    }

    pub(crate) fn sum(&self, of: impl Fn(&P) -> &Counter) -> u64 {
        self.all_ps().map(|p| of(p).get()).sum()
    }

    /// Passes each living goroutine to `f`.
    pub(crate) fn for_each_g(&self, mut f: impl FnMut(&super::run::g::G)) {
        pool::for_each(std::ptr::from_ref(self), 0, |g| {
            f(g);
            true
        });
    }

    /// Passes living goroutines to `f`, from chunk `cursor` on, until `f` returns `false`; returns where to go on next
    /// time.
    pub(crate) fn for_some_gs(&self, cursor: usize, f: impl FnMut(&super::run::g::G) -> bool) -> usize {
        pool::for_each(std::ptr::from_ref(self), cursor, f)
    }

    // ---- the end ----

    /// Notes that no more goroutines will come from outside: when the last one has ended, the workers leave.
    pub(crate) fn close(&self) {
        let synced = self.synced.lock();
        self.closing.close();
        self.stop_if_done(synced);
    }

    /// Stops the workers if the runtime is closed and no goroutine lives. Called by an M that has nothing to run.
    /// Unlocks; returns the lock if the workers go on.
    pub(crate) fn stop_if_done<'a>(&'a self, synced: Guard<'a, Synced>) -> Option<Guard<'a, Synced>> {
        if !self.closing.stop_if_done(|| self.live()) {
            return Some(synced);
        }
        drop(synced); // no thread joins them any more
        loop {
            let Some(m) = self.synced.lock().idle_ms.pop_back() else { break };
            m.wake();
        }
        self.monitor.call();
        self.starter.call();
        self.helper.ask(0);
        None
    }

    /// Returns whether the workers leave, or have left.
    pub(crate) fn is_stopping(&self) -> bool {
        self.closing.is_stopping()
    }

    /// Keeps the workers here while no goroutine may live, until [`let_go`](Self::let_go). Returns `false` if they
    /// leave.
    pub(super) fn hold(&self) -> bool {
        let _synced = self.synced.lock();
        // ORDERING: Release as in `Spec::spawn_from_outside`.
        self.closing.admit(|| _ = self.external_spawned.fetch_add(1, Release))
    }

    /// Undoes [`hold`](Self::hold). What the caller spawned meanwhile is counted already.
    pub(super) fn let_go(&self) {
        self.external_spawned.fetch_sub(1, Release); // ORDERING: as in `hold`
        self.stop_if_done(self.synced.lock());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for p in &self.ps {
            let p = p.load(Relaxed);
            if !p.is_null() {
                // SAFETY: made by `set_procs`; no thread of this runtime is left.
                drop(unsafe { Box::from_raw(p) });
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("procs", &self.procs())
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}
