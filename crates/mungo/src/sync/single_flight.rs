//! One call for all that ask for the same thing at the same time.

use super::{Mutex, OnceLock};
use crate::chan::{Receiver, Sender, bounded};
use crate::context::{Context, ContextError, ContextRecvError};
use crate::spawn::go;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

/// Calls a function once for all callers that ask for the same key at the same time: Go's `singleflight.Group`.
///
/// The first caller makes the call; those that come before it has returned wait, and get clones of the result. Nothing
/// is kept afterwards: it is no cache, but what keeps a thousand requests that miss a cache from asking the database a
/// thousand times.
///
/// ```
/// use mungo::sync::SingleFlight;
/// use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
///
/// let (flights, calls) = (SingleFlight::new(), AtomicU32::new(0));
/// mungo::scope(|scope| {
///     for _ in 0..100 {
///         scope.spawn(|| {
///             let page = flights.call("index", || {
///                 calls.fetch_add(1, SeqCst);
///                 mungo::sleep(std::time::Duration::from_millis(10)); // a slow database
///                 "<html>".to_owned()
///             });
///             assert_eq!(page, "<html>");
///         });
///     }
/// });
/// assert!(calls.into_inner() < 100);
/// ```
#[doc(alias("deduplicate", "coalesce"))]
pub struct SingleFlight<K, V> {
    calls: Mutex<HashMap<K, Arc<Call<V>>>>,
}

struct Call<V> {
    /// The result; empty after `done`: the call panicked.
    result: OnceLock<V>,
    /// Closed when the call has ended.
    done: Receiver<()>,
}

/// Ends a call, after a panic too: takes it off the list, then wakes those that wait.
struct Landing<F, K, V>
where
    F: Deref<Target = SingleFlight<K, V>>,
    K: Eq + Hash,
{
    flights: F,
    key: K,
    call: Arc<Call<V>>,
    done: Option<Sender<()>>,
}

impl<F, K, V> Drop for Landing<F, K, V>
where
    F: Deref<Target = SingleFlight<K, V>>,
    K: Eq + Hash,
{
    fn drop(&mut self) {
        let mut calls = self.flights.calls.lock();
        // Unless it was forgotten, and another call has taken its place.
        let is_listed = calls.get(&self.key).is_some_and(|listed| Arc::ptr_eq(listed, &self.call));
        let entry = if is_listed { calls.remove_entry(&self.key) } else { None };
        drop(calls);
        drop(entry); // the key is the user's: not under the lock
        drop(self.done.take());
    }
}

impl<F, K, V> Landing<F, K, V>
where
    F: Deref<Target = SingleFlight<K, V>>,
    K: Eq + Hash,
    V: Clone,
{
    fn fly(self, f: impl FnOnce() -> V) -> V {
        let value = f();
        _ = self.call.result.set(value.clone());
        value
    }
}

impl<K, V> SingleFlight<K, V>
where
    K: Eq + Hash + Clone,
    V: Clone,
{
    /// Makes one without calls under way.
    ///
    /// ```
    /// let flights = mungo::sync::SingleFlight::new();
    /// assert_eq!(flights.call(1, || 2), 2);
    /// ```
    #[must_use]
    pub fn new() -> SingleFlight<K, V> {
        SingleFlight { calls: Mutex::new(HashMap::new()) }
    }

    /// Joins the call for `key`, or calls `f`.
    ///
    /// ```
    /// let flights = mungo::sync::SingleFlight::new();
    /// assert_eq!(flights.call("a", || 1), 1);
    /// assert_eq!(flights.call("a", || 2), 2); // the first one has returned
    /// ```
    ///
    /// # Panics
    /// If `f` panics; those that waited for it panic too.
    pub fn call(&self, key: K, f: impl FnOnce() -> V) -> V {
        match self.join(&key) {
            Ok((call, done)) => Landing { flights: self, key, call, done: Some(done) }.fly(f),
            Err(call) => {
                _ = call.done.recv();
                call.outcome()
            }
        }
    }

    /// Joins the call for `key`, or calls `f` in a goroutine of its own; waits for it until the context is done. The
    /// call goes on then, for the others and to its end.
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::sync::SingleFlight;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let flights = Arc::new(SingleFlight::new());
    /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(1));
    /// let slow = || mungo::sleep(Duration::from_millis(50));
    /// assert!(flights.call_with(&ctx, "slow", slow).is_err());
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done.
    ///
    /// # Panics
    /// If the call panics.
    pub fn call_with(
        self: &Arc<Self>,
        ctx: &Context,
        key: K,
        f: impl FnOnce() -> V + Send + 'static,
    ) -> Result<V, ContextError>
    where
        K: Send + 'static,
        V: Send + Sync + 'static,
    {
        ctx.check()?;
        let call = match self.join(&key) {
            Err(call) => call,
            Ok((call, done)) => {
                let landing = Landing { flights: self.clone(), key, call: call.clone(), done: Some(done) };
                go(move || drop(landing.fly(f)));
                call
            }
        };
        match ctx.recv(&call.done) {
            Err(ContextRecvError::Done(why)) => Err(why),
            _ => Ok(call.outcome()),
        }
    }

    /// Forgets the call for a key: the next caller does not join it but makes another one.
    ///
    /// ```
    /// let flights = mungo::sync::SingleFlight::new();
    /// let answer = flights.call("key", || {
    ///     flights.forget(&"key");
    ///     flights.call("key", || 2) + 1
    /// });
    /// assert_eq!(answer, 3);
    /// ```
    pub fn forget(&self, key: &K) {
        let forgotten = self.calls.lock().remove_entry(key);
        drop(forgotten);
    }

    /// Returns the call that is under way, or a new one and the right to make it.
    #[allow(clippy::type_complexity)] // for two callers
    fn join(&self, key: &K) -> Result<(Arc<Call<V>>, Sender<()>), Arc<Call<V>>> {
        let mut calls = self.calls.lock();
        if let Some(call) = calls.get(key) {
            return Err(call.clone());
        }
        let (done, closed) = bounded(1);
        let call = Arc::new(Call { result: OnceLock::new(), done: closed });
        calls.insert(key.clone(), call.clone());
        Ok((call, done))
    }
}

impl<V: Clone> Call<V> {
    fn outcome(&self) -> V {
        self.result.get().cloned().expect("the call that this one waited for panicked")
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> Self {
        SingleFlight::new()
    }
}

impl<K, V> fmt::Debug for SingleFlight<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").finish_non_exhaustive()
    }
}
