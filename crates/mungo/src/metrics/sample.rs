//! Which switches are timed.
//!
//! Reading the clock at each switch would cost as much as the switch, so about one a millisecond on each P is timed,
//! and counts for all since the last one: where switches are rare, each is. Which one is left to chance, so that no
//! goroutine can be out of step. The goroutine of a timed switch is timed on its way too: it remembers when it was
//! queued next (`G::stamp`), and whoever runs it then notes how long that was.
//!
//! What it costs otherwise: a comparison at each switch, and two looks at a word of the G.

use super::histogram::Recorder;
use crate::sched::g::{G, Switch};
use crate::sys::clock;
use std::cell::Cell;

/// The time between two samples that is aimed at.
const PERIOD_NS: u64 = 1_000_000;
/// Not more switches than this for one sample. TUNED: twice what a P does in a millisecond.
const RAREST: u64 = 1 << 16;

/// `G::stamp`: not timed.
pub(crate) const UNTIMED: u64 = 0;
/// `G::stamp`: note the time of the wake-up. Any other value is a time, its lowest bit says that it is a wake-up's.
pub(crate) const AT_WAKEUP: u64 = 1;

/// A P's part. The cells are its owner's.
#[repr(C)]
pub(crate) struct Sampler {
    pub(crate) switches: Turn,
    pub(crate) spawns: Turn,
    pub(super) queue_wait: Recorder,
    pub(super) wakeup: Recorder,
    pub(super) run_time: Recorder,
}

/// Whose turn it is among things that are counted from 1.
#[repr(C)]
pub(crate) struct Turn {
    next: Cell<u64>,
    /// One of so many has its turn.
    interval: Cell<u64>,
    last_ns: Cell<u64>,
    random: Cell<u64>,
}

impl Turn {
    const fn new() -> Turn {
        Turn {
            next: Cell::new(1),
            interval: Cell::new(1),
            last_ns: Cell::new(0),
            random: Cell::new(0x9E37_79B9_7F4A_7C15),
        }
    }

    #[inline(always)]
    pub(crate) fn is_turn(&self, n: u64) -> bool {
        n >= self.next.get()
    }

    /// The `n`th has its turn: chooses the next one. Returns how many this one stands for, and the time.
    fn take(&self, n: u64) -> (u64, u64) {
        let now = clock::now_ns();
        let interval = self.interval.get();
        let adapted = match now - self.last_ns.replace(now) {
            elapsed if elapsed < PERIOD_NS / 2 => interval * 2,
            elapsed if elapsed > PERIOD_NS * 2 => interval / 2,
            _ => interval,
        };
        self.interval.set(adapted.clamp(1, RAREST));
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        // From 1 to twice the interval less 1: the interval on the average.
        self.next.set(n + 1 + x % (2 * self.interval.get() - 1));
        (interval, now)
    }
}

impl Sampler {
    pub(crate) const fn new() -> Sampler {
        Sampler {
            switches: Turn::new(),
            spawns: Turn::new(),
            queue_wait: Recorder::new(),
            wakeup: Recorder::new(),
            run_time: Recorder::new(),
        }
    }

    /// The P's switch number `n`, to `g`, is timed. Returns the time.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(&self, n: u64, g: &G) -> u64 {
        let (weight, now) = self.switches.take(n);
        g.stamp_weight.set(weight);
        now
    }

    /// The P's spawn number `n`, of `g`, is timed.
    #[cold]
    #[inline(never)]
    pub(crate) fn spawned(&self, n: u64, g: &G) {
        let (weight, now) = self.spawns.take(n);
        g.stamp_weight.set(weight);
        g.stamp.set(now & !1);
    }

    /// `g` came back, and says why.
    #[cold]
    #[inline(never)]
    pub(crate) fn ended(&self, start_ns: u64, g: &G, why: Switch) {
        let now = clock::now_ns();
        self.run_time.record(now - start_ns, g.stamp_weight.get());
        g.stamp.set(match why {
            Switch::Park => AT_WAKEUP,
            Switch::End => UNTIMED,
            _ => now & !1,
        });
    }

    /// `g`, which has a stamp, is about to run.
    #[cold]
    #[inline(never)]
    pub(crate) fn started(&self, g: &G) {
        let stamp = g.stamp.replace(UNTIMED);
        if stamp == AT_WAKEUP {
            return; // it was woken before it had parked
        }
        let (waited_ns, weight) = (clock::now_ns().saturating_sub(stamp), g.stamp_weight.get());
        self.queue_wait.record(waited_ns, weight);
        if stamp & 1 != 0 {
            self.wakeup.record(waited_ns, weight);
        }
    }
}

/// A parked goroutine that is timed was woken.
#[cold]
#[inline(never)]
pub(crate) fn woken(g: &G) {
    g.stamp.set(clock::now_ns() | 1);
}
