#![doc = include_str!("README.md")]

#[cfg(not(loom))]
pub(crate) mod blocking;
#[cfg(not(loom))]
pub(crate) mod bound;
#[allow(dead_code)] // WHY: each kind of wait uses its own part
pub(crate) mod claim;
#[cfg(not(loom))]
pub(crate) mod deadlock;
#[cfg(not(loom))]
pub(crate) mod entry;
#[cfg(not(loom))]
pub(crate) mod find;
#[cfg(not(loom))]
pub(crate) mod g;
#[cfg(not(loom))]
pub(crate) mod global;
#[cfg(not(loom))]
pub(crate) mod handoff;
pub(crate) mod idle;
#[cfg(not(loom))]
pub(crate) mod m;
#[cfg(not(loom))]
pub(crate) mod monitor;
#[cfg(not(loom))]
pub(crate) mod p;
#[cfg(not(loom))]
pub(crate) mod park;
#[cfg(not(loom))]
pub(crate) mod preempt;
#[cfg_attr(loom, allow(unreachable_pub))]
pub(crate) mod reason;
pub(crate) mod runq;
#[cfg(not(loom))]
pub(crate) mod shared;
#[cfg(not(loom))]
pub(crate) mod task;
#[cfg(not(loom))]
pub(crate) mod thief;
pub(crate) mod ticket;
pub(crate) mod wake;
#[cfg(not(loom))]
pub(crate) mod watch;
#[cfg(not(loom))]
pub(crate) mod worker;

/// loom takes SeqCst accesses for AcqRel ones and knows the total order only of fences: where the proof leans on that
/// order, the model gets a fence. In the real program the accesses themselves are in it.
#[inline(always)]
pub(crate) fn total_order() {
    #[cfg(loom)]
    loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst); // ORDERING: above
}
