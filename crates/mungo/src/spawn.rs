//! `go`, `JoinHandle`, `Builder`.

use crate::current::Running;
use crate::goroutine::Goroutine;
use crate::policy::{Priority, Rank, hooks};
use crate::runtime::{Runtime, default_runtime};
use crate::sched::g::{DONE, G, GPtr, GRef, NO_JOINER, WaitReason, pool};
use crate::sched::p::P;
use crate::sched::park::{self, Waiter};
use crate::sched::shared::Shared;
use crate::scope::ScopeData;
use crate::stack::slab::Class;
use std::io;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::task::{Context, Poll};
use std::time::Duration;

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
/// If there is no memory for its stack, or the default runtime cannot be started; [`Builder::spawn`] returns these
/// errors.
#[track_caller]
#[inline]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: `'static`.
    unsafe { Spec::here().spawn(None, f) }.expect("mungo: cannot spawn a goroutine")
}

/// The same as [`go`], by std's name.
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

/// Everything about a goroutine to be, but its code.
///
/// TUNED: passed on by reference: each move of it read back what had just been written, in larger pieces, for which the
/// CPU waits; 7 ns a spawn.
pub(crate) struct Spec {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) class: Option<Class>,
    pub(crate) place: &'static Location<'static>,
    pub(crate) scope: *const ScopeData,
    /// What it said about its priority and so on.
    pub(crate) rank: Option<Box<Rank>>,
}

impl Spec {
    #[track_caller]
    #[inline]
    pub(crate) fn here() -> Spec {
        Spec { name: None, class: None, place: Location::caller(), scope: std::ptr::null(), rank: None }
    }

    /// Spawns on `target`, or on the caller's runtime, or on the default one.
    ///
    /// # Safety
    /// What `f` and `T` borrow lives until the goroutine has ended.
    #[inline]
    pub(crate) unsafe fn spawn<F, T>(mut self, target: Option<&Arc<Shared>>, f: F) -> io::Result<JoinHandle<T>>
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
                    None => default_runtime()?.shared(),
                };
                self.admit(shared)?;
                self.class.unwrap_or(shared.config.stack_class).reserve(1)?;
                // SAFETY: by the caller; reserved.
                unsafe { self.spawn_from_outside(shared, f) }
            }
        };
        Ok(JoinHandle { g: Some(g), result: PhantomData })
    }

    /// Asks the policy, if there is something to ask.
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
        park::queue_next(p, shared, g);
        shared.wake_one();
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
        // SAFETY: by the caller; the G is idle and ours.
        let handle = unsafe { self.fill(g, shared, id, None, f) };
        shared.push_global_one(g);
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
        // SAFETY: by the caller. The second count is the handle's.
        unsafe {
            g.prepare::<F, T>(f, id, self.place, self.name.take());
            GRef::from_counted(g)
        }
    }
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
    g: Option<GRef>,
    result: PhantomData<T>,
}

// SAFETY: the result crosses by `join` only, and `spawn` asked for `T: Send`. As std's.
unsafe impl<T> Send for JoinHandle<T> {}
// SAFETY: through a shared reference nothing but the G's atomics can be reached.
unsafe impl<T> Sync for JoinHandle<T> {}

/// The result is elsewhere.
impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    fn g(&self) -> &GRef {
        self.g.as_ref().expect("only `join` takes it")
    }

    /// Waits until the goroutine has ended, its thread-locals' destructors included, and returns its result, or what it
    /// panicked with. Works on goroutines, which park, and on plain threads, which block.
    ///
    /// # Errors
    /// The panic's payload.
    ///
    /// # Panics
    /// If the handle was awaited and the result taken.
    pub fn join(mut self) -> std::thread::Result<T> {
        let g = self.g.take().expect("only `join` takes it");
        wait_for(&g);
        // SAFETY: done, and we have the only handle.
        unsafe { take_result(&g) }
    }

    /// Whether the goroutine has ended: then `join` returns at once.
    pub fn is_finished(&self) -> bool {
        self.g().is_done()
    }

    /// The goroutine, for its id, its name, and to unpark it.
    pub fn goroutine(&self) -> Goroutine {
        Goroutine::from(self.g().clone())
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = std::thread::Result<T>;

    /// # Panics
    /// If it was ready before.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let g = self.g();
        if !g.poll_done(cx.waker()) {
            return Poll::Pending;
        }
        // SAFETY: done, and this is the only handle.
        Poll::Ready(unsafe { take_result(g) })
    }
}

/// # Safety
/// The goroutine has ended, and the caller has the only handle that may take its result.
unsafe fn take_result<T>(g: &G) -> std::thread::Result<T> {
    assert!(g.has_result(), "the goroutine's result was taken before");
    g.set_drop_result(None);
    // SAFETY: by the caller, and it is there.
    unsafe { g.take() }
}

