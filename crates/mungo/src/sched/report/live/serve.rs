//! The clients of the socket: who may ask, and what is answered.

use super::json::object;
use super::{PROTOCOL, snapshot, start_thread};
use crate::sched::report::memory;
use crate::sched::report::waits::{self, Depth};
use crate::sched::sysmon::monitor;
use crate::tracer::{self, Kept, SinkId, Triggers};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Most clients at a time.
const CLIENTS: i64 = 16;
/// Most bytes of a request.
const LONGEST: u64 = 8 << 10;

/// The flight recorder that clients have started, and how many of them want it. The threads of the socket alone use
/// it, which are no goroutines.
static RECORDER: Mutex<Option<(SinkId, u32)>> = Mutex::new(None);

fn recorder() -> MutexGuard<'static, Option<(SinkId, u32)>> {
    RECORDER.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Serves clients for ever.
pub(super) fn accept(listener: &UnixListener) {
    for client in listener.incoming() {
        let Ok(client) = client else {
            std::thread::sleep(Duration::from_millis(100)); // no descriptors, perhaps
            continue;
        };
        _ = client.set_write_timeout(Some(Duration::from_secs(10)));
        let refusal = if !may_ask(&client) {
            Some("refused: the socket is for the program's own user")
        } else if super::threads() > CLIENTS {
            Some("refused: too many clients")
        } else {
            None
        };
        match refusal {
            Some(why) => _ = answer(&client, &error(why)),
            None => _ = start_thread("mungo-live", move || _ = converse(&client)),
        }
    }
}

/// Returns whether the other side is the program's own user, or root.
fn may_ask(client: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel fills at most `len` bytes of a `ucred`.
    let asked = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut len)
    };
    // SAFETY: no memory involved.
    asked == 0 && (peer.uid == 0 || peer.uid == unsafe { libc::geteuid() })
}

fn converse(client: &UnixStream) -> io::Result<()> {
    answer(client, &greeting())?;
    let mut wish = Wish { is_recorded: false };
    let mut requests = BufReader::new(client);
    loop {
        let mut line = String::new();
        if requests.by_ref().take(LONGEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') {
            return answer(client, &error("a request is one line of at most 8 KiB"));
        }
        answer(client, &reply(line.trim(), &mut wish))?;
    }
}

fn answer(mut client: &UnixStream, text: &str) -> io::Result<()> {
    client.write_all(format!("{text}\n").as_bytes())
}

fn greeting() -> String {
    object(|o| {
        o.text("mungo", env!("CARGO_PKG_VERSION"));
        o.number("protocol", PROTOCOL.into());
        o.number("pid", std::process::id().into());
        o.text("program", &snapshot::program());
    })
}

fn error(why: &str) -> String {
    object(|o| o.text("error", why))
}

/// Returns the answer to a request: a line of JSON.
fn reply(request: &str, wish: &mut Wish) -> String {
    let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
    match verb {
        "sched" => snapshot::text(),
        "waits" => {
            let graph = waits::graph_of(&monitor::runtimes(), Depth::Searched, 0);
            memory::scrub();
            object(|o| {
                o.text("text", &graph.to_string());
                o.text("dot", &graph.to_dot());
                o.number("stuck", graph.stuck().count() as u64);
            })
        }
        "record" => done(wish.record()),
        "snapshot" if rest.is_empty() => error("snapshot needs a path: 'snapshot /tmp/program.trace'"),
        "snapshot" => done(write_snapshot(Path::new(rest))),
        "forget" => {
            wish.forget();
            done(Ok(0))
        }
        _ => error(&format!("'{verb}' is not known; there are sched, waits, record, snapshot PATH, forget")),
    }
}

fn done(result: io::Result<u64>) -> String {
    match result {
        Ok(events) => object(|o| o.number("events", events)),
        Err(e) => error(&e.to_string()),
    }
}

/// What a client has asked the flight recorder for. It ends with the client: a client that is gone cannot end it.
struct Wish {
    is_recorded: bool,
}

impl Wish {
    /// Starts the flight recorder, unless it runs.
    fn record(&mut self) -> io::Result<u64> {
        if self.is_recorded {
            return Ok(0);
        }
        let mut recorder = recorder();
        *recorder = Some(match *recorder {
            Some((sink, clients)) => (sink, clients + 1),
            None => {
                let kept = Kept { last: Duration::from_secs(10), max_bytes: 10 << 20 };
                (tracer::start_recorder(kept, false, Triggers::default())?, 1)
            }
        });
        self.is_recorded = true;
        Ok(0)
    }

    /// Ends the flight recorder, unless another client wants it.
    fn forget(&mut self) {
        if !std::mem::take(&mut self.is_recorded) {
            return;
        }
        let mut recorder = recorder();
        match &mut *recorder {
            Some((_, clients)) if *clients > 1 => *clients -= 1,
            it => _ = it.take().map(|(sink, _)| tracer::stop(sink)),
        }
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        self.forget();
    }
}

fn write_snapshot(path: &Path) -> io::Result<u64> {
    let Some((sink, _)) = *recorder() else {
        return Err(io::Error::other("nothing is recorded yet: ask for 'record' first"));
    };
    if !path.is_absolute() {
        return Err(io::Error::other("the path of a snapshot must be absolute"));
    }
    let mut events = 0;
    tracer::write_anew(path, |out| {
        events = tracer::snapshot(sink, out)?.events;
        Ok(())
    })?;
    Ok(events)
}
