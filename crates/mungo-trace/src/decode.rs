//! Records to events: what a block leaves to its reader.

use crate::dictionary::{Dictionary, Place, PlaceId, StringId};
use crate::event::{Cause, Event, How, Kind, Queue, Stop};
use crate::format::{Block, NO_P, RECORD, Record, each_entry, each_function, each_stack, kind, stop};
use crate::hash::NumberMap;
use crate::stack::{Frame, Stack, StackId};

/// An event with its time in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) ticks: u64,
    pub(crate) event: Event,
}

/// What is known from one block to the next.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pub(crate) dictionary: Dictionary,
    reasons: NumberMap<u8, StringId>,
}

/// The thread of a block, as far as it was read.
struct Lane {
    block: Block,
    base: u64,
    running: u64,
    /// The stack of the next event that takes one.
    stack: Option<StackId>,
}

impl Decoder {
    pub(crate) fn reasons(&mut self, payload: &[u8]) {
        each_entry(payload, |[number, ..], name| {
            let id = self.dictionary.intern(name);
            self.reasons.insert(number as u8, id);
        });
    }

    pub(crate) fn places(&mut self, payload: &[u8]) {
        each_entry(payload, |[number, line, column], file| {
            let file = self.dictionary.intern(file);
            self.dictionary.set_place(PlaceId(number), Place { file, line, column });
        });
    }

    pub(crate) fn stacks(&mut self, payload: &[u8]) {
        each_stack(payload, |number, end, addresses| {
            self.dictionary.set_stack(StackId(number), Stack { addresses: addresses.into(), end });
        });
    }

    pub(crate) fn functions(&mut self, payload: &[u8]) {
        let mut at: Option<(u64, Vec<Frame>)> = None;
        each_function(payload, |function| {
            let [name, file] = [function.name, function.file].map(|text| self.dictionary.intern(text));
            let frame = Frame { function: name, file, line: function.line, part: function.part };
            match &mut at {
                Some((address, frames)) if *address == function.address => frames.push(frame),
                _ => {
                    if let Some((address, frames)) = at.replace((function.address, vec![frame])) {
                        self.dictionary.set_functions(address, frames);
                    }
                }
            }
        });
        if let Some((address, frames)) = at {
            self.dictionary.set_functions(address, frames);
        }
    }

    /// Appends the events of a block. What is not known is passed over.
    pub(crate) fn events(&mut self, block: Block, payload: &[u8], out: &mut Vec<Raw>) {
        let mut lane = Lane { block, base: block.base, running: block.running, stack: None };
        let mut rest = payload;
        while let Some((first, after)) = rest.split_first_chunk() {
            let record = Record::from_bytes(*first);
            let Some((text, after)) = after.split_at_checked(record.text_units() * RECORD) else { return };
            rest = after;
            let ticks = lane.base.saturating_add(u64::from(record.ticks()));
            let stack = if record.takes_stack() { lane.stack.take() } else { None };
            if record.is_switch() {
                let [stopped, started] = self.switch(&mut lane, record);
                out.push(Raw { ticks, event: Event { stack, ..lane.event(record, stopped) } });
                out.push(Raw { ticks, event: lane.event(record, started) });
            } else if let Some(kind) = self.decode(&mut lane, record, text) {
                out.push(Raw { ticks, event: Event { stack, ..lane.event(record, kind) } });
            }
        }
    }

