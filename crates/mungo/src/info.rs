//! A description of a runtime.

use crate::runtime::Runtime;
use crate::sched::shared::Shared;
use crate::stack::tls;
use std::sync::atomic::Ordering::Relaxed;

/// The thread-locals that a goroutine sees.
///
/// ```
/// use mungo::ThreadLocals;
///
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// match runtime.info().thread_locals {
///     ThreadLocals::Own => {}
///     other => panic!("{other:?}: a runtime that was not allowed that is not built"),
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadLocals {
    /// Its own: they migrate with it. `thread_local!`, `errno`, `std::thread::current()` are as in a thread.
    Own,
    /// Those of the thread that it happens to run on; holds the reason why. Only where it was
    /// [allowed](crate::RuntimeBuilder::allow_shared_thread_locals). A reference to a thread-local, or a `RefCell`
    /// borrow of one, must not be held over anything that may switch goroutines. To see a program in this mode where it
    /// is not needed, run it with `MUNGO_DEBUG=owntls=0`.
    Shared(&'static str),
}

/// A description of a runtime, returned by [`Runtime::info`](crate::Runtime::info).
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(2).build()?;
/// let info: mungo::Info = runtime.info();
/// assert_eq!((info.procs, info.procs_source.as_str()), (2, "set by hand"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// mungo's version.
    pub version: &'static str,
    /// The number of goroutines that may run at the same time.
    pub procs: usize,
    /// The number of CPUs in the affinity mask when the runtime started.
    pub cpus: usize,
    /// The CPU quota of the cgroup when the runtime started, in CPUs.
    pub cpu_quota: Option<f64>,
    /// The reason for the number of procs, in words.
    pub procs_source: String,
    /// The thread-locals that goroutines see.
    pub thread_locals: ThreadLocals,
    /// The number of threads on which goroutines may begin.
    pub max_threads: usize,
    /// The time that a goroutine may run while others wait.
    pub time_slice: std::time::Duration,
}

impl Info {
    pub(crate) fn of(shared: &Shared) -> Info {
        let config = &shared.config;
        Info {
            version: env!("CARGO_PKG_VERSION"),
            procs: shared.procs() as usize,
            cpus: config.decision.cpus,
            cpu_quota: config.decision.quota,
            procs_source: match config.procs_by_hand || shared.procs_by_hand.load(Relaxed) {
                true => "set by hand".to_owned(),
                false => config.decision.to_string(),
            },
            thread_locals: match tls::layout() {
                Ok(_) => ThreadLocals::Own,
                Err(why) => ThreadLocals::Shared(why),
            },
            max_threads: config.max_threads as usize,
            time_slice: std::time::Duration::from_nanos(config.time_slice_ns),
        }
    }
}

impl Runtime {
    /// Returns what this runtime is made of.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(2).build()?;
    /// assert_eq!(runtime.info().procs, 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn info(&self) -> Info {
        Info::of(self.shared())
    }
}
