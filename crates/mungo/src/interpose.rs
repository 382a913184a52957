//! What `mungo-interpose` needs of the runtime: `sched/interpose`. Not for others: it may change with every release.

pub use crate::sched::interpose::{
    Caller, FutexWait, InKernel, Linked, Place, Refusal, Side, Slot, Totals, Wait, changes, futex_wait,
    futex_wake, is_on, link, may_be_goroutine, may_lock, note_change, note_fork, note_unusual_signals, now_ns,
    place, set_thread_names, thread_block, wake_goroutines,
};
#[cfg(all(mungo_own_tls, target_arch = "aarch64"))]
pub use crate::sched::interpose::{Waits, link_waits};
pub use crate::sys::next::Next;
