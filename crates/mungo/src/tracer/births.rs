//! What a recorder still knows of goroutines whose beginning it has dropped: places and names, and the policies that
//! decided. It reads what it drops. So it keeps as much as there are goroutines, not as there have been.

use super::census::Known;
use mungo_trace::Event;
use mungo_trace::format::{BLOCK_HEADER, Block, EVENTS, RECORD, Record, body, kind, stop};
use std::collections::{BTreeMap, HashMap, HashSet};

struct Birth {
    place: u16,
    name: Option<Box<str>>,
}

/// Goroutines that had not ended, by their runtimes and numbers, and policies by their runtimes, when what is kept of
/// the trace begins.
#[derive(Default)]
pub(super) struct Births {
    alive: HashMap<(u16, u64), Birth>,
    policies: BTreeMap<u16, Box<str>>,
}

impl Births {
    /// Takes what is about to be dropped: whole blocks of a round.
    pub(super) fn read(&mut self, mut blocks: &[u8]) {
        while let Some((header, rest)) = blocks.split_first_chunk::<BLOCK_HEADER>() {
            let block = Block::from_bytes(header);
            let Some((payload, rest)) = rest.split_at_checked(block.len as usize) else { return };
            if block.kind == EVENTS {
                self.read_events(block, payload.as_chunks::<RECORD>().0);
            }
            blocks = rest;
        }
    }

    fn read_events(&mut self, block: Block, mut records: &[[u8; RECORD]]) {
        let mut running = block.running;
        while let Some((first, rest)) = records.split_first() {
            let both = u128::from_le_bytes(*first);
            let record = Record { head: both as u64, body: (both >> 64) as u64 };
            let Some((text, rest)) = rest.split_at_checked(record.text_units()) else { return };
            records = rest;
            let runtime = if block.m == Event::OUTSIDE { record.p() } else { block.runtime as u16 };
            let g = record.low();
            match record.kind() {
                kind::RUNNING | kind::START => running = g,
                kind::SWITCH_NEXT | kind::SWITCH_RING => running = record.switched_to(running),
                kind::STOP => {
                    if record.argument() == stop::ENDED {
                        self.alive.remove(&(runtime, running));
                    }
                    running = 0;
                }
                kind::CREATED | kind::EXISTED => {
                    self.alive.insert((runtime, g), Birth { place: record.high(), name: None });
                }
                kind::NAMED => {
                    if let Some(birth) = self.alive.get_mut(&(runtime, g)) {
                        birth.name = Some(text_of(text));
                    }
                }
                kind::POLICY_CHANGED | kind::POLICY_IN_FORCE => {
                    self.policies.insert(runtime, text_of(text));
                }
                _ => {}
            }
        }
    }

    /// Returns all of it, as a trace is told of what exists.
    pub(super) fn known(&self) -> Vec<Known> {
        let mut known = Vec::with_capacity(self.alive.len() + self.policies.len());
        for (runtime, name) in &self.policies {
            known.push(Known { runtime: *runtime, kind: kind::POLICY_IN_FORCE, body: 0, text: name.clone() });
        }
        for ((runtime, g), birth) in &self.alive {
            let body = body(*g, birth.place);
            known.push(Known { runtime: *runtime, kind: kind::EXISTED, body, text: "".into() });
            if let Some(name) = &birth.name {
                known.push(Known { runtime: *runtime, kind: kind::NAMED, body: *g, text: name.clone() });
            }
        }
        known
    }
}

/// Adds to what exists now what existed before, but for what both say.
pub(super) fn add(known: &mut Vec<Known>, before: Vec<Known>) {
    let key = |known: &Known| (known.runtime, known.kind, Record { head: 0, body: known.body }.low());
    let here: HashSet<_> = known.iter().map(key).collect();
    known.extend(before.into_iter().filter(|known| !here.contains(&key(known))));
}

fn text_of(units: &[[u8; RECORD]]) -> Box<str> {
    let bytes = units.as_flattened();
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    String::from_utf8_lossy(&bytes[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(runtime: u32, m: u32, running: u64, records: &[Record]) -> Vec<u8> {
        let len = (records.len() * RECORD) as u32;
        let mut bytes = Block { kind: EVENTS, len, runtime, m, running, base: 0 }.to_bytes().to_vec();
        for record in records {
            bytes.extend(record.head.to_le_bytes());
            bytes.extend(record.body.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn what_has_ended_is_forgotten_and_what_has_not_is_known() {
        let record = |kind, argument, body| Record::new(1, kind, argument, 3, body);
        let name = Record { head: u64::from_le_bytes(*b"ada\0\0\0\0\0"), body: 0 };
        let mut blocks = block(
            1,
            0,
            7,
            &[
                record(kind::CREATED, 0, body(8, 5)),
                record(kind::CREATED, 0, body(9, 6)),
                record(kind::NAMED, 1, 9),
                name,
                Record::switch(7, record(kind::STOP, stop::PARKED, 0), 8, true).unwrap(),
                record(kind::STOP, stop::ENDED, 0),
            ],
        );
        // Of runtime 3, which stands in the place of the P; number 9 of it is another goroutine.
        blocks.extend(block(0, Event::OUTSIDE, 0, &[record(kind::CREATED, 0, body(9, 4))]));
        let mut births = Births::default();
        births.read(&blocks);
        births.read(&blocks[..blocks.len() - 1]); // half a record
        let mut known: Vec<_> =
            births.known().into_iter().map(|k| (k.runtime, k.kind, k.body, k.text.to_string())).collect();
        known.sort();
        let existed = |runtime, g, place| (runtime, kind::EXISTED, body(g, place), String::new());
        assert_eq!(known, [existed(1, 9, 6), (1, kind::NAMED, 9, "ada".into()), existed(3, 9, 4)]);
        let mut now = vec![Known { runtime: 1, kind: kind::EXISTED, body: body(9, 6), text: "".into() }];
        add(&mut now, births.known());
        assert_eq!(now.len(), 3);
    }
}
