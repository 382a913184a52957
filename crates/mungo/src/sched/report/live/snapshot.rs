//! What the scheduler does at a moment, as JSON: `docs/live.md` lists the fields.

use super::PROTOCOL;
use super::json::{Json, object};
use crate::histogram::{Histogram, Recorder};
use crate::reason::WaitReason;
use crate::sched::report::collect::threads;
use crate::sched::run::g::{G, GRef};
use crate::sched::run::m::M;
use crate::sched::run::p::P;
use crate::sched::shared::Shared;
use crate::sched::sysmon::monitor;
use crate::sys::clock;
use std::collections::{BinaryHeap, HashMap};
use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Most groups of goroutines, and most of those that wait longest.
const GROUPS: usize = 200;
const LONGEST: usize = 50;
/// Powers of two of ns between which times are counted: 256 ns to 17 s.
const OCTAVES: (u32, u32) = (8, 34);

/// Returns the name of the program.
pub(crate) fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns one line about all runtimes. For plain threads; stops nothing.
pub(crate) fn text() -> String {
    object(|o| {
        o.number("protocol", PROTOCOL.into());
        o.text("mungo", env!("CARGO_PKG_VERSION"));
        o.number("pid", std::process::id().into());
        o.text("program", &program());
        o.number("time_ns", clock::now_ns());
        o.list("runtimes", monitor::runtimes(), |o, shared| runtime(o, &shared));
    })
}

fn runtime(o: &mut Json, shared: &Shared) {
    let (live, idle) = {
        let synced = shared.synced.lock();
        (synced.live_ms as u64, synced.idle_ms.len() as u64)
    };
    let (spawned, finished) = shared.spawned_and_finished();
    o.number("number", shared.number.into());
    o.number("procs", shared.procs().into());
    o.number("idle_procs", shared.counts.idle_ps().into());
    o.number("goroutines", spawned - finished);
    o.number("spawned", spawned);
    o.number("finished", finished);
    o.number("global_queue", (shared.global_len() + shared.held_len.load(Relaxed)) as u64);
    o.number("computing_queue", shared.computing_len() as u64);
    o.number("timers", shared.all_ps().map(|p| p.timers.len() as u64).sum());
    o.number("threads", live);
    o.number("idle_threads", idle);
    o.number("spinning_threads", shared.counts.spinning().into());
    o.list("ps", shared.all_ps().take(shared.procs() as usize), proc);
    let ms = threads(shared);
    o.list("ms", &ms, |o, m| thread(o, m));
    o.object("queue_wait", |o| times(o, shared, |p| &p.sampler.queue_wait));
    o.object("wakeup_latency", |o| times(o, shared, |p| &p.sampler.wakeup));
    o.object("run_time", |o| times(o, shared, |p| &p.sampler.run_time));
    goroutines(o, shared, &ms);
}

/// Returns a handle to the goroutine that an M runs.
fn running(m: &M) -> Option<GRef> {
    // SAFETY: Gs are never freed.
    unsafe { m.g.load(Relaxed).as_ref() }.and_then(GRef::try_new).filter(|g| g.state.is_alive())
}

fn proc(o: &mut Json, p: &P) {
    // SAFETY: Ms live as long as the runtime.
    let m = unsafe { p.m.load(Relaxed).as_ref() };
    let c = &p.counters;
    o.number("id", p.id.into());
    o.number_or_null("m", m.map(|m| m.id.into()));
    if let Some(g) = m.and_then(running) {
        o.object("runs", |o| goroutine(o, &g));
    }
    o.number("queue", p.runq.len() as u64);
    o.number("timers", p.timers.len() as u64);
    o.number("switches", c.switches.get());
    o.number("parks", c.parks.get());
    o.number("yields", c.yields.get());
    o.number("preemptions", c.preemptions.get());
    o.number("retakes", c.retakes.get());
    o.number("steals", c.steals.get());
}

fn goroutine(o: &mut Json, g: &GRef) {
    o.number("id", g.id.load(Relaxed));
    o.text("name", g.name().unwrap_or(""));
    o.text("spawned_at", &g.place().to_string());
}

