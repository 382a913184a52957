//! Threads of the program that are goroutines: what `pthread_create` of `mungo-interpose` asks the runtime.

use super::{Place, forked, place};
use crate::sched::run::current;
use crate::sched::start::default_runtime;
use crate::stack::tls;
use crate::sys::thread;

/// Returns whether a thread that the caller is about to start may be a goroutine: it is not one of the runtime's own,
/// the caller is not inside the runtime, and goroutines have their own thread-locals here. Starts the default runtime
/// if there is none yet.
pub fn may_be_goroutine() -> bool {
    if thread::is_own()
        || forked::is_child()
        || !crate::debug_env::get().interpose
        || matches!(place(), Place::Inside(_))
    {
        return false;
    }
    current::own_tls() || (default_runtime().is_ok() && current::own_tls())
}

/// Returns the thread pointer; on x86-64 it is what the C library's `pthread_self` returns.
#[inline]
pub fn thread_block() -> usize {
    tls::thread_pointer()
}

/// Tells which thread block an odd number stands for that a program uses as a `pthread_t`; 0: none.
pub fn set_thread_names(find: fn(libc::pthread_t) -> usize) {
    tls::set_names(find);
}
