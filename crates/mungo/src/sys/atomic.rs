//! The atomics of the protocols that models check. The crate `mungo-models` compiles these protocols with a double of
//! this file, in which they are loom's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// Adds a fence to models: loom takes SeqCst accesses for AcqRel ones and knows the total order only of fences. The
/// proofs that lean on that order need it. In the real program the accesses themselves are in the order.
#[inline(always)]
pub(crate) fn total_order() {}

/// Declares a function that is `const`, but not in models: loom's atomics cannot be made in a constant.
macro_rules! constant {
    ($visibility:vis fn $($rest:tt)*) => { $visibility const fn $($rest)* };
}
pub(crate) use constant;
