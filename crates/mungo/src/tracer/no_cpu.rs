//! How long threads of Ms could run and had no CPU, as the kernel counts it. By the writer.

use super::chunk::Thread;
use crate::sys::clock;
use mungo_trace::format::{BLOCK_HEADER, Block, EVENTS, NO_P, RECORD, Record, body, kind};
use std::fs;

/// Time in ns between two looks at the kernel's counters. TUNED: guess; a look takes some 5 µs for each thread.
const PERIOD_NS: u64 = 100_000_000;
/// The time between two looks is at least this many times what the last one took.
const REST: u64 = 20;
/// Time in ns without a CPU between two looks from which it is noted. TUNED: guess: less delays nothing that shows.
const NOTED_NS: u64 = 100_000;

/// What the kernel said at the last look.
#[derive(Default)]
pub(super) struct NoCpu {
    looked_ns: u64,
    /// The time in ns that the last look took.
    took_ns: u64,
    /// The time in ns that each thread had waited for a CPU since it began, in the order of the threads.
    seen: Vec<(Thread, u64)>,
}

impl NoCpu {
    pub(super) const fn new() -> NoCpu {
        NoCpu { looked_ns: 0, took_ns: 0, seen: Vec::new() }
    }

    /// Forgets what was before: a trace begins.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }

    /// Looks at the counters, if it is time to. Appends blocks with what has changed since the last look, as of this
    /// moment in ticks and ns, and returns the number of events. Says nothing of a thread at the first look at it, nor
    /// where the kernel does not count.
    pub(super) fn look(&mut self, threads: &[Thread], (ticks, ns): (u64, u64), out: &mut Vec<u8>) -> u64 {
        let within_ns = ns.saturating_sub(self.looked_ns);
        if within_ns < PERIOD_NS.max(REST * self.took_ns) {
            return 0;
        }
        let began_ns = clock::now_ns();
        self.looked_ns = ns;
        let within_ms = u16::try_from(within_ns / 1_000_000).unwrap_or(u16::MAX);
        let mut seen: Vec<_> =
            threads.iter().filter_map(|thread| Some((*thread, waited_ns(thread.tid)?))).collect();
        seen.sort_unstable();
        let mut events = 0;
        for (thread, waited_ns) in &seen {
            let before = self.seen.binary_search_by_key(thread, |(other, _)| *other);
            let since = before.map_or(0, |at| waited_ns.saturating_sub(self.seen[at].1));
            if since >= NOTED_NS {
                put(out, *thread, ticks, Record::new(0, kind::NO_CPU, 0, NO_P, body(since, within_ms)));
                events += 1;
            }
        }
        self.seen = seen;
        self.took_ns = clock::now_ns().saturating_sub(began_ns);
        events
    }
}

/// Appends a block with one record.
fn put(out: &mut Vec<u8>, Thread { runtime, m, .. }: Thread, ticks: u64, record: Record) {
    let header = Block { kind: EVENTS, len: RECORD as u32, runtime, m, running: 0, base: ticks };
    out.reserve(BLOCK_HEADER + RECORD);
    out.extend(header.to_bytes());
    out.extend(record.to_bytes());
}

/// Returns the time in ns that a thread of this process could run and had no CPU, since it began.
fn waited_ns(tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_noted_and_a_first_look_is_not() {
        // SAFETY: no memory involved.
        let me = Thread { runtime: 1, m: 2, tid: unsafe { libc::gettid() } as u32 };
        let Some(now_ns) = waited_ns(me.tid) else { return }; // the kernel does not count
        let mut no_cpu = NoCpu::new();
        let mut out = Vec::new();
        let mut look = |no_cpu: &mut NoCpu, now| {
            no_cpu.took_ns = 0; // however long this machine took
            no_cpu.look(&[me], now, &mut out)
        };
        assert_eq!(look(&mut no_cpu, (7, PERIOD_NS)), 0, "the first look");
        assert_eq!(look(&mut no_cpu, (8, PERIOD_NS + 1)), 0, "too soon");
        no_cpu.seen = vec![(me, now_ns.wrapping_sub(5_000_000))];
        assert_eq!(look(&mut no_cpu, (9, 3 * PERIOD_NS)), u64::from(now_ns >= 5_000_000));
        no_cpu.seen = vec![(me, u64::MAX)];
        assert_eq!(look(&mut no_cpu, (9, 4 * PERIOD_NS)), 0, "another thread with that number");
        assert_eq!(out.len() % (BLOCK_HEADER + RECORD), 0);
    }
}
