//! The cap of threads, and what happens when the system refuses one: nothing hangs.
//!
//! `max_threads` bounds the threads on which goroutines *begin*. A thread is in use unless its M sleeps on the list of
//! idle ones, or its locked goroutine waits. Where `max_threads` threads are in use:
//! 1. A goroutine that has begun is given a thread all the same. It may be the one that the blocked ones wait for.
//! 2. A goroutine that has not begun is held back (`Synced::held`). An M that has nothing else to do takes it, if the
//!    cap allows that M; the oldest and the one that came last in turn.
//! 3. If none that is held back has begun for [`STALL_NS`], the youngest begins beyond the cap, and for a while the
//!    others begin youngest first too. The youngest are the children of those that have begun, and more likely than
//!    others to be what a blocked goroutine waits for: the handlers of a server, not its next clients. So the program
//!    goes on also where blocked goroutines wait for one that has not begun. The pause grows with each
//!    [`STALL_DOUBLES`] of these, so goroutines that just wait for something slow do not get many more threads.
//!    WHY NOT when no goroutine is switched to: one that wakes up often, a ticker, would hold them back for good.
//!
//! Why 1 holds: a runnable goroutine that has begun is in the global queue, or in the ring of a P that some M owns. In
//! the ring, its turn comes, or the M blocks and the P is taken, which empties the ring into the global queue if no
//! idle M takes the P over (`Shared::start_m`). A thread that puts it into the global queue wakes an M if a P is idle;
//! else each P comes to the end of a slice. `start_m` refuses a thread only if the global queue is empty once all that
//! have not begun are out of it, and an M watches the timers and the descriptors.
//!
//! If the kernel refuses threads, the same holds for those that there are, and it is asked again every
//! `RETRY_NS` (`policies/order.rs`). With a policy in force, which has queues of its own, all goroutines count as
//! begun.

use crate::policies::order::{STALL_DOUBLES, STALL_NS, YOUNGEST_OF};
use crate::sched::netpoll;
use crate::sched::pick::global::GList;
use crate::sched::run::g::GPtr;
use crate::sched::run::p::P;
use crate::sched::shared::{Shared, Synced};
use crate::sched::sysmon::helper;
use crate::sys::say::say;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// Goroutines that have not begun, and wait until there is a thread for them.
pub(crate) struct Held {
    /// The goroutines that came last; the youngest is the first.
    recent: GList,
    /// The other goroutines; the oldest is the first.
    old: GList,
    turn_of_oldest: bool,
    /// How many of the next goroutines begin youngest first.
    youngest_first: u32,
    /// Goroutines that were held back and have been let begin.
    begun: u64,
}

impl Held {
    pub(crate) const fn new() -> Held {
        Held { recent: GList::new(), old: GList::new(), turn_of_oldest: false, youngest_first: 0, begun: 0 }
    }

    fn len(&self) -> usize {
        self.recent.len() + self.old.len()
    }

    fn push(&mut self, g: GPtr) {
        self.recent.push_front(g);
    }

    /// Returns the goroutine that was spawned last, by its id. They came ring by ring, so it need not be the first.
    fn youngest(&mut self) -> Option<GPtr> {
        let recent = if self.recent.len() == 0 { &mut self.old } else { &mut self.recent };
        let (mut looked_at, mut youngest) = (GList::new(), recent.pop()?);
        while looked_at.len() < YOUNGEST_OF
            && let Some(mut g) = recent.pop()
        {
            if g.id.load(Relaxed) > youngest.id.load(Relaxed) {
                std::mem::swap(&mut g, &mut youngest);
            }
            looked_at.push(g);
        }
        looked_at.append(std::mem::replace(recent, GList::new()));
        *recent = looked_at;
        Some(youngest)
    }

    /// Returns the goroutine that came last; the oldest if none has come since [`oldest`](Self::oldest) emptied
    /// `recent`.
    fn last(&mut self) -> Option<GPtr> {
        self.recent.pop().or_else(|| self.old.pop())
    }

    fn oldest(&mut self) -> Option<GPtr> {
        if self.old.len() == 0 {
            while let Some(g) = self.recent.pop() {
                self.old.push_front(g);
            }
        }
        self.old.pop()
    }

