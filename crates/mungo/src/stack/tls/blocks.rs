//! All blocks of goroutines, for code that must do something to each: a table by their numbers, which are dense.
//!
//! Parts of the table double in size and are never freed. They come from libc, not from the program's allocator: a
//! worker that builds a block must not wait for that.

use std::io;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Number of places in the first part.
const FIRST: usize = 1024;
/// Number of parts: as many as it takes for all numbers.
const PARTS: usize = 23;
static TABLE: [AtomicPtr<AtomicUsize>; PARTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PARTS];

/// Returns the part, and the place there.
fn place(number: u32) -> (usize, usize) {
    let n = number as usize / FIRST + 1;
    let part = n.ilog2() as usize;
    (part, number as usize - FIRST * ((1 << part) - 1))
}

/// Returns the place of a number, if its part is there.
fn entry(number: u32) -> Option<&'static AtomicUsize> {
    let (part, at) = place(number);
    // SAFETY: null, or `FIRST << part` zeroed words that are never freed. ORDERING: Acquire their zeroes.
    unsafe { TABLE.get(part)?.load(Acquire).as_ref().map(|first| &*std::ptr::from_ref(first).add(at)) }
}

/// Enters the block with this number, which is about to be made.
pub(super) fn enlist(number: u32, tp: *mut u8) -> io::Result<()> {
    if entry(number).is_none() {
        make_part(place(number).0)?;
    }
    // ORDERING: Release what is known of the block to `each`.
    entry(number).expect("just made").store(tp as usize, Release);
    Ok(())
}

#[cold]
fn make_part(part: usize) -> io::Result<()> {
    // SAFETY: zeroed words are atomics.
    unsafe {
        let fresh = libc::calloc(FIRST << part, size_of::<AtomicUsize>()).cast::<AtomicUsize>();
        if fresh.is_null() {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        // ORDERING: Release the zeroes, Acquire those of another thread that was faster.
        if TABLE[part].compare_exchange(std::ptr::null_mut(), fresh, AcqRel, Acquire).is_err() {
            libc::free(fresh.cast());
        }
    }
    Ok(())
}

/// Removes the block with this number, which ends.
pub(super) fn delist(number: u32, tp: *mut u8) {
    if let Some(entry) = entry(number) {
        debug_assert_eq!(entry.load(Relaxed), tp as usize);
        entry.store(0, Relaxed);
    }
}

/// Calls `f` with each block, also one that is being made, and perhaps one that has just ended: then it is memory that
/// is not used before it is made anew.
pub(super) fn each(mut f: impl FnMut(*mut u8)) {
    for (part, first) in TABLE.iter().enumerate() {
        // ORDERING: Acquire the part's zeroes.
        let first = first.load(Acquire);
        for at in 0..if first.is_null() { 0 } else { FIRST << part } {
            // SAFETY: as in `entry`. ORDERING: Acquire, pairs with `enlist`.
            match unsafe { &*first.add(at) }.load(Acquire) {
                0 => {}
                tp => f(tp as *mut u8),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_places_of_their_own() {
        let mut expected = (0, 0);
        for number in 0..100_000 {
            assert_eq!(place(number), expected, "{number}");
            expected = match expected {
                (part, at) if at + 1 == FIRST << part => (part + 1, 0),
                (part, at) => (part, at + 1),
            };
        }
        let (part, at) = place(u32::MAX);
        assert!(part < PARTS && at < FIRST << part);
    }
}
