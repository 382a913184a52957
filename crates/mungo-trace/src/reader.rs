//! The reader: blocks in, events in the order of their times out.

use crate::decode::{Decoder, Raw};
use crate::dictionary::{Dictionary, StringId};
use crate::error::Error;
use crate::event::{Event, Kind};
use crate::format::{self, BLOCK_HEADER, Block, FILE_HEADER, Header, MAX_PAYLOAD, Sync};
use crate::hash::NumberMap;
use std::io::{self, Read};

/// Reads a trace piece by piece: an iterator over its events, in the order of their times. It holds what its writer
/// wrote in two rounds, some hundredths of a second each.
///
/// A thread that had no CPU for longer than that between the moment of an event and its entry in the trace has that
/// event come late here. [`Trace`](crate::Trace), which has the whole file, sorts them all.
///
/// ```
/// use mungo_trace::{Error, Reader};
///
/// assert!(matches!(Reader::new(&b""[..]), Err(Error::Empty)));
/// assert!(matches!(Reader::new(&b"something else"[..]), Err(Error::Foreign)));
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    header: Header,
    decoder: Decoder,
    clock: Clock,
    /// Events that may be followed by earlier ones.
    pending: Vec<Raw>,
    /// Events whose turn it is, the next one last.
    ready: Vec<Raw>,
    /// Time in ticks of the last sync.
    synced: u64,
    /// When goroutines became runnable, in ns.
    waiting: NumberMap<(u32, u64), u64>,
    /// The names of tasks and regions that have begun.
    names: NumberMap<u64, StringId>,
    payload: Vec<u8>,
    dropped: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reading,
    /// The last block was read, or the file was cut off.
    Ended,
    Torn,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If the file is empty, no trace, or of a version that is not known.
    pub fn new(mut source: R) -> Result<Reader<R>, Error> {
        let mut bytes = [0; FILE_HEADER];
        match read_full(&mut source, &mut bytes)? {
            0 => return Err(Error::Empty),
            n if n < 8 || bytes[..8] != format::MAGIC => return Err(Error::Foreign),
            _ => {}
        }
        let header = Header::from_bytes(&bytes);
        if header.version > format::VERSION {
            return Err(Error::Newer(header.version));
        }
        if header.version == 0 || header.ticks_per_second == 0 {
            return Err(Error::Foreign);
        }
        Ok(Reader {
            source,
            header,
            decoder: Decoder::default(),
            clock: Clock::new(header.ticks_per_second),
            pending: Vec::new(),
            ready: Vec::new(),
            synced: 0,
            waiting: NumberMap::default(),
            names: NumberMap::default(),
            payload: Vec::new(),
            dropped: 0,
            state: State::Reading,
        })
    }

    /// Returns what the numbers in the events mean, as far as was read.
    pub fn dictionary(&self) -> &Dictionary {
        &self.decoder.dictionary
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns whether the end of the file, which was reached, is not the end of a trace: the program still runs, or
    /// could not write it.
    pub fn is_torn(&self) -> bool {
        self.state == State::Torn
    }

    /// Returns the number of events, so far, that the writer could not keep. Events ([`Kind::Dropped`]) tell of them
    /// too, and in a file that ends early perhaps of more.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn into_dictionary(self) -> Dictionary {
        self.decoder.dictionary
    }

    /// Reads up to the next sync, or to the end.
    fn fill(&mut self) -> Result<(), Error> {
        while let Some(block) = self.next_block()? {
            match block.kind {
                format::EVENTS => self.decoder.events(block, &self.payload, &mut self.pending),
                format::REASONS => self.decoder.reasons(&self.payload),
                format::PLACES => self.decoder.places(&self.payload),
                format::STACKS => self.decoder.stacks(&self.payload),
                format::FUNCTIONS => self.decoder.functions(&self.payload),
                format::SYNC => {
                    if let Some(sync) = Sync::from_payload(&self.payload) {
                        self.sync(sync);
                        return Ok(());
                    }
                }
                _ => {} // of a later version
            }
        }
        self.state = State::Torn;
        self.release(u64::MAX);
        Ok(())
    }

    fn sync(&mut self, sync: Sync) {
        self.clock.add(sync);
        self.dropped = sync.dropped;
        if sync.flags & format::LAST != 0 {
            self.state = State::Ended;
            self.release(u64::MAX);
            return;
        }
        let complete = std::mem::replace(&mut self.synced, sync.ticks);
        self.release(complete);
    }

    /// Moves the events before `ticks` to `ready`, sorted.
    fn release(&mut self, ticks: u64) {
        let all = std::mem::take(&mut self.pending);
        for raw in all {
            match raw.ticks < ticks {
                true => self.ready.push(raw),
                false => self.pending.push(raw),
            }
        }
        self.ready.sort_by_key(|raw| raw.ticks); // stable: what one thread did at the same tick stays in order
        self.ready.reverse();
    }

    /// Reads a block into `payload`. `None`: there is no whole one left.
    fn next_block(&mut self) -> Result<Option<Block>, Error> {
        let mut header = [0; BLOCK_HEADER];
        if read_full(&mut self.source, &mut header)? < BLOCK_HEADER {
            return Ok(None);
        }
        let block = Block::from_bytes(&header);
        if block.kind == 0 || block.len > MAX_PAYLOAD {
            return Ok(None); // zeros, as a file system leaves them behind, or noise
        }
        self.payload.clear();
        // As much memory as there are bytes, whatever the header says.
        let read = self.source.by_ref().take(u64::from(block.len)).read_to_end(&mut self.payload)?;
        let whole = read == block.len as usize;
        Ok((whole || block.kind == format::EVENTS).then_some(block))
    }

    fn finish(&mut self, raw: Raw) -> Event {
        let mut event = raw.event;
        event.time_ns = self.clock.ns(raw.ticks);
        match &mut event.kind {
            Kind::Ready { g, .. } => _ = self.waiting.insert((event.runtime, *g), event.time_ns),
            Kind::Start { g, waited_ns, .. } => {
                let since = self.waiting.remove(&(event.runtime, *g));
                *waited_ns = since.map_or(0, |since| event.time_ns.saturating_sub(since));
            }
            Kind::TaskBegin { id, name, .. } | Kind::RegionBegin { id, name, .. } => {
                self.names.insert(*id, *name);
            }
            Kind::TaskEnd { id, name, .. } | Kind::RegionEnd { id, name, .. } => {
                *name = self.names.remove(id).unwrap_or_default();
            }
            _ => {}
        }
        event
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(raw) = self.ready.pop() {
                return Some(Ok(self.finish(raw)));
            }
            if self.state != State::Reading {
                return None;
            }
            if let Err(error) = self.fill() {
                self.state = State::Torn;
                return Some(Err(error));
            }
        }
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match source.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Ticks to nanoseconds: straight lines between the syncs.
#[derive(Debug)]
struct Clock {
    ticks_per_second: u64,
    /// The last syncs, as ticks and ns.
    points: Vec<(u64, u64)>,
}

