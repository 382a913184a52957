//! Files, whole and broken, through the reader.

use mungo_trace::format::{self, Block, Function, Header, NO_P, Record, Sync, body, kind, stop};
use mungo_trace::{Cause, Error, Event, How, Kind, Part, PlaceId, Queue, StackEnd, StackId, Stop, Trace};

/// A file in the making; one tick is 10 ns.
struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Writer {
        let header = Header { version: format::VERSION, pid: 7, wall_ns: 0, ticks_per_second: 100_000_000 };
        let mut writer = Writer(header.to_bytes().to_vec());
        writer.sync(1000, 0);
        format::put_reasons(&mut writer.0, [(0, "none"), (14, "chan receive")].into_iter());
        format::put_places(&mut writer.0, [(3, 10, 5, "src/main.rs")].into_iter());
        writer
    }

    fn sync(&mut self, ticks: u64, flags: u64) -> &mut Writer {
        let sync = Sync { ticks, time_ns: (ticks - 1000) * 10, dropped: 2, flags };
        self.0.extend(sync.to_bytes());
        self
    }

    fn block(&mut self, runtime: u32, m: u32, running: u64, base: u64, records: &[Record]) -> &mut Writer {
        let len = (records.len() * format::RECORD) as u32;
        self.0.extend(Block { kind: format::EVENTS, len, runtime, m, running, base }.to_bytes());
        for record in records {
            self.0.extend(record.head.to_le_bytes());
            self.0.extend(record.body.to_le_bytes());
        }
        self
    }
}

fn text(text: &str) -> Record {
    let mut bytes = [0; 16];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    Record { head: word(0), body: word(8) }
}

fn ready(ticks: u32, g: u64, cause: Cause, queue: Queue) -> Record {
    Record::new(ticks, kind::READY, cause.code() | queue.code() << 4, 0, body(g, 3))
}

/// Two runtimes; goroutine 5 of the first wakes 6, which runs on another M.
fn sample() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.block(
        1,
        0,
        5,
        1100,
        &[
            Record::new(0, kind::CREATED, 0, 0, body(6, 3)),
            ready(1, 6, Cause::Spawned, Queue::Next),
            Record::new(2, kind::BASE, 0, 0, 1150),
            Record::new(0, kind::STOP, stop::PARKED, 0, body(0xABC, 14)),
        ],
    );
    writer.block(
        1,
        1,
        0,
        1120,
        &[
            Record::new(0, kind::PROC_GAINED, 0, 1, 0),
            Record::new(1, kind::START, Queue::Stolen.code(), 1, 6),
            Record::new(2, kind::REGION_BEGIN, 1, 1, 9),
            text("parse"),
            Record::new(50, kind::REGION_END, 0, 1, 9),
            Record::new(60, kind::STOP, stop::PREEMPTED, 1, body(8, How::Injected.code().into())),
        ],
    );
    writer.sync(1130, 0);
    writer.block(
        0,
        Event::OUTSIDE,
        0,
        1140,
        &[
            Record::new(0, kind::BLOCKED_FOUND, 0, 2, body(4, 1)),
            Record::new(5, 77, 0, 2, 0),                    // of a later version
            Record::new(6, format::HAS_TEXT | 77, 1, 2, 0), // the same, with a text
            text("what"),
        ],
    );
    writer.block(2, 9, 0, 1100, &[Record::new(5, kind::THREAD_STARTED, 0, NO_P, 0)]); // late
    writer.sync(1200, 0);
    writer.sync(1300, format::LAST);
    std::mem::take(&mut writer.0)
}

