//! Whether one direction of a descriptor may be worth another try, and the waiters for that.
//!
//! An event count. A reader asks for the count ([`seen`](Readiness::seen)), tries, and if the kernel has nothing for
//! it, waits for the count to change ([`wait`](Readiness::wait)). Each event of the poller changes it
//! ([`fire`](Readiness::fire)). So an event between the try and the wait is not lost, and one too many, be it stale or
//! meant for another reader, costs a try and does no harm.
//!
//! All waiters are woken by each event, and try again: with edge triggering the event is the last one until a reader
//! has seen the kernel empty-handed.
//!
//! WHY NOT Go's word with one waiter, and a lock around each read: here any goroutine may read through `&`, and one
//! that need not wait pays for no lock.

use crate::reason::WaitReason;
use crate::sched::run::lock::Lock;
use crate::sched::run::waitq::{Node, PoppedList, Queue};
use crate::sys::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::task::{Context, Waker};

/// A bit: there are waiters. Set and cleared under the lock.
const WAITING: u64 = 1;
/// A bit: no more waiting here. Set under the lock.
const CLOSED: u64 = 2;
/// One event in the count. Without `WAITING` it is added without the lock.
const EVENT: u64 = 4;

/// One direction of a descriptor.
pub(crate) struct Readiness {
    /// The number of events so far, [`CLOSED`] and [`WAITING`].
    word: AtomicU64,
    waiting: Lock<Waiting>,
}

struct Waiting {
    queue: Queue,
    /// A task that waits.
    waker: Option<Waker>,
    /// Further tasks, if several use one direction.
    others: Vec<Waker>,
}

/// Number of tasks that wait beside the first. One more wakes the oldest: it polls again, and takes a place in its
/// turn. So wakers of futures that are gone do not pile up.
const OTHERS: usize = 8;

/// The count that was seen before a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Returns it as a number, which is not `u64::MAX`.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// An error: the direction was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// Says how a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Something happened: try again.
    TryAgain,
    TimedOut,
}

/// Says whether a task will be woken.
#[derive(Debug)]
pub(crate) enum Registered {
    Fresh,
    /// Yes, in place of this one, which may be the same.
    InsteadOf(Waker),
    /// Something happened: try again.
    No,
}

/// The waiters that the caller must wake, after it let go of its locks.
#[must_use = "they sleep for ever unless they are woken"]
pub(crate) struct Fired {
    pub(crate) popped: PoppedList,
    pub(crate) waker: Option<Waker>,
    pub(crate) others: Vec<Waker>,
}

impl Readiness {
    pub(crate) fn new() -> Readiness {
        let waiting = Waiting { queue: Queue::new(), waker: None, others: Vec::new() };
        Readiness { word: AtomicU64::new(0), waiting: Lock::new(waiting) }
    }

    /// Returns the count. To be asked before each try.
    #[inline]
    pub(crate) fn seen(&self) -> Result<Seen, Closed> {
        // ORDERING: Acquire, so that the try comes after it: the kernel reported an event that counts as seen before
        // the try.
        let word = self.word.load(Acquire);
        if word & CLOSED != 0 { Err(Closed) } else { Ok(Seen(word & !WAITING)) }
    }

    /// Waits for an event after what was seen, at the most until `deadline_ns`. A close counts as one.
    pub(crate) fn wait(&self, seen: Seen, reason: WaitReason, node: &Node) -> Waited {
        let mut waiting = self.waiting.lock();
        if !self.announce(seen) {
            return Waited::TryAgain;
        }
        // SAFETY: removed below, or popped by the thread that wakes it, before the frame of the node ends.
        unsafe { waiting.queue.push_back(node) };
        drop(waiting);
        if node.wait(reason) {
            return Waited::TryAgain;
        }
        let mut waiting = self.waiting.lock();
        waiting.queue.remove(node);
        if waiting.queue.is_empty() && waiting.waker.is_none() {
            self.word.fetch_and(!WAITING, Relaxed);
        }
        Waited::TimedOut
    }

    /// As [`wait`](Self::wait), for a task.
    pub(crate) fn register(&self, seen: Seen, cx: &Context<'_>) -> Registered {
        // Cloning and dropping wakers may run any code: not under the lock.
        let fresh = cx.waker().clone();
        let mut waiting = self.waiting.lock();
        if !self.announce(seen) {
            return Registered::No;
        }
        let Waiting { waker, others, .. } = &mut *waiting;
        if waker.as_ref().is_none_or(|waker| waker.will_wake(&fresh)) {
            return waker.replace(fresh).map_or(Registered::Fresh, Registered::InsteadOf);
        }
        if let Some(same) = others.iter_mut().find(|other| other.will_wake(&fresh)) {
            return Registered::InsteadOf(std::mem::replace(same, fresh));
        }
        others.push(fresh);
        if others.len() > OTHERS { Registered::InsteadOf(others.remove(0)) } else { Registered::Fresh }
    }

