pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

    pub(crate) fn total_order() {
        // ORDERING: see the original in the runtime.
        loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    macro_rules! constant {
        ($($function:tt)*) => { $($function)* };
    }
    pub(crate) use constant;
}
