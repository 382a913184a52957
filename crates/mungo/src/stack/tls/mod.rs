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
//!             │ who loaded it   (`above`)    │  the M whose thread is on this block
//!             │ struct pthread               │
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

pub(crate) use imp::{layout, loader, prefetch, set_loader, set_thread_pointer, thread_pointer};

/// Thread ids for the C library start above the kernel's largest pid (2^22), so they also tell a goroutine's block from
/// a thread's.
pub(crate) const FIRST_TID: u32 = 1 << 23;
