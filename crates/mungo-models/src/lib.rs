//! The runtime's lock-free protocols under loom: their very source files, and doubles of what they need of the runtime.
//!
//! Each module has the name that it has in the runtime, so that the protocols find the doubles by the same paths. Empty
//! without `--cfg loom`; `ci/loom.sh` runs the models, which stand at the end of each protocol's file.

#![cfg(loom)]
#![allow(dead_code, unreachable_pub)] // a model needs less than a runtime

mod chan;
#[path = "../../mungo/src/protocols/mod.rs"]
mod protocols;
#[path = "../../mungo/src/reason.rs"]
mod reason;
mod sched;
mod sync;
mod sys;
