//! On aarch64 the runtime defines the sleeps and polls of C itself, and calls these functions on goroutines.

use crate::shims::{poll, select, time};
use mungo::interpose::Waits;

pub(super) static WAITS: Waits = Waits {
    clock_nanosleep: time::clock_nanosleep,
    poll: poll::poll,
    ppoll: poll::ppoll,
    select: select::select,
    pselect: select::pselect,
    epoll_wait: poll::epoll_wait,
    epoll_pwait: poll::epoll_pwait,
};
