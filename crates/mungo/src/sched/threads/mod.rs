//! Which threads have a P: how they sleep and wake, block and are replaced, are interrupted, and end.

pub(crate) mod blocking;
pub(crate) mod bound;
pub(crate) mod cap;
pub(crate) mod handoff;
pub(crate) mod mlist;
pub(crate) mod preempt;
pub(crate) mod setxid;
pub(crate) mod sleep;
pub(crate) mod starter;
pub(crate) mod strays;
