//! Goroutines that wait for a futex: a table by address.
//!
//! A waiter compares the word and enters the table under its bucket's lock; a waker changes the word first and takes
//! the lock then. So either the waiter sees the new word, or the waker finds the waiter. A waker that finds a bucket
//! without waiters takes no lock, as in the kernel:
//!
//! ```text
//!   waiter                              waker
//!   bucket.parked += 1    (SeqCst)      change the word
//!   compare the word      (SeqCst)      fence (SeqCst), then look at bucket.parked
//! ```
//!
//! Plain threads wait in the kernel, and a wake-up must reach either kind. Each waker asks one kind and, if that had
//! too few, the other, so a wake-up is never lost; where both kinds wait they take turns, so neither starves. A thread
//! *inside the runtime* that waits in the kernel, for the lock of an allocator, goes first: it holds a P, without
//! which a goroutine that was woken instead could not run.
//!
//! A wake-up from inside the runtime (an allocator unlocks, or a signal handler interrupted the runtime), and on one of
//! the runtime's threads where no goroutine runs, must take no lock: the bucket is marked, and the runtime's helper
//! wakes all that wait there, which may cost some of them a look at their word in vain. Futexes allow that.

use super::{Caller, Place};
use crate::policies::order::HAND_OVER;
use crate::protocols::claim::{Claim, WOKEN};
use crate::reason::WaitReason;
use crate::sched::run::current::Running;
use crate::sched::run::g::{G, Switch};
use crate::sched::run::lock::Lock;
use crate::sched::run::park::Waiter;
use crate::sched::run::task;
use crate::sched::sysmon::helper;
use std::cell::Cell;
use std::ptr::{NonNull, null};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    fence,
};

/// Number of buckets. TUNED: guess: 64 KiB, so that 5,000 waiters on 5,000 addresses make lists of five.
const BUCKETS: usize = 1024;

/// The word of a locked mutex for which others wait, in std and in others that follow Drepper's "Futexes are tricky".
const CONTENDED: u32 = 2;

/// The waiters for some addresses.
#[repr(align(64))]
struct Bucket {
    /// Number of goroutines in the list, or about to enter it.
    parked: AtomicU32,
    /// Number of threads that wait in the kernel by way of a shim.
    in_kernel: AtomicU32,
    /// Number of those inside the runtime.
    pinned: AtomicU32,
    /// Whether threads have the next turn.
    threads_turn: AtomicBool,
    /// Whether the helper shall wake all.
    marked: AtomicBool,
    /// The goroutine that was woken last, and has not come back to wait for the same address; 0: none.
    woken: AtomicUsize,
    /// Number of wake-ups that shall still pass the P on: see [`HAND_OVER`].
    hand_over: AtomicU32,
    list: Lock<List>,
}

static TABLE: [Bucket; BUCKETS] = [const {
    Bucket {
        parked: AtomicU32::new(0),
        in_kernel: AtomicU32::new(0),
        pinned: AtomicU32::new(0),
        threads_turn: AtomicBool::new(false),
        marked: AtomicBool::new(false),
        woken: AtomicUsize::new(0),
        hand_over: AtomicU32::new(0),
        list: Lock::new(List { head: null(), tail: null() }),
    }
}; BUCKETS];

/// A goroutine that waits. It lies on its stack.
struct Parked {
    waiter: Waiter,
    claim: Claim,
    has_deadline: bool,
    address: usize,
    expected: u32,
    bits: u32,
    /// Neighbours, and whether it is in the list. Under the bucket's lock; `next` of one that was taken out is its
    /// waker's.
    next: Cell<*const Parked>,
    prev: Cell<*const Parked>,
    queued: Cell<bool>,
}

/// Waiters in the order in which they came.
struct List {
    head: *const Parked,
    tail: *const Parked,
}

// SAFETY: nodes are reached under the bucket's lock, or by the one waker that took them out.
unsafe impl Send for List {}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexWait {
    /// By a wake-up.
    Woken,
    /// At its deadline.
    TimedOut,
    /// At once: the word was not the expected one.
    Changed,
}

