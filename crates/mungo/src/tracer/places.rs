//! Numbers for places in the source, which fit a record.

use mungo_trace::format;
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU16, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Room for places; further ones have no number. A power of two.
const ROOM: usize = 4096;
/// Neighbours of its own place in the table where an entry may lie.
const PROBES: usize = 16;
/// The number of places that have none.
const UNKNOWN: u16 = u16::MAX;

/// The places, by a hash of their addresses. An entry is written once.
static TABLE: [AtomicPtr<Location<'static>>; ROOM] = [const { AtomicPtr::new(null_mut()) }; ROOM];
/// Their numbers and 1, in the order in which they came.
static ORDER: [AtomicU16; ROOM] = [const { AtomicU16::new(0) }; ROOM];
static LEN: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of a place. Neither locks nor allocates.
pub(crate) fn number_of(place: &'static Location<'static>) -> u16 {
    let address = std::ptr::from_ref(place).cast_mut();
    let hash = (address.addr() as u64 >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    for probe in 0..PROBES {
        let at = (hash as usize + probe) % ROOM;
        let mut found = TABLE[at].load(Relaxed);
        if found.is_null() {
            // ORDERING: Release: nothing else is published; AcqRel because it is a claim.
            match TABLE[at].compare_exchange(null_mut(), address, AcqRel, Relaxed) {
                Ok(_) => {
                    let nth = LEN.fetch_add(1, Relaxed);
                    ORDER[nth].store(at as u16 + 1, Release); // ORDERING: pairs with `put_from`
                    return at as u16;
                }
                Err(other) => found = other,
            }
        }
        if found == address {
            return at as u16;
        }
    }
    UNKNOWN
}

/// Appends a block with the places from the `from`th on, if there are any. Returns the number of places so far.
pub(super) fn put_from(out: &mut Vec<u8>, from: usize) -> usize {
    let new = ORDER[from..].iter().map(|number| number.load(Acquire)).take_while(|number| *number != 0);
    let new: Vec<u16> = new.collect();
    if !new.is_empty() {
        let places = new.iter().filter_map(|number| {
            // SAFETY: a `&'static Location`, by `number_of`.
            let place = unsafe { TABLE[usize::from(number - 1)].load(Relaxed).as_ref() }?;
            Some((number - 1, place.line(), place.column(), place.file()))
        });
        format::put_places(out, places);
    }
    from + new.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_number() {
        let (here, there) = (Location::caller(), Location::caller());
        let numbers = [here, there].map(number_of);
        assert_eq!([here, there].map(number_of), numbers);
        assert!(numbers.iter().all(|number| *number != UNKNOWN));
        let mut out = Vec::new();
        let len = put_from(&mut out, 0);
        assert!(len >= 1 && out.len() > format::BLOCK_HEADER);
        assert!(put_from(&mut Vec::new(), len) >= len);
    }
}