#[test]
fn events_come_sorted_with_what_the_block_left_out() {
    let trace = Trace::read(&sample()[..]).unwrap();
    assert!(!trace.is_torn);
    assert_eq!(trace.dropped, 2);
    let of = |kind: Kind| {
        let found: Vec<_> = trace.events.iter().filter(|event| event.kind == kind).collect();
        assert_eq!(found.len(), 1, "{kind:?} in {:#?}", trace.events);
        *found[0]
    };
    let created = of(Kind::Created { g: 6, parent: Some(5), place: PlaceId(3) });
    assert_eq!((created.time_ns, created.runtime, created.m, created.p), (1000, 1, 0, Some(0)));
    let position = 3;
    of(Kind::Ready { g: 6, waker: Some(5), cause: Cause::Spawned, queue: Queue::Next, position });
    let start = of(Kind::Start { g: 6, queue: Queue::Stolen, waited_ns: 200 });
    assert_eq!((start.time_ns, start.m, start.p), (1210, 1, Some(1)));
    of(Kind::Stop { g: 6, why: Stop::Preempted { by: Some(8), how: How::Injected } });
    let blocked = of(Kind::BlockedFound { g: 4 });
    assert_eq!((blocked.runtime, blocked.m, blocked.p), (2, Event::OUTSIDE, Some(1)));
    assert_eq!((of(Kind::ThreadStarted).runtime, of(Kind::ThreadStarted).p), (2, None));
    assert!(trace.events.is_sorted_by_key(|event| event.time_ns), "{:#?}", trace.events);
    let parked = trace.events.iter().find_map(|event| match event.kind {
        Kind::Stop { g: 5, why: Stop::Parked { reason, object } } => Some((trace.string(reason), object)),
        _ => None,
    });
    assert_eq!(parked, Some(("chan receive", 0xABC)));
    let names: Vec<_> = trace
        .events
        .iter()
        .filter_map(|event| match event.kind {
            Kind::RegionBegin { g, id: 9, name } | Kind::RegionEnd { g, id: 9, name } => {
                Some((g, trace.string(name)))
            }
            _ => None,
        })
        .collect();
    assert_eq!(names, [(Some(6), "parse"); 2]);
    assert_eq!(trace.dictionary.place_name(PlaceId(3)), "src/main.rs:10:5");
    assert_eq!(trace.dictionary.place_name(PlaceId::UNKNOWN), "?");
}

#[test]
fn a_hand_over_is_a_stop_and_a_start() {
    let high = 7 << 32;
    let parked = Record::new(0, kind::STOP, stop::PARKED, 2, body(0xABC, 14));
    let mut writer = Writer::new();
    let records = [
        ready(1, high | 6, Cause::Woken, Queue::Next),
        Record::switch(high | 5, parked, high | 6, true).unwrap().at(3),
        Record::switch(high | 6, parked, high | 8, false).unwrap().at(9),
    ];
    writer.block(1, 0, high | 5, 1100, &records);
    writer.sync(1200, format::LAST);
    let trace = Trace::read(&writer.0[..]).unwrap();
    let [_, stop, start, end, last] = &trace.events[..] else { panic!("{:#?}", trace.events) };
    assert_eq!((stop.time_ns, stop.p, start.time_ns, start.p), (1030, Some(2), 1030, Some(2)));
    let Kind::Stop { g, why: Stop::Parked { reason, object } } = stop.kind else { panic!("{stop:?}") };
    assert_eq!((g, trace.string(reason), object), (high | 5, "chan receive", 0xABC));
    assert_eq!(start.kind, Kind::Start { g: high | 6, queue: Queue::Next, waited_ns: 20 });
    assert!(
        matches!(end.kind, Kind::Stop { why: Stop::Parked { .. }, .. })
            && end.kind.goroutine() == Some(high | 6)
    );
    assert_eq!(last.kind, Kind::Start { g: high | 8, queue: Queue::Ring, waited_ns: 0 });
}

/// What a version added is a kind of record that those before it do not have.
#[test]
fn older_versions_are_read() {
    let events = |version: u8| {
        let mut file = sample();
        file[8] = version;
        Trace::read(&file[..]).unwrap().events
    };
    assert!(!events(4).is_empty());
    (1..4).for_each(|version| assert_eq!(events(version), events(4), "version {version}"));
}

#[test]
fn holders_of_locks_and_times_without_a_cpu_are_read() {
    let mut writer = Writer::new();
    let records = [
        Record::new(1, kind::HELD_BY, 0, 2, body(6, 0)),
        Record::new(2, kind::STOP, stop::PARKED, 2, body(0xABC, 14)),
        Record::new(3, kind::HELD_BY, 0, 2, body(7, 0)), // nothing runs
        Record::new(4, kind::NO_CPU, 0, NO_P, body(3_000_000, 100)),
    ];
    writer.block(1, 5, 4, 1100, &records);
    writer.sync(1200, format::LAST);
    let trace = Trace::read(&writer.0[..]).unwrap();
    let [held, _, odd, no_cpu] = &trace.events[..] else { panic!("{:#?}", trace.events) };
    assert_eq!((held.kind, held.p), (Kind::HeldBy { g: Some(4), holder: 6 }, Some(2)));
    assert_eq!(held.kind.goroutine(), Some(4));
    assert_eq!(odd.kind, Kind::HeldBy { g: None, holder: 7 });
    assert_eq!(no_cpu.kind, Kind::NoCpu { waited_ns: 3_000_000, within_ms: 100 });
    assert_eq!((no_cpu.m, no_cpu.p), (5, None));
}