fn thread(o: &mut Json, m: &M) {
    let p = m.p().map(|p| u64::from(p.id));
    let g = running(m);
    let state = match (p, &g) {
        (None, Some(_)) if m.in_handler.load(Relaxed) => "preempted",
        (None, Some(_)) => "blocked",
        (Some(_), Some(_)) => "running",
        _ if m.is_spinning() => "spinning",
        _ => "idle",
    };
    o.number("id", m.id.into());
    o.number("tid", m.tid.load(Relaxed).max(0) as u64);
    o.text("state", state);
    o.number_or_null("p", p);
    o.number_or_null("g", g.map(|g| g.id.load(Relaxed)));
}

fn times(o: &mut Json, shared: &Shared, of: impl Fn(&P) -> &Recorder) {
    let mut all = Histogram::default();
    shared.all_ps().for_each(|p| all.add(of(p)));
    let ns = |time: Duration| time.as_nanos() as u64;
    o.number("count", all.count());
    o.number("sum_ns", ns(all.sum()));
    for (name, q) in [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("max_ns", 1.0)] {
        o.number(name, ns(all.quantile(q)));
    }
    let counted = all.octaves(OCTAVES.0, OCTAVES.1).filter(|(_, n)| *n != 0);
    o.list("below_ns", counted, |o, (below, n)| {
        o.number("ns", below);
        o.number("count", n);
    });
}

/// Goroutines with the same place of birth that do the same.
#[derive(Default)]
struct Group {
    count: u64,
    longest_ns: u64,
    longest: u64,
}

/// Adds groups of goroutines, the largest first, and those that wait longest.
fn goroutines(o: &mut Json, shared: &Shared, ms: &[&'static M]) {
    let now = clock::now_ns();
    let on_m: HashMap<*const G, &M> = ms.iter().map(|m| (m.g.load(Relaxed).cast_const(), *m)).collect();
    let mut groups: HashMap<(&'static Location<'static>, &'static str), Group> = HashMap::new();
    let mut longest: BinaryHeap<(u64, usize)> = BinaryHeap::new();
    shared.for_each_g(|g| {
        // Without a handle: there may be a million. At worst it says of one goroutine what is true of the next.
        let is_waiting = g.state.is_waiting();
        let state = match on_m.get(&std::ptr::from_ref(g)) {
            _ if is_waiting => g.wait_reason().as_str(),
            Some(m) if m.p().is_none() => "blocked",
            Some(_) => "running",
            None => "runnable",
        };
        let group = groups.entry((g.place(), state)).or_default();
        group.count += 1;
        let since_ns = g.since_ns.load(Relaxed);
        let waited_ns = if is_waiting { now.saturating_sub(since_ns) } else { 0 };
        if waited_ns >= group.longest_ns {
            (group.longest_ns, group.longest) = (waited_ns, g.id.load(Relaxed));
        }
        if is_waiting && (longest.len() < LONGEST || longest.peek().is_some_and(|(ns, _)| since_ns < *ns)) {
            longest.push((since_ns, std::ptr::from_ref(g).addr()));
            if longest.len() > LONGEST {
                longest.pop();
            }
        }
    });
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    o.number("omitted_groups", groups.len().saturating_sub(GROUPS) as u64);
    o.list("groups", groups.iter().take(GROUPS), |o, ((place, state), group)| {
        o.text("spawned_at", &place.to_string());
        o.text("state", state);
        o.number("count", group.count);
        o.number("longest_ns", group.longest_ns);
        o.number("longest", group.longest);
    });
    // SAFETY: Gs are never freed; the handle tells whether it is still a goroutine.
    let handle = |address| GRef::try_new(unsafe { &*(address as *const G) });
    let waiting = longest.into_sorted_vec().into_iter().filter_map(|(since, at)| Some((since, handle(at)?)));
    o.list("waiters", waiting, |o, (since_ns, g)| {
        goroutine(o, &g);
        let reason = if g.state.is_waiting() { g.wait_reason() } else { WaitReason::None };
        o.text("state", reason.as_str());
        o.number("waited_ns", now.saturating_sub(since_ns));
    });
}