    /// Returns the oldest and the last in turn, or the youngest for a while.
    fn next(&mut self) -> Option<GPtr> {
        self.begun += 1;
        if self.youngest_first != 0 {
            self.youngest_first -= 1;
            return self.youngest();
        }
        self.turn_of_oldest = !self.turn_of_oldest;
        if self.turn_of_oldest { self.oldest() } else { self.last() }
    }
}

/// The monitor's memory of the goroutines that are held back.
#[derive(Default)]
pub(crate) struct Stall {
    /// [`Held::begun`] at the last look.
    begun: u64,
    /// When a goroutine that was held back last began, in ns.
    since_ns: u64,
    /// Goroutines that began beyond the cap since there was last room below it.
    granted: u32,
}

impl Shared {
    /// Returns the number of threads that have a goroutine, or a P, or are on their way to one.
    fn in_use(&self, synced: &Synced) -> usize {
        let free = synced.idle_ms.len() + self.waiting_locked.load(Relaxed) as usize;
        (synced.live_ms + synced.wanted.len()).saturating_sub(free)
    }

    /// Returns whether the cap, and the system as far as is known, allow one more thread to be used.
    pub(crate) fn has_room(&self, synced: &Synced) -> bool {
        self.in_use(synced) < self.config.max_threads as usize && !self.starter.is_refused(self)
    }

    /// Holds back, where there is no room, the goroutines that have not begun: those of the global queue and of the
    /// ring of `p`, which the caller owns.
    pub(crate) fn hold_back(&self, synced: &mut Synced, p: &P) {
        let mut all = std::mem::replace(&mut synced.global, GList::new());
        all.append(p.empty_runq());
        while let Some(g) = all.pop() {
            match g.started() {
                true => synced.global.push(g),
                false => synced.held.push(g),
            }
        }
        self.publish_held(synced);
        if self.held_len.load(Relaxed) != 0 {
            self.helper.ask(helper::CAP);
        }
    }

    fn publish_held(&self, synced: &Synced) {
        self.held_len.store(synced.held.len(), Relaxed);
        self.publish_global(synced);
    }

    /// Returns, after [`hold_back`](Self::hold_back), whether a goroutine that has begun can go on, or a timer or the
    /// network is without an M.
    pub(crate) fn must_go_on(&self, synced: &Synced) -> bool {
        synced.global.len() + synced.computing.len() != 0 || self.timers_unwatched() || netpoll::is_unwatched()
    }

    /// Returns a goroutine that was held back, if the cap allows the calling M, which has a P and nothing else to do.
    pub(crate) fn take_held_locked(&self, synced: &mut Synced) -> Option<GPtr> {
        if synced.held.len() == 0 || self.in_use(synced) > self.config.max_threads as usize {
            return None;
        }
        let g = synced.held.next();
        self.publish_held(synced);
        g
    }

    /// Returns whether an M may begin a goroutine that it stole, or found in its ring. `false`: the M is beyond the
    /// cap, and the goroutine was held back. (A goroutine that may begin beyond the cap comes with a permit.)
    #[cold]
    pub(crate) fn may_begin(&self, g: GPtr) -> bool {
        let mut synced = self.synced.lock();
        if self.in_use(&synced) <= self.config.max_threads as usize || self.policy.is_active() {
            return true;
        }
        if synced.permits != 0 {
            synced.permits -= 1;
            return true;
        }
        synced.held.push(g);
        self.publish_held(&synced);
        false
    }

    /// Begins, for the monitor, goroutines that were held back: as soon as there is room, or one when none has
    /// begun for long.
    pub(crate) fn serve_held(&self, stall: &mut Stall, now: u64) {
        if self.held_len.load(Relaxed) == 0 {
            stall.since_ns = now;
            if self.near_cap.load(Relaxed) && self.has_room(&self.synced.lock()) {
                self.near_cap.store(false, Relaxed);
            }
            return;
        }
        let mut synced = self.synced.lock();
        let begun = synced.held.begun;
        if std::mem::replace(&mut stall.begun, begun) != begun {
            stall.since_ns = now;
        }
        let (in_use, most) = (self.in_use(&synced), self.config.max_threads as usize);
        if self.has_room(&synced) {
            stall.granted = 0;
            for _ in in_use..most {
                let Some(g) = synced.held.next() else { break };
                synced.global.push(g);
            }
        } else {
            let doublings = (stall.granted / STALL_DOUBLES).min(10);
            if now.saturating_sub(stall.since_ns) < STALL_NS << doublings || self.starter.is_refused(self) {
                return;
            }
            stall.since_ns = now;
            self.helper.ask(helper::CAP);
            if let Some(g) = synced.held.youngest() {
                // This queue, because goroutines that have not begun are held back from the other one.
                synced.computing.push_front(g);
                synced.permits += 1;
                synced.held.youngest_first = self.config.max_threads;
                stall.granted += 1;
            }
        }
        self.publish_held(&synced);
        drop(synced);
        self.wake_one();
    }

