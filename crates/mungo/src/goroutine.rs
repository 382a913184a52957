//! A handle to a goroutine, and what the calling one can do: park, yield, stay on its thread.

use crate::sched::run::current::{self, Running};
use crate::sched::run::g::{G, GRef, Switch, TOKEN_EMPTY, TOKEN_PARKED, TOKEN_SET, WaitReason};
use crate::sched::run::park;
use crate::sched::threads::bound;
use crate::sched::timers;
use crate::sys::clock;
use std::marker::PhantomData;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::thread::Thread;
use std::time::Duration;

/// A handle to a goroutine, or to a plain thread that asked for itself.
///
/// ```
/// let handle = mungo::Builder::new().name("sleeper".to_owned()).spawn(mungo::park)?;
/// let sleeper: mungo::Goroutine = handle.goroutine().clone();
/// assert_eq!(sleeper.name(), Some("sleeper"));
/// sleeper.unpark(); // from anywhere, also after it has ended
/// handle.join().unwrap();
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Goroutine(Who);

#[derive(Clone, Debug)]
enum Who {
    Goroutine { g: GRef, id: u64 },
    Thread { thread: Thread, id: u64 },
}

/// Identifies a goroutine within its runtime; never used again.
///
/// ```
/// let (a, b) = (mungo::go(|| ()), mungo::go(|| ()));
/// assert_ne!(a.goroutine().id(), b.goroutine().id());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoroutineId(u64);

/// A bit that is set in the ids of plain threads.
const THREAD: u64 = 1 << 63;

impl GoroutineId {
    /// Returns the number.
    ///
    /// ```
    /// let id = mungo::go(|| mungo::current().id()).join().unwrap();
    /// assert_eq!(id.to_string(), id.as_u64().to_string());
    /// ```
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for GoroutineId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 & THREAD {
            0 => write!(f, "{}", self.0),
            _ => write!(f, "thread-{}", self.0 & !THREAD),
        }
    }
}

impl From<GRef> for Goroutine {
    fn from(g: GRef) -> Self {
        let id = g.id.load(Relaxed);
        Goroutine(Who::Goroutine { g, id })
    }
}

impl Goroutine {
    /// Returns its id. Ids of plain threads differ from those of all goroutines.
    ///
    /// ```
    /// let handle = mungo::go(|| mungo::current().id());
    /// let id = handle.goroutine().id();
    /// assert_eq!(handle.join().unwrap(), id);
    /// ```
    pub fn id(&self) -> GoroutineId {
        match self.0 {
            Who::Goroutine { id, .. } | Who::Thread { id, .. } => GoroutineId(id),
        }
    }

    /// Returns its name, if it was given one.
    ///
    /// ```
    /// assert_eq!(mungo::go(|| ()).goroutine().name(), None);
    /// ```
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Who::Goroutine { g, .. } => g.name(),
            Who::Thread { thread, .. } => thread.name(),
        }
    }

    /// Names a goroutine that has no name yet, for dumps; `false`: it has one, or is a plain thread. For
    /// `mungo-interpose`, whose threads are named after they have begun.
    #[doc(hidden)]
    pub fn name_late(&self, name: &str) -> bool {
        match &self.0 {
            Who::Goroutine { g, .. } => g.set_name(name.into()),
            Who::Thread { .. } => false,
        }
    }

    /// Ends its [`park`], or lets its next one return at once. As [`std::thread::Thread::unpark`].
    ///
    /// ```
    /// // The token may come first: then the park returns at once.
    /// let once = mungo::go(|| {
    ///     mungo::current().unpark();
    ///     mungo::park();
    ///     "not for ever"
    /// });
    /// assert_eq!(once.join().unwrap(), "not for ever");
    /// ```
    pub fn unpark(&self) {
        match &self.0 {
            Who::Thread { thread, .. } => thread.unpark(),
            Who::Goroutine { g, .. } => {
                // ORDERING: Release to `park`'s Acquire; the caller that takes PARKED away wakes the goroutine.
                if g.token.swap(TOKEN_SET, AcqRel) == TOKEN_PARKED {
                    park::ready(g.ptr());
                }
            }
        }
    }
}

/// Returns a handle to the calling goroutine, or plain thread.
///
/// ```
/// let handle = mungo::go(mungo::current);
/// let seen_from_outside = handle.goroutine().id();
/// assert_eq!(handle.join().unwrap().id(), seen_from_outside);
/// ```
pub fn current() -> Goroutine {
    match current::g() {
        Some(g) => GRef::new(g).into(),
        None => {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            thread_local! {
                static ID: u64 = NEXT.fetch_add(1, Relaxed) | THREAD;
            }
            Goroutine(Who::Thread { thread: std::thread::current(), id: ID.with(|id| *id) })
        }
    }
}

