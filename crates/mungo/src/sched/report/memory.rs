//! Looks for addresses in the memory of this process.
//!
//! It is read through `/proc/self/mem`: what is unmapped meanwhile is an error there, and not a fault here. The
//! addresses that are sought are kept [masked](mask), so that the search does not find its own notes.

use super::collect::threads;
use crate::sched::run::g::{G, pool};
use crate::sched::sysmon::monitor;
use crate::sys::task;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

/// Size of memory in bytes above which no search is made. It takes seconds.
const MOST_BYTES: usize = 4 << 30;
const WORD: usize = size_of::<usize>();
/// Bytes of its stack that a search may use for notes, which it must not find.
const NOTES: usize = 256 << 10;

/// Wipes the notes of a search on the calling thread, for the next search not to find them: the C library keeps stacks
/// of threads that have ended.
#[inline(never)]
pub(crate) fn scrub() {
    std::hint::black_box(&mut [0u8; NOTES]);
}

/// Wipes what a few calls may have left on the stack of the calling thread.
#[inline(never)]
pub(crate) fn scrub_little() {
    std::hint::black_box(&mut [0u8; 32 << 10]);
}

/// Returns an address as it is noted here.
pub(crate) fn mask(address: usize) -> usize {
    !address
}

/// Masked addresses, and which of them were found.
pub(crate) struct Sought {
    all: Vec<(usize, bool)>,
}

impl Sought {
    pub(crate) fn new(mut all: Vec<usize>) -> Sought {
        all.sort_unstable();
        all.dedup();
        Sought { all: all.into_iter().map(|address| (address, false)).collect() }
    }

    /// Returns the same addresses, of which none was found.
    pub(crate) fn anew(&self) -> Sought {
        Sought { all: self.all.iter().map(|(address, _)| (*address, false)).collect() }
    }

    /// Iterates over those that were found, masked.
    pub(crate) fn found(&self) -> impl Iterator<Item = usize> {
        self.all.iter().filter(|(_, found)| *found).map(|(address, _)| *address)
    }

    pub(crate) fn is_found(&self, address: usize) -> bool {
        self.all.binary_search_by_key(&address, |(a, _)| *a).is_ok_and(|at| self.all[at].1)
    }

    fn look_in(&mut self, bytes: &[u8]) {
        let (Some(&(first, _)), Some(&(last, _))) = (self.all.first(), self.all.last()) else { return };
        for word in bytes.as_chunks::<WORD>().0 {
            let word = mask(usize::from_ne_bytes(*word));
            if (first..=last).contains(&word)
                && let Ok(at) = self.all.binary_search_by_key(&word, |(a, _)| *a)
            {
                self.all[at].1 = true;
            }
        }
    }
}

/// The memory of this process.
pub(crate) struct Memory {
    file: File,
    /// The memory that can be written to.
    writable: Vec<Range<usize>>,
    buffer: Vec<u8>,
    /// Address below which nothing counts on the stack where it is: that of the caller of the search.
    below: usize,
}

impl Memory {
    /// Opens the memory. `None`: it cannot be read, or there is too much of it.
    pub(crate) fn open(below: usize) -> Option<Memory> {
        let file = File::open("/proc/self/mem").ok()?;
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let writable = maps.lines().filter_map(writable).collect();
        let memory = Memory { file, writable, buffer: vec![0; 64 << 10], below };
        let bytes: usize = memory.parts(&goroutine_memory()).map(|part| part.len()).sum();
        (bytes <= MOST_BYTES).then_some(memory)
    }

    /// Searches heap, statics and stacks of threads.
    pub(crate) fn search_all_but_goroutines(&mut self, sought: &mut Sought) {
        let mut excluded = goroutine_memory();
        excluded.push(range_of(&self.buffer));
        excluded.push(range_of(&sought.all));
        let here = &raw const excluded as usize;
        // This thread was made for the search. Its mapping may have grown together with others.
        excluded.push(here.saturating_sub(NOTES)..here + NOTES);
        excluded.extend(self.dead_stacks());
        let parts: Vec<_> = self.parts(&excluded).collect();
        parts.into_iter().for_each(|part| self.search(part, sought));
    }

    /// Returns what lies below the stack pointers of threads that sleep. One that wakes up meanwhile is looked at
    /// twice.
    fn dead_stacks(&self) -> Vec<Range<usize>> {
        /// Most bytes below a stack pointer that are dirty; what is not a thread's own stack may have neighbours.
        const LOOKED_AT: usize = 1 << 20;
        /// Bytes below the stack pointer that the last function may still use.
        const RED_ZONE: usize = 128;
        let handlers: Vec<i32> = monitor::runtimes()
            .iter()
            .flat_map(|shared| threads(shared))
            .filter(|m| m.in_handler.load(Relaxed))
            .map(|m| m.tid.load(Relaxed))
            .collect();
        let others = task::all().into_iter().filter(|tid| !handlers.contains(tid));
        let pointers = others.filter_map(task::sleeping).map(|sleeping| sleeping.stack_pointer);
        pointers
            .filter_map(|sp| {
                let stack = self.writable.iter().find(|part| part.contains(&sp))?;
                Some(stack.start.max(sp.saturating_sub(LOOKED_AT))..sp - RED_ZONE.min(sp - stack.start))
            })
            .collect()
    }

