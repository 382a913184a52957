//! `go`: a goroutine is made and queued.

use super::current::{self, Running};
use super::g::{G, GPtr, GRef, pool};
use super::p::P;
use super::scope::ScopeData;
use crate::policies::Rank;
use crate::sched::engine::hooks;
use crate::sched::pick::{From, Why, enqueue, notice_behind};
use crate::sched::shared::Shared;
use crate::sched::start::default_runtime;
use crate::sched::traced;
use crate::stack::slab::Class;
use std::io;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Starts a goroutine and returns a handle to wait for it.
///
/// Inside a goroutine the new one belongs to the same runtime, on a plain thread to the default one, which is made at
/// first use. Dropping the handle detaches the goroutine: it goes on, and its panic is reported on stderr.
///
/// ```
/// let answer = mungo::go(|| 6 * 7);
/// assert_eq!(answer.join().unwrap(), 42);
/// ```
///
/// # Panics
/// If there is no memory for its stack, or the default runtime cannot be started;
/// [`Builder::spawn`](crate::Builder::spawn) returns these errors.
#[doc(alias("task", "goroutine"))]
#[track_caller]
#[inline]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: `'static`.
    JoinHandle::new(unsafe { Spec::here().spawn(None, f) }.expect("mungo: cannot spawn a goroutine"))
}

/// Starts a goroutine: the same as [`go`], by std's name.
///
/// ```
/// assert_eq!(mungo::spawn(|| 6 * 7).join().unwrap(), 42);
/// ```
///
/// # Panics
/// As [`go`].
#[track_caller]
#[inline]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    go(f)
}

/// Waits for a goroutine and gets its result. Dropping it detaches the goroutine.
///
/// It is a future too, for tasks of any executor: the output is what [`join`](Self::join) returns. A poll that is given
/// up changes nothing: the handle can be polled again, joined or dropped.
///
/// ```
/// let square = mungo::go(|| 7 * 7);
/// assert_eq!(mungo::block_on(async { square.await.unwrap() }), 49);
/// ```
pub struct JoinHandle<T> {
    /// `None` once `join` took it.
    pub(crate) g: Option<GRef>,
    result: PhantomData<T>,
}

impl<T> JoinHandle<T> {
    /// Makes the handle of a goroutine that was just spawned.
    #[inline]
    pub(crate) fn new(spawned: Spawned<T>) -> JoinHandle<T> {
        JoinHandle { g: Some(spawned.into_g()), result: PhantomData }
    }
}

/// Everything about a goroutine that is to be started, except its code.
///
/// TUNED: passed on by reference: each move of it read back what had just been written, in larger pieces, for which the
/// CPU waits; 7 ns a spawn.
pub(crate) struct Spec {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) class: Option<Class>,
    pub(crate) place: &'static Location<'static>,
    pub(crate) scope: *const ScopeData,
    /// Its priority, weight and deadlines, if any were set.
    pub(crate) rank: Option<Box<Rank>>,
}

impl Spec {
    #[track_caller]
    #[inline]
    pub(crate) fn here() -> Spec {
        Spec { name: None, class: None, place: Location::caller(), scope: std::ptr::null(), rank: None }
    }

