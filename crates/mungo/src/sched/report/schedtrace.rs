//! `MUNGO_DEBUG=schedtrace=1000`: a line about the scheduler every 1000 milliseconds, in Go's format.
//!
//! ```text
//! SCHED 1009ms: gomaxprocs=2 idleprocs=0 threads=5 spinningthreads=0 needspinning=0 idlethreads=2 runqueue=0 [0 0]
//! ```
//!
//! and after the queues what Go does not say: `goroutines=`, `switches=`, `steals=`, `preemptions=`, `timers=`. With
//! `scheddetail=1` a line for each P, M and G follows. The states of Ps and Gs have Go's numbers. `needspinning` is
//! there for programs that parse Go's lines; it is always 0. The helper prints, also when all is idle.

use super::dump::State;
use crate::debug_env;
use crate::sched::report::collect::{living, threads};
use crate::sched::run::g::{G, GRef};
use crate::sched::run::m::M;
use crate::sched::run::p::P;
use crate::sched::shared::Shared;
use crate::sys::{clock, say};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// Most goroutines that are listed.
const LISTED: usize = 1000;

/// The state that the helper keeps between two lines.
pub(crate) struct SchedTrace {
    period_ns: u64,
    start_ns: u64,
    next_ns: u64,
}

impl SchedTrace {
    /// Returns the state to begin with; `None`: no trace is wanted.
    pub(crate) fn wanted() -> Option<SchedTrace> {
        let period_ns = u64::from(debug_env::get().schedtrace_ms) * 1_000_000;
        let start_ns = clock::now_ns();
        (period_ns != 0).then_some(SchedTrace { period_ns, start_ns, next_ns: start_ns })
    }

    /// Prints if it is time. Returns the time of the next line, in ns.
    pub(crate) fn serve(&mut self, shared: &Shared, now: u64) -> u64 {
        if now >= self.next_ns {
            self.next_ns = now + self.period_ns;
            let text = text(shared, (now - self.start_ns) / 1_000_000, debug_env::get().sched_detail);
            say::write(format_args!("{text}"));
        }
        self.next_ns
    }
}

fn text(shared: &Shared, ms: u64, detail: bool) -> String {
    let (threads_alive, idle_threads) = {
        let synced = shared.synced.lock();
        (synced.live_ms, synced.idle_ms.len())
    };
    let mut text = format!(
        "SCHED {ms}ms: gomaxprocs={} idleprocs={} threads={} spinningthreads={} needspinning=0 idlethreads={} \
         runqueue={} [",
        shared.procs(),
        shared.counts.idle_ps(),
        threads_alive + 3, // the monitor, the starter and the helper
        shared.counts.spinning(),
        idle_threads,
        shared.global_len() + shared.held_len.load(Relaxed),
    );
    let ps = || shared.all_ps().take(shared.procs() as usize);
    for (i, p) in ps().enumerate() {
        _ = write!(text, "{}{}", if i == 0 { "" } else { " " }, p.runq.len());
    }
    let timers: usize = shared.all_ps().map(|p| p.timers.len()).sum();
    _ = writeln!(
        text,
        "] goroutines={} switches={} steals={} preemptions={} timers={timers}",
        shared.live(),
        shared.sum(|p| &p.counters.switches),
        shared.sum(|p| &p.counters.steals),
        shared.sum(|p| &p.counters.preemptions),
    );
    if detail {
        ps().for_each(|p| line_of_p(&mut text, p));
        let ms = threads(shared);
        ms.iter().for_each(|m| line_of_m(&mut text, m));
        let mut alive = 0;
        let gs = living(shared, LISTED, &mut alive);
        gs.iter().for_each(|g| line_of_g(&mut text, g, &ms));
        if alive > gs.len() {
            _ = writeln!(text, "  ... {} more goroutines are not listed (limit: {LISTED})", alive - gs.len());
        }
    }
    text
}

fn or_nil<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "nil".to_owned(), |value| value.to_string())
}

fn line_of_p(text: &mut String, p: &P) {
    // SAFETY: Ms live as long as the runtime.
    let m = unsafe { p.m.load(Relaxed).as_ref() };
    _ = writeln!(
        text,
        "  P{}: status={} schedtick={} syscalltick={} m={} runqsize={} timerslen={}",
        p.id,
        u32::from(m.is_some()), // Go's _Pidle is 0, _Prunning 1
        p.tick.load(Relaxed),
        p.counters.retakes.get(),
        or_nil(m.map(|m| m.id)),
        p.runq.len(),
        p.timers.len(),
    );
}

fn line_of_m(text: &mut String, m: &M) {
    let p = m.p.load(Relaxed);
    // SAFETY: Ps live as long as the runtime. A contested one has no address.
    let p = (p > crate::sched::run::m::CONTESTED).then(|| unsafe { &*p });
    // SAFETY: Gs are never freed.
    let g = unsafe { m.g.load(Relaxed).as_ref() };
    _ = writeln!(
        text,
        "  M{}: p={} curg={} locks={} spinning={} blocked={} lockedg={}",
        m.id,
        or_nil(p.map(|p| p.id)),
        or_nil(g.map(|g| g.id.load(Relaxed))),
        g.map_or(1, |g| g.runtime_depth()),
        m.is_spinning(),
        m.asleep.load(Relaxed),
        or_nil(g.filter(|g| std::ptr::eq(g.bound.load(Relaxed), m)).map(|g| g.id.load(Relaxed))),
    );
}

fn line_of_g(text: &mut String, g: &GRef, ms: &[&'static M]) {
    let m = ms.iter().find(|m| std::ptr::eq(m.g.load(Relaxed), g.ptr().as_ptr()));
    let state = state_of(g, m.copied());
    let number = match state {
        State::Runnable => 1,
        State::Running => 2,
        State::Syscall => 3,
        State::Waiting(_) => 4,
        State::Preempted => 9,
    };
    let why = match state {
        State::Waiting(reason) => reason.as_str(),
        _ => "",
    };
    let bound = g.bound.load(Relaxed);
    let locked = ms.iter().find(|m| std::ptr::eq(**m, bound)).map(|m| m.id);
    _ = writeln!(
        text,
        "  G{}: status={number}({why}) m={} lockedm={}",
        g.id.load(Relaxed),
        or_nil(m.map(|m| m.id)),
        or_nil(locked),
    );
}

fn state_of(g: &G, m: Option<&M>) -> State {
    match m {
        _ if g.state.is_waiting() => State::Waiting(g.wait_reason()),
        None => State::Runnable,
        Some(m) if m.in_handler.load(Relaxed) => State::Preempted,
        Some(m) if m.stray.load(Relaxed) => State::Syscall,
        Some(_) => State::Running,
    }
}
