//! Descriptors of the program, as the shims know them: a slot for each number.
//!
//! Nothing here depends on the program's closing descriptors by a function that we see. A number may stand for another
//! file at any time, so before a wait that may last the descriptor is registered with the poller once more: the kernel
//! says EEXIST if number and file are the same as before. What was found out about a number ([`Slot::is_known`]) holds
//! for [`TRUST_NS`] of a wait, and is then found out again.
//!
//! Mode and time-outs belong to the open file, which may have many numbers, in this process and others. So a change by
//! any number ([`note_change`]) makes all slots forget: they have the count of changes at which they were asked.
//!
//! Slots are never freed; there are as many as the program had descriptors that waited, at a time.

use super::{Caller, Place};
use crate::reason::WaitReason;
use crate::sched::netpoll::{self, Direction, Record, Seen, Waited};
use crate::sched::run::task;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Length of a wait in ns, until which what is known about a descriptor is not checked. TUNED: guess: three system
/// calls of 0.3 µs each are nothing after 200 ms.
const TRUST_NS: u64 = 200_000_000;

const CHUNK: usize = 512;
/// Descriptors from this number on have no slot: calls that would wait for them are left to the kernel.
const LIMIT: usize = 1 << 20;

type Chunk = [AtomicPtr<Slot>; CHUNK];

static TABLE: [AtomicPtr<Chunk>; LIMIT / CHUNK] = [const { AtomicPtr::new(null_mut()) }; LIMIT / CHUNK];

/// Number of changes to the mode or a time-out of any descriptor, and 1.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// Returns the count of changes, to be asked before a descriptor is looked at.
pub fn changes() -> u64 {
    CHANGES.load(Acquire) // ORDERING: before the look, and with `note_change`
}

/// Notes that a descriptor's mode or time-out was changed: what is known of all descriptors may be wrong.
pub fn note_change() {
    CHANGES.fetch_add(1, Release); // ORDERING: with `changes`: what is asked after that is asked after the change
}

/// Returns whether a call from there may take locks of the runtime: not inside it, nor in a signal handler, which
/// may have interrupted their holder.
pub fn may_lock(place: Place) -> bool {
    match place {
        // A thread of a runtime that is between two goroutines: a handler may have interrupted it with a lock in hand.
        Place::Thread => task::with_runtime_of_thread(|_| ()).is_none(),
        Place::Goroutine(caller) => caller.may_suspend(),
        Place::Inside(_) => false,
    }
}

/// One of the two sides of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It can be read from, or accepts, or has ended.
    Read,
    /// It can be written to, or is connected.
    Write,
}

/// Why a goroutine cannot wait for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel does not poll it (a file, a directory), or has no memory for it, or there is no such descriptor.
    NotPolled,
    /// It belongs to a type of [`net`](crate::net), which waits for it by itself.
    Taken,
}

/// A descriptor number.
pub struct Slot {
    fd: RawFd,
    record: &'static Record,
    /// Number of times that the number was given back.
    closed: AtomicU32,
    /// Whether it was registered for this slot, the last time that anything was registered under this number.
    is_ours: AtomicBool,
    /// Whether it is registered for a type of `net`.
    is_nets: AtomicBool,
    /// What is known of each side: at this count of changes it blocked, had no time-out, and was registered; 0:
    /// nothing.
    knows_read: AtomicU64,
    knows_write: AtomicU64,
    /// Held by a goroutine that accepts or connects. std's, which parks goroutines: it is held over a system call that
    /// may block.
    one_at_a_time: Mutex<()>,
    /// Whether, besides, it is a stream whose short reads mean that there is no more: TCP.
    is_stream: AtomicBool,
}

/// One call's wait for a descriptor.
pub struct Wait {
    slot: &'static Slot,
    side: Side,
    seen: Seen,
    closed: u32,
}

