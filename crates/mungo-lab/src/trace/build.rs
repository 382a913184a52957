//! Makes tables of events: follows each goroutine and each processor from event to event.

mod ids;
mod stacks;

use super::model::*;
use mungo_trace::{Cause, Dictionary, Event, Kind, PlaceId, Queue, Reader, Stop, StringId, Trace};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Read;

/// A queue with more goroutines than these is worth a word.
pub(crate) const CROWD: u32 = 100;

/// Objects beyond that many are not told apart.
const OBJECTS: u32 = 60_000;

/// What a goroutine waits for, in words.
fn what(reason: &str, object: u64) -> String {
    match (reason, object) {
        (reason, 0) => reason.to_owned(),
        ("join", g) => format!("{reason} of goroutine {g}"),
        (reason, fd) if reason.starts_with("net ") => format!("{reason}, descriptor {fd}"),
        // The low bits of an address.
        (reason, number) => format!("{reason} {:#x}", number << 3),
    }
}

/// Returns a text of the file as it may be printed: a file may come from anywhere, and a terminal obeys control
/// characters. Those that change the direction of writing could make a text look like another one.
fn printable(text: &str) -> String {
    let plain = |c: char| match c {
        '\n' | '\t' => ' ',
        '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(plain).collect()
}

/// Hashes pairs of small numbers: the default hasher would be a third of the time that a trace takes.
#[derive(Default)]
struct Numbers(u64);

impl Hasher for Numbers {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

type Table<K> = HashMap<K, u32, BuildHasherDefault<Numbers>>;

/// Where a goroutine is at the moment.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    /// The span that it is in, or was in last, plus one.
    running: Option<u32>,
    ready: Option<Waiting>,
    /// The goroutine that has the lock which it is about to park for.
    holder: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: u64,
    cause: u8,
    waker: u32,
    home: u32,
    /// Of `Builder::queues`; none if it lies in no queue.
    queue: Option<usize>,
    in_policy: bool,
}

impl Waiting {
    /// Returns what follows: M `m` starts goroutine `g` on `p`, or the trace ends before one does ([`NONE`]).
    fn span(&self, at: u64, g: u32, p: u32, m: u32) -> Span {
        Span {
            start: at,
            end: at,
            ready: self.since.min(at),
            g,
            p,
            m,
            home: self.home,
            waker: self.waker,
            by: NONE,
            stack: 0,
            reason: 0,
            cause: self.cause,
            why: Why::Unfinished,
            never_ran: m == NONE,
            in_policy: self.in_policy,
        }
    }
}

/// A queue's length, and when it became long.
#[derive(Clone, Copy, Debug)]
struct Depth {
    /// As in [`Crowd::home`].
    home: u32,
    length: u32,
    /// The stretch above [`CROWD`] that goes on: since when, and the peak.
    crowd: Option<(u64, u32)>,
}

/// The state machine: events in the order of their times in, tables out.
#[derive(Default)]
pub(crate) struct Builder {
    model: Model,
    /// When the first event was: a trace of the last seconds begins long after its clock.
    begin: Option<u64>,
    ids: ids::Ids,
    proc_ids: Table<(u32, u32)>,
    place_ids: Table<u32>,
    /// By the reason and the object.
    reason_ids: Table<(u32, u64)>,
    kind_ids: Table<u32>,
    stacks: stacks::Stacks,
    now: Vec<Now>,
    /// The span that each processor is in, or none.
    on_proc: Vec<Option<u32>>,
    idle_since: Vec<Option<u64>>,
    threadless_since: Vec<Option<u64>>,
    queues: Vec<Depth>,
    /// The queue of each processor.
    of_proc: Vec<usize>,
    /// The shared queue of each runtime.
    shared: Table<u32>,
    regions: HashMap<(bool, u64), usize>,
}

/// Makes tables of a whole trace.
pub(crate) fn build(trace: &Trace) -> Model {
    let mut builder = Builder::default();
    trace.events.iter().for_each(|event| builder.event(event, &trace.dictionary));
    builder.finish(&trace.dictionary, trace.is_torn, trace.dropped)
}

/// Makes tables of a trace while it is read: less memory and time than [`build`]. Returns `None` if an event
/// comes late: then it needs the whole trace, sorted.
pub(crate) fn stream(source: impl Read) -> Result<Option<Model>, mungo_trace::Error> {
    let mut reader = Reader::new(source)?;
    let (mut builder, mut last_ns) = (Builder::default(), 0);
    while let Some(event) = reader.next() {
        let event = event?;
        if event.time_ns < last_ns {
            return Ok(None);
        }
        last_ns = event.time_ns;
        builder.event(&event, reader.dictionary());
    }
    Ok(Some(builder.finish(reader.dictionary(), reader.is_torn(), reader.dropped())))
}

impl Builder {
    /// Takes the next event.
    pub(crate) fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        let begin = *self.begin.get_or_insert(event.time_ns);
        let at = event.time_ns.saturating_sub(begin).max(self.model.end);
        self.model.end = at;
        self.model.counts.events += 1;
        match event.kind {
            Kind::Created { g, parent, place } => self.created(event, at, g, parent, place),
            Kind::Existed { g, place } => {
                let (g, place) = (self.goroutine(event.runtime, g), self.place(place));
                self.model.goroutines[g as usize].place = place;
            }
            Kind::Named { g, name } => {
                let g = self.goroutine(event.runtime, g);
                self.model.goroutines[g as usize].name = printable(dictionary.string(name));
            }
            Kind::Ready { g, waker, cause, queue, .. } => {
                let waker = waker.map_or(NONE, |w| self.goroutine(event.runtime, w));
                self.ready(event, at, g, waker, cause_number(cause), queue);
            }
            Kind::Start { g, queue, waited_ns } => self.start(event, at, g, queue, waited_ns),
            Kind::Stop { g, why } => self.stop(event, at, g, why, dictionary),
            Kind::ProcGained => self.gained(event, at),
            Kind::ProcLost => self.lost(event, at),
            Kind::ProcIdle => self.idle(event, at),
            Kind::BlockedFound { g } => self.blocked(event, at, g),
            Kind::Poll { .. } => self.model.counts.polls += 1,
            Kind::TimersRun { count, late_ns } => {
                let counts = &mut self.model.counts;
                counts.timers += u64::from(count);
                counts.latest_timer = counts.latest_timer.max((late_ns, at));
            }
            Kind::Steal { taken, .. } => {
                self.model.counts.steals += 1;
                if let Some(p) = self.proc_of(event) {
                    self.model.procs[p as usize].stolen += u64::from(taken);
                }
            }
            Kind::ThreadStarted => self.model.counts.threads += 1,
            Kind::PolicyChanged { name } => {
                let name = printable(dictionary.string(name));
                self.model.policies.push((at, event.runtime, name));
            }
            Kind::PolicyInForce { name } => {
                let name = printable(dictionary.string(name));
                self.model.policies.push((0, event.runtime, name));
            }
            Kind::TaskBegin { g, id, name } => self.begin(event, at, (true, id), g, dictionary.string(name)),
            Kind::RegionBegin { g, id, name } => self.begin(event, at, (false, id), g, dictionary.string(name)),
            Kind::TaskEnd { g, id, name } => self.end(event, at, (true, id), g, dictionary.string(name)),
            Kind::RegionEnd { g, id, name } => self.end(event, at, (false, id), g, dictionary.string(name)),
            Kind::Log { g, text } => {
                let g = g.map_or(NONE, |g| self.goroutine(event.runtime, g));
                let text = printable(dictionary.string(text));
                self.model.logs.push(Log { at, g, text });
            }
            Kind::HeldBy { g: Some(g), holder } => {
                let g = self.goroutine(event.runtime, g) as usize;
                self.now[g].holder = Some(self.goroutine(event.runtime, holder));
            }
            Kind::NoCpu { waited_ns: waited, within_ms } => {
                let within = u64::from(within_ms) * 1_000_000;
                let Event { runtime, m, .. } = *event;
                self.model.no_cpu.push(NoCpu { at, within, waited, runtime, m });
            }
            Kind::Dropped { count } => self.model.counts.dropped += count,
            // An event of a later version that the reader knows and we do not.
            _ => {}
        }
    }

    fn goroutine(&mut self, runtime: u32, id: u64) -> u32 {
        let next = self.now.len() as u32;
        let index = self.ids.index(runtime, id, next);
        if index == next {
            self.now.push(Now::default());
            self.model.goroutines.push(Goroutine {
                id,
                runtime,
                place: 0,
                parent: NONE,
                made_in: 0,
                name: String::new(),
                created: UNKNOWN,
                ended: UNKNOWN,
            });
        }
        index
    }

    fn proc_of(&mut self, event: &Event) -> Option<u32> {
        let (runtime, p) = (event.runtime, event.p?);
        let next = self.model.procs.len() as u32;
        let index = *self.proc_ids.entry((runtime, p)).or_insert(next);
        if index == next {
            let (spans, idle, without_thread) = (Vec::new(), Vec::new(), Vec::new());
            self.model.procs.push(Proc { runtime, p, spans, idle, without_thread, stolen: 0 });
            self.on_proc.push(None);
            self.idle_since.push(None);
            self.threadless_since.push(None);
            self.of_proc.push(self.queues.len());
            self.queues.push(Depth { home: index, length: 0, crowd: None });
        }
        Some(index)
    }

    fn created(&mut self, event: &Event, at: u64, g: u64, parent: Option<u64>, place: PlaceId) {
        let g = self.goroutine(event.runtime, g);
        let parent = parent.map_or(NONE, |p| self.goroutine(event.runtime, p));
        let (place, made_in) = (self.place(place), self.stacks.number(event.stack));
        let goroutine = &mut self.model.goroutines[g as usize];
        (goroutine.place, goroutine.parent, goroutine.created) = (place, parent, at);
        goroutine.made_in = made_in;
    }

    /// Index of a place in the source.
    fn place(&mut self, place: PlaceId) -> u32 {
        let next = self.place_ids.len() as u32 + 1; // 0: not known
        *self.place_ids.entry(place.0).or_insert(next)
    }

    fn ready(&mut self, event: &Event, at: u64, g: u64, waker: u32, cause: u8, queue: Queue) {
        let g = self.goroutine(event.runtime, g);
        let p = self.proc_of(event).filter(|_| !is_shared(queue));
        let in_policy = queue == Queue::Policy;
        let queue = match p {
            _ if queue == Queue::None => None,
            Some(p) => Some(self.of_proc[p as usize]),
            None => Some(self.shared_queue(event.runtime)),
        };
        let home = p.unwrap_or(NONE);
        let mut waiting = Waiting { since: at, cause, waker, home, queue, in_policy };
        if let Some(before) = self.now[g as usize].ready {
            // It was queued already and has been moved: it waits since then.
            waiting = Waiting { home, queue, in_policy, ..before };
            self.leave(before.queue, at);
        }
        self.now[g as usize].ready = Some(waiting);
        self.enter(queue, at);
    }

    fn shared_queue(&mut self, runtime: u32) -> usize {
        let next = self.queues.len() as u32;
        let index = *self.shared.entry(runtime).or_insert(next);
        if index == next {
            self.queues.push(Depth { home: NONE, length: 0, crowd: None });
        }
        index as usize
    }

    fn enter(&mut self, queue: Option<usize>, at: u64) {
        let Some(depth) = queue.map(|queue| &mut self.queues[queue]) else { return };
        depth.length += 1;
        if depth.length > CROWD {
            let crowd = depth.crowd.get_or_insert((at, 0));
            crowd.1 = crowd.1.max(depth.length);
        }
    }

    fn leave(&mut self, queue: Option<usize>, at: u64) {
        let Some(depth) = queue.map(|queue| &mut self.queues[queue]) else { return };
        depth.length = depth.length.saturating_sub(1);
        // Half as long as what opened it: a queue that swings around the limit is one crowd.
        if depth.length < CROWD / 2
            && let Some((start, peak)) = depth.crowd.take()
        {
            self.model.crowds.push(Crowd { home: depth.home, start, end: at, peak });
        }
    }

    fn start(&mut self, event: &Event, at: u64, g: u64, queue: Queue, waited_ns: u64) {
        let g = self.goroutine(event.runtime, g);
        // Without a processor there is no place to draw it: an event got lost.
        let Some(p) = self.proc_of(event) else { return };
        self.close_goroutine(g, at, Why::Unfinished);
        let waiting = self.now[g as usize].ready.take();
        if let Some(waiting) = waiting {
            self.leave(waiting.queue, at);
        }
        let mut waiting = waiting.unwrap_or(Waiting {
            since: at.saturating_sub(waited_ns),
            cause: if queue == Queue::Thread { cause_number(Cause::Unblocked) } else { CAUSE_UNKNOWN },
            waker: NONE,
            home: p,
            queue: None,
            in_policy: false,
        });
        waiting.in_policy |= queue == Queue::Policy;
        self.open(at, g, p, event.m, waiting);
    }

    fn open(&mut self, at: u64, g: u32, p: u32, m: u32, waiting: Waiting) {
        self.close_proc(p, at, Why::Unfinished);
        self.not_idle(p, at);
        self.has_thread(p, at);
        let index = self.model.spans.len() as u32;
        self.model.spans.push(waiting.span(at, g, p, m));
        self.now[g as usize].running = Some(index);
        self.on_proc[p as usize] = Some(index);
        self.model.procs[p as usize].spans.push(index);
    }

    fn close_goroutine(&mut self, g: u32, at: u64, why: Why) -> Option<&mut Span> {
        let index = self.now[g as usize].running.take()?;
        let span = &mut self.model.spans[index as usize];
        (span.end, span.why) = (at, why);
        let on = &mut self.on_proc[span.p as usize];
        if *on == Some(index) {
            *on = None;
        }
        Some(span)
    }

    fn close_proc(&mut self, p: u32, at: u64, why: Why) {
        if let Some(span) = self.on_proc[p as usize] {
            let g = self.model.spans[span as usize].g;
            self.close_goroutine(g, at, why);
        }
    }

    fn stop(&mut self, event: &Event, at: u64, g: u64, why: Stop, dictionary: &Dictionary) {
        let g = self.goroutine(event.runtime, g);
        let (mut reason, mut by, stack) = (0, NONE, self.stacks.number(event.stack));
        let why = match why {
            Stop::Yielded => Why::Yielded,
            Stop::Parked { reason: text, object } => {
                reason = self.reason(text, object, dictionary);
                Why::Parked
            }
            Stop::Preempted { by: other, how } => {
                by = other.map_or(NONE, |other| self.goroutine(event.runtime, other));
                Why::preempted(how)
            }
            Stop::Ended => {
                self.model.goroutines[g as usize].ended = at;
                Why::Ended
            }
            _ => Why::Blocked,
        };
        let span = self.now[g as usize].running;
        if let Some(span) = self.close_goroutine(g, at, why) {
            (span.reason, span.by, span.stack) = (reason, by, stack);
        }
        if let (Some(holder), Some(span), Why::Parked) = (self.now[g as usize].holder.take(), span, why) {
            self.model.held.push(Held { span, holder });
        }
        // Woken before it had parked: it waits from now on.
        if let Some(waiting) = &mut self.now[g as usize].ready {
            waiting.since = waiting.since.max(at);
        }
    }

    /// Number of what a goroutine waits for, in `Model::reasons`: of the reason alone, if there are very many objects.
    fn reason(&mut self, text: StringId, object: u64, dictionary: &Dictionary) -> u16 {
        self.reason_of_nothing();
        let next = self.model.reasons.len() as u32;
        let object = if next < OBJECTS || self.reason_ids.contains_key(&(text.0, object)) { object } else { 0 };
        let index = *self.reason_ids.entry((text.0, object)).or_insert(next);
        if index == next {
            let next = self.model.kinds.len() as u32;
            let kind = *self.kind_ids.entry(text.0).or_insert(next);
            let text = dictionary.string(text);
            if kind == next {
                self.model.kinds.push(printable(text));
            }
            self.model.reasons.push(printable(&what(text, object)));
            let joined = if text == "join" { object } else { 0 };
            self.model.awaited.push(Awaited { joined, is_mutex: text == "mutex" && object != 0, kind });
        }
        // The runtime has a few dozen reasons; a file with more than these is not its own.
        index.min(u16::MAX.into()) as u16
    }

    /// The first one is "nothing".
    fn reason_of_nothing(&mut self) {
        if self.model.reasons.is_empty() {
            self.model.reasons.push(String::new());
            self.model.kinds.push(String::new());
            self.model.awaited.push(Awaited::default());
        }
    }

    fn gained(&mut self, event: &Event, at: u64) {
        if let Some(p) = self.proc_of(event) {
            self.not_idle(p, at);
            self.has_thread(p, at);
        }
    }

    fn lost(&mut self, event: &Event, at: u64) {
        if let Some(p) = self.proc_of(event) {
            self.close_proc(p, at, Why::Blocked);
            self.threadless_since[p as usize].get_or_insert(at);
        }
    }

    fn idle(&mut self, event: &Event, at: u64) {
        if let Some(p) = self.proc_of(event) {
            self.close_proc(p, at, Why::Unfinished);
            self.has_thread(p, at);
            self.idle_since[p as usize].get_or_insert(at);
        }
    }

    fn not_idle(&mut self, p: u32, at: u64) {
        if let Some(since) = self.idle_since[p as usize].take() {
            self.model.procs[p as usize].idle.push((since, at));
        }
    }

    fn has_thread(&mut self, p: u32, at: u64) {
        if let Some(since) = self.threadless_since[p as usize].take() {
            self.model.procs[p as usize].without_thread.push((since, at));
        }
    }

    fn blocked(&mut self, event: &Event, at: u64, g: u64) {
        let g = self.goroutine(event.runtime, g);
        if let Some(span) = self.now[g as usize].running {
            self.model.blocked.push(Blocked { span, at });
            let p = self.model.spans[span as usize].p;
            self.threadless_since[p as usize].get_or_insert(at);
            self.close_goroutine(g, at, Why::Blocked);
        }
    }

    fn begin(&mut self, event: &Event, at: u64, id: (bool, u64), g: Option<u64>, name: &str) {
        let g = g.map_or(NONE, |g| self.goroutine(event.runtime, g));
        self.regions.insert(id, self.model.regions.len());
        let name = printable(name);
        self.model.regions.push(Region { name, is_task: id.0, g, start: at, end: at, is_whole: false });
    }

    fn end(&mut self, event: &Event, at: u64, id: (bool, u64), g: Option<u64>, name: &str) {
        if let Some(region) = self.regions.remove(&id) {
            let region = &mut self.model.regions[region];
            (region.end, region.is_whole) = (at, true);
            return;
        }
        let g = g.map_or(NONE, |g| self.goroutine(event.runtime, g));
        let name = printable(name);
        self.model.regions.push(Region { name, is_task: id.0, g, start: 0, end: at, is_whole: false });
    }

    /// Closes what is open. `dropped`: the number of events that are missing, as the writer says. The events may tell
    /// of more: of those from before the trace, or after the last word of the writer.
    pub(crate) fn finish(mut self, dictionary: &Dictionary, is_torn: bool, dropped: u64) -> Model {
        let end = self.model.end;
        self.model.is_torn = is_torn;
        self.model.counts.dropped = self.model.counts.dropped.max(dropped);
        // Names of places may come after the events that use them.
        let mut places = vec!["before the trace".to_owned(); self.place_ids.len() + 1];
        for (id, at) in &self.place_ids {
            places[*at as usize] = printable(&dictionary.place_name(PlaceId(*id)));
        }
        self.model.places = places;
        let (stacks, numbers) = self.stacks.texts(dictionary);
        self.model.spans.iter_mut().for_each(|span| span.stack = numbers[span.stack as usize]);
        self.model.goroutines.iter_mut().for_each(|g| g.made_in = numbers[g.made_in as usize]);
        self.model.stacks = stacks;
        self.reason_of_nothing();
        // A recorder says at its end which policy decides: one that came in between did not decide from the beginning.
        let changes: Vec<_> = self.model.policies.iter().filter(|(at, ..)| *at > 0).cloned().collect();
        let came = |runtime, name: &str| changes.iter().any(|(_, r, n)| *r == runtime && n == name);
        self.model.policies.retain(|(at, runtime, name)| *at > 0 || !came(*runtime, name));
        for region in self.regions.values() {
            self.model.regions[*region].end = end;
        }
        for g in 0..self.now.len() {
            match (self.now[g].running, self.now[g].ready) {
                (Some(_), _) => _ = self.close_goroutine(g as u32, end, Why::Unfinished),
                (None, Some(waiting)) => self.never_ran(g, &waiting),
                (None, None) => {}
            }
        }
        for p in 0..self.model.procs.len() as u32 {
            self.not_idle(p, end);
            self.has_thread(p, end);
        }
        for depth in &self.queues {
            if let Some((start, peak)) = depth.crowd {
                self.model.crowds.push(Crowd { home: depth.home, start, end, peak });
            }
        }
        self.model.index();
        self.model
    }

    /// A goroutine that waits when the trace ends has a span without length there.
    fn never_ran(&mut self, g: usize, waiting: &Waiting) {
        let (end, index) = (self.model.end, self.model.spans.len() as u32);
        let runtime = self.model.goroutines[g].runtime;
        let of_runtime = |p: &Proc| p.runtime == runtime;
        let first = self.model.procs.iter().position(of_runtime).map(|p| p as u32);
        let p = if waiting.home == NONE { first } else { Some(waiting.home) };
        let Some(p) = p else { return };
        self.model.spans.push(waiting.span(end, g as u32, p, NONE));
        self.model.procs[p as usize].spans.push(index);
    }
}

#[cfg(test)]
mod tests;
