//! Goroutines with settings, and what a handle is for; `go` itself is in `sched/run/spawn.rs`.

pub use crate::sched::run::spawn::{JoinHandle, go, spawn};

use crate::goroutine::Goroutine;
use crate::policies::{Priority, Rank};
use crate::reason::WaitReason;
use crate::sched::run::g::{DONE, G, GRef, NO_JOINER};
use crate::sched::run::park::Waiter;
use crate::sched::run::spawn::Spec;
use crate::stack::slab::Class;
use std::io;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::task::{Context, Poll};
use std::time::Duration;

// SAFETY: the result crosses by `join` only, and `spawn` asked for `T: Send`. As std's.
unsafe impl<T> Send for JoinHandle<T> {}
// SAFETY: through a shared reference nothing but the G's atomics can be reached.
unsafe impl<T> Sync for JoinHandle<T> {}

/// The result lies elsewhere, so the handle may move.
impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    fn g(&self) -> &GRef {
        self.g.as_ref().expect("only `join` takes it")
    }

    /// Waits until the goroutine has ended, its thread-locals' destructors included, and returns its result, or what it
    /// panicked with. Works on goroutines, which park, and on plain threads, which block.
    ///
    /// ```
    /// let good = mungo::go(|| 42);
    /// assert_eq!(good.join().unwrap(), 42);
    /// let bad = mungo::go(|| -> u32 { panic!("out of paper") });
    /// assert_eq!(bad.join().unwrap_err().downcast_ref(), Some(&"out of paper"));
    /// ```
    ///
    /// # Errors
    /// Returns the panic's payload.
    ///
    /// # Panics
    /// If the handle was awaited and the result taken.
    pub fn join(mut self) -> std::thread::Result<T> {
        let g = self.g.take().expect("only `join` takes it");
        wait_for(&g);
        // SAFETY: done, and we have the only handle.
        unsafe { take_result(&g) }
    }

    /// Returns whether the goroutine has ended: then `join` returns at once.
    ///
    /// ```
    /// let (tx, rx) = mungo::chan::bounded::<()>(0);
    /// let waiting = mungo::go(move || rx.recv());
    /// assert!(!waiting.is_finished());
    /// drop(tx);
    /// while !waiting.is_finished() {
    ///     mungo::yield_now();
    /// }
    /// ```
    pub fn is_finished(&self) -> bool {
        self.g().is_done()
    }

    /// Returns the goroutine, for its id, its name, and to unpark it.
    ///
    /// ```
    /// let sleeper = mungo::Builder::new().name("sleeper".to_owned()).spawn(mungo::park)?;
    /// assert_eq!(sleeper.goroutine().name(), Some("sleeper"));
    /// sleeper.goroutine().unpark();
    /// sleeper.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    drop(g.take_back_task()); // the task of a poll that was given up
    if g.is_done() {
        return;
    }
    let waiter = Waiter::current();
    let address = &raw const waiter as usize;
    // ORDERING: Release our waiter to `complete`, Acquire the result if it is there.
    match g.join.compare_exchange(NO_JOINER, address, AcqRel, Acquire) {
        Ok(_) => waiter.wait(WaitReason::Join.on(std::ptr::from_ref(g).addr())),
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

/// Starts a goroutine with a name, a stack size or other settings.
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
    /// Describes a goroutine without a name, with the runtime's stack size.
    ///
    /// ```
    /// assert_eq!(mungo::Builder::new().spawn(|| mungo::current().name().is_none())?.join().unwrap(), true);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets its name, for dumps, panics, traces and, if its thread-locals are its own, [`std::thread::current`].
    ///
    /// ```
    /// let named = mungo::Builder::new().name("parser".to_owned());
    /// assert_eq!(named.spawn(|| mungo::current().name() == Some("parser"))?.join().unwrap(), true);
    /// let error = mungo::Builder::new().name("a\0b".to_owned()).spawn(|| ()).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias("name a goroutine"))]
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Sets the least stack that it needs, in bytes.
    ///
    /// ```
    /// let roomy = mungo::Builder::new().stack_size(8 << 20);
    /// let sum = roomy.spawn(|| [1u8; 4 << 20].iter().map(|&b| u64::from(b)).sum::<u64>())?;
    /// assert_eq!(sum.join().unwrap(), 4 << 20);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets how urgent it is, for policies that ask. Default: the priority of the goroutine that starts it.
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

    /// Sets its share of CPU time, in proportion to others', for policies that ask; 1024 is usual, up to 2^20.
    /// Default: the weight of the goroutine that starts it.
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

    /// Sets the time after its start by which it shall be done, for policies that ask. Goroutines that it starts are
    /// part of its work, and share its deadline unless they have their own.
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

    /// Declares at most `budget` of work in each `period`, to be done each time before the period ends. A policy that
    /// guarantees this, as `deadline` does, refuses to start it if there is too much such work already.
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

    pub(crate) fn spec(self, place: &'static Location<'static>) -> io::Result<Spec> {
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
    /// ```
    /// let answer = mungo::Builder::new().spawn(|| 42)?;
    /// assert_eq!(answer.join().unwrap(), 42);
    /// assert!(mungo::Builder::new().stack_size(1).spawn(|| ()).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidInput` for a name with a NUL or a stack size below 16 KiB or above 16 GiB; `OutOfMemory`; and
    /// what starting the default runtime may return.
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: `'static`.
        unsafe { self.spec(Location::caller())?.spawn(None, f) }.map(JoinHandle::new)
    }
}
