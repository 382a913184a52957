//! The poller's record of a descriptor.
//!
//! Records are pooled and never freed: an event that comes late finds the record of another descriptor, or of none,
//! and its generation tells. Even if it did not, the worst would be a try in vain (see `readiness.rs`).

use crate::sched::netpoll::poller::{HANGUP_OR_ERROR, READABLE, WRITABLE, poller, wake_tasks};
use crate::sched::netpoll::readiness::{Fired, Readiness, Seen};
use crate::sched::run::lock::Lock;
use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::null;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Number of records that are made at a time.
const CHUNK: usize = 32;
/// Bits of an address that are zero, and bits that no address of a program has.
const ALIGN_BITS: u32 = 7;
const ADDRESS_BITS: u32 = 48;
const GENERATIONS: u32 = 1 << (64 - ADDRESS_BITS + ALIGN_BITS);

/// A descriptor, as the poller sees it.
#[repr(align(128))]
pub(crate) struct Record {
    /// Changes when the record passes to another descriptor.
    generation: AtomicU32,
    /// Whether the kernel knows the descriptor. Written under `changing`.
    registered: AtomicBool,
    changing: Lock<()>,
    pub(crate) read: Direction,
    pub(crate) write: Direction,
    /// Whether operations return `WouldBlock` rather than wait.
    pub(crate) nonblocking: AtomicBool,
    /// The next free one. Under the pool's lock.
    next: Cell<*const Record>,
}

/// One direction and its settings.
pub(crate) struct Direction {
    pub(crate) readiness: Readiness,
    /// Time in ns that an operation may take; `u64::MAX`: as long as it takes.
    pub(crate) timeout_ns: AtomicU64,
    /// Time on the monotonic clock, in ns, until which operations may take at the most.
    pub(crate) deadline_ns: AtomicU64,
    /// The last [`Seen`] after which a read took all there was: another one before the next event is in vain.
    drained: AtomicU64,
    /// Whether there may be the end, an error or urgent data after a short read, and no further event for it. Written
    /// by the poller, before the event counts.
    peculiar: AtomicBool,
}

/// A value of `Direction::drained`: nothing is known.
const UNKNOWN: u64 = u64::MAX;

// SAFETY: `next` is used under the pool's lock only.
unsafe impl Sync for Record {}
// SAFETY: as above.
unsafe impl Send for Record {}

struct Free(*const Record);

// SAFETY: records may be used by any thread.
unsafe impl Send for Free {}

static FREE: Lock<Free> = Lock::new(Free(null()));

impl Fired {
    /// Wakes the waiters. By a goroutine or a plain thread.
    pub(crate) fn wake(self) {
        self.popped.wake();
        wake_tasks(self.waker.into_iter().chain(self.others));
    }
}

impl Direction {
    fn new() -> Direction {
        Direction {
            readiness: Readiness::new(),
            timeout_ns: AtomicU64::new(u64::MAX),
            deadline_ns: AtomicU64::new(u64::MAX),
            drained: AtomicU64::new(UNKNOWN),
            peculiar: AtomicBool::new(false),
        }
    }

    /// Notes that a read of a stream took less than there was room for, after `seen`.
    #[inline]
    pub(crate) fn note_drained(&self, seen: Seen) {
        self.drained.store(seen.number(), Relaxed);
    }

    /// Returns whether a read would be in vain, since whatever comes next comes with an event after `seen`.
    #[inline]
    pub(crate) fn is_drained(&self, seen: Seen) -> bool {
        // The event that brought the end is to come, or is among those seen: then `seen` acquired the flag.
        self.drained.load(Relaxed) == seen.number() && !self.peculiar.load(Relaxed)
    }

    /// Makes it ready for a new descriptor.
    fn reset(&self) {
        self.readiness.reopen();
        self.timeout_ns.store(u64::MAX, Relaxed);
        self.deadline_ns.store(u64::MAX, Relaxed);
        self.forget_reads();
    }

    /// Forgets what was found out about reads of a descriptor that is gone, or about to go.
    pub(crate) fn forget_reads(&self) {
        self.drained.store(UNKNOWN, Relaxed);
        self.peculiar.store(false, Relaxed);
    }

    /// Sets a deadline, which also holds for operations that wait already.
    pub(crate) fn set_deadline(&self, deadline_ns: u64) {
        self.deadline_ns.store(deadline_ns, Relaxed);
        if let Some(fired) = self.readiness.fire() {
            fired.wake();
        }
    }
}

impl Record {
    fn new() -> Record {
        Record {
            generation: AtomicU32::new(0),
            registered: AtomicBool::new(false),
            changing: Lock::new(()),
            read: Direction::new(),
            write: Direction::new(),
            nonblocking: AtomicBool::new(false),
            next: Cell::new(null()),
        }
    }

