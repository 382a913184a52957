//! What keeps a trace: a writer, or a recorder of the last seconds in memory.

use super::births::{self, Births};
use super::drain::{self, Round};
use super::output::{self, Output};
use super::stacks::{self, Written};
use super::{DROPPED, census, clock, places};
use crate::reason::WaitReason;
use mungo_trace::format::{self, Header, Sync};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of a sink, in the order of their starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SinkId(pub(super) u64);

/// What a trace came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
    pub(crate) stacks_lost: u64,
    pub(crate) duration: Duration,
}

/// How much a recorder keeps: at least `last`, but not more than `max_bytes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) last: Duration,
    pub(crate) max_bytes: usize,
}

/// The moment at which a sink began.
#[derive(Clone, Copy)]
struct Origin {
    ticks: u64,
    ns: u64,
    wall_ns: u64,
    dropped: u64,
    stacks_lost: u64,
}

impl Origin {
    fn now() -> Origin {
        let (ticks, ns) = clock::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (dropped, stacks_lost) = (DROPPED.load(Relaxed), stacks::lost());
        Origin { ticks, ns, wall_ns: wall.as_nanos() as u64, dropped, stacks_lost }
    }

    fn header(&self) -> Header {
        Header {
            version: format::VERSION,
            pid: std::process::id(),
            wall_ns: self.wall_ns,
            ticks_per_second: clock::per_second(),
        }
    }

    fn sync(&self, (ticks, ns): (u64, u64), flags: u64) -> Sync {
        let dropped = DROPPED.load(Relaxed) - self.dropped;
        Sync { ticks, time_ns: ns.saturating_sub(self.ns), dropped, flags }
    }

    /// Appends what a file begins with.
    fn begin(&self, out: &mut Vec<u8>) {
        out.extend(self.header().to_bytes());
        let start = Sync { ticks: self.ticks, time_ns: 0, dropped: 0, flags: 0 };
        out.extend(start.to_bytes());
        let reasons = WaitReason::ALL.iter().map(|reason| (*reason as u8, reason.as_str()));
        format::put_reasons(out, reasons);
    }
}

/// A trace in the making, into a writer.
pub(super) struct Stream {
    origin: Origin,
    output: Arc<Output>,
    places: usize,
    /// `None`: it is without stacks.
    stacks: Option<Written>,
    /// Events that were not passed on, because too much waits for the writer; of them those that no record speaks of.
    lost: u64,
    untold: u64,
    /// Events that the records say are missing.
    missing: u64,
    summary: Summary,
}

impl Stream {
    /// Starts one. It drops events while more than `most` bytes wait for the writer.
    pub(super) fn start(out: Box<dyn Write + Send>, stacks: bool, most: usize) -> io::Result<Stream> {
        let (origin, output) = (Origin::now(), Output::start(out, most)?);
        let stacks = stacks.then(Written::default);
        let summary = Summary::default();
        let mut stream = Stream { origin, output, places: 0, stacks, lost: 0, untold: 0, missing: 0, summary };
        let mut bytes = Vec::new();
        origin.begin(&mut bytes);
        stream.write(bytes);
        Ok(stream)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.output.is_broken()
    }

    /// Returns the way to the writer, which can be waited for without a lock.
    pub(super) fn output(&self) -> Arc<Output> {
        self.output.clone()
    }

    /// Returns whether it is with stacks.
    pub(super) fn has_stacks(&self) -> bool {
        self.stacks.is_some()
    }

    /// Passes on what a round came to: `blocks`, which have stacks or not. If too much waits for the writer, the events
    /// are counted as dropped.
    pub(super) fn accept(&mut self, round: &Round, blocks: &[u8], now: (u64, u64)) {
        match self.output.has_room() {
            true => self.pass_on(round, blocks, now, 0),
            false => {
                let lost = round.events - round.tellers;
                self.lost += lost;
                self.untold += lost + round.missing;
            }
        }
    }

    fn pass_on(&mut self, round: &Round, blocks: &[u8], now: (u64, u64), flags: u64) {
        let mut bytes = Vec::with_capacity(blocks.len() + 4096);
        self.places = places::put_from(&mut bytes, self.places);
        if let Some(written) = &mut self.stacks {
            written.put_new(&mut bytes);
            self.summary.stacks_lost = stacks::lost() - self.origin.stacks_lost;
        }
        self.summary.dropped = DROPPED.load(Relaxed) - self.origin.dropped + self.lost;
        self.summary.events += round.events;
        self.missing += round.missing;
        let mut untold = std::mem::take(&mut self.untold);
        if flags & format::LAST != 0 {
            // Of threads that had no room for a record of it until the end.
            untold += self.summary.dropped.saturating_sub(self.missing + untold);
        }
        if untold != 0 {
            self.missing += untold;
            self.summary.events += drain::put_missing(&mut bytes, untold, now.0);
        }
        bytes.extend(blocks);
        self.summary.duration = Duration::from_nanos(now.1.saturating_sub(self.origin.ns));
        let dropped = self.summary.dropped;
        bytes.extend(Sync { dropped, ..self.origin.sync(now, flags) }.to_bytes());
        self.write(bytes);
    }