    /// Sets `WAITING`, under the lock, so that events come to the lock. Returns `false` if one came since `seen`.
    fn announce(&self, seen: Seen) -> bool {
        // ORDERING: Release: the queue is under the lock, nothing else is published. Relaxed otherwise: a waiter that
        // is told to try again asks for the count first.
        let marked = self.word.compare_exchange(seen.0, seen.0 | WAITING, Release, Relaxed);
        marked.is_ok() || marked == Err(seen.0 | WAITING)
    }

    /// Counts an event. Returns the waiters to wake, if any.
    #[inline]
    pub(crate) fn fire(&self) -> Option<Fired> {
        let mut word = self.word.load(Relaxed);
        while word & WAITING == 0 {
            // ORDERING: Release pairs with `seen`.
            match self.word.compare_exchange_weak(word, word.wrapping_add(EVENT), Release, Relaxed) {
                Ok(_) => return None,
                Err(now) => word = now,
            }
        }
        Some(self.fire_waiting(0))
    }

    /// Counts the last event: from here on no wait begins. Returns the waiters to wake.
    pub(crate) fn close(&self) -> Fired {
        self.fire_waiting(CLOSED)
    }

    fn fire_waiting(&self, and: u64) -> Fired {
        let mut waiting = self.waiting.lock();
        let mut word = self.word.load(Relaxed);
        // ORDERING: AcqRel: Release pairs with `seen`. It can fail only while there are no waiters.
        while let Err(now) =
            self.word.compare_exchange_weak(word, (word & !WAITING).wrapping_add(EVENT) | and, AcqRel, Relaxed)
        {
            word = now;
        }
        Fired {
            popped: waiting.queue.pop_all(),
            waker: waiting.waker.take(),
            others: std::mem::take(&mut waiting.others),
        }
    }

    /// Makes it ready for another descriptor; no thread knows this one.
    pub(crate) fn reopen(&self) {
        self.word.fetch_and(!CLOSED, Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    /// Stands for the kernel: bytes that are there before the poller says so.
    struct Pipe {
        bytes: AtomicUsize,
        readiness: Readiness,
    }

    impl Pipe {
        fn new() -> Arc<Pipe> {
            Arc::new(Pipe { bytes: AtomicUsize::new(0), readiness: Readiness::new() })
        }

        fn arrive(&self) {
            self.bytes.fetch_add(1, AcqRel);
            if let Some(fired) = self.readiness.fire() {
                fired.popped.wake();
            }
        }

        fn read(&self) -> Result<(), Closed> {
            loop {
                let seen = self.readiness.seen()?;
                if self.bytes.fetch_update(AcqRel, Acquire, |n| n.checked_sub(1)).is_ok() {
                    return Ok(());
                }
                let node = Node::new(&0usize, u64::MAX);
                assert_eq!(self.readiness.wait(seen, WaitReason::NetRead, &node), Waited::TryAgain);
            }
        }
    }

    #[test]
    fn loom_no_event_is_lost() {
        loom::model(|| {
            let pipe = Pipe::new();
            let reader = {
                let pipe = pipe.clone();
                loom::thread::spawn(move || pipe.read().unwrap())
            };
            pipe.arrive();
            reader.join().unwrap(); // hangs, which loom reports, if the event was lost
        });
    }

    #[test]
    fn loom_two_readers_and_two_events() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let pipe = Pipe::new();
            let readers = [(); 2].map(|()| {
                let pipe = pipe.clone();
                loom::thread::spawn(move || pipe.read().unwrap())
            });
            pipe.arrive();
            pipe.arrive();
            readers.into_iter().for_each(|r| r.join().unwrap());
        });
    }

    #[test]
    fn loom_close_ends_the_wait() {
        loom::model(|| {
            let pipe = Pipe::new();
            let reader = {
                let pipe = pipe.clone();
                loom::thread::spawn(move || pipe.read())
            };
            pipe.readiness.close().popped.wake();
            assert_eq!(reader.join().unwrap(), Err(Closed));
        });
    }
}