/// A trace with two stacks, of which the first has two functions at one address.
fn with_stacks() -> Writer {
    let mut writer = Writer::new();
    format::put_block(&mut writer.0, format::STACKS, |out| {
        format::put_stack(out, 3, StackEnd::Whole, [0xABCD_1234_5678, 0x20].into_iter());
        format::put_stack(out, 9, StackEnd::Cut, [0x20].into_iter());
    });
    let stack = |n| Record::new(1, kind::STACK, 0, 2, n);
    let parked = Record::new(2, kind::STOP, stop::PARKED, 2, body(0xABC, 14));
    let records = [
        stack(3),
        Record::new(1, kind::BASE, 0, 0, 1100),
        Record::new(1, kind::CREATED, 0, 2, body(6, 3)),
        ready(1, 6, Cause::Spawned, Queue::Next),
        stack(9),
        Record::switch(5, parked, 6, true).unwrap().at(3),
        stack(0),
        Record::new(4, kind::STOP, stop::BLOCKED, 2, 0),
        Record::new(5, kind::START, Queue::Ring.code(), 2, 5),
        stack(3), // its event is not here
    ];
    writer.block(1, 0, 5, 1100, &records);
    writer.block(1, 0, 5, 1110, &[Record::new(0, kind::STOP, stop::PARKED, 2, body(0, 14))]);
    format::put_block(&mut writer.0, format::FUNCTIONS, |out| {
        let named = |address, name, file, line| Function { address, part: Part::Program, name, file, line };
        format::put_function(out, named(0xABCD_1234_5678, "inlined", "src/a.rs", 7));
        format::put_function(out, named(0xABCD_1234_5678, "outer", "src/b.rs", 8));
        format::put_function(out, named(0x20, "main", "", 0));
    });
    writer.sync(1200, format::LAST);
    writer
}

#[test]
fn events_have_their_stacks_and_stacks_have_names() {
    let trace = Trace::read(&with_stacks().0[..]).unwrap();
    let stacks: Vec<_> = trace.events.iter().map(|event| event.stack.map(|stack| stack.0)).collect();
    assert_eq!(stacks, [Some(3), None, Some(9), None, Some(0), None, None], "{:#?}", trace.events);
    let of = |id| {
        let frames = trace.dictionary.frames(StackId(id));
        let all = frames.iter().map(|f| (trace.string(f.function), trace.string(f.file), f.line));
        all.collect::<Vec<_>>()
    };
    assert_eq!(of(3), [("inlined", "src/a.rs", 7), ("outer", "src/b.rs", 8), ("main", "", 0)]);
    assert_eq!((of(9), of(0)), (vec![("main", "", 0)], vec![]));
    let ends = [3, 9].map(|id| trace.dictionary.stack(StackId(id)).unwrap().end);
    assert_eq!(ends, [StackEnd::Whole, StackEnd::Cut]);
    assert_eq!((StackId::UNKNOWN, trace.dictionary.stack(StackId::UNKNOWN)), (StackId(0), None));
}

#[test]
fn a_file_that_is_cut_anywhere_is_read_up_to_there() {
    cut_anywhere(&sample());
    cut_anywhere(&with_stacks().0);
}

fn cut_anywhere(whole: &[u8]) {
    let all = Trace::read(whole).unwrap().events.len();
    let mut last = 0;
    for len in format::FILE_HEADER..whole.len() {
        let trace = Trace::read(&whole[..len]).unwrap();
        assert!(trace.is_torn, "cut at {len}");
        assert!(trace.events.len() >= last, "fewer events with more bytes, at {len}");
        last = trace.events.len();
    }
    assert_eq!(last, all);
}

#[test]
fn zeros_after_the_end_are_no_events() {
    let mut file = sample();
    file.truncate(file.len() - 2 * 64);
    file.extend([0; 4096]);
    let trace = Trace::read(&file[..]).unwrap();
    assert!(trace.is_torn && trace.events.len() > 5);
}

#[test]
fn what_is_no_trace_is_refused_with_a_reason() {
    let error = |bytes: &[u8]| Trace::read(bytes).unwrap_err();
    assert!(matches!(error(b""), Error::Empty));
    assert!(matches!(error(b"MUNG"), Error::Foreign));
    assert!(matches!(error(b"{\"traceEvents\": []} and so on and on"), Error::Foreign));
    let mut newer = sample();
    newer[8] = 9;
    assert!(matches!(error(&newer), Error::Newer(9)));
    assert_eq!(error(&newer).to_string(), "the trace has version 9, and this program reads up to 4: update it");
    assert!(matches!(Trace::open("no such file"), Err(Error::Io(_))));
}

/// Bytes that are changed at random give other events, or fewer, and never a panic or endless memory.
#[test]
fn noise_does_no_harm() {
    let whole = [sample(), with_stacks().0];
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for round in 0..10_000 {
        let mut noisy = whole[round % 2].clone();
        for _ in 0..1 + random() % 4 {
            let at = random() % noisy.len();
            noisy[at] = random() as u8;
        }
        _ = Trace::read(&noisy[..]);
    }
}