fn wait_for(g: &G) {
    drop(g.take_back_task()); // of a poll that was given up
    if g.is_done() {
        return;
    }
    let waiter = Waiter::current();
    let address = &raw const waiter as usize;
    // ORDERING: Release our waiter to `complete`, Acquire the result if it is there.
    match g.join.compare_exchange(NO_JOINER, address, AcqRel, Acquire) {
        Ok(_) => waiter.wait(WaitReason::Join),
        Err(state) => debug_assert_eq!(state, DONE),
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").field("goroutine", &self.g).finish_non_exhaustive()
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(g) = self.g.take() {
            g.detach();
        }
    }
}

/// To give a goroutine a name or a stack size.
///
/// ```
/// let worker = mungo::Builder::new()
///     .name("parser".to_owned())
///     .stack_size(64 * 1024)
///     .spawn(|| mungo::current().name().map(str::to_owned))?;
/// assert_eq!(worker.join().unwrap().as_deref(), Some("parser"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `spawn`"]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    rank: Rank,
}

impl Builder {
    /// A goroutine without a name, with the runtime's stack size.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Its name, for dumps, panics and traces.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// The least stack that it needs, in bytes.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// How urgent it is, for policies that ask. Unless said, that of the goroutine that starts it.
    ///
    /// ```
    /// use mungo::policy::Priority;
    ///
    /// let urgent = mungo::Builder::new().priority(Priority::HIGH).spawn(|| mungo::priority())?;
    /// assert_eq!(urgent.join().unwrap(), Priority::HIGH);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.rank.priority = Some(priority);
        self
    }

    /// Its share of CPU time, in proportion to others', for policies that ask; 1024 is usual, up to 2^20. Unless said,
    /// that of the goroutine that starts it.
    ///
    /// ```
    /// let background = mungo::Builder::new().weight(128).spawn(|| 42)?;
    /// assert_eq!(background.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn weight(mut self, weight: u32) -> Builder {
        self.rank.weight = Some(weight);
        self
    }

    /// It shall be done so long after its start, for policies that ask. What it starts is part of its work, and shares
    /// its deadline unless it has its own.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let soon = mungo::Builder::new().deadline(Duration::from_millis(50)).spawn(|| 42)?;
    /// assert_eq!(soon.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn deadline(mut self, after: Duration) -> Builder {
        self.rank.deadline_after_ns = Some(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        self
    }

    /// It does at most `budget` of work in each `period`, and each time it shall be done when the period ends. A policy
    /// that guarantees this, as `deadline` does, refuses to start it if there is too much such work already.
    ///
    /// ```
    /// use mungo::policy::Deadline;
    /// use std::time::Duration;
    ///
    /// let runtime = mungo::Runtime::builder().procs(1).scheduler(Deadline::new()).build()?;
    /// let ms = Duration::from_millis;
    /// let most = mungo::Builder::new().period_budget(ms(10), ms(8));
    /// let most = most.spawn_on(&runtime, move || mungo::sleep(ms(5)))?;
    /// let error = mungo::Builder::new().period_budget(ms(10), ms(8)).spawn_on(&runtime, || ()).unwrap_err();
    /// assert!(error.to_string().contains("80 % of a CPU"));
    /// most.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn period_budget(mut self, period: Duration, budget: Duration) -> Builder {
        self.rank.period_budget = Some((period, budget));
        self
    }

    fn spec(self, place: &'static Location<'static>) -> io::Result<Spec> {
        if self.name.as_ref().is_some_and(|name| name.contains('\0')) {
            let why = "a goroutine's name must not contain a NUL character";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let class = self.stack_size.map(Class::for_stack).transpose()?;
        let rank = (!self.rank.is_default()).then(|| Box::new(self.rank));
        Ok(Spec { name: self.name.map(Into::into), class, place, scope: std::ptr::null(), rank })
    }

    /// Starts the goroutine, as [`go`] does.
    ///
    /// # Errors
    /// `InvalidInput` for a name with a NUL or a stack size below 16 KiB or above 16 GiB; `OutOfMemory`; and what
    /// starting the default runtime may return.
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `'static`.
        unsafe { self.spec(Location::caller())?.spawn(None, f) }
    }

    /// Starts the goroutine on `runtime`.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    #[track_caller]
    pub fn spawn_on<F, T>(self, runtime: &Runtime, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `'static`.
        unsafe { self.spec(Location::caller())?.spawn(Some(runtime.shared()), f) }
    }

    /// Starts the goroutine within `scope`.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    #[track_caller]
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope crate::Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<crate::ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.spawn_spec(self.spec(Location::caller())?, f)
    }
}
