//! Traces of a server that does not exist, by seed: as large as one likes, with everything that a verdict is about.

use mungo_trace::format::{self, Block, Header, Record, Sync, body, kind, stop};
use mungo_trace::{Cause, Event, How, Queue};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};

/// Wait reasons, by their numbers.
const REASONS: [&str; 4] = ["", "chan receive", "sleep", "net read"];

/// What goroutines do, by the line of `src/server.rs` that makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Makes a handler whenever the network has something.
    Acceptor = 40,
    /// A request: asks a worker, waits for the answer, ends.
    Handler = 57,
    Worker = 22,
    /// Computes, and sleeps.
    Hog = 101,
    Ticker = 9,
    /// Waits for good.
    Leaked = 77,
    /// Blocks its thread now and then.
    Blocker = 12,
}

const ROLES: [Role; 7] =
    [Role::Acceptor, Role::Handler, Role::Worker, Role::Hog, Role::Ticker, Role::Leaked, Role::Blocker];

struct G {
    role: Role,
    /// Times that it came to run.
    turn: u32,
    /// Of a worker: the client to answer.
    partner: u64,
    /// Of a hog: what is left to compute, in ns.
    left: u64,
}

/// A thread's records of this round.
#[derive(Default)]
struct Lane {
    bytes: Vec<u8>,
    base: u64,
    running: u64,
    /// `running` when the round began.
    first: u64,
    clock: u64,
    /// Goroutines, and since when they are there.
    queue: VecDeque<(u64, u64)>,
    idle: bool,
}

/// The machine on paper.
pub(super) struct Synthetic<W> {
    out: W,
    rng: u64,
    lanes: Vec<Lane>,
    outside: Lane,
    gs: Vec<G>,
    idle_workers: Vec<u64>,
    requests: VecDeque<u64>,
    /// The goroutines that are woken, when, and by what.
    alarms: BinaryHeap<Reverse<(u64, u64, u8)>>,
    events: u64,
    round_end: u64,
}

const ROUND_NS: u64 = 20_000_000;

impl<W: Write> Synthetic<W> {
    /// A trace of about `events` events of `procs` processors.
    pub(super) fn write(out: W, seed: u64, procs: usize, events: u64) -> io::Result<()> {
        let lanes = (0..procs).map(|_| Lane::default()).collect();
        let mut machine = Synthetic {
            out,
            rng: seed,
            lanes,
            outside: Lane::default(),
            gs: Vec::new(),
            idle_workers: Vec::new(),
            requests: VecDeque::new(),
            alarms: BinaryHeap::new(),
            events: 0,
            round_end: ROUND_NS,
        };
        machine.begin()?;
        while machine.events < events {
            machine.step()?;
        }
        machine.flush(format::LAST)
    }

    fn random(&mut self, low: u64, high: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        low + (z ^ (z >> 31)) % (high - low)
    }

    fn begin(&mut self) -> io::Result<()> {
        let header = Header { version: format::VERSION, pid: 1, wall_ns: 0, ticks_per_second: 1_000_000_000 };
        let mut bytes = header.to_bytes().to_vec();
        format::put_reasons(&mut bytes, REASONS.iter().enumerate().map(|(i, text)| (i as u8, *text)));
        format::put_places(&mut bytes, ROLES.map(|r| (r as u16, r as u32, 5, "src/server.rs")).into_iter());
        self.out.write_all(&bytes)?;
        self.out.write_all(&Sync { ticks: 0, time_ns: 0, dropped: 0, flags: 0 }.to_bytes())?;
        for lane in 0..self.lanes.len() {
            self.record(lane, kind::PROC_GAINED, 0, 0);
        }
        self.text(0, kind::POLICY_CHANGED, "default");
        for (role, count) in
            [(Role::Acceptor, 1), (Role::Worker, 8), (Role::Hog, 2), (Role::Ticker, 1), (Role::Blocker, 1)]
        {
            (0..count).for_each(|_| _ = self.spawn(0, role));
        }
        Ok(())
    }

    fn record(&mut self, lane: usize, kind: u8, argument: u8, body: u64) {
        let clock = self.lanes[lane].clock;
        let record = Record::new((clock - self.lanes[lane].base) as u32, kind, argument, lane as u16, body);
        self.put(lane, record);
    }

    fn put(&mut self, lane: usize, record: Record) {
        let bytes = &mut self.lanes[lane].bytes;
        bytes.extend(record.head.to_le_bytes());
        bytes.extend(record.body.to_le_bytes());
        self.events += 1;
    }

    fn text(&mut self, lane: usize, kind: u8, text: &str) {
        self.numbered_text(lane, kind, 0, text);
    }

    fn numbered_text(&mut self, lane: usize, kind: u8, id: u64, text: &str) {
        let units = text.len().div_ceil(format::RECORD);
        self.record(lane, kind, units as u8, id);
        let bytes = &mut self.lanes[lane].bytes;
        let end = bytes.len() + units * format::RECORD;
        bytes.extend(text.as_bytes());
        bytes.resize(end, 0);
    }

