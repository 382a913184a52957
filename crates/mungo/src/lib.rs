#![doc = include_str!("tour.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod __private;
pub mod alloc;
mod block_on;
mod builder;
pub mod chan;
pub mod context;
mod cpus;
pub mod debug;
mod debug_env;
mod environment;
pub mod fs;
mod goroutine;
pub mod guide;
mod histogram;
#[cfg(feature = "hyper")]
pub mod hyper;
mod info;
#[doc(hidden)]
pub mod interpose;
mod labels;
#[cfg(mungo_own_tls)]
mod loading;
mod lock;
mod metrics;
pub mod net;
mod policies;
pub mod policy;
pub mod process;
#[cfg(all(feature = "profile", mungo_native))]
pub mod profile;
mod protocols;
mod reason;
mod runtime;
mod sched;
mod scope;
pub mod signal;
mod spawn;
mod stack;
pub mod sync;
mod sys;
mod testing;
pub mod time;
pub mod trace;
mod tracer;
#[cfg(all(mungo_own_tls, target_arch = "aarch64"))]
mod waiting;

pub use crate::block_on::block_on;
pub use crate::builder::RuntimeBuilder;
pub use crate::goroutine::{
    Goroutine, GoroutineId, OsThreadGuard, current, is_goroutine, lock_os_thread, park, park_timeout, yield_now,
};
pub use crate::histogram::Histogram;
pub use crate::info::{Info, ThreadLocals};
pub use crate::metrics::InterposedMetrics;
pub use crate::metrics::InterruptionMetrics;
pub use crate::metrics::Metrics;
pub use crate::metrics::ProcMetrics;
pub use crate::metrics::metrics;
#[cfg(feature = "prometheus")]
pub use crate::metrics::prometheus::MetricsCollector;
pub use crate::metrics::table::{Metric, MetricValue};
pub use crate::policy::{get_scheduler, set_scheduler};
pub use crate::reason::WaitReason;
pub use crate::runtime::{Runtime, ShutdownError, num_cpus, num_goroutines, procs, set_procs};
pub use crate::sched::engine::rank::{priority, set_priority};
#[doc(alias("spawn_blocking", "block_in_place"))]
pub use crate::sched::threads::blocking::blocking;
pub use crate::scope::{Scope, ScopedJoinHandle, scope};
pub use crate::spawn::{Builder, JoinHandle, go, spawn};
pub use crate::time::sleep;
#[cfg(feature = "macros")]
pub use mungo_macros::{main, test};

// The crate's page in a registry: its program is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
