//! Stacks and what lies on top of them.
//!
//! [`slab`] cuts big mappings into equal slots and pools them; [`guard`] makes the page that a
//! stack overflow hits; [`tls`] builds a goroutine's own thread block at the top of its slot;
//! [`coro`] switches between a worker's stack and a goroutine's; [`overflow`] reports an overflow.

pub(crate) mod coro;
pub(crate) mod guard;
#[cfg(mungo_native)]
pub(crate) mod inject;
pub(crate) mod overflow;
pub(crate) mod slab;
pub(crate) mod tls;

pub(crate) use slab::{Slot, SlotCache};
