//! A timer that calls a function: behind `Timer`, `Ticker` and the deadlines of contexts.
//!
//! An [`Alarm`] is part of an object that lives in an `Arc`. While it is set, the heap has one count of that `Arc`,
//! which goes to the function when it is called, or back to the caller of `cancel`. The object serialises [`set`] and
//! [`cancel`] by a lock of its own, which the function takes too; heaps know nothing of that lock.

use crate::sched::run::current::Running;
use crate::sched::shared::Shared;
use crate::sched::start::default_runtime;
use crate::sched::timers::heap::{Action, Call, Node, TimerHeap};
use crate::sys::say::say;
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// An object with an alarm.
pub(crate) trait Alarmed: Send + Sync + 'static {
    /// Returns the alarm, always the same.
    fn alarm(&self) -> &Alarm;

    /// Called when the alarm goes off, on an M's own stack or on the helper: so it is short and calls no user code.
    fn ring(self: Arc<Self>, here: Here<'_>);
}

/// The place where an alarm went off.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) shared: &'a Shared,
    heap: &'a TimerHeap,
}

/// The timer inside of an object.
pub(crate) struct Alarm {
    node: Node,
    /// Keeps the heap of the node alive. Written by `set`.
    home: Cell<Option<Arc<Shared>>>,
}

// SAFETY: the object's lock serialises `set` and `cancel`; the rest is behind the lock of the heap.
unsafe impl Send for Alarm {}
// SAFETY: as above.
unsafe impl Sync for Alarm {}

impl Alarm {
    pub(crate) fn new() -> Alarm {
        unsafe fn never(_: NonNull<()>, _: &Shared, _: &TimerHeap) {}
        let nothing = Call { run: never, data: NonNull::dangling() };
        Alarm { node: Node::new(u64::MAX, Action::Call(nothing)), home: Cell::new(None) }
    }
}

/// Sets the alarm, which is not set: on the caller's P, or on the default runtime if the caller is a plain thread.
///
/// # Safety
/// The caller holds the object's lock.
///
/// # Panics
/// If there is no default runtime and none can be started.
pub(crate) unsafe fn set<T: Alarmed>(object: &Arc<T>, when_ns: u64) {
    if let Some(running) = Running::enter() {
        // SAFETY: by the caller.
        let set = unsafe { set_on(object, when_ns, running.shared(), &running.p().timers) };
        debug_assert!(set, "a runtime with goroutines");
        return;
    }
    // SAFETY: by the caller.
    unsafe { set_on_default(object, when_ns) }.expect("mungo: cannot start the runtime");
}

/// As [`set`], where another one has just gone off.
///
/// # Safety
/// As [`set`].
pub(crate) unsafe fn set_here<T: Alarmed>(object: &Arc<T>, when_ns: u64, here: Here<'_>) {
    // SAFETY: by the caller, both.
    unsafe {
        if !set_on(object, when_ns, here.shared, here.heap)
            && let Err(e) = set_on_default(object, when_ns)
        {
            say_lost(&e);
        }
    }
}

unsafe fn set_on_default<T: Alarmed>(object: &Arc<T>, when_ns: u64) -> io::Result<()> {
    let shared = default_runtime()?;
    // SAFETY: by the caller.
    let set = unsafe { set_on(object, when_ns, shared, &shared.p(0).timers) };
    debug_assert!(set, "the default runtime does not end");
    Ok(())
}

/// Sets the alarm on `heap`. Returns `false` if the heap is closed.
unsafe fn set_on<T: Alarmed>(object: &Arc<T>, when_ns: u64, shared: &Shared, heap: &TimerHeap) -> bool {
    let alarm = object.alarm();
    alarm.home.set(Some(shared.to_arc()));
    // SAFETY: an `Arc`'s pointer is not null.
    let data = unsafe { NonNull::new_unchecked(Arc::into_raw(object.clone()).cast_mut()) };
    alarm.node.set(when_ns, Action::Call(Call { run: run::<T>, data: data.cast() }));
    // SAFETY: the count that the heap has now keeps the node where it is.
    let added = unsafe { heap.add(&alarm.node) };
    match added {
        Some(first) => super::announce(shared, first, when_ns),
        // SAFETY: the count that was meant for the heap.
        None => unsafe { Arc::decrement_strong_count(data.as_ptr()) },
    }
    added.is_some()
}

/// Takes the alarm back. Returns `false` if it was not set, or is going off now: then `ring` runs, perhaps later.
///
/// # Safety
/// The caller holds the object's lock, and a count of its own.
pub(crate) unsafe fn cancel<T: Alarmed>(object: &T) -> bool {
    let cancelled = object.alarm().node.cancel();
    if cancelled {
        // SAFETY: the heap's count, which came back to this caller.
        unsafe { Arc::decrement_strong_count(object) };
    }
    cancelled
}

unsafe fn run<T: Alarmed>(data: NonNull<()>, shared: &Shared, heap: &TimerHeap) {
    // SAFETY: `set_on` made it of an `Arc<T>`, and the count came with the call.
    let object = unsafe { Arc::from_raw(data.cast::<T>().as_ptr()) };
    object.ring(Here { shared, heap });
}

/// Moves the alarms of a runtime that ends to the default runtime. No goroutine is left that could set more, but an
/// alarm that is going off might: it finds the heap closed.
pub(crate) fn rescue(shared: &Shared) {
    for p in shared.all_ps() {
        let left = p.timers.close();
        if left.is_empty() {
            continue;
        }
        match default_runtime() {
            Ok(shared) => {
                shared.p(0).timers.adopt(left);
                super::announce(shared, true, 0);
            }
            Err(e) => say_lost(&e),
        }
    }
}

#[cold]
fn say_lost(e: &io::Error) {
    say!("mungo: timers are lost: the default runtime cannot be started: {e}");
}
