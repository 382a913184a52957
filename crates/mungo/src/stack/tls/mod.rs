//! A goroutine's own thread-locals.
//!
//! The address of a `thread_local!` must not change under a running function: LLVM keeps it in a
//! register across calls, and `LocalKey::with` hands out references. A goroutine that migrates
//! between OS threads would break both. So each goroutine owns a complete thread block, as the C
//! library lays it out for a thread, and the thread pointer (FS on x86-64, TPIDR_EL0 on aarch64) is switched with the
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
//!             │ TLS of libc         (`below`)│  and room for later libraries, if that is wanted (`surplus`)
//!             ├──────────────────────────────┤
//!             │ first frame of the goroutine │
//!             ▼            …                 ▼
//! ```
//!
//! The first frames share the block's page: one page is what a goroutine needs that waits a few calls deep.
//!
//! Where this cannot work (another C library, another processor, a static executable, a kernel
//! without user-mode FS writes, valgrind) no runtime starts, unless it was told that goroutines may
//! share the thread-locals of the thread they run on, as in every other runtime of this kind: by
//! `RuntimeBuilder::allow_shared_thread_locals`, or by `MUNGO_DEBUG=owntls=0`, which forces it. `Runtime::info` says
//! so.
//!
//! **What is fresh.** A goroutine finds thread-locals as a new thread does, though blocks are reused: those of the
//! executable and its libraries are put back to their initial image, those of libraries loaded by `dlopen` are freed
//! and made anew, keys are cleared, `errno` is 0, the locale is the global one. What libc keeps for its own use stays
//! with the block: buffers, a `dlerror` that was not asked for. malloc's cache is the thread's: see `malloc_cache.rs`.
//!
//! A library loaded by `dlopen` that wants *static* TLS (`-ftls-model=initial-exec`) is refused by the C library, or
//! has it in all goroutines if room was kept: see `surplus` and `loading`.
//!
//! **Lists of threads.** A block is in none of glibc's. `fork` unlinks the caller's in the child, hence the empty
//! list in each block. `setxid` signals the threads of the kernel, workers among them: the handler clears the marks
//! of the block that is loaded, and the caller those of the thread's own. What goes wrong for want of a list, and
//! what else a thread can do and a goroutine cannot, is under "Known limits" in the README. What belongs to the
//! kernel's thread does not migrate: the signal mask, priorities, the affinity.

use std::cell::Cell;
use std::io;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

#[cfg(mungo_own_tls)]
#[path = "glibc.rs"]
mod imp;

#[cfg(not(mungo_own_tls))]
#[path = "shared.rs"]
mod imp;

pub(crate) use imp::{
    Layout, loader, make_room, own_malloc_cache, prefetch, set_loader, set_names, set_thread_name,
    set_thread_pointer, share_malloc_cache, static_size, thread_pointer,
};
#[cfg(mungo_own_tls)]
pub(crate) use imp::{adopt, is_known};

/// Says why goroutines cannot have their own thread-locals.
#[allow(dead_code)] // WHY: where they are never possible there is nothing to try again
enum Refusal {
    /// Not in this process.
    Never(&'static str),
    /// The system refused something that it may grant the next time.
    NotNow(io::Error),
}

impl From<&'static str> for Refusal {
    fn from(why: &'static str) -> Refusal {
        Refusal::Never(why)
    }
}

/// The thread-locals that all goroutines of this process see: their own, or, with the reason, their threads'. Written
/// once, before the first goroutine.
static DECISION: OnceLock<Result<Layout, &'static str>> = OnceLock::new();

