//! Calls that block the thread: the P moves on, the goroutine stays.
//!
//! Announced ([`blocking`]) or not (a C library, `std::fs`, a contended `std::sync::Mutex`), it is the same: the M is
//! not in the runtime, and the monitor takes its P. No signal is needed, so no call ever sees an EINTR because
//! of it. The protocol is Dekker's, with all the cost on the monitor's side:
//!
//! ```text
//!   M, at each runtime call          monitor (holds M::retake)
//!   in_runtime = 1                   m.p = CONTESTED, if it was p
//!   (compiler fence)                 membarrier: every thread of the process passes a full barrier
//!   p = m.p                          in_runtime == 0 ?  m.p = null, the P is taken
//!   contested? take M::retake,                       :  m.p = p if it is still contested (the M may have
//!   look again                                          given it up or got another one), back off
//! ```
//!
//! Either the monitor sees `in_runtime`, or the M sees that its P is gone.
//!
//! When the call returns, the goroutine runs on without a P until its next runtime call, which brings it back under
//! one; if it computes instead, the monitor sees its CPU clock move and sends the preemption signal.

use super::bound;
use super::g::{G, Switch};
use super::m::{CONTESTED, M};
use super::p::P;
use crate::current::{self, Running};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Runs `f`, which may block the thread, and lets other goroutines have the P meanwhile.
///
/// Not needed for correctness: a goroutine that blocks without saying so loses its P within about a millisecond.
/// Announced, it is some twenty microseconds. On a plain thread `f` just runs.
///
/// ```
/// let text = mungo::blocking(|| std::fs::read_to_string("Cargo.toml"));
/// assert!(text.unwrap().contains("mungo"));
/// ```
pub fn blocking<T>(f: impl FnOnce() -> T) -> T {
    let Some(running) = Running::enter() else { return f() };
    let g = running.g();
    // It may nest: the outer one is still announced when the inner one returns.
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
    // Back under a P before the caller goes on.
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

/// Whether this kernel has the barrier that the protocol needs; asked (and registered for) once.
pub(crate) fn can_retake() -> bool {
    use std::sync::OnceLock;
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: no memory involved.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// The monitor takes the P from an M that seems to be blocked. `None`: it was in the runtime after all.
pub(crate) fn retake<'a>(m: &'a M, p: &'a P) -> Option<&'a P> {
    let _excluded = m.retake.lock();
    let ours = std::ptr::from_ref(p).cast_mut();
    // It may have given the P up by itself since we looked.
    m.p.compare_exchange(ours, CONTESTED, Relaxed, Relaxed).ok()?;
    let taken = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) && m.in_runtime.load(Acquire) == 0;
    // ORDERING: Release: an M that saw the contest waits for our lock and looks again.
    let settled = m.p.compare_exchange(CONTESTED, if taken { null_mut() } else { ours }, Release, Relaxed);
    if !taken || settled.is_err() {
        return None;
    }
    m.stray.store(true, Relaxed);
    Some(p)
}

/// A goroutine enters the runtime and finds its P gone. Returns with a P, perhaps on another M.
#[cold]
pub(crate) fn reacquire(g: &'static G) {
    // SAFETY: the M that runs us.
    let m = unsafe { &*g.m.load(Relaxed) };
    if m.p_after_contest().is_some() {
        return; // the monitor backed off
    }
    if g.lock_depth.get() > 0 || bound::owes_ticket(m) || current::panic_is_the_threads(g) {
        // It stays on this thread. It comes back without a P only from a second release, and then queues again.
        while !bound::wait_for_p(m, g) {}
        return;
    }
    bound::unbind_unless_locked(g);
    match m.shared().take_idle_p() {
        Some(p) => m.take_p(p),
        // SAFETY: we are this goroutine, in the runtime.
        None => unsafe { g.suspend(Switch::WithoutP) },
    }
}
