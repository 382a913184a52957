//! A channel: a lock, the waiters, and how full it is ([`Core`]); its buffer, and the moves of values between senders,
//! buffer and receivers ([`Chan`]).
//!
//! [`Core`] knows no `T`, so that a select can hold the locks of many channels. A [`Locked`] is the proof of holding
//! the lock; when it is dropped it publishes what became possible, unlocks, and wakes the waiters that were taken out
//! of a queue, in this order: no waiter is woken under the lock, and no thread reads an old sign after the unlock.
//!
//! A goroutine that holds the lock is inside the runtime ([`Entered`]), so its time slice does not end there, and
//! stays there until it has parked: see [`park_running`](crate::sched::run::park::park_running).
//!
//! A value moves once, by a copy of its bytes under the lock: from the sender's frame to the waiting receiver's, to the
//! buffer, or from the buffer to the receiver's frame. No code of `T` runs under the lock.

use super::buffer::Buffer;
use super::error::{RecvTimeoutError, SendTimeoutError, TryRecvError, TrySendError};
use super::queue::{Ending, Kind, Node, Operation, Outcome, Queue, WakeList};
use super::timer::{Limit, is_over};
use crate::protocols::asymmetric_lock::AsymmetricLock;
use crate::protocols::claim::Claim;
use crate::reason::{Awaited, WaitReason};
use crate::sched::run::park::{self, Entered, Waiter};
use crate::sched::timers;
use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// A bit of [`Core::signs`]: a receive would not block.
pub(super) const CAN_RECV: u32 = 1;
/// A bit of [`Core::signs`]: a send would not block.
pub(super) const CAN_SEND: u32 = 2;
const SIGNS: u32 = CAN_RECV | CAN_SEND;
/// One change in [`Core::signs`], whose other bits count how often the two changed.
const ONE_CHANGE: u32 = 4;

/// A channel without its values.
pub(crate) struct Core {
    lock: AsymmetricLock,
    state: UnsafeCell<State>,
    /// `CAN_RECV`, `CAN_SEND`, and how often they changed; for readers without the lock. Written under it.
    signs: AtomicU32,
    /// Number of places in the buffer; `usize::MAX` if there is no limit.
    pub(super) capacity: usize,
    /// Numbers of living handles.
    pub(super) senders: AtomicUsize,
    pub(super) receivers: AtomicUsize,
}

/// The part of a channel that is used under the lock.
pub(crate) struct State {
    pub(super) senders: Queue,
    pub(super) receivers: Queue,
    /// Selects that want to know when a receive, or a send, would not block.
    pub(super) recv_watchers: Queue,
    pub(super) send_watchers: Queue,
    /// Tasks that a selected sender without a buffer's place has promised its value to: see [`Locked::reserve`].
    pub(super) engaged: Queue,
    /// Number of values in the buffer.
    pub(super) len: usize,
    /// Number of places promised to senders that were selected and have not sent yet. `len + reserved` is at most the
    /// capacity, but for what was promised to tasks or came back from them.
    pub(super) reserved: usize,
    /// Whether no sender will send any more.
    pub(super) closed: bool,
    /// Whether no receiver will receive any more.
    pub(super) abandoned: bool,
}

impl State {
    /// Returns the queue of waiting senders, or of waiting receivers.
    #[inline]
    fn line(&mut self, sends: bool) -> &mut Queue {
        if sends { &mut self.senders } else { &mut self.receivers }
    }
}

/// Result of an attempt under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    Closed,
    /// It would block.
    Blocked,
    /// A sender was won that has no value yet. The receiver must make itself its partner, wake it, and wait.
    Promised(NonNull<Node>),
}

impl Core {
    pub(super) fn new(capacity: usize) -> Core {
        let state = State {
            senders: Queue::new(),
            receivers: Queue::new(),
            recv_watchers: Queue::new(),
            send_watchers: Queue::new(),
            engaged: Queue::new(),
            len: 0,
            reserved: 0,
            closed: false,
            abandoned: false,
        };
        let signs = if capacity == 0 { 0 } else { CAN_SEND };
        Core {
            lock: AsymmetricLock::new(),
            state: UnsafeCell::new(state),
            signs: AtomicU32::new(signs),
            capacity,
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
        }
    }

