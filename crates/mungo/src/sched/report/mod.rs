//! What the scheduler says about itself when it is asked: dumps with stacks, SIGQUIT, schedtrace.
//!
//! Nothing here costs anything until it is called.

pub(crate) mod collect;
pub(crate) mod dump;
pub(crate) mod live;
pub(crate) mod memory;
pub(crate) mod overflow;
pub(crate) mod schedtrace;
pub(crate) mod sigquit;
pub(crate) mod stacks;
pub(crate) mod waits;

use dump::{Dump, DumpOptions};

/// Dumps the goroutines of one runtime. For plain threads.
pub(crate) fn dump_runtime(shared: &std::sync::Arc<crate::sched::shared::Shared>) -> Dump {
    collect::dump_of(&DumpOptions::new(), std::slice::from_ref(shared))
}
