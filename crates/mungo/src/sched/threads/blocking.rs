//! Calls that block the thread: the P moves on, the goroutine stays.
//!
//! Announced ([`blocking`]) or not (a C library, `std::fs`, a contended `std::sync::Mutex`), it is the same: the M is
//! not in the runtime, and the monitor takes its P. No signal is needed, so no call ever sees an EINTR because
//! of it. The protocol is Dekker's, with all the cost on the monitor's side:
//!
//! ```text
//!   M, at each runtime call          monitor (holds M::retake)
//!   g.in_runtime = 1                 m.p = CONTESTED, if it was p
//!   (compiler fence)                 membarrier: every thread of the process passes a full barrier
//!   p = g.m.p                        g.in_runtime == 0 ?  m.p = null, the P is taken
//!   contested? take M::retake,                       :  m.p = p if it is still contested (the M may have
//!   look again                                          given it up or got another one), back off
//! ```
//!
//! Either the monitor sees `in_runtime`, or the M sees that its P is gone. Without `membarrier` only a thread that
//! stands still loses its P ([`stands_still`]); one that computes is interrupted as usual.
//!
//! When the call returns, the goroutine runs on without a P until its next runtime call, which brings it back under
//! one; if it computes instead, the monitor sees its CPU clock move and sends the preemption signal.

use super::bound;
use crate::policies::order::STILL_NS;
use crate::sched::run::current::{self, Running};
use crate::sched::run::g::{G, Switch};
use crate::sched::run::m::{CONTESTED, M};
use crate::sched::run::p::P;
use crate::sched::traced;
use crate::sys::{clock, membarrier};
use std::ptr::null_mut;
use std::sync::atomic::{
    Ordering::{Relaxed, Release, SeqCst},
    fence,
};

/// Runs `f`, which may block the thread, and lets other goroutines have the P meanwhile.
///
/// A program is correct without it: a goroutine that blocks without an announcement loses its P within about a
/// millisecond, an announced one within some twenty microseconds. On a plain thread `f` just runs.
///
/// ```
/// let text = mungo::blocking(|| std::fs::read_to_string("Cargo.toml"));
/// assert!(text.unwrap().contains("mungo"));
/// ```
pub fn blocking<T>(f: impl FnOnce() -> T) -> T {
    let Some(running) = Running::enter() else { return f() };
    let g = running.g();
    // Calls may nest: the outer one is still announced when the inner one returns.
    let outer = g.announced.swap(true, Relaxed);
    if !running.p().runq.is_empty() || running.shared().global_len() != 0 {
        running.shared().monitor.notice_blocking();
    }
    drop(running);
    let result = {
        // A panic in `f` must not leave the announcement behind.
        let _announced = Announced { g, outer };
        f()
    };
    // The goroutine is back under a P before the caller goes on.
    drop(Running::enter());
    result
}

struct Announced {
    g: &'static G,
    outer: bool,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.g.announced.store(self.outer, Relaxed);
    }
}

/// Returns whether the M's thread has had no CPU for a while since the contest began. Then it has passed a full
/// barrier, in the kernel's scheduler, and passes another one before it goes on: as good as a `membarrier`, where the
/// kernel or a filter of system calls does not allow that. The while is long beside the time that a store takes to be
/// seen.
fn stands_still(m: &M) -> bool {
    // ORDERING: SeqCst: the contest comes before the first look at the clock.
    fence(SeqCst);
    let (cpu_ns, end_ns) = (clock::cpu_ns_of(m.tid.load(Relaxed)), clock::now_ns() + STILL_NS);
    while clock::now_ns() < end_ns {
        std::hint::spin_loop();
    }
    cpu_ns.is_some() && clock::cpu_ns_of(m.tid.load(Relaxed)) == cpu_ns
}

/// Takes, on the monitor's behalf, the P from an M that seems to be blocked. Returns `None` if the M was in the runtime
/// after all. `computes`: it does not sleep, but does not hear either.
pub(crate) fn retake<'a>(m: &'a M, p: &'a P, computes: bool) -> Option<&'a P> {
    let _excluded = m.retake.lock();
    let ours = std::ptr::from_ref(p).cast_mut();
    // The M may have given the P up by itself since we looked.
    m.p.compare_exchange(ours, CONTESTED, Relaxed, Relaxed).ok()?;
    let passed = membarrier::everywhere() || stands_still(m);
    let taken = passed && m.is_outside();
    let moment = traced::moment(m);
    // ORDERING: Release: an M that saw the contest waits for our lock and looks again.
    let settled = m.p.compare_exchange(CONTESTED, if taken { null_mut() } else { ours }, Release, Relaxed);
    if !taken || settled.is_err() {
        return None;
    }
    m.stray.store(true, Relaxed);
    traced::retaken(m, p, moment, computes);
    Some(p)
}

/// Does as [`retake`], and finds the goroutine in the runtime whether or not it is.
#[cfg(test)]
pub(crate) fn contest_in_vain(m: &M) {
    let _excluded = m.retake.lock();
    let ours = m.p.load(Relaxed);
    if ours > CONTESTED && m.p.compare_exchange(ours, CONTESTED, Relaxed, Relaxed).is_ok() {
        _ = m.p.compare_exchange(CONTESTED, ours, Release, Relaxed);
    }
}

/// Gets a P for a goroutine that enters the runtime and finds its P gone. Returns with a P, perhaps on another M. `why`
/// tells the queue that the goroutine waits in, if it has to: [`Switch::WithoutP`], or [`Switch::Preempted`] for one
/// that computes.
#[cold]
pub(crate) fn reacquire(g: &'static G, why: Switch) {
    // SAFETY: the M that runs us.
    let m = unsafe { &*g.m.load(Relaxed) };
    if m.p_after_contest().is_some() {
        return; // the monitor backed off
    }
    if g.lock_depth.get() > 0 || bound::owes_ticket(m) || current::panic_is_the_threads(g) {
        // The goroutine stays on this thread. It comes back without a P only from a second release, and then queues
        // again.
        while !bound::wait_for_p(m, g) {}
        return;
    }
    bound::unbind_unless_locked(g);
    match m.shared().take_idle_p() {
        Some(p) => {
            m.take_p(p);
            traced::goes_on(m, g);
        }
        // SAFETY: we are this goroutine, in the runtime.
        None => unsafe { g.suspend(why) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_inside_an_announced_one_leaves_it_announced() {
        crate::Runtime::builder().procs(1).build().expect("a runtime").run(|| {
            let is_announced = || current::g().expect("a goroutine").announced.load(Relaxed);
            blocking(|| {
                blocking(|| assert!(is_announced()));
                assert!(is_announced());
            });
            assert!(!is_announced());
        });
    }
}
