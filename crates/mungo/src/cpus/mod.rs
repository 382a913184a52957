//! Finds how many Ps a runtime gets when its builder is given no number.
//!
//! The answer is the smaller of two: the CPUs that the affinity mask allows, and the CPU quota of
//! our cgroup rounded up (but no less than [`QUOTA_FLOOR`]). This is Go's rule since 1.25, with two
//! differences: the quota is the tightest one *on the way up* from our cgroup to the root of the
//! cgroup mount, because the kernel enforces all of them (Go looks at the leaf, golang/go#81180);
//! and a process that is moved to another cgroup is noticed.
//!
//! ```text
//!   mod.rs      the rule, and the affinity mask
//!   watch.rs    QuotaWatch: the same question each second
//!   locate.rs   /proc/self/cgroup and mountinfo -> directories
//!   cgroup.rs   a directory -> its quota
//! ```
//!
//! Invariants:
//! - `1 <= procs <= cpus`, whatever the files say.
//! - Nothing here panics or reports an error: what cannot be read or understood limits nothing.
//!
//! Absent on purpose:
//! - `cpu.weight` and `cpu.shares`: they divide a busy machine and do not cap an idle one, so a
//!   number derived from them would be wrong most of the time.
//! - `cpuset`: the kernel has already applied it to the affinity mask.
//! - `cpu.max.burst`: it moves CPU time between periods and leaves the average alone.
//! - v2 threaded cgroups: `/proc/self/cgroup` speaks for the thread group leader.

use std::fmt;
use std::path::PathBuf;

mod cgroup;
mod locate;
#[cfg(all(test, not(miri)))] // Miri's file system is isolated.
mod tests;
mod watch;

pub(crate) use watch::QuotaWatch;

/// The fewest Ps that a quota leads to, in Ps.
// TUNED: Go's value, not measured here. A quota bounds the average, not the parallelism: with half
// a CPU, two Ps may still run at once for a part of each period, and a G that hogs one P (or blocks
// its thread until sysmon retakes the P) leaves another for the rest.
const QUOTA_FLOOR: usize = 2;

/// The default number of Ps, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// The number of Ps to run.
    pub(crate) procs: usize,
    /// The number of CPUs that the affinity mask allows.
    pub(crate) cpus: usize,
    /// The tightest CPU quota in force, in CPUs; `None` when there is none. Present also when it is
    /// too wide to matter.
    pub(crate) quota: Option<f64>,
    /// The one of the two that decided.
    pub(crate) source: Source,
}

/// What a [`Decision`] rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The CPUs: no quota asks for less.
    Cpus,
    /// The quota in this file, be it of our own cgroup or of one above.
    Quota { file: PathBuf },
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} procs: {} CPUs", self.procs, self.cpus)?;
        if let Some(quota) = self.quota {
            write!(f, ", quota {quota:.2}")?;
        }
        match &self.source {
            Source::Cpus => Ok(()),
            Source::Quota { file } => write!(f, " by {}", file.display()),
        }
    }
}

/// Where the files are. Tests put a directory of their own here.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    pub(crate) proc_self_cgroup: PathBuf,
    pub(crate) proc_self_mountinfo: PathBuf,
    /// Prepended to each mount point found in mountinfo; empty on a real system.
    pub(crate) prefix: PathBuf,
}

impl Roots {
    /// Names the files of the running system.
    pub(crate) fn system() -> Roots {
        Roots {
            proc_self_cgroup: "/proc/self/cgroup".into(),
            proc_self_mountinfo: "/proc/self/mountinfo".into(),
            prefix: PathBuf::new(),
        }
    }
}

/// Returns the number of Ps by the rule: quota rounded up, at least [`QUOTA_FLOOR`], at most
/// `cpus`, at least 1.
fn procs_for(cpus: usize, quota: Option<f64>) -> usize {
    let procs = match quota {
        None => cpus,
        // The cast saturates, so that an absurd quota is only a wide one.
        Some(quota) => (quota.ceil() as usize).max(QUOTA_FLOOR).min(cpus),
    };
    procs.max(1)
}

/// Returns the number of CPUs that the calling thread may run on, at least 1.
///
/// It is the *thread's* mask because Linux has no other. The thread that builds the runtime is the
/// right one to ask, since workers inherit its mask; so is a monitor thread started by it, as long
/// as no policy pins that thread.
pub(crate) fn num_cpus() -> usize {
    affinity_cpus().or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1).max(1)
}

#[cfg(not(target_os = "linux"))]
fn affinity_cpus() -> Option<usize> {
    None
}