    fn decode(&mut self, lane: &mut Lane, record: Record, text: &[u8]) -> Option<Kind> {
        let g = record.low();
        Some(match record.kind() {
            kind::BASE => {
                lane.base = record.body;
                return None;
            }
            kind::RUNNING => {
                lane.running = g;
                return None;
            }
            kind::STACK => {
                lane.stack = Some(StackId(record.body as u32));
                return None;
            }
            kind::CREATED => {
                Kind::Created { g, parent: lane.running(), place: PlaceId(u32::from(record.high())) }
            }
            kind::EXISTED => Kind::Existed { g, place: PlaceId(u32::from(record.high())) },
            kind::READY => lane.ready(record)?,
            kind::START => {
                lane.running = g;
                Kind::Start { g, queue: Queue::from_code(record.argument())?, waited_ns: 0 }
            }
            kind::STOP => {
                let g = std::mem::take(&mut lane.running);
                Kind::Stop { g, why: self.stop(record)? }
            }
            kind::PROC_GAINED => Kind::ProcGained,
            kind::PROC_LOST => Kind::ProcLost,
            kind::PROC_IDLE => Kind::ProcIdle,
            kind::BLOCKED_FOUND => Kind::BlockedFound { g },
            kind::TAKEN => Kind::Stop { g, why: Stop::Preempted { by: None, how: How::Taken } },
            kind::POLL => Kind::Poll { ready: record.body as u32 },
            kind::TIMERS_RUN => Kind::TimersRun { count: u32::from(record.high()), late_ns: record.low() },
            kind::STEAL => Kind::Steal { from: record.body as u32, taken: (record.body >> 32) as u32 },
            kind::THREAD_STARTED => Kind::ThreadStarted,
            kind::HELD_BY => Kind::HeldBy { g: lane.running(), holder: g },
            kind::NO_CPU => Kind::NoCpu { waited_ns: g, within_ms: u32::from(record.high()) },
            kind::DROPPED => Kind::Dropped { count: record.body },
            kind::TASK_END => Kind::TaskEnd { g: lane.running(), id: record.body, name: StringId::default() },
            kind::REGION_END => {
                Kind::RegionEnd { g: lane.running(), id: record.body, name: StringId::default() }
            }
            kind::TASK_BEGIN => Kind::TaskBegin { g: lane.running(), id: record.body, name: self.text(text) },
            kind::REGION_BEGIN => {
                Kind::RegionBegin { g: lane.running(), id: record.body, name: self.text(text) }
            }
            kind::LOG => Kind::Log { g: lane.running(), text: self.text(text) },
            kind::NAMED => Kind::Named { g, name: self.text(text) },
            kind::POLICY_CHANGED => Kind::PolicyChanged { name: self.text(text) },
            kind::POLICY_IN_FORCE => Kind::PolicyInForce { name: self.text(text) },
            _ => return None,
        })
    }

    fn stop(&self, record: Record) -> Option<Stop> {
        Some(match record.argument() {
            stop::YIELDED => Stop::Yielded,
            stop::PARKED => self.parked(record.high() as u8, record.low()),
            stop::PREEMPTED => {
                let by = Some(record.low()).filter(|by| *by != 0);
                Stop::Preempted { by, how: How::from_code(record.high() as u8)? }
            }
            stop::ENDED => Stop::Ended,
            stop::BLOCKED => Stop::Blocked,
            _ => return None,
        })
    }

    fn parked(&self, reason: u8, object: u64) -> Stop {
        Stop::Parked { reason: self.reasons.get(&reason).copied().unwrap_or_default(), object }
    }

    /// Returns the stop and the start that a switch stands for.
    fn switch(&self, lane: &mut Lane, record: Record) -> [Kind; 2] {
        let stopped = lane.running;
        let why = self.parked(record.argument(), record.body >> 32);
        lane.running = record.switched_to(stopped);
        let queue = if record.kind() == kind::SWITCH_NEXT { Queue::Next } else { Queue::Ring };
        [Kind::Stop { g: stopped, why }, Kind::Start { g: lane.running, queue, waited_ns: 0 }]
    }

    fn text(&mut self, text: &[u8]) -> StringId {
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.dictionary.intern(&String::from_utf8_lossy(&text[..end]))
    }
}

impl Lane {
    fn running(&self) -> Option<u64> {
        Some(self.running).filter(|g| *g != 0)
    }

    fn ready(&self, record: Record) -> Option<Kind> {
        let g = record.low();
        let cause = Cause::from_code(record.argument() & 15)?;
        let by_goroutine = matches!(cause, Cause::Spawned | Cause::Woken);
        Some(Kind::Ready {
            g,
            waker: self.running().filter(|waker| by_goroutine && *waker != g),
            cause,
            queue: Queue::from_code(record.argument() >> 4)?,
            position: u32::from(record.high()),
        })
    }

    fn event(&self, record: Record, kind: Kind) -> Event {
        let outside = self.block.m == Event::OUTSIDE;
        let (runtime, p) = match (outside, record.kind()) {
            (true, kind::BLOCKED_FOUND | kind::TAKEN) => (u32::from(record.p()), record.high()),
            (true, _) => (u32::from(record.p()), NO_P),
            (false, _) => (self.block.runtime, record.p()),
        };
        let p = Some(u32::from(p)).filter(|p| *p != u32::from(NO_P));
        Event { time_ns: 0, runtime, m: self.block.m, p, kind, stack: None }
    }
}
