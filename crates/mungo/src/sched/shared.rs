//! The state that all Ms of a runtime share.
//!
//! Lock order: `Shared::synced` is taken last and held for a few instructions; nothing is woken, started or
//! freed under it. Timer heaps and channels are taken before it, never after.

use super::g::pool;
use super::global::GList;
use super::idle::IdleCounts;
use super::m::M;
use super::monitor::Monitor;
use super::p::{Counter, P, POLICY, RETIRE};
use crate::builder::Config;
use crate::lock::Lock;
use crate::policy::{self, hooks};
use std::io;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// More Ps than this nobody needs.
pub(crate) const MAX_PROCS: usize = 1024;

/// Everything that the workers, the monitor and the handles of one runtime share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// All Ps ever made, by id; filled from the front, freed with this.
    ps: Box<[AtomicPtr<P>]>,
    /// `procs()`: Ps with a smaller id may run.
    procs: AtomicU32,
    pub(crate) counts: IdleCounts,
    /// Length of the global queue, and how many of these are urgent; written under the lock.
    pub(super) global_len: AtomicUsize,
    pub(super) urgent_len: AtomicUsize,
    pub(crate) synced: Lock<Synced>,
    pub(crate) monitor: Monitor,
    pub(crate) policy: policy::Slot,
    pub(crate) next_id: AtomicU64,
    /// Spawns by plain threads.
    pub(crate) external_spawned: AtomicU64,
    /// Until when the M that keeps the time sleeps; `u64::MAX`: nobody does.
    pub(crate) sleep_until_ns: AtomicU64,
    /// `set_procs` was called: the quota does not change it.
    pub(crate) procs_by_hand: AtomicBool,
    /// No handle is left: stop when the last goroutine ends.
    pub(crate) closing: AtomicBool,
    /// The workers leave.
    pub(crate) stopping: AtomicBool,
    /// Threads (workers and the monitor) that have not ended.
    pub(crate) threads: AtomicU32,
    /// Threads that sleep because the goroutine that is locked to them waits.
    pub(crate) waiting_locked: AtomicU32,
}

/// Under the lock.
pub(crate) struct Synced {
    /// The part of the global queue that comes first: woken goroutines that every P is too busy for.
    pub(crate) urgent: GList,
    pub(crate) global: GList,
    pub(crate) idle_ps: Vec<&'static P>,
    /// Sleeping Ms; the last one in is the first one out.
    pub(crate) idle_ms: Vec<&'static M>,
    /// The Ms whose threads live.
    pub(crate) ms: Vec<&'static M>,
    /// All Ms ever made; freed with the runtime, so that a stale pointer to one does no harm.
    #[allow(clippy::vec_box)] // they must not move
    pub(crate) all_ms: Vec<Box<M>>,
    pub(crate) dead_ms: Vec<&'static M>,
    /// Ps that wait for a thread to be started, and whether it shall spin.
    pub(crate) wanted: Vec<(&'static P, bool)>,
}

impl Shared {
    pub(crate) fn new(config: Config) -> io::Result<Arc<Shared>> {
        let shared = Arc::new(Shared {
            ps: (0..MAX_PROCS).map(|_| AtomicPtr::new(null_mut())).collect(),
            procs: AtomicU32::new(0),
            counts: IdleCounts::new(),
            global_len: AtomicUsize::new(0),
            urgent_len: AtomicUsize::new(0),
            synced: Lock::new(Synced {
                urgent: GList::new(),
                global: GList::new(),
                idle_ps: Vec::with_capacity(MAX_PROCS),
                // Room for most programs, so that they do not grow under the lock.
                idle_ms: Vec::with_capacity(MAX_PROCS),
                ms: Vec::with_capacity(MAX_PROCS),
                all_ms: Vec::with_capacity(MAX_PROCS),
                dead_ms: Vec::with_capacity(MAX_PROCS),
                wanted: Vec::with_capacity(MAX_PROCS),
            }),
            monitor: Monitor::new(),
            policy: policy::Slot::new(),
            next_id: AtomicU64::new(1),
            external_spawned: AtomicU64::new(0),
            sleep_until_ns: AtomicU64::new(u64::MAX),
            procs_by_hand: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            waiting_locked: AtomicU32::new(0),
            config,
        });
        shared.set_procs(shared.config.procs)?;
        Ok(shared)
    }

    /// A count of ownership of its own.
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

