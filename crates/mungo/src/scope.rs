//! Goroutines that may borrow: `scope`.

use crate::goroutine::Goroutine;
use crate::sched::run::scope::ScopeData;
use crate::sched::run::spawn::Spec;
use crate::spawn::{Builder, JoinHandle};
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// Spawns goroutines that borrow from outside; see [`scope`].
///
/// ```
/// let mut words = vec!["one".to_owned(), "two".to_owned()];
/// mungo::scope(|s| words.iter_mut().for_each(|word| drop(s.spawn(|| word.make_ascii_uppercase()))));
/// assert_eq!(words, ["ONE", "TWO"]);
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    data: NonNull<ScopeData>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

// SAFETY: `ScopeData` is made of atomics, and outlives the scope.
unsafe impl Send for Scope<'_, '_> {}
// SAFETY: as above.
unsafe impl Sync for Scope<'_, '_> {}

/// Runs `f`, which may spawn goroutines that borrow from the caller's frame, and waits for all of them.
///
/// The guarantees are those of [`std::thread::scope`].
///
/// ```
/// let mut numbers = vec![1, 2, 3];
/// let (sum, max) = mungo::scope(|s| {
///     let sum = s.spawn(|| numbers.iter().sum::<i32>());
///     let max = s.spawn(|| numbers.iter().max().copied());
///     (sum.join().unwrap(), max.join().unwrap())
/// });
/// numbers.push(sum + max.unwrap());
/// assert_eq!(numbers, [1, 2, 3, 9]);
/// ```
///
/// # Panics
/// If `f` panics, or a goroutine panicked that was not joined.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let data = ScopeData::new();
    let scope = Scope { data: NonNull::from(&data), scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    let panicked = data.wait();
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if panicked => panic!("a scoped goroutine panicked"),
        Ok(value) => value,
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a goroutine that may borrow what outlives the scope.
    ///
    /// ```
    /// let text = String::from("borrowed");
    /// assert_eq!(mungo::scope(|s| s.spawn(|| text.len()).join().unwrap()), 8);
    /// ```
    ///
    /// # Panics
    /// As [`go`](crate::go).
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn_spec(Spec::here(), f).expect("mungo: cannot spawn a goroutine")
    }

    pub(crate) fn spawn_spec<F, T>(&'scope self, spec: Spec, f: F) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        // SAFETY: the data outlives `'scope`.
        let data = unsafe { self.data.as_ref() };
        data.enter();
        // SAFETY: `scope` does not return before the goroutine has left; by then it dropped what it borrowed.
        let spawned = unsafe { Spec { scope: data, ..spec }.spawn(None, f) };
        match spawned {
            Ok(spawned) => Ok(ScopedJoinHandle { inner: JoinHandle::new(spawned), scope: PhantomData }),
            Err(e) => {
                data.give_up();
                Err(e)
            }
        }
    }
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: the data outlives the scope.
        let data = unsafe { self.data.as_ref() };
        f.debug_struct("Scope").field("running", &data.running()).finish_non_exhaustive()
    }
}

/// A handle to a goroutine of a [`Scope`]. As [`JoinHandle`] it is a future too.
///
/// ```
/// let numbers = [1, 2, 3];
/// let sum = mungo::scope(|s| mungo::block_on(s.spawn(|| numbers.iter().sum::<i32>())).unwrap());
/// assert_eq!(sum, 6);
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    inner: JoinHandle<T>,
    scope: PhantomData<&'scope ()>,
}

impl<T> Unpin for ScopedJoinHandle<'_, T> {}

impl<T> ScopedJoinHandle<'_, T> {
    /// See [`JoinHandle::join`].
    ///
    /// ```
    /// let caught = mungo::scope(|s| s.spawn(|| -> u32 { panic!("out of paper") }).join().is_err());
    /// assert!(caught);
    /// ```
    ///
    /// # Errors
    /// The panic's payload.
    pub fn join(self) -> std::thread::Result<T> {
        self.inner.join()
    }

    /// See [`JoinHandle::is_finished`].
    ///
    /// ```
    /// mungo::scope(|s| {
    ///     let handle = s.spawn(|| 42);
    ///     while !handle.is_finished() {
    ///         mungo::yield_now();
    ///     }
    ///     assert_eq!(handle.join().unwrap(), 42);
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// See [`JoinHandle::goroutine`].
    ///
    /// ```
    /// mungo::scope(|s| {
    ///     let parked = s.spawn(mungo::park);
    ///     parked.goroutine().unpark();
    ///     assert!(parked.join().is_ok());
    /// });
    /// ```
    pub fn goroutine(&self) -> Goroutine {
        self.inner.goroutine()
    }
}

impl<T> Future for ScopedJoinHandle<'_, T> {
    type Output = std::thread::Result<T>;

    /// Polls as [`JoinHandle`] does.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.inner).poll(cx)
    }
}

impl<T> std::fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopedJoinHandle").field("goroutine", &self.inner.goroutine()).finish_non_exhaustive()
    }
}

impl Builder {
    /// Starts the goroutine within `scope`.
    ///
    /// ```
    /// let text = String::from("borrowed");
    /// let name = mungo::scope(|s| {
    ///     let reader = mungo::Builder::new().name("reader".to_owned()).spawn_scoped(s, || {
    ///         assert_eq!(text, "borrowed");
    ///         mungo::current().name().map(str::to_owned)
    ///     })?;
    ///     std::io::Result::Ok(reader.join().unwrap())
    /// })?;
    /// assert_eq!(name.as_deref(), Some("reader"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    #[track_caller]
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.spawn_spec(self.spec(Location::caller())?, f)
    }
}
