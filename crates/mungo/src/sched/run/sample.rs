//! The choice of the switches that are timed.
//!
//! Reading the clock at each switch would cost as much as the switch, so about one a millisecond on each P is timed,
//! and counts for all since the last one: where switches are rare, each is. Which one is left to chance, so that no
//! goroutine can be out of step. The goroutine of a timed switch is timed on its way too: it remembers when it was
//! queued next (`G::stamp`), and the P that runs it then notes how long that was.
//!
//! What it costs otherwise: a comparison at each switch, and two looks at a word of the G.
//!
//! Profiles of waits ([`profile`]) take their samples here too, of the same switches, two and a half times as
//! many.

use crate::histogram::Recorder;
use crate::sched::profile;
use crate::sched::run::g::{G, Switch};
use crate::sys::clock;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Time between two samples that is aimed at, in ns.
const PERIOD_NS: u64 = 1_000_000;
/// Most switches for one sample. TUNED: twice what a P does in a millisecond.
const RAREST: u64 = 1 << 16;

/// Most turns that are saved for a burst. TUNED: guess; a pause of 14 ms while waits are profiled.
const MOST_SAVED: u64 = 32;

/// A value of `G::stamp`: not timed.
pub(crate) const UNTIMED: u64 = 0;
/// A value of `G::stamp`: note the time of the wake-up. All others are times; the lowest bit marks that of a wake-up.
pub(crate) const AT_WAKEUP: u64 = 1;

/// A value of `Turn::next`: the next one has its turn because the last was long ago. Numbers begin at 1.
const HURRIED: u64 = 0;

/// The sampling state of a P. The cells are its owner's.
#[repr(C)]
pub(crate) struct Sampler {
    pub(crate) switches: Turn,
    pub(crate) spawns: Turn,
    pub(crate) queue_wait: Recorder,
    pub(crate) wakeup: Recorder,
    pub(crate) run_time: Recorder,
}

/// The next of things counted from 1 that is timed.
#[repr(C)]
pub(crate) struct Turn {
    /// Written by the owner of the P, and by the monitor. [`HURRIED`]: the next one, whatever its number.
    next: AtomicU64,
    /// Average number of things of which one has its turn.
    interval: Cell<u64>,
    /// When the last one had its turn, in ns. Written by the owner of the P, read by the monitor.
    last_ns: AtomicU64,
    /// The number of the last one.
    last: Cell<u64>,
    /// Number of things to come that have their turn one after the other, because there were few for a while.
    saved: Cell<u64>,
    random: Cell<u64>,
}

impl Turn {
    const fn new() -> Turn {
        Turn {
            next: AtomicU64::new(1),
            interval: Cell::new(1),
            last_ns: AtomicU64::new(0),
            last: Cell::new(0),
            saved: Cell::new(0),
            random: Cell::new(0x9E37_79B9_7F4A_7C15),
        }
    }

    #[inline(always)]
    pub(crate) fn is_turn(&self, n: u64) -> bool {
        n >= self.next.load(Relaxed)
    }

    /// Gives the next one its turn if the last was long ago: where things have become rare, those to come should not
    /// wait until as many have happened as was right before. It was not chosen at random, and stands for itself alone:
    /// the wait after a P was idle is longer than the thousands before.
    pub(crate) fn hurry(&self, now_ns: u64) {
        if now_ns.saturating_sub(self.last_ns.load(Relaxed)) > 4 * period_ns() {
            self.next.store(HURRIED, Relaxed);
        }
    }

