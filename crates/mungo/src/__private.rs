//! What the attributes `#[mungo::main]` and `#[mungo::test]` expand to. Not for other callers.

use crate::runtime::{self, Handed, Runtime};
use crate::sched::shared::Shared;
use crate::sched::start::default_runtime;
use std::io;
use std::sync::Arc;

pub use crate::testing::{Outcome, TestOptions, run_seeds, run_test};

#[track_caller]
fn hand_over<R>(shared: &Arc<Shared>, f: impl FnOnce() -> R + Send) -> R {
    runtime::run_on(shared, || Handed(f())).0
}

/// `#[mungo::main]` without options: the default runtime.
#[track_caller]
pub fn run_main<R>(f: impl FnOnce() -> R + Send) -> R {
    match default_runtime() {
        Ok(shared) => hand_over(shared, f),
        Err(e) => panic!("mungo: cannot start the runtime: {e}"),
    }
}

/// `#[mungo::main]` with options.
#[track_caller]
pub fn run_on<R>(runtime: io::Result<Runtime>, f: impl FnOnce() -> R + Send) -> R {
    match runtime {
        Ok(runtime) => hand_over(runtime.shared(), f),
        Err(e) => panic!("mungo: cannot start the runtime: {e}"),
    }
}