impl Slot {
    /// Returns the slot of a descriptor that has one. Takes no lock and no memory.
    #[inline]
    pub fn find(fd: RawFd) -> Option<&'static Slot> {
        let n = usize::try_from(fd).ok().filter(|n| *n < LIMIT)?;
        // ORDERING: Acquire, both: what was written before it was published, in `of`.
        // SAFETY: never freed.
        unsafe { TABLE[n / CHUNK].load(Acquire).as_ref()?[n % CHUNK].load(Acquire).as_ref() }
    }

    /// Returns the slot of a descriptor. `None`: the number is too large.
    pub fn of(fd: RawFd) -> Option<&'static Slot> {
        if let Some(slot) = Slot::find(fd) {
            return Some(slot);
        }
        let n = usize::try_from(fd).ok().filter(|n| *n < LIMIT)?;
        let chunk = publish(&TABLE[n / CHUNK], || [const { AtomicPtr::new(null_mut()) }; CHUNK]);
        Some(publish(&chunk[n % CHUNK], || Slot {
            fd,
            record: Record::take(),
            closed: AtomicU32::new(0),
            is_ours: AtomicBool::new(false),
            is_nets: AtomicBool::new(false),
            knows_read: AtomicU64::new(0),
            knows_write: AtomicU64::new(0),
            one_at_a_time: Mutex::new(()),
            is_stream: AtomicBool::new(false),
        }))
    }

    fn direction(&self, side: Side) -> &'static Direction {
        match side {
            Side::Read => &self.record.read,
            Side::Write => &self.record.write,
        }
    }

    fn knows(&self, side: Side) -> &AtomicU64 {
        match side {
            Side::Read => &self.knows_read,
            Side::Write => &self.knows_write,
        }
    }

    /// Returns whether the descriptor, when it was last asked, blocked without a time-out and was registered.
    pub fn is_known(&self, side: Side) -> bool {
        self.knows(side).load(Relaxed) == CHANGES.load(Relaxed)
    }

    /// Notes that it blocks without a time-out, as was found out at this count of [`changes`].
    pub fn know(&self, side: Side, changes: u64) {
        self.knows(side).store(changes, Relaxed);
    }

    /// Notes that a read which takes less than there is room for leaves nothing behind.
    pub fn note_stream(&self) {
        self.is_stream.store(true, Relaxed);
    }

    /// Notes that the number may stand for another file.
    pub fn forget(&self) {
        self.is_stream.store(false, Relaxed);
        self.knows_read.store(0, Relaxed);
        self.knows_write.store(0, Relaxed);
    }

    /// Lets one goroutine at a time accept from it, or connect it, until the result is dropped. Parks the caller.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it belongs to a type of [`net`](crate::net): it does not block.
    pub fn is_nets(&self) -> bool {
        self.is_nets.load(Relaxed)
    }

    /// Begins a wait: what happens to the descriptor from here on ends it. To be followed by a try.
    #[inline]
    pub fn begin(&'static self, side: Side) -> Wait {
        let closed = self.closed.load(Acquire); // ORDERING: with `close`
        let seen =
            self.direction(side).readiness.seen().unwrap_or_else(|_| unreachable!("slots are not closed"));
        Wait { slot: self, side, seen, closed }
    }

    /// Registers the descriptor, unless it is already.
    pub fn register(&'static self, fd: RawFd) -> Result<(), Refusal> {
        if fd < 0 {
            return Err(Refusal::NotPolled);
        }
        // SAFETY: the kernel looks whether there is such a descriptor; nothing else is done with it.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        match self.record.register_anew(borrowed) {
            Ok(()) => {
                self.is_ours.store(true, Relaxed);
                self.is_nets.store(false, Relaxed);
                Ok(())
            }
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {
                if self.is_ours.load(Relaxed) {
                    Ok(())
                } else {
                    Err(Refusal::Taken)
                }
            }
            Err(_) => Err(Refusal::NotPolled),
        }
    }

    /// Returns whether a close has to be told: the number was registered here.
    pub fn is_registered(&self) -> bool {
        self.is_ours.load(Relaxed)
    }

    /// Closes the descriptor by `close`, and ends all waits for it.
    pub fn close<T>(&'static self, fd: RawFd, close: impl FnOnce() -> T) -> T {
        self.disown();
        // A copy of the descriptor would otherwise go on reporting under this number.
        if fd >= 0 {
            // SAFETY: as in `register`.
            self.record.deregister_anew(unsafe { BorrowedFd::borrow_raw(fd) });
        }
        let result = close();
        for direction in [&self.record.read, &self.record.write] {
            _ = direction.readiness.fire().map(|fired| fired.wake());
        }
        result
    }

    /// Notes that the number was given back, without an end to waits.
    pub fn disown(&self) {
        self.closed.fetch_add(1, AcqRel); // ORDERING: pairs with `begin` and `is_closed`
        self.is_ours.store(false, Relaxed);
        self.forget();
        // What the poller said of the old descriptor. The next one under this number is not there yet.
        self.record.read.forget_reads();
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("is_ours", &self.is_ours).finish_non_exhaustive()
    }
}

