//! The deadlock of the whole program: all goroutines are asleep.
//!
//! Go's rule, made exact: no goroutine can run, no timer will fire, somebody waits for a goroutine, and the process has
//! no thread but our own and those asleep in our own primitives. Any other thread might hold a channel or a handle and
//! wake somebody, so its mere existence means "no deadlock". The kernel knows how many threads there are.

use super::entry::describe;
use super::monitor::RUNTIME_THREADS;
use super::park::SLEEPING_THREADS;
use super::shared::Shared;
use crate::sys::clock;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// At most so many goroutines are listed.
const LISTED: usize = 1000;

/// What the last look saw; a deadlock is what two looks in a row see.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    switches: u64,
    seen: u32,
}

impl Suspicion {
    /// Called by the monitor while all Ps are idle. Does not return if the program is dead. `true`: it might be,
    /// look again soon.
    pub(super) fn check(&mut self, shared: &Shared) -> bool {
        let switches = shared.sum(|p| &p.counters.switches);
        if !nothing_will_happen(shared) {
            *self = Suspicion::default();
            return false;
        }
        if self.switches != switches {
            *self = Suspicion { switches, seen: 0 };
        }
        self.seen += 1;
        // Somebody else's thread: ask again, ever more seldom.
        match self.seen {
            1 => true,
            n if n.is_power_of_two() || n % 128 == 0 => {
                if all_threads_sleep(shared) && nothing_will_happen(shared) {
                    report(shared);
                }
                true
            }
            n => n < 1 << 20,
        }
    }

    /// Whether it became possible after the last [`check`](Self::check) saw none.
    pub(super) fn is_new(&self, shared: &Shared) -> bool {
        self.seen == 0 && nothing_will_happen(shared)
    }
}

fn nothing_will_happen(shared: &Shared) -> bool {
    let sleeping = SLEEPING_THREADS.load(Relaxed);
    sleeping > 0
        && shared.counts.idle_ps() == shared.procs()
        && shared.counts.spinning() == 0
        && shared.next_timer_ns() == u64::MAX
        && !crate::netpoll::anyone_waits()
        && !shared.any_work()
        && shared.synced.lock().wanted.is_empty()
        && shared.live() > 0
        && shared.all_ms_sleep()
        && RUNTIME_THREADS.load(Relaxed) == shared.threads.load(Relaxed)
}

fn all_threads_sleep(shared: &Shared) -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let ours = i64::from(shared.threads.load(Relaxed)) + i64::from(SLEEPING_THREADS.load(Relaxed));
    tasks.count() as i64 == ours
}

/// Says who waits for what, and ends the process with status 2, as Go does.
fn report(shared: &Shared) -> ! {
    let now = clock::now_ns();
    let mut lines = Vec::new();
    shared.for_each_g(|g| {
        let waited_ms = now.saturating_sub(g.since_ns.load(Relaxed)) / 1_000_000;
        lines.push((
            g.id.load(Relaxed),
            match g.state.is_waiting() {
                true => format!("goroutine {} [waiting: {}, {waited_ms} ms]", describe(g), g.wait_reason()),
                false => format!("goroutine {} [runnable]", describe(g)),
            },
        ));
    });
    lines.sort();
    let mut text = String::from("fatal error: all goroutines are asleep - deadlock!\n\n");
    for (_, line) in lines.iter().take(LISTED) {
        _ = writeln!(text, "{line}");
    }
    if lines.len() > LISTED {
        _ = writeln!(text, "... and {} more", lines.len() - LISTED);
    }
    eprint!("{text}");
    // SAFETY: ends the process; nothing is left that could run.
    unsafe { libc::_exit(2) }
}
