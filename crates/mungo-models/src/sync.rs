pub(crate) mod mutex {
    pub(crate) use super::mutex_core as core;
}

#[path = "../../mungo/src/sync/mutex/core.rs"]
pub(crate) mod mutex_core;
#[path = "../../mungo/src/sync/rwlock/core.rs"]
mod rwlock_core;

pub(crate) mod rt {
    pub(crate) use crate::sched::run::lock::Lock;

    /// Stands for the holder, without a priority: the models know none.
    pub(crate) struct Owner;

    impl Owner {
        pub(crate) fn new() -> Owner {
            Owner
        }

        pub(crate) fn note(&self) {}

        pub(crate) fn forget(&self) {}

        pub(crate) fn clear(&self) {}
    }

    pub(crate) mod inherit {
        pub(crate) fn is_on() -> bool {
            false
        }

        pub(crate) fn lend(_: &super::Owner) {}

        pub(crate) fn stop_waiting(_: &super::Owner, _: bool) {}
    }

    /// Parks at once.
    pub(crate) struct Spin;

    impl Spin {
        pub(crate) fn new() -> Spin {
            Spin
        }

        pub(crate) fn spin(&mut self) -> bool {
            false
        }
    }

    pub(crate) fn now_ns() -> u64 {
        1
    }

    thread_local! {
        /// Patience in ns. Time does not pass in a model: either no waiter starves (`u64::MAX`), or one that fails
        /// twice does (0).
        pub(crate) static PATIENCE_NS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    pub(crate) fn patience_ns() -> u64 {
        PATIENCE_NS.get()
    }

    pub(crate) fn yield_to_woken() {}
}
