//! What a recorder still knows of goroutines whose beginning it has dropped: places and names, and the policies that
//! decided. It reads what it drops. So it keeps as much as there are goroutines, not as there have been.

use super::census::Known;
use super::drain;
use mungo_trace::Event;
use mungo_trace::format::{Block, EVENTS, RECORD, Record, body, kind, stop};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Number of rounds after which a second generation of ends without a birth begins. The birth may come in a later round
/// than the end, because rounds do not read all threads at the same moment.
const GENERATION: u32 = 32;
/// Number of goroutines that are known, beyond twice those of before, from which it is asked which of them live, should
/// ends have been lost.
const ROOM: usize = 10_000;

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
    /// Goroutines whose end was read and whose beginning was not, of this generation and the one before.
    ended: [HashSet<(u16, u64)>; 2],
    /// Rounds of this generation.
    rounds: u32,
    /// Whether events were lost, ends perhaps among them.
    is_lossy: bool,
    /// Goroutines that had ended when it was asked which of them live, and when that was, in ticks. They may have ended
    /// in what is kept.
    dead: Vec<(u16, u64)>,
    asked: u64,
    /// Number of goroutines that were known when it was last asked which of them live.
    pruned: usize,
}

impl Births {
    /// Takes what is about to be dropped: whole blocks of a round, with all before `ticks`. Blocks are not in the order
    /// of time: a goroutine may end in one that comes before the one in which it begins, or in an earlier round.
    pub(super) fn read(&mut self, blocks: &[u8], ticks: u64) {
        let mut ended = Vec::new();
        for (block, payload) in drain::blocks(blocks) {
            if block.kind == EVENTS {
                self.read_events(block, payload.as_chunks::<RECORD>().0, &mut ended);
            }
        }
        for g in ended {
            if self.alive.remove(&g).is_none() {
                self.ended[0].insert(g);
            }
        }
        if !self.dead.is_empty() && ticks >= self.asked {
            self.dead.drain(..).for_each(|g| _ = self.alive.remove(&g));
            self.pruned = self.alive.len();
        }
        self.rounds += 1;
        if self.rounds == GENERATION {
            self.rounds = 0;
            self.ended[1] = std::mem::take(&mut self.ended[0]);
        }
    }

    /// Returns whether it is time to [`prune`](Self::prune): ends have been lost, and the list has doubled since then.
    pub(super) fn are_too_many(&self) -> bool {
        self.is_lossy && self.dead.is_empty() && self.alive.len() >= 2 * self.pruned + ROOM
    }

    /// Forgets goroutines that do not live, by a census that was taken before `ticks`: when all before is dropped.
    pub(super) fn prune(&mut self, census: &[Known], ticks: u64) {
        let existed = census.iter().filter(|known| known.kind == kind::EXISTED);
        let live: HashSet<_> = existed.map(|known| (known.runtime, low(known.body))).collect();
        self.dead = self.alive.keys().filter(|g| !live.contains(g)).copied().collect();
        self.asked = ticks;
        (self.is_lossy, self.pruned) = (false, self.alive.len());
    }

    fn read_events(&mut self, block: Block, mut records: &[[u8; RECORD]], ended: &mut Vec<(u16, u64)>) {
        let mut running = block.running;
        while let Some((first, rest)) = records.split_first() {
            let record = Record::from_bytes(*first);
            let Some((text, rest)) = rest.split_at_checked(record.text_units()) else { return };
            records = rest;
            let runtime = if block.m == Event::OUTSIDE { record.p() } else { block.runtime as u16 };
            let g = record.low();
            match record.kind() {
                kind::RUNNING | kind::START => running = g,
                kind::SWITCH_NEXT | kind::SWITCH_RING => running = record.switched_to(running),
                kind::STOP => {
                    if record.argument() == stop::ENDED {
                        ended.push((runtime, running));
                    }
                    running = 0;
                }
                kind::CREATED | kind::EXISTED => self.begins((runtime, g), record.high()),
                kind::DROPPED => self.is_lossy = true,
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

    fn begins(&mut self, g: (u16, u64), place: u16) {
        let has_ended = self.ended.iter_mut().any(|ended| ended.remove(&g));
        if !has_ended {
            self.alive.insert(g, Birth { place, name: None });
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
    let key = |known: &Known| (known.runtime, known.kind, low(known.body));
    let here: HashSet<_> = known.iter().map(key).collect();
    known.extend(before.into_iter().filter(|known| !here.contains(&key(known))));
}

/// Returns the goroutine that the body of a record names.
fn low(body: u64) -> u64 {
    Record { head: 0, body }.low()
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
            bytes.extend(record.to_bytes());
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
        births.read(&blocks, 0);
        births.read(&blocks[..blocks.len() - 1], 0); // half a record
        let mut known: Vec<_> =
            births.known().into_iter().map(|k| (k.runtime, k.kind, k.body, k.text.to_string())).collect();
        known.sort();
        let existed = |runtime, g, place| (runtime, kind::EXISTED, body(g, place), String::new());
        assert_eq!(known, [existed(1, 9, 6), (1, kind::NAMED, 9, "ada".into()), existed(3, 9, 4)]);
        let mut now = vec![Known { runtime: 1, kind: kind::EXISTED, body: body(9, 6), text: "".into() }];
        add(&mut now, births.known());
        assert_eq!(now.len(), 3);
    }

    #[test]
    fn an_end_may_be_read_before_the_beginning() {
        let record = |kind, argument, body| Record::new(1, kind, argument, 3, body);
        let end = |g| block(3, 0, g, &[record(kind::STOP, stop::ENDED, 0)]);
        let begin = |g| block(0, Event::OUTSIDE, 0, &[record(kind::CREATED, 0, body(g, 4))]);
        let mut births = Births::default();
        births.read(&[end(8), begin(8)].concat(), 0);
        assert!(births.known().is_empty(), "in one round");
        births.read(&end(9), 0);
        births.read(&begin(9), 0);
        assert!(births.known().is_empty(), "in two rounds");
        (0..2 * GENERATION).for_each(|_| births.read(&end(10), 0));
        (0..2 * GENERATION).for_each(|_| births.read(&[], 0));
        assert!(births.ended.iter().all(HashSet::is_empty), "an end without a beginning is forgotten");
    }

    #[test]
    fn where_events_were_lost_the_dead_are_forgotten() {
        let record = |kind, argument, body| Record::new(1, kind, argument, 3, body);
        let created = |g: usize| record(kind::CREATED, 0, body(g as u64, 4));
        let census = [Known { runtime: 1, kind: kind::EXISTED, body: body(7, 4), text: "".into() }];
        let mut births = Births::default();
        births.read(&block(1, 0, 0, &(0..ROOM).map(created).collect::<Vec<_>>()), 1);
        assert!(!births.are_too_many(), "none was lost");
        births.read(&block(1, 0, 0, &[record(kind::DROPPED, 0, 5)]), 2);
        assert!(births.are_too_many());
        births.prune(&census, 10);
        assert!(!births.are_too_many(), "until more is lost");
        births.read(&[], 9);
        assert_eq!(births.known().len(), ROOM, "they may have ended in what is kept since 9");
        births.read(&[], 10);
        assert_eq!(births.known().len(), 1);
        assert!(!births.are_too_many());
    }
}