impl Wait {
    /// Parks the goroutine until something may have happened to the descriptor, at the most until `deadline_ns`.
    /// Returns `false` if the time is over.
    pub fn park(&self, _caller: Caller, reason: WaitReason, deadline_ns: u64) -> bool {
        let direction = self.slot.direction(self.side);
        netpoll::wait_registered(direction, self.slot.fd, self.seen, reason, deadline_ns) == Waited::TryAgain
    }

    /// As [`park`](Self::park), for as long after `since_ns` as what is known about the descriptor is trusted.
    pub fn park_trusting(&self, caller: Caller, reason: WaitReason, since_ns: u64) -> bool {
        self.park(caller, reason, since_ns + TRUST_NS)
    }

    /// Returns whether a read would be in vain: what comes next comes with an event that ends this wait.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.slot.is_stream.load(Relaxed) && self.slot.record.read.is_drained(self.seen)
    }

    /// Notes that a read, after this wait began, took less than there was room for.
    #[inline]
    pub fn note_drained(&self) {
        if self.slot.is_stream.load(Relaxed) {
            self.slot.record.read.note_drained(self.seen);
        }
    }

    /// Returns whether the number was closed since the wait began.
    pub fn is_closed(&self) -> bool {
        self.slot.closed.load(Acquire) != self.closed // ORDERING: with `close`
    }

    /// Begins the next wait of the same call.
    pub fn again(&mut self) {
        let closed = self.closed;
        *self = self.slot.begin(self.side);
        self.closed = closed;
    }

    /// Returns the slot.
    pub fn slot(&self) -> &'static Slot {
        self.slot
    }
}

impl std::fmt::Debug for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("side", &self.side).finish_non_exhaustive()
    }
}

/// Notes that a type of `net` registered the descriptor, or forgot it.
pub(crate) fn note_net(fd: BorrowedFd<'_>, is_nets: bool) {
    use std::os::fd::AsRawFd;
    // With shims a slot is made, so that they know at once that the descriptor does not block.
    let find = if super::is_linked() { Slot::of } else { Slot::find };
    if let Some(slot) = find(fd.as_raw_fd()) {
        slot.is_ours.store(false, Relaxed);
        slot.is_nets.store(is_nets, Relaxed);
        slot.forget();
    }
}

/// Returns what is at `place`, made by `make` if nothing is.
fn publish<T>(place: &'static AtomicPtr<T>, make: impl FnOnce() -> T) -> &'static T {
    let found = place.load(Acquire);
    if !found.is_null() {
        // SAFETY: never freed.
        return unsafe { &*found };
    }
    let made = Box::into_raw(Box::new(make()));
    // ORDERING: Release what was made, Acquire what another made.
    match place.compare_exchange(null_mut(), made, AcqRel, Acquire) {
        // SAFETY: never freed.
        Ok(_) => unsafe { &*made },
        Err(first) => {
            // SAFETY: not published. A record that it holds is lost, which happens once in a race for a number.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: never freed.
            unsafe { &*first }
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// A handler closes a descriptor on a worker's thread, which it interrupted with a lock in its hands.
    #[test]
    fn a_close_on_a_runtimes_thread_takes_no_lock() {
        let runtime = crate::Runtime::builder().procs(1).build().expect("a runtime");
        assert!(may_lock(Place::Thread), "a plain thread");
        let shared = runtime.shared().clone();
        let on_worker = std::thread::spawn(move || {
            task::adopt_thread(&shared);
            let may = may_lock(Place::Thread);
            task::leave_thread(&shared);
            may
        });
        assert!(!on_worker.join().expect("no panic"));
    }

    #[test]
    fn a_change_by_one_number_is_a_change_of_all() {
        let slot = Slot::of(77_777).expect("a slot");
        let before = changes();
        slot.know(Side::Read, before);
        assert!(slot.is_known(Side::Read) || changes() != before, "other tests may change something");
        note_change();
        assert!(!slot.is_known(Side::Read));
        slot.know(Side::Read, before);
        assert!(!slot.is_known(Side::Read), "it was asked before the change");
    }
}
