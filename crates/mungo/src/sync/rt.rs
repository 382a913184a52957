//! What the primitives need of the runtime. Models have a double of it (`mungo-models`).

pub(crate) use crate::sched::engine::inherit::{self, Owner};
use crate::sched::run::current::Running;
pub(crate) use crate::sched::run::lock::Lock;
use crate::sys::clock;
use std::sync::atomic::Ordering::Relaxed;

/// Bounds how often and how long a waiter looks at a lock before it parks.
///
/// TUNED: 2 vCPUs of an EPYC, 8 goroutines that do nothing but lock, add one and unlock: more spinning means more
/// traffic on the lock's cache line, and fewer operations.
pub(crate) struct Spin(u32);

const SPIN_ROUNDS: u32 = 4;
const SPIN_PAUSES: u32 = 30;

impl Spin {
    pub(crate) fn new() -> Spin {
        Spin(0)
    }

    /// Waits a little. Returns `false` when it is time to park.
    pub(crate) fn spin(&mut self) -> bool {
        if self.0 >= SPIN_ROUNDS || !may_spin() {
            return false;
        }
        self.0 += 1;
        for _ in 0..SPIN_PAUSES {
            std::hint::spin_loop();
        }
        true
    }
}

/// Returns whether a holder may be at work right now: there is another busy P, and the caller's has nothing to do.
pub(crate) fn may_spin() -> bool {
    let Some(running) = Running::enter() else { return crate::cpus::num_cpus() > 1 };
    let (shared, p) = (running.shared(), running.p());
    let at_rest = shared.counts.idle_ps() + shared.counts.spinning() + 1;
    at_rest < shared.procs() && p.runq.is_empty() && p.flags.load(Relaxed) == 0
}

pub(crate) fn now_ns() -> u64 {
    clock::now_ns()
}

/// Returns the time in ns for which a waiter bears being overtaken. Go's number.
#[inline]
pub(crate) const fn patience_ns() -> u64 {
    1_000_000
}

/// Lets the goroutine run that the caller has just woken: it holds what others wait for.
pub(crate) fn yield_to_woken() {
    // WHY NOT always: with shared thread-locals a goroutine that panics must not switch.
    if crate::sched::run::current::g().is_some() && !std::thread::panicking() {
        crate::goroutine::yield_now();
    }
}
