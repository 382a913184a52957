//! The scheduler laboratory: what the programs `mungo` and `contestant` share.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod compare;
mod error;
mod interrupt;
mod listings;
mod machine;
mod names;
mod out;
mod policy;
mod preload;
mod progress;
mod report;
mod rng;
mod run;
mod stats;
mod top;
mod tour;
mod trace;
mod work;
mod workloads;

pub use bench::goroutines;
pub use cli::main;
pub use machine::{cpu_seconds, status_bytes};
pub use rng::mix;
