//! Goroutines that nothing can wake any more.
//!
//! In Rust a channel disconnects when the last handle of a side is dropped, and the waiters on the other side wake up.
//! So a goroutine that is stuck for ever on a channel is stuck because a goroutine or thread keeps a handle and will
//! not use it: often the goroutine itself, or a ring of goroutines that wait for each other.
//!
//! **The rule.** A goroutine is *suspect* if it has waited on channels, without a deadline, for as long as was asked
//! for. Among the suspects, those are *unreachable* that are left when this is repeated until nothing changes: take
//! out each one that waits on a channel whose address was found
//!
//! * in the memory of the process that it can write to, but for stacks and thread-locals of goroutines, or
//! * on the stack or in the thread-locals of a goroutine that is not a suspect, or was taken out.
//!
//! It is what Go's garbage collector does to find leaks, without a collector. Addresses are all that counts; what is
//! left over in freed memory or in dead stack slots counts too. So a leak may be taken for a mere suspect, more often
//! in debug builds. The other way round it takes a handle that is in no memory at all: in a register of a thread
//! that sleeps in the kernel, hidden by arithmetic, or on the move from one place to another during each of two
//! looks.

use crate::chan::waits::{self, Wait};
use crate::reason::WaitReason;
use crate::sched::report::collect::{living, on_a_new_thread};
use crate::sched::report::dump::{GoroutineDump, Stack, State};
use crate::sched::report::memory::{self, Memory, Sought, scrub};
use crate::sched::report::stacks::Tracer;
use crate::sched::run::g::{G, GRef};
use crate::sched::sysmon::monitor;
use crate::sys::clock;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Most goroutines that are reported.
const REPORTED: usize = 10_000;
/// Most channels of a select; one with more is a suspect at the most.
const CASES: usize = 64;

/// A goroutine that is stuck on channels, by [`leaked`].
///
/// ```
/// use mungo::debug::{Leaked, leaked};
/// use std::time::Duration;
///
/// let (tx, rx) = mungo::chan::bounded::<u8>(4);
/// let waiter = mungo::go(move || rx.recv());
/// let found = || leaked(Duration::ZERO).pop();
/// let waits: Leaked = loop {
///     if let Some(one) = found() {
///         break one;
///     }
/// };
/// assert_eq!(waits.goroutine.id, waiter.goroutine().id().as_u64());
/// drop(tx);
/// assert!(waiter.join().unwrap().is_err());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leaked {
    /// Its id, its wait, its stack, and where it was spawned.
    pub goroutine: GoroutineDump,
    /// The channels that it waits on; none: for what can never come.
    pub channels: Vec<ChannelInfo>,
    /// Whether nothing can wake it, by the rule of [`leaked`]. `false`: it just waits for long.
    pub unreachable: bool,
}

/// A channel that a goroutine waits on.
///
/// ```
/// use mungo::debug::{ChannelInfo, leaked};
/// use std::time::Duration;
///
/// let (tx, rx) = mungo::chan::bounded::<u8>(4);
/// let waiter = mungo::go(move || rx.recv());
/// let channel: ChannelInfo = loop {
///     if let Some(one) = leaked(Duration::ZERO).pop() {
///         break one.channels[0];
///     }
/// };
/// assert_eq!((channel.sends, channel.capacity, channel.senders), (false, Some(4), 1));
/// drop(tx);
/// assert!(waiter.join().unwrap().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelInfo {
    /// Whether it wants to send; the channel is full. `false`: it wants to receive; the channel is empty.
    pub sends: bool,
    /// Number of places in its buffer; `None`: no limit.
    pub capacity: Option<usize>,
    /// Number of living [`Sender`](crate::chan::Sender)s.
    pub senders: usize,
    /// Number of living [`Receiver`](crate::chan::Receiver)s.
    pub receivers: usize,
}

impl fmt::Display for Leaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.unreachable { "leaked" } else { "suspect" };
        write!(f, "{verdict}: {}", self.goroutine)?;
        for c in &self.channels {
            let capacity = c.capacity.map_or("no limit".to_owned(), |n| n.to_string());
            let wants = if c.sends { "send to" } else { "receive from" };
            let (senders, receivers) = (c.senders, c.receivers);
            writeln!(
                f,
                "to {wants} a channel (capacity {capacity}, {senders} senders, {receivers} receivers)"
            )?;
        }
        Ok(())
    }
}

/// Returns goroutines that have waited on channels for at least `since`, without a deadline: those that can never run
/// again first, the others after them.
///
/// Which ones can never run again is found by a search of the memory of the process for the addresses of the channels
/// ([`Leaked::unreachable`]): only goroutines that are stuck themselves have one. In short: believe a `true` (the
/// exceptions are a handle that is only in a register of a thread that sleeps in the kernel, or is moved all the
/// time), and take a `false` for "look at it yourself": an idle worker looks the same as one that was forgotten, and
/// traces of old handles may be left in memory. It takes a while: about a second for a gigabyte; above four no search
/// is made. Without a thread for the search, if the system refuses one, nothing is found.
///
/// ```
/// use std::time::Duration;
///
/// // It holds the sender that would end its loop.
/// mungo::go(|| {
///     let (tx, rx) = mungo::chan::bounded::<u32>(1);
///     for value in &rx {
///         tx.send(value).unwrap();
///     }
/// });
/// # let mut tries = 0;
/// let leaks = loop {
///     let leaks = mungo::debug::leaked(Duration::from_millis(10));
///     if !leaks.is_empty() {
///         break leaks;
///     }
///     # tries += 1;
///     # assert!(tries < 10_000);
///     mungo::sleep(Duration::from_millis(1));
/// };
/// println!("{}", leaks[0]);
/// assert_eq!(leaks[0].channels[0].senders, 1);
/// ```
#[doc(alias("goleak"))]
pub fn leaked(since: Duration) -> Vec<Leaked> {
    let marker = 0u8;
    let below = &raw const marker as usize;
    let searched = on_a_new_thread(|| {
        let leaks = search(since, below);
        scrub();
        leaks
    });
    searched.unwrap_or_default()
}

