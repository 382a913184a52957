//! Events that get lost.

use super::chunk::{Chunk, Thread};
use super::lane::Lane;
use super::{outside, writer};
use mungo_trace::format::{NO_P, Record, kind};
use mungo_trace::{Kind, Trace};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// There is one pool of chunks, so those who take chunks out of it do so one by one.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whatever lost them: an M, an M that ended, one that has no further event, a thread that is no M.
#[test]
#[cfg_attr(miri, ignore = "it starts the tracer's thread")]
fn events_without_a_place_are_in_the_sums_and_in_the_trace() {
    const EACH: u64 = 5;
    let _alone = alone();
    let entry = |g| Record::new(0, kind::POLL, 0, NO_P, g);
    let put = |lane: &Lane| (0..EACH).for_each(|n| lane.put(entry(n), || 0));
    let memory = Memory::default();
    let sink = writer::start(Box::new(memory.clone()), false).unwrap();
    let [goes_on, ends, stays] = [1, 2, 3].map(|m| Lane::new(9, m));
    let alone = writer::lock().unwrap(); // no chunk is made meanwhile
    let none = Thread { runtime: 9, m: 4, tid: 0 };
    let all: Vec<_> = std::iter::from_fn(|| Chunk::take(none, 0, 0)).collect();
    [&goes_on, &ends, &stays].into_iter().for_each(put);
    ends.close();
    // The shared chunk has room for less than that.
    let logs = u64::try_from(4 * super::chunk::PLACES).unwrap();
    (0..logs).for_each(|n| outside::put(9, entry(n), ""));
    all.into_iter().for_each(Chunk::seal); // the writer frees them
    drop(alone);
    writer::flush(sink).unwrap();
    let told_early = told(&memory);
    assert!(told_early >= 2 * EACH, "what is known is told before the end: {told_early}");
    goes_on.put(entry(0), || 0);
    let summary = writer::stop(sink).unwrap();
    let trace = Trace::read(&memory.0.lock().unwrap()[..]).unwrap();
    assert!(!trace.is_torn);
    assert!(summary.dropped >= 3 * EACH + logs / 2, "{summary:?}");
    assert_eq!((told(&memory), trace.dropped), (summary.dropped, summary.dropped));
    assert_eq!(trace.events.len() as u64, summary.events);
}

/// The number of events that are missing, by the records that say so.
fn told(memory: &Memory) -> u64 {
    let trace = Trace::read(&memory.0.lock().unwrap()[..]).unwrap();
    let missing = |kind| if let Kind::Dropped { count } = kind { count } else { 0 };
    trace.events.iter().map(|event| missing(event.kind)).sum()
}
