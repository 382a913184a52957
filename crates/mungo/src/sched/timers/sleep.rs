//! A sleep that is a future.

use crate::sched::run::lock::Lock;
use crate::sched::run::task;
use crate::sched::timers::alarm::{self, Alarm, Alarmed, Here};
use crate::sys::clock;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A future that is ready at its time and not before: [`sleep_async`]. Dropping it calls it off.
///
/// ```
/// use mungo::time::{Sleep, sleep_async};
/// use std::time::{Duration, Instant};
///
/// let before = Instant::now();
/// let sleep: Sleep = sleep_async(Duration::from_millis(1));
/// mungo::block_on(sleep);
/// assert!(before.elapsed() >= Duration::from_millis(1));
/// ```
///
/// # Panics
/// When polled on a plain thread, if the default runtime, whose timers it needs, cannot be started.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    core: Arc<Core>,
    deadline_ns: u64,
}

struct Core {
    alarm: Alarm,
    state: Lock<State>,
}

struct State {
    /// Whether the alarm is set.
    set: bool,
    /// Number of alarms that went off too late to be called off, and do not count.
    stale: u32,
    /// The waker of the task that polled last, and waits.
    waker: Option<Waker>,
}

/// Returns [`sleep`](crate::time::sleep) as a future, for tasks of any executor.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// mungo::block_on(mungo::time::sleep_async(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn sleep_async(d: Duration) -> Sleep {
    Sleep::until_ns(clock::after_ns(d))
}

/// Returns [`sleep_until`](crate::time::sleep_until) as a future, for tasks of any executor.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// mungo::block_on(mungo::time::sleep_until_async(deadline));
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until_async(deadline: Instant) -> Sleep {
    Sleep::until_ns(clock::at_ns(deadline))
}

impl Sleep {
    pub(crate) fn until_ns(deadline_ns: u64) -> Sleep {
        let state = Lock::new(State { set: false, stale: 0, waker: None });
        Sleep { core: Arc::new(Core { alarm: Alarm::new(), state }), deadline_ns }
    }

    /// Puts it off, or brings it forward. A task that waits for it goes on waiting, until the new time.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let mut sleep = mungo::time::sleep_async(Duration::from_secs(3600));
    /// sleep.reset(Instant::now());
    /// mungo::block_on(sleep);
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        let deadline_ns = clock::at_ns(deadline);
        if std::mem::replace(&mut self.deadline_ns, deadline_ns) == deadline_ns {
            return;
        }
        let mut state = self.core.state.lock();
        self.core.call_off(&mut state);
        if state.waker.is_some() {
            self.core.set(&mut state, self.deadline_ns);
        }
    }
}

impl Core {
    fn call_off(&self, state: &mut State) {
        // SAFETY: under the lock; `self` is in an `Arc` that the caller has a share of.
        if std::mem::take(&mut state.set) && !unsafe { alarm::cancel(self) } {
            state.stale += 1;
        }
    }

    fn set(self: &Arc<Core>, state: &mut State, deadline_ns: u64) {
        if deadline_ns != u64::MAX && !std::mem::replace(&mut state.set, true) {
            // SAFETY: under the lock, and it was not set. If an old one is going off, its node is in no heap.
            unsafe { alarm::set(self, deadline_ns) };
        }
    }
}

impl Alarmed for Core {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn ring(self: Arc<Core>, _: Here<'_>) {
        let mut state = self.state.lock();
        if state.stale > 0 {
            state.stale -= 1;
            return;
        }
        state.set = false;
        let waker = state.waker.take();
        drop(state);
        _ = waker.map(task::wake);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.deadline_ns <= clock::now_ns() {
            return Poll::Ready(());
        }
        // Wakers are cloned and dropped without the lock: they are user code.
        let waker = Some(cx.waker().clone());
        let mut state = self.core.state.lock();
        let old = std::mem::replace(&mut state.waker, waker);
        self.core.set(&mut state, self.deadline_ns);
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let mut state = self.core.state.lock();
        self.core.call_off(&mut state);
        let waker = state.waker.take();
        drop(state);
        drop(waker);
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").field("over", &(self.deadline_ns <= clock::now_ns())).finish_non_exhaustive()
    }
}
