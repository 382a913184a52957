//! Perfetto's own format: a sequence of packets. The names of fields are those of `perfetto_trace.proto`.

use super::{levels, regions, states};
use crate::trace::model::{CAUSES, Model, NONE, Region, Why};
use mungo_trace::proto::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// Kinds of track events.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Numbers of tracks: of runtimes, processors, queues, shared queues, places, goroutines, tasks.
const RUNTIME: u64 = 1 << 32;
const PROC: u64 = 2 << 32;
const QUEUE: u64 = 3 << 32;
const SHARED: u64 = 4 << 32;
const PLACE: u64 = 5 << 32;
const GOROUTINE: u64 = 6 << 32;
const REGION: u64 = 7 << 32;

/// Names that are written once and then called by their numbers.
struct Names {
    known: HashMap<String, u64>,
}

/// Writes packets.
struct Writer<'a> {
    out: &'a mut dyn Write,
    names: Names,
    is_first: bool,
}

impl Writer<'_> {
    fn packet(&mut self, packet: Message) -> io::Result<()> {
        const SEQUENCE: u64 = 1;
        const CLEARED: u64 = 1;
        const NEEDS_STATE: u64 = 2;
        let flags = if std::mem::take(&mut self.is_first) { CLEARED | NEEDS_STATE } else { NEEDS_STATE };
        let packet = packet.number(10, SEQUENCE).number(13, flags);
        self.out.write_all(&Message::new().message(1, &packet).0)
    }

    fn track(&mut self, track: Message) -> io::Result<()> {
        self.packet(Message::new().message(60, &track))
    }

    /// An event with a name; `more` adds to it.
    fn event(
        &mut self,
        at: u64,
        track: u64,
        kind: u64,
        name: &str,
        more: impl FnOnce(Message) -> Message,
    ) -> io::Result<()> {
        let mut packet = Message::new().number(8, at);
        let mut event = Message::new().number(9, kind).number(11, track);
        if !name.is_empty() {
            let next = self.names.known.len() as u64 + 1;
            let iid = match self.names.known.get(name) {
                Some(iid) => *iid,
                None => {
                    self.names.known.insert(name.to_owned(), next);
                    let entry = Message::new().number(1, next).text(2, name);
                    packet = packet.message(12, &Message::new().message(2, &entry));
                    next
                }
            };
            event = event.number(10, iid);
        }
        self.packet(packet.message(11, &more(event)))
    }

    fn end(&mut self, at: u64, track: u64) -> io::Result<()> {
        self.event(at, track, END, "", |event| event)
    }
}

/// Notes on events, by their numbers.
const NOTES: [&str; 6] =
    ["goroutine", "waited_ns", "runnable because", "ended because", "wakes goroutine", "ended in"];
const GOROUTINE_ID: u64 = 1;
const WAITED_NS: u64 = 2;
const BECAUSE: u64 = 3;
const ENDED: u64 = 4;
const WAKES: u64 = 5;
const STACK: u64 = 6;

/// Numbers of texts in notes: of [`CAUSES`], of the reasons to stop, and of stacks.
const CAUSE_TEXT: u64 = 1;
const WHY_TEXT: u64 = 100;
const STACK_TEXT: u64 = 200;

/// All names and texts of notes, once.
fn intern_notes(model: &Model) -> Message {
    let entry = |iid: u64, text: &str| Message::new().number(1, iid).text(2, text);
    let mut data = Message::new();
    for (note, name) in (1..).zip(NOTES) {
        data = data.message(3, &entry(note, name));
    }
    for (cause, text) in (CAUSE_TEXT..).zip(CAUSES) {
        data = data.message(29, &entry(cause, text));
    }
    for why in Why::ALL {
        data = data.message(29, &entry(WHY_TEXT + why as u64, why.text()));
    }
    for (stack, text) in (STACK_TEXT..).zip(&model.stacks).skip(1) {
        data = data.message(29, &entry(stack, text));
    }
    data
}

fn note_number(event: Message, note: u64, n: u64) -> Message {
    event.message(4, &Message::new().number(1, note).number(3, n))
}

fn note_text(event: Message, note: u64, text: u64) -> Message {
    event.message(4, &Message::new().number(1, note).number(17, text))
}

/// The whole trace.
pub(super) fn write(model: &Model, tracks: &[u32], out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer { out, names: Names { known: HashMap::new() }, is_first: true };
    writer.packet(Message::new().message(12, &intern_notes(model)))?;
    describe(&mut writer, model, tracks)?;
    for p in 0..model.procs.len() {
        processor(&mut writer, model, p)?;
    }
    for level in levels(model) {
        let track =
            if level.home == NONE { SHARED + u64::from(level.runtime) } else { QUEUE + u64::from(level.home) };
        for (at, length) in level.samples {
            writer.event(at, track, COUNTER, "", |event| event.number(30, length.into()))?;
        }
    }
    for &g in tracks {
        let track = GOROUTINE + u64::from(g);
        for state in states(model, g) {
            writer.event(state.start, track, BEGIN, &state.name, |event| event)?;
            writer.end(state.end, track)?;
        }
    }
    for (i, region) in regions(model).into_iter().enumerate() {
        self::region(&mut writer, i, region)?;
    }
    Ok(())
}

