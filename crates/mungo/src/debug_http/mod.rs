//! What the tools of [`debug`](crate::debug) show, over HTTP, for any program: feature `debug-http`.
//!
//! | path                          | answer                                                                       |
//! |-------------------------------|------------------------------------------------------------------------------|
//! | `/debug/`                     | a page with links to the others                                              |
//! | `/debug/sched`                | what the scheduler does now, as JSON (`docs/live.md`), for `mungo top`        |
//! | `/debug/goroutines`           | all goroutines with their stacks, as [`dump`](crate::debug::dump)            |
//! | `/debug/waits`                | which goroutine waits for whom, as [`wait_graph`](crate::debug::wait_graph)  |
//! | `/debug/waits?format=dot`     | the same for Graphviz                                                        |
//! | `/debug/pprof/NAME`           | a [profile](crate::profile) for `go tool pprof`; `?debug=1`: as text         |
//! | `/debug/pprof/NAME?seconds=`  | what was added to it in the next seconds                                     |
//! | `/debug/pprof/profile?seconds=&hz=` | a CPU profile of the next seconds (10 unless said, at 100 Hz)          |
//! | `/debug/pprof/trace?seconds=` | an execution trace of the next seconds (1 unless said), for `mungo trace`    |
//! | `/metrics`                    | the metrics of the runtime that serves, for Prometheus                       |
//!
//! The profiles have the names `goroutine`, `block`, `mutex`, `sleep`, `network` and `runnable`; all but the first need
//! a block rate (`profile::set_block_rate`, `MUNGO_BLOCK_RATE`). `goroutine?debug=2` lists each goroutine with its
//! stack. One trace is taken at a time, of at most 64 MiB, since it is kept in memory; what cannot be done is answered
//! by status 503 and a line that says why.
//!
//! [`listen`] serves them on an address of their own, [`serve`] on a listener until a context is done. A server of the
//! program's own calls [`respond`] for paths that it does not know:
//!
//! ```
//! let answer = mungo::go(|| mungo::debug::http::respond("/debug/sched")).join().unwrap();
//! assert_eq!((answer.status, answer.content_type), (200, "application/json"));
//! assert!(answer.body.starts_with(b"{\"protocol\":1,"));
//! ```
//!
//! The answers tell much about a program, and a trace costs some time: keep the address from strangers. A
//! goroutine that waits for requests is one that the network may wake: "all goroutines are asleep" is not found then.

#[cfg_attr(not(all(feature = "profile", mungo_native)), path = "no_profiles.rs")]
mod profiles;
mod serve;

pub use serve::{listen, serve};

use crate::metrics::Metrics;
use crate::sched::report::live::snapshot;
use crate::sched::start::with_current;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest trace and longest CPU profile, in seconds.
const LONGEST_S: u64 = 60;

/// Most bytes of a trace, which is in memory until it is sent. TUNED: guess.
const LARGEST_TRACE: usize = 64 << 20;

/// Time between two looks at whether a trace is too large.
const LOOK: Duration = Duration::from_millis(100);

const PATHS: [(&str, &str); 13] = [
    ("/debug/sched", "what the scheduler does now, as JSON"),
    ("/debug/goroutines", "all goroutines with their stacks"),
    ("/debug/waits", "which goroutine waits for whom"),
    ("/debug/waits?format=dot", "the same for Graphviz"),
    ("/debug/pprof/goroutine", "a profile: what goroutines do"),
    ("/debug/pprof/block", "a profile: waits; mungo::profile::set_block_rate or MUNGO_BLOCK_RATE starts it"),
    ("/debug/pprof/mutex", "a profile: waits for locks, at the goroutine that unlocked"),
    ("/debug/pprof/sleep", "a profile: sleeps"),
    ("/debug/pprof/network", "a profile: waits for sockets"),
    ("/debug/pprof/runnable", "a profile: waits for a P"),
    ("/debug/pprof/profile?seconds=10", "a profile of CPU time"),
    ("/debug/pprof/trace?seconds=1", "an execution trace, for 'mungo trace'"),
    ("/metrics", "metrics for Prometheus"),
];

/// The answer to a request, by [`respond`].
///
/// ```
/// let answer: mungo::debug::http::Answer = mungo::debug::http::respond("/no/such/page");
/// assert_eq!(answer.status, 404);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The status: 200, or an error that the body explains.
    pub status: u16,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    fn text(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    fn of(content_type: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status: 200, content_type, body: body.into() }
    }
}

