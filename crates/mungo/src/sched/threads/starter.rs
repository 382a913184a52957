//! Threads for Ms: made ahead, by a thread that does nothing else.
//!
//! A thread with a P for which there is no M takes one from the list of sleepers; the starter keeps at least one there.
//! If there is none all the same, the P waits in `Synced::wanted` until the starter has made a thread for it.
//!
//! The monitor does not start threads itself: it must not wait for anything that a goroutine may hold. This thread may
//! wait. A thread needs no memory of the process's allocator (see `sys/thread.rs`), but of the C library's, which is
//! the same thing in programs that replace `malloc`. Then the lock that it waits for may be held by an interrupted
//! goroutine, and the monitor lets those go on (`Watch::look`). That must not take a thread: see `preempt::usual_way`.

use crate::policies::order::RETRY_NS;
use crate::sched::engine::hooks;
use crate::sched::pick::{From, Why, enqueue};
use crate::sched::run::g::GPtr;
use crate::sched::run::m::M;
use crate::sched::run::p::P;
use crate::sched::run::{task, worker};
use crate::sched::shared::Shared;
use crate::sched::sysmon::monitor::RUNTIME_THREADS;
use crate::sched::threads::{preempt, sleep};
use crate::sched::traced;
use crate::stack::overflow::AltStack;
use crate::stack::tls;
use crate::sys::say::say;
use crate::sys::{clock, futex, thread};
use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bytes of the M's own stack: the scheduler's, and that of TLS destructors of the thread.
const STACK: usize = 256 << 10;

/// Returns the bytes of a thread's stack. The C library takes the thread-locals of a thread out of it.
pub(crate) fn stack_size() -> usize {
    STACK + tls::static_size()
}

/// The part of the starter that other threads use.
pub(crate) struct Starter {
    /// Futex; changes with each call.
    calls: AtomicU32,
    /// Time in ns since when it has been starting a thread; 0: it is not. Written by the starter, read by the monitor.
    pub(super) busy_since_ns: AtomicU64,
    /// Time in ns until which it does not try again; in the monitor's coarse time. Written by the starter.
    refused_until_ns: AtomicU64,
    /// Number of threads that could not be started.
    pub(crate) failed: AtomicU64,
}

