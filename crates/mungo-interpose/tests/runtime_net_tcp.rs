//! The runtime's own `net_tcp`, in a program whose blocking calls are interposed: nothing changes for it.
#![allow(unused_macros)] // of what the tests share

use mungo_interpose as _;

#[path = "../../mungo/tests/net_tcp.rs"]
mod net_tcp;
