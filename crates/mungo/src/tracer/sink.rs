//! What keeps a trace: a writer, or a recorder of the last seconds in memory.

use super::births::{self, Births};
use super::drain::Round;
use super::stacks::{self, Written};
use super::{DROPPED, census, clock, places};
use crate::reason::WaitReason;
use mungo_trace::format::{self, Header, Sync};
use std::collections::VecDeque;
use std::io::{self, Write};
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
    out: Box<dyn Write + Send>,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
    places: usize,
    /// `None`: it is without stacks.
    stacks: Option<Written>,
    summary: Summary,
}

impl Stream {
    pub(super) fn new(out: Box<dyn Write + Send>, stacks: bool) -> Stream {
        let origin = Origin::now();
        let stacks = stacks.then(Written::default);
        let mut stream = Stream { origin, out, error: None, places: 0, stacks, summary: Summary::default() };
        let mut bytes = Vec::new();
        origin.begin(&mut bytes);
        stream.write(&bytes);
        stream
    }

    pub(super) fn is_broken(&self) -> bool {
        self.error.is_some()
    }

    /// Returns the error that the trace ended with, if it has.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.error {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    /// Returns whether it is with stacks.
    pub(super) fn has_stacks(&self) -> bool {
        self.stacks.is_some()
    }

    /// Writes what a round came to: `blocks`, which have stacks or not.
    pub(super) fn accept(&mut self, round: &Round, blocks: &[u8], now: (u64, u64), flags: u64) {
        let mut bytes = Vec::new();
        self.places = places::put_from(&mut bytes, self.places);
        if let Some(written) = &mut self.stacks {
            written.put_new(&mut bytes);
            self.summary.stacks_lost = stacks::lost() - self.origin.stacks_lost;
        }
        self.write(&bytes);
        self.write(blocks);
        self.summary.events += round.events;
        self.summary.dropped = DROPPED.load(Relaxed) - self.origin.dropped;
        self.summary.duration = Duration::from_nanos(now.1.saturating_sub(self.origin.ns));
        self.write(&self.origin.sync(now, flags).to_bytes());
        self.try_to(|out| out.flush());
    }

    /// Writes what existed before it began.
    pub(super) fn tell(&mut self, known: &[census::Known], ticks: u64) {
        let mut bytes = Vec::new();
        self.summary.events += census::put(&mut bytes, known, ticks);
        self.write(&bytes);
    }

    pub(super) fn finish(mut self, now: (u64, u64)) -> io::Result<Summary> {
        self.accept(&Round::default(), &[], now, format::LAST);
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.summary),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.summary.bytes += bytes.len() as u64;
        }
        self.try_to(|out| out.write_all(bytes));
    }

    /// Calls the writer, unless it has failed. One that panics has failed.
    fn try_to(&mut self, f: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.error.is_some() {
            return;
        }
        let out = &mut *self.out;
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(out)));
        self.error = done.unwrap_or_else(|_| Err(io::Error::other("the writer panicked"))).err();
    }
}

/// The last seconds of a trace.
pub(super) struct Recorder {
    origin: Origin,
    kept: Kept,
    has_stacks: bool,
    rounds: VecDeque<Old>,
    bytes: usize,
    /// When the oldest of the rounds began, in ticks.
    begin: u64,
    /// What the rounds before them said that is still of use.
    births: Births,
}

struct Old {
    blocks: Box<[u8]>,
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
            self.births.read(&old.blocks);
            self.begin = old.sync.ticks;
        }
    }

    /// Returns what it knows of goroutines whose beginning it has dropped.
    pub(super) fn births(&mut self) -> &mut Births {
        &mut self.births
    }

    /// Returns what is kept now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let (mut head, mut rounds) = (Vec::new(), Vec::new());
        self.origin.begin(&mut head);
        let mut summary = Summary::default();
        let first = self.rounds.front().map_or(0, |old| old.sync.time_ns);
        for (at, old) in self.rounds.iter().enumerate() {
            let flags = if at + 1 == self.rounds.len() { format::LAST } else { 0 };
            rounds.extend(&old.blocks);
            rounds.extend(Sync { flags, ..old.sync }.to_bytes());
            summary.events += old.events;
            summary.dropped = old.sync.dropped;
            summary.duration = Duration::from_nanos(old.sync.time_ns - first);
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
    rounds: Vec<u8>,
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
        self.summary.bytes = (self.head.len() + self.rounds.len()) as u64;
        out.write_all(&self.head)?;
        out.write_all(&self.rounds)?;
        out.flush()?;
        Ok(self.summary)
    }
}