    fn spawn(&mut self, lane: usize, role: Role) -> u64 {
        self.gs.push(G { role, turn: 0, partner: 0, left: 0 });
        let g = self.gs.len() as u64;
        self.record(lane, kind::CREATED, 0, body(g, role as u16));
        self.ready(lane, g, Cause::Spawned);
        g
    }

    fn ready(&mut self, lane: usize, g: u64, cause: Cause) {
        let position = self.lanes[lane].queue.len() as u16;
        let now = self.lanes[lane].clock;
        self.lanes[lane].queue.push_back((g, now));
        self.record(lane, kind::READY, cause.code() | Queue::Ring.code() << 4, body(g, position));
    }

    fn stop(&mut self, lane: usize, why: u8, low: u64, high: u16) {
        self.record(lane, kind::STOP, why, body(low, high));
        self.lanes[lane].running = 0;
    }

    fn park(&mut self, lane: usize, reason: u16) {
        self.stop(lane, stop::PARKED, 0xC0DE_0000 + u64::from(reason), reason);
    }

    fn alarm(&mut self, at: u64, g: u64, cause: Cause) {
        self.alarms.push(Reverse((at, g, cause.code())));
    }

    /// The processor that is behind does its next thing: it begins to run a goroutine, or comes to the end of that.
    fn step(&mut self) -> io::Result<()> {
        let lane = (0..self.lanes.len()).min_by_key(|&l| self.lanes[l].clock).expect("a processor");
        if self.lanes[lane].clock >= self.round_end {
            self.flush(0)?;
        }
        if self.lanes[lane].running != 0 {
            self.act(lane, self.lanes[lane].running);
            return Ok(());
        }
        self.ring(lane);
        let Some((g, queue)) = self.next(lane) else {
            if !self.lanes[lane].idle {
                self.lanes[lane].idle = true;
                self.record(lane, kind::PROC_IDLE, 0, 0);
            }
            let wake = self.alarms.peek().map_or(self.round_end, |Reverse((at, ..))| *at);
            let clock = self.lanes[lane].clock;
            self.lanes[lane].clock = wake.min(clock + 50_000).max(clock + 5_000);
            return Ok(());
        };
        if std::mem::take(&mut self.lanes[lane].idle) {
            self.record(lane, kind::PROC_GAINED, 0, 0);
        }
        self.lanes[lane].clock += self.random(60, 400);
        self.record(lane, kind::START, queue.code(), body(g, 0));
        self.lanes[lane].running = g;
        self.begin_run(lane, g);
        Ok(())
    }

    /// Lets it run.
    fn begin_run(&mut self, lane: usize, g: u64) {
        let G { role, turn, left, .. } = self.gs[g as usize - 1];
        let (low, high) = match (role, turn) {
            (Role::Acceptor, _) => (2_000, 6_000),
            (Role::Handler, 0) => (20_000, 80_000),
            (Role::Handler, _) => (10_000, 30_000),
            (Role::Worker, _) => (30_000, 120_000),
            (Role::Hog, _) => (10_000_000, 14_000_000),
            (Role::Ticker, _) => (3_000, 9_000),
            (Role::Leaked, _) => (1_000, 3_000),
            (Role::Blocker, _) => (21_000_000, 26_000_000),
        };
        if role == Role::Handler && turn == 0 {
            self.numbered_text(lane, kind::REGION_BEGIN, g, "request");
        }
        let mut ran = self.random(low, high);
        if role == Role::Hog {
            let left = if left == 0 { self.random(20_000_000, 60_000_000) } else { left };
            ran = ran.min(left);
            self.gs[g as usize - 1].left = left - ran;
        }
        self.lanes[lane].clock += ran;
    }

    /// Alarms that are due.
    fn ring(&mut self, lane: usize) {
        let now = self.lanes[lane].clock;
        while let Some(&Reverse((at, g, cause))) = self.alarms.peek().filter(|Reverse((at, ..))| *at <= now) {
            self.alarms.pop();
            let cause = Cause::ALL[usize::from(cause)];
            match cause {
                Cause::Timer => self.record(lane, kind::TIMERS_RUN, 0, body(now - at, 1)),
                Cause::Network => self.record(lane, kind::POLL, 0, 1),
                _ => {}
            }
            self.ready(lane, g, cause);
        }
    }

    fn next(&mut self, lane: usize) -> Option<(u64, Queue)> {
        if let Some((g, _)) = self.lanes[lane].queue.pop_front() {
            return Some((g, Queue::Ring));
        }
        // No processor is behind this one, but others may be ahead of it.
        let now = self.lanes[lane].clock;
        let there = |l: usize| self.lanes[l].queue.iter().take_while(|(_, since)| *since <= now).count();
        let victim = (0..self.lanes.len()).max_by_key(|&l| there(l))?;
        let taken = there(victim).div_ceil(2);
        let stolen: Vec<(u64, u64)> = self.lanes[victim].queue.drain(..taken).collect();
        if !stolen.is_empty() {
            self.record(lane, kind::STEAL, 0, victim as u64 | (taken as u64) << 32);
        }
        self.lanes[lane].queue.extend(stolen);
        self.lanes[lane].queue.pop_front().map(|(g, _)| (g, Queue::Stolen))
    }

