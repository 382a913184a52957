//! The wait-for graph: which goroutine waits for what, and who could end that.
//!
//! `look.rs` asks each goroutine what it waits for (`reason::Awaited`), `known.rs` asks those that are too many for a
//! look in full, for locks, joins and scopes; `handles.rs` searches memory for the handles of channels and wait groups,
//! `stuck.rs` finds those that nothing can wake any more and the cycles among them, and `print.rs` has the text and the
//! drawing.
//!
//! What ends a wait, and what is known of it:
//!
//! | wait                         | ended by                               | known                                    |
//! |------------------------------|----------------------------------------|------------------------------------------|
//! | mutex, once                  | its holder                             | if it is a goroutine                     |
//! | rwlock                       | the writer, or all readers             | the writer, if it is a goroutine         |
//! | join                         | the end of that goroutine              | yes                                      |
//! | end of scope                 | the end of each goroutine of the scope | yes                                      |
//! | channel, wait group          | any thread with a handle               | by a search: goroutines, or other memory |
//! | condvar, semaphore, barrier, | any thread that can reach it           | no                                       |
//! | futex, park, future, network |                                        |                                          |
//! | timer, a wait with a limit   | the clock                              | yes                                      |

mod handles;
mod known;
mod look;
mod print;
mod stuck;

#[cfg(all(feature = "profile", mungo_native))]
pub(crate) use look::holder_of_lock;

use crate::reason::WaitReason;
use crate::sched::report::collect::on_a_new_thread;
use crate::sched::run::g::G;
use crate::sched::shared::Shared;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The kind of what a goroutine waits for.
///
/// ```
/// use mungo::sync::Mutex;
/// use std::sync::Arc;
///
/// let mutex = Arc::new(Mutex::new(()));
/// let held = mutex.lock();
/// let waiter = mungo::go({
///     let mutex = mutex.clone();
///     move || drop(mutex.lock())
/// });
/// while mungo::debug::wait_graph().waits().is_empty() {}
/// let graph = mungo::debug::wait_graph();
/// assert_eq!(graph.waits()[0].objects[0].kind, mungo::debug::ObjectKind::Mutex);
/// drop(held);
/// waiter.join().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectKind {
    /// A [`Mutex`](crate::sync::Mutex).
    Mutex,
    /// An [`RwLock`](crate::sync::RwLock).
    RwLock,
    /// A [`Once`](crate::sync::Once), [`OnceLock`](crate::sync::OnceLock) or [`LazyLock`](crate::sync::LazyLock).
    Once,
    /// The end of a goroutine.
    Goroutine,
    /// The goroutines of a [`scope`](crate::scope()).
    Scope,
    /// A [channel](crate::chan).
    Channel,
    /// A [`WaitGroup`](crate::sync::WaitGroup).
    WaitGroup,
    /// A [`Condvar`](crate::sync::Condvar).
    Condvar,
    /// A [`Semaphore`](crate::sync::Semaphore).
    Semaphore,
    /// A [`Barrier`](crate::sync::Barrier).
    Barrier,
    /// A word in memory, with `mungo-interpose`.
    Futex,
    /// A file descriptor.
    Descriptor,
    /// A time.
    Timer,
    /// A call of [`unpark`](crate::Goroutine::unpark).
    Unpark,
    /// A future.
    Future,
    /// What can never come.
    Nothing,
}

impl ObjectKind {
    fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Mutex => "mutex",
            ObjectKind::RwLock => "rwlock",
            ObjectKind::Once => "once",
            ObjectKind::Goroutine => "goroutine",
            ObjectKind::Scope => "scope",
            ObjectKind::Channel => "channel",
            ObjectKind::WaitGroup => "wait group",
            ObjectKind::Condvar => "condvar",
            ObjectKind::Semaphore => "semaphore",
            ObjectKind::Barrier => "barrier",
            ObjectKind::Futex => "futex",
            ObjectKind::Descriptor => "descriptor",
            ObjectKind::Timer => "timer",
            ObjectKind::Unpark => "unpark",
            ObjectKind::Future => "future",
            ObjectKind::Nothing => "nothing",
        }
    }
}

impl std::fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a wait may be ended by others than the goroutines of [`WaitObject::held_by`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Others {
    /// Perhaps: a thread, a handle in memory that is no goroutine's, or it is not known.
    Perhaps,
    /// No: only these goroutines can end it; if there are none, nothing can.
    None,
    /// No: a goroutine locked it and has ended without unlocking.
    HolderEnded,
}

/// What a goroutine waits for.
///
/// ```
/// use mungo::sync::Mutex;
/// use std::sync::Arc;
///
/// let mutex = Arc::new(Mutex::new(()));
/// let held = mutex.lock();
/// let waiter = mungo::go({
///     let mutex = mutex.clone();
///     move || drop(mutex.lock())
/// });
/// while mungo::debug::wait_graph().waits().is_empty() {}
/// let graph = mungo::debug::wait_graph();
/// let object: &mungo::debug::WaitObject = &graph.waits()[0].objects[0];
/// assert_eq!(object.kind.to_string(), "mutex");
/// drop(held);
/// waiter.join().unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitObject {
    /// The kind of it.
    pub kind: ObjectKind,
    /// Its number, masked: a search of memory must not find it here.
    masked: usize,
    /// The goroutines that are known to hold it, to own a handle of it, or to be what is waited for.
    holders: Vec<Key>,
    /// The numbers of these goroutines, in the same order.
    pub held_by: Vec<u64>,
    /// Whether others may end the wait.
    pub others: Others,
}