impl Clock {
    /// Syncs that are kept: an event is at most that many rounds late.
    const POINTS: usize = 64;

    fn new(ticks_per_second: u64) -> Clock {
        Clock { ticks_per_second, points: Vec::new() }
    }

    fn add(&mut self, sync: Sync) {
        let last = self.points.last().copied().unwrap_or((0, 0));
        if self.points.is_empty() || sync.ticks > last.0 && sync.time_ns >= last.1 {
            if self.points.len() == Clock::POINTS {
                self.points.remove(0);
            }
            self.points.push((sync.ticks, sync.time_ns));
        }
    }

    fn ns(&self, ticks: u64) -> u64 {
        let after = self.points.partition_point(|point| point.0 <= ticks);
        let Some((ticks_0, ns_0)) = after.checked_sub(1).map(|before| self.points[before]) else {
            // Before the trace began, or before what is remembered of it.
            return self.points.first().map_or(0, |point| point.1);
        };
        let (over, per_ticks) = match self.points.get(after) {
            Some((ticks_1, ns_1)) => (ns_1 - ns_0, ticks_1 - ticks_0),
            None => (1_000_000_000, self.ticks_per_second),
        };
        let since = u128::from(ticks - ticks_0) * u128::from(over) / u128::from(per_ticks);
        ns_0.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_between_syncs_lie_on_a_line() {
        let mut clock = Clock::new(2_000_000_000);
        let sync = |ticks, time_ns| Sync { ticks, time_ns, dropped: 0, flags: 0 };
        clock.add(sync(1000, 0));
        assert_eq!((clock.ns(900), clock.ns(1000), clock.ns(1200)), (0, 0, 100), "by the nominal rate");
        clock.add(sync(2000, 250));
        assert_eq!((clock.ns(1400), clock.ns(2000)), (100, 250), "by the measured rate");
        clock.add(sync(1500, 900));
        assert_eq!(clock.ns(2000), 250, "a sync that goes back is not believed");
    }
}
