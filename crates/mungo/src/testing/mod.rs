//! Runs what `#[mungo::test]` makes: a test that cannot hang.
//!
//! The test's thread does not join the main goroutine but watches it. If the test has deadlocked, or its time is
//! over, the thread panics with a dump, which fails the test, and leaves the runtime with its goroutines behind:
//! nothing can end them. The tests that follow have runtimes of their own.
//!
//! WHY NOT the detector of `sched/sysmon/deadlock.rs`: a test binary has threads of its harness, so it never fires; and
//! it would end the process, and the other tests with it.

mod seeds;

pub use seeds::{Outcome, run_seeds};

use crate::runtime::{Handed, Runtime};
use crate::sched::run::spawn::Spec;
use crate::sched::shared::Shared;
use crate::sched::sysmon::deadlock::{is_idle, stands_still};
use crate::spawn::JoinHandle;
use crate::sys::capture::Capture;
use std::io;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time from one look at a test that has not ended to the next.
const LOOK: Duration = Duration::from_millis(50);
/// The longest time that goroutines that can run when the test's main goroutine ends are waited for.
const AFTERMATH: Duration = Duration::from_secs(1);

/// The options of `#[mungo::test]` beside those that the runtime's builder takes.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct TestOptions {
    /// The time that the test may take; zero: no limit.
    timeout: Duration,
    fails_on_detached_panic: bool,
    /// The name and options of a policy; `None`: what the runtime's builder says, or `chaos` with seeds.
    policy: Option<&'static str>,
    /// Number of seeds to run with; 0: no seed.
    seeds: u64,
}

impl TestOptions {
    /// Makes the defaults: a time limit of a minute, and a detached goroutine's panic fails the test.
    #[allow(clippy::new_without_default)] // for the macro alone
    pub fn new() -> TestOptions {
        TestOptions { timeout: DEFAULT_TIMEOUT, fails_on_detached_panic: true, policy: None, seeds: 0 }
    }

    /// Sets the time that the test may take; zero: no limit.
    pub fn timeout(mut self, timeout: Duration) -> TestOptions {
        self.timeout = timeout;
        self
    }

    /// Sets the policy by its name, with options.
    pub fn policy(mut self, policy: &'static str) -> TestOptions {
        self.policy = Some(policy);
        self
    }

    /// Sets how many seeds the test runs with.
    pub fn seeds(mut self, seeds: u64) -> TestOptions {
        self.seeds = seeds;
        self
    }

    /// Sets what a detached goroutine's panic does: `"fail"` or `"ignore"`; the macro has checked it.
    pub fn detached_panics(mut self, what: &str) -> TestOptions {
        self.fails_on_detached_panic = what != "ignore";
        self
    }
}

/// Runs the body of a `#[mungo::test]`.
///
/// # Panics
/// Panics if the test fails, with a message that says why.
#[track_caller]
pub fn run_test<R: 'static>(
    runtime: io::Result<Runtime>,
    options: TestOptions,
    f: impl FnOnce() -> R + Send + 'static,
) -> R {
    // There are no closures around the panics: they shall name the test's line.
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => panic!("mungo: cannot start the runtime: {e}"),
    };
    if let Some(capture) = Capture::current() {
        _ = runtime.shared().output_capture.set(capture);
    }
    let spec = Spec { name: Some("main".into()), ..Spec::here() };
    // SAFETY: `'static`.
    let main = match unsafe { spec.spawn(Some(runtime.shared()), || Handed(f())) }.map(JoinHandle::new) {
        Ok(main) => main,
        Err(e) => panic!("mungo: cannot start the main goroutine: {e}"),
    };
    let result = match watch(runtime.shared(), main, options.timeout) {
        Ok(Ok(result)) => result.0,
        Ok(Err(payload)) => resume_unwind(payload),
        Err(why) => panic!("{why}\n{}", crate::sched::report::dump_runtime(runtime.shared())),
    };
    settle(runtime.shared());
    if options.fails_on_detached_panic
        && let Some(which) = runtime.shared().detached_panic.get()
    {
        panic!("mungo: a detached {which}");
    }
    result
}

/// Waits for the main goroutine. Returns its result, or why it is not waited for any longer.
fn watch<T>(
    shared: &Arc<Shared>,
    mut main: JoinHandle<T>,
    timeout: Duration,
) -> Result<std::thread::Result<T>, String> {
    let (start, waker) = (Instant::now(), Waker::from(Arc::new(Unpark(std::thread::current()))));
    let patience = Duration::from_nanos(shared.config.deadlock_warning_ns);
    let mut still: Option<(Instant, u64)> = None;
    loop {
        if let Poll::Ready(ended) = Pin::new(&mut main).poll(&mut Context::from_waker(&waker)) {
            return Ok(ended);
        }
        let now = Instant::now();
        if !timeout.is_zero() && now - start >= timeout {
            return Err(format!("mungo: the test has not ended within its time limit of {timeout:?}"));
        }
        let switches = shared.sum(|p| &p.counters.switches);
        still =
            stands_still(shared).then(|| still.filter(|seen| seen.1 == switches).unwrap_or((now, switches)));
        if let Some((since, _)) = still
            && !patience.is_zero()
            && now - since >= patience
        {
            return Err(format!(
                "mungo: deadlock: all goroutines of the test are asleep, and none was woken for {patience:?}"
            ));
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Lets runnable goroutines run, so that their panics are reported. Goroutines that wait are left behind.
fn settle(shared: &Shared) {
    let start = Instant::now();
    while shared.live() > 0 && !is_idle(shared) && start.elapsed() < AFTERMATH {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Wakes the test's thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