impl WaitObject {
    /// Returns which one: the address of an object, the number of a descriptor or a goroutine; of a timer the time
    /// until it is due, in ns. 0 if there is nothing to tell.
    ///
    /// ```
    /// use mungo::sync::Mutex;
    /// use std::sync::Arc;
    ///
    /// let mutex = Arc::new(Mutex::new(()));
    /// let held = mutex.lock();
    /// let waiter = mungo::go({
    ///     let mutex = mutex.clone();
    ///     move || drop(mutex.lock())
    /// });
    /// while mungo::debug::wait_graph().waits().is_empty() {}
    /// let graph = mungo::debug::wait_graph();
    /// assert_ne!(graph.waits()[0].objects[0].number(), 0, "where the mutex is");
    /// drop(held);
    /// waiter.join().unwrap();
    /// ```
    pub fn number(&self) -> usize {
        crate::sched::report::memory::mask(self.masked)
    }
}

/// A goroutine that waits, in a [`WaitGraph`].
///
/// ```
/// use mungo::sync::Mutex;
/// use std::sync::Arc;
///
/// let mutex = Arc::new(Mutex::new(()));
/// let held = mutex.lock();
/// let waiter = mungo::go({
///     let mutex = mutex.clone();
///     move || drop(mutex.lock())
/// });
/// while mungo::debug::wait_graph().waits().is_empty() {}
/// let graph = mungo::debug::wait_graph();
/// let wait: &mungo::debug::GoroutineWait = &graph.waits()[0];
/// assert_eq!(wait.reason, mungo::WaitReason::Mutex);
/// assert!(!wait.is_stuck && !wait.has_limit);
/// drop(held);
/// waiter.join().unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GoroutineWait {
    key: Key,
    /// The number of its runtime, from 1 on in the order in which they were built.
    pub runtime: u32,
    /// Its number, which is one of its own only among the goroutines of its runtime.
    pub goroutine: u64,
    /// Its name.
    pub name: Option<String>,
    /// The place where it was spawned.
    pub spawned_at: &'static Location<'static>,
    /// The place where it is blocked.
    pub reason: WaitReason,
    /// Time for which it has been waiting, some milliseconds more or less.
    pub waited: Duration,
    /// Whether the clock or a context may end the wait.
    pub has_limit: bool,
    /// What it waits for: more than one channel in a select.
    pub objects: Vec<WaitObject>,
    /// Whether nothing can wake it any more: all that could wait themselves for ever, or there is nothing.
    pub is_stuck: bool,
}

/// Which goroutine waits for what, and for whom, by [`wait_graph`](crate::debug::wait_graph). Prints itself as text, a
/// line for each goroutine, cycles first.
///
/// ```
/// use mungo::sync::Mutex;
/// use std::sync::Arc;
///
/// let mutex = Arc::new(Mutex::new(()));
/// let held = mutex.lock();
/// let waiter = mungo::go({
///     let mutex = mutex.clone();
///     move || drop(mutex.lock())
/// });
/// while mungo::debug::wait_graph().waits().is_empty() {}
/// let graph = mungo::debug::wait_graph();
/// assert!(graph.to_string().contains("mutex"));
/// drop(held);
/// waiter.join().unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct WaitGraph {
    /// In the order of their keys.
    waits: Vec<GoroutineWait>,
    cycles: Vec<Vec<u64>>,
    /// The same cycles.
    keyed_cycles: Vec<Vec<Key>>,
    /// Number of goroutines that were not looked at.
    omitted: usize,
}

impl WaitGraph {
    /// Returns the goroutines that wait, by their runtimes and numbers, of the first 10,000; and up to 10,000 more that
    /// are stuck in waits for locks, joins and scopes.
    ///
    /// ```
    /// use mungo::sync::Mutex;
    /// use std::sync::Arc;
    ///
    /// let mutex = Arc::new(Mutex::new(()));
    /// let held = mutex.lock();
    /// let waiter = mungo::go({
    ///     let mutex = mutex.clone();
    ///     move || drop(mutex.lock())
    /// });
    /// while mungo::debug::wait_graph().waits().is_empty() {}
    /// let graph = mungo::debug::wait_graph();
    /// assert_eq!(graph.waits()[0].goroutine, waiter.goroutine().id().as_u64());
    /// drop(held);
    /// waiter.join().unwrap();
    /// ```
    pub fn waits(&self) -> &[GoroutineWait] {
        &self.waits
    }

