//! A runtime: build, run, shut down.

use crate::builder::{Config, RuntimeBuilder};
use crate::cpus::QuotaWatch;
use crate::current::Running;
use crate::info::Info;
use crate::metrics::Metrics;
use crate::sched::monitor;
use crate::sched::shared::Shared;
use crate::spawn::{JoinHandle, Spec};
use crate::sys::{clock, futex};
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A scheduler with its own Ps and threads. Several may live side by side.
///
/// Most programs need none: [`go`](crate::go) makes a default one at first use.
///
/// Dropping a runtime does not stop its goroutines: they run to their end in the background, and the threads
/// leave after the last one. As in Go, they end with the process.
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// let sum: u64 = runtime.run(|| {
///     let parts: Vec<_> = (0..10u64).map(|i| mungo::go(move || i * i)).collect();
///     parts.into_iter().map(|p| p.join().unwrap()).sum()
/// });
/// assert_eq!(sum, 285);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
}

/// Goroutines were still alive when [`Runtime::shutdown`] ran out of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownError {
    remaining: usize,
}

impl ShutdownError {
    /// How many goroutines had not ended. They go on in the background.
    pub fn remaining(&self) -> usize {
        self.remaining
    }
}

impl std::fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} goroutines had not ended in time and go on in the background", self.remaining)
    }
}

impl std::error::Error for ShutdownError {}

impl Runtime {
    /// A runtime with the settings of the environment and the machine.
    ///
    /// # Errors
    /// As [`RuntimeBuilder::build`].
    pub fn new() -> io::Result<Runtime> {
        Runtime::builder().build()
    }

    /// To choose settings.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    pub(crate) fn start(config: Config, quota: Option<QuotaWatch>) -> io::Result<Runtime> {
        crate::current::own_tls(); // decide before the first goroutine asks
        crate::stack::overflow::install();
        crate::sched::preempt::install();
        crate::sched::blocking::can_retake();
        let shared = Shared::new(config)?;
        if let Some(policy) = shared.config.policy.clone() {
            drop(crate::policy::install(&shared, policy));
        }
        monitor::start(&shared, quota)?;
        Ok(Runtime { shared })
    }

    /// Runs `f` as a goroutine of this runtime, waits for it, and returns what it returned. The caller may be a plain
    /// thread or a goroutine. Other goroutines go on after `f` ended.
    ///
    /// # Panics
    /// If `f` panicked, with the same payload.
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let spec = Spec { name: Some("main".into()), ..Spec::here() };
        // SAFETY: we wait for its end here, and `join` cannot fail to.
        let main = unsafe { spec.spawn::<F, T>(Some(&self.shared), f) };
        let main = main.unwrap_or_else(|e| panic!("mungo: cannot start the main goroutine: {e}"));
        main.join().unwrap_or_else(|payload| resume_unwind(payload))
    }

    /// Starts a goroutine on this runtime.
    ///
    /// # Panics
    /// If there is no memory for its stack; [`Builder::spawn_on`](crate::Builder::spawn_on) returns the error.
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `'static`.
        unsafe { Spec::here().spawn(Some(&self.shared), f) }.expect("mungo: cannot spawn a goroutine")
    }

    /// What the scheduler did so far.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.shared)
    }

    /// What this runtime is made of.
    pub fn info(&self) -> Info {
        Info::of(&self.shared)
    }

    /// Changes the number of Ps and returns the old one. The CPU quota is not followed any more. A P that goes away
    /// leaves at its next scheduling point.
    ///
    /// # Errors
    /// `InvalidInput` if `n` is 0 or above 1024; `OutOfMemory`.
    pub fn set_procs(&self, n: usize) -> io::Result<usize> {
        self.shared.set_procs_by_hand(n)
    }

    /// Changes the policy: as [`set_scheduler`](crate::set_scheduler), for this runtime.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// runtime.set_scheduler(mungo::policy::Fifo::new());
    /// assert_eq!(runtime.policy_stats().policy, "fifo");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_scheduler(&self, policy: impl Into<crate::policy::Policy>) {
        drop(crate::policy::install(&self.shared, policy.into()));
    }

    /// What the policy did so far.
    pub fn policy_stats(&self) -> crate::policy::Stats {
        crate::policy::stats_of(&self.shared)
    }

    /// Waits at most `timeout` until all goroutines have ended and the threads have left.
    ///
    /// # Errors
    /// If some had not ended. Nothing is lost then: they go on in the background as after a drop.
    pub fn shutdown(self, timeout: Duration) -> Result<(), ShutdownError> {
        let deadline = clock::after_ns(timeout);
        let shared = self.shared.clone();
        drop(self);
        loop {
            // ORDERING: Acquire pairs with the last act of each thread.
            let threads = shared.threads.load(Acquire);
            if threads == 0 {
                return Ok(());
            }
            if !futex::wait(&shared.threads, threads, Some(deadline)) && clock::now_ns() >= deadline {
                return Err(ShutdownError { remaining: shared.live() as usize });
            }
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    pub(crate) fn set_procs_by_hand(&self, n: usize) -> io::Result<usize> {
        let old = self.set_procs(n)?;
        self.procs_by_hand.store(true, Relaxed);
        Ok(old)
    }
}

/// The runtime behind `go` on plain threads.
pub(crate) fn default_runtime() -> io::Result<&'static Runtime> {
    static DEFAULT: OnceLock<Runtime> = OnceLock::new();
    static MAKING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    if let Some(runtime) = DEFAULT.get() {
        return Ok(runtime);
    }
    let _making = MAKING.lock().unwrap_or_else(|e| e.into_inner());
    match DEFAULT.get() {
        Some(runtime) => Ok(runtime),
        None => Runtime::new().map(|runtime| DEFAULT.get_or_init(|| runtime)),
    }
}

