//! Names of the functions in stacks. By the writer's thread, between its rounds, for a bounded time each.
//!
//! The scheduler's half of the tracer has the tables of the program, so it is asked by pointers, which are set when a
//! runtime starts.

use super::stacks;
use crate::sys::clock;
use mungo_trace::Part;
use mungo_trace::format::{self, Function, MAX_TEXT};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Time in ns in which names are looked up between two rounds. TUNED: guess: half of the pause between them; the chunks
/// that are made when a trace with stacks begins last for many times that.
pub(super) const AT_A_TIME_NS: u64 = 10_000_000;

/// A function at a return address.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// Empty: not known.
    pub(crate) file: String,
    /// 0: not known.
    pub(crate) line: u32,
    pub(crate) part: Part,
}

/// What the scheduler knows of the program's code.
#[derive(Debug)]
pub(crate) struct Code {
    /// Looks whether objects were loaded or unloaded. If so, returns where code is gone, or other code has come.
    pub(crate) refresh: fn() -> Option<Vec<Range<u64>>>,
    /// Returns the functions at a return address, the innermost first.
    pub(crate) name: fn(u64) -> Vec<Named>,
    /// Frees what the names were read from.
    pub(crate) forget: fn(),
}

static CODE: OnceLock<Code> = OnceLock::new();

/// The names so far.
struct Names {
    /// Stacks whose addresses all have names.
    stacks: usize,
    seen: Option<HashSet<u64>>,
    /// Entries of a block of functions, and where those of each address end.
    entries: Vec<u8>,
    ends: Vec<usize>,
}

static NAMES: Mutex<Names> = Mutex::new(Names { stacks: 0, seen: None, entries: Vec::new(), ends: Vec::new() });

fn lock() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets what knows the program's code; once for the process.
#[cfg_attr(not(mungo_stacks), allow(dead_code))]
pub(crate) fn set_code(code: Code) {
    if CODE.set(code).is_ok() && super::wants_stacks() {
        refresh();
    }
}

/// Looks whether objects were loaded or unloaded.
pub(super) fn refresh() {
    if let Some(code) = CODE.get()
        && let Some(gone) = (code.refresh)()
    {
        forget(); // it knows the objects of before
        let mut names = lock();
        if let Some(seen) = &mut names.seen {
            forget_gone(seen, &gone);
        }
    }
}

/// Lets addresses have another name where code is gone, should they come in further stacks.
fn forget_gone(seen: &mut HashSet<u64>, gone: &[Range<u64>]) {
    if !gone.is_empty() {
        seen.retain(|address| !gone.iter().any(|gone| gone.contains(address)));
    }
}

/// Names the functions of stacks that have come since, until `end_ns`, but those of one address at least. Returns
/// whether all have names.
pub(super) fn name_until(end_ns: u64) -> bool {
    let Some(code) = CODE.get() else { return true };
    loop {
        let mut names = lock();
        let Some((.., addresses)) = stacks::nth(names.stacks) else { return true };
        let Names { seen, stacks, .. } = &mut *names;
        let seen = seen.get_or_insert_default();
        let Some(address) = addresses.into_iter().find(|address| !seen.contains(address)) else {
            *stacks += 1;
            continue;
        };
        drop(names); // sinks write meanwhile
        let functions = (code.name)(address);
        let mut names = lock();
        if names.seen.get_or_insert_default().insert(address) {
            names.add(address, &functions);
        }
        drop(names);
        if clock::now_ns() >= end_ns {
            return false;
        }
    }
}

/// Returns whether the first `n` stacks have names.
pub(super) fn are_there(n: usize) -> bool {
    CODE.get().is_none() || lock().stacks >= n
}

/// Frees what the names were read from.
pub(super) fn forget() {
    if let Some(code) = CODE.get().filter(|_| lock().seen.is_some()) {
        (code.forget)();
    }
}

impl Names {
    fn add(&mut self, address: u64, functions: &[Named]) {
        for Named { name, file, line, part } in functions {
            let [name, file] =
                [name, file].map(|text| &text[..text.floor_char_boundary(MAX_TEXT.min(text.len()))]);
            format::put_function(&mut self.entries, Function { address, part: *part, name, file, line: *line });
        }
        self.ends.push(self.entries.len());
    }
}

/// Appends blocks with the names from the `from`th address on, each of about `most` bytes. Returns the number of
/// addresses that have names.
pub(super) fn put_from(out: &mut Vec<u8>, from: usize, most: usize) -> usize {
    let names = lock();
    let mut begin = from.checked_sub(1).map_or(0, |last| names.ends[last]);
    let mut rest = names.ends[from..].iter().peekable();
    while rest.peek().is_some() {
        let mut end = begin;
        while let Some(next) = rest.next_if(|_| end - begin < most) {
            end = *next;
        }
        format::put_block(out, format::FUNCTIONS, |out| out.extend(&names.entries[begin..end]));
        begin = end;
    }
    names.ends.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_code_is_gone_addresses_get_new_names() {
        let mut seen = HashSet::from([9, 10, 19, 20, 31]);
        forget_gone(&mut seen, &[]);
        assert_eq!(seen.len(), 5);
        forget_gone(&mut seen, &[10..20, 30..40]);
        assert_eq!(seen, HashSet::from([9, 20]));
    }
}