/// Decides, unless that was done before. It is an error if goroutines cannot have their own thread-locals and the
/// caller does not `allow_shared` ones, or if it wants room for `late_static` ones and that was given away. Nothing but
/// a decision is remembered: after an error it may be asked again.
pub(crate) fn decide(allow_shared: bool, late_static: bool) -> io::Result<()> {
    static DECIDING: Mutex<()> = Mutex::new(());
    let forced = !crate::debug_env::get().own_tls;
    let allow_shared = allow_shared || forced || cfg!(miri); // where a goroutine is a thread
    let _deciding = DECIDING.lock().unwrap_or_else(|e| e.into_inner());
    let decision = match DECISION.get() {
        Some(decision) => decision,
        None => {
            let found = if forced { Err(Refusal::Never(FORCED)) } else { imp::discover(late_static) };
            match found {
                Ok(layout) => DECISION.get_or_init(|| Ok(layout)),
                Err(Refusal::Never(why)) if allow_shared => DECISION.get_or_init(|| Err(why)),
                Err(Refusal::Never(why)) => return Err(unsupported(why)),
                Err(Refusal::NotNow(e)) => return Err(not_now(&e)),
            }
        }
    };
    match decision {
        Err(why) if !allow_shared => Err(unsupported(why)),
        Ok(layout) if late_static && !layout.has_late_static() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "late_static_tls comes too late: the first runtime of this process has given the room away. Ask for it \
             there, or set MUNGO_LATE_STATIC_TLS=1 in the environment",
        )),
        _ => Ok(()),
    }
}

const FORCED: &str = "MUNGO_DEBUG says owntls=0";

fn unsupported(why: &str) -> io::Error {
    let text = format!(
        "goroutines cannot have thread-locals of their own here: {why}. With shared ones, code that keeps a reference \
         to a thread-local while it waits is unsound. Run where own thread-locals are possible (x86-64 or aarch64 \
         Linux, dynamically linked glibc), or, if no code in this program does that, allow shared ones: \
         RuntimeBuilder::allow_shared_thread_locals, or MUNGO_DEBUG=owntls=0 in the environment"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn not_now(e: &io::Error) -> io::Error {
    io::Error::new(
        e.kind(),
        format!("no thread could be started to find out how thread-locals are laid out: {e}"),
    )
}

/// Returns the layout of blocks, or why goroutines share thread-locals. Without a decision it tries to come to one.
#[inline]
pub(crate) fn layout() -> Result<&'static Layout, &'static str> {
    DECISION
        .get()
        .or_else(decided_late)
        .map_or(Err("it is not decided yet"), |decision| decision.as_ref().map_err(|e| *e))
}

/// Returns whether libraries that are loaded later may have static thread-locals.
#[allow(dead_code)] // WHY: no library is loaded where there are no own thread-locals
pub(crate) fn has_late_static() -> bool {
    layout().is_ok_and(Layout::has_late_static)
}

#[cold]
fn decided_late() -> Option<&'static Result<Layout, &'static str>> {
    _ = decide(false, false);
    DECISION.get()
}

/// Thread ids for the C library start above the kernel's largest pid (2^22), so they also tell a goroutine's block
/// from a thread's.
pub(crate) const FIRST_TID: u32 = 1 << 23;

/// The words of a block that a switch touches. They share a cache line. TUNED: with the loader behind `struct
/// pthread`, and the current one read by way of the block's first word, a switch among 1000 goroutines took 52 instead
/// of 43 ns.
#[repr(C, align(32))]
struct Words {
    current: Cell<*const ()>,
    loader: Cell<*const ()>,
    /// The malloc cache that the block uses: see `malloc_cache`.
    malloc_cache: Cell<usize>,
}

thread_local! {
    static WORDS: Words =
        const { Words { current: Cell::new(null()), loader: Cell::new(null()), malloc_cache: Cell::new(0) } };
}

/// The offset of [`Words::current`] from the thread pointer in all blocks of threads and goroutines; 0: not known, or
/// not the same in all (in a library loaded by `dlopen`).
static CURRENT_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Returns what [`set_current`] left in the block that this thread is on. No function may keep its address across a
/// switch: with shared thread-locals that is another thread's afterwards.
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