    /// Spawns on `target`, else on the caller's runtime, else on the default one.
    ///
    /// # Safety
    /// What `f` and `T` borrow lives until the goroutine has ended.
    #[inline]
    pub(crate) unsafe fn spawn<F, T>(mut self, target: Option<&Arc<Shared>>, f: F) -> io::Result<Spawned<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let running = Running::enter();
        // What can fail comes first: if it does, `f` is dropped after `running`, outside of the runtime. Its
        // destructor may block.
        let g = match &running {
            Some(running) if target.is_none_or(|t| std::ptr::eq(&raw const **t, running.shared())) => {
                self.admit(running.shared())?;
                self.reserve_local(running.p())?;
                // SAFETY: by the caller; reserved.
                unsafe { self.spawn_local(running, f) }
            }
            _ => {
                let shared = match target {
                    Some(shared) => shared,
                    None => default_runtime()?,
                };
                self.admit(shared)?;
                self.class.unwrap_or(shared.config.stack_class).reserve(1)?;
                // SAFETY: by the caller; reserved.
                unsafe { self.spawn_from_outside(shared, f) }
            }
        };
        Ok(Spawned { g, result: PhantomData })
    }

    /// Asks the policy whether it admits the goroutine, if the goroutine states a rank.
    #[inline]
    fn admit(&self, shared: &Shared) -> io::Result<()> {
        match &self.rank {
            None => Ok(()),
            Some(rank) => hooks::admit(shared, rank),
        }
    }

    /// Reserves a stack.
    #[inline]
    fn reserve_local(&self, p: &P) -> io::Result<()> {
        // SAFETY: in the runtime, so the P is ours.
        let core = unsafe { p.core() };
        match self.class {
            Some(class) if class != core.slots.class() => class.reserve(1),
            _ => core.slots.reserve(),
        }
    }

    #[inline]
    unsafe fn spawn_local<F, T>(&mut self, running: &Running, f: F) -> GRef
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let (p, shared) = (running.p(), running.shared());
        // SAFETY: in the runtime, so the P is ours.
        let core = unsafe { p.core() };
        let g = core.take_g();
        let id = core.new_id(&shared.next_id);
        let n = p.counters.spawned.next();
        if p.sampler.spawns.is_turn(n) {
            p.sampler.spawned(n, &g);
        }
        // SAFETY: by the caller; the G is idle and ours.
        let handle = unsafe { self.fill(g, shared, id, Some(running.g()), f) };
        enqueue(shared, g, Why::Spawned, From::Owner(p));
        shared.wake_one();
        notice_behind(shared, p);
        handle
    }

    #[cold]
    unsafe fn spawn_from_outside<F, T>(&mut self, shared: &Arc<Shared>, f: F) -> GRef
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let mut one = Vec::with_capacity(1);
        pool::refill(&mut one, 1);
        let g = one.pop().expect("just refilled");
        let id = shared.next_id.fetch_add(1, Relaxed);
        // ORDERING: Release as the Ps' counters: see `Shared::live`.
        shared.external_spawned.fetch_add(1, Release);
        if let Some(caller) = current::g() {
            inherit_labels(&g, caller);
        }
        // SAFETY: by the caller; the G is idle and ours.
        let handle = unsafe { self.fill(g, shared, id, None, f) };
        enqueue(shared, g, Why::Spawned, From::Elsewhere);
        shared.wake_one();
        shared.monitor.notice_inbox(shared);
        handle
    }

    #[inline]
    unsafe fn fill<F, T>(&mut self, g: GPtr, shared: &Shared, id: u64, parent: Option<&G>, f: F) -> GRef
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        g.shared.set(shared);
        g.scope.set(self.scope);
        hooks::begin(shared, &g, id, self.rank.as_deref(), parent);
        g.class.set(self.class.unwrap_or(shared.config.stack_class));
        if let Some(caller) = parent
            && !caller.labels.is_empty()
        {
            inherit_labels(&g, caller);
        }
        // SAFETY: by the caller. The second count is the handle's.
        let handle = unsafe {
            g.prepare::<F, T>(f, id, self.place, self.name.take());
            GRef::from_counted(g)
        };
        traced::created(shared, &g, parent, self.place);
        handle
    }
}

/// Gives a new goroutine the labels of the one that spawns it, which is the caller.
#[cold]
fn inherit_labels(g: &G, caller: &G) {
    // SAFETY: the caller's own.
    g.labels.replace(unsafe { caller.labels.get() });
}

/// A goroutine that was spawned and returns a `T`, with the count of its handle.
pub(crate) struct Spawned<T> {
    g: GRef,
    result: PhantomData<fn() -> T>,
}

impl<T> Spawned<T> {
    #[inline]
    pub(crate) fn into_g(self) -> GRef {
        self.g
    }
}
