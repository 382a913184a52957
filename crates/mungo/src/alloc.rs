//! Global allocators that keep a heap per thread.
//!
//! A goroutine has thread-locals of its own. To an allocator that keeps a heap per thread in a thread-local (mimalloc,
//! jemalloc, snmalloc) each goroutine is therefore a thread: it would make a heap for each, and lose or rebuild it when
//! the goroutine ends. [`OnThread`] makes it see the OS threads instead.
//!
//! glibc's malloc, Rust's default on Linux, needs no wrapper: goroutines use the cache of the thread that they run on.
//!
//! ```
//! use mungo::alloc::OnThread;
//! use std::alloc::System; // or mimalloc::MiMalloc, tikv_jemallocator::Jemalloc, …
//!
//! #[global_allocator]
//! static GLOBAL: OnThread<System> = OnThread::new(System);
//!
//! let words = mungo::go(|| vec!["allocated", "by", "a", "goroutine"]);
//! assert_eq!(words.join().unwrap().len(), 4);
//! ```

use crate::sched::run::current;
use crate::sched::run::g::G;
use crate::sched::run::m::M;
use crate::stack::tls;
use std::alloc::{GlobalAlloc, Layout};
use std::marker::PhantomData;

/// A global allocator that runs `A` on the thread-locals of the OS thread, also when a goroutine calls.
///
/// Use it around every allocator that keeps a heap per thread:
///
/// ```
/// use mungo::alloc::OnThread;
/// # use std::alloc::System as MiMalloc;
///
/// #[global_allocator]
/// static GLOBAL: OnThread<MiMalloc> = OnThread::new(MiMalloc);
/// ```
///
/// Memory may be freed by another goroutine or thread than the one that allocated it, as always. `A` must not call the
/// runtime: in its code the goroutine is not known.
///
/// # Cost
///
/// On plain threads, before the first goroutine, and where goroutines share the thread-locals of their thread
/// ([`ThreadLocals::Shared`](crate::ThreadLocals::Shared)) this is `A` itself, one call deeper, and a test of a few
/// instructions. In a goroutine each call moves the thread pointer there and back, which takes several times as long as
/// a small allocation. A program whose goroutines allocate all the time is faster with the default allocator; one
/// that wants the layout, the statistics or the memory profile of another one gets them with this.
/// `cargo test --release -p mungo --test alloc_mimalloc -- --ignored --nocapture cost` measures it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnThread<A>(A);

impl<A> OnThread<A> {
    /// Wraps `allocator`.
    ///
    /// ```
    /// use mungo::alloc::OnThread;
    /// use std::alloc::{GlobalAlloc, Layout, System};
    ///
    /// static HEAP: OnThread<System> = OnThread::new(System);
    /// let layout = Layout::new::<u64>();
    /// // SAFETY: what is allocated is freed, with the same layout.
    /// unsafe {
    ///     let memory = HEAP.alloc(layout);
    ///     assert!(!memory.is_null());
    ///     HEAP.dealloc(memory, layout);
    /// }
    /// ```
    pub const fn new(allocator: A) -> Self {
        OnThread(allocator)
    }

    /// Returns the wrapped allocator, for its own functions. Those that are about "this thread" see the goroutine.
    ///
    /// ```
    /// use mungo::alloc::OnThread;
    /// use std::alloc::System;
    ///
    /// static HEAP: OnThread<System> = OnThread::new(System);
    /// let _system: &System = HEAP.get_ref();
    /// assert_eq!(size_of_val(&HEAP), size_of::<System>());
    /// ```
    pub const fn get_ref(&self) -> &A {
        &self.0
    }
}

/// Keeps this thread on its own thread-locals while it lives; its drop goes back to the goroutine's.
///
/// While it lives, the thread runs `A` and nothing else: there is no current goroutine, so nothing can park or yield,
/// and a preemption signal finds a plain thread and leaves it alone. The goroutine is in the runtime: it keeps its P.
struct OwnTls<'a> {
    /// The goroutine that the thread-locals are of; `None` after its end.
    g: Option<&'a G>,
    goroutines: usize,
    /// Is about the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl OwnTls<'_> {
    /// Moves this thread to its own thread-locals. Returns `None` if it is on them already: a plain thread, the
    /// scheduler between two goroutines, `A` calling itself through the global allocator, shared thread-locals.
    #[inline(always)]
    fn enter() -> Option<OwnTls<'static>> {
        tls::loader()?;
        // This comes first, because outside of the runtime the goroutine may be interrupted, and go on elsewhere.
        let g = current::g();
        g.inspect(|g| g.enter_runtime());
        // SAFETY: an M moved this thread to the block; it lives at least until the thread has left the block.
        let m = unsafe { tls::loader()?.cast::<M>().as_ref() };
        let goroutines = tls::thread_pointer();
        // SAFETY: the block of this very thread. Nothing between here and `drop` remembers the other one's addresses:
        // see `alloc`.
        unsafe { tls::set_thread_pointer(m.own_tp()) };
        Some(OwnTls { g, goroutines, _not_send: PhantomData })
    }
}

impl Drop for OwnTls<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the block that `enter` found loaded. `M::loaded_tp` has said so all the time.
        unsafe { tls::set_thread_pointer(self.goroutines) };
        self.g.inspect(|g| g.leave_runtime());
    }
}

// The compiler takes the address of a thread-local for a constant within a function. So `A`'s code must not be
// inlined into a function that moves the thread pointer, ours or, by way of ours, a caller's: each of these functions
// runs on one block from its first to its last instruction.

#[inline(never)]
unsafe fn alloc<A: GlobalAlloc>(a: &A, layout: Layout) -> *mut u8 {
    // SAFETY: by the caller.
    unsafe { a.alloc(layout) }
}

#[inline(never)]
unsafe fn alloc_zeroed<A: GlobalAlloc>(a: &A, layout: Layout) -> *mut u8 {
    // SAFETY: by the caller.
    unsafe { a.alloc_zeroed(layout) }
}

#[inline(never)]
unsafe fn dealloc<A: GlobalAlloc>(a: &A, at: *mut u8, layout: Layout) {
    // SAFETY: by the caller.
    unsafe { a.dealloc(at, layout) }
}

#[inline(never)]
unsafe fn realloc<A: GlobalAlloc>(a: &A, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    // SAFETY: by the caller.
    unsafe { a.realloc(at, layout, new_size) }
}

// SAFETY: passes each call on to `A`, which is one; on which thread-locals makes no difference to the contract.
unsafe impl<A: GlobalAlloc> GlobalAlloc for OnThread<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _on = OwnTls::enter();
        // SAFETY: by the caller.
        unsafe { alloc(&self.0, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _on = OwnTls::enter();
        // SAFETY: by the caller.
        unsafe { alloc_zeroed(&self.0, layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _on = OwnTls::enter();
        // SAFETY: by the caller.
        unsafe { dealloc(&self.0, at, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let _on = OwnTls::enter();
        // SAFETY: by the caller.
        unsafe { realloc(&self.0, at, layout, new_size) }
    }
}
