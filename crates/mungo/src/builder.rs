//! A runtime's settings, by code.

use crate::policies::Policy;
use crate::sched::config::Settings;
use std::time::Duration;

/// Builds a [`Runtime`](crate::Runtime) with custom settings.
///
/// ```
/// let runtime = mungo::Runtime::builder().procs(2).build()?;
/// assert_eq!(runtime.run(|| mungo::procs()), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
///
#[doc = include_str!("environment.md")]
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct RuntimeBuilder(pub(crate) Settings);

impl RuntimeBuilder {
    /// Sets how many goroutines may run at the same time. Default: `MUNGO_PROCS`, else what the machine, the affinity
    /// mask and the CPU quota of the cgroup allow, re-read while running.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().procs(1).build()?;
    /// assert_eq!(runtime.run(mungo::procs), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn procs(mut self, n: usize) -> Self {
        self.0.procs = Some(n);
        self
    }

    /// Sets the least stack that a goroutine gets, in bytes, unless it asks for another size. Only pages that were
    /// touched cost memory. Default: `MUNGO_STACK_SIZE`, else 256 KiB less guard page and
    /// thread-locals, and at least 192 KiB.
    ///
    /// The kernel's page tables take 522 bytes for each stack of the default size, beside the 4.6 KiB of a goroutine
    /// that waits. For very many goroutines that do not recurse, smaller stacks save some of that: 266 bytes of tables
    /// with 96 KiB, 138 with 48 KiB, 73 with 24 KiB.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().stack_size(8 << 20).build()?;
    /// let sum = runtime.run(|| [1u8; 4 << 20].iter().map(|&b| u64::from(b)).sum::<u64>());
    /// assert_eq!(sum, 4 << 20);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.0.stack_size = Some(bytes);
        self
    }

    /// Sets the most threads on which goroutines begin. Default: `MUNGO_MAX_THREADS`, else 10,000.
    ///
    /// A goroutine that blocks its thread keeps it, and so may one that was interrupted while it computed. When as many
    /// threads are in use as this allows:
    /// * a goroutine that has begun is given a thread all the same, beyond the cap: it may be what the others wait for;
    /// * one that has not begun waits until a thread is free;
    /// * if nothing has moved for 100 ms, the one that was spawned last begins beyond the cap, in case that the others
    ///   wait for it. The more often that happens, the longer the pause becomes.
    ///
    /// So the cap bounds the threads of a program whose goroutines block and come back, and no program stands still
    /// because of it. A line on stderr says once that it was reached, and where most of those that block were spawned.
    ///
    /// The runtime has three threads of its own, and keeps one more asleep as a spare; they do not count, nor does a
    /// thread whose goroutine waits for something while it is [locked](crate::lock_os_thread) to it.
    ///
    /// With a [policy](Self::scheduler) of the program in force all goroutines count as begun, so the cap holds none
    /// back: each that blocks its thread gets one.
    ///
    /// ```
    /// let error = mungo::Runtime::builder().procs(4).max_threads(2).build().unwrap_err();
    /// assert!(error.to_string().contains("max_threads is 2"));
    /// ```
    pub fn max_threads(mut self, n: usize) -> Self {
        self.0.max_threads = Some(n);
        self
    }

    /// Sets how long a goroutine may run while others wait. Default: `MUNGO_TIME_SLICE`, else 10 ms.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let long = mungo::Runtime::builder().time_slice(Duration::from_millis(100)).build();
    /// assert!(long.is_ok());
    /// let none = mungo::Runtime::builder().time_slice(Duration::ZERO).build().unwrap_err();
    /// assert!(none.to_string().contains("from 100 µs to an hour"));
    /// ```
    pub fn time_slice(mut self, slice: Duration) -> Self {
        self.0.time_slice = Some(slice);
        self
    }

    /// Sets for how long timers may be put together: a thread that sleeps until the next timer gets up at most once in
    /// this time, so a timer may go off later by as much, and never earlier. At most 10 ms; zero: each on its own.
    /// Default: `MUNGO_TIMER_SLACK`, else 100 µs.
    ///
    /// Each time that a thread gets up costs some 20 µs of CPU time; where timers are due more often than that, this
    /// bounds it. It delays neither the first timer after a pause, nor those of processors that are busy: these look
    /// between two goroutines.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let runtime = mungo::Runtime::builder().timer_slack(Duration::from_millis(1)).build()?;
    /// let start = Instant::now();
    /// runtime.run(|| mungo::time::sleep(Duration::from_millis(2)));
    /// assert!(start.elapsed() >= Duration::from_millis(2));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn timer_slack(mut self, slack: Duration) -> Self {
        self.0.timer_slack = Some(slack);
        self
    }

    /// Sets the policy that decides which goroutine runs next. Default: `MUNGO_SCHEDULER`, else the built-in one.
    ///
    /// ```
    /// use mungo::policy::PriorityLevels;
    ///
    /// let runtime = mungo::Runtime::builder().scheduler(PriorityLevels::new()).build()?;
    /// assert_eq!(runtime.run(|| mungo::get_scheduler().name().to_owned()), "priority");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scheduler(mut self, policy: impl Into<Policy>) -> Self {
        self.0.policy = Some(policy.into());
        self
    }

    /// Sets for how long a policy may leave a goroutine waiting while others are served or Ps are idle. After that
    /// time the built-in policy replaces it. Default: `MUNGO_POLICY_WATCHDOG`, else 5 s.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let error = mungo::Runtime::builder().policy_watchdog(Duration::ZERO).build().unwrap_err();
    /// assert!(error.to_string().contains("at least 20 ms"));
    /// ```
    pub fn policy_watchdog(mut self, limit: Duration) -> Self {
        self.0.policy_watchdog = Some(limit);
        self
    }

    /// Lets the runtime start where goroutines cannot have thread-locals of their own (musl, a static executable,
    /// another processor than x86-64 and aarch64, a kernel without `fsgsbase`, valgrind). There, without this call,
    /// [`build`](Self::build) is an error. Where own thread-locals are possible it changes nothing.
    /// [`Info`](crate::Info) tells which they are.
    ///
    /// `MUNGO_DEBUG=owntls=0` in the environment makes goroutines share thread-locals on any platform.
    ///
    /// ```
    /// // SAFETY: the goroutines of this program use no thread-locals.
    /// let builder = unsafe { mungo::Runtime::builder().procs(1).allow_shared_thread_locals() };
    /// assert_eq!(builder.build()?.run(|| 6 * 7), 42);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Safety
    /// In no code that runs on goroutines of this runtime, libraries included, does a reference to a thread-local
    /// (`thread_local!`, `errno`), a `RefCell` borrow of one, or anything else that must stay on its thread, live
    /// across a call that may suspend the goroutine: a channel, a lock, a sleep, I/O of this crate,
    /// [`yield_now`](crate::yield_now). After such a call the goroutine may be on another thread: the reference is to
    /// another thread's value then, in use there at the same time. Nor may the compiler have kept the address of a
    /// thread-local over such a call, which it may do in any function that uses one before and after it: have separate
    /// functions for that, not inlined.
    pub unsafe fn allow_shared_thread_locals(mut self) -> Self {
        self.0.allow_shared_tls = true;
        self
    }

    /// Keeps room in each goroutine for the *static* thread-locals of libraries that are loaded later, by `dlopen`,
    /// once goroutines run. Default: `MUNGO_LATE_STATIC_TLS`, else no.
    ///
    /// Few libraries have static thread-locals (the model *initial-exec*: some allocators, OpenMP, drivers of graphics
    /// cards), and those that the program is linked with need nothing. Without the room, loading one fails with the C
    /// library's message, "cannot allocate memory in static TLS block", and a goroutine that waits needs one page of
    /// memory instead of two. It is decided for the process, by its first runtime; [`build`](Self::build) is an error
    /// if a later one asks for the room and it is gone. On aarch64 the room costs nothing and is always there.
    ///
    /// ```
    /// let runtime = mungo::Runtime::builder().late_static_tls(true).build()?;
    /// assert_eq!(runtime.run(|| 6 * 7), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn late_static_tls(mut self, keep: bool) -> Self {
        self.0.late_static_tls = Some(keep);
        self
    }

    /// Sets after how long the runtime warns, once, of a deadlock that may be none. Zero: never. Default:
    /// `MUNGO_DEADLOCK_WARNING`, else `MUNGO_DEBUG=deadlock=ms`, else 10 s.
    ///
    /// When all goroutines are asleep, a plain thread waits for one of them, and the process has no other threads, it
    /// ends with a report. With other threads (of a signal handler, of rayon, of tokio), any of them might still wake a
    /// goroutine; then this warning lists the goroutines and what they wait for, and the program goes on. The same
    /// goroutines in the same waits are not listed again.
    ///
    /// A `#[mungo::test]` fails after this time.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = mungo::Runtime::builder().deadlock_warning(Duration::ZERO).build()?; // never
    /// assert_eq!(runtime.run(|| 6 * 7), 42);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn deadlock_warning(mut self, after: Duration) -> Self {
        self.0.deadlock_warning = Some(after);
        self
    }
}
