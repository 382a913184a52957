//! tour
use crate::error::Result;use crate::interrupt::Interrupt;use crate::out::Out;
pub(crate) fn run(_quick: bool, _out: &Out, _i: &Interrupt) -> Result<()> { Ok(()) }
