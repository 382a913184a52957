//! mungo: Go's scheduler as a Rust library.
//!
//! Write plain blocking code, and run a million goroutines on a few threads.
//!
//! ```
//! let workers: Vec<_> = (0..1000u64).map(|i| mungo::go(move || i * 2)).collect();
//! let sum: u64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
//! assert_eq!(sum, 999_000);
//! ```

#[cfg(not(loom))]
pub mod alloc;
#[cfg(not(loom))]
mod block_on;
#[cfg(not(loom))]
mod builder;
#[cfg_attr(loom, allow(dead_code))]
pub mod chan;
#[cfg(not(loom))]
pub mod context;
#[cfg(not(loom))]
mod cpus;
#[cfg(not(loom))]
mod current;
#[cfg(not(loom))]
pub mod debug;
#[cfg(not(loom))]
mod debug_env;
#[cfg(not(loom))]
pub mod fs;
#[cfg(not(loom))]
mod goroutine;
#[cfg(all(feature = "hyper", not(loom)))]
pub mod hyper;
#[cfg(not(loom))]
mod info;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
pub mod net;
#[cfg_attr(loom, allow(dead_code))]
mod netpoll;
#[cfg(not(loom))]
pub mod policy;
#[cfg(not(loom))]
mod runtime;
#[cfg_attr(loom, allow(dead_code))]
mod sched;
#[cfg(not(loom))]
mod scope;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
mod stack;
#[cfg_attr(loom, allow(dead_code))]
pub mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
pub mod time;

#[cfg(not(loom))]
pub use api::*;

/// What users see.
#[cfg(not(loom))]
mod api {
    pub use crate::block_on::block_on;
    pub use crate::builder::RuntimeBuilder;
    pub use crate::goroutine::{
        Goroutine, GoroutineId, OsThreadGuard, current, lock_os_thread, park, park_timeout, yield_now,
    };
    pub use crate::info::{Info, ThreadLocals};
    #[cfg(feature = "prometheus")]
    pub use crate::metrics::prometheus::MetricsCollector;
    pub use crate::metrics::table::{Metric, MetricValue};
    pub use crate::metrics::{Histogram, Metrics, ProcMetrics};
    pub use crate::policy::{
        current_priority as priority, get_scheduler, set_current_priority as set_priority, set_scheduler,
    };
    pub use crate::runtime::{__private, Runtime, ShutdownError, num_cpus, num_goroutines, procs, set_procs};
    pub use crate::sched::blocking::blocking;
    pub use crate::sched::reason::WaitReason;
    pub use crate::scope::{Scope, ScopedJoinHandle, scope};
    pub use crate::spawn::{Builder, JoinHandle, go, spawn};
    pub use crate::time::sleep;
    #[cfg(feature = "macros")]
    pub use mungo_macros::{main, test};
}