/// A goroutine that may be leaked.
struct Suspect {
    g: GRef,
    since_ns: u64,
    reason: WaitReason,
    /// The channels that it waits on. Their addresses are masked.
    waits: Vec<Wait>,
    too_many: bool,
    unreachable: bool,
}

/// Searches, on a thread of its own. Below `below` nothing counts on the stack of the caller of [`leaked`].
fn search(since: Duration, below: usize) -> Vec<Leaked> {
    let mut suspects = suspects(since);
    // A handle that a thread moves meanwhile is not seen, so look twice.
    for _ in 0..2 {
        mark_unreachable(&mut suspects, below);
    }
    // It may have gone on meanwhile.
    suspects.retain(|s| s.g.state.is_waiting() && s.g.since_ns.load(Relaxed) == s.since_ns);
    suspects.sort_by_key(|s| (!s.unreachable, s.since_ns));
    let now = clock::now_ns();
    let mut tracer = Tracer::new(true, 64);
    let traced: Vec<_> = suspects
        .iter()
        .map(|s| {
            if s.g.hold(|| tracer.capture.parked(&s.g)).is_none() {
                tracer.capture.nothing("it went on meanwhile");
            }
            tracer.trace()
        })
        .collect();
    let stacks = tracer.name_all();
    suspects.into_iter().zip(traced).map(|(s, trace)| s.report(now, &stacks[trace])).collect()
}

impl Suspect {
    fn report(self, now: u64, stack: &Arc<Stack>) -> Leaked {
        let goroutine = GoroutineDump {
            id: self.g.id.load(Relaxed),
            name: self.g.name().map(str::to_owned),
            state: State::Waiting(self.reason),
            waited: Some(Duration::from_nanos(now.saturating_sub(self.since_ns))),
            labels: self.g.labels.look().map_or_else(Vec::new, |labels| labels.pairs()),
            spawned_at: self.g.place(),
            stack: stack.clone(),
        };
        let info = |w: &Wait| ChannelInfo {
            sends: w.sends != 0,
            capacity: (w.capacity != usize::MAX).then_some(w.capacity),
            senders: w.senders,
            receivers: w.receivers,
        };
        let channels = self.waits.iter().map(info).collect();
        Leaked { goroutine, channels, unreachable: self.unreachable }
    }
}

fn suspects(since: Duration) -> Vec<Suspect> {
    let now = clock::now_ns();
    let since_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let mut found = Vec::new();
    for shared in monitor::runtimes() {
        for g in living(&shared, usize::MAX, &mut 0) {
            let waited = now.saturating_sub(g.since_ns.load(Relaxed));
            if waited >= since_ns && found.len() < REPORTED {
                found.extend(suspect(g));
            }
        }
    }
    found
}

fn suspect(g: GRef) -> Option<Suspect> {
    let mut waits = Vec::with_capacity(CASES);
    let mut too_many = false;
    let held = g.hold(|| {
        let awaited = g.awaited();
        let on_channels =
            matches!(awaited.reason, WaitReason::ChanSend | WaitReason::ChanRecv | WaitReason::Select);
        if !on_channels || awaited.is_timed() {
            return None;
        }
        let mut note = |wait: Wait| match waits.len() < CASES {
            true => waits.push(Wait { address: memory::mask(wait.address), ..wait }),
            false => too_many = true,
        };
        // SAFETY: it waits for one of these reasons, and is held.
        unsafe { waits::each(awaited, &mut note) };
        Some((awaited.reason, g.since_ns.load(Relaxed)))
    });
    let (reason, since_ns) = held??;
    waits.shrink_to_fit();
    Some(Suspect { g, since_ns, reason, waits, too_many, unreachable: true })
}

/// Clears `unreachable` for suspects that something can reach.
fn mark_unreachable(suspects: &mut [Suspect], below: usize) {
    let Some(mut memory) = Memory::open(below) else {
        return suspects.iter_mut().for_each(|s| s.unreachable = false);
    };
    let mut sought = Sought::new(suspects.iter().flat_map(|s| s.waits.iter().map(|w| w.address)).collect());
    let stuck: HashSet<*const G> = suspects.iter().filter(|s| s.unreachable).map(|s| &raw const *s.g).collect();
    memory.search_all_but_goroutines(&mut sought);
    memory.search_goroutines(|g| !stuck.contains(&std::ptr::from_ref(g)), &mut sought);
    // A goroutine that can be reached may use what it has.
    let mut again = true;
    while std::mem::take(&mut again) {
        for s in suspects.iter_mut().filter(|s| s.unreachable) {
            if s.too_many || s.waits.iter().any(|wait| sought.is_found(wait.address)) {
                s.unreachable = false;
                memory.search_stack_of(&s.g, &mut sought);
                again = true;
            }
        }
    }
}