    /// Locks. The reference to the caller's [`Entered`] is evidence: see the module. It must not be dropped before the
    /// lock (WHY NOT by lifetime: a goroutine that parks gives up both at once).
    #[inline]
    pub(super) fn lock<'a>(&'a self, entered: &Entered) -> Locked<'a> {
        self.lock.lock();
        Locked { core: self, entered: entered.again(), wakes: WakeList::new() }
    }

    /// Makes the proof of the lock again, for a caller that holds it and [kept](Locked::keep) it.
    ///
    /// # Safety
    /// The caller holds the lock, and no other `Locked` of it is in use.
    #[inline]
    pub(super) unsafe fn assume_locked(&self, entered: &Entered) -> Locked<'_> {
        Locked { core: self, entered: entered.again(), wakes: WakeList::new() }
    }

    /// Returns what would not block, and a number that changes whenever that does.
    ///
    /// Exact in this sense: what happened before the call is in it.
    #[inline]
    pub(super) fn peek(&self) -> u32 {
        // ORDERING: Acquire pairs with `publish`: a thread that sees a sign of one channel sees those that were given
        // before, on others.
        self.signs.load(Acquire)
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        (self.capacity != usize::MAX).then_some(self.capacity)
    }

    pub(super) fn is_full(&self) -> bool {
        let entered = Entered::now();
        let locked = self.lock(&entered);
        locked.len + locked.reserved >= self.capacity
    }

    // ---- blocking ----

    /// Gets in line to send or to receive, or becomes the partner of `promised`, a sender that was won and has no value
    /// yet, and waits. `slot` has the value, or gets it.
    ///
    /// TUNED: the caller [forgets](Locked::keep) its proof of the lock, which is made again here, and not passed on: to
    /// copy what was just written costs 4 ns. For the same reason this is one function, which knows its side: each
    /// return after a switch surprises the CPU.
    ///
    /// # Safety
    /// The caller holds the lock, and no `Locked` of it is in use.
    #[inline(never)]
    pub(super) unsafe fn wait<const SENDS: bool>(
        &self,
        entered: Entered,
        slot: *mut (),
        promised: Option<NonNull<Node>>,
        deadline_ns: u64,
    ) -> Outcome {
        debug_assert!(promised.is_none() || !SENDS);
        // Once a sender is won there is no way back, whatever the time.
        let deadline_ns = if !SENDS && promised.is_some() { u64::MAX } else { deadline_ns };
        let reason = if SENDS { WaitReason::ChanSend } else { WaitReason::ChanRecv };
        let awaited = reason.on(std::ptr::from_ref(self).addr());
        let (op, node);
        {
            // SAFETY: by the caller.
            let mut locked = unsafe { self.assume_locked(&entered) };
            if is_over(deadline_ns) {
                return Outcome::TimedOut;
            }
            op = Operation::current(&entered, deadline_ns == u64::MAX);
            node = Node::armed(&op, 0, slot);
            match promised {
                // SAFETY: this caller won it and has not woken it.
                Some(sender) if !SENDS => unsafe {
                    sender.as_ref().set_partner(&node);
                    locked.wakes.push(sender);
                },
                // SAFETY: the node stays on this frame until it was claimed or removed below.
                _ => unsafe { locked.line(SENDS).push_back(&node) },
            }
        }
        match entered.into_running() {
            Some(running) if deadline_ns == u64::MAX => park::park_running(running, awaited),
            Some(running) => _ = timers::wait_until(running, awaited, deadline_ns, &op.claim),
            None => _ = op.waiter.wait_until(awaited, deadline_ns, &op.claim),
        }
        let outcome = op.outcome();
        if outcome == Outcome::TimedOut {
            self.lock(&Entered::now()).line(SENDS).remove(&node);
        }
        outcome
    }

    // ---- the end ----

    /// Ends the sending: no more values will come. Returns `false` if the channel was closed before.
    pub(super) fn close(&self) -> bool {
        let entered = Entered::now();
        let mut locked = self.lock(&entered);
        if std::mem::replace(&mut locked.closed, true) {
            return false;
        }
        locked.end_all_waits();
        true
    }
}

impl Operation {
    /// Makes an operation of the caller.
    pub(super) fn current(entered: &Entered, exclusive: bool) -> Operation {
        let waiter = match entered.g() {
            Some(g) => Waiter::G(g.into()),
            None => Waiter::current(),
        };
        let kind = if exclusive { Kind::Exclusive } else { Kind::Contested };
        Operation { claim: Claim::new(), kind, waiter }
    }