    /// Returns a record for a descriptor.
    pub(crate) fn take() -> &'static Record {
        let mut free = FREE.lock();
        // SAFETY: records are never freed.
        let record = match unsafe { free.0.as_ref() } {
            Some(record) => record,
            None => {
                drop(free);
                let chunk: &'static [Record] = Box::leak((0..CHUNK).map(|_| Record::new()).collect());
                free = FREE.lock();
                for record in &chunk[1..] {
                    record.next.set(free.0);
                    free.0 = record;
                }
                return &chunk[0];
            }
        };
        free.0 = record.next.get();
        record
    }

    /// Takes the record back: the descriptor is about to be closed, and no operation uses it any more.
    ///
    /// # Safety
    /// `self` came from [`take`](Self::take), and the caller does not use it afterwards.
    pub(crate) unsafe fn give_back(&'static self, fd: BorrowedFd<'_>) {
        self.deregister(fd);
        // A task may have left its waker.
        for direction in [&self.read, &self.write] {
            direction.readiness.close().wake();
            direction.reset();
        }
        self.nonblocking.store(false, Relaxed);
        let mut free = FREE.lock();
        self.next.set(free.0);
        free.0 = self;
    }

    /// Registers the descriptor with the kernel, if it is not registered yet.
    ///
    /// Sockets are registered when an operation first has to wait: most that live shortly never come to it.
    #[inline]
    pub(crate) fn register(&'static self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // ORDERING: Acquire pairs with the Release below.
        match self.registered.load(Acquire) {
            true => Ok(()),
            false => self.register_slow(fd),
        }
    }

    #[cold]
    fn register_slow(&'static self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let poller = poller()?;
        let _changing = self.changing.lock();
        if !self.registered.load(Relaxed) {
            poller.epoll.add_or_take_over(fd, self.token())?;
            crate::sched::interpose::note_net(fd, true);
            self.registered.store(true, Release); // ORDERING: above
        }
        Ok(())
    }

    /// Registers the descriptor under a record that stays with its number. EEXIST: it is registered, under this record
    /// or another one.
    pub(crate) fn register_anew(&'static self, fd: BorrowedFd<'_>) -> io::Result<()> {
        poller()?.epoll.add(fd, self.token())
    }

    /// Undoes [`register_anew`](Self::register_anew).
    pub(crate) fn deregister_anew(&'static self, fd: BorrowedFd<'_>) {
        if let Ok(poller) = poller() {
            poller.epoll.remove(fd);
        }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Acquire) // ORDERING: as in `register`
    }

    /// Deregisters the descriptor: from here on events for it are stale.
    pub(crate) fn deregister(&'static self, fd: BorrowedFd<'_>) {
        if !self.registered.load(Relaxed) {
            return;
        }
        let _changing = self.changing.lock();
        let next = (self.generation.load(Relaxed) + 1) % GENERATIONS;
        self.generation.store(next, Relaxed);
        if self.registered.swap(false, Relaxed)
            && let Ok(poller) = poller()
        {
            // Closing alone would not do if another process or descriptor has the same open file.
            poller.epoll.remove(fd);
            crate::sched::interpose::note_net(fd, false);
        }
    }

    fn token(&'static self) -> u64 {
        let address = std::ptr::from_ref(self).expose_provenance() as u64;
        debug_assert!(address >> ADDRESS_BITS == 0);
        (address << (64 - ADDRESS_BITS)) | u64::from(self.generation.load(Relaxed))
    }

    /// Returns the record of an event, unless that is stale.
    pub(crate) fn of_token(token: u64) -> Option<&'static Record> {
        let address = (token & !u64::from(GENERATIONS - 1)) >> (64 - ADDRESS_BITS);
        // SAFETY: made by `token`, and records are never freed.
        let record: &'static Record = unsafe { &*std::ptr::with_exposed_provenance(address as usize) };
        (record.token() == token).then_some(record)
    }

    /// Passes an event on to the directions that it concerns.
    pub(crate) fn fire(&self, flags: u32, mut woken: impl FnMut(Fired)) {
        if flags & HANGUP_OR_ERROR != 0 {
            self.read.peculiar.store(true, Relaxed);
        }
        for (direction, of) in [(&self.read, READABLE), (&self.write, WRITABLE)] {
            if flags & of != 0
                && let Some(fired) = direction.readiness.fire()
            {
                woken(fired);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_record_and_generation() {
        let record = Record::take();
        let token = record.token();
        assert!(std::ptr::eq(Record::of_token(token).unwrap(), record));
        record.generation.store(GENERATIONS - 1, Relaxed);
        assert!(Record::of_token(token).is_none(), "stale");
        let last = record.token();
        assert!(std::ptr::eq(Record::of_token(last).unwrap(), record));
    }
}
