//! The words for a goroutine that has overflowed its stack.

use crate::sched::run::current;
use crate::sys::say::say;
use std::sync::atomic::Ordering::Relaxed;

/// Ends the process, if `address` is in the guard page of the calling goroutine. In a signal handler: it allocates
/// nothing.
pub(crate) fn report(address: usize) {
    if let Some(g) = current::g()
        && g.slot().is_some_and(|slot| slot.guard().contains(&address))
    {
        let (id, name) = (g.id.load(Relaxed), g.name().unwrap_or("<unnamed>"));
        say!(
            "\nmungo: goroutine {id} '{name}' has overflowed its stack\n\
             mungo: it was spawned at {}; see Builder::stack_size",
            g.place()
        );
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
}
