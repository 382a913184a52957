//! A profile as protocol buffers of pprof: `profile.proto` of github.com/google/pprof.

use super::mappings::{self, Mapping};
use super::{Call, Profile, Sample};
use crate::sched::report::dump::Frame;
use mungo_trace::proto::Message;
use std::collections::HashMap;
use std::time::UNIX_EPOCH;

/// Numbers of the fields.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING: u32 = 6;
    pub(super) const TIME: u32 = 9;
    pub(super) const DURATION: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
}

/// Returns the encoded profile.
pub(super) fn encode(profile: &Profile) -> Vec<u8> {
    let mut encoder = Encoder { mappings: mappings::all(), ..Encoder::default() };
    encoder.text("");
    let mut out = Message::new();
    for (name, unit) in profile.kind.values() {
        let value = encoder.value_type(name, unit);
        out = out.message(field::SAMPLE_TYPE, &value);
    }
    for sample in &profile.samples {
        let sample = encoder.sample(profile, sample);
        out = out.message(field::SAMPLE, &sample);
    }
    for mapping in encoder.encode_mappings() {
        out = out.message(field::MAPPING, &mapping);
    }
    out.0.append(&mut encoder.locations.0);
    out.0.append(&mut encoder.functions.0);
    let since_1970 = profile.taken.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (period_name, period_unit) = profile.kind.period();
    let period_type = encoder.value_type(period_name, period_unit);
    out = out
        .number(field::TIME, since_1970.as_nanos() as u64)
        .number(field::DURATION, profile.duration.as_nanos() as u64)
        .message(field::PERIOD_TYPE, &period_type)
        .number(field::PERIOD, profile.period);
    for comment in profile.remarks() {
        let comment = encoder.text(&comment);
        out = out.number(field::COMMENT, comment);
    }
    for text in &encoder.texts {
        out = out.text(field::STRING, text);
    }
    out.0
}

/// Numbers what a profile refers to.
#[derive(Default)]
struct Encoder {
    mappings: Vec<Mapping>,
    texts: Vec<String>,
    text_numbers: HashMap<String, u64>,
    locations: Message,
    /// By address and first line.
    location_numbers: HashMap<(usize, usize, usize), u64>,
    functions: Message,
    function_numbers: HashMap<(u64, u64), u64>,
}

impl Encoder {
    /// Returns the number of a text.
    fn text(&mut self, text: &str) -> u64 {
        if let Some(number) = self.text_numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.text_numbers.insert(text.to_owned(), number);
        number
    }

    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let (name, unit) = (self.text(name), self.text(unit));
        Message::new().number(1, name).number(2, unit)
    }

    fn sample(&mut self, profile: &Profile, sample: &Sample) -> Message {
        let mut out = Message::new();
        for call in &sample.stack.calls {
            out = out.number(1, self.location(call));
        }
        for value in profile.kind.values_of(sample) {
            out = out.number(2, value);
        }
        let mut texts: Vec<(&str, String)> = Vec::new();
        texts.extend(sample.labels.iter().map(|(key, value)| (&**key, value.to_string())));
        texts.extend(sample.state.map(|state| ("state", state.to_string())));
        texts.extend(
            sample.spawned_at.map(|place| ("spawned_at", format!("{}:{}", place.file(), place.line()))),
        );
        for (key, value) in texts {
            let (key, value) = (self.text(key), self.text(&value));
            out = out.message(3, &Message::new().number(1, key).number(2, value));
        }
        if let Some(goroutine) = sample.goroutine {
            let key = self.text("goroutine");
            out = out.message(3, &Message::new().number(1, key).number(3, goroutine));
        }
        out
    }

    /// Returns the number of a call. What was inlined there are lines of one location, the innermost first.
    fn location(&mut self, call: &Call) -> u64 {
        let next = self.location_numbers.len() as u64 + 1;
        let key = (call.address, call.kept.start, call.kept.end);
        if call.address != 0 {
            match self.location_numbers.entry(key) {
                std::collections::hash_map::Entry::Occupied(known) => return *known.get(),
                std::collections::hash_map::Entry::Vacant(vacant) => _ = vacant.insert(next),
            }
        } else {
            self.location_numbers.insert((0, next as usize, 0), next); // each for itself
        }
        let mapping = self.mappings.iter().position(|mapping| mapping.memory.contains(&call.address));
        let mut out = Message::new().number(1, next);
        if let Some(at) = mapping {
            out = out.number(2, at as u64 + 1).number(3, call.address as u64);
        }
        for frame in call.frames() {
            let function = self.function(frame);
            let line = Message::new().number(1, function).number(2, u64::from(frame.line.unwrap_or(0)));
            out = out.message(4, &line);
        }
        self.locations = std::mem::take(&mut self.locations).message(field::LOCATION, &out);
        next
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let name = self.text(&frame.function);
        let file = self.text(frame.file.as_deref().unwrap_or_default());
        let next = self.function_numbers.len() as u64 + 1;
        let number = *self.function_numbers.entry((name, file)).or_insert(next);
        if number == next {
            let out = Message::new().number(1, next).number(2, name).number(3, name).number(4, file);
            self.functions = std::mem::take(&mut self.functions).message(field::FUNCTION, &out);
        }
        number
    }

    fn encode_mappings(&mut self) -> Vec<Message> {
        let mappings = std::mem::take(&mut self.mappings);
        let encoded = mappings.iter().enumerate().map(|(at, mapping)| {
            let file = self.text(&mapping.file.to_string_lossy());
            let build_id = self.text(&mapping.build_id);
            let out = Message::new()
                .number(1, at as u64 + 1)
                .number(2, mapping.memory.start as u64)
                .number(3, mapping.memory.end as u64)
                .number(4, mapping.offset)
                .number(5, file)
                .number(6, build_id);
            // It has functions, files, lines and inlined frames: pprof need not look for them.
            (7..=10).fold(out, |out, field| out.number(field, 1))
        });
        encoded.collect()
    }
}
