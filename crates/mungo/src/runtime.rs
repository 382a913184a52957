//! A runtime: build, run, shut down.

use crate::builder::RuntimeBuilder;
use crate::policies::{Policy, Stats};
use crate::sched::engine::switch;
use crate::sched::run::spawn::Spec;
use crate::sched::shared::Shared;
use crate::sched::start::{start, with_current};
use crate::spawn::{Builder, JoinHandle};
use crate::sys::{clock, futex};
use std::io;
use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// A scheduler with its own processors (Ps) and threads. Several may live side by side.
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
///
/// ```
/// use std::time::Duration;
///
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// let sleeper = runtime.spawn(mungo::park);
/// let error = runtime.shutdown(Duration::from_millis(5)).unwrap_err();
/// assert_eq!(error.remaining(), 1);
/// sleeper.goroutine().unpark();
/// sleeper.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownError {
    remaining: usize,
}

impl ShutdownError {
    /// Returns how many goroutines had not ended. They go on in the background.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// let sleepers = [runtime.spawn(mungo::park), runtime.spawn(mungo::park)];
    /// assert_eq!(runtime.shutdown(Duration::from_millis(5)).unwrap_err().remaining(), 2);
    /// # sleepers.iter().for_each(|sleeper| sleeper.goroutine().unpark());
    /// # sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    /// # std::io::Result::Ok(())
    /// ```
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
    /// Makes a runtime with the settings of the environment and the machine.
    ///
    /// ```
    /// assert_eq!(mungo::Runtime::new()?.run(|| 6 * 7), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RuntimeBuilder::build`].
    pub fn new() -> io::Result<Runtime> {
        Runtime::builder().build()
    }