/// Returns whether the caller is a goroutine, and not a plain thread.
///
/// ```
/// assert!(!std::thread::spawn(mungo::is_goroutine).join().unwrap());
/// assert!(mungo::go(mungo::is_goroutine).join().unwrap());
/// ```
pub fn is_goroutine() -> bool {
    current::g().is_some()
}

/// Blocks until [`Goroutine::unpark`] is called. May return for no reason, as [`std::thread::park`].
///
/// ```
/// let sleeper = mungo::go(|| mungo::park());
/// sleeper.goroutine().unpark();
/// sleeper.join().unwrap();
/// ```
pub fn park() {
    let Some(g) = current::g() else { return std::thread::park() };
    // ORDERING: AcqRel: takes a token that is there, or announces the park; pairs with `unpark`.
    if g.token.compare_exchange(TOKEN_EMPTY, TOKEN_PARKED, AcqRel, Acquire).is_ok() {
        park::park_current(WaitReason::Park.on(0));
    }
    take_token(g);
}

/// Takes the token, no matter which `unpark` set it.
fn take_token(g: &G) {
    // ORDERING: Acquire from every `unpark` whose token this takes, not only from the one that woke us: its caller
    // will not unpark again, so we must see what it did before. A plain store would not.
    g.token.swap(TOKEN_EMPTY, AcqRel);
}

/// As [`park`], for at most `timeout`.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let waited = mungo::go(|| {
///     let before = Instant::now();
///     while before.elapsed() < Duration::from_millis(1) {
///         mungo::park_timeout(Duration::from_millis(1)); // as `park`, it may return early
///     }
///     before.elapsed()
/// });
/// assert!(waited.join().unwrap() >= Duration::from_millis(1));
/// ```
pub fn park_timeout(timeout: Duration) {
    let Some(g) = current::g() else { return std::thread::park_timeout(timeout) };
    // ORDERING: as `park`.
    if g.token.compare_exchange(TOKEN_EMPTY, TOKEN_PARKED, AcqRel, Acquire).is_ok() {
        timers::park_until(g, clock::after_ns(timeout));
    }
    take_token(g);
}

/// Lets other goroutines run; the caller goes to the back of its processor's queue.
///
/// On a plain thread this is [`std::thread::yield_now`].
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
///
/// let runtime = mungo::Runtime::builder().procs(1).build()?;
/// runtime.run(|| {
///     let done = Arc::new(AtomicBool::new(false));
///     let worker = mungo::go({
///         let done = done.clone();
///         move || done.store(true, Relaxed)
///     });
///     while !done.load(Relaxed) {
///         mungo::yield_now(); // the only processor goes to the worker
///     }
///     worker.join().unwrap();
/// });
/// # std::io::Result::Ok(())
/// ```
#[inline]
pub fn yield_now() {
    match Running::enter() {
        Some(running) => running.suspend(Switch::Yield),
        None => std::thread::yield_now(),
    }
}

/// Keeps the goroutine on its thread, where no other goroutine runs, until it is dropped. Locks nest.
///
/// ```
/// mungo::go(|| {
///     let guard: mungo::OsThreadGuard = mungo::lock_os_thread();
///     let thread = std::thread::current().id();
///     mungo::yield_now();
///     assert_eq!(std::thread::current().id(), thread, "still the same one");
///     drop(guard); // from here on it may move
/// })
/// .join()
/// .unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the goroutine may leave its thread as soon as this is dropped"]
pub struct OsThreadGuard(PhantomData<*const ()>);

/// Binds the calling goroutine to its OS thread, as Go's `runtime.LockOSThread`: for C libraries and kernel interfaces
/// that care which thread calls them.
///
/// A goroutine that ends without dropping the guard (by [`std::mem::forget`]) takes its thread with it.
/// On a plain thread this does nothing.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// mungo::go(|| {
///     let own_thread = || std::fs::read_link("/proc/thread-self").unwrap();
///     let _guard = mungo::lock_os_thread();
///     let before = own_thread();
///     mungo::time::sleep(std::time::Duration::from_millis(1));
///     assert_eq!(own_thread(), before, "the kernel sees the same thread");
/// })
/// .join()
/// .unwrap();
/// ```
pub fn lock_os_thread() -> OsThreadGuard {
    if let Some(running) = Running::enter() {
        bound::lock(&running);
    }
    OsThreadGuard(PhantomData)
}

impl Drop for OsThreadGuard {
    fn drop(&mut self) {
        if let Some(running) = Running::enter() {
            bound::unlock(running.g());
        }
    }
}
