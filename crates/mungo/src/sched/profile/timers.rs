//! A timer for each thread of the process, which sends it SIGPROF when it has used a given amount of CPU time.
//!
//! WHY NOT `setitimer(ITIMER_PROF)`: it counts the whole process, and the kernel (before 6.4) prefers to send its
//! signal to the main thread, whichever one computed; it goes on in a program that is started by `exec`, which then
//! dies of it; and there is one in a process. These timers belong to threads, and neither `fork` nor `exec` passes them
//! on.
//!
//! Kernels look at both kinds of timers at their own ticks, every 1 to 10 ms: a signal of a faster one says how many
//! times it should have come.

use crate::sys::signal;
use crate::sys::task;
use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;

/// The timers of the process, by thread.
pub(super) struct Timers {
    period_ns: u64,
    by_thread: HashMap<i32, libc::timer_t>,
    /// Threads for which the kernel refused one, each once, however often it was asked.
    refused: HashSet<i32>,
}

// SAFETY: ids of the kernel's timers, good in any thread.
unsafe impl Send for Timers {}

impl Timers {
    pub(super) fn new(period_ns: u64) -> Timers {
        Timers { period_ns, by_thread: HashMap::new(), refused: HashSet::new() }
    }

    /// Makes timers for threads that have none, and ends those of threads that are gone.
    pub(super) fn watch_threads(&mut self) {
        let now = task::all();
        self.by_thread.retain(|tid, timer| {
            let lives = now.contains(tid);
            if !lives {
                // SAFETY: made below, and not deleted yet.
                unsafe { libc::timer_delete(*timer) };
            }
            lives
        });
        for tid in now {
            if let std::collections::hash_map::Entry::Vacant(vacant) = self.by_thread.entry(tid) {
                match make(tid, self.period_ns) {
                    Ok(timer) => _ = vacant.insert(timer),
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {} // the thread is gone
                    Err(_) => _ = self.refused.insert(tid),
                }
            }
        }
    }

    /// Returns the number of threads for which the kernel refused to make one.
    pub(super) fn refused(&self) -> u64 {
        self.refused.len() as u64
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        for timer in self.by_thread.values() {
            // SAFETY: as above.
            unsafe { libc::timer_delete(*timer) };
        }
    }
}

/// Starts a timer of a thread. `EINVAL`: the thread is gone; `EAGAIN`: the kernel has no more timers for this user.
fn make(tid: i32, period_ns: u64) -> io::Result<libc::timer_t> {
    const PER_THREAD_SCHED: libc::clockid_t = 6;
    let clock = (!tid << 3) | PER_THREAD_SCHED;
    // SAFETY: the kernel reads the two structures and writes the id.
    unsafe {
        let mut event: libc::sigevent = MaybeUninit::zeroed().assume_init();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_value = signal::mark();
        event.sigev_notify_thread_id = tid;
        let mut timer = MaybeUninit::uninit();
        if libc::timer_create(clock, &mut event, timer.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = timer.assume_init();
        let spec =
            |ns: u64| libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
        // Not all threads at the same time.
        let first_ns = 1 + (tid as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) % period_ns;
        let times = libc::itimerspec { it_interval: spec(period_ns), it_value: spec(first_ns) };
        if libc::timer_settime(timer, 0, &times, std::ptr::null_mut()) != 0 {
            let error = io::Error::last_os_error();
            libc::timer_delete(timer);
            return Err(error);
        }
        Ok(timer)
    }
}
