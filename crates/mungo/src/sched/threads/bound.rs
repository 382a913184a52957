//! One mechanism for a goroutine that stays on its thread.
//!
//! It serves `lock_os_thread`, and a goroutine preempted by a signal: the G stays on its M, and the P moves on. An M
//! that later picks such a G from a queue hands its P to the G's M and goes to sleep itself (Go's `startlockedm`). The
//! M of the G sleeps while its goroutine is parked or queued; its [`Ticket`](crate::protocols::ticket::Ticket) says for
//! what.

use super::sleep;
use crate::policies::Event;
use crate::protocols::ticket::{Dequeued, Wait};
use crate::sched::engine::hooks;
use crate::sched::pick::Found;
use crate::sched::pick::{From, Why, enqueue};
use crate::sched::run::current::Running;
use crate::sched::run::g::{G, GPtr, Switch};
use crate::sched::run::m::M;
use crate::sched::run::p::P;
use crate::sched::traced;
use crate::sys::this_cpu;
use mungo_trace::Queue;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

/// Returns whether `m`, a worker with a P, runs the bound goroutine that it dequeued. If not, its P went to the
/// goroutine's own M, unless the entry was void.
#[cold]
pub(crate) fn may_run(m: &'static M, g: GPtr) -> bool {
    let home = g.bound.load(Relaxed);
    if std::ptr::eq(home, m) {
        return true;
    }
    // SAFETY: an M that a goroutine is bound to does not end before it is unbound.
    let home = unsafe { &*home };
    if home.ticket.dequeued() == Dequeued::Void {
        return false;
    }
    m.load_own_tls();
    let p = m.p().expect("a worker with a goroutine has a P");
    hooks::handed_over(home, g);
    m.drop_p();
    m.shared().hand_to_successor(home, p);
    false
}

/// Publishes a bound goroutine that came back to its M, gives the P away, and sleeps until the goroutine's turn.
/// Returns the same goroutine, or `None` when it ended.
#[cold]
pub(crate) fn came_back(m: &'static M, g: GPtr, why: Switch) -> Option<Found> {
    m.load_own_tls();
    let p = m.p().expect("a bound goroutine waits for its P before it switches");
    // The M will sleep for the goroutine; a waker queues it.
    let wait = m.ticket.wait();
    debug_assert_eq!(wait, Wait::Queue);
    match why {
        Switch::End => {
            _ = m.ticket.dequeued();
            if hooks::decides(p) {
                hooks::stopped(m, p, m.shared(), g, Event::Ended);
            }
            end(m, p, g);
            return None;
        }
        Switch::Park => {
            p.counters.parks.add(1);
            traced::parked(m, p, &g, None);
            if hooks::decides(p) {
                hooks::stopped(m, p, m.shared(), g, Event::Parked(g.wait_reason()));
            }
            if !g.state.park() {
                _ = m.ticket.dequeued();
                traced::found(p, &g, Queue::None);
                return Some((g, true));
            }
        }
        _ => {
            let why = match why {
                Switch::Preempted => {
                    p.counters.preemptions.add(1);
                    traced::preempted(m, p, &g, false);
                    p.take_request();
                    Why::Preempted
                }
                _ => {
                    p.counters.yields.add(1);
                    traced::yielded(m, p, &g);
                    Why::Yielded
                }
            };
            enqueue(m.shared(), g, why, From::Bound(p));
        }
    }
    m.shared().waiting_locked.fetch_add(1, Relaxed);
    give_p_away(m, p);
    loop {
        m.sleep(None);
        if sleep::accept(m) {
            m.shared().waiting_locked.fetch_sub(1, Relaxed);
            traced::found_bound(m, &g);
            return Some((g, false));
        }
        // The monitor meant to release a goroutine that slept here before, in the handler. This one waits on; if its
        // entry in the queue was taken for void meanwhile, it needs another one.
        if m.ticket.wait() == Wait::Queue {
            enqueue(m.shared(), g, Why::Yielded, From::Elsewhere);
            m.shared().wake_one();
        }
    }
}

/// Ends a goroutine that is bound, and its thread with it, which the goroutine may have changed in unknown ways.
fn end(m: &'static M, p: &'static P, g: GPtr) {
    m.doomed.set(true);
    g.bound.store(null_mut(), Relaxed);
    g.lock_depth.set(0);
    crate::sched::run::worker::bury(m, p, g);
    give_p_away(m, p);
    // This M will not come to look when it has nothing to run.
    m.shared().stop_if_done(m.shared().synced.lock());
}

fn give_p_away(m: &M, p: &'static P) {
    m.drop_p();
    m.shared().hand_off(p);
}

/// Returns whether an entry of this M's goroutine is in a queue still.
pub(crate) fn owes_ticket(m: &M) -> bool {
    m.ticket.is_owed()
}

/// Passes the P of an interrupted goroutine on, if it still has one, and waits for another. Runs in the preemption
/// handler.
pub(crate) fn give_way(m: &M, g: &G) {
    let p = m.p();
    if p.is_none() {
        traced::blocked(m, g, traced::At::Handler);
    }
    if let Some(p) = p {
        p.counters.preemptions.add(1);
        traced::preempted(m, p, g, true);
        p.take_request();
        m.drop_p();
    }
    queue_and_sleep(m, g, p);
}

