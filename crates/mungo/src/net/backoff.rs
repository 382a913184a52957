//! The pauses of an accept loop when the system is out of something: longer each time.

use crate::context::{Context, ContextError};
use std::io;
use std::time::Duration;

/// The pauses of an accept loop, from the shortest to the longest. Go's numbers.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1);

/// The pause before the next try.
#[derive(Debug, Default)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn wait(&self) {
        if !self.0.is_zero() {
            crate::time::sleep(self.0);
        }
    }

    /// As [`wait`](Self::wait), unless the context is done.
    pub(super) fn wait_with(&self, ctx: &Context) -> Result<(), ContextError> {
        if self.0.is_zero() { ctx.check() } else { ctx.sleep(self.0) }
    }

    pub(super) fn note<T>(&mut self, result: &io::Result<T>) {
        self.0 = match result {
            Err(e) if is_shortage(e) => (2 * self.0).clamp(SHORTEST, LONGEST),
            _ => Duration::ZERO,
        };
    }
}

/// Returns whether the error is a shortage: it may work later, and nothing is wrong with the listener.
fn is_shortage(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_longer_each_time_and_forgets() {
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        for _ in 0..10 {
            backoff.note::<()>(&Err(io::Error::from_raw_os_error(libc::EMFILE)));
            waits.push(backoff.0.as_millis());
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        backoff.note::<()>(&Err(io::Error::from_raw_os_error(libc::EINVAL)));
        assert_eq!(backoff.0, Duration::ZERO);
    }
}