    /// Blocks until a partner, or the clock, won the claim and woke this caller. In line: each return after a switch
    /// surprises the CPU.
    #[inline(always)]
    pub(super) fn wait(&self, entered: Entered, awaited: Awaited, deadline_ns: u64) -> Outcome {
        match entered.into_running() {
            Some(running) if deadline_ns == u64::MAX => park::park_running(running, awaited),
            Some(running) => _ = timers::wait_until(running, awaited, deadline_ns, &self.claim),
            None => _ = self.waiter.wait_until(awaited, deadline_ns, &self.claim),
        }
        self.outcome()
    }
}

/// Holds a channel's lock.
pub(crate) struct Locked<'a> {
    pub(super) core: &'a Core,
    /// The caller that holds it.
    entered: ManuallyDrop<Entered>,
    /// Waiters to be woken after the unlock.
    pub(super) wakes: WakeList,
}

impl Locked<'_> {
    /// Ends all waits in one of the queues.
    #[inline(always)]
    fn claim_all(&mut self, queue: impl FnOnce(&mut State) -> &mut Queue, ending: Ending) {
        let wakes = std::mem::replace(&mut self.wakes, WakeList::new());
        self.wakes = queue(self).claim_all(ending, wakes);
    }

    /// Returns which operations are possible now.
    #[inline]
    pub(super) fn signs(&self) -> u32 {
        let s = &**self;
        let over = s.closed | s.abandoned;
        let recv = s.len != 0 || over || !s.senders.is_empty();
        let send = over || s.len + s.reserved < self.core.capacity || !s.receivers.is_empty();
        (u32::from(recv) * CAN_RECV) | (u32::from(send) * CAN_SEND)
    }

    /// Publishes the signs to readers without the lock, and wakes the watchers that wait for them.
    ///
    /// Watchers are there only while the channel is not ready, so it is enough to look when that changes.
    #[inline(always)]
    fn publish(&mut self, signs: u32) {
        let old = self.core.signs.load(Relaxed);
        if (old ^ signs) & SIGNS == 0 {
            return;
        }
        let changes = (old & !SIGNS).wrapping_add(ONE_CHANGE);
        // ORDERING: Release pairs with `peek`.
        self.core.signs.store(changes | signs, Release);
        if signs & CAN_RECV != 0 && !self.recv_watchers.is_empty() {
            self.claim_all(|state| &mut state.recv_watchers, Ending::Done);
        }
        if signs & CAN_SEND != 0 && !self.send_watchers.is_empty() {
            self.claim_all(|state| &mut state.send_watchers, Ending::Done);
        }
    }

    /// Ends all waits here: the channel is disconnected.
    pub(super) fn end_all_waits(&mut self) {
        self.claim_all(|state| &mut state.senders, Ending::Closed);
        self.claim_all(|state| &mut state.receivers, Ending::Closed);
        self.claim_all(|state| &mut state.engaged, Ending::Closed);
    }

    /// Keeps the lock, and forgets this proof of it, which has no waiter to wake.
    #[inline(always)]
    pub(super) fn keep(self) {
        debug_assert!(self.wakes.is_empty());
        std::mem::forget(self);
    }

    /// Keeps the lock, and forgets this proof of it. Returns the waiters to wake.
    #[inline]
    pub(super) fn leak(self) -> WakeList {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped.
        unsafe { std::ptr::read(&this.wakes) }
    }
}

impl Deref for Locked<'_> {
    type Target = State;
    #[inline]
    fn deref(&self) -> &State {
        // SAFETY: the lock is held, and there is one `Locked` of it.
        unsafe { &*self.core.state.get() }
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: as above.
        unsafe { &mut *self.core.state.get() }
    }
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let wakes = std::mem::replace(&mut self.wakes, WakeList::new());
        let signs = self.signs();
        let as_before = (self.core.signs.load(Relaxed) ^ signs) & SIGNS == 0;
        // SAFETY: held since `lock`; this was the proof.
        unsafe {
            match as_before && wakes.is_empty() {
                true => self.core.lock.unlock(),
                false => self.core.release(self.entered.again(), wakes, signs),
            }
        }
    }
}