impl Starter {
    pub(crate) fn new() -> Starter {
        Starter {
            calls: AtomicU32::new(0),
            busy_since_ns: AtomicU64::new(0),
            refused_until_ns: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Calls the starter: a P waits for a thread, or the last sleeping M was called. Safe in a signal handler.
    pub(crate) fn call(&self) {
        // ORDERING: Release what the caller wants seen.
        self.calls.fetch_add(1, Release);
        futex::wake(&self.calls, 1);
    }

    /// Returns whether the system has just refused a thread.
    pub(crate) fn is_refused(&self, shared: &Shared) -> bool {
        let until = self.refused_until_ns.load(Relaxed);
        until != 0 && shared.monitor.coarse_ns() < until
    }

    /// Returns the time in ns since when it has been trying to start a thread that a P may wait for.
    pub(crate) fn busy_since_ns(&self) -> Option<u64> {
        Some(self.busy_since_ns.load(Relaxed)).filter(|since| *since != 0)
    }
}

/// Runs the starter's thread.
pub(crate) fn main(shared: &Arc<Shared>) {
    loop {
        // ORDERING: Acquire pairs with `call`; read before looking, so that no call is missed.
        let calls = shared.starter.calls.load(Acquire);
        if shared.is_stopping() {
            return;
        }
        serve(shared);
        futex::wait(&shared.starter.calls, calls, None);
    }
}

/// Starts the threads that Ps wait for, and one more to have it at hand.
fn serve(shared: &Arc<Shared>) {
    loop {
        let mut synced = shared.synced.lock();
        let wanted = synced.wanted.pop();
        if wanted.is_none() && (!synced.idle_ms.is_empty() || shared.is_stopping()) {
            return;
        }
        drop(synced);
        shared.starter.busy_since_ns.store(clock::now_ns(), Relaxed);
        let started = start_worker(shared, wanted);
        shared.starter.busy_since_ns.store(0, Relaxed);
        if started.is_err() {
            // The runtime goes on with the Ms that exist: the P's goroutines wait for them in the global queue.
            shared.starter.failed.fetch_add(1, Relaxed);
            shared.starter.refused_until_ns.store(clock::now_ns() + RETRY_NS, Relaxed);
            if let Some((p, spinning)) = wanted {
                if shared.policy.is_active() {
                    hooks::abandon_all(shared); // a policy's queues are no place to look into
                }
                shared.strand(shared.synced.lock(), p, spinning);
                continue; // the other Ps that wait, too
            }
            return;
        }
    }
}

/// Starts a worker thread: with a P (and whether it looks for work), or asleep, on the list of sleeping Ms.
pub(crate) fn start_worker(shared: &Arc<Shared>, with: Option<(&'static P, bool)>) -> io::Result<()> {
    let m = shared.make_m()?;
    if let Some((p, spinning)) = with {
        m.set_spinning(spinning);
        m.next_p.store(std::ptr::from_ref(p).cast_mut(), Relaxed);
    } else if !shared.list_unborn(m) {
        shared.bury_m(m);
        return Ok(()); // the runtime stops
    }
    shared.count_thread();
    // The thread has a share of the runtime, and the M.
    let held = Arc::into_raw(shared.clone());
    let data: *mut c_void = std::ptr::from_ref(m).cast_mut().cast();
    let data = data.map_addr(|m| m | if with.is_none() { LISTED } else { 0 });
    thread::start(stack_size(), body, data).inspect_err(|_| {
        // SAFETY: the count that was meant for the thread.
        drop(unsafe { Arc::from_raw(held) });
        if with.is_none() {
            shared.unlist_unborn(m);
        }
        m.next_p.store(null_mut(), Relaxed);
        shared.bury_m(m);
        shared.uncount_thread();
    })
}

/// Marks, beside the address of an M, that it is on the list of sleeping Ms.
const LISTED: usize = 1;

/// Runs a worker thread.
extern "C" fn body(data: *mut c_void) -> *mut c_void {
    // SAFETY: `start_worker` passes an M, with a count of the runtime, which keeps it.
    let (m, shared) = unsafe {
        let m: &'static M = &*data.map_addr(|m| m & !LISTED).cast::<M>();
        (m, Arc::from_raw(std::ptr::from_ref(m.shared())))
    };
    guard(&shared, || {
        thread::set_name(format_args!("mungo-m{}", m.id));
        wake_on_time();
        let alt_stack = AltStack::new();
        preempt::admit(alt_stack.is_ok()); // an error for want of memory, or by a filter of system calls
        m.adopt_thread();
        traced::thread_started(m);
        if data.addr() & LISTED == 0 || sleep::sleep_listed(m) {
            worker::main(m);
        }
        drop(alt_stack);
        m.lane.close();
        m.leave_thread();
        shared.bury_m(m);
    });
    null_mut()
}

/// Runs the body of a counted thread of the runtime. A panic there is a fault of the runtime, which ends the process:
/// without its thread the others would wait for ever.
pub(crate) fn guard(shared: &Arc<Shared>, body: impl FnOnce()) {
    task::adopt_thread(shared);
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        say!("mungo: fatal: a thread of the runtime panicked");
        std::process::abort();
    }
    task::leave_thread(shared);
    shared.uncount_thread();
}

/// Keeps timers of this thread from being late by the usual 50 µs.
pub(crate) fn wake_on_time() {
    // SAFETY: a setting of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

impl Shared {
    pub(crate) fn count_thread(&self) {
        self.threads.fetch_add(1, Relaxed);
        RUNTIME_THREADS.fetch_add(1, Relaxed);
    }

    pub(crate) fn uncount_thread(&self) {
        RUNTIME_THREADS.fetch_sub(1, Relaxed);
        // ORDERING: Release to `Runtime::shutdown`, which waits for zero.
        self.threads.fetch_sub(1, Release);
        futex::wake(&self.threads, u32::MAX);
    }

    /// Returns an M for a new thread.
    fn make_m(&self) -> io::Result<&'static M> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        loop {
            let mut spare = self.ms.prepare()?;
            let mut synced = self.synced.lock();
            let m = match synced.dead_ms.pop_back() {
                Some(m) => {
                    m.revive();
                    Some(m)
                }
                None => self.ms.add(M::new(NEXT_ID.fetch_add(1, Relaxed), self, self.number), &mut spare),
            };
            if let Some(m) = m {
                m.live.store(true, Release); // ORDERING: to threads that look at all Ms
                synced.live_ms += 1;
                drop(synced); // before `spare`
                return Ok(m);
            }
        }
    }

    /// Retires an M whose thread ends, or was never started.
    fn bury_m(&self, m: &'static M) {
        let mut synced = self.synced.lock();
        m.live.store(false, Relaxed);
        synced.live_ms -= 1;
        synced.dead_ms.push_back(m);
    }

    /// Puts an M that has no thread yet on the list of sleeping Ms: its thread will find out if it was called
    /// meanwhile. Returns `false` if the runtime stops.
    fn list_unborn(&self, m: &'static M) -> bool {
        let mut synced = self.synced.lock();
        let listed = !self.is_stopping();
        if listed {
            synced.idle_ms.push_back(m);
        }
        listed
    }

    /// Takes an M off the list that gets no thread after all. If it was called meanwhile, its P or its goroutine goes
    /// elsewhere.
    fn unlist_unborn(&self, m: &'static M) {
        if self.synced.lock().idle_ms.remove(m) {
            return;
        }
        m.sleep(None); // the caller is about to wake it
        if let Some(g) = GPtr::new(m.next_g.swap(null_mut(), Acquire)) {
            // The monitor meant it to run this goroutine without a P.
            m.stray.store(false, Relaxed);
            enqueue(self, g, Why::Preempted, From::Elsewhere);
            self.wake_one();
        }
        let p = m.next_p.swap(null_mut(), Acquire);
        // SAFETY: Ps live as long as the runtime.
        if let Some(p) = unsafe { p.as_ref() } {
            self.strand(self.synced.lock(), p, m.is_spinning());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sched::run::current::Running;

    /// The monitor gives a goroutine to an M whose thread is refused then: it goes on elsewhere.
    #[test]
    fn a_goroutine_is_not_lost_with_a_thread_that_does_not_come() {
        crate::Runtime::builder().procs(1).build().expect("a runtime").run(|| {
            let running = Running::enter().expect("a goroutine"); // no call makes room from here on
            let queued = crate::go(|| 7);
            let shared = running.shared();
            let m = shared.make_m().expect("an M");
            assert!(shared.list_unborn(m));
            assert!(shared.synced.lock().idle_ms.remove(m));
            // It has not begun, and stands for one that was interrupted.
            let (g, _) = running.p().runq.pop().expect("it is queued");
            m.stray.store(true, Relaxed);
            m.next_g.store(g, Relaxed);
            m.wake();
            shared.unlist_unborn(m);
            assert!(m.next_g.load(Relaxed).is_null());
            shared.bury_m(m);
            drop(running);
            assert_eq!(queued.join().expect("no panic"), 7);
        });
    }
}
