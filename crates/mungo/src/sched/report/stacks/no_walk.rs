//! The twin of the walk where traces have no stacks.

use crate::sched::run::g::G;
use crate::sched::run::m::M;

pub(crate) fn know_code() {}

#[inline(always)]
pub(crate) fn of_suspended(_: &G) -> u32 {
    0
}

#[inline(always)]
pub(crate) fn of_interrupted(_: &M, _: &G) -> u32 {
    0
}
