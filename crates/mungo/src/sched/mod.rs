#![doc = include_str!("README.md")]

pub(crate) mod config;
pub(crate) mod engine;
pub(crate) mod interpose;
pub(crate) mod netpoll;
pub(crate) mod pick;
#[cfg(all(feature = "profile", mungo_native))]
pub(crate) mod profile;
#[cfg(not(all(feature = "profile", mungo_native)))]
#[path = "profile_absent.rs"]
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod shared;
pub(crate) mod start;
pub(crate) mod sysmon;
pub(crate) mod threads;
pub(crate) mod timers;
pub(crate) mod traced;
