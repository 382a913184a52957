//! Follows the default number of Ps while the process runs.
//!
//! A poll is a handful of short system calls: the affinity mask, `/proc/self/cgroup`, and one or
//! two small files for each cgroup on the way up. The long file, mountinfo, is read only when
//! `/proc/self/cgroup` has changed. So new mounts alone are not noticed, a move to another cgroup
//! is.
//!
//! WHY NOT inotify: cgroup files send no event when a quota is written, and a thread that wakes up
//! each second anyway is already there.

use std::io;

use super::cgroup::{Level, is_transient, read_into};
use super::locate::locate;
use super::{Decision, Roots, Source, num_cpus, procs_for};

/// Remembers where the quotas are, and returns a decision when the default number of Ps changes.
///
/// Used by one thread, the monitor's helper: nothing here is shared.
#[derive(Debug)]
pub(crate) struct QuotaWatch {
    roots: Roots,
    /// The content of `/proc/self/cgroup` that `levels` was made from.
    membership: Vec<u8>,
    /// The buffer that each poll reads `/proc/self/cgroup` into; takes turns with `membership`.
    scratch: Vec<u8>,
    /// Whether `/proc/self/cgroup` or mountinfo was found to be forbidden. Neither is read again
    /// then, because a confined process (snap, AppArmor) gets a line in the system's log for each
    /// attempt.
    forbidden: bool,
    /// The cgroups that bind us, innermost first.
    levels: Vec<Level>,
    cpus: usize,
    /// The tightest limit, in CPUs, behind its index in `levels`.
    tightest: Option<(usize, f64)>,
    /// The number of Ps that the last poll, or the construction, decided on.
    procs: usize,
}

impl QuotaWatch {
    /// Starts with the state of the running system.
    pub(crate) fn new() -> QuotaWatch {
        QuotaWatch::with_roots(Roots::system(), num_cpus())
    }

    /// Starts with the given files and number of CPUs.
    pub(crate) fn with_roots(roots: Roots, cpus: usize) -> QuotaWatch {
        let mut watch = QuotaWatch {
            roots,
            membership: Vec::new(),
            scratch: Vec::new(),
            forbidden: false,
            levels: Vec::new(),
            cpus,
            tightest: None,
            procs: 1,
        };
        watch.refresh(cpus);
        watch
    }

    /// Returns the decision that holds since the last poll.
    pub(crate) fn decision(&self) -> Decision {
        let unlimited = procs_for(self.cpus, None);
        let source = match self.tightest {
            Some((level, _)) if self.procs < unlimited => {
                Source::Quota { file: self.levels[level].file().to_owned() }
            }
            _ => Source::Cpus,
        };
        let quota = self.tightest.map(|(_, limit)| limit);
        Decision { procs: self.procs, cpus: unlimited, quota, source }
    }

    /// Polls again, from the calling thread. Returns `Some` if the number of Ps differs from what
    /// the last poll (or the construction) found. A quota that changes within the same number only
    /// shows in [`decision`](QuotaWatch::decision).
    pub(crate) fn poll(&mut self) -> Option<Decision> {
        self.poll_with(num_cpus())
    }

    /// Does as [`poll`](QuotaWatch::poll), with a given number of CPUs.
    pub(crate) fn poll_with(&mut self, cpus: usize) -> Option<Decision> {
        let before = self.procs;
        self.refresh(cpus);
        (self.procs != before).then(|| self.decision())
    }

    /// Returns the address and the size in bytes of each buffer, to see that polling does not
    /// allocate.
    #[cfg(test)]
    pub(super) fn buffers(&self) -> [(*const u8, usize); 2] {
        [&self.membership, &self.scratch].map(|buf| (buf.as_ptr(), buf.capacity()))
    }

    fn refresh(&mut self, cpus: usize) {
        if !self.forbidden {
            match self.relocate() {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => self.forbidden = true,
                // Any other error may pass; until then the levels we know are the best guess.
                _ => {}
            }
        }
        self.cpus = cpus;
        self.tightest = None;
        for (i, level) in self.levels.iter_mut().enumerate() {
            if let Some(limit) = level.refresh()
                && self.tightest.is_none_or(|(_, tightest)| limit < tightest)
            {
                self.tightest = Some((i, limit));
            }
        }
        self.procs = procs_for(cpus, self.tightest.map(|(_, limit)| limit));
    }

    /// Finds the levels anew if we are in another cgroup than at the last call.
    fn relocate(&mut self) -> io::Result<()> {
        read_into(&self.roots.proc_self_cgroup, &mut self.scratch)?;
        if self.scratch == self.membership {
            return Ok(());
        }
        let mut mountinfo = Vec::new();
        let read = read_into(&self.roots.proc_self_mountinfo, &mut mountinfo);
        if read.as_ref().is_err_and(is_transient) {
            // The old membership stays in place: the next poll sees the difference again.
            return read;
        }
        let (version, dirs) = locate(&self.scratch, &mountinfo, &self.roots.prefix);
        self.levels = dirs.iter().map(|dir| Level::new(version, dir)).collect();
        std::mem::swap(&mut self.membership, &mut self.scratch);
        read
    }
}