    /// Searches goroutines: stacks and thread-locals of those that `of` names, and closures that have not started.
    pub(crate) fn search_goroutines(&mut self, of: impl Fn(&G) -> bool, sought: &mut Sought) {
        for g in pool::chunks().into_iter().flatten() {
            if g.state.is_alive() && g.started() && of(g) {
                self.search_stack_of(g, sought);
            }
        }
        self.search_unstarted(sought);
    }

    /// Searches the closures of goroutines that have not started, and the results of those that have ended.
    pub(crate) fn search_unstarted(&mut self, sought: &mut Sought) {
        for g in pool::chunks().into_iter().flatten() {
            let has_stack = g.state.is_alive() && g.started();
            if !has_stack && !g.state.is_idle() {
                self.search(range_of(std::slice::from_ref(g)), sought);
            }
        }
    }

    /// Searches everything above its stack pointer if it is parked, else the whole slot.
    pub(crate) fn search_stack_of(&mut self, g: &G, sought: &mut Sought) {
        // It may have ended by now: slots and their headers are never unmapped, and what is found there counts anyway.
        let Some(slot) = g.slot() else { return };
        // SAFETY: it is parked, so it has its stack, and stays so while it is held.
        let parked = g.hold(|| unsafe { g.stack_low() });
        let all = slot.guard().end..slot.end();
        let low = parked.unwrap_or(self.below);
        let low = if all.contains(&low) { low } else { all.start };
        self.search(low..all.end, sought);
    }

    fn search(&mut self, part: Range<usize>, sought: &mut Sought) {
        let mut at = part.start.next_multiple_of(WORD);
        while at < part.end {
            let n = self.buffer.len().min(part.end - at);
            match self.file.read_at(&mut self.buffer[..n], at as u64) {
                Ok(n) if n >= WORD => {
                    sought.look_in(&self.buffer[..n]);
                    at += n & !(WORD - 1);
                }
                // Guard pages, and what is gone.
                _ => at = (at + 1).next_multiple_of(crate::sys::page_size()),
            }
        }
    }

    /// Returns what is writable, without what is excluded.
    fn parts(&self, excluded: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
        let mut excluded = excluded.to_vec();
        excluded.sort_unstable_by_key(|part| part.start);
        self.writable.clone().into_iter().flat_map(move |part| {
            let (mut at, mut parts) = (part.start, Vec::new());
            for hole in excluded.iter().filter(|hole| hole.end > part.start && hole.start < part.end) {
                parts.push(at..hole.start.max(at));
                at = at.max(hole.end);
            }
            parts.push(at..part.end.max(at));
            parts.retain(|part| !part.is_empty());
            parts
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Not for the next search to find.
        self.buffer.fill(0);
        std::hint::black_box(&self.buffer); // although it is never read again
    }
}

/// Returns slots and Gs, free ones included.
fn goroutine_memory() -> Vec<Range<usize>> {
    let gs = pool::chunks().into_iter().map(range_of);
    crate::stack::slab::slabs().into_iter().chain(gs).collect()
}

fn range_of<T>(of: &[T]) -> Range<usize> {
    let range = of.as_ptr_range();
    range.start as usize..range.end as usize
}

/// Parses a line of `/proc/self/maps`: `start-end rw-p offset device inode name`.
fn writable(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    words.next()?.starts_with("rw").then_some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_leave_the_holes_out() {
        let memory = Memory {
            file: File::open("/proc/self/mem").unwrap(),
            writable: vec![100..200, 300..400],
            buffer: Vec::new(),
            below: 0,
        };
        let parts = |holes: &[Range<usize>]| memory.parts(holes).collect::<Vec<_>>();
        assert_eq!(parts(&[]), [100..200, 300..400]);
        assert_eq!(parts(&[50..120, 150..160, 190..350]), [120..150, 160..190, 350..400]);
        assert_eq!(parts(&[90..250, 250..500]), []);
        assert_eq!(parts(&[110..150, 120..130, 140..160]), [100..110, 160..200, 300..400]);
    }

    #[test]
    #[cfg_attr(mungo_asan, ignore = "the sanitizer's shadow is more memory than is searched")]
    fn an_address_on_the_heap_is_found_and_one_that_is_nowhere_is_not() {
        if std::env::var_os("MUNGO_TEST_RUNNER").is_some() {
            // As `is_emulated` in the tests of behaviour, not captured by the harness.
            use std::io::Write;
            let why = "/proc/self/mem has the emulator's addresses";
            _ = writeln!(std::io::stderr(), "skipped under emulation: an_address_on_the_heap_is_found: {why}");
            return;
        }
        let target = Box::new(1u64);
        let address = mask(&raw const *target as usize);
        let nowhere = mask(0xdead_beef_0000);
        let holder = Box::new(&raw const *target as usize);
        let mut sought = Sought::new(vec![nowhere, address, address]);
        Memory::open(0).unwrap().search(range_of(std::slice::from_ref(&*holder)), &mut sought);
        assert!(sought.is_found(address) && !sought.is_found(nowhere));
    }

    #[test]
    fn maps_are_understood() {
        let line = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0    [heap]";
        assert_eq!(writable(line), Some(0x7f00_0000_0000..0x7f00_0000_1000));
        assert_eq!(writable(&line.replace("rw-p", "r--p")), None);
        assert_eq!(writable("nonsense"), None);
    }
}