/// Returns the number of bits in the affinity mask; `None` when the kernel does not tell (seccomp).
// WHY NOT: available_parallelism, which asks the same mask: it applies the cgroup quota too, but
// rounds it down, and reports one number for both.
#[cfg(target_os = "linux")]
fn affinity_cpus() -> Option<usize> {
    count_mask(|mask| {
        // SAFETY: the kernel writes at most `size_of_val(mask)` bytes from the start of `mask`,
        // which we borrow mutably for the call; `c_ulong` is what a `cpu_set_t` is made of, and
        // every bit pattern is a valid one.
        let rc = unsafe {
            libc::sched_getaffinity(0, size_of_val(mask), mask.as_mut_ptr().cast::<libc::cpu_set_t>())
        };
        if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    })
}

/// Counts the bits of a CPU mask whose size only `fill` knows: it fails with `EINVAL` while the
/// mask is too small.
#[cfg(target_os = "linux")]
fn count_mask(mut fill: impl FnMut(&mut [libc::c_ulong]) -> std::io::Result<()>) -> Option<usize> {
    /// Words for 1024 CPUs, glibc's `cpu_set_t`: enough for nearly all machines without allocating.
    const FIRST_WORDS: usize = 1024 / libc::c_ulong::BITS as usize;
    /// Words for 4 million CPUs: a bound, should a kernel fail with `EINVAL` for its own reasons.
    const LAST_WORDS: usize = FIRST_WORDS << 12;

    let mut first = [0; FIRST_WORDS];
    let mut grown: Vec<libc::c_ulong>;
    let mut mask = &mut first[..];
    loop {
        match fill(mask) {
            Ok(()) => return Some(mask.iter().map(|word| word.count_ones() as usize).sum()),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && mask.len() < LAST_WORDS => {
                grown = vec![0; mask.len() * 4];
                mask = &mut grown;
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod rule_tests {
    use super::*;

    #[test]
    fn quota_is_rounded_up_with_a_floor_and_a_ceiling() {
        for (cpus, quota, want) in [
            (8, None, 8),
            (8, Some(0.01), 2),
            (8, Some(0.5), 2),
            (8, Some(1.0), 2),
            (8, Some(2.0), 2),
            (8, Some(2.1), 3),
            (8, Some(7.5), 8),
            (8, Some(8.0), 8),
            (8, Some(1e30), 8),
            (2, Some(0.5), 2),
            (1, Some(0.5), 1),
            (1, None, 1),
            (0, None, 1),
            (0, Some(4.0), 1),
        ] {
            assert_eq!(procs_for(cpus, quota), want, "{cpus} CPUs, quota {quota:?}");
        }
    }

    #[test]
    fn there_is_a_cpu() {
        assert!(num_cpus() >= 1);
    }

    #[cfg(target_os = "linux")]
    mod mask {
        use super::super::count_mask;
        use std::io::Error;

        /// Imitates a kernel with `cpus` CPUs, all of them ours, that refuses masks of fewer bits.
        fn kernel(cpus: usize) -> impl FnMut(&mut [libc::c_ulong]) -> std::io::Result<()> {
            move |mask| {
                let bits = libc::c_ulong::BITS as usize;
                if mask.len() * bits < cpus {
                    return Err(Error::from_raw_os_error(libc::EINVAL));
                }
                for cpu in 0..cpus {
                    mask[cpu / bits] |= 1 << (cpu % bits);
                }
                Ok(())
            }
        }

        #[test]
        fn grows_until_it_fits() {
            for cpus in [1, 1023, 1024, 1025, 4096, 5000, 65_536] {
                assert_eq!(count_mask(kernel(cpus)), Some(cpus));
            }
        }

        #[test]
        fn gives_up_on_endless_einval_and_on_other_errors() {
            assert_eq!(count_mask(|_| Err(Error::from_raw_os_error(libc::EINVAL))), None);
            let mut calls = 0;
            let denied = count_mask(|_| {
                calls += 1;
                Err(Error::from_raw_os_error(libc::EPERM))
            });
            assert_eq!((denied, calls), (None, 1));
        }
    }

    #[test]
    fn display_says_why() {
        let mut decision = Decision { procs: 8, cpus: 8, quota: None, source: Source::Cpus };
        assert_eq!(decision.to_string(), "8 procs: 8 CPUs");
        decision.procs = 3;
        decision.quota = Some(2.5);
        decision.source = Source::Quota { file: "/c/cpu.max".into() };
        assert_eq!(decision.to_string(), "3 procs: 8 CPUs, quota 2.50 by /c/cpu.max");
    }
}
