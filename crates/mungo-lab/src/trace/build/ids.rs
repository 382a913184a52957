//! Numbers of goroutines to indices of a table.

use super::Table;
use crate::trace::model::NONE;

/// Ids in a page. TUNED: guess; goroutines have consecutive ids, so pages are full, and a file whose ids are not takes
/// 256 bytes for each.
const PAGE: u64 = 64;

/// The index of each goroutine, by its runtime and its id.
///
/// TUNED: a hash table with an entry for each goroutine was a fifth of the time that a trace of 100 MB with a hundred
/// thousand goroutines took: a cache miss an event.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pages: Table<(u32, u64)>,
    indices: Vec<[u32; PAGE as usize]>,
    /// The page that was asked for last.
    last: Option<((u32, u64), u32)>,
}

impl Ids {
    /// Returns the index of a goroutine, `next` if it has none yet: then it has that.
    pub(super) fn index(&mut self, runtime: u32, id: u64, next: u32) -> u32 {
        let key = (runtime, id / PAGE);
        let page = match self.last {
            Some((last, page)) if last == key => page,
            _ => self.page(key),
        };
        let index = &mut self.indices[page as usize][(id % PAGE) as usize];
        if *index == NONE {
            *index = next;
        }
        *index
    }

    fn page(&mut self, key: (u32, u64)) -> u32 {
        let new = self.indices.len() as u32;
        let page = *self.pages.entry(key).or_insert(new);
        if page == new {
            self.indices.push([NONE; PAGE as usize]);
        }
        self.last = Some((key, page));
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_goroutine_has_one_index() {
        let mut ids = Ids::default();
        let all = [(1, 0), (1, 63), (1, 64), (2, 0), (2, u64::MAX >> 16), (1, 1)];
        for (next, (runtime, id)) in all.into_iter().enumerate() {
            assert_eq!(ids.index(runtime, id, next as u32), next as u32);
        }
        for (index, (runtime, id)) in all.into_iter().enumerate() {
            assert_eq!(ids.index(runtime, id, 99), index as u32);
        }
    }
}
