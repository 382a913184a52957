//! What makes a recorder write a snapshot by itself.
//!
//! A recorder has a slot, and each trigger a word with a bit for each slot. A thread, or a signal handler, that sees
//! something happen asks for snapshots by bits in [`WANTED`]; the writer's thread writes them.

use super::writer;
use crate::sys::signal::call_previous;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed, Release},
};
use std::time::Duration;

/// The most recorders at a time.
pub(super) const SLOTS: usize = 8;
const SIGNALS: usize = 65;

/// What a recorder waits for, and where its snapshot goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Triggers {
    pub(crate) path: PathBuf,
    pub(crate) slow_region: Option<Duration>,
    pub(crate) signal: Option<c_int>,
    pub(crate) on_deadlock: bool,
    pub(crate) on_exit: bool,
    pub(crate) on_policy: bool,
}

static WANTED: AtomicU32 = AtomicU32::new(0);
/// Those of them that are wanted because the process ends.
static LAST: AtomicU32 = AtomicU32::new(0);
static ON_DEADLOCK: AtomicU32 = AtomicU32::new(0);
static ON_EXIT: AtomicU32 = AtomicU32::new(0);
static ON_POLICY: AtomicU32 = AtomicU32::new(0);
static ON_SIGNAL: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];
/// The duration in ns from which a region is slow to each recorder; `u64::MAX`: none is.
static SLOW_NS: [AtomicU64; SLOTS] = [const { AtomicU64::new(u64::MAX) }; SLOTS];
/// The smallest of them.
static SLOWEST_NS: AtomicU64 = AtomicU64::new(u64::MAX);

impl Triggers {
    /// Puts them in force for the recorder in this slot.
    pub(super) fn arm(&self, slot: usize) -> io::Result<()> {
        if let Some(signal) = self.signal {
            catch(signal)?;
            ON_SIGNAL[signal as usize].fetch_or(1 << slot, Relaxed);
        }
        if self.on_deadlock {
            ON_DEADLOCK.fetch_or(1 << slot, Relaxed);
        }
        if self.on_exit {
            ON_EXIT.fetch_or(1 << slot, Relaxed);
        }
        if self.on_policy {
            ON_POLICY.fetch_or(1 << slot, Relaxed);
        }
        let slow_ns = self.slow_region.map_or(u64::MAX, |slow| slow.as_nanos() as u64);
        set_slow(slot, slow_ns);
        Ok(())
    }
}

/// Ends all triggers of a slot.
pub(super) fn disarm(slot: usize) {
    for word in ON_SIGNAL.iter().chain([&ON_DEADLOCK, &ON_EXIT, &ON_POLICY, &LAST, &WANTED]) {
        word.fetch_and(!(1 << slot), Relaxed);
    }
    set_slow(slot, u64::MAX);
}

/// By the holder of the writer's lock.
fn set_slow(slot: usize, slow_ns: u64) {
    SLOW_NS[slot].store(slow_ns, Relaxed);
    let least = SLOW_NS.iter().map(|ns| ns.load(Relaxed)).min().unwrap_or(u64::MAX);
    SLOWEST_NS.store(least, Relaxed);
}

/// The slots whose snapshots are wanted, one bit each.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) all: u32,
    /// Those that are the last ones, before the process ends.
    pub(super) last: u32,
}

/// Returns whether a snapshot is wanted.
pub(super) fn is_any_wanted() -> bool {
    WANTED.load(Relaxed) != 0
}

/// Takes the slots whose snapshots are wanted.
pub(super) fn take_wanted() -> Wanted {
    let all = WANTED.swap(0, AcqRel); // ORDERING: what came before the wish is in the round that follows
    Wanted { all, last: LAST.load(Relaxed) }
}

/// Keeps wishes for a later round. By the holder of the writer's lock, before another recorder can get the slot.
pub(super) fn put_back(slots: u32) {
    WANTED.fetch_or(slots, Relaxed);
}

/// Safe in a signal handler.
fn want(slots: u32) {
    if slots != 0 {
        WANTED.fetch_or(slots, Release); // ORDERING: see `take_wanted`
        writer::call();
    }
}

/// Returns whether a recorder wants to know how long regions took.
pub(crate) fn watches_regions() -> bool {
    SLOWEST_NS.load(Relaxed) != u64::MAX
}

/// Tells recorders that a region took this long.
pub(crate) fn region_ended(took: Duration) {
    let took_ns = took.as_nanos() as u64;
    if took_ns >= SLOWEST_NS.load(Relaxed) {
        let slow = (0..SLOTS).filter(|slot| took_ns >= SLOW_NS[*slot].load(Relaxed));
        want(slow.fold(0, |all, slot| all | 1 << slot));
    }
}

/// Tells recorders that a policy was replaced, because it did what it must not do.
pub(crate) fn policy_replaced() {
    want(ON_POLICY.load(Relaxed));
}

/// Tells recorders that the process is about to end, in a deadlock or otherwise. Safe in a signal handler.
pub(super) fn process_ends(is_deadlock: bool) {
    let dead = if is_deadlock { ON_DEADLOCK.load(Relaxed) } else { 0 };
    let slots = dead | ON_EXIT.load(Relaxed);
    LAST.fetch_or(slots, Relaxed); // before the wish, which publishes it
    want(slots);
}

/// The handlers that were there before ours.
static PREVIOUS: [OnceLock<libc::sigaction>; SIGNALS] = [const { OnceLock::new() }; SIGNALS];

/// Whether our handler is there. Written under the writer's lock.
static CAUGHT: [AtomicBool; SIGNALS] = [const { AtomicBool::new(false) }; SIGNALS];

/// Installs the handler for a signal; once for the process.
fn catch(signal: c_int) -> io::Result<()> {
    let Some(previous) = usize::try_from(signal).ok().and_then(|at| PREVIOUS.get(at)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{signal} is no signal")));
    };
    if CAUGHT[signal as usize].load(Relaxed) {
        return Ok(());
    }
    // SAFETY: a handler of the three-argument kind, on the alternate stack; what was there is called by it.
    unsafe {
        let mut old: libc::sigaction = MaybeUninit::zeroed().assume_init();
        if libc::sigaction(signal, std::ptr::null(), &mut old) != 0 {
            return Err(io::Error::last_os_error());
        }
        _ = previous.set(old); // first: our handler looks there
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(signal, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    CAUGHT[signal as usize].store(true, Relaxed);
    Ok(())
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    want(ON_SIGNAL[signal as usize].load(Relaxed));
    if let Some(previous) = PREVIOUS[signal as usize].get() {
        call_previous(previous, signal, info, context);
    }
}
