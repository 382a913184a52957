//! The life of a goroutine: made, run, parked, woken, ended.

pub(crate) mod current;
pub(crate) mod g;
pub(crate) mod lock;
pub(crate) mod m;
pub(crate) mod p;
pub(crate) mod panic_hook;
pub(crate) mod park;
pub(crate) mod parker;
pub(crate) mod sample;
pub(crate) mod scope;
pub(crate) mod spawn;
pub(crate) mod task;
pub(crate) mod waitq;
pub(crate) mod worker;
