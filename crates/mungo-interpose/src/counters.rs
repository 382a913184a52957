//! How often each function was called by a goroutine, and what came of it.
#![allow(dead_code)] // where there are no shims nothing counts

use mungo::interpose::{Linked, Totals};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of counters among which the calls that pass are spread, so that threads seldom share one.
const STRIPES: usize = 8;

/// The counters of a function.
#[repr(align(64))]
pub(crate) struct Counter {
    name: &'static str,
    parked: AtomicU64,
    fell_back: AtomicU64,
    passed: [Stripe; STRIPES],
}

#[repr(align(64))]
struct Stripe(AtomicU64);

impl Counter {
    const fn new(name: &'static str) -> Counter {
        let (parked, fell_back) = (AtomicU64::new(0), AtomicU64::new(0));
        Counter { name, parked, fell_back, passed: [const { Stripe(AtomicU64::new(0)) }; STRIPES] }
    }

    /// Counts a call that was done at once.
    #[inline(always)]
    pub(crate) fn pass(&self) {
        let here = 0_u8;
        // Stacks lie 256 KiB apart or so, and a page more or less.
        let at = (&raw const here).addr() >> 18;
        self.passed[at % STRIPES].0.fetch_add(1, Relaxed);
    }

    /// Counts a call that parks.
    pub(crate) fn park(&self) {
        self.parked.fetch_add(1, Relaxed);
    }

    /// Counts a call that is left to the kernel.
    pub(crate) fn fall_back(&self) {
        self.fell_back.fetch_add(1, Relaxed);
    }

    fn counts(&self) -> Counts {
        Counts {
            function: self.name,
            passed: self.passed.iter().map(|stripe| stripe.0.load(Relaxed)).sum(),
            parked: self.parked.load(Relaxed),
            fell_back: self.fell_back.load(Relaxed),
        }
    }
}

macro_rules! counters {
    ($($name:ident)*) => {
        $(#[allow(non_upper_case_globals)] pub(crate) static $name: Counter = Counter::new(stringify!($name));)*
        static ALL: &[&Counter] = &[$(&$name),*];
    };
}

// One for each function; `futex` is `syscall` with that number.
counters! {
    accept accept4 clock_nanosleep connect epoll_wait fcntl fdatasync flock fsync futex getaddrinfo lockf
    mq_receive mq_send msgrcv msgsnd poll ppoll pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readv recv
    recvfrom recvmmsg recvmsg sched_yield select semop send sendfile64 sendmmsg sendmsg sendto sigsuspend sigwait
    splice tcdrain tee vmsplice waitid waitpid write writev
}

/// For waits of a call that is counted already.
pub(crate) static UNCOUNTED: Counter = Counter::new("");

/// What goroutines' calls of one function came to, since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// The name of the C function. `futex` stands for `syscall(SYS_futex, ..)`.
    pub function: &'static str,
    /// Number of calls that were done at once.
    pub passed: u64,
    /// Number of calls that parked the goroutine.
    pub parked: u64,
    /// Number of calls that were left to the kernel, and may have blocked a thread.
    pub fell_back: u64,
}

/// Returns what goroutines' calls came to, function by function. Calls of plain threads are not counted.
///
/// ```
/// use std::time::Duration;
///
/// mungo::go(|| std::thread::sleep(Duration::from_millis(1))).join().unwrap();
/// let sleeps = mungo_interpose::counts().find(|c| c.function == "clock_nanosleep").unwrap();
/// assert_eq!((sleeps.parked, sleeps.fell_back), (1, 0));
/// ```
pub fn counts() -> impl Iterator<Item = Counts> {
    ALL.iter().map(|counter| counter.counts())
}

/// What the runtime asks, for [`mungo::Metrics`] and for dumps.
pub(crate) static LINKED: Linked = Linked { totals, left };

fn left() -> Vec<(&'static str, u64)> {
    counts().filter(|c| c.fell_back != 0).map(|c| (c.function, c.fell_back)).collect()
}

/// Returns the sums.
fn totals() -> Totals {
    counts().fold(Totals::default(), |sum, c| Totals {
        passed: sum.passed + c.passed,
        parked: sum.parked + c.parked,
        fell_back: sum.fell_back + c.fell_back,
    })
}
