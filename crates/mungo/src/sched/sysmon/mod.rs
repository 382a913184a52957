//! The monitor: what it sees, what it asks its helper for, and when nothing can go on any more.

pub(crate) mod deadlock;
pub(crate) mod helper;
pub(crate) mod monitor;
mod sight;
pub(crate) mod watch;
