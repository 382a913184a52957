//! Time: sleeping, timers, and deadlines for work.
//!
//! ```
//! use mungo::chan::{bounded, select};
//! use mungo::time::{Ticker, Timer};
//! use std::time::Duration;
//!
//! let (_tx, rx) = bounded::<u32>(0);
//! let patience = Timer::new(Duration::from_millis(20));
//! let beat = Ticker::new(Duration::from_millis(1));
//! let mut beats = 0;
//! loop {
//!     select! {
//!         recv(rx) -> _ => unreachable!("there is no sender"),
//!         recv(beat.c()) -> _ => beats += 1,
//!         recv(patience.c()) -> _ => break,
//!     }
//! }
//! assert!(beats > 0);
//! ```

mod after_func;
mod interval;
mod ticker;
mod timeout;
mod timer;

pub use crate::chan::missed::MissedTicks;
pub use crate::sched::timers::sleep::{Sleep, sleep_async, sleep_until_async};
pub use after_func::{AfterFunc, after_func};
pub use interval::interval;
pub use ticker::Ticker;
pub use timeout::{Elapsed, timeout};
pub use timer::Timer;

use crate::sched::run::current::Running;
use crate::sched::timers::sleep_entered;
use crate::sys::clock;
use std::time::{Duration, Instant};

/// Puts the calling goroutine to sleep for at least `d`; its processor runs others meanwhile.
///
/// On a plain thread this is [`std::thread::sleep`].
///
/// ```
/// use std::time::{Duration, Instant};
///
/// mungo::go(|| {
///     let t = Instant::now();
///     mungo::sleep(Duration::from_millis(5));
///     assert!(t.elapsed() >= Duration::from_millis(5));
/// })
/// .join()
/// .unwrap();
/// ```
pub fn sleep(d: Duration) {
    let Some(running) = Running::enter() else { return std::thread::sleep(d) };
    if d.is_zero() {
        drop(running);
        return crate::goroutine::yield_now();
    }
    sleep_entered(running, clock::after_ns(d));
}

/// Sleeps until `deadline`, and not at all if that has passed.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(3);
/// mungo::time::sleep_until(deadline);
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until(deadline: Instant) {
    match Running::enter() {
        Some(running) if deadline > Instant::now() => sleep_entered(running, clock::at_ns(deadline)),
        Some(_) => {}
        None => std::thread::sleep(deadline.saturating_duration_since(Instant::now())),
    }
}