    /// Says once, on the helper, that the cap was reached, and where the goroutines that reached it were spawned.
    pub(crate) fn report_cap(&self) {
        if self.cap_reported.load(Relaxed) {
            return;
        }
        let (mut places, mut n) = (HashMap::new(), 0);
        for m in self.ms.live().filter(|m| m.p.load(Relaxed).is_null()) {
            // SAFETY: Gs are never freed.
            if let Some(g) = unsafe { m.g.load(Relaxed).as_ref() } {
                n += 1;
                *places.entry(g.place().to_string()).or_insert(0) += 1;
            }
        }
        let cap = self.config.max_threads;
        // The cap was reached a moment ago, not counting threads with a P. If it no longer is, there is nothing to
        // report.
        let Some((place, most)) = places.into_iter().max_by_key(|(_, n)| *n) else { return };
        if n + self.procs() < cap {
            return;
        }
        self.cap_reported.store(true, Relaxed);
        say!(
            "mungo: {n} goroutines block their threads, most of them ({most}) spawned at {place}; \
             max_threads is {cap}, so others wait to begin. See RuntimeBuilder::max_threads"
        );
    }
}

#[cfg(all(test, not(miri)))]
pub(crate) mod tests {
    use super::*;
    use crate::reason::WaitReason;
    use crate::sched::pick;
    use crate::sched::run::current::{self, Running};
    use crate::sched::run::park;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// The goroutines that wait so far, and a handle of each.
    pub(crate) type Waiting = (Arc<Mutex<Vec<GPtr>>>, Vec<crate::JoinHandle<()>>);

    /// Spawns goroutines that wait until they are woken.
    pub(crate) fn spawn_waiting(n: usize) -> Waiting {
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let all = (0..n).map(|_| {
            let waiting = waiting.clone();
            crate::go(move || {
                waiting.lock().expect("no panic").push(GPtr::from(current::g().expect("a goroutine")));
                park::park_running(Running::enter().expect("a goroutine"), WaitReason::Park.on(0));
            })
        });
        let all = all.collect();
        (waiting, all)
    }

    /// Runs `f` in the runtime, on a goroutine that has the only thread that there may be, with six other goroutines
    /// that it owns meanwhile, the oldest first.
    pub(crate) fn with_goroutines(f: impl FnOnce(&Shared, Vec<GPtr>) + Send + 'static) {
        let builder = crate::Runtime::builder().procs(1).max_threads(1).time_slice(Duration::from_secs(3600));
        let runtime = builder.build().expect("a runtime");
        runtime.run(move || {
            let (waiting, all) = spawn_waiting(6);
            loop {
                crate::yield_now();
                let running = Running::enter().expect("a goroutine");
                let shared = running.shared();
                if shared.any_work() || waiting.lock().expect("no panic").len() != all.len() {
                    continue;
                }
                let mut gs = std::mem::take(&mut *waiting.lock().expect("no panic"));
                gs.sort_by_key(|g| g.id.load(Relaxed));
                gs.iter().for_each(|g| _ = g.notify()); // from now on they are this goroutine's
                f(shared, gs.clone());
                gs.into_iter().for_each(|g| pick::enqueue_given_back(shared, g));
                break;
            }
            all.into_iter().for_each(|g| g.join().expect("no panic"));
        });
    }

    #[test]
    fn the_oldest_and_the_last_to_come_begin_in_turn() {
        with_goroutines(|_, gs| {
            let mut held = Held::new();
            let place = |g: Option<GPtr>| gs.iter().position(|other| Some(*other) == g);
            gs[..4].iter().for_each(|g| held.push(*g));
            assert_eq!(place(held.next()), Some(0));
            gs[4..].iter().for_each(|g| held.push(*g));
            assert_eq!([(); 3].map(|()| place(held.next())), [Some(5), Some(1), Some(4)]);
            held.youngest_first = 1;
            assert_eq!([(); 3].map(|()| place(held.next())), [Some(3), Some(2), None]);
        });
    }
}
