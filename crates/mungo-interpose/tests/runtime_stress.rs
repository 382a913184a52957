//! The runtime's own `stress`, in a program whose blocking calls are interposed: nothing changes for it.
#![allow(unused_macros)] // of what the tests share

use mungo_interpose as _;

#[path = "../../mungo/tests/stress.rs"]
mod stress;
