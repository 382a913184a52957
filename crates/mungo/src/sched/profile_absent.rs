//! The twin of profiles where there are none: without the feature `profile`, or on another platform.

use super::run::g::G;
use super::run::p::P;
use super::shared::Shared;

/// Time between two samples of a P that is aimed at, in ns. Not used.
pub(crate) const PERIOD_NS: u64 = 1_000_000;

#[inline(always)]
pub(crate) fn waits_are_on() -> bool {
    false
}

#[inline(always)]
pub(crate) fn is_long(_: &G) -> bool {
    false
}

#[inline(always)]
pub(crate) fn gained(_: &Shared, _: &P) {}

#[inline(always)]
pub(crate) fn woken(_: &G, _: u64, _: Option<u64>, _: u64) -> bool {
    false
}

#[inline(always)]
pub(crate) fn ran(_: &G, _: u64, _: u64) {}

pub(crate) fn is_thread_alive() -> bool {
    false
}

pub(crate) fn start_as_asked(_: Option<std::time::Duration>) {}