fn bucket_of(address: usize) -> &'static Bucket {
    // The low two bits of a futex are zero. Fibonacci hashing spreads neighbours.
    let hash = ((address >> 2) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &TABLE[(hash >> (64 - BUCKETS.ilog2())) as usize]
}

/// Returns a number that two goroutines, or one that waits for two addresses, hardly ever share.
fn identity(g: &G, address: usize) -> usize {
    std::ptr::from_ref(g).addr() ^ address.rotate_left(20)
}

impl List {
    /// # Safety
    /// The node stays where it is until it was woken or removed.
    unsafe fn push_back(&mut self, node: &Parked) {
        node.prev.set(self.tail);
        node.next.set(null());
        node.queued.set(true);
        // SAFETY: nodes in the list are alive, and the caller holds the lock.
        match unsafe { self.tail.as_ref() } {
            Some(tail) => tail.next.set(node),
            None => self.head = node,
        }
        self.tail = node;
    }

    fn remove(&mut self, node: &Parked) {
        node.queued.set(false);
        let (prev, next) = (node.prev.get(), node.next.get());
        // SAFETY: as above.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(next),
            None => self.head = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(prev),
            None => self.tail = prev,
        }
    }
}

/// Waiters that were taken out, to be woken by the caller, in their order.
struct Taken {
    head: *const Parked,
    tail: *const Parked,
    len: u32,
}

impl Bucket {
    /// Takes out at most `n` waiters that `wants` accepts.
    fn take(&self, n: u32, wants: impl Fn(&Parked) -> bool) -> Taken {
        let mut taken = Taken { head: null(), tail: null(), len: 0 };
        let mut list = self.list.lock();
        let mut at = list.head;
        // SAFETY: nodes in the list are alive: one that timed out waits for the lock before it leaves.
        while let Some(node) = unsafe { at.as_ref() }
            && taken.len < n
        {
            at = node.next.get();
            if !wants(node) {
                continue;
            }
            list.remove(node);
            self.parked.fetch_sub(1, Relaxed);
            if node.has_deadline && !node.claim.take(WOKEN) {
                continue; // the clock was first
            }
            node.next.set(null());
            // SAFETY: taken out and not woken yet.
            match unsafe { taken.tail.as_ref() } {
                Some(tail) => tail.next.set(node),
                None => taken.head = node,
            }
            taken.tail = node;
            taken.len += 1;
        }
        taken
    }
}

impl Bucket {
    /// Notes which goroutine a wake-up is for. Returns whether its caller shall let it have the P, lest it find the
    /// lock taken.
    fn shall_hand_over(&self, taken: &Taken) -> bool {
        // SAFETY: taken out and not woken yet.
        let Some(node) = (unsafe { taken.head.as_ref() }) else { return false };
        let Waiter::G(g) = &node.waiter else { return false };
        if node.expected != CONTENDED {
            return false;
        }
        self.woken.store(identity(g, node.address), Relaxed);
        let left = self.hand_over.load(Relaxed);
        self.hand_over.store(left.saturating_sub(1), Relaxed);
        left != 0
    }
}

impl Taken {
    /// Wakes them, by a plain thread or a goroutine in the runtime with a P; returns how many.
    fn wake(self, waker: Option<&Running>) -> u32 {
        let mut at = self.head;
        while let Some(node) = NonNull::new(at.cast_mut()) {
            // SAFETY: taken out and not woken yet; the link is read before it is woken and may be gone.
            unsafe {
                at = node.as_ref().next.get();
                Waiter::wake_by(waker, NonNull::new_unchecked(&raw mut (*node.as_ptr()).waiter));
            }
        }
        self.len
    }
}