    /// Returns the deadlocks: numbers of goroutines of which each waits for the next, and the last for the first. Of
    /// cycles that share goroutines one is returned. Several runtimes number their goroutines each from 1 on; the text
    /// of the graph then names the runtime too.
    ///
    /// ```
    /// use mungo::sync::Mutex;
    /// use std::sync::Arc;
    ///
    /// let mutex = Arc::new(Mutex::new(()));
    /// let held = mutex.lock();
    /// let waiter = mungo::go({
    ///     let mutex = mutex.clone();
    ///     move || drop(mutex.lock())
    /// });
    /// while mungo::debug::wait_graph().waits().is_empty() {}
    /// let graph = mungo::debug::wait_graph();
    /// assert!(graph.cycles().is_empty(), "the holder does not wait");
    /// drop(held);
    /// waiter.join().unwrap();
    /// ```
    pub fn cycles(&self) -> &[Vec<u64>] {
        &self.cycles
    }

    /// Returns the goroutines that nothing can wake any more: those of the cycles, and those that wait for them.
    ///
    /// ```
    /// use mungo::sync::Mutex;
    /// use std::sync::Arc;
    ///
    /// let mutex = Arc::new(Mutex::new(()));
    /// let held = mutex.lock();
    /// let waiter = mungo::go({
    ///     let mutex = mutex.clone();
    ///     move || drop(mutex.lock())
    /// });
    /// while mungo::debug::wait_graph().waits().is_empty() {}
    /// let graph = mungo::debug::wait_graph();
    /// assert_eq!(graph.stuck().count(), 0, "the holder may unlock");
    /// drop(held);
    /// waiter.join().unwrap();
    /// ```
    pub fn stuck(&self) -> impl Iterator<Item = &GoroutineWait> {
        self.waits.iter().filter(|wait| wait.is_stuck)
    }

    fn find(&self, key: Key) -> Option<&GoroutineWait> {
        self.waits.binary_search_by_key(&key, |wait| wait.key).ok().map(|at| &self.waits[at])
    }
}

/// Tells one goroutine of the process from all others. Its number alone does not: each runtime counts from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    /// The number of its runtime; 0: one that is not looked at.
    runtime: u16,
    id: u64,
    /// The address of its G: numbers of runtimes end at 65,535.
    g: usize,
}

impl Key {
    /// Returns the key of a goroutine of one of `runtimes`, or of another one.
    fn of(g: &G, runtimes: &[Arc<Shared>]) -> Key {
        // WHY NOT its runtime's number by the pointer: the runtime of a goroutine that ends now may be gone.
        let is_its = |shared: &&Arc<Shared>| std::ptr::eq(g.shared.get(), Arc::as_ptr(shared));
        let runtime = runtimes.iter().find(is_its).map_or(0, |shared| shared.number);
        Key { runtime, id: g.id.load(Relaxed), g: std::ptr::from_ref(g).addr() }
    }
}

/// How thorough a look is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Holders of locks, goroutines that are joined, scopes.
    Known,
    /// Handles of channels and wait groups too, by a search of memory.
    Searched,
    /// As `Searched`, of a runtime in which nothing will ever move.
    Dead,
}

/// Most goroutines that are looked at whatever they do, and most of the others that are found stuck.
const LOOKED_AT: usize = 10_000;

/// Makes the graph of all runtimes, from anywhere. `None`: the system refused a thread for it.
pub(crate) fn graph() -> Option<WaitGraph> {
    let marker = 0u8;
    let below = &raw const marker as usize;
    on_a_new_thread(|| {
        let graph = graph_of(&crate::sched::sysmon::monitor::runtimes(), Depth::Searched, below);
        crate::sched::report::memory::scrub();
        graph
    })
}

/// Makes the graph of some runtimes, on a plain thread. Below `below` nothing counts on the stack where it is.
pub(crate) fn graph_of(runtimes: &[Arc<Shared>], depth: Depth, below: usize) -> WaitGraph {
    let mut seen = look::Seen::all(runtimes, LOOKED_AT);
    if depth != Depth::Known {
        handles::search(&mut seen, runtimes, below);
    }
    let is_dead = depth == Depth::Dead;
    let mut stuck = stuck::stuck(&seen.found, |_| true, is_dead);
    if !is_dead && stuck.iter().any(|is_stuck| *is_stuck) {
        let still = seen.still_wait();
        stuck = stuck::stuck(&seen.found, |at| still[at], false);
    }
    let keyed_cycles = stuck::cycles(&seen.found, &stuck);
    let cycles = keyed_cycles.iter().map(|cycle| cycle.iter().map(|key| key.id).collect()).collect();
    let omitted = seen.omitted;
    let waits = seen.into_waits(&stuck);
    WaitGraph { waits, cycles, keyed_cycles, omitted }
}
