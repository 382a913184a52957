//! Texts and places, which events name by numbers.

use crate::stack::{Frame, Stack, StackId, Stacks};
use std::collections::HashMap;

/// The number of a text in a trace: see [`Dictionary::string`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub u32);

/// The number of a place in the source: see [`Dictionary::place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaceId(pub u32);

impl PlaceId {
    /// The place is not known.
    pub const UNKNOWN: PlaceId = PlaceId(u16::MAX as u32);
}

/// A place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name, as the compiler was given it.
    pub file: StringId,
    /// The line, from 1 on.
    pub line: u32,
    /// The column, from 1 on.
    pub column: u32,
}

/// Texts and places of a trace. It grows while a trace is read; a number keeps its meaning.
///
/// ```
/// use mungo_trace::{Dictionary, StringId};
///
/// let mut dictionary = Dictionary::new();
/// let id = dictionary.intern("chan receive");
/// assert_eq!(dictionary.string(id), "chan receive");
/// assert_eq!(dictionary.string(StringId::default()), "");
/// assert_eq!(dictionary.intern("chan receive"), id);
/// ```
#[derive(Clone, Debug)]
pub struct Dictionary {
    strings: Vec<Box<str>>,
    ids: HashMap<Box<str>, StringId>,
    places: HashMap<PlaceId, Place>,
    stacks: Stacks,
}

impl Default for Dictionary {
    fn default() -> Self {
        Dictionary::new()
    }
}

impl Dictionary {
    /// Returns a dictionary with the empty text, whose number is 0.
    pub fn new() -> Dictionary {
        let mut empty = Dictionary {
            strings: Vec::new(),
            ids: HashMap::new(),
            places: HashMap::new(),
            stacks: Stacks::default(),
        };
        empty.intern("");
        empty
    }

    /// Returns the text with that number, or an empty one.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", |text| text)
    }

    /// Returns the place with that number, if it is known.
    pub fn place(&self, id: PlaceId) -> Option<&Place> {
        self.places.get(&id)
    }

    /// Returns the place as `file:line:column`, or `?`.
    pub fn place_name(&self, id: PlaceId) -> String {
        match self.place(id) {
            Some(place) => format!("{}:{}:{}", self.string(place.file), place.line, place.column),
            None => "?".to_owned(),
        }
    }

    /// Returns the number of a text, a new one if there was none.
    pub fn intern(&mut self, text: &str) -> StringId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = StringId(self.strings.len() as u32);
        self.strings.push(text.into());
        self.ids.insert(text.into(), id);
        id
    }

    /// Returns the stack with that number, if it is known.
    pub fn stack(&self, id: StackId) -> Option<&Stack> {
        self.stacks.by_id.get(&id)
    }

    /// Returns the functions of a stack that are the program's, the innermost first: without those of the scheduler
    /// that suspended the goroutine or began it. None if their names are not known, or not yet.
    pub fn frames(&self, id: StackId) -> Vec<Frame> {
        self.stacks.frames(id)
    }

    /// Returns all functions of a stack, the innermost first.
    pub fn all_frames(&self, id: StackId) -> Vec<Frame> {
        self.stacks.all_frames(id)
    }

    /// Gives a stack a number.
    pub fn set_stack(&mut self, id: StackId, stack: Stack) {
        self.stacks.by_id.insert(id, stack);
    }

    /// Says which functions are at a return address, the innermost first.
    pub fn set_functions(&mut self, address: u64, functions: Vec<Frame>) {
        self.stacks.functions.insert(address, functions);
    }

    /// Gives a place a number.
    pub fn set_place(&mut self, id: PlaceId, place: Place) {
        self.places.insert(id, place);
    }
}