/// Parks the calling goroutine while `*word == expected`, until a wake-up for `bits`, or until `deadline_ns`
/// (`u64::MAX`: for ever).
///
/// # Safety
/// `word` can be read, now. It may be gone when the wait ends.
pub unsafe fn futex_wait(
    caller: Caller,
    word: *const AtomicU32,
    expected: u32,
    bits: u32,
    deadline_ns: u64,
) -> FutexWait {
    // SAFETY: by the caller. First outside of the runtime, where a fault, should there be one, is the program's own.
    if unsafe { (*word).load(Relaxed) } != expected {
        return FutexWait::Changed;
    }
    let bucket = bucket_of(word.addr());
    if expected == CONTENDED && bucket.woken.load(Relaxed) == identity(caller.0, word.addr()) {
        bucket.woken.store(0, Relaxed);
        bucket.hand_over.store(HAND_OVER, Relaxed);
    }
    let node = Parked {
        waiter: Waiter::G(caller.0.into()),
        claim: Claim::new(),
        has_deadline: deadline_ns != u64::MAX,
        address: word.addr(),
        expected,
        bits,
        next: Cell::new(null()),
        prev: Cell::new(null()),
        queued: Cell::new(false),
    };
    {
        let mut list = bucket.list.lock();
        // ORDERING: SeqCst, both: see the module.
        bucket.parked.fetch_add(1, SeqCst);
        // SAFETY: by the caller.
        if unsafe { (*word).load(SeqCst) } != expected {
            bucket.parked.fetch_sub(1, Relaxed);
            return FutexWait::Changed;
        }
        // SAFETY: taken out by its waker, or removed below, before the frame ends.
        unsafe { list.push_back(&node) };
    }
    if node.waiter.wait_until(WaitReason::Futex.on(word.addr()), deadline_ns, &node.claim) {
        return FutexWait::Woken;
    }
    let mut list = bucket.list.lock();
    if node.queued.get() {
        list.remove(&node);
        bucket.parked.fetch_sub(1, Relaxed);
    }
    FutexWait::TimedOut
}

/// Wakes at most `n` waiters for `bits` at `address`, goroutines or threads. `kernel` wakes at most as many threads as
/// it is told; its result, or the total, is returned: a negative one is an error.
pub fn futex_wake(place: Place, address: usize, n: u32, bits: u32, kernel: impl Fn(u32) -> i64) -> i64 {
    // ORDERING: SeqCst: the caller has changed the word; see the module.
    fence(SeqCst);
    let bucket = bucket_of(address);
    if bucket.parked.load(Relaxed) == 0 {
        return kernel(n);
    }
    let threads_first = match place {
        Place::Inside(_) => true,
        _ if bucket.pinned.load(Relaxed) != 0 => true,
        _ => bucket.in_kernel.load(Relaxed) != 0 && bucket.threads_turn.fetch_xor(true, Relaxed),
    };
    let mut woken = 0;
    if threads_first {
        woken = kernel(n);
        if woken < 0 || woken >= i64::from(n) {
            return woken;
        }
    }
    woken += i64::from(wake_parked(place, bucket, address, n - woken as u32, bits));
    if !threads_first && woken < i64::from(n) {
        woken += kernel(n - woken as u32).max(0);
    }
    woken
}

/// Wakes all goroutines that wait at `address`, and no threads. Returns how many.
pub fn wake_goroutines(place: Place, address: usize) -> i64 {
    // ORDERING: SeqCst: as in `futex_wake`.
    fence(SeqCst);
    let bucket = bucket_of(address);
    match bucket.parked.load(Relaxed) {
        0 => 0,
        _ => i64::from(wake_parked(place, bucket, address, u32::MAX, u32::MAX)),
    }
}

