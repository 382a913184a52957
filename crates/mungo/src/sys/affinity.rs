//! Limits a thread for a moment to one of the CPUs that it may run on.
//!
//! The kernel wakes a thread on the CPU where it slept, or on an idle one. If the waker is about to sleep itself, its
//! own CPU is the one that will be free, which the kernel does not know: it puts the thread behind another that
//! computes, and moves it some milliseconds later. So the sleeper is allowed that CPU only, and lifts the limit when it
//! wakes.
//!
//! Running threads are left alone: a thread or process that one of them starts would inherit the limit.

use std::sync::OnceLock;

/// The CPUs that a thread was allowed before it was limited.
#[derive(Clone, Copy)]
pub(crate) struct Allowed(libc::cpu_set_t);

static ONLINE: OnceLock<i32> = OnceLock::new();

/// Counts the machine's CPUs, before a signal handler needs the number.
pub(crate) fn prepare() {
    // SAFETY: no memory involved.
    ONLINE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } as i32);
}

/// Limits a sleeping thread to the CPU `wanted`, or, if that is among the `taken` ones (a bit per CPU), to another that
/// is not, if one exists. Returns the CPUs that it was allowed before. `None`: it may not run there, may run nowhere
/// else, or the kernel refuses (as for some real-time threads, or on machines with more CPUs than the set has room
/// for); nothing changed.
pub(crate) fn limit(tid: i32, wanted: u32, taken: u128) -> Option<Allowed> {
    let before = Allowed::to(tid)?;
    let other = || (0..u128::BITS).find(|cpu| !is_in(taken, *cpu) && before.has(*cpu));
    let cpu = if is_in(taken, wanted) { other().unwrap_or(wanted) } else { wanted };
    // SAFETY: a set is plain bits.
    unsafe {
        if !before.has(cpu) || libc::CPU_COUNT(&before.0) == 1 {
            return None;
        }
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut only);
        (libc::sched_setaffinity(tid, size_of_val(&only), &only) == 0).then_some(before)
    }
}

/// Returns whether the CPU is among these, a bit per CPU. CPUs beyond the bits are not.
pub(crate) fn is_in(cpus: u128, cpu: u32) -> bool {
    cpu < u128::BITS && cpus & (1 << cpu) != 0
}

impl Allowed {
    fn to(tid: i32) -> Option<Allowed> {
        // SAFETY: a set is plain bits, and the kernel fills it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(tid, size_of_val(&set), &mut set) == 0).then_some(Allowed(set))
        }
    }

    fn has(&self, cpu: u32) -> bool {
        // SAFETY: within the set.
        cpu < libc::CPU_SETSIZE as u32 && unsafe { libc::CPU_ISSET(cpu as usize, &self.0) }
    }

    /// Lifts the limit from the calling thread.
    ///
    /// A thread that was allowed all CPUs is allowed all, and not those that exist now: if its container gets more, it
    /// shall have them too.
    pub(crate) fn restore(mut self) {
        // SAFETY: as above.
        unsafe {
            if Some(&libc::CPU_COUNT(&self.0)) == ONLINE.get() {
                (&raw mut self.0).write_bytes(0xff, 1);
            }
            libc::sched_setaffinity(0, size_of_val(&self.0), &self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn cpus_of(tid: i32) -> i32 {
        // SAFETY: a set is plain bits.
        unsafe { libc::CPU_COUNT(&Allowed::to(tid).expect("a thread").0) }
    }

    #[test]
    fn a_limit_is_lifted_by_its_thread() {
        prepare();
        let (send_tid, tid) = mpsc::channel();
        let (wake, woken) = mpsc::channel::<Option<Allowed>>();
        let sleeper = std::thread::spawn(move || {
            // SAFETY: no memory involved.
            let tid = unsafe { libc::gettid() };
            send_tid.send(tid).unwrap();
            if let Some(allowed) = woken.recv().unwrap() {
                allowed.restore();
            }
            cpus_of(tid)
        });
        let (tid, before) = (tid.recv().unwrap(), cpus_of(0));
        let allowed = limit(tid, crate::sys::this_cpu(), 0);
        assert_eq!(allowed.is_some(), before > 1, "a thread with one CPU is where it should be");
        assert_eq!(cpus_of(tid), 1);
        wake.send(allowed).unwrap();
        assert_eq!(sleeper.join().unwrap(), before);
    }

    #[test]
    fn no_thread_is_sent_where_it_may_not_run() {
        // SAFETY: no memory involved.
        let me = unsafe { libc::gettid() };
        let before = cpus_of(me);
        assert!(limit(me, libc::CPU_SETSIZE as u32 - 1, 0).is_none());
        assert!(limit(me, u32::MAX, 0).is_none());
        assert_eq!(cpus_of(me), before);
    }
}