    /// All Ps that were ever made, dead ones too.
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
        let mut fresh: Vec<Box<P>> = (made..n)
            .map(|id| P::new(id as u32, self.config.stack_class).map(Box::new))
            .collect::<Result<_, _>>()?;
        let mut gone = Vec::new();
        let mut synced = self.synced.lock();
        let old = self.procs.swap(n as u32, Relaxed) as usize;
        for p in fresh.drain(..) {
            let place = &self.ps[p.id as usize];
            if place.load(Relaxed).is_null() {
                if self.policy.is_active() {
                    p.flags.store(POLICY, Relaxed);
                }
                // ORDERING: Release the P's content to `all_ps`.
                place.store(Box::into_raw(p), Release);
            } // else somebody else grew at the same time; this one is dropped
        }
        // From here `old..n` come to life, or `n..old` die.
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
                    let p = synced.idle_ps.swap_remove(at);
                    self.counts.p_left_idle();
                    // A P may become idle after it was asked to retire: now it has.
                    p.flags.fetch_and(!RETIRE, Relaxed);
                    // SAFETY: an idle P belongs to the lock. Not later: somebody else may bring the P back to life.
                    unsafe { p.core() }.flush();
                    gone.push(p);
                }
                None if (p.id as usize) < old => _ = p.flags.fetch_or(RETIRE, Relaxed),
                None => {}
            }
        }
        drop(synced);
        for p in gone {
            hooks::abandon_lane(self, p);
            p.timers.move_to(&self.p(0).timers);
        }
        for _ in old..n {
            self.wake_one();
        }
        Ok(old)
    }

    /// A P that was asked to retire does so: its owner calls this and has no P afterwards.
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
            // It was called back meanwhile.
            self.put_idle_locked(&mut synced, p);
            drop(synced);
        }
        self.wake_one();
    }

    pub(crate) fn put_idle_locked(&self, synced: &mut Synced, p: &'static P) {
        synced.idle_ps.push(p);
        self.counts.p_became_idle();
    }

    /// An idle P for the caller.
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

    /// Every M sleeps, in the list of idle ones or with its parked goroutine.
    pub(crate) fn all_ms_sleep(&self) -> bool {
        self.synced.lock().ms.iter().all(|m| m.asleep.load(Relaxed))
    }

    /// Whether any queue holds a goroutine: the look after going idle.
    pub(crate) fn any_work(&self) -> bool {
        self.global_len() != 0 || self.policy.has_work() || self.all_ps().any(|p| !p.runq.is_empty())
    }

    /// The earliest timer of all Ps.
    pub(crate) fn next_timer_ns(&self) -> u64 {
        self.all_ps().map(|p| p.timers.next_ns()).min().unwrap_or(u64::MAX)
    }

    /// There are timers and no M sleeps for them.
    pub(crate) fn timers_unwatched(&self) -> bool {
        // ORDERING: SeqCst: see `time::add`.
        self.sleep_until_ns.load(SeqCst) == u64::MAX && self.next_timer_ns() != u64::MAX
    }

    // ---- counting ----

    /// Living goroutines. Zero is exact: see the order of the sums.
    pub(crate) fn live(&self) -> u64 {
        // ORDERING: finished first, spawned after (Acquire in `Counter::get`): what was spawned meanwhile is counted,
        // what finished meanwhile is not, so the difference is never too small.
        let finished: u64 = self.all_ps().map(|p| p.counters.finished.get()).sum();
        let spawned: u64 = self.all_ps().map(|p| p.counters.spawned.get()).sum();
        (spawned + self.external_spawned.load(Acquire)).saturating_sub(finished)
    }

    pub(crate) fn sum(&self, of: impl Fn(&P) -> &Counter) -> u64 {
        self.all_ps().map(|p| of(p).get()).sum()
    }

    /// Shows each living goroutine.
    pub(crate) fn for_each_g(&self, mut f: impl FnMut(&super::g::G)) {
        pool::for_each(std::ptr::from_ref(self), 0, |g| {
            f(g);
            true
        });
    }

    /// Shows living goroutines from `cursor` on, until `f` says stop; returns where it stopped.
    pub(crate) fn for_some_gs(&self, cursor: usize, f: impl FnMut(&super::g::G) -> bool) -> usize {
        pool::for_each(std::ptr::from_ref(self), cursor, f)
    }

    // ---- the end ----

    /// No more goroutines will come from outside; the last one to end stops the workers.
    pub(crate) fn close(&self) {
        // ORDERING: SeqCst against `goroutine_ended`: either it sees the flag or we see its count.
        self.closing.store(true, SeqCst);
        self.stop_if_done();
    }

    /// After a goroutine's end was counted.
    #[inline]
    pub(crate) fn goroutine_ended(&self) {
        if self.closing.load(Relaxed) {
            self.stop_if_done();
        }
    }

    #[cold]
    pub(crate) fn stop_if_done(&self) {
        // ORDERING: see `close`.
        std::sync::atomic::fence(SeqCst);
        if self.live() == 0 && !self.stopping.swap(true, SeqCst) {
            let sleepers: Vec<_> = std::mem::take(&mut self.synced.lock().idle_ms);
            sleepers.into_iter().for_each(M::wake);
            self.monitor.call();
        }
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
