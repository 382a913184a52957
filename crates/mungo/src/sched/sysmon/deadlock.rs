//! The deadlock of the whole program: all goroutines are asleep.
//!
//! The rule is Go's, made exact: no goroutine can run, no timer will fire, a plain thread waits for a goroutine, and
//! the process has no thread but our own and those asleep in our own primitives. Then the process ends with a report.
//!
//! Any other thread might hold a channel or a handle and wake a goroutine, so its mere existence means "no
//! deadlock". The kernel knows how many threads there are. But a program with such threads deadlocks too, so after
//! [`Config::deadlock_warning_ns`] of the same standstill the same list is written as a warning.
//!
//! [`Config::deadlock_warning_ns`]: crate::sched::config::Config::deadlock_warning_ns

use crate::debug_env;
use crate::sched::profile;
use crate::sched::report::live;
use crate::sched::report::waits::{self, Depth, WaitGraph};
use crate::sched::run::g::GRef;
use crate::sched::run::park::SLEEPING_THREADS;
use crate::sched::run::worker::describe;
use crate::sched::shared::Shared;
use crate::sched::sysmon::monitor::{self, RUNTIME_THREADS};
use crate::sys::{clock, say, thread};
use crate::tracer;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The most goroutines that a report lists.
const LISTED: usize = 1000;

/// The result of the last look; a deadlock is what two looks in a row see.
#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    switches: u64,
    seen: u32,
    /// Time of the first of these looks, in ns.
    since_ns: u64,
    /// Whether no warning of it is needed any more.
    settled: bool,
    /// The [`fingerprint`] of the standstill that the last warning was about. The same goroutines in the same waits are
    /// the same standstill, also if another thread made them run in between: a service that is idle is warned of once.
    warned: u64,
}

impl Suspicion {
    /// Checks, on the monitor, while all Ps are idle. Does not return if the program is dead. Returns whether it might
    /// be: then look again soon.
    pub(crate) fn check(&mut self, shared: &Shared) -> bool {
        let switches = shared.sum(|p| &p.counters.switches);
        if !is_stuck(shared) {
            self.forget(0, 0);
            return false;
        }
        let now = clock::now_ns();
        if self.seen == 0 || self.switches != switches {
            self.forget(switches, now);
        }
        self.seen += 1;
        // While a thread of another kind exists, it asks again, ever more seldom.
        let ask = self.seen > 1 && (self.seen.is_power_of_two() || self.seen.is_multiple_of(128));
        let is_dead = || {
            is_alone(shared) && threads_beside() == Some(0) && !is_any_on_its_way(shared) && is_stuck(shared)
        };
        if ask && is_dead() {
            report(shared);
        }
        let patience_ns = shared.config.deadlock_warning_ns;
        self.settled |= patience_ns == 0;
        if !self.settled && now - self.since_ns >= patience_ns && monitor::all_others(shared, is_quiet) {
            self.settled = true;
            self.warn(shared);
        }
        self.seen < 1 << 20 && (is_alone(shared) || !self.settled)
    }

    fn forget(&mut self, switches: u64, now: u64) {
        *self = Suspicion { switches, since_ns: now, seen: 0, settled: false, warned: self.warned };
    }

    /// Returns whether a deadlock became possible after the last [`check`](Self::check) saw none.
    pub(crate) fn is_new(&self, shared: &Shared) -> bool {
        self.seen == 0 && is_stuck(shared)
    }

    /// Warns of this standstill, unless the last warning was of the same.
    fn warn(&mut self, shared: &Shared) {
        let found = fingerprint(shared);
        if std::mem::replace(&mut self.warned, found) == found {
            return;
        }
        let why = match threads_beside() {
            Some(1) => "the process has another thread, which may wake one".to_owned(),
            Some(n) if n > 1 => format!("the process has {n} other threads, which may wake one"),
            Some(_) if !is_alone(shared) => "there is another runtime, from which one may be woken".to_owned(),
            _ => "other threads may come, or be there unseen, and wake one".to_owned(),
        };
        let waited = Duration::from_nanos(clock::now_ns() - self.since_ns);
        let shared = shared.to_arc();
        // The warning has a thread of its own: standard error may be a pipe that is full, and the monitor must go on.
        let body = move || {
            let text = format!(
                "mungo: warning: all goroutines are asleep, for {:.1} s now: a deadlock?\n\
                 It is not fatal because {why}.\n\
                 (RuntimeBuilder::deadlock_warning or MUNGO_DEBUG=deadlock=ms says after how long this is said, 0: \
                 never.)\n\n{}{}",
                waited.as_secs_f64(),
                list(&shared),
                what_waits_for_whom(&shared),
            );
            say::write(format_args!("{text}")); // in one piece
        };
        _ = thread::own(|| std::thread::Builder::new().name("mungo-dump".into()).spawn(body));
    }
}

/// Returns whether a plain thread waits for a goroutine, and nothing in this runtime will wake one.
fn is_stuck(shared: &Shared) -> bool {
    SLEEPING_THREADS.load(Relaxed) > 0 && stands_still(shared)
}

/// Returns whether there are goroutines, none can run, and nothing in this runtime will wake one.
pub(crate) fn stands_still(shared: &Shared) -> bool {
    is_quiet(shared) && shared.live() > 0
}

/// Returns whether nothing runs, and nothing in this runtime will make a goroutine run.
fn is_quiet(shared: &Shared) -> bool {
    is_idle(shared)
        && shared.next_timer_ns() == u64::MAX
        && !crate::sched::netpoll::anyone_waits()
        && shared.all_ms_sleep()
}

