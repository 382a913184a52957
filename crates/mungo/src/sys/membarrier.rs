//! A fence in two halves: one costs nothing, the other makes every thread of the process pass a full barrier.
//!
//! ```text
//!   light side, runs often           heavy side, runs rarely
//!   write A                          write B
//!   light()                          heavy()
//!   read B                           read A
//! ```
//!
//! At least one of the two reads sees the other side's write, as with a SeqCst fence on both sides. [`light`] only
//! keeps the compiler from moving the read up; the kernel makes the processors obey, in [`heavy`].

use super::{Line, clock, futex};
use std::sync::atomic::{
    AtomicU8, AtomicU32,
    Ordering::{Relaxed, SeqCst},
    compiler_fence, fence,
};

/// The kernel was not asked yet. Both halves are fences, as with [`ABSENT`].
const UNKNOWN: u8 = 0;
/// The kernel makes all threads pass a barrier: `light` is free.
const PRESENT: u8 = 1;
/// It does not.
const ABSENT: u8 = 2;
/// It could when it was asked, and refuses since (a filter of system calls). A thread may be on its way from a `light`
/// that was free.
const LOST: u8 = 3;

/// What is known of the kernel. On a line of its own, since `light` reads it each time.
static KNOWN: Line<AtomicU8> = Line(AtomicU8::new(UNKNOWN));

/// Time in ns after which a thread has passed from a `light` that was free to the read behind it, or has lost its CPU,
/// which is a barrier as well. TUNED: guess; the way takes a few ns.
const PASSED_NS: u64 = 1_000_000;

/// Returns whether this kernel has the call; asked, and registered for, once.
#[inline]
pub(crate) fn is_present() -> bool {
    match KNOWN.load(Relaxed) {
        UNKNOWN => ask(),
        known => known == PRESENT,
    }
}

#[cold]
fn ask() -> bool {
    let is_present = call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    let answer = if is_present { PRESENT } else { ABSENT };
    // A thread that asked at the same time has the same answer, but for a filter of system calls that came in between.
    let before = KNOWN.compare_exchange(UNKNOWN, answer, Relaxed, Relaxed);
    before.map_or_else(|known| known == PRESENT, |_| is_present)
}

/// Makes every thread of the process pass a full barrier, the caller included. Returns `false` if the kernel does not;
/// from then on [`is_present`] says so, and [`light`] is a fence.
pub(crate) fn everywhere() -> bool {
    if !is_present() {
        return false;
    }
    let passed = call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    if !passed {
        KNOWN.store(LOST, Relaxed);
    }
    passed
}

/// The half that runs often.
#[inline(always)]
pub(crate) fn light() {
    // ORDERING: see the module; the partner is `heavy`.
    match KNOWN.load(Relaxed) {
        PRESENT => compiler_fence(SeqCst),
        _ => fence(SeqCst),
    }
}

/// The half that runs rarely: some microseconds, and an interruption of each CPU that runs a thread of the process.
pub(crate) fn heavy() {
    if everywhere() {
        return;
    }
    // ORDERING: `light` is a fence too by now.
    fence(SeqCst);
    if KNOWN.load(Relaxed) == LOST {
        let end_ns = clock::now_ns() + PASSED_NS;
        while futex::wait(&AtomicU32::new(0), 0, Some(end_ns)) {}
        // ORDERING: as above.
        fence(SeqCst);
    }
}

fn call(command: libc::c_int) -> bool {
    // SAFETY: no memory involved.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_stays_the_same() {
        let first = is_present();
        assert_eq!((is_present(), everywhere()), (first, first));
        heavy();
        light();
    }
}