fn describe(writer: &mut Writer<'_>, model: &Model, tracks: &[u32]) -> io::Result<()> {
    const EXPLICIT: u64 = 3;
    const COUNT: u64 = 2;
    let child =
        |uuid: u64, parent: u64, name: &str| Message::new().number(1, uuid).number(5, parent).text(2, name);
    let counter = Message::new().number(3, COUNT);
    let mut runtimes: Vec<u32> = model.procs.iter().map(|p| p.runtime).collect();
    runtimes.sort_unstable();
    runtimes.dedup();
    for &runtime in &runtimes {
        let uuid = RUNTIME + u64::from(runtime);
        let process = Message::new().number(1, runtime.into()).text(6, &format!("mungo runtime {runtime}"));
        writer.track(Message::new().number(1, uuid).message(3, &process).number(11, EXPLICIT))?;
        let queue = child(SHARED + u64::from(runtime), uuid, "shared queue");
        writer.track(queue.message(8, &counter).number(12, 900))?;
    }
    for (i, proc) in model.procs.iter().enumerate() {
        let parent = RUNTIME + u64::from(proc.runtime);
        let track = child(PROC + i as u64, parent, &format!("P{}", proc.p));
        writer.track(track.number(12, (2 * proc.p).into()))?;
        let queue = child(QUEUE + i as u64, parent, &format!("P{} queue", proc.p)).message(8, &counter);
        writer.track(queue.number(12, (2 * proc.p + 1).into()))?;
    }
    let mut groups: HashMap<(u32, u32), u64> = HashMap::new();
    for &g in tracks {
        let goroutine = &model.goroutines[g as usize];
        let next = PLACE + groups.len() as u64;
        let key = (goroutine.runtime, goroutine.place);
        let group = *groups.entry(key).or_insert(next);
        if group == next {
            let place = format!("goroutines made at {}", model.places[goroutine.place as usize]);
            let parent = RUNTIME + u64::from(goroutine.runtime);
            writer.track(child(group, parent, &place).number(12, 1000 + groups.len() as u64))?;
        }
        writer.track(child(GOROUTINE + u64::from(g), group, &model.name(g)))?;
    }
    let parent = RUNTIME + u64::from(runtimes.first().copied().unwrap_or(0));
    for (i, region) in regions(model).into_iter().enumerate() {
        let parent = match region.g {
            NONE => parent,
            g => RUNTIME + u64::from(model.goroutines[g as usize].runtime),
        };
        // Tracks of equal names are drawn as one where their slices allow it.
        let kind = if region.is_task { "tasks" } else { "regions" };
        writer.track(child(REGION + i as u64, parent, kind).number(12, 950))?;
    }
    Ok(())
}

/// Writes what ran on a processor, and which goroutines were woken from there.
fn processor(writer: &mut Writer<'_>, model: &Model, p: usize) -> io::Result<()> {
    let track = PROC + p as u64;
    for &s in &model.procs[p].spans {
        let span = &model.spans[s as usize];
        let flow = u64::from(s) + 1;
        let waker = match span.waker {
            NONE => None,
            waker => model.span_at(waker, span.ready),
        };
        if let Some(waker) = waker {
            let from = PROC + u64::from(model.spans[waker as usize].p);
            writer.event(span.ready, from, INSTANT, "wakes", |event| {
                note_number(event.fixed(47, flow), WAKES, model.goroutines[span.g as usize].id)
            })?;
        }
        if span.never_ran {
            continue;
        }
        writer.event(span.start, track, BEGIN, model.place(span.g), |mut event| {
            if waker.is_some() {
                event = event.fixed(48, flow);
            }
            event = note_number(event, GOROUTINE_ID, model.goroutines[span.g as usize].id);
            event = note_number(event, WAITED_NS, span.waited());
            event = note_text(event, BECAUSE, CAUSE_TEXT + u64::from(span.cause));
            event = note_text(event, ENDED, WHY_TEXT + span.why as u64);
            match span.stack {
                0 => event,
                stack => note_text(event, STACK, STACK_TEXT + u64::from(stack)),
            }
        })?;
        writer.end(span.end, track)?;
    }
    Ok(())
}

fn region(writer: &mut Writer<'_>, i: usize, region: &Region) -> io::Result<()> {
    let track = REGION + i as u64;
    writer.event(region.start, track, BEGIN, &region.name, |event| event)?;
    writer.end(region.end, track)
}