    /// What it does at the end of its run.
    fn act(&mut self, lane: usize, g: u64) {
        let (turn, clock) = (self.gs[g as usize - 1].turn, self.lanes[lane].clock);
        self.gs[g as usize - 1].turn += 1;
        match self.gs[g as usize - 1].role {
            Role::Acceptor => {
                self.spawn(lane, Role::Handler);
                let gap = self.random(20_000, 380_000);
                self.alarm(clock + gap, g, Cause::Network);
                self.park(lane, 3);
            }
            Role::Handler => self.handle(lane, g, turn),
            Role::Worker => self.work(lane, g),
            Role::Hog => self.hog(lane, g),
            Role::Ticker => {
                if turn.is_multiple_of(20) {
                    self.spawn(lane, Role::Leaked);
                }
                if turn.is_multiple_of(200) {
                    self.text(lane, kind::LOG, &format!("tick {turn}"));
                }
                self.alarm(clock + 1_000_000, g, Cause::Timer);
                self.park(lane, 2);
            }
            Role::Leaked => self.park(lane, 1),
            Role::Blocker => self.block(lane, g),
        }
    }

    fn handle(&mut self, lane: usize, g: u64, turn: u32) {
        if turn > 0 {
            self.record(lane, kind::REGION_END, 0, g);
            return self.stop(lane, stop::ENDED, 0, 0);
        }
        match self.idle_workers.pop() {
            Some(worker) => {
                self.gs[worker as usize - 1].partner = g;
                self.ready(lane, worker, Cause::Woken);
            }
            None => self.requests.push_back(g),
        }
        self.park(lane, 1);
    }

    fn work(&mut self, lane: usize, g: u64) {
        let asked = std::mem::take(&mut self.gs[g as usize - 1].partner);
        if asked != 0 {
            self.ready(lane, asked, Cause::Woken);
        }
        if let Some(next) = self.requests.pop_front() {
            self.gs[g as usize - 1].partner = next;
            self.stop(lane, stop::YIELDED, 0, 0);
            return self.ready(lane, g, Cause::Yielded);
        }
        self.idle_workers.push(g);
        self.park(lane, 1);
    }

    fn hog(&mut self, lane: usize, g: u64) {
        if self.gs[g as usize - 1].left > 0 {
            let by = self.lanes[lane].queue.front().map_or(0, |(g, _)| *g);
            self.stop(lane, stop::PREEMPTED, by, How::Injected.code().into());
            return self.ready(lane, g, Cause::Preempted);
        }
        let clock = self.lanes[lane].clock;
        self.alarm(clock + 150_000_000, g, Cause::Timer);
        self.park(lane, 2);
    }

    /// It blocks its thread for longer than the monitor likes, and the processor goes on.
    fn block(&mut self, lane: usize, g: u64) {
        let clock = self.lanes[lane].clock;
        let ticks = (clock - self.outside.base) as u32;
        let record = Record::new(ticks, kind::BLOCKED_FOUND, 0, 1, body(g, lane as u16));
        self.outside.bytes.extend(record.head.to_le_bytes());
        self.outside.bytes.extend(record.body.to_le_bytes());
        self.events += 1;
        self.lanes[lane].clock += 1_000;
        self.stop(lane, stop::BLOCKED, 0, 0);
        self.alarm(clock + 400_000_000, g, Cause::Unblocked);
    }

    /// Writes what each thread has, and the time.
    fn flush(&mut self, flags: u64) -> io::Result<()> {
        for (m, lane) in self.lanes.iter_mut().enumerate() {
            write_lane(&mut self.out, lane, 1, m as u32)?;
            lane.base = lane.clock.min(self.round_end);
            lane.first = lane.running;
        }
        write_lane(&mut self.out, &mut self.outside, 0, Event::OUTSIDE)?;
        self.outside.base = self.round_end;
        let ticks = self.round_end.max(if flags == 0 { 0 } else { self.latest() });
        self.out.write_all(&Sync { ticks, time_ns: ticks, dropped: 0, flags }.to_bytes())?;
        self.round_end += ROUND_NS;
        Ok(())
    }

    fn latest(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.clock).max().unwrap_or(0)
    }
}

fn write_lane(out: &mut impl Write, lane: &mut Lane, runtime: u32, m: u32) -> io::Result<()> {
    let len = lane.bytes.len() as u32;
    let block = Block { kind: format::EVENTS, len, runtime, m, running: lane.first, base: lane.base };
    out.write_all(&block.to_bytes())?;
    out.write_all(&lane.bytes)?;
    lane.bytes.clear();
    Ok(())
}