impl Core {
    /// Ends a `Locked`: publishes, unlocks, wakes.
    ///
    /// TUNED: with its parts as arguments, so that a `Locked` lies in registers all its life. If its destructor wants
    /// its address, each move of it reads back what was just written in pieces, and that costs 4 ns.
    ///
    /// # Safety
    /// The caller holds the lock and no `Locked` of it is in use.
    #[inline(never)]
    unsafe fn release(&self, entered: ManuallyDrop<Entered>, wakes: WakeList, signs: u32) {
        let mut locked = ManuallyDrop::new(Locked { core: self, entered, wakes });
        locked.publish(signs);
        // SAFETY: by the caller.
        unsafe { self.lock.unlock() };
        let wakes = std::mem::replace(&mut locked.wakes, WakeList::new());
        if !wakes.is_empty() {
            wakes.wake_all(locked.entered.again());
        }
    }
}

// ---- values ----

/// A channel with values.
#[repr(C, align(64))]
pub(super) struct Chan<T> {
    /// First: handles point to it, which `debug::leaked` looks for.
    pub(super) core: Core,
    /// Under the core's lock.
    pub(super) buffer: UnsafeCell<Buffer<T>>,
    /// Whether one side has no handle any more: then the other one frees the channel.
    pub(super) one_side_gone: AtomicBool,
}

