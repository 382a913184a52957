//! What the primitives need of the runtime, and its double for models.

#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(loom)]
pub(crate) use model::*;

/// How often and how long somebody looks at a lock before it parks.
///
/// TUNED: 2 vCPUs of an EPYC, 8 goroutines that do nothing but lock, add one and unlock: more spinning means more
/// traffic on the lock's cache line, and fewer operations.
pub(crate) struct Spin(u32);

const SPIN_ROUNDS: u32 = if cfg!(loom) { 0 } else { 4 };
const SPIN_PAUSES: u32 = 30;

impl Spin {
    pub(crate) fn new() -> Spin {
        Spin(0)
    }

    /// Waits a little; `false`: it is time to park.
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

#[cfg(not(loom))]
mod real {
    use crate::current::Running;
    pub(crate) use crate::lock::Lock;
    pub(crate) use crate::policy::inherit::{self, Owner};
    pub(crate) use crate::sched::park::Waiter;
    use crate::sys::clock;
    use std::sync::atomic::Ordering::Relaxed;
    pub(crate) use std::sync::atomic::{AtomicI32, AtomicU32};

    /// Whether a holder may be at work right now while we look: there is another busy P, and nothing to do for ours.
    pub(crate) fn may_spin() -> bool {
        let Some(running) = Running::enter() else { return crate::num_cpus() > 1 };
        let (shared, p) = (running.shared(), running.p());
        let at_rest = shared.counts.idle_ps() + shared.counts.spinning() + 1;
        at_rest < shared.procs() && p.runq.is_empty() && p.flags.load(Relaxed) == 0
    }

    /// How urgent one that waits is; a plain thread as a goroutine that did not say.
    pub(crate) fn urgency(waiter: &Waiter) -> u8 {
        match waiter {
            Waiter::G(g) => g.policy.priority().level(),
            Waiter::Thread { .. } | Waiter::Polling(_) => crate::policy::Priority::NORMAL.level(),
        }
    }

    pub(crate) fn now_ns() -> u64 {
        clock::now_ns()
    }

    /// So long one that waits bears being overtaken. Go's number.
    #[inline]
    pub(crate) const fn patience_ns() -> u64 {
        1_000_000
    }

    /// Lets the goroutine run that the caller has just woken: it holds what others wait for.
    pub(crate) fn yield_to_woken() {
        // WHY NOT always: with shared thread-locals a goroutine that panics must not switch.
        if crate::current::g().is_some() && !std::thread::panicking() {
            crate::yield_now();
        }
    }
}

#[cfg(loom)]
mod model {
    use crate::sched::claim::Claim;
    use crate::sched::reason::WaitReason;
    use loom::sync::atomic::AtomicBool;
    pub(crate) use loom::sync::atomic::{AtomicI32, AtomicU32};
    use loom::sync::{Arc, Mutex, MutexGuard, Notify};
    use std::ptr::NonNull;
    use std::sync::atomic::Ordering::{Acquire, Release};

    #[derive(Debug)]
    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Lock<T> {
            Lock(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// Waits as `sched::park::Waiter` does; the models of that one are in `sched/wake.rs`.
    pub(crate) struct Waiter(Arc<(Notify, AtomicBool)>);

    impl Waiter {
        pub(crate) fn current() -> Waiter {
            Waiter(Arc::new((Notify::new(), AtomicBool::new(false))))
        }

        /// In a model time does not pass; `sched/claim.rs` has the model of a deadline.
        pub(crate) fn wait_until(&self, _: WaitReason, _: u64, _: &Claim) -> bool {
            let (notify, woken) = &*self.0;
            while !woken.load(Acquire) {
                notify.wait(); // loom's may end for no reason
            }
            true
        }

        pub(crate) unsafe fn wake(this: NonNull<Waiter>) {
            // SAFETY: alive until it is notified, by the caller.
            let shared = unsafe { this.as_ref() }.0.clone();
            shared.1.store(true, Release);
            shared.0.notify();
        }
    }

    /// The models know no priorities.
    pub(crate) struct Owner;

    impl Owner {
        pub(crate) fn new() -> Owner {
            Owner
        }

        pub(crate) fn note(&self) {}

        pub(crate) fn forget(&self) {}
    }

    pub(crate) mod inherit {
        pub(crate) fn is_on() -> bool {
            false
        }

        pub(crate) fn lend(_: &super::Owner) {}

        pub(crate) fn stop_waiting(_: &super::Owner, _: bool) {}
    }

    pub(crate) fn urgency(_: &Waiter) -> u8 {
        0
    }

    pub(crate) fn may_spin() -> bool {
        false
    }

    pub(crate) fn now_ns() -> u64 {
        1
    }

    thread_local! {
        /// Time does not pass in a model: either nobody starves (`u64::MAX`), or who fails twice does (0).
        pub(crate) static PATIENCE_NS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    pub(crate) fn patience_ns() -> u64 {
        PATIENCE_NS.get()
    }

    pub(crate) fn yield_to_woken() {}
}