/// Returns whether no goroutine has a P or waits for one.
pub(crate) fn is_idle(shared: &Shared) -> bool {
    shared.counts.idle_ps() == shared.procs()
        && shared.counts.spinning() == 0
        && !shared.any_work()
        && shared.held_len.load(Relaxed) == 0
        && shared.synced.lock().wanted.is_empty()
}

/// Returns whether a goroutine does not wait. One that was woken while the helper looked at its stack is in no queue
/// until the helper goes on.
fn is_any_on_its_way(shared: &Shared) -> bool {
    let mut found = false;
    shared.for_each_g(|g| found |= g.state.is_alive() && !g.state.is_waiting());
    found
}

/// Returns whether all threads of runtimes are this one's.
fn is_alone(shared: &Shared) -> bool {
    RUNTIME_THREADS.load(Relaxed) == shared.threads.load(Relaxed)
}

/// Returns the number of threads that are neither of a runtime nor asleep in one of our primitives. `None`: there is no
/// way to know.
fn threads_beside() -> Option<i64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?.count() as i64;
    let ours = i64::from(RUNTIME_THREADS.load(Relaxed)) + i64::from(SLEEPING_THREADS.load(Relaxed));
    let idle = tracer::threads() + i64::from(profile::is_thread_alive()) + live::threads();
    Some(tasks - ours - idle)
}

/// Returns a number that stands for which goroutines wait for what.
fn fingerprint(shared: &Shared) -> u64 {
    let mut sum = 1u64;
    shared.for_each_g(|g| {
        let wait = g.id.load(Relaxed) << 8 | u64::from(g.reason.load(Relaxed));
        sum = sum.wrapping_add(wait.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    });
    sum
}

/// Says what each goroutine waits for, and ends the process with status 2, as Go does.
fn report(shared: &Shared) -> ! {
    tracer::before_exit(true);
    let (list, graph) = (list(shared), what_waits_for_whom(&shared.to_arc()));
    say::write(format_args!("fatal error: all goroutines are asleep - deadlock!\n\n{list}{graph}"));
    // SAFETY: ends the process; nothing is left that could run.
    unsafe { libc::_exit(2) }
}

/// Returns the cycle of goroutines that wait for each other, if there is one, and lines of what waits for whom.
fn what_waits_for_whom(shared: &Arc<Shared>) -> String {
    let marker = 0u8;
    let graph = waits::graph_of(std::slice::from_ref(shared), Depth::Dead, &raw const marker as usize);
    let drawn = debug_env::get().deadlock_dot.as_deref().map_or_else(String::new, |path| draw(&graph, path));
    match graph.summary().as_str() {
        "" => drawn,
        summary => format!("\nmungo: what waits for whom\n{summary}{drawn}"),
    }
}

/// Draws the graph to the file that `MUNGO_DEBUG` names. Returns a line that says so.
fn draw(graph: &WaitGraph, path: &str) -> String {
    let path = path.replace("%p", &std::process::id().to_string());
    match std::fs::write(&path, graph.to_dot()) {
        Ok(()) => format!("mungo: the same for Graphviz is in {path}: dot -Tsvg {path}\n"),
        Err(e) => format!("mungo: MUNGO_DEBUG=deadlockdot={path}: {e}\n"),
    }
}

/// Returns a line for each goroutine, at most [`LISTED`] lines. Goroutines may run and end meanwhile.
fn list(shared: &Shared) -> String {
    let now = clock::now_ns();
    let mut lines = Vec::new();
    shared.for_each_g(|g| {
        // A handle: the name of a goroutine goes with the last one.
        let Some(g) = GRef::try_new(g) else { return };
        if !std::ptr::eq(g.shared.get(), shared) || !g.state.is_alive() {
            return;
        }
        let waited_ms = now.saturating_sub(g.since_ns.load(Relaxed)) / 1_000_000;
        lines.push((
            g.id.load(Relaxed),
            match g.state.is_waiting() {
                true => format!("goroutine {} [waiting: {}, {waited_ms} ms]", describe(&g), g.wait_reason()),
                false => format!("goroutine {} [runnable]", describe(&g)),
            },
        ));
    });
    lines.sort();
    let mut text = String::new();
    for (_, line) in lines.iter().take(LISTED) {
        _ = writeln!(text, "{line}");
    }
    if lines.len() > LISTED {
        _ = writeln!(text, "... and {} more", lines.len() - LISTED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// The warning is written while other threads may wake goroutines: what it says of one that ends meanwhile is true,
    /// or is left out.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn goroutines_may_end_while_they_are_listed() {
        // Long enough that a goroutine ends while its name is copied, and the memory goes to a name of the other kind.
        const LEN: usize = 1 << 20;
        static ENDED: AtomicBool = AtomicBool::new(false);
        let runtime = crate::Runtime::builder().procs(2).build().expect("a runtime");
        let make = || {
            for letter in ["a", "b"].into_iter().cycle().take_while(|_| !ENDED.load(Relaxed)) {
                let named = crate::Builder::new().name(letter.repeat(LEN)).spawn(crate::yield_now);
                named.expect("a goroutine").join().expect("no panic");
            }
        };
        let makers: Vec<_> = (0..2).map(|_| runtime.spawn(make)).collect();
        let start = std::time::Instant::now();
        let mut seen = 0;
        while start.elapsed() < Duration::from_secs(1) || seen < 10 && start.elapsed() < Duration::from_secs(60)
        {
            let text = list(runtime.shared());
            for name in text.lines().filter_map(|line| line.split('\'').nth(1)) {
                let first = name.as_bytes()[0];
                assert!(name.len() == LEN && b"ab".contains(&first) && name.bytes().all(|c| c == first));
                seen += 1;
            }
        }
        ENDED.store(true, Relaxed);
        makers.into_iter().for_each(|maker| maker.join().expect("no panic"));
    }
}