impl<T> Chan<T> {
    /// Returns the buffer; `_locked` is the evidence of holding the lock.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(super) fn buffer<'a>(&'a self, _locked: &'a mut Locked<'_>) -> &'a mut Buffer<T> {
        // SAFETY: guarded by the core's lock, of which there is one `Locked`.
        unsafe { &mut *self.buffer.get() }
    }

    // ---- under the lock ----

    /// Moves the value at `from` away, if that is possible.
    ///
    /// # Safety
    /// `from` is a `T`; after `Done` it is gone. `locked` is this channel's.
    #[inline]
    pub(super) unsafe fn send_locked(&self, locked: &mut Locked<'_>, from: *const T) -> Step {
        if locked.closed || locked.abandoned {
            return Step::Closed;
        }
        if let Some(receiver) = locked.receivers.claim_first(Ending::Done) {
            // SAFETY: a waiting receiver's slot has room for one `T`, and we won it.
            unsafe { std::ptr::copy_nonoverlapping(from, receiver.as_ref().slot().cast(), 1) };
            locked.wakes.push(receiver);
            return Step::Done;
        }
        if locked.len + locked.reserved < self.core.capacity {
            // SAFETY: by the caller.
            self.buffer(locked).push(unsafe { from.read() });
            locked.len += 1;
            return Step::Done;
        }
        Step::Blocked
    }

    /// Moves the next value to `to`, if there is one.
    ///
    /// # Safety
    /// `to` has room for a `T`; after `Done` it holds one. `locked` is this channel's.
    #[inline]
    pub(super) unsafe fn recv_locked(&self, locked: &mut Locked<'_>, to: *mut T) -> Step {
        if locked.len != 0 {
            let value = self.buffer(locked).pop().expect("`len` counts");
            // SAFETY: by the caller.
            unsafe { to.write(value) };
            locked.len -= 1;
            if !locked.senders.is_empty() {
                self.admit(locked);
            }
            return Step::Done;
        }
        if let Some(sender) = locked.senders.claim_first(Ending::Done) {
            // SAFETY: won, not woken.
            let from = unsafe { sender.as_ref() }.slot();
            if from.is_null() {
                return Step::Promised(sender);
            }
            // SAFETY: a waiting sender's slot holds one `T`, which is ours now.
            unsafe { std::ptr::copy_nonoverlapping(from.cast(), to, 1) };
            locked.wakes.push(sender);
            return Step::Done;
        }
        if locked.closed { Step::Closed } else { Step::Blocked }
    }

    /// Gives a free place to the first sender that waits, with its value or as a promise.
    pub(super) fn admit(&self, locked: &mut Locked<'_>) {
        if locked.len + locked.reserved >= self.core.capacity {
            return; // it was not one of the buffer's own places that became free
        }
        let Some(sender) = locked.senders.claim_first(Ending::Done) else { return };
        // SAFETY: won, not woken.
        let from = unsafe { sender.as_ref() }.slot();
        if from.is_null() {
            locked.reserved += 1;
        } else {
            // SAFETY: as in `recv_locked`.
            self.buffer(locked).push(unsafe { from.cast::<T>().read() });
            locked.len += 1;
        }
        locked.wakes.push(sender);
    }

    /// Passes on a value that was handed to a receiver which has left: to the next one, or to the front of the buffer,
    /// also of a full one.
    pub(super) fn put_back(&self, locked: &mut Locked<'_>, value: T) {
        match locked.receivers.claim_first(Ending::Done) {
            Some(receiver) => {
                // SAFETY: as in `send_locked`.
                unsafe { receiver.as_ref().slot().cast::<T>().write(value) };
                locked.wakes.push(receiver);
            }
            None => {
                self.buffer(locked).push_front(value);
                locked.len += 1;
            }
        }
    }

    // ---- operations ----

    pub(super) fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let entered = Entered::now();
        let value = ManuallyDrop::new(value);
        // SAFETY: read back below unless it was sent.
        match unsafe { self.send_locked(&mut self.core.lock(&entered), &*value) } {
            Step::Done => Ok(()),
            Step::Closed => Err(TrySendError::Disconnected(ManuallyDrop::into_inner(value))),
            _ => Err(TrySendError::Full(ManuallyDrop::into_inner(value))),
        }
    }

    /// Inlined, and so is [`recv`](Self::recv): each caller knows its limit, most often none.
    #[inline(always)]
    pub(super) fn send(&self, value: T, limit: Limit) -> Result<(), SendTimeoutError<T>> {
        let entered = Entered::now();
        let mut value = ManuallyDrop::new(value);
        let at: *mut T = &raw mut *value;
        let mut locked = self.core.lock(&entered);
        // SAFETY: taken back below unless it was sent.
        let outcome = match unsafe { self.send_locked(&mut locked, at) } {
            Step::Done => return Ok(()),
            Step::Closed => Outcome::Ended(0, Ending::Closed),
            _ => {
                let deadline_ns = limit.deadline_ns(); // first: what may panic needs the lock's proof in memory
                locked.keep();
                // SAFETY: the lock is held, and its proof was just given up.
                unsafe { self.core.wait::<true>(entered, at.cast(), None, deadline_ns) }
            }
        };
        match outcome {
            Outcome::Ended(_, Ending::Done) => Ok(()),
            Outcome::Ended(..) => Err(SendTimeoutError::Disconnected(ManuallyDrop::into_inner(value))),
            Outcome::TimedOut => Err(SendTimeoutError::Timeout(ManuallyDrop::into_inner(value))),
        }
    }

    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        if self.core.peek() & CAN_RECV == 0 {
            return Err(TryRecvError::Empty);
        }
        let mut slot = MaybeUninit::<T>::uninit();
        loop {
            let entered = Entered::now();
            let mut locked = self.core.lock(&entered);
            // SAFETY: read only after `Done`.
            match unsafe { self.recv_locked(&mut locked, slot.as_mut_ptr()) } {
                Step::Done => break,
                Step::Closed => return Err(TryRecvError::Disconnected),
                Step::Blocked => return Err(TryRecvError::Empty),
                // The sender is awake and makes its value: that counts as "not empty".
                Step::Promised(sender) => {
                    let to = slot.as_mut_ptr().cast();
                    locked.keep();
                    // SAFETY: the lock is held, and its proof was just given up.
                    let outcome = unsafe { self.core.wait::<false>(entered, to, Some(sender), u64::MAX) };
                    if outcome == Outcome::Ended(0, Ending::Done) {
                        break;
                    }
                }
            }
        }
        // SAFETY: filled.
        Ok(unsafe { slot.assume_init() })
    }

    #[inline(always)]
    pub(super) fn recv(&self, limit: Limit) -> Result<T, RecvTimeoutError> {
        let mut slot = MaybeUninit::<T>::uninit();
        let mut deadline_ns = None;
        loop {
            let entered = Entered::now();
            let mut locked = self.core.lock(&entered);
            // SAFETY: read only after `Done`.
            let promised = match unsafe { self.recv_locked(&mut locked, slot.as_mut_ptr()) } {
                Step::Done => break,
                Step::Closed => return Err(RecvTimeoutError::Disconnected),
                Step::Blocked => None,
                Step::Promised(sender) => Some(sender),
            };
            let deadline_ns = *deadline_ns.get_or_insert_with(|| limit.deadline_ns());
            let to = slot.as_mut_ptr().cast();
            locked.keep();
            // SAFETY: the lock is held, and its proof was just given up.
            match unsafe { self.core.wait::<false>(entered, to, promised, deadline_ns) } {
                Outcome::Ended(_, Ending::Done) => break,
                Outcome::Ended(_, Ending::Closed) => return Err(RecvTimeoutError::Disconnected),
                Outcome::Ended(_, Ending::Retry) => {}
                Outcome::TimedOut => return Err(RecvTimeoutError::Timeout),
            }
        }
        // SAFETY: filled.
        Ok(unsafe { slot.assume_init() })
    }
}
