//! The samples of waits: where a goroutine is woken, and where it runs again.

use super::ring::{self, Sample};
use super::{LONG_NS, Subject, keeper};
use crate::reason::WaitReason;
use crate::sched::report::stacks::Registers;
use crate::sched::run::current;
use crate::sched::run::g::G;
use crate::sched::run::p::P;
use crate::sched::shared::Shared;
use crate::sys::clock;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The rate, in ns; 0: waits are not profiled. Written under the keeper's lock.
static RATE_NS: AtomicU64 = AtomicU64::new(0);
/// When waits were profiled first, in ns: what was before does not count. Written under the keeper's lock.
static SINCE_NS: AtomicU64 = AtomicU64::new(0);

/// Returns whether waits are profiled.
#[inline(always)]
pub(crate) fn waits_are_on() -> bool {
    RATE_NS.load(Relaxed) != 0
}

/// Returns the time that a wait must take to be counted for itself.
pub(crate) fn block_rate() -> Duration {
    Duration::from_nanos(RATE_NS.load(Relaxed))
}

/// Sets the rate; zero: off. What was sampled so far is kept.
pub(crate) fn set_block_rate(rate: Duration) -> io::Result<()> {
    let ns = u64::try_from(rate.as_nanos()).unwrap_or(u64::MAX);
    keeper::change(|_| {
        if SINCE_NS.load(Relaxed) == 0 {
            SINCE_NS.store(clock::now_ns(), Relaxed);
        }
        RATE_NS.store(ns, Relaxed);
    })
}

/// Switches the profile off in the child of a fork. Async-signal-safe.
pub(super) fn forget_rate() {
    RATE_NS.store(0, Relaxed);
}

/// Returns when waits were profiled first, in ns; 0: never.
pub(super) fn since_ns() -> u64 {
    SINCE_NS.load(Relaxed)
}

/// Returns whether the goroutine, which is about to be woken, has waited long enough to be counted in any case.
#[inline(always)]
pub(crate) fn is_long(g: &G) -> bool {
    waits_are_on() && g.shared().monitor.recent_ns().saturating_sub(g.since_ns.load(Relaxed)) >= LONG_NS
}

/// Brings the coarse clock up to date, and has the next switch timed if that is due, when an M got a P: the P may have
/// been idle for long.
#[inline]
pub(crate) fn gained(shared: &Shared, p: &P) {
    if waits_are_on() {
        let now_ns = clock::now_ns();
        shared.monitor.note_time(now_ns);
        p.sampler.switches.hurry(now_ns);
    }
}

/// Takes a sample of the wait of a goroutine that was just woken, and is the caller's. `timed`: when it parked, in ns,
/// if that was noted; it then stands for `weight` waits, unless it was long. Returns whether it was sampled, which
/// takes some µs.
pub(crate) fn woken(g: &G, now_ns: u64, timed: Option<u64>, weight: u64) -> bool {
    if !waits_are_on() {
        return false;
    }
    let parked_ns = timed.unwrap_or_else(|| g.since_ns.load(Relaxed));
    let waited_ns = now_ns.saturating_sub(parked_ns.max(since_ns()));
    let weight = if is_long(g) { 1 } else { weight };
    let Some((count, ns)) = keep(waited_ns, weight, now_ns) else { return false };
    let reason = g.wait_reason();
    let subject = Subject::of(reason);
    if let Some(slot) = ring::claim(subject) {
        // SAFETY: it is the caller's, and does not run.
        slot.fill_suspended(unsafe { Sample::of(g, subject, reason, count, ns) }, g);
    }
    if matches!(reason, WaitReason::Mutex | WaitReason::RwLockRead | WaitReason::RwLockWrite) {
        charge_unlocker(reason, count, ns);
    }
    true
}

/// Takes a sample of the time that a goroutine lay in a queue. It is the caller's, and about to run.
pub(crate) fn ran(g: &G, waited_ns: u64, weight: u64) {
    if !waits_are_on() {
        return;
    }
    let Some((count, ns)) = keep(waited_ns, weight, clock::now_ns()) else { return };
    if let Some(slot) = ring::claim(Subject::Runnable) {
        // SAFETY: it is the caller's, and does not run.
        slot.fill_suspended(unsafe { Sample::of(g, Subject::Runnable, WaitReason::None, count, ns) }, g);
    }
}

/// Returns the number of waits, and their time in ns, that a wait stands for which itself stands for `weight`. `None`:
/// it is left out. A wait is kept with a probability of its time by the rate, and counts for as many as are left out.
fn keep(waited_ns: u64, weight: u64, seed: u64) -> Option<(f64, f64)> {
    let (waited, weight, rate) = (waited_ns as f64, weight as f64, RATE_NS.load(Relaxed) as f64);
    let share = (waited * weight / rate).min(1.0);
    (is_kept(share, seed) && share > 0.0).then(|| (weight / share, waited * weight / share))
}

/// Returns `true` in a `share` of all cases.
fn is_kept(share: f64, seed: u64) -> bool {
    // The last bits of the time are random enough once they are spread over all.
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^= x >> 32;
    ((x >> 11) as f64) < share * (1u64 << 53) as f64
}

/// Takes a sample of the caller, which lets a waiter have a lock: it, or the holder before it, is what the waiter
/// waited for. A goroutine that the clock woke, out of the scheduler's loop, has no lock.
#[inline(never)]
fn charge_unlocker(reason: WaitReason, count: f64, ns: f64) {
    let registers = Registers::here();
    let Some(g) = current::g() else { return };
    let Some(slot) = g.slot() else { return };
    let own = slot.stack();
    // SAFETY: the M that runs this goroutine, or ran it last.
    let runs = unsafe { g.m.load(Relaxed).as_ref() }.is_some_and(|m| std::ptr::eq(m.g.load(Relaxed), g));
    if runs && let Some(slot) = ring::claim(Subject::Mutex) {
        // SAFETY: the goroutine's own labels, and its own stack, which is mapped.
        unsafe { slot.fill(Sample::of(g, Subject::Mutex, reason, count, ns), registers, own) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_kept_of_the_shares() {
        for share in [0.01, 0.3, 1.0] {
            let kept = (0..100_000).filter(|seed| is_kept(share, seed * 37)).count() as f64;
            assert!((kept / 100_000.0 - share).abs() < 0.01, "{kept} of {share}");
        }
        assert!(!(0..1000).any(|seed| is_kept(0.0, seed)));
    }
}