pub(crate) fn with_current<R>(f: impl FnOnce(&Shared) -> R) -> R {
    match Running::enter() {
        Some(running) => f(running.shared()),
        None => {
            f(default_runtime().unwrap_or_else(|e| panic!("mungo: cannot start the runtime: {e}")).shared())
        }
    }
}

/// How many goroutines of this runtime are alive.
///
/// "This runtime" is the calling goroutine's, on a plain thread the default one.
pub fn num_goroutines() -> usize {
    with_current(|shared| shared.live() as usize)
}

/// How many CPUs this process may use: the affinity mask, not the quota.
pub fn num_cpus() -> usize {
    crate::cpus::num_cpus()
}

/// How many goroutines of this runtime may run at the same time.
pub fn procs() -> usize {
    with_current(|shared| shared.procs() as usize)
}

/// Changes [`procs`] and returns the old number. See [`Runtime::set_procs`].
///
/// # Panics
/// If `n` is 0 or above 1024, or there is no memory for more Ps.
pub fn set_procs(n: usize) -> usize {
    with_current(|shared| shared.set_procs_by_hand(n)).unwrap_or_else(|e| panic!("mungo::set_procs: {e}"))
}

/// For the macros.
#[doc(hidden)]
pub mod __private {
    use super::*;

    /// A result on its way from the main goroutine to the thread that waits for it.
    struct Handed<R>(R);

    // SAFETY: the goroutine that made it has ended, its thread-locals included, and nothing that is not `Send` could
    // have left it by another way: the value is alone. So `main` may return a `Box<dyn Error>`.
    unsafe impl<R> Send for Handed<R> {}

    #[track_caller]
    fn hand_over<R>(runtime: &Runtime, f: impl FnOnce() -> R + Send) -> R {
        runtime.run(|| Handed(f())).0
    }

    /// `#[mungo::main]` without options: the default runtime.
    #[track_caller]
    pub fn run_main<R>(f: impl FnOnce() -> R + Send) -> R {
        match default_runtime() {
            Ok(runtime) => hand_over(runtime, f),
            Err(e) => panic!("mungo: cannot start the runtime: {e}"),
        }
    }

    /// `#[mungo::test]`, and `#[mungo::main]` with options.
    #[track_caller]
    pub fn run_on<R>(runtime: io::Result<Runtime>, f: impl FnOnce() -> R + Send) -> R {
        match runtime {
            Ok(runtime) => hand_over(&runtime, f),
            Err(e) => panic!("mungo: cannot start the runtime: {e}"),
        }
    }
}
