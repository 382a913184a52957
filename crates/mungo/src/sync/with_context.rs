//! Waits that end when a context is done: methods of [`Context`].

use super::{Mutex, MutexGuard, OwnedPermit, Permit, Semaphore, WaitGroup};
use crate::context::hook::OnDone;
use crate::context::{Context, ContextError};
use crate::reason::WaitReason;
use crate::sched::run::waitq::Node;
use crate::sys::clock::UNTIL_CLAIMED;
use std::ptr::NonNull;
use std::sync::Arc;

/// Ends the wait of a node.
struct End(NonNull<Node>);

// SAFETY: `Node::end` may be called by any thread while the node is alive, which `while_hooked` sees to.
unsafe impl Sync for End {}

impl OnDone for End {
    fn context_is_done(&self) {
        // SAFETY: called while the frame of the node waits, or before; it has a deadline.
        unsafe { Node::end(self.0) };
    }
}

impl Context {
    /// Calls `enter` with a way to wait that ends with the context. `enter` returns `None` if its wait ended so.
    fn wait_by<R>(
        &self,
        reason: WaitReason,
        enter: impl FnOnce(&dyn Fn(&Node) -> bool) -> Option<R>,
    ) -> Result<R, ContextError> {
        self.check()?;
        let entered = enter(&|node| self.while_hooked(&End(NonNull::from(node)), || node.wait_or_end(reason)));
        entered.ok_or_else(|| self.err().unwrap_or(ContextError::Canceled))
    }

    /// Locks a mutex, unless the context is done first. A context that is done beats a lock that is free.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    /// use mungo::sync::Mutex;
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let value = Mutex::new(1);
    /// *ctx.lock(&value)? += 1;
    /// let held = value.lock();
    /// mungo::go(move || cancel.cancel());
    /// assert_eq!(ctx.lock(&value).unwrap_err(), ContextError::Canceled);
    /// # drop(held);
    /// # Ok::<(), ContextError>(())
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done.
    pub fn lock<'a, T: ?Sized>(&self, mutex: &'a Mutex<T>) -> Result<MutexGuard<'a, T>, ContextError> {
        // SAFETY: a lock that is got here goes to the guard.
        let raw = unsafe { mutex.raw() };
        self.wait_by(WaitReason::Mutex, |wait| raw.lock_by(UNTIL_CLAIMED, wait).then_some(()))?;
        // SAFETY: locked by this goroutine, just now.
        Ok(unsafe { mutex.make_guard_unchecked() })
    }

    /// Takes a permit of a semaphore, unless the context is done first.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    /// use mungo::sync::Semaphore;
    /// use std::time::Duration;
    ///
    /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
    /// let connections = Semaphore::new(1);
    /// let first = connections.acquire();
    /// assert_eq!(ctx.acquire(&connections).unwrap_err(), ContextError::DeadlineExceeded);
    /// # drop(first);
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done. The turn of the waiters behind is not lost.
    pub fn acquire<'a>(&self, semaphore: &'a Semaphore) -> Result<Permit<'a>, ContextError> {
        self.acquire_many(semaphore, 1)
    }

    /// Takes `n` permits of a semaphore at once, unless the context is done first.
    ///
    /// ```
    /// use mungo::context::{Context, ContextError};
    /// use mungo::sync::Semaphore;
    /// use std::time::Duration;
    ///
    /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
    /// let megabytes = Semaphore::new(100);
    /// let most = megabytes.acquire_many(80);
    /// assert_eq!(ctx.acquire_many(&megabytes, 30).unwrap_err(), ContextError::DeadlineExceeded);
    /// # drop(most);
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done. The turn of the waiters behind is not lost.
    pub fn acquire_many<'a>(&self, semaphore: &'a Semaphore, n: usize) -> Result<Permit<'a>, ContextError> {
        self.wait_by(WaitReason::Semaphore, |wait| semaphore.acquire_by(n, UNTIL_CLAIMED, wait))
    }

    /// As [`acquire`](Self::acquire), and keeps the semaphore alive: for a permit that goes to another goroutine.
    ///
    /// ```
    /// let ctx = mungo::context::Context::background();
    /// let places = std::sync::Arc::new(mungo::sync::Semaphore::new(2));
    /// let place = ctx.acquire_owned(&places)?;
    /// mungo::go(move || drop(place)).join().unwrap();
    /// assert_eq!(places.available_permits(), 2);
    /// # Ok::<(), mungo::context::ContextError>(())
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done.
    pub fn acquire_owned(&self, semaphore: &Arc<Semaphore>) -> Result<OwnedPermit, ContextError> {
        self.acquire(semaphore).map(|permit| permit.into_owned(semaphore.clone()))
    }

    /// Waits for a group, unless the context is done first.
    ///
    /// ```
    /// use mungo::context::Context;
    /// use std::time::Duration;
    ///
    /// let wg = mungo::sync::WaitGroup::new();
    /// let connection = wg.token();
    /// let (patience, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
    /// assert!(patience.wait(&wg).is_err());
    /// drop(connection);
    /// assert!(Context::background().wait(&wg).is_ok());
    /// ```
    ///
    /// # Errors
    /// Returns why the context is done.
    pub fn wait(&self, group: &WaitGroup) -> Result<(), ContextError> {
        self.wait_by(WaitReason::WaitGroup, |wait| group.wait_by(UNTIL_CLAIMED, wait).then_some(()))
    }
}
