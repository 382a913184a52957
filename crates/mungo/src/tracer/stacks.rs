//! Numbers for stacks, which fit a record, and what the numbers stand for.
//!
//! A stack is known by a hash of 64 bits of its return addresses, which the walk makes on its way: with the ten
//! thousand stacks that there is room for, the chance that any two share one is 10⁻¹¹.

use super::names;
use mungo_trace::StackEnd;
use mungo_trace::format;
use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Return addresses of a stack that are kept, at most: the inner ones.
#[cfg_attr(not(mungo_stacks), allow(dead_code))]
pub(crate) const DEPTH: usize = 64;
/// Room for stacks; further ones have no number. A power of two.
const ROOM: usize = 1 << 14;
/// Room for their return addresses: sixteen for each.
const WORDS: usize = ROOM * 16;
/// Neighbours of its own place in the table where a stack may lie.
const PROBES: usize = 16;
/// The number of stacks that have none.
const UNKNOWN: u32 = 0;
/// Bytes from which on a block is ended.
const BLOCK: usize = 1 << 20;

/// Stacks, by their hashes.
struct Table<const ROOM: usize, const WORDS: usize> {
    /// The hashes; 0: free. An entry is written once.
    hashes: [AtomicU64; ROOM],
    /// Where the words of each begin, their number from bit 32 on, and from bit 48 on how it ends.
    meanings: [AtomicU64; ROOM],
    /// Their places in the table and 1, in the order in which they came.
    order: [AtomicU32; ROOM],
    len: AtomicUsize,
    addresses: [AtomicU64; WORDS],
    used: AtomicUsize,
    /// Events whose stack has no number, since the process began.
    lost: AtomicU64,
}

static TABLE: Table<ROOM, WORDS> = Table::new();

/// Returns the number of a stack. `hash` is that of its return addresses. Neither locks nor allocates.
#[cfg_attr(not(mungo_stacks), allow(dead_code))]
#[inline(always)]
pub(crate) fn number_of(hash: u64, addresses: &[u64], end: StackEnd) -> u32 {
    TABLE.number_of(hash, addresses, end)
}

/// Returns the number of events, so far, whose stack has no number.
pub(super) fn lost() -> u64 {
    TABLE.lost.load(Relaxed)
}

/// Returns the number of stacks so far; some of the last ones may not be there yet.
pub(super) fn len() -> usize {
    TABLE.len.load(Relaxed)
}

/// Returns the `nth` stack: its number, its end, and its return addresses. `None`: it is not there, or not yet.
pub(super) fn nth(nth: usize) -> Option<(u32, StackEnd, impl Iterator<Item = u64>)> {
    TABLE.nth(nth)
}