/// Queues a goroutine without a P and sleeps with its thread. The caller is in the runtime. Returns `false` if the
/// monitor let it run without a P.
pub(crate) fn wait_for_p(m: &M, g: &G) -> bool {
    traced::blocked(m, g, traced::At::Caller);
    queue_and_sleep(m, g, None)
}

/// Does as [`wait_for_p`], and passes on `p`, the P that it had.
fn queue_and_sleep(m: &M, g: &G, p: Option<&'static P>) -> bool {
    g.bound.store(std::ptr::from_ref(m).cast_mut(), Relaxed);
    m.cpu.store(this_cpu(), Relaxed);
    let entry = (m.ticket.wait() == Wait::Queue).then_some(g.into());
    match (p, entry) {
        (Some(p), entry) => m.shared().pass_on(p, entry),
        (None, Some(g)) => {
            enqueue(m.shared(), g, Why::Preempted, From::Elsewhere);
            m.shared().wake_one();
        }
        (None, None) => m.shared().wake_one(),
    }
    m.sleep(None);
    let has_p = sleep::accept(m);
    traced::goes_on(m, g);
    if !has_p {
        // The entry in the queue still leads to this M: the goroutine stays bound until that is resolved.
        m.stray.store(true, Relaxed);
        return false;
    }
    unbind_unless_locked(g);
    true
}

/// Unbinds a goroutine that no queue holds, unless it is locked to its thread.
pub(crate) fn unbind_unless_locked(g: &G) {
    if g.lock_depth.get() == 0 {
        g.bound.store(null_mut(), Relaxed);
    }
}

/// Binds the calling goroutine to its M, or counts one call more.
pub(crate) fn lock(running: &Running) {
    let g = running.g();
    g.lock_depth.set(g.lock_depth.get().checked_add(1).expect("lock_os_thread was called 2^32 times"));
    g.bound.store(std::ptr::from_ref(running.m()).cast_mut(), Relaxed);
}

/// Undoes one [`lock`].
pub(crate) fn unlock(g: &G) {
    g.lock_depth.set(g.lock_depth.get() - 1);
    unbind_unless_locked(g);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::threads::blocking;
    use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Release};
    use std::time::{Duration, Instant};

    fn one_p<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
        crate::Runtime::builder().procs(1).build().expect("a runtime").run(f)
    }

    /// The monitor let a goroutine run that waited for a P, and now the goroutine needs one: it stays on its thread for
    /// as long as a queue holds its entry, which would else lead to a goroutine that runs elsewhere.
    #[test]
    fn a_goroutine_whose_entry_is_queued_waits_for_it_on_its_thread() {
        one_p(|| {
            let running = Running::enter().expect("a goroutine");
            let (g, m, p) = (running.g(), running.m(), running.p());
            let home = std::ptr::from_ref(m).cast_mut();
            g.bound.store(home, Relaxed);
            assert_eq!(m.ticket.wait(), Wait::Queue);
            enqueue(m.shared(), g.into(), Why::Preempted, From::Elsewhere);
            assert!(m.ticket.release());
            m.stray.store(true, Relaxed);
            m.drop_p();
            // The P goes on as soon as this M waits for its entry.
            let (m_address, p_address) = (home.addr(), std::ptr::from_ref(p).addr());
            let giver = std::thread::spawn(move || {
                // SAFETY: Ms and Ps live as long as the runtime, which `run` keeps until the goroutine ends.
                let (m, p) = unsafe { (&*(m_address as *const M), &*(p_address as *const P)) };
                let end = Instant::now() + Duration::from_secs(20);
                while m.ticket.is_owed() && Instant::now() < end {
                    std::thread::yield_now();
                }
                let waits = !m.ticket.is_owed();
                m.shared().hand_off(p);
                waits
            });
            blocking::reacquire(g, Switch::WithoutP);
            let is_home = std::ptr::eq(g.m.load(Relaxed), home);
            let is_bound = !g.bound.load(Relaxed).is_null();
            drop(running);
            assert!(giver.join().expect("no panic"), "the goroutine did not wait for its entry");
            assert!(is_home, "it moved while it was queued");
            assert!(!is_bound, "it stays bound though no queue holds it");
        });
    }

    /// A locked goroutine is woken without a P after its entry was taken for void: it queues up once more.
    #[test]
    fn a_locked_goroutine_whose_entry_was_void_queues_again() {
        static HOME: AtomicPtr<M> = AtomicPtr::new(null_mut());
        static IS_RELEASED: AtomicBool = AtomicBool::new(false);
        one_p(|| {
            let locked = crate::go(|| {
                let _guard = crate::lock_os_thread();
                let running = Running::enter().expect("a goroutine");
                HOME.store(std::ptr::from_ref(running.m()).cast_mut(), Release);
                drop(running);
                while !IS_RELEASED.load(Acquire) {
                    crate::yield_now();
                }
            });
            // SAFETY: as above.
            let home = || unsafe { HOME.load(Acquire).as_ref() };
            // The monitor took it for a goroutine that sleeps in the preemption handler.
            while !home().is_some_and(|m| m.ticket.release()) {
                crate::yield_now();
            }
            let home = home().expect("it was released");
            while home.ticket.is_owed() {
                crate::yield_now();
            }
            IS_RELEASED.store(true, Release);
            home.wake();
            locked.join().expect("it goes on");
        });
    }
}
