//! Stacks, from their numbers to lines.

use super::{Table, printable};
use mungo_trace::{Dictionary, StackEnd, StackId};
use std::collections::HashMap;

/// The stacks that a trace names.
#[derive(Default)]
pub(super) struct Stacks {
    ids: Table<u32>,
}

impl Stacks {
    /// Returns a number for a stack, for [`texts`](Self::texts); 0: there is none.
    pub(super) fn number(&mut self, stack: Option<StackId>) -> u32 {
        let next = self.ids.len() as u32 + 1;
        stack.map_or(0, |stack| *self.ids.entry(stack.0).or_insert(next))
    }

    /// Returns the different stacks, of which the first is none, and for each number so far which of them it is: two
    /// stacks may be the same calls, and names may come after the events.
    pub(super) fn texts(&self, dictionary: &Dictionary) -> (Vec<String>, Vec<u32>) {
        let (mut texts, mut which) = (vec![String::new()], vec![0; self.ids.len() + 1]);
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut ids: Vec<(u32, u32)> = self.ids.iter().map(|(id, number)| (*number, *id)).collect();
        ids.sort_unstable();
        for (number, id) in ids {
            let text = text(dictionary, StackId(id));
            let next = texts.len() as u32;
            let at = *known.entry(text.clone()).or_insert(next);
            which[number as usize] = at;
            if at == next {
                texts.push(text);
            }
        }
        (texts, which)
    }
}

/// Returns a stack as lines: the program's functions with their places, the innermost first.
fn text(dictionary: &Dictionary, id: StackId) -> String {
    let end = dictionary.stack(id).map(|stack| stack.end);
    let mut lines: Vec<String> = Vec::new();
    for frame in dictionary.frames(id) {
        let function = dictionary.string(frame.function);
        lines.push(printable(&match dictionary.string(frame.file) {
            "" => function.to_owned(),
            file => format!("{function} at {file}:{}", frame.line),
        }));
    }
    lines.extend(
        match end {
            None => Some("(a stack that is not known)"),
            Some(StackEnd::Cut) => Some("(the stack goes on)"),
            Some(StackEnd::Lost) => Some("(code without unwind tables)"),
            Some(StackEnd::Foreign) => Some("(on another stack than its own)"),
            Some(_) if lines.is_empty() => Some("(functions without names)"),
            Some(_) => None,
        }
        .map(str::to_owned),
    );
    lines.join("\n")
}
