//! A point where a fixed number of goroutines wait for each other.

use crate::reason::WaitReason;
use crate::sched::run::lock::Lock;
use crate::sched::run::waitq::{Node, Queue};

/// Lets `n` goroutines or threads wait for each other, again and again. As [`std::sync::Barrier`].
///
/// ```
/// use mungo::sync::Barrier;
///
/// let barrier = Barrier::new(3);
/// let leaders: usize = mungo::scope(|s| {
///     let all: Vec<_> = (0..3).map(|_| s.spawn(|| barrier.wait().is_leader())).collect();
///     all.into_iter().map(|g| usize::from(g.join().unwrap())).sum()
/// });
/// assert_eq!(leaders, 1);
/// ```
#[derive(Debug)]
pub struct Barrier {
    size: usize,
    gate: Lock<Gate>,
}

#[derive(Debug)]
struct Gate {
    /// Number of callers that have come and wait.
    arrived: usize,
    queue: Queue,
}

/// The result of [`Barrier::wait`].
///
/// ```
/// assert!(mungo::sync::Barrier::new(1).wait().is_leader());
/// ```
#[derive(Debug)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns `true` for exactly one of the callers that met: the last one.
    ///
    /// ```
    /// let alone = mungo::sync::Barrier::new(0);
    /// assert!(alone.wait().is_leader());
    /// ```
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// Makes a barrier that opens when `n` wait. 0 is as good as 1.
    ///
    /// ```
    /// static START: mungo::sync::Barrier = mungo::sync::Barrier::new(1);
    /// START.wait();
    /// ```
    #[must_use]
    pub const fn new(n: usize) -> Barrier {
        Barrier { size: n, gate: Lock::new(Gate { arrived: 0, queue: Queue::new() }) }
    }

    /// Waits until `n` callers are here, by the `n` of [`new`](Self::new). Then all go on, and it can be used again.
    ///
    /// ```
    /// let barrier = std::sync::Arc::new(mungo::sync::Barrier::new(2));
    /// let other = { let barrier = barrier.clone(); mungo::go(move || { barrier.wait(); }) };
    /// barrier.wait();
    /// other.join().unwrap();
    /// ```
    pub fn wait(&self) -> BarrierWaitResult {
        let node = Node::new(self, u64::MAX);
        let mut gate = self.gate.lock();
        gate.arrived += 1;
        if gate.arrived >= self.size {
            gate.arrived = 0;
            let others = gate.queue.pop_all();
            drop(gate);
            others.wake();
            return BarrierWaitResult(true);
        }
        // SAFETY: it leaves this frame when it was woken.
        unsafe { gate.queue.push_back(&node) };
        drop(gate);
        node.wait(WaitReason::Barrier);
        BarrierWaitResult(false)
    }
}