    /// Takes the turn of the `n`th and chooses the next one. Returns how many this one stands for, all since the last
    /// if it was chosen at random, and the time in ns.
    fn take(&self, n: u64) -> (u64, u64) {
        let (now, period_ns, interval) = (clock::now_ns(), period_ns(), self.interval.get());
        let elapsed_ns = now.saturating_sub(self.last_ns.load(Relaxed));
        self.last_ns.store(now, Relaxed);
        let since_last = n.saturating_sub(self.last.replace(n)).max(1);
        let weight = if self.next.load(Relaxed) == HURRIED { 1 } else { since_last };
        let adapted = match elapsed_ns {
            elapsed if elapsed < period_ns / 2 => interval * 2,
            elapsed if elapsed > period_ns * 2 => since_last * period_ns / elapsed,
            _ => interval,
        };
        // Turns that nothing took are saved for a burst: otherwise those of a burst that are passed over count for
        // nothing, if the pause after it gives the next one its turn.
        let unused = (elapsed_ns / period_ns).saturating_sub(2);
        let saved = self.saved.get().saturating_add(unused).min(MOST_SAVED);
        if saved > 0 {
            self.saved.set(saved - 1);
            self.interval.set(if unused > 0 { adapted.clamp(1, RAREST) } else { interval });
            self.next.store(n + 1, Relaxed);
            return (weight, now);
        }
        self.interval.set(adapted.clamp(1, RAREST));
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        // From 1 to twice the interval less 1: the interval on the average.
        self.next.store(n + 1 + x % (2 * self.interval.get() - 1), Relaxed);
        (weight, now)
    }
}

/// Returns the time between two samples that is aimed at, in ns.
fn period_ns() -> u64 {
    if profile::waits_are_on() { profile::PERIOD_NS } else { PERIOD_NS }
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

    /// Times the P's switch number `n`, to `g`. Returns the time in ns.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(&self, n: u64, g: &G) -> u64 {
        let (weight, now) = self.switches.take(n);
        g.stamp_weight.store(weight, Relaxed);
        g.shared().monitor.note_time(now);
        now
    }

    /// Times the P's spawn number `n`, of `g`.
    #[cold]
    #[inline(never)]
    pub(crate) fn spawned(&self, n: u64, g: &G) {
        let (weight, now) = self.spawns.take(n);
        g.stamp_weight.store(weight, Relaxed);
        g.stamp.store(now & !1, Relaxed);
    }

    /// Records that `g` came back, and why.
    #[cold]
    #[inline(never)]
    pub(crate) fn ended(&self, start_ns: u64, g: &G, why: Switch) {
        let now = clock::now_ns();
        self.run_time.record(now - start_ns, g.stamp_weight.load(Relaxed));
        g.parked_ns.set(now);
        let stamp = match why {
            Switch::Park => AT_WAKEUP,
            Switch::End => UNTIMED,
            _ => now & !1,
        };
        g.stamp.store(stamp, Relaxed);
    }

    /// Records the wait of `g`, which has a stamp and is about to run.
    #[cold]
    #[inline(never)]
    pub(crate) fn started(&self, g: &G) {
        let stamp = g.stamp.load(Relaxed);
        g.stamp.store(UNTIMED, Relaxed);
        if stamp == AT_WAKEUP {
            return; // it was woken before it had parked
        }
        let (waited_ns, weight) = (clock::now_ns().saturating_sub(stamp), g.stamp_weight.load(Relaxed));
        if weight == 0 {
            return; // it was timed for a profile alone
        }
        profile::ran(g, waited_ns, weight);
        self.queue_wait.record(waited_ns, weight);
        if stamp & 1 != 0 {
            self.wakeup.record(waited_ns, weight);
        }
    }
}

/// Stamps a parked goroutine that is timed, or waited for long, when it is woken.
#[cold]
#[inline(never)]
pub(crate) fn woken(g: &G) {
    let now = clock::now_ns();
    let is_timed = g.stamp.load(Relaxed) == AT_WAKEUP;
    g.stamp.store(now | 1, Relaxed);
    let timed = is_timed.then(|| g.parked_ns.get());
    if !is_timed {
        g.stamp_weight.store(0, Relaxed);
    }
    if profile::woken(g, now, timed, g.stamp_weight.load(Relaxed)) {
        // A copy of its stack was made, of which the goroutine's time in the queue should know nothing.
        g.stamp.store(clock::now_ns() | 1, Relaxed);
    }
}

/// Returns since when a goroutine that waits for a P lies in a queue, in ns, and how many such waits it stands for.
/// `None`: it is not timed.
pub(crate) fn queued(g: &G) -> Option<(u64, u64)> {
    let (stamp, weight) = (g.stamp.load(Relaxed), g.stamp_weight.load(Relaxed));
    (stamp > AT_WAKEUP && weight != 0).then_some((stamp, weight))
}
