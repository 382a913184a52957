//! The taking of a dump: goroutine by goroutine, while the program goes on.
//!
//! A parked goroutine is held for the moment in which its stack is copied ([`G::hold`]); one on a thread is looked at
//! there (see [`stacks`](super::stacks)). The work is done on a plain thread, which is never preempted: a goroutine
//! that is woken while it is held runs when the thread that holds it lets go, which should not have to wait for a P.

use crate::labels::Labels;
use crate::sched::report::dump::{Dump, DumpOptions, GoroutineDump, State};
use crate::sched::report::memory;
use crate::sched::report::stacks::{Capture, Tracer};
use crate::sched::report::waits::{self, Depth};
use crate::sched::run::current::NoPreempt;
use crate::sched::run::g::{G, GPtr, GRef};
use crate::sched::run::m::M;
use crate::sched::run::sample;
use crate::sched::shared::Shared;
use crate::sched::sysmon::monitor;
use crate::sched::threads::blocking::blocking;
use crate::sys::{clock, thread};
use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Runs `f` on a thread that is made for it. `None`: the system refused it.
pub(crate) fn on_a_new_thread<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R> {
    blocking(|| {
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("mungo-dump".into());
            let made = thread::own(|| builder.spawn_scoped(scope, f)).ok()?;
            Some(made.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)))
        })
    })
}

/// Takes a dump for `debug::dump`, from anywhere.
pub(crate) fn dump(options: &DumpOptions) -> Dump {
    if crate::sched::run::current::g().is_none() {
        return dump_here(options);
    }
    on_a_new_thread(|| dump_here(options)).unwrap_or_else(|| {
        // On this thread then, in the runtime, since it must not be preempted. That is no place for long work.
        let _in_runtime = NoPreempt::new();
        dump_here(&options.clone().stacks(false))
    })
}

/// Takes a dump, on a plain thread.
pub(crate) fn dump_here(options: &DumpOptions) -> Dump {
    dump_of(options, &monitor::runtimes())
}

/// Dumps the goroutines of some runtimes, on a plain thread.
pub(crate) fn dump_of(options: &DumpOptions, runtimes: &[Arc<Shared>]) -> Dump {
    let mut tracer = Tracer::new(options.stacks, options.frames);
    let (mut found, mut alive) = (Vec::new(), 0);
    for shared in runtimes {
        let gs = living(shared, options.goroutines - found.len(), &mut alive);
        let mut on_m = OnM::new(shared);
        found.extend(gs.iter().filter_map(|g| look_at(g, &mut on_m, &mut tracer)));
    }
    let stacks = tracer.name_all();
    let mut goroutines: Vec<GoroutineDump> = found
        .into_iter()
        .map(|(mut dump, trace)| {
            dump.stack = stacks[trace].clone();
            dump
        })
        .collect();
    goroutines.sort_by_key(|g| g.id);
    let mut waits = String::new();
    if crate::sched::run::current::g().is_none() {
        waits = waits::graph_of(runtimes, Depth::Known, 0).summary();
        memory::scrub_little();
    }
    let left_to_kernel = crate::sched::interpose::left_to_kernel();
    Dump { goroutines, alive, runtimes: runtimes.len(), waits, options: options.clone(), left_to_kernel }
}

/// Returns handles to at most `most` goroutines; counts all.
pub(crate) fn living(shared: &Shared, most: usize, alive: &mut usize) -> Vec<GRef> {
    let mut gs = Vec::new();
    shared.for_each_g(|g| {
        if gs.len() >= most {
            *alive += 1;
        } else if let Some(g) = GRef::try_new(g)
            && std::ptr::eq(g.shared.get(), shared)
            && g.state.is_alive()
        {
            *alive += 1;
            gs.push(g);
        }
    });
    gs
}

/// Returns the Ms whose threads live now. They stay allocated as long as the runtime.
pub(crate) fn threads(shared: &Shared) -> Vec<&'static M> {
    shared.ms.live().collect()
}

/// Which goroutine is on which M, not long ago.
struct OnM<'a> {
    shared: &'a Shared,
    /// Number of questions until all Ms are looked at again.
    fresh: u32,
    known: HashMap<*mut G, &'static M>,
}

impl<'a> OnM<'a> {
    fn new(shared: &'a Shared) -> OnM<'a> {
        OnM { shared, fresh: 0, known: HashMap::new() }
    }

    fn find(&mut self, g: &GRef) -> Option<&'static M> {
        /// TUNED: guess; goroutines that do not wait are few, or all of them lie in queues.
        const FRESH: u32 = 1000;
        if self.fresh == 0 {
            self.fresh = FRESH;
            self.known = threads(self.shared).into_iter().map(|m| (m.g.load(Relaxed), m)).collect();
        }
        self.fresh -= 1;
        self.known.get(&g.ptr().as_ptr()).copied()
    }
}