/// Answers a GET request for `target`: a path, and perhaps `?key=value&...` after it. Takes as long as a trace shall
/// take. A path that is not one of the [table](self) gets status 404, a parameter that is not understood 400, each with
/// a line that says what there is.
///
/// ```
/// use mungo::debug::http::respond;
///
/// assert_eq!(respond("/nothing").status, 404);
/// let refused = respond("/debug/pprof/trace?seconds=soon");
/// assert_eq!(refused.status, 400);
/// assert!(String::from_utf8_lossy(&refused.body).contains("seconds"));
/// ```
pub fn respond(target: &str) -> Answer {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let known: &[&str] = match path {
        "/debug/waits" => &["format"],
        "/debug/pprof/trace" => &["seconds"],
        "/debug/pprof/profile" => &["seconds", "hz"],
        _ if path.starts_with("/debug/pprof/") => &["debug", "seconds"],
        _ => &[],
    };
    let query = match parse(query, known) {
        Ok(query) => query,
        Err(why) => return Answer::text(400, format!("{path}: {why}\n")),
    };
    let parameter = |key: &str| query.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
    match path {
        "/" | "/debug" | "/debug/" | "/debug/pprof" | "/debug/pprof/" => index(),
        "/debug/sched" => Answer::of("application/json", snapshot::text()),
        "/debug/goroutines" => Answer::text(200, crate::debug::dump().to_string()),
        "/debug/waits" => match parameter("format") {
            None | Some("text") => Answer::text(200, crate::debug::wait_graph().to_string()),
            Some("dot") => Answer::of("text/vnd.graphviz", crate::debug::wait_graph().to_dot()),
            Some(other) => Answer::text(400, format!("{path}: format is text or dot, not '{other}'\n")),
        },
        "/debug/pprof/profile" => {
            profiles::cpu(parameter("seconds").unwrap_or("10"), parameter("hz").unwrap_or("100"))
        }
        _ if let Some(name) = path.strip_prefix("/debug/pprof/")
            && let Some(answer) = profiles::named(name, parameter("debug"), parameter("seconds")) =>
        {
            answer
        }
        "/debug/pprof/trace" => trace(parameter("seconds").unwrap_or("1")),
        "/metrics" => {
            let metrics = with_current(Metrics::of);
            Answer::of("application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.to_prometheus())
        }
        _ => Answer::text(404, format!("{path} is not here; there are\n{}", listed(|path, _| path.to_owned()))),
    }
}

fn listed(line: impl Fn(&str, &str) -> String) -> String {
    PATHS.iter().map(|(path, what)| line(path, what) + "\n").collect()
}

fn index() -> Answer {
    let links = listed(|path, what| format!("<li><a href=\"{path}\">{path}</a>: {what}</li>"));
    let head = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>mungo</title>";
    Answer::of("text/html; charset=utf-8", format!("{head}\n<h1>mungo</h1>\n<ul>\n{links}</ul>\n"))
}

/// Takes `key=value&...` apart. An error says what is wrong.
fn parse<'a>(query: &'a str, known: &[&str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    let mut found = Vec::new();
    for item in query.split('&').filter(|item| !item.is_empty()) {
        let (key, value) = item.split_once('=').ok_or_else(|| format!("'{item}' is not key=value"))?;
        if !known.contains(&key) {
            return Err(format!("the parameter '{key}' is not known; there are: {}", known.join(", ")));
        }
        found.push((key, value));
    }
    Ok(found)
}

/// Memory that a trace is written to. It fails when the room is used up, which ends the trace.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
    is_full: Arc<AtomicBool>,
}

impl Memory {
    fn new(room: usize) -> Memory {
        Memory { bytes: Arc::default(), room, is_full: Arc::default() }
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Memory {
    fn write(&mut self, new: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if new.len() > self.room - bytes.len() {
            self.is_full.store(true, Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.extend_from_slice(new);
        Ok(new.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a number of seconds. An error is the answer.
fn duration(seconds: &str) -> Result<Duration, Answer> {
    let parsed = seconds.parse::<f64>().ok().filter(|s| (0.0..=LONGEST_S as f64).contains(s));
    let refused = || Answer::text(400, format!("seconds is a number from 0 to {LONGEST_S}, not '{seconds}'\n"));
    parsed.map(Duration::from_secs_f64).ok_or_else(refused)
}

fn trace(seconds: &str) -> Answer {
    match duration(seconds) {
        Ok(duration) => trace_for(duration, LARGEST_TRACE),
        Err(refused) => refused,
    }
}

/// Takes a trace of at most `room` bytes.
fn trace_for(duration: Duration, room: usize) -> Answer {
    /// Whether a trace is being taken.
    static BUSY: AtomicBool = AtomicBool::new(false);
    struct Turn;
    impl Drop for Turn {
        fn drop(&mut self) {
            BUSY.store(false, Relaxed);
        }
    }
    if BUSY.swap(true, Relaxed) {
        return Answer::text(503, "/debug/pprof/trace: another trace is being taken: ask again later\n");
    }
    let _turn = Turn;
    let (memory, start) = (Memory::new(room), Instant::now());
    let traced = crate::trace::start_writer(memory.clone()).and_then(|tracing| {
        while start.elapsed() < duration && !memory.is_full.load(Relaxed) {
            crate::time::sleep(LOOK.min(duration.saturating_sub(start.elapsed())));
        }
        tracing.stop()
    });
    match traced {
        Ok(_) => Answer::of("application/octet-stream", memory.take()),
        Err(_) if memory.is_full.load(Relaxed) => {
            let seconds = start.elapsed().as_secs_f64();
            let why = format!("more than {} MiB in {seconds:.1} s: ask for fewer seconds", room >> 20);
            Answer::text(503, format!("/debug/pprof/trace: {why}\n"))
        }
        Err(e) => Answer::text(503, format!("/debug/pprof/trace: {e}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "a runtime")]
    fn a_trace_that_is_too_large_is_refused_and_ends() {
        let start = Instant::now();
        let answer = crate::spawn::go(|| trace_for(Duration::from_secs(60), 100)).join().unwrap();
        let body = String::from_utf8_lossy(&answer.body);
        assert!(answer.status == 503 && body.contains("ask for fewer seconds"), "{} {body}", answer.status);
        assert!(start.elapsed() < Duration::from_secs(50), "the rest of it is not waited for");
    }
}