    /// Writes what existed before it began.
    pub(super) fn tell(&mut self, known: &[census::Known], ticks: u64) {
        let mut bytes = Vec::new();
        self.summary.events += census::put(&mut bytes, known, ticks);
        self.write(bytes);
    }

    /// Ends it. Its writer may be waited for after that.
    pub(super) fn end(mut self, now: (u64, u64)) -> (Arc<Output>, Summary) {
        self.pass_on(&Round::default(), &[], now, format::LAST);
        (self.output.clone(), self.summary)
    }

    fn write(&mut self, bytes: Vec<u8>) {
        self.summary.bytes += bytes.len() as u64;
        self.output.put(bytes);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.output.complete();
    }
}

/// The last seconds of a trace.
pub(super) struct Recorder {
    origin: Origin,
    kept: Kept,
    has_stacks: bool,
    rounds: VecDeque<Old>,
    bytes: usize,
    /// When the oldest of the rounds began, in ticks, and the events that were dropped before.
    begin: u64,
    dropped_before: u64,
    /// What the rounds before them said that is still of use.
    births: Births,
}

#[derive(Clone)]
struct Old {
    /// Shared with snapshots, which are written without a lock.
    blocks: Arc<[u8]>,
    events: u64,
    sync: Sync,
}

impl Recorder {
    pub(super) fn new(kept: Kept, has_stacks: bool) -> Recorder {
        let origin = Origin::now();
        Recorder {
            origin,
            kept,
            has_stacks,
            rounds: VecDeque::new(),
            bytes: 0,
            begin: origin.ticks,
            dropped_before: 0,
            births: Births::default(),
        }
    }

    /// Returns whether it is with stacks.
    pub(super) fn has_stacks(&self) -> bool {
        self.has_stacks
    }

    /// Keeps what a round came to: `blocks`, which have stacks or not.
    pub(super) fn accept(&mut self, round: &Round, blocks: &[u8], now: (u64, u64)) {
        let sync = self.origin.sync(now, 0);
        self.bytes += blocks.len();
        self.rounds.push_back(Old { blocks: blocks.into(), events: round.events, sync });
        let oldest = sync.time_ns.saturating_sub(self.kept.last.as_nanos() as u64);
        while self.rounds.len() > 1
            && (self.bytes > self.kept.max_bytes || self.rounds[0].sync.time_ns < oldest)
        {
            let Some(old) = self.rounds.pop_front() else { break };
            self.bytes -= old.blocks.len();
            self.births.read(&old.blocks, old.sync.ticks);
            (self.begin, self.dropped_before) = (old.sync.ticks, old.sync.dropped);
        }
    }

    /// Returns what it knows of goroutines whose beginning it has dropped.
    pub(super) fn births(&mut self) -> &mut Births {
        &mut self.births
    }

    /// Returns what is kept now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut head = Vec::new();
        self.origin.begin(&mut head);
        let mut summary = Summary::default();
        let first = self.rounds.front().map_or(0, |old| old.sync.time_ns);
        let mut rounds: Vec<Old> = self.rounds.iter().cloned().collect();
        for old in &mut rounds {
            // Of what was dropped before, nothing is missing here.
            old.sync.dropped = old.sync.dropped.saturating_sub(self.dropped_before);
            summary.events += old.events;
            summary.dropped = old.sync.dropped;
            summary.duration = Duration::from_nanos(old.sync.time_ns - first);
        }
        if let Some(last) = rounds.last_mut() {
            last.sync.flags = format::LAST;
        }
        if self.has_stacks {
            summary.stacks_lost = stacks::lost() - self.origin.stacks_lost;
        }
        let (births, has_stacks) = (self.births.known(), self.has_stacks);
        Snapshot { head, rounds, begin: self.begin, births, has_stacks, summary }
    }
}

/// What a recorder had at a moment.
pub(super) struct Snapshot {
    head: Vec<u8>,
    rounds: Vec<Old>,
    /// When the rounds began, in ticks.
    begin: u64,
    /// What existed then, as far as it is known.
    births: Vec<census::Known>,
    has_stacks: bool,
    summary: Summary,
}

impl Snapshot {
    /// Writes a whole trace, in which what exists now existed when its events begin.
    pub(super) fn write_to(
        mut self,
        mut known: Vec<census::Known>,
        out: &mut dyn Write,
    ) -> io::Result<Summary> {
        births::add(&mut known, self.births);
        self.summary.events += census::put(&mut self.head, &known, self.begin);
        places::put_from(&mut self.head, 0);
        if self.has_stacks {
            Written::default().put_new(&mut self.head);
        }
        output::write_pieces(out, &self.head)?;
        self.summary.bytes = self.head.len() as u64;
        for old in self.rounds {
            let sync = old.sync.to_bytes();
            self.summary.bytes += (old.blocks.len() + sync.len()) as u64;
            output::write_pieces(out, &old.blocks)?;
            out.write_all(&sync)?;
        }
        out.flush()?;
        Ok(self.summary)
    }
}
