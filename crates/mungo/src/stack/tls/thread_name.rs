//! A goroutine's name is that of [`std::thread::current`], so that panics, logs and tracers show it.
//!
//! std makes a handle without a name for a thread that it did not start, and offers no way to name it. The name is two
//! words in the handle, and where they lie is looked up in the handle of a thread that has a name ([`learn`]). A named
//! goroutine writes its name there before its code begins, and asks std for it: if std does not find it, the words
//! are put back, and no other goroutine tries. Goroutines without a name pay nothing.

use std::mem::{ManuallyDrop, transmute_copy};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::Thread;

/// Number of words in the memory of a handle: counts, name and id, at least.
const WORDS: usize = 5;
/// A value of `PLACE`: not known, or it does not work.
const UNKNOWN: u32 = 0;
/// The place of the name's address, and of its length, in words: `1 + WORDS * address + length`.
static PLACE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// A name of a length that no other word of a handle has by chance.
pub(super) const PROBE: &str = "mungo-looks-at-how-this-thread-is-named";

/// Returns the memory of a handle, if a handle is its address, as in the versions of std that are known.
fn memory(thread: &Thread) -> Option<*mut usize> {
    if size_of::<Thread>() != size_of::<*mut usize>() {
        return None;
    }
    // SAFETY: as large as a pointer, and never null.
    let at = unsafe { transmute_copy::<Thread, *mut usize>(thread) };
    at.is_aligned().then_some(at)
}

/// Learns the place of the name. By a thread with the name [`PROBE`].
pub(super) fn learn() {
    let thread = std::thread::current();
    let (Some(memory), Some(name)) = (memory(&thread), thread.name()) else { return };
    // SAFETY: `WORDS` says that there are as many. The handle is this thread's and its parent's, which waits.
    let words: [usize; WORDS] = std::array::from_fn(|i| unsafe { memory.add(i).read() });
    let only = |value: usize| {
        let mut found = (0..WORDS).filter(|&i| words[i] == value);
        found.next().filter(|_| found.next().is_none())
    };
    // It is kept with a NUL behind it.
    if let (Some(address), Some(length)) = (only(name.as_ptr().addr()), only(name.len() + 1)) {
        PLACE.store((1 + WORDS * address + length) as u32, Relaxed);
    }
}

/// Names a goroutine for std. By a goroutine with own thread-locals, before its code begins. `name` has no NUL.
#[cold]
pub(crate) fn set(name: &str) {
    let place = match PLACE.load(Relaxed) {
        UNKNOWN => return,
        place => place as usize - 1,
    };
    let thread = std::thread::current();
    let Some(memory) = memory(&thread) else { return };
    // As std keeps it: a boxed slice, which the last handle drops.
    let kept = ManuallyDrop::new([name.as_bytes(), b"\0"].concat().into_boxed_slice());
    // SAFETY: `learn` has seen that the name of a handle is there. No other thread has this one: it was made just now,
    // for this goroutine.
    unsafe {
        let (address, length) = (memory.add(place / WORDS), memory.add(place % WORDS));
        let before = (address.read(), length.read());
        if before.0 != 0 || thread.name().is_some() {
            return drop(ManuallyDrop::into_inner(kept));
        }
        address.write(kept.as_ptr().expose_provenance());
        length.write(kept.len());
        if thread.name() != Some(name) {
            address.write(before.0);
            length.write(before.1);
            PLACE.store(UNKNOWN, Relaxed);
            drop(ManuallyDrop::into_inner(kept));
        }
    }
}
