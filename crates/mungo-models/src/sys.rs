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

/// Stands for the kernel's queues of sleeping threads: one for all words.
pub(crate) mod futex {
    use super::atomic::AtomicU32;
    use loom::sync::{Condvar, Mutex};
    use std::sync::atomic::Ordering::Relaxed;

    loom::lazy_static! {
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(crate) fn wait(word: &AtomicU32, expected: u32, _deadline_ns: Option<u64>) -> bool {
        let guard = SLEEPERS.0.lock().unwrap();
        super::atomic::total_order(); // the kernel's, before it looks at the word
        if word.load(Relaxed) == expected {
            drop(SLEEPERS.1.wait(guard).unwrap());
        }
        true
    }

    pub(crate) fn wake(_word: &AtomicU32, _n: u32) {
        super::atomic::total_order(); // the kernel's, before it looks for sleepers
        let _guard = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_one();
    }
}

/// Both halves are fences.
pub(crate) mod membarrier {
    pub(crate) use super::atomic::{total_order as heavy, total_order as light};

    pub(crate) fn is_present() -> bool {
        true
    }
}

pub(crate) mod spin {
    /// Looks once.
    pub(crate) fn spin(mut is_done: impl FnMut() -> bool) -> bool {
        is_done()
    }
}