    /// Returns a builder, to choose settings.
    ///
    /// ```
    /// assert_eq!(mungo::Runtime::builder().procs(3).build()?.run(mungo::procs), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Runs `f` as a goroutine of this runtime, waits for it, and returns what it returned. The caller may be a plain
    /// thread or a goroutine. Other goroutines go on after `f` ended.
    ///
    /// ```
    /// let text = String::from("borrowed");
    /// let runtime = mungo::Runtime::new()?;
    /// assert_eq!(runtime.run(|| text.len()), 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `f` panicked, with the same payload.
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        run_on(&self.shared, f)
    }

    /// Starts a goroutine on this runtime.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// let there = runtime.spawn(mungo::procs);
    /// assert_eq!(there.join().unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
        let spawned = unsafe { Spec::here().spawn(Some(&self.shared), f) };
        JoinHandle::new(spawned.expect("mungo: cannot spawn a goroutine"))
    }

    /// Changes the number of Ps and returns the old one. From then on the runtime ignores the CPU quota. A P that goes
    /// away leaves at its next scheduling point.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// assert_eq!(runtime.set_procs(2)?, 1);
    /// assert_eq!(runtime.run(mungo::procs), 2);
    /// assert!(runtime.set_procs(0).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if `n` is 0 or above 1024; `OutOfMemory`.
    pub fn set_procs(&self, n: usize) -> io::Result<usize> {
        self.shared.set_procs_by_hand(n)
    }

    /// Changes the policy of this runtime, as [`set_scheduler`](crate::set_scheduler) does.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// runtime.set_scheduler(mungo::policy::Fifo::new());
    /// assert_eq!(runtime.policy_stats().policy, "fifo");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_scheduler(&self, policy: impl Into<Policy>) {
        drop(switch::install(&self.shared, policy.into()));
    }

    /// Returns counts of what the policy did so far.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().scheduler(mungo::policy::Lifo::new()).build()?;
    /// assert_eq!(runtime.policy_stats().policy, "lifo");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn policy_stats(&self) -> Stats {
        switch::stats_of(&self.shared)
    }

    /// Waits until all goroutines have ended and the threads have left, for at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = mungo::Runtime::new()?;
    /// let answer = runtime.spawn(|| 42);
    /// assert!(runtime.shutdown(Duration::from_secs(60)).is_ok());
    /// assert_eq!(answer.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if some goroutines had not ended. Nothing is lost then: they go on in the background as after a drop.
    pub fn shutdown(self, timeout: Duration) -> Result<(), ShutdownError> {
        let deadline = clock::after_ns(timeout);
        let shared = self.shared.clone();
        drop(self);
        loop {
            // ORDERING: Acquire pairs with the last act of each thread.
            let threads = shared.threads.load(Acquire);
            if threads == 0 {
                crate::tracer::flush_at_end();
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

/// Runs `f` as the main goroutine of a runtime and waits for it: [`Runtime::run`].
#[track_caller]
pub(crate) fn run_on<F, T>(shared: &Arc<Shared>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let spec = Spec { name: Some("main".into()), ..Spec::here() };
    // SAFETY: this call waits for the goroutine's end, and `join` cannot fail to.
    let main = unsafe { spec.spawn::<F, T>(Some(shared), f) };
    let main = main.unwrap_or_else(|e| panic!("mungo: cannot start the main goroutine: {e}"));
    JoinHandle::new(main).join().unwrap_or_else(|payload| resume_unwind(payload))
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Returns how many goroutines of this runtime are alive.
///
/// "This runtime" is the calling goroutine's, on a plain thread the default one.
///
/// ```
/// let (tx, rx) = mungo::chan::bounded::<()>(0);
/// let waiting = mungo::go(move || rx.recv());
/// assert!(mungo::num_goroutines() >= 1);
/// drop(tx);
/// assert!(waiting.join().unwrap().is_err());
/// ```
pub fn num_goroutines() -> usize {
    with_current(|shared| shared.live() as usize)
}

/// Returns how many CPUs this process may use: by the affinity mask, not the quota.
///
/// ```
/// assert!(mungo::num_cpus() >= 1);
/// ```
pub fn num_cpus() -> usize {
    crate::cpus::num_cpus()
}

/// Returns how many goroutines of this runtime may run at the same time.
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(2).build()?;
/// assert_eq!(runtime.run(mungo::procs), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn procs() -> usize {
    with_current(|shared| shared.procs() as usize)
}

/// Changes [`procs`] and returns the old number. See [`Runtime::set_procs`].
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// assert_eq!(runtime.run(|| (mungo::set_procs(2), mungo::procs())), (1, 2));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
/// If `n` is 0 or above 1024, or there is no memory for more Ps.
pub fn set_procs(n: usize) -> usize {
    with_current(|shared| shared.set_procs_by_hand(n)).unwrap_or_else(|e| panic!("mungo::set_procs: {e}"))
}

/// A result on its way from the main goroutine to the thread that waits for it.
pub(crate) struct Handed<R>(pub(crate) R);

// SAFETY: the goroutine that made it has ended, its thread-locals included, and nothing that is not `Send` could
// have left it by another way: the value is alone. So `main` may return a `Box<dyn Error>`.
unsafe impl<R> Send for Handed<R> {}

impl RuntimeBuilder {
    /// Starts the runtime.
    ///
    /// ```
    /// use std::io::ErrorKind;
    ///
    /// assert!(mungo::Runtime::builder().build().is_ok());
    /// assert_eq!(mungo::Runtime::builder().procs(0).build().unwrap_err().kind(), ErrorKind::InvalidInput);
    /// ```
    ///
    /// # Errors
    /// Returns `Unsupported` where goroutines cannot have thread-locals of their own, with the reason, unless
    /// [that is allowed](Self::allow_shared_thread_locals); `InvalidInput` for settings that make no sense, named in
    /// the message; else what the system refused: memory for stacks, the first four threads.
    pub fn build(self) -> io::Result<Runtime> {
        Ok(Runtime { shared: start(self.0)? })
    }
}

impl Builder {
    /// Starts the goroutine on `runtime`.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// let there = mungo::Builder::new().spawn_on(&runtime, mungo::procs)?;
    /// assert_eq!(there.join().unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    #[track_caller]
    pub fn spawn_on<F, T>(self, runtime: &Runtime, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `'static`.
        let spawned = unsafe { self.spec(Location::caller())?.spawn(Some(runtime.shared()), f) };
        spawned.map(JoinHandle::new)
    }
}
