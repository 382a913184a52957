//! `select` and `pselect`, by way of `poll`.

use crate::counters;
use crate::shims::futex::after_ns;
use crate::shims::plain::plain;
use crate::shims::poll::{until_any, wait_for_all};
use crate::shims::raw::{self, EAGAIN, c, sys};
use crate::shims::time::to_ns;
use crate::shims::wait::block;
use mungo::interpose::{Place, now_ns, place};
use std::ffi::c_int;

const SECOND_NS: u64 = 1_000_000_000;
/// Number of descriptors that a set has room for.
const ROOM: usize = 1024;
const WORDS: usize = ROOM / 64;

/// The three sets of a call, as the caller passed them.
struct Sets {
    at: [*mut libc::fd_set; 3],
    /// Number of words that the kernel looks at.
    words: usize,
    asked: [[u64; WORDS]; 3],
}

impl Sets {
    /// Returns the sets of the first `n` descriptors. `None`: the call is one for the kernel, to refuse.
    fn read(n: c_int, at: [*mut libc::fd_set; 3]) -> Option<Sets> {
        let words = usize::try_from(n).ok().filter(|n| *n <= ROOM)?.div_ceil(64);
        let mut asked = [[0; WORDS]; 3];
        for (set, at) in asked.iter_mut().zip(at).filter(|(_, at)| !at.is_null()) {
            raw::copy_to(&mut set[..words], at.cast())?;
        }
        // Bits from `n` on mean nothing.
        if let Some(rest) = (n as usize).checked_rem(64).filter(|rest| *rest != 0) {
            asked.iter_mut().for_each(|set| set[words - 1] &= (1 << rest) - 1);
        }
        Some(Sets { at, words, asked })
    }

    /// Writes them where they were: a call leaves what is ready.
    fn restore(&self) {
        for (set, at) in self.asked.iter().zip(self.at).filter(|(_, at)| !at.is_null()) {
            // SAFETY: the caller's, and as large as it was when it was read.
            unsafe { std::ptr::copy_nonoverlapping(set.as_ptr(), at.cast::<u64>(), self.words) };
        }
    }

    /// Returns what `poll` would be asked.
    fn to_poll(&self) -> Vec<libc::pollfd> {
        const EVENTS: [libc::c_short; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
        let events = |fd: usize| {
            let is_in = |set: &[u64; WORDS]| set[fd / 64] >> (fd % 64) & 1 != 0;
            self.asked.iter().zip(EVENTS).filter(|(set, _)| is_in(set)).fold(0, |all, (_, event)| all | event)
        };
        (0..64 * self.words)
            .filter_map(|fd| match events(fd) {
                0 => None,
                events => Some(libc::pollfd { fd: fd as c_int, events, revents: 0 }),
            })
            .collect()
    }
}

/// Waits for descriptors, and writes back how much of the time is left.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(target_arch = "aarch64"), unsafe(no_mangle))]
pub(super) unsafe extern "C-unwind" fn select(
    n: c_int,
    reads: *mut libc::fd_set,
    writes: *mut libc::fd_set,
    others: *mut libc::fd_set,
    time: *mut libc::timeval,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(select(
            n: c_int, reads: *mut libc::fd_set, writes: *mut libc::fd_set, others: *mut
            libc::fd_set, time: *mut libc::timeval
        ) -> c_int)
    };
    let at = [reads, writes, others];
    // SAFETY: by the caller.
    let kernel = || unsafe { raw::select(n, at, time) };
    if !matches!(place(), Place::Goroutine(_)) {
        return c(kernel()) as c_int;
    }
    let until_ns = match time.is_null() {
        true => Some(u64::MAX),
        false => raw::copy(time.cast_const()).and_then(|time| {
            let (seconds, us) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_usec).ok()?);
            Some(after_ns(seconds.saturating_mul(SECOND_NS).saturating_add(us.saturating_mul(1000))))
        }),
    };
    let result = select_until(n, at, until_ns, kernel);
    if let Some(until_ns) = until_ns.filter(|_| !time.is_null()) {
        let left_ns = until_ns.saturating_sub(now_ns());
        let (tv_sec, tv_usec) = ((left_ns / SECOND_NS) as i64, (left_ns % SECOND_NS / 1000) as i64);
        // SAFETY: by the caller: it was read.
        unsafe { time.write(libc::timeval { tv_sec, tv_usec }) };
    }
    c(result) as c_int
}

/// Waits for descriptors. With a mask of signals it is the kernel's: they are exchanged at the same moment.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(target_arch = "aarch64"), unsafe(no_mangle))]
pub(super) unsafe extern "C-unwind" fn pselect(
    n: c_int,
    reads: *mut libc::fd_set,
    writes: *mut libc::fd_set,
    others: *mut libc::fd_set,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(pselect(
            n: c_int, reads: *mut libc::fd_set, writes: *mut libc::fd_set, others: *mut
            libc::fd_set, time: *const libc::timespec, mask: *const libc::sigset_t
        ) -> c_int)
    };
    // The kernel writes the time that is left, which the C library hides.
    // SAFETY: by the caller.
    let left = unsafe { time.as_ref() }.copied();
    let kernel = || {
        let mut left = left;
        let left = left.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let mask = [mask.addr(), size_of::<u64>()];
        // SAFETY: by the caller; the mask and its size outlive the call.
        unsafe { sys!(SYS_pselect6, n, reads, writes, others, left, mask.as_ptr()) }
    };
    let at = [reads, writes, others];
    c(match place() {
        Place::Goroutine(_) if mask.is_null() => {
            let until_ns = left.map_or(Some(u64::MAX), |time| to_ns(time).map(after_ns));
            select_until(n, at, until_ns, kernel)
        }
        Place::Goroutine(caller) => {
            counters::select.fall_back();
            block(caller, kernel)
        }
        _ => kernel(),
    }) as c_int
}

/// Waits until one of the descriptors is ready, or until that time. `None`: there is no such time, and the kernel says
/// so.
fn select_until(
    n: c_int,
    at: [*mut libc::fd_set; 3],
    until_ns: Option<u64>,
    mut kernel: impl FnMut() -> i64,
) -> i64 {
    let counter = &counters::select;
    let Place::Goroutine(caller) = place() else { return kernel() };
    let (Some(sets), Some(until_ns)) = (Sets::read(n, at), until_ns) else {
        counter.fall_back();
        return block(caller, kernel);
    };
    let attempt = || {
        sets.restore();
        let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: sets that were read, and a time of our own.
        match unsafe { raw::select(n, at, &raw mut now) } {
            0 => EAGAIN,
            result => result,
        }
    };
    until_any(counter, until_ns, attempt, |attempt| {
        let kernel = || {
            sets.restore();
            kernel()
        };
        wait_for_all(counter, caller, &sets.to_poll(), until_ns, attempt, kernel)
    })
}