#[cfg_attr(not(mungo_stacks), allow(dead_code))]
impl<const ROOM: usize, const WORDS: usize> Table<ROOM, WORDS> {
    const fn new() -> Self {
        Table {
            hashes: [const { AtomicU64::new(0) }; ROOM],
            meanings: [const { AtomicU64::new(0) }; ROOM],
            order: [const { AtomicU32::new(0) }; ROOM],
            len: AtomicUsize::new(0),
            addresses: [const { AtomicU64::new(0) }; WORDS],
            used: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn number_of(&self, hash: u64, addresses: &[u64], end: StackEnd) -> u32 {
        let hash = spread(hash);
        let at = hash as usize % ROOM;
        match self.hashes[at].load(Relaxed) == hash {
            true => at as u32 + 1,
            false => self.number_slow(hash, addresses, end),
        }
    }

    #[cold]
    #[inline(never)]
    fn number_slow(&self, hash: u64, addresses: &[u64], end: StackEnd) -> u32 {
        for probe in 0..PROBES {
            let at = (hash as usize + probe) % ROOM;
            let mut found = self.hashes[at].load(Relaxed);
            if found == 0 && self.used.load(Relaxed) + addresses.len() <= WORDS {
                // ORDERING: Release: nothing else is published; AcqRel because it is a claim.
                match self.hashes[at].compare_exchange(0, hash, AcqRel, Relaxed) {
                    Ok(_) => {
                        self.define(at, addresses, end);
                        return at as u32 + 1;
                    }
                    Err(other) => found = other,
                }
            }
            if found == hash {
                return at as u32 + 1;
            }
        }
        self.lost.fetch_add(1, Relaxed);
        UNKNOWN
    }

    /// Says what the number of a place stands for. Once, by the thread that claimed the place.
    fn define(&self, at: usize, addresses: &[u64], end: StackEnd) {
        let first = self.used.fetch_add(addresses.len(), Relaxed);
        let Some(words) = self.addresses.get(first..first + addresses.len()) else {
            // Other threads took the room since it was looked for: a number without a meaning.
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        words.iter().zip(addresses).for_each(|(word, address)| word.store(*address, Relaxed));
        let meaning = first as u64 | (addresses.len() as u64) << 32 | u64::from(end.code()) << 48;
        self.meanings[at].store(meaning, Relaxed);
        let nth = self.len.fetch_add(1, Relaxed);
        self.order[nth].store(at as u32 + 1, Release); // ORDERING: the meaning and the words, to `nth`
    }

    fn nth(&self, nth: usize) -> Option<(u32, StackEnd, impl Iterator<Item = u64>)> {
        let number = self.order.get(nth)?.load(Acquire); // ORDERING: see `define`
        let meaning = self.meanings[number.checked_sub(1)? as usize].load(Relaxed);
        let (first, count) = (meaning as u32 as usize, usize::from((meaning >> 32) as u16));
        let end = StackEnd::ALL.get((meaning >> 48) as usize).copied().unwrap_or(StackEnd::Lost);
        Some((number, end, self.addresses[first..first + count].iter().map(|word| word.load(Relaxed))))
    }
}

/// Lets every bit of a hash depend on all of its bits. Never 0.
#[inline(always)]
fn spread(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (hash ^ hash >> 32).max(1)
}

/// How far a sink is in what it has to write of the stacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    stacks: usize,
    names: usize,
}

impl Written {
    /// Appends blocks with the stacks, and the names of functions, that have come since.
    pub(super) fn put_new(&mut self, out: &mut Vec<u8>) {
        let mut next = nth(self.stacks);
        while next.is_some() {
            let begin = out.len();
            format::put_block(out, format::STACKS, |out| {
                while let Some((number, end, addresses)) = next.take_if(|_| out.len() - begin < BLOCK) {
                    format::put_stack(out, number, end, addresses);
                    self.stacks += 1;
                    next = nth(self.stacks);
                }
            });
        }
        self.names = names::put_from(out, self.names, BLOCK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Small = Table<64, 100>;

    fn meaning(table: &Small, number: u32) -> Option<(StackEnd, Vec<u64>)> {
        let all = (0..table.len.load(Relaxed)).filter_map(|at| table.nth(at));
        all.into_iter().find(|(n, ..)| *n == number).map(|(_, end, addresses)| (end, addresses.collect()))
    }

    #[test]
    fn a_stack_has_one_number_which_says_what_it_is() {
        let table = Small::new();
        let (one, other) = ([1, 2, 3], [4, 5]);
        let first = table.number_of(11, &one, StackEnd::Whole);
        let second = table.number_of(22, &other, StackEnd::Cut);
        assert!(first != second && first != UNKNOWN && second != UNKNOWN);
        assert_eq!(table.number_of(11, &one, StackEnd::Whole), first);
        assert_eq!(meaning(&table, first), Some((StackEnd::Whole, one.to_vec())));
        assert_eq!(meaning(&table, second), Some((StackEnd::Cut, other.to_vec())));
        assert_eq!((table.len.load(Relaxed), table.lost.load(Relaxed)), (2, 0));
    }

    #[test]
    fn stacks_without_room_are_counted() {
        let table = Small::new();
        let numbers: Vec<u32> = (0..30).map(|n| table.number_of(n, &[n; 5], StackEnd::Whole)).collect();
        let known = numbers.iter().filter(|number| **number != UNKNOWN).count();
        assert_eq!((known, table.lost.load(Relaxed)), (20, 10), "a hundred words are twenty stacks");
        let again: Vec<u32> = (0..20).map(|n| table.number_of(n, &[n; 5], StackEnd::Whole)).collect();
        assert_eq!(again, numbers[..20], "what has a number keeps it");
        for (n, number) in (0..).zip(&numbers[..20]) {
            assert_eq!(meaning(&table, *number), Some((StackEnd::Whole, vec![n; 5])));
        }
    }

    #[test]
    fn threads_that_come_at_the_same_time_get_the_same_number() {
        let table = Table::<1024, 8192>::new();
        let numbers = std::thread::scope(|scope| {
            let all = |_| scope.spawn(|| (0..500).map(|n| table.number_of(n, &[n], StackEnd::Whole)).collect());
            let threads: Vec<_> = (0..4).map(all).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<Vec<u32>>>()
        });
        assert!(numbers.iter().all(|of_one| *of_one == numbers[0]));
        assert_eq!(table.len.load(Relaxed), 500);
    }
}
