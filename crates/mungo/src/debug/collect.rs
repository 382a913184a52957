//! How a dump is taken: goroutine by goroutine, while the program goes on.
//!
//! A parked goroutine is held for the moment in which its stack is copied ([`WakeState::inspect`]); one on a thread is
//! looked at there (see [`stacks`]). The work is done on a plain thread, which nobody preempts: who holds a goroutine
//! must not wait for a P, since a waker may spin for it with one in hand.
//!
//! [`WakeState::inspect`]: crate::sched::wake::WakeState::inspect

use super::dump::{Dump, DumpOptions, GoroutineDump, State};
use super::stacks::{Capture, Tracer};
use crate::current::NoPreempt;
use crate::sched::g::{G, GRef};
use crate::sched::m::M;
use crate::sched::monitor;
use crate::sched::shared::Shared;
use crate::sys::clock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Runs `f` on a thread that is made for it. `None`: the system refused it.
pub(super) fn on_a_new_thread<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R> {
    crate::blocking(|| {
        std::thread::scope(|scope| {
            let made = std::thread::Builder::new().name("mungo-dump".into()).spawn_scoped(scope, f).ok()?;
            Some(made.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)))
        })
    })
}

/// By `debug::dump`, from anywhere.
pub(super) fn dump(options: &DumpOptions) -> Dump {
    if crate::current::g().is_none() {
        return dump_here(options);
    }
    on_a_new_thread(|| dump_here(options)).unwrap_or_else(|| {
        // Here then, in the runtime, since nobody may preempt us. That is no place for long work.
        let _in_runtime = NoPreempt::new();
        dump_here(&options.clone().stacks(false))
    })
}

/// On a plain thread.
pub(super) fn dump_here(options: &DumpOptions) -> Dump {
    let runtimes = monitor::runtimes();
    let mut tracer = Tracer::new(options.stacks, options.frames);
    let (mut found, mut alive) = (Vec::new(), 0);
    for shared in &runtimes {
        let gs = living(shared, options.goroutines - found.len(), &mut alive);
        let ms = threads(shared);
        let on_m: HashMap<*mut G, &M> = ms.iter().map(|m| (m.g.load(Relaxed), *m)).collect();
        found.extend(gs.iter().filter_map(|g| look_at(g, on_m.get(&g.ptr().as_ptr()).copied(), &mut tracer)));
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
    Dump { goroutines, alive, runtimes: runtimes.len(), options: options.clone() }
}

/// Handles to at most `most` goroutines; counts all.
pub(super) fn living(shared: &Shared, most: usize, alive: &mut usize) -> Vec<GRef> {
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

/// The Ms whose threads live now. They stay allocated as long as the runtime.
pub(super) fn threads(shared: &Shared) -> Vec<&'static M> {
    let mut room = 64;
    loop {
        // Not to grow under the lock.
        let mut ms = Vec::with_capacity(room);
        let synced = shared.synced.lock();
        if synced.ms.len() <= room {
            ms.extend_from_slice(&synced.ms);
            return ms;
        }
        room = 2 * synced.ms.len();
    }
}

/// What one goroutine does, and the number of its trace. `None`: it has ended.
fn look_at(g: &GRef, m: Option<&M>, tracer: &mut Tracer) -> Option<(GoroutineDump, usize)> {
    let held = g.state.inspect(|| {
        tracer.capture.parked(g);
        (g.wait_reason(), g.since_ns.load(Relaxed))
    });
    let (state, waited) = match held {
        Some((reason, since_ns)) => {
            let waited = Duration::from_nanos(clock::now_ns().saturating_sub(since_ns));
            (State::Waiting(reason), Some(waited))
        }
        None if !g.state.is_alive() => return None,
        None => (on_thread(g, m, &mut tracer.capture), None),
    };
    let dump = GoroutineDump {
        id: g.id.load(Relaxed),
        name: g.name().map(str::to_owned),
        state,
        waited,
        spawned_at: g.place(),
        stack: Arc::default(),
    };
    Some((dump, tracer.trace()))
}

fn on_thread(g: &GRef, m: Option<&M>, capture: &mut Capture) -> State {
    let Some(m) = m.filter(|m| std::ptr::eq(m.g.load(Relaxed), g.ptr().as_ptr())) else {
        capture.nothing("it waits for a P");
        return State::Runnable;
    };
    if capture.preempted(m, g) {
        State::Preempted
    } else if crate::sched::watch::thread_sleeps(m) {
        capture.blocked(m, g);
        State::Syscall
    } else {
        capture.running(m, g);
        State::Running
    }
}
