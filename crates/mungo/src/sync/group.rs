//! Goroutines with one purpose: the first error ends all of them.

use super::{Mutex, OwnedPermit, Semaphore, WaitGroup};
use crate::context::{CancelCause, Context};
use crate::scope::Scope;
use crate::spawn::go;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};

/// A group of goroutines that work on parts of one thing: Go's `errgroup.Group`, with results.
///
/// [`go`](Self::go) starts a goroutine, [`wait`](Self::wait) waits for all of them. The first error, or panic, cancels
/// the group's [context](Self::context), which each goroutine gets as its argument, and is what `wait` returns. If all
/// goes well, `wait` returns the results, in the order of the calls of `go`.
///
/// Clones are the same group, so that its goroutines can start more. A group that is dropped without `wait` goes on,
/// and its result is lost.
///
/// ```
/// use mungo::sync::Group;
///
/// let group = Group::new();
/// for word in ["1", "2", "3"] {
///     group.go(move |_ctx| word.parse::<i32>());
/// }
/// assert_eq!(group.wait(), Ok(vec![1, 2, 3]));
///
/// let group = Group::new();
/// group.go(|ctx| {
///     _ = ctx.done().recv(); // until another one fails
///     Ok(())
/// });
/// group.go(|_| Err("out of paper"));
/// assert_eq!(group.wait(), Err("out of paper"));
/// ```
///
/// With a [`scope`](crate::scope()) the goroutines may borrow: see [`go_scoped`](Self::go_scoped).
#[doc(alias("errgroup", "JoinSet", "TaskTracker", "wait for several"))]
pub struct Group<T, E> {
    inner: Arc<Inner<T, E>>,
}

struct Inner<T, E> {
    ctx: Context,
    cancel: CancelCause,
    running: WaitGroup,
    /// The places for goroutines, set once by `limit`; empty: as many as come.
    places: OnceLock<Arc<Semaphore>>,
    state: Mutex<State<T, E>>,
}

struct State<T, E> {
    /// The results, by the number of the call of `go`.
    results: Vec<Option<T>>,
    failure: Option<Failure<E>>,
}

enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<T, E> Group<T, E> {
    /// Makes a group with a context of its own.
    ///
    /// ```
    /// let group = mungo::sync::Group::<u32, std::io::Error>::new();
    /// group.go(|_| Ok(7));
    /// assert_eq!(group.wait().unwrap(), [7]);
    /// ```
    #[must_use]
    pub fn new() -> Group<T, E> {
        Group::with_context(&Context::background())
    }

    /// Makes a group whose context is a child of `ctx`: Go's `errgroup.WithContext`.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    /// use mungo::sync::Group;
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let group = Group::<(), ContextError>::with_context(&ctx);
    /// group.go(|ctx| ctx.sleep(std::time::Duration::from_secs(3600)));
    /// cancel.cancel();
    /// assert_eq!(group.wait(), Err(ContextError::Canceled));
    /// ```
    #[must_use]
    pub fn with_context(ctx: &Context) -> Group<T, E> {
        let (ctx, cancel) = ctx.with_cancel_cause();
        let state = Mutex::new(State { results: Vec::new(), failure: None });
        let places = OnceLock::new();
        Group { inner: Arc::new(Inner { ctx, cancel, running: WaitGroup::new(), places, state }) }
    }

    /// Lets at most `n` goroutines of the group run at a time; [`go`](Self::go) waits for a place. To be called before
    /// the first one is started.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    ///
    /// static RUNNING: AtomicUsize = AtomicUsize::new(0);
    /// let group = mungo::sync::Group::<(), ()>::new().limit(3);
    /// for _ in 0..20 {
    ///     group.go(|_| {
    ///         assert!(RUNNING.fetch_add(1, SeqCst) < 3);
    ///         mungo::yield_now();
    ///         RUNNING.fetch_sub(1, SeqCst);
    ///         Ok(())
    ///     });
    /// }
    /// group.wait().unwrap();
    /// ```
    ///
    /// # Panics
    /// If `n` is 0, or the group has goroutines, or a limit already.
    #[doc(alias("concurrency"))]
    #[must_use]
    pub fn limit(self, n: usize) -> Group<T, E> {
        assert!(n > 0, "Group: a limit of 0 lets nothing run");
        assert!(self.inner.state.lock().results.is_empty(), "Group: a limit after the first goroutine");
        let limited = self.inner.places.set(Arc::new(Semaphore::new(n)));
        assert!(limited.is_ok(), "Group: a second limit");
        self
    }

    /// Returns the group's context: done at the first error or panic, and when [`wait`](Self::wait) returns.
    ///
    /// ```
    /// let group = mungo::sync::Group::<(), ()>::new();
    /// let ctx = group.context().clone();
    /// group.wait().unwrap();
    /// assert!(ctx.is_done());
    /// ```
    pub fn context(&self) -> &Context {
        &self.inner.ctx
    }

    /// Starts a goroutine. With a [limit](Self::limit) it first waits for a place; so a goroutine of a group that is
    /// full must not call this, but [`try_go`](Self::try_go).
    ///
    /// ```
    /// let group = mungo::sync::Group::<_, String>::new();
    /// (0..100).for_each(|i| group.go(move |_| Ok(i * i)));
    /// assert_eq!(group.wait().unwrap().iter().sum::<i32>(), 328_350);
    /// ```
    ///
    /// # Panics
    /// As [`go`](crate::go()).
    #[track_caller]
    pub fn go<F>(&self, f: F)
    where
        F: FnOnce(&Context) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let place = self.inner.places.get().map(|places| places.clone().acquire_owned(1));
        let member = self.member(place);
        drop(go(move || member.run(f)));
    }

    /// Starts a goroutine if there is a place for it. Returns `f` if there is none.
    ///
    /// ```
    /// let group = mungo::sync::Group::<(), ()>::new().limit(1);
    /// let (done, end) = mungo::chan::bounded::<()>(0);
    /// group.go(move |_| Ok(_ = end.recv()));
    /// assert!(group.try_go(|_| Ok(())).is_err());
    /// drop(done);
    /// group.wait().unwrap();
    /// ```
    ///
    /// # Errors
    /// The function, if as many goroutines run as the [limit](Self::limit) allows.
    ///
    /// # Panics
    /// As [`go`](crate::go()).
    #[track_caller]
    pub fn try_go<F>(&self, f: F) -> Result<(), F>
    where
        F: FnOnce(&Context) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let place = match self.inner.places.get() {
            None => None,
            Some(places) => match places.clone().try_acquire_owned(1) {
                None => return Err(f),
                place => place,
            },
        };
        let member = self.member(place);
        drop(go(move || member.run(f)));
        Ok(())
    }

    /// Starts a goroutine that may borrow what outlives the scope.
    ///
    /// ```
    /// use mungo::sync::Group;
    ///
    /// let pages = vec!["one".to_owned(), "three".to_owned()];
    /// let lengths = mungo::scope(|scope| {
    ///     let group = Group::<usize, String>::new().limit(8);
    ///     for page in &pages {
    ///         group.go_scoped(scope, |_| Ok(page.len()));
    ///     }
    ///     group.wait()
    /// });
    /// assert_eq!(lengths, Ok(vec![3, 5]));
    /// ```
    ///
    /// # Panics
    /// As [`go`](crate::go()).
    #[track_caller]
    pub fn go_scoped<'scope, F>(&self, scope: &'scope Scope<'scope, '_>, f: F)
    where
        F: FnOnce(&Context) -> Result<T, E> + Send + 'scope,
        T: Send + 'scope,
        E: Send + 'scope,
    {
        let place = self.inner.places.get().map(|places| places.clone().acquire_owned(1));
        let member = self.member(place);
        drop(scope.spawn(move || member.run(f)));
    }

    /// Waits for all goroutines of the group, and cancels its context. Returns the results in the order of the calls
    /// of [`go`](Self::go), or the first error.
    ///
    /// The results can be had once: a second call returns what was started since.
    ///
    /// ```
    /// let group = mungo::sync::Group::new();
    /// group.go(|_| Ok::<_, String>('a'));
    /// assert_eq!(group.wait(), Ok(vec!['a']));
    /// ```
    ///
    /// # Errors
    /// Returns the error that came first.
    ///
    /// # Panics
    /// If a goroutine of the group panicked, and none failed before: with the same payload.
    pub fn wait(&self) -> Result<Vec<T>, E> {
        self.inner.running.wait();
        self.inner.cancel.cancel("the group has ended");
        let mut state = self.inner.state.lock();
        let (results, failure) = (std::mem::take(&mut state.results), state.failure.take());
        drop(state);
        match failure {
            None => Ok(results.into_iter().flatten().collect()),
            Some(Failure::Error(e)) => Err(e),
            Some(Failure::Panic(payload)) => resume_unwind(payload),
        }
    }

    fn member(&self, place: Option<OwnedPermit>) -> Member<T, E> {
        let mut state = self.inner.state.lock();
        let number = state.results.len();
        state.results.push(None);
        drop(state);
        Member { running: self.inner.running.token(), place, group: self.inner.clone(), number }
    }
}

/// A goroutine's place in its group.
struct Member<T, E> {
    group: Arc<Inner<T, E>>,
    number: usize,
    place: Option<OwnedPermit>,
    running: super::WaitToken,
}

impl<T, E> Member<T, E> {
    fn run(self, f: impl FnOnce(&Context) -> Result<T, E>) {
        let Member { group, number, place, running } = self;
        let failure = match catch_unwind(AssertUnwindSafe(|| f(&group.ctx))) {
            Ok(Ok(value)) => {
                if let Some(result) = group.state.lock().results.get_mut(number) {
                    *result = Some(value);
                }
                None
            }
            Ok(Err(e)) => Some((Failure::Error(e), "a goroutine of the group failed")),
            Err(payload) => Some((Failure::Panic(payload), "a goroutine of the group panicked")),
        };
        if let Some((failure, cause)) = failure {
            // The first one stays; another one is dropped, without the lock.
            let mut state = group.state.lock();
            let late = match state.failure {
                None => state.failure.replace(failure),
                Some(_) => Some(failure),
            };
            drop(state);
            drop(late);
            group.cancel.cancel(cause);
        }
        drop((place, group)); // what it borrows is gone before `wait` returns
        drop(running);
    }
}

impl<T, E> Clone for Group<T, E> {
    fn clone(&self) -> Self {
        Group { inner: self.inner.clone() }
    }
}

impl<T, E> Default for Group<T, E> {
    fn default() -> Self {
        Group::new()
    }
}

impl<T, E> fmt::Debug for Group<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("running", &self.inner.running.count()).finish_non_exhaustive()
    }
}