fn wake_parked(place: Place, bucket: &'static Bucket, address: usize, n: u32, bits: u32) -> u32 {
    let caller = match place {
        Place::Thread => {
            if ask_own_helper(bucket) {
                return 0;
            }
            return bucket.take(n, |node| node.address == address && node.bits & bits != 0).wake(None);
        }
        Place::Goroutine(caller) if !caller.is_on_signal_stack() => caller,
        Place::Goroutine(caller) | Place::Inside(caller) => {
            bucket.marked.store(true, Relaxed);
            caller.0.shared().helper.ask(helper::FUTEXES);
            return 0; // it is not known, and a caller that is told so wakes another
        }
    };
    let (woken, hand_over) = caller.inside(|g| {
        let taken = bucket.take(n, |node| node.address == address && node.bits & bits != 0);
        let hand_over = n == 1 && bucket.shall_hand_over(&taken);
        // SAFETY: the M that runs this goroutine.
        if unsafe { &*g.m.load(Relaxed) }.p().is_none() {
            return (taken.wake(None), false);
        }
        // SAFETY: in the runtime, with a P, and without another proof of it.
        let running = unsafe { Running::retrieve(g) };
        let woken = taken.wake(Some(&running));
        // WHY NOT drop it: that may suspend, and the caller may be a signal handler.
        running.leak();
        (woken, hand_over)
    });
    if hand_over && caller.may_suspend() {
        // It was put in front of the others of this P.
        goroutine_yields();
    }
    woken
}

/// Leaves the waiters of a bucket to the helper, on a thread of a runtime that is between two goroutines: a signal
/// handler may have interrupted it with a lock in hand. Returns `false` on other threads, and when the helper may have
/// ended.
fn ask_own_helper(bucket: &Bucket) -> bool {
    task::with_runtime_of_thread(|shared| {
        bucket.marked.store(true, Relaxed);
        shared.helper.ask(helper::FUTEXES);
        // ORDERING: SeqCst: the helper of a runtime that stops looks for marks a last time after it saw that.
        fence(SeqCst);
        !shared.is_stopping()
    })
    .unwrap_or(false)
}

/// Lets the other goroutines of this P go first.
fn goroutine_yields() {
    if let Some(running) = Running::enter() {
        running.suspend(Switch::Yield);
    }
}

/// Wakes all that wait in marked buckets. Called by a runtime's helper.
pub(crate) fn serve_marked() {
    for bucket in &TABLE {
        if bucket.marked.load(Relaxed) && bucket.marked.swap(false, Relaxed) {
            bucket.take(u32::MAX, |_| true).wake(None);
        }
    }
}

/// Counts a thread that waits in the kernel for a futex, until it is dropped.
#[derive(Debug)]
pub struct InKernel {
    address: usize,
    pinned: bool,
}

impl InKernel {
    /// Counts the caller.
    pub fn new(place: Place, address: usize) -> InKernel {
        let pinned = matches!(place, Place::Inside(_));
        let bucket = bucket_of(address);
        bucket.in_kernel.fetch_add(1, Relaxed);
        bucket.pinned.fetch_add(u32::from(pinned), Relaxed);
        InKernel { address, pinned }
    }
}

impl Drop for InKernel {
    fn drop(&mut self) {
        let bucket = bucket_of(self.address);
        bucket.in_kernel.fetch_sub(1, Relaxed);
        bucket.pinned.fetch_sub(u32::from(self.pinned), Relaxed);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::sched::interpose::place;
    use crate::sched::run::current;

    /// A handler wakes on a worker's thread, which it interrupted with the bucket's lock in its hands.
    #[test]
    fn a_wake_up_on_a_runtimes_thread_takes_no_lock() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        let runtime = crate::Runtime::builder().procs(1).build().expect("a runtime");
        if !current::own_tls() {
            return;
        }
        let waiter = runtime.spawn(|| {
            let Place::Goroutine(caller) = place() else { unreachable!("a goroutine") };
            // SAFETY: a word that is always there.
            unsafe { futex_wait(caller, &WORD, 0, u32::MAX, u64::MAX) }
        });
        let bucket = bucket_of((&raw const WORD).addr());
        while bucket.parked.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        let shared = runtime.shared().clone();
        let worker = std::thread::spawn(move || {
            task::adopt_thread(&shared);
            let held = bucket.list.lock();
            let woken = futex_wake(Place::Thread, (&raw const WORD).addr(), 1, u32::MAX, |_| 0);
            drop(held);
            task::leave_thread(&shared);
            woken
        });
        assert_eq!(worker.join().expect("no panic"), 0, "it is not known");
        assert_eq!(waiter.join().expect("no panic"), FutexWait::Woken);
    }
}