/// What was seen of a goroutine.
pub(crate) struct Seen {
    pub(crate) state: State,
    /// When it began to wait, in ns, some milliseconds more or less; 0: it does not.
    pub(crate) since_ns: u64,
    pub(crate) place: &'static Location<'static>,
    pub(crate) labels: Option<Arc<Labels>>,
    /// The number of its trace.
    pub(crate) trace: usize,
    /// If it waits for a P and that is timed: since when, in ns, and the number of such waits that it stands for.
    #[cfg_attr(not(all(feature = "profile", mungo_native)), allow(dead_code))]
    pub(crate) queued: Option<(u64, u64)>,
    /// Its G.
    #[cfg_attr(not(all(feature = "profile", mungo_native)), allow(dead_code))]
    pub(crate) g: GPtr,
}

/// Which goroutines are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All: the stacks of those that run are copied by their own threads, which are interrupted for that.
    All,
    /// Those that wait or lie in a queue: no thread is interrupted.
    #[cfg_attr(not(all(feature = "profile", mungo_native)), allow(dead_code))]
    Suspended,
}

/// Passes what the goroutines of all runtimes do that are in `reach`, and that `is_wanted` accepts, to `f`, one after
/// the other, on a plain thread. Returns the traces.
#[cfg(all(feature = "profile", mungo_native))]
pub(crate) fn each(
    reach: Reach,
    is_wanted: impl Fn(&GRef) -> bool,
    mut f: impl FnMut(Seen),
) -> Vec<Arc<super::stacks::Trace>> {
    let mut tracer = Tracer::new(true, usize::MAX);
    for shared in monitor::runtimes() {
        let mut on_m = OnM::new(&shared);
        shared.for_each_g(|g| {
            if let Some(g) = GRef::try_new(g)
                && std::ptr::eq(g.shared.get(), &raw const *shared)
                && is_wanted(&g)
                && let Some(seen) = see(&g, reach, &mut on_m, &mut tracer)
            {
                f(seen);
            }
        });
    }
    tracer.into_traces()
}

/// Returns what one goroutine does. `None`: it has ended, or is out of `reach`.
fn see(g: &GRef, reach: Reach, on_m: &mut OnM<'_>, tracer: &mut Tracer) -> Option<Seen> {
    let held = g.hold(|| {
        tracer.capture.parked(g);
        // SAFETY: it is held.
        (g.wait_reason(), g.since_ns.load(Relaxed), unsafe { g.labels.get() })
    });
    let (state, since_ns, labels) = match held {
        Some((reason, since_ns, labels)) => (State::Waiting(reason), since_ns, labels),
        None if !g.state.is_alive() => return None,
        None => {
            let m = still_on(on_m.find(g), g);
            if reach == Reach::Suspended && m.is_some() {
                return None;
            }
            (on_thread(g, m, &mut tracer.capture), 0, g.labels.look())
        }
    };
    let queued = matches!(state, State::Runnable | State::Preempted).then(|| sample::queued(g)).flatten();
    let (place, trace) = (g.place(), tracer.trace());
    Some(Seen { state, since_ns, place, labels, trace, queued, g: g.ptr() })
}

/// Returns what one goroutine does, and the number of its trace. `None`: it has ended.
fn look_at(g: &GRef, on_m: &mut OnM<'_>, tracer: &mut Tracer) -> Option<(GoroutineDump, usize)> {
    let Seen { state, since_ns, place, labels, trace, .. } = see(g, Reach::All, on_m, tracer)?;
    let waited_ns = clock::now_ns().saturating_sub(since_ns);
    let dump = GoroutineDump {
        id: g.id.load(Relaxed),
        name: g.name().map(str::to_owned),
        state,
        waited: (since_ns != 0).then(|| Duration::from_nanos(waited_ns)),
        labels: labels.map_or_else(Vec::new, |labels| labels.pairs()),
        spawned_at: place,
        stack: Arc::default(),
    };
    Some((dump, trace))
}

/// Returns the M, if it has this goroutine now.
fn still_on<'a>(m: Option<&'a M>, g: &GRef) -> Option<&'a M> {
    m.filter(|m| std::ptr::eq(m.g.load(Relaxed), g.ptr().as_ptr()))
}

fn on_thread(g: &GRef, m: Option<&M>, capture: &mut Capture) -> State {
    let Some(m) = m else {
        if capture.injected(g) {
            return State::Preempted;
        }
        capture.nothing("it waits for a P");
        return State::Runnable;
    };
    if capture.preempted(m, g) {
        return State::Preempted;
    }
    let sleeps = crate::sched::sysmon::watch::thread_sleeps(m);
    match sleeps {
        true => capture.blocked(m, g),
        false => capture.running(m, g),
    }
    // An announced call has perhaps not begun to wait, or has just ended.
    if sleeps || g.announced.load(Relaxed) { State::Syscall } else { State::Running }
}
