//! A goroutine's own thread-locals.
//!
//! The address of a `thread_local!` must not change under a running function: LLVM keeps it in a
//! register across calls, and `LocalKey::with` hands out references. A goroutine that migrates
//! between OS threads would break both. So each goroutine owns a complete thread block, as the C
//! library lays it out for a thread, and the thread pointer (FS on x86-64) is switched with the
//! goroutine. `thread_local!`, `errno`, `std::thread::current()`, panic counts and `HashMap` seeds
//! then belong to the goroutine, wherever it runs.
//!
//! One block lies at the top of each stack slot:
//!
//! ```text
//!   slot top ─┬──────────────────────────────┐
//!             │ slot header                  │
//!             ├──────────────────────────────┤
//!             │ struct pthread   (`above`)   │
//!   thread ──►├──────────────────────────────┤  FS base, self pointer in its first word
//!   pointer   │ TLS of the executable        │
//!             │ TLS of libc (malloc's tcache)│
//!             │ surplus for dlopen  (`below`)│  reserved, never touched
//!             ├──────────────────────────────┤
//!             │ first frame of the goroutine │
//!             ▼            …                 ▼
//! ```
//!
//! Where this cannot work (another C library, another processor, a static executable, a kernel
//! without user-mode FS writes) goroutines share the thread-locals of the thread they run on, as
//! in every other runtime of this kind, and `Runtime::info` says so. `MUNGO_DEBUG=owntls=0` forces it.
//!
//! **What is fresh.** A goroutine finds thread-locals as a new thread does, though blocks are reused: those of the
//! executable and its libraries are put back to their initial image, those of libraries loaded by `dlopen` are
//! freed and made anew, keys are cleared, `errno` is 0, the locale is the global one. What libc keeps for its own use
//! stays with the block: malloc's cache, buffers, a `dlerror` that nobody asked for.
//!
//! **Known limits.** A library loaded by `dlopen` that wants *static* TLS (few do; it needs `-ftls-model=initial-exec`)
//! finds it zeroed, or as the last goroutine left it, in blocks made before. Priority-inheriting and robust pthread
//! mutexes, which name their owner to the kernel, must not be locked by a goroutine. `pthread_self` names the
//! goroutine, so it is no handle for the thread below: `pthread_setaffinity_np` and the like fail with `ESRCH`, and
//! `pthread_getattr_np` does not know its stack. What belongs to the kernel's thread does not migrate: the signal
//! mask, priorities, the affinity.

use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(target_feature = "crt-static"),
    not(miri)
))]
#[path = "glibc.rs"]
mod imp;

#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(target_feature = "crt-static"),
    not(miri)
)))]
#[path = "shared.rs"]
mod imp;

pub(crate) use imp::{Layout, layout, loader, prefetch, set_loader, set_thread_pointer, thread_pointer};

/// Thread ids for the C library start above the kernel's largest pid (2^22), so they also tell a goroutine's block from
/// a thread's.
pub(crate) const FIRST_TID: u32 = 1 << 23;

/// What a switch touches of a block. They share a cache line. TUNED: with the loader behind `struct pthread`, and the
/// current one read by way of the block's first word, a switch among 1000 goroutines took 52 instead of 43 ns.
#[repr(C, align(16))]
struct Words {
    current: Cell<*const ()>,
    loader: Cell<*const ()>,
}

thread_local! {
    static WORDS: Words = const { Words { current: Cell::new(null()), loader: Cell::new(null()) } };
}

/// Where [`Words::current`] is, from the thread pointer on, in all blocks of threads and goroutines; 0: not known, or
/// not the same in all (in a library loaded by `dlopen`).
static CURRENT_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// What [`set_current`] left in the block that this thread is on. No function may keep its address across a switch:
/// with shared thread-locals that is another thread's afterwards.
#[inline]
pub(crate) fn current() -> *const () {
    match CURRENT_OFFSET.load(Relaxed) {
        0 => current_of_thread(),
        // SAFETY: an address within each block.
        at => unsafe { imp::word_at(at) as *const () },
    }
}

#[inline(never)]
fn current_of_thread() -> *const () {
    WORDS.try_with(|words| words.current.get()).unwrap_or(null())
}

#[inline(never)]
pub(crate) fn set_current(who: *const ()) {
    WORDS.with(|words| words.current.set(who));
}
