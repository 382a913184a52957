//! A function that is called later.

use crate::context::hook::{Function, start};
use crate::sched::run::lock::Lock;
use crate::sched::timers::alarm::{self, Alarm, Alarmed, Here};
use crate::sys::clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A function that is to be called later: the result of [`after_func`].
///
/// Dropping it changes nothing: the function is called all the same.
///
/// ```
/// use std::time::Duration;
///
/// let late = mungo::time::after_func(Duration::from_secs(3600), || unreachable!("it was called off"));
/// assert!(late.stop());
/// assert!(!late.stop());
/// ```
pub struct AfterFunc {
    core: Arc<Core>,
}

struct Core {
    alarm: Alarm,
    /// The function, until it is started or called off.
    function: Lock<Option<Function>>,
}

/// Calls `f` in a goroutine of its own after `d`: Go's `time.AfterFunc`. With a `d` beyond the end of time: never.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let (tx, rx) = mungo::chan::bounded(1);
/// let start = Instant::now();
/// mungo::time::after_func(Duration::from_millis(2), move || tx.send(Instant::now()).unwrap());
/// assert!(rx.recv().unwrap() - start >= Duration::from_millis(2));
/// ```
///
/// # Panics
/// On a plain thread, if the default runtime cannot be started.
#[track_caller]
pub fn after_func(d: Duration, f: impl FnOnce() + Send + 'static) -> AfterFunc {
    let core = Arc::new(Core { alarm: Alarm::new(), function: Lock::new(Some(Function::new(f))) });
    let when_ns = clock::after_ns(d);
    if when_ns != u64::MAX {
        let _function = core.function.lock();
        // SAFETY: under the lock; it is not set.
        unsafe { alarm::set(&core, when_ns) };
    }
    AfterFunc { core }
}

impl AfterFunc {
    /// Calls the function off. Returns `true` if it will not be called because of this; `false` if it was started or
    /// called off before.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (tx, rx) = mungo::chan::bounded(1);
    /// let soon = mungo::time::after_func(Duration::from_millis(1), move || tx.send(1).unwrap());
    /// assert_eq!(rx.recv(), Ok(1));
    /// assert!(!soon.stop());
    /// ```
    pub fn stop(&self) -> bool {
        let mut function = self.core.function.lock();
        let taken = function.take();
        if taken.is_some() {
            // SAFETY: under the lock, with a count of our own. If it goes off now, it finds no function.
            unsafe { alarm::cancel(&*self.core) };
        }
        drop(function);
        taken.is_some() // dropped without the lock: it is the user's
    }
}

impl Alarmed for Core {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn ring(self: Arc<Core>, _: Here<'_>) {
        let function = self.function.lock().take();
        if let Some(function) = function {
            start(function);
        }
    }
}

impl fmt::Debug for AfterFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfterFunc").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn one_that_was_stopped_is_in_no_heap() {
        let runtime = crate::Runtime::builder().procs(1).build().expect("a runtime");
        let timers = || runtime.shared().all_ps().map(|p| p.timers.len()).sum::<usize>();
        let hour = Duration::from_secs(3600);
        let call = runtime.run(move || after_func(hour, || panic!("it was stopped")));
        assert_eq!(timers(), 1);
        assert!(call.stop() && !call.stop());
        assert_eq!(timers(), 0);
    }
}
