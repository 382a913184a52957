//! Stacks, which events name by numbers.

use crate::dictionary::StringId;
use std::collections::HashMap;

/// The number of a stack in a trace: see [`Dictionary::frames`](crate::Dictionary::frames). Two numbers may stand for
/// the same calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    /// There was a stack, and no room for it: the process has too many different ones.
    pub const UNKNOWN: StackId = StackId(0);
}

/// A stack: where its calls go on, without names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Return addresses, the innermost first. The first one is where the goroutine itself goes on, and one more.
    pub addresses: Box<[u64]>,
    /// Where they end.
    pub end: StackEnd,
}

/// Where a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StackEnd {
    /// It is whole: the last one is the goroutine's first function.
    Whole,
    /// There are more calls than are kept: these are the inner ones.
    Cut,
    /// Code without unwind tables, or with strange ones, hides its callers.
    Lost,
    /// The goroutine was on another stack than its own, of which nothing was read.
    Foreign,
}

/// A function that was called and has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name; its address, if it has none.
    pub function: StringId,
    /// The file with the call, or the place where it goes on; empty: not known.
    pub file: StringId,
    /// The line; 0: not known.
    pub line: u32,
    /// The part of the program that the function belongs to.
    pub part: Part,
}

/// The part of the program that a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The program's, or a library's.
    Program,
    /// The scheduler's: most often it suspends the goroutine.
    Scheduler,
    /// The scheduler's: the goroutine begins there.
    Begin,
    /// The standard library's, between the begin of a goroutine and its closure, and elsewhere.
    Closure,
}

/// What numbers of stacks and return addresses mean.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stacks {
    pub(crate) by_id: HashMap<StackId, Stack>,
    /// The functions at an address, the innermost first.
    pub(crate) functions: HashMap<u64, Vec<Frame>>,
}

impl Stacks {
    /// Returns all functions of a stack that have names.
    pub(crate) fn all_frames(&self, id: StackId) -> Vec<Frame> {
        let Some(stack) = self.by_id.get(&id) else { return Vec::new() };
        let functions = stack.addresses.iter().filter_map(|address| self.functions.get(address));
        functions.flatten().copied().collect()
    }

    /// Returns those that are the program's: without those that begin a goroutine, and those that suspend it.
    pub(crate) fn frames(&self, id: StackId) -> Vec<Frame> {
        let mut all = self.all_frames(id);
        if let Some(begin) = all.iter().position(|frame| frame.part == Part::Begin) {
            let last = all[..begin].iter().rposition(|frame| frame.part != Part::Closure);
            all.truncate(last.map_or(0, |last| last + 1));
        }
        let inner = all.iter().position(|frame| frame.part != Part::Scheduler);
        all.split_off(inner.unwrap_or(all.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_scheduler_are_left_out_at_both_ends() {
        use Part::*;
        let frame = |line, part| Frame { function: StringId(line), file: StringId(0), line, part };
        let parts = [Scheduler, Scheduler, Program, Closure, Program, Closure, Closure, Begin, Scheduler];
        let mut stacks = Stacks::default();
        for (line, part) in (1..).zip(parts) {
            stacks.functions.insert(u64::from(line), vec![frame(line, part)]);
        }
        let stack = |addresses: &[u64]| Stack { addresses: addresses.into(), end: StackEnd::Whole };
        stacks.by_id.insert(StackId(1), stack(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
        stacks.by_id.insert(StackId(2), stack(&[3, 77, 5]));
        stacks.by_id.insert(StackId(3), stack(&[1, 2]));
        let lines = |id| stacks.frames(StackId(id)).iter().map(|frame| frame.line).collect::<Vec<_>>();
        assert_eq!((lines(1), lines(2)), (vec![3, 4, 5], vec![3, 5]));
        assert_eq!((lines(3), lines(4)), (vec![], vec![]), "nothing of the program, and no such stack");
        assert_eq!(stacks.all_frames(StackId(1)).len(), 9);
    }
}
