//! The small lock-free protocols, each in a type that a model can hold. They know neither goroutines nor threads.
//!
//! Further protocols with models: the wait queue (`sched/run/waitq.rs`), readiness (`sched/netpoll/readiness.rs`), the
//! mutex and the lock for readers and writers (`sync/mutex/core.rs`, `sync/rwlock/core.rs`), the queue of a channel
//! (`chan/queue/mod.rs`).

pub(crate) mod asymmetric_lock;
pub(crate) mod claim;
pub(crate) mod closing;
pub(crate) mod idle;
pub(crate) mod retired;
pub(crate) mod runq;
pub(crate) mod ticket;
pub(crate) mod wake;
